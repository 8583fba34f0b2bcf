//! Unions, intersections and differences of sets.

use std::collections::HashSet;
use std::ops::ControlFlow;

use stillframe_store::DbId;

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("sdiff", -2, flag::READONLY, sdiff).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Subtract multiple sets", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("sdiffstore", -3, flag::WRITE | flag::DENYOOM, sdiffstore).event("sdiffstore").in_one_step().acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Subtract multiple sets and store the resulting set in a key", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::range(2, -1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("sinter", -2, flag::READONLY, sinter).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Intersect multiple sets", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("sintercard", -3, flag::READONLY | flag::MOVABLEKEYS, sintercard).acl(acl::SET)
        .doc(Group::Set, "7.0.0", "Intersect multiple sets and return the cardinality of the result", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .keys(&[KeySpec::counted(1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("sinterstore", -3, flag::WRITE | flag::DENYOOM, sinterstore).event("sinterstore").in_one_step().acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Intersect multiple sets and store the resulting set in a key", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE), KeySpec::range(2, -1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("sunion", -2, flag::READONLY, sunion).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Add multiple sets", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("sunionstore", -3, flag::WRITE | flag::DENYOOM, sunionstore).event("sunionstore").in_one_step().acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Add multiple sets and store the resulting set in a key", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::range(2, -1, 1, key_flag::RO | key_flag::ACCESS)]),
];

/// How sets are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// Members that are looked up in another set together.
const LOOKED_UP_TOGETHER: usize = 256;

type Members = Vec<Vec<u8>>;

/// Members of a set, in its order; none if it is absent.
fn members_of(ctx: &mut Ctx<'_>, db: DbId, args: &Args<'_>, index: usize) -> Result<Members, CmdError> {
    let (key, mut members) = (ctx.key(args, index), Vec::new());
    let found = ctx.worker.set_for_each(
        db,
        &key,
        |_| (),
        |member| {
            members.push(member.to_vec());
            ControlFlow::Continue(())
        },
    )?;
    ctx.looked_up(&key, found);
    Ok(members)
}

/// Leaves those members of which the set at an argument says what is wanted.
fn retain(
    ctx: &mut Ctx<'_>,
    db: DbId,
    args: &Args<'_>,
    index: usize,
    members: &mut Members,
    if_there: bool,
) -> CmdResult {
    let key = ctx.key(args, index);
    let mut kept = Vec::with_capacity(members.len());
    for group in members.chunks(LOOKED_UP_TOGETHER) {
        ctx.worker.set_contains(db, &key, group.iter().map(|member| &member[..]), |_, is_there| {
            kept.push(is_there == if_there);
        })?;
    }
    let mut kept = kept.into_iter();
    members.retain(|_| kept.next() == Some(true));
    Ok(())
}

/// How many members the set at each argument has; looks at the type of all of them.
fn lens(
    ctx: &mut Ctx<'_>,
    db: DbId,
    args: &Args<'_>,
    indices: std::ops::Range<usize>,
) -> Result<Vec<(u64, usize)>, CmdError> {
    indices
        .map(|index| {
            let key = ctx.key(args, index);
            Ok((ctx.worker.set_len(db, &key)?, index))
        })
        .collect()
}

/// The members of an intersection, `most` at most; the smallest set is walked through, the others are asked.
fn intersection(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    indices: std::ops::Range<usize>,
    most: usize,
) -> Result<Members, CmdError> {
    let db = ctx.db();
    let mut sets = lens(ctx, db, args, indices)?;
    sets.sort_unstable();
    let Some(&(len, first)) = sets.first() else { return Ok(Vec::new()) };
    if len == 0 {
        let absent = ctx.key(args, first);
        ctx.looked_up(&absent, false);
        return Ok(Vec::new());
    }
    let mut members = members_of(ctx, db, args, first)?;
    for (_, index) in &sets[1..] {
        retain(ctx, db, args, *index, &mut members, true)?;
    }
    members.truncate(most);
    Ok(members)
}

fn combine(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    first: usize,
    operation: Operation,
) -> Result<Members, CmdError> {
    let (db, indices) = (ctx.db(), first..args.len());
    match operation {
        Operation::Inter => intersection(ctx, args, indices, usize::MAX),
        Operation::Diff => {
            // All are looked at before the first is walked through.
            lens(ctx, db, args, indices)?;
            let mut members = members_of(ctx, db, args, first)?;
            for index in first + 1..args.len() {
                retain(ctx, db, args, index, &mut members, false)?;
            }
            Ok(members)
        }
        Operation::Union => {
            lens(ctx, db, args, indices.clone())?;
            let (mut seen, mut members) = (HashSet::new(), Vec::new());
            for index in indices {
                for member in members_of(ctx, db, args, index)? {
                    if seen.insert(member.clone()) {
                        members.push(member);
                    }
                }
            }
            Ok(members)
        }
    }
}

fn reply_members(ctx: &mut Ctx<'_>, members: &[Vec<u8>]) {
    ctx.reply.set(members.len());
    members.iter().for_each(|member| ctx.reply.bulk(member));
}

/// Stores the result at argument 1, or removes that key if there is none.
fn store(ctx: &mut Ctx<'_>, args: &Args<'_>, operation: Operation) -> CmdResult {
    let members = combine(ctx, args, 2, operation)?;
    let (db, target) = (ctx.db(), ctx.key(args, 1));
    let before = ctx.worker.change_count();
    if members.is_empty() {
        ctx.worker.remove(db, &target)?;
    } else {
        let given: Vec<&[u8]> = members.iter().map(|member| &member[..]).collect();
        ctx.worker.set_replace(db, &target, &given)?;
        ctx.count_as(before, 1);
    }
    ctx.reply.int(members.len() as i64);
    Ok(())
}

pub fn sinter(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let members = combine(ctx, args, 1, Operation::Inter)?;
    reply_members(ctx, &members);
    Ok(())
}

pub fn sunion(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let members = combine(ctx, args, 1, Operation::Union)?;
    reply_members(ctx, &members);
    Ok(())
}

pub fn sdiff(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let members = combine(ctx, args, 1, Operation::Diff)?;
    reply_members(ctx, &members);
    Ok(())
}

pub fn sinterstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    store(ctx, args, Operation::Inter)
}

pub fn sunionstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    store(ctx, args, Operation::Union)
}

pub fn sdiffstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    store(ctx, args, Operation::Diff)
}

pub fn sintercard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key_count = parse_i64(args.at(1)).filter(|number| *number >= 1);
    let key_count = key_count.ok_or(CmdError::from("ERR numkeys should be greater than 0"))?;
    let end =
        usize::try_from(key_count).unwrap_or(usize::MAX).checked_add(2).filter(|end| *end <= args.len());
    let Some(end) = end else {
        return Err("ERR Number of keys can't be greater than number of args".into());
    };
    let (mut limit, mut index) = (0, end);
    while index < args.len() {
        if !args.is(index, "LIMIT") || index + 1 >= args.len() {
            return Err(errors::SYNTAX.into());
        }
        let given = parse_i64(args.at(index + 1)).and_then(|number| usize::try_from(number).ok());
        limit = given.ok_or(CmdError::from("ERR LIMIT can't be negative"))?;
        index += 2;
    }
    let members = intersection(ctx, args, 2..end, if limit == 0 { usize::MAX } else { limit })?;
    ctx.reply.int(members.len() as i64);
    Ok(())
}

//! Unions, intersections and differences of sets.

use std::ops::{ControlFlow, Range};

use stillframe_store::Encoding;

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::collected::Collected;
use crate::protocol::errors;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("sdiff", -2, flag::READONLY, Touch::Steps, sdiff).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Subtract multiple sets", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("sdiffstore", -3, flag::WRITE | flag::DENYOOM, Touch::OneOperation, sdiffstore).reading().event("sdiffstore").acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Subtract multiple sets and store the resulting set in a key", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::range(2, -1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("sinter", -2, flag::READONLY, Touch::Steps, sinter).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Intersect multiple sets", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("sintercard", -3, flag::READONLY | flag::MOVABLEKEYS, Touch::Steps, sintercard).acl(acl::SET)
        .doc(Group::Set, "7.0.0", "Intersect multiple sets and return the cardinality of the result", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .keys(&[KeySpec::counted(1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("sinterstore", -3, flag::WRITE | flag::DENYOOM, Touch::OneOperation, sinterstore).reading().event("sinterstore").acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Intersect multiple sets and store the resulting set in a key", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE), KeySpec::range(2, -1, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("sunion", -2, flag::READONLY, Touch::Steps, sunion).acl(acl::SET)
        .doc(Group::Set, "1.0.0", "Add multiple sets", "O(N) where N is the total number of elements in all given sets.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("sunionstore", -3, flag::WRITE | flag::DENYOOM, Touch::OneOperation, sunionstore).reading().event("sunionstore").acl(acl::SET)
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

/// Members that are taken out of a set together, and looked up in others.
const GROUP_MEMBERS: usize = 256;

/// Members one behind the other.
#[derive(Default)]
struct Members {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Members {
    fn push(&mut self, member: &[u8]) {
        self.bytes.extend_from_slice(member);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, nth: usize) -> &[u8] {
        let begin = if nth == 0 { 0 } else { self.ends[nth - 1] };
        &self.bytes[begin..self.ends[nth]]
    }
}

/// A set that is walked through, and others with whether what is wanted of its members is there.
struct Walk {
    index: usize,
    others: Vec<(usize, bool)>,
}

/// The walks that give the members of a combination, each of them once: of the sets only those parts are in memory that are being
/// looked at. The sets are at the arguments `indices`.
fn walks_of(operation: Operation, indices: Range<usize>, lens: &[u64]) -> Vec<Walk> {
    let others = |range: Range<usize>, wanted: bool| range.map(move |index| (index, wanted)).collect();
    match operation {
        Operation::Union => {
            indices.clone().map(|index| Walk { index, others: others(indices.start..index, false) }).collect()
        }
        Operation::Diff => {
            vec![Walk { index: indices.start, others: others(indices.start + 1..indices.end, false) }]
        }
        Operation::Inter => {
            let mut by_len: Vec<(u64, usize)> = lens.iter().copied().zip(indices).collect();
            by_len.sort_unstable();
            let mut smallest_first = by_len.iter().map(|(_, index)| *index);
            let index = smallest_first.next().filter(|_| lens.iter().all(|len| *len > 0));
            let others = smallest_first.map(|index| (index, true)).collect();
            index.map(|index| Walk { index, others }).into_iter().collect()
        }
    }
}

/// Gives the members of a combination of the sets at the arguments `indices` to `f`, until it breaks. Returns how many members
/// each of these sets has.
fn combine(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    operation: Operation,
    indices: Range<usize>,
    mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Vec<u64>, CmdError> {
    // All are looked at first, and so are their types.
    let mut lens = Vec::with_capacity(indices.len());
    for index in indices.clone() {
        let key = ctx.key(args, index);
        let len = ctx.worker.set_at(ctx.client.db, &key).len()?;
        ctx.looked_up(&key, len > 0);
        lens.push(len);
    }
    for walk in walks_of(operation, indices, &lens) {
        if walk_through(ctx, args, &walk, &mut f)?.is_break() {
            break;
        }
    }
    Ok(lens)
}

fn walk_through(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    walk: &Walk,
    f: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, walk.index));
    let (mut cursor, mut group, mut kept) = (0, Members::default(), Vec::new());
    loop {
        group.clear();
        let next = ctx.worker.set_at(db, &key).scan(cursor, GROUP_MEMBERS, |member| group.push(member))?;
        kept.clear();
        kept.extend(0..group.len());
        for (index, wanted) in &walk.others {
            retain(ctx, args, *index, *wanted, &group, &mut kept)?;
        }
        if kept.iter().try_for_each(|nth| f(group.get(*nth))).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        match next {
            Some(next @ 1..) => cursor = next,
            _ => return Ok(ControlFlow::Continue(())),
        }
    }
}

/// Of the members of a group that have been kept, keeps those of which the set at an argument says what is wanted.
fn retain(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    wanted: bool,
    group: &Members,
    kept: &mut Vec<usize>,
) -> CmdResult {
    if kept.is_empty() {
        return Ok(());
    }
    let key = ctx.key(args, index);
    let (asked, mut are_wanted) = (kept.iter().map(|nth| group.get(*nth)), Vec::with_capacity(kept.len()));
    ctx.worker.set_at(ctx.client.db, &key).contains(asked, |_, is_there| {
        are_wanted.push(is_there == wanted);
    })?;
    let mut are_wanted = are_wanted.into_iter();
    kept.retain(|_| are_wanted.next() == Some(true));
    Ok(())
}

fn reply_members(ctx: &mut Ctx<'_>, args: &Args<'_>, operation: Operation) -> CmdResult {
    let mut found = Collected::new(&ctx.reply);
    combine(ctx, args, operation, 1..args.len(), |member| {
        found.push(member);
        if found.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    found.reply_set(&mut ctx.reply);
    Ok(())
}

/// How a difference of sets of these lengths is encoded, if not by its own members. Where that is less work than to look its
/// members up, Redis copies the first set, takes out of it what the others have, and leaves it encoded as all of it was.
fn encoding_of_copy(ctx: &mut Ctx<'_>, args: &Args<'_>, lens: &[u64]) -> Result<Option<Encoding>, CmdError> {
    let (first_len, all_len) = (lens[0], lens.iter().sum::<u64>());
    let looked_up = first_len * lens.iter().filter(|len| **len > 0).count() as u64 / 2;
    if looked_up <= all_len {
        return Ok(None);
    }
    let (db, key) = (ctx.db(), ctx.key(args, 2));
    let mut is_intset = first_len <= ctx.config.settings.collection_limits.intset_entries as u64;
    let mut cursor = Some(0);
    while let Some(from) = cursor.filter(|_| is_intset) {
        let next = ctx.worker.set_at(db, &key).scan(from, GROUP_MEMBERS, |member| {
            is_intset &= parse_i64(member).is_some();
        })?;
        cursor = next.filter(|next| *next > 0);
    }
    Ok(Some(if is_intset { Encoding::IntSet } else { Encoding::HashTable }))
}

/// Stores the result at argument 1, or removes that key if there is none.
fn store(ctx: &mut Ctx<'_>, args: &Args<'_>, operation: Operation) -> CmdResult {
    let mut members = Members::default();
    let lens = combine(ctx, args, operation, 2..args.len(), |member| {
        members.push(member);
        ControlFlow::Continue(())
    })?;
    let (db, target) = (ctx.db(), ctx.key(args, 1));
    let before = ctx.worker.change_count();
    if members.len() == 0 {
        ctx.worker.remove(db, &target)?;
    } else {
        let given: Vec<&[u8]> = (0..members.len()).map(|nth| members.get(nth)).collect();
        let begun_as = match operation {
            Operation::Diff => encoding_of_copy(ctx, args, &lens)?,
            Operation::Union | Operation::Inter => None,
        };
        ctx.worker.set_at(db, &target).replace(&given, begun_as)?;
        ctx.count_as(before, 1);
    }
    ctx.reply.int(members.len() as i64);
    Ok(())
}

pub fn sinter(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_members(ctx, args, Operation::Inter)
}

pub fn sunion(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_members(ctx, args, Operation::Union)
}

pub fn sdiff(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_members(ctx, args, Operation::Diff)
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
    let mut count = 0;
    combine(ctx, args, Operation::Inter, 2..end, |_| {
        count += 1;
        if count == limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    ctx.reply.int(count as i64);
    Ok(())
}

//! Sorted sets: members that are taken from an end, or chosen by chance.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stillframe_store::{Given, RangeLimit, ScoredRange, Sending, ValueType};

use super::random::reply_drawn;
use crate::command::operand::{integer_in, positive};
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::drawing::Drawn;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("zpopmax", -2, flag::WRITE | flag::FAST, Touch::OneOperation, zpopmax).acl(acl::SORTEDSET).event("zpopmax")
        .doc(Group::SortedSet, "5.0.0", "Remove and return members with the highest scores in a sorted set", "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("zpopmin", -2, flag::WRITE | flag::FAST, Touch::OneOperation, zpopmin).acl(acl::SORTEDSET).event("zpopmin")
        .doc(Group::SortedSet, "5.0.0", "Remove and return members with the lowest scores in a sorted set", "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("zmpop", -4, flag::WRITE | flag::MOVABLEKEYS, Touch::OneOperation, zmpop).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "7.0.0", "Remove and return members with scores in a sorted set", "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.")
        .keys(&[KeySpec::counted(1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("zrandmember", -2, flag::READONLY, Touch::Steps, zrandmember).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "6.2.0", "Get one or multiple random elements from a sorted set", "O(N) where N is the number of elements returned")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
];

pub fn zpopmin(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop(ctx, args, false)
}

pub fn zpopmax(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    pop(ctx, args, true)
}

fn pop(ctx: &mut Ctx<'_>, args: &Args<'_>, is_downwards: bool) -> CmdResult {
    if args.len() > 3 {
        return Err(errors::SYNTAX.into());
    }
    let count = args.get(2).map(positive).transpose()?;
    let is_nested = ctx.reply.resp3 && count.is_some();
    let popped = pop_from(ctx, args, 1, is_downwards, count.unwrap_or(1) as u64)?.unwrap_or_default();
    ctx.reply.array(if is_nested { popped.len() } else { 2 * popped.len() });
    for (member, score) in popped {
        member.give(|member| ctx.reply.scored_pair(is_nested, member, score));
    }
    Ok(())
}

/// A member that has been removed.
enum Popped {
    Here(Vec<u8>),
    Large(Sending),
}

impl Popped {
    fn of(member: Given<'_>) -> Popped {
        match member {
            Given::Here(member) => Popped::Here(member.to_vec()),
            Given::Large(member) => Popped::Large(member),
        }
    }

    fn give(self, f: impl FnOnce(Given<'_>)) {
        match self {
            Popped::Here(member) => f(Given::Here(&member)),
            Popped::Large(member) => f(Given::Large(member)),
        }
    }
}

/// Removes members from an end of the sorted set at an argument; `None` if there is none.
#[allow(clippy::type_complexity)]
fn pop_from(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    key_index: usize,
    is_downwards: bool,
    count: u64,
) -> Result<Option<Vec<(Popped, f64)>>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, key_index));
    let limit = RangeLimit { skipped: 0, most: count };
    let (mut popped, before) = (Vec::new(), ctx.worker.change_count());
    let take = |member: Given<'_>, score: f64| popped.push((Popped::of(member), score));
    let removed =
        ctx.worker.sorted_set_at(db, &key).send_removed(&ScoredRange::ALL, is_downwards, limit, take)?;
    ctx.count_as(before, removed.unwrap_or(0));
    Ok(removed.map(|_| popped))
}

/// What a `ZMPOP` asks for, whose number of keys is at an index.
pub(super) struct PopOptions {
    pub key_count: usize,
    is_downwards: bool,
    count: u64,
}

impl PopOptions {
    pub fn parse(args: &Args<'_>, at: usize) -> Result<PopOptions, CmdError> {
        let at_least_one = |text: &[u8], error: &'static str| {
            parse_i64(text).filter(|number| *number >= 1).ok_or(CmdError::from(error))
        };
        let key_count = at_least_one(args.at(at), "ERR numkeys should be greater than 0")?;
        let key_count = usize::try_from(key_count).unwrap_or(usize::MAX);
        let end_index = key_count.checked_add(at + 1).filter(|index| *index < args.len());
        let Some(end_index) = end_index else { return Err(errors::SYNTAX.into()) };
        let is_downwards = args.is(end_index, "MAX");
        if !is_downwards && !args.is(end_index, "MIN") {
            return Err(errors::SYNTAX.into());
        }
        let mut count = None;
        let mut index = end_index + 1;
        while index < args.len() {
            if count.is_some() || !args.is(index, "COUNT") || index + 1 >= args.len() {
                return Err(errors::SYNTAX.into());
            }
            count = Some(at_least_one(args.at(index + 1), "ERR count should be greater than 0")?);
            index += 2;
        }
        Ok(PopOptions { key_count, is_downwards, count: count.unwrap_or(1) as u64 })
    }
}

/// Removes members of the sorted set at an argument and replies with its name and them; false if there is none.
pub(super) fn pop_named(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    options: &PopOptions,
) -> Result<bool, CmdError> {
    ctx.server
        .notifier
        .name_stored(ctx.worker, Some(if options.is_downwards { "zpopmax" } else { "zpopmin" }));
    let Some(popped) = pop_from(ctx, args, index, options.is_downwards, options.count)? else {
        return Ok(false);
    };
    ctx.reply.array(2);
    ctx.reply.bulk(args.at(index));
    ctx.reply.array(popped.len());
    for (member, score) in popped {
        member.give(|member| ctx.reply.scored_pair(true, member, score));
    }
    Ok(true)
}

/// Removes one member and replies with the name of its sorted set, with it and its score; false if there is none.
pub(super) fn pop_one_named(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    index: usize,
    is_downwards: bool,
) -> Result<bool, CmdError> {
    let Some(popped) = pop_from(ctx, args, index, is_downwards, 1)? else { return Ok(false) };
    ctx.reply.array(3);
    ctx.reply.bulk(args.at(index));
    for (member, score) in popped {
        member.give(|member| ctx.reply.scored_pair(false, member, score));
    }
    Ok(true)
}

pub fn zmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = PopOptions::parse(args, 1)?;
    for index in 2..2 + options.key_count {
        if pop_named(ctx, args, index, &options)? {
            return Ok(());
        }
    }
    ctx.reply.null_array();
    Ok(())
}

/// So many different ranks below `len`.
fn distinct(count: u64, len: u64) -> Vec<u64> {
    if count == len {
        return (0..len).collect();
    }
    let mut chosen = BTreeSet::new();
    // Floyd's: each step adds one, and all sets are as likely.
    for last in len - count..len {
        let rank = fastrand::u64(..=last);
        if !chosen.insert(rank) {
            chosen.insert(last);
        }
    }
    chosen.into_iter().collect()
}

pub fn zrandmember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Some(count) = args.get(2) else {
        let Ctx { worker, reply, client, .. } = ctx;
        let one = |len| vec![fastrand::u64(..len)];
        let found = worker.sorted_set_at(client.db, &key).send_picked(one, |member, _| {
            reply.bulk_given(member);
            ControlFlow::Continue(())
        })?;
        if !found {
            ctx.reply.null();
        }
        ctx.looked_up(&key, found);
        return Ok(());
    };
    let count = integer_in(count, -i64::MAX..=i64::MAX)?;
    if args.len() > 4 || args.len() == 4 && !args.is(3, "WITHSCORES") {
        return Err(errors::SYNTAX.into());
    }
    let has_scores = args.len() == 4;
    if has_scores && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err("ERR value is out of range".into());
    }
    let entry = ctx.worker.entry(ctx.client.db, &key)?;
    ctx.looked_up(&key, entry.is_some());
    let Some(entry) = entry else {
        ctx.reply.array(0);
        return Ok(());
    };
    entry.must_be(ValueType::SortedSet)?;
    let len = ctx.worker.sorted_set_at(ctx.client.db, &key).len()?;
    if count < 0 {
        let drawn = Drawn::Scored { with_scores: has_scores };
        return reply_drawn(ctx, key.bytes, drawn, count.unsigned_abs());
    }
    let wanted = len.min(count as u64);
    ctx.reply.members(wanted as usize, has_scores);
    let Ctx { worker, reply, client, .. } = ctx;
    let choose = |len: u64| distinct(wanted.min(len), len);
    worker.sorted_set_at(client.db, &key).pick(choose, |member, score| {
        reply.member(Given::Here(member), score, has_scores);
        match reply.out.is_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    Ok(())
}

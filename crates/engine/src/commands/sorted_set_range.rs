//! Sorted sets: ranges by rank, by score and by name.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use stillframe_store::{CollectionLimits, Key, LexBound, RangeLimit, ScoreBound, ScoredRange};

use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::stream::{self, ScoredPart, Shape};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::double;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("zcount", 4, flag::READONLY | flag::FAST, Touch::OneOperation, zcount).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "2.0.0", "Count the members in a sorted set with scores within the given values", "O(log(N)) with N being the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zlexcount", 4, flag::READONLY | flag::FAST, Touch::OneOperation, zlexcount).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "2.8.9", "Count the number of members in a sorted set between a given lexicographical range", "O(log(N)) with N being the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrange", -4, flag::READONLY, Touch::OneOperation, zrange).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "1.2.0", "Return a range of members in a sorted set", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrangebylex", -4, flag::READONLY, Touch::OneOperation, zrangebylex).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "2.8.9", "Return a range of members in a sorted set, by lexicographical range", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrangebyscore", -4, flag::READONLY, Touch::OneOperation, zrangebyscore).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "1.0.5", "Return a range of members in a sorted set, by score", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrangestore", -5, flag::WRITE | flag::DENYOOM, Touch::OneOperation, zrangestore).reading().acl(acl::SORTEDSET).event("zrangestore")
        .doc(Group::SortedSet, "6.2.0", "Store a range of members from sorted set into another key", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE), KeySpec::range(2, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zremrangebylex", 4, flag::WRITE, Touch::OneOperation, zremrangebylex).acl(acl::SORTEDSET).event("zremrangebylex")
        .doc(Group::SortedSet, "2.8.9", "Remove all members in a sorted set between the given lexicographical range", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("zremrangebyrank", 4, flag::WRITE, Touch::OneOperation, zremrangebyrank).acl(acl::SORTEDSET).event("zremrangebyrank")
        .doc(Group::SortedSet, "2.0.0", "Remove all members in a sorted set within the given indexes", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("zremrangebyscore", 4, flag::WRITE, Touch::OneOperation, zremrangebyscore).acl(acl::SORTEDSET).event("zremrangebyscore")
        .doc(Group::SortedSet, "1.2.0", "Remove all members in a sorted set within the given scores", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("zrevrange", -4, flag::READONLY, Touch::OneOperation, zrevrange).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "1.2.0", "Return a range of members in a sorted set, by index, with scores ordered from high to low", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrevrangebylex", -4, flag::READONLY, Touch::OneOperation, zrevrangebylex).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "2.8.9", "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrevrangebyscore", -4, flag::READONLY, Touch::OneOperation, zrevrangebyscore).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "2.2.0", "Return a range of members in a sorted set, by score, with scores ordered from high to low", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];

const NOT_SCORES: &str = "ERR min or max is not a float";
const NOT_NAMES: &str = "ERR min or max not valid string range item";

/// What a range goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Rank,
    Score,
    Name,
}

fn score_bound(text: &[u8]) -> Option<ScoreBound> {
    match text.strip_prefix(b"(") {
        Some(score) => double::parse_loosely(score).map(ScoreBound::Excluded),
        None => double::parse_loosely(text).map(ScoreBound::Included),
    }
}

fn lex_bound(text: &[u8]) -> Option<LexBound<'_>> {
    match text {
        b"+" => Some(LexBound::Max),
        b"-" => Some(LexBound::Min),
        [b'(', name @ ..] => Some(LexBound::Excluded(name)),
        [b'[', name @ ..] => Some(LexBound::Included(name)),
        _ => None,
    }
}

impl By {
    /// The range between two arguments.
    fn range<'a>(self, min: &'a [u8], max: &'a [u8]) -> Result<ScoredRange<'a>, CmdError> {
        match self {
            By::Rank => Ok(ScoredRange::Ranks { first: integer(min)?, last: integer(max)? }),
            By::Score => match (score_bound(min), score_bound(max)) {
                (Some(min), Some(max)) => Ok(ScoredRange::Scores { min, max }),
                _ => Err(NOT_SCORES.into()),
            },
            By::Name => match (lex_bound(min), lex_bound(max)) {
                (Some(min), Some(max)) => Ok(ScoredRange::Lex { min, max }),
                _ => Err(NOT_NAMES.into()),
            },
        }
    }
}

/// What a command of a range asks for.
struct RangeOptions<'a> {
    range: ScoredRange<'a>,
    is_downwards: bool,
    limit: RangeLimit,
    has_scores: bool,
}

/// What a command says of its range by its name alone.
#[derive(Clone, Copy)]
struct Named {
    by: Option<By>,
    is_downwards: Option<bool>,
    /// Where the key is; the bounds follow.
    key_index: usize,
    stores: bool,
}

impl<'a> RangeOptions<'a> {
    fn parse(args: &Args<'a>, named: Named) -> Result<RangeOptions<'a>, CmdError> {
        let Named { mut by, mut is_downwards, key_index, stores } = named;
        let (mut has_scores, mut offset, mut most) = (false, 0, -1);
        let mut index = key_index + 3;
        while index < args.len() {
            if !stores && args.is(index, "WITHSCORES") {
                has_scores = true;
            } else if args.is(index, "LIMIT") && index + 2 < args.len() {
                (offset, most) = (integer(args.at(index + 1))?, integer(args.at(index + 2))?);
                index += 2;
            } else if named.is_downwards.is_none() && args.is(index, "REV") && is_downwards.is_none() {
                is_downwards = Some(true);
            } else if by.is_none() && args.is(index, "BYLEX") {
                by = Some(By::Name);
            } else if by.is_none() && args.is(index, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 1;
        }
        let (by, is_downwards) = (by.unwrap_or(By::Rank), is_downwards.unwrap_or(false));
        if most != -1 && by == By::Rank {
            return Err(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
                    .into(),
            );
        }
        if has_scores && by == By::Name {
            return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
        }
        let (mut min, mut max) = (args.at(key_index + 1), args.at(key_index + 2));
        if is_downwards && by != By::Rank {
            (min, max) = (max, min);
        }
        // Beyond the end there is nothing, nor before the beginning.
        let skipped = u64::try_from(offset).unwrap_or(u64::MAX);
        let limit = RangeLimit { skipped, most: u64::try_from(most).unwrap_or(u64::MAX) };
        let limit = if by == By::Rank { RangeLimit::NONE } else { limit };
        Ok(RangeOptions { range: by.range(min, max)?, is_downwards, limit, has_scores })
    }

    /// What a reply with many members is written by.
    fn shape(&self) -> Shape {
        let RangeOptions { ref range, is_downwards, limit, has_scores } = *self;
        Shape::Scored(ScoredPart { range: range.into(), is_downwards, limit, has_scores })
    }
}

/// Writes the members of a range, if they are fewer than so many. How many they are; `None` if there is no such sorted set.
fn write_fewer(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    options: &RangeOptions<'_>,
    too_many: u64,
) -> Result<Option<u64>, CmdError> {
    let RangeOptions { range, is_downwards, limit, has_scores } = options;
    let Ctx { worker, reply, client, .. } = ctx;
    let (reply, count) = (RefCell::new(reply), Cell::new(0));
    let begin = |found: u64| {
        count.set(found);
        if found < too_many {
            reply.borrow_mut().members(found as usize, *has_scores);
        }
    };
    let found = worker.sorted_set_at(client.db, key).send_range(
        range,
        *is_downwards,
        *limit,
        begin,
        |member, score| {
            if count.get() >= too_many {
                return ControlFlow::Break(());
            }
            let mut reply = reply.borrow_mut();
            reply.member(member, score, *has_scores);
            match reply.out.is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        },
    )?;
    Ok(found.then(|| count.get()))
}

fn give(ctx: &mut Ctx<'_>, args: &Args<'_>, by: Option<By>, is_downwards: Option<bool>) -> CmdResult {
    let options = RangeOptions::parse(args, Named { by, is_downwards, key_index: 1, stores: false })?;
    let key = ctx.key(args, 1);
    // How many there are is known on the way to the first: a range of few is looked for once.
    let too_many = stream::least_elements(ctx);
    let count = write_fewer(ctx, &key, &options, too_many)?;
    match count {
        None => ctx.reply.array(0),
        Some(count) if count >= too_many => {
            if !stream::begin(ctx, key.bytes, count, options.shape()) {
                ctx.worker.counting().look_anew();
                write_fewer(ctx, &key, &options, u64::MAX)?;
            }
        }
        Some(_) => {}
    }
    ctx.looked_up(&key, count.is_some());
    Ok(())
}

pub fn zrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    give(ctx, args, None, None)
}

pub fn zrevrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    give(ctx, args, Some(By::Rank), Some(true))
}

pub fn zrangebyscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    give(ctx, args, Some(By::Score), Some(false))
}

pub fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    give(ctx, args, Some(By::Score), Some(true))
}

pub fn zrangebylex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    give(ctx, args, Some(By::Name), Some(false))
}

pub fn zrevrangebylex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    give(ctx, args, Some(By::Name), Some(true))
}

pub fn zrangestore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options =
        RangeOptions::parse(args, Named { by: None, is_downwards: None, key_index: 2, stores: true })?;
    let key = ctx.key(args, 2);
    let mut members = Vec::new();
    let take = |member: &[u8], score: f64| {
        members.push((member.to_vec(), score));
        ControlFlow::Continue(())
    };
    let RangeOptions { range, is_downwards, limit, .. } = &options;
    let found =
        ctx.worker.sorted_set_at(ctx.client.db, &key).range(range, *is_downwards, *limit, |_| (), take)?;
    ctx.looked_up(&key, found);
    let is_by_rank = matches!(range, ScoredRange::Ranks { .. });
    drop_negative_zeros(&ctx.config.settings.collection_limits, is_by_rank, &mut members);
    store_members(ctx, args, 1, members, 1)
}

/// Redis adds the members one by one, and its small encoding has no negative zero: there is none before the member with which
/// that ends. If the number of members is known before, it may not even begin.
fn drop_negative_zeros(limits: &CollectionLimits, is_count_known: bool, members: &mut [(Vec<u8>, f64)]) {
    if is_count_known && members.len() > limits.sorted_set_entries {
        return;
    }
    let is_short = |(member, _): &&mut (Vec<u8>, f64)| member.len() <= limits.sorted_set_value_bytes;
    let small = members.iter_mut().take(limits.sorted_set_entries).take_while(is_short);
    small.for_each(|(_, score)| *score += 0.0);
}

/// Stores members under the key at an argument, which counts as so many changes, or removes that key if there are none; replies
/// with their number.
pub fn store_members(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    target_index: usize,
    mut members: Vec<(Vec<u8>, f64)>,
    change_count: u64,
) -> CmdResult {
    let (db, target) = (ctx.db(), ctx.key(args, target_index));
    let before = ctx.worker.change_count();
    let change_count = match members.is_empty() {
        true => u64::from(ctx.worker.remove(db, &target)?),
        false => {
            ctx.worker.sorted_set_at(db, &target).replace(&mut members)?;
            change_count
        }
    };
    ctx.count_as(before, change_count);
    ctx.reply.int(members.len() as i64);
    Ok(())
}

pub fn zcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    count(ctx, args, By::Score)
}

pub fn zlexcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    count(ctx, args, By::Name)
}

fn count(ctx: &mut Ctx<'_>, args: &Args<'_>, by: By) -> CmdResult {
    let range = by.range(args.at(2), args.at(3))?;
    let key = ctx.key(args, 1);
    let count = ctx.worker.sorted_set_at(ctx.client.db, &key).count(&range)?;
    ctx.looked_up(&key, count.is_some());
    ctx.reply.int(count.unwrap_or(0) as i64);
    Ok(())
}

pub fn zremrangebyrank(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    remove(ctx, args, By::Rank)
}

pub fn zremrangebyscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    remove(ctx, args, By::Score)
}

pub fn zremrangebylex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    remove(ctx, args, By::Name)
}

fn remove(ctx: &mut Ctx<'_>, args: &Args<'_>, by: By) -> CmdResult {
    let range = by.range(args.at(2), args.at(3))?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let before = ctx.worker.change_count();
    let removed =
        ctx.worker.sorted_set_at(db, &key).remove_range(&range, false, RangeLimit::NONE, |_, _| ())?;
    let removed = removed.unwrap_or(0);
    ctx.count_as(before, removed);
    ctx.reply.int(removed as i64);
    Ok(())
}

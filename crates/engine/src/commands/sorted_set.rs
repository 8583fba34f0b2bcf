//! Sorted sets: members that are given scores, looked up and removed.

use stillframe_store::{Bytes, Encoding, ScoreRule, ValueType};

use super::scan::Pattern;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::collected::Collected;
use crate::protocol::errors;
use crate::text::double;
use crate::text::number::parse_cursor;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("zadd", -4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, zadd).element(3).acl(acl::SORTEDSET).receives_names(|index| index >= 3)
        .doc(Group::SortedSet, "1.2.0", "Add one or more members to a sorted set, or update its score if it already exists", "O(log(N)) for each item added, where N is the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("zcard", 2, flag::READONLY | flag::FAST, Touch::OneOperation, zcard).acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "1.2.0", "Get the number of members in a sorted set", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("zincrby", 4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, zincrby).element(3).acl(acl::SORTEDSET).receives_names(|index| index >= 3).event("zincr")
        .doc(Group::SortedSet, "1.2.0", "Increment the score of a member in a sorted set", "O(log(N)) where N is the number of elements in the sorted set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("zmscore", -3, flag::READONLY | flag::FAST, Touch::OneOperation, zmscore).element(2).acl(acl::SORTEDSET).receives_names(|index| index >= 2)
        .doc(Group::SortedSet, "6.2.0", "Get the score associated with the given members in a sorted set", "O(N) where N is the number of members being requested.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrank", -3, flag::READONLY | flag::FAST, Touch::OneOperation, zrank).element(2).acl(acl::SORTEDSET).receives_names(|index| index >= 2)
        .doc(Group::SortedSet, "2.0.0", "Determine the index of a member in a sorted set", "O(log(N))")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zrem", -3, flag::WRITE | flag::FAST, Touch::OneOperation, zrem).element(2).acl(acl::SORTEDSET).receives_names(|index| index >= 2)
        .doc(Group::SortedSet, "1.2.0", "Remove one or more members from a sorted set", "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("zrevrank", -3, flag::READONLY | flag::FAST, Touch::OneOperation, zrevrank).element(2).acl(acl::SORTEDSET).receives_names(|index| index >= 2)
        .doc(Group::SortedSet, "2.0.0", "Determine the index of a member in a sorted set, with scores ordered from high to low", "O(log(N))")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("zscan", -3, flag::READONLY, Touch::Steps, zscan).counting().acl(acl::SORTEDSET)
        .doc(Group::SortedSet, "2.8.0", "Incrementally iterate sorted sets elements and associated scores", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("zscore", 3, flag::READONLY | flag::FAST, Touch::OneOperation, zscore).element(2).acl(acl::SORTEDSET).receives_names(|index| index >= 2)
        .doc(Group::SortedSet, "1.2.0", "Get the score associated with the given member in a sorted set", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
];

pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
const NAN: &str = "ERR resulting score is not a number (NaN)";

/// What a `ZADD` asks for.
#[derive(Default)]
struct AddOptions {
    rule: ScoreRule,
    counts_changed: bool,
    /// Where scores and members begin.
    first: usize,
}

impl AddOptions {
    fn parse(args: &Args<'_>, adds: bool) -> Result<AddOptions, CmdError> {
        let mut options = AddOptions { first: 2, ..AddOptions::default() };
        options.rule.adds = adds;
        while options.first < args.len() && options.take(args, options.first) {
            options.first += 1;
        }
        let rule = &options.rule;
        let element_args = args.len() - options.first;
        if element_args == 0 || element_args % 2 != 0 {
            return Err(errors::SYNTAX.into());
        }
        if rule.only_new && rule.only_present {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        let compares = rule.only_greater || rule.only_less;
        if compares && rule.only_new || rule.only_greater && rule.only_less {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
        }
        if rule.adds && element_args > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok(options)
    }

    /// Whether an argument is an option.
    fn take(&mut self, args: &Args<'_>, index: usize) -> bool {
        let rule = &mut self.rule;
        let options = [
            ("NX", &mut rule.only_new),
            ("XX", &mut rule.only_present),
            ("GT", &mut rule.only_greater),
            ("LT", &mut rule.only_less),
            ("INCR", &mut rule.adds),
            ("CH", &mut self.counts_changed),
        ];
        let wanted = options.into_iter().find(|(name, _)| args.is(index, name));
        wanted.map(|(_, option)| *option = true).is_some()
    }
}

fn add(ctx: &mut Ctx<'_>, args: &Args<'_>, adds: bool) -> CmdResult {
    let options = AddOptions::parse(args, adds)?;
    let scored = (options.first..args.len()).step_by(2).map(|index| {
        // A number that goes to pages as it comes is none.
        let text = args.bytes(index).here();
        let score = text.and_then(double::parse).ok_or(NOT_A_FLOAT)?;
        Ok((score, args.bytes(index + 1)))
    });
    let scored = scored.collect::<Result<Vec<_>, &str>>()?;
    if options.rule.adds {
        ctx.server.notifier.name_stored(ctx.worker, Some("zincr"));
    }
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let changes = ctx.worker.sorted_set_at(db, &key).put(&scored, &options.rule)?;
    match (options.rule.adds, changes.score) {
        _ if changes.is_nan => return Err(NAN.into()),
        (true, Some(score)) => ctx.reply.double(score),
        (true, None) => ctx.reply.null(),
        (false, _) => {
            let updated = if options.counts_changed { changes.updated } else { 0 };
            ctx.reply.int((changes.added + updated) as i64);
        }
    }
    Ok(())
}

pub fn zadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    add(ctx, args, false)
}

pub fn zincrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    add(ctx, args, true)
}

pub fn zrem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let members: Vec<Bytes<'_>> = args.bytes_from(2).collect();
    let before = ctx.worker.change_count();
    let removed = ctx.worker.sorted_set_at(db, &key).remove(&members)?;
    ctx.count_as(before, removed);
    ctx.reply.int(removed as i64);
    Ok(())
}

pub fn zcard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.sorted_set_at(ctx.client.db, &key).len()?;
    ctx.looked_up(&key, len > 0);
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn zscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    scores(ctx, args)
}

pub fn zmscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.reply.array(args.len() - 2);
    scores(ctx, args)
}

fn scores(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    let found = worker.sorted_set_at(client.db, &key).scores(args.bytes_from(2), |_, score| match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    })?;
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn zrank(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    rank(ctx, args, false, "zrank")
}

pub fn zrevrank(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    rank(ctx, args, true, "zrevrank")
}

fn rank(ctx: &mut Ctx<'_>, args: &Args<'_>, is_downwards: bool, command: &str) -> CmdResult {
    if args.len() > 4 {
        return Err(errors::wrong_arity(command).into());
    }
    let has_score = args.len() == 4;
    if has_score && !args.is(3, "WITHSCORE") {
        return Err(errors::SYNTAX.into());
    }
    let key = ctx.key(args, 1);
    let (found, rank) = ctx.worker.sorted_set_at(ctx.client.db, &key).rank(args.bytes(2), is_downwards)?;
    ctx.looked_up(&key, found);
    match rank {
        Some(rank) if has_score => {
            ctx.reply.array(2);
            ctx.reply.int(rank.rank as i64);
            ctx.reply.double(rank.score);
        }
        Some(rank) => ctx.reply.int(rank.rank as i64),
        None if has_score => ctx.reply.null_array(),
        None => ctx.reply.null(),
    }
    Ok(())
}

pub fn zscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(cursor) = parse_cursor(args.at(2)) else { return Err("ERR invalid cursor".into()) };
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let entry = ctx.worker.entry(db, &key)?;
    ctx.looked_up(&key, entry.is_some());
    let mut found = Collected::new(&ctx.reply);
    let mut next = 0;
    if let Some(entry) = entry {
        entry.must_be(ValueType::SortedSet)?;
        let (mut pattern, mut count): (&[u8], _) = (b"*", 10);
        for index in (3..args.len()).step_by(2) {
            let Some(value) = args.get(index + 1) else { return Err(errors::SYNTAX.into()) };
            if args.is(index, "COUNT") {
                count = integer(value)?;
                if count < 1 {
                    return Err(errors::SYNTAX.into());
                }
            } else if args.is(index, "MATCH") {
                pattern = value;
            } else {
                return Err(errors::SYNTAX.into());
            }
        }
        let pattern = Pattern::new(pattern);
        let is_small = entry.encoding == Some(Encoding::ListPack);
        next = ctx
            .worker
            .sorted_set_at(db, &key)
            .scan(cursor, count as u64, |member, score| {
                if pattern.matches(member) {
                    found.push(member);
                    found.push(scanned_score(score, is_small).as_bytes());
                }
            })?
            .unwrap_or(0);
    }
    ctx.reply.array(2);
    ctx.reply.bulk_int(next as i64);
    found.reply(&mut ctx.reply);
    Ok(())
}

/// A score as `ZSCAN` prints it: in Redis's small encoding an integer of up to 62 bits is kept as such.
fn scanned_score(score: f64, is_small: bool) -> String {
    let is_integer = score.trunc() == score && score.abs() <= (i64::MAX / 2) as f64;
    match is_small && is_integer {
        true => (score as i64).to_string(),
        false => double::to_text(score),
    }
}

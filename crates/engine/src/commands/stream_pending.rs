//! What is pending in a group: shown, and given to other consumers.

use stillframe_store::{ClaimRule, PendingRange, StreamId};

use crate::command::operand::integer;
use crate::command::stream_id;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::commands::stream_group::no_such_group;
use crate::commands::stream_range::Entries;
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::parse_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("xpending", -3, flag::READONLY, Touch::OneOperation, xpending).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Return information and entries from a stream consumer group pending entries list, that are messages fetched but never acknowledged.", "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("xclaim", -6, flag::WRITE | flag::FAST, Touch::OneOperation, xclaim).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Changes (or acquires) ownership of a message in a consumer group, as if the message was delivered to the specified consumer.", "O(log N) with N being the number of messages in the PEL of the consumer group.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)])
        .tips(&["nondeterministic_output"]),
    Command::new("xautoclaim", -6, flag::WRITE | flag::FAST, Touch::OneOperation, xautoclaim).acl(acl::STREAM)
        .doc(Group::Stream, "6.2.0", "Changes (or acquires) ownership of messages in a consumer group, as if the messages were delivered to the specified consumer.", "O(1) if COUNT is small.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)])
        .tips(&["nondeterministic_output"]),
];

/// What a long `XPENDING` asks for.
fn pending_range<'a>(args: &Args<'a>) -> Result<PendingRange<'a>, CmdError> {
    let (mut at, mut min_idle_ms) = (3, 0);
    if args.is(at, "IDLE") {
        min_idle_ms = integer(args.at(at + 1))?;
        if args.len() < 8 {
            return Err(errors::SYNTAX.into());
        }
        at += 2;
    }
    let most = u64::try_from(integer(args.at(at + 2))?).unwrap_or(0);
    let (from, to) = (stream_id::least(args.at(at))?, stream_id::greatest(args.at(at + 1))?);
    Ok(PendingRange { from, to, most, consumer: args.get(at + 3), min_idle_ms })
}

pub fn xpending(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    if args.len() == 3 {
        let summary = ctx.worker.stream_at(ctx.client.db, &key).group(args.at(2)).pending_summary()?;
        let summary = summary.map_err(|_| no_such_group(args, 1, 2))?;
        ctx.reply.array(4);
        ctx.reply.int(summary.count as i64);
        if summary.count == 0 {
            ctx.reply.null();
            ctx.reply.null();
            ctx.reply.null_array();
            return Ok(());
        }
        ctx.reply.bulk(stream_id::IdText::of(summary.first).bytes());
        ctx.reply.bulk(stream_id::IdText::of(summary.last).bytes());
        ctx.reply.array(summary.consumers.len());
        for (name, count) in &summary.consumers {
            ctx.reply.array(2);
            ctx.reply.bulk(name);
            ctx.reply.bulk(count.to_string().as_bytes());
        }
        return Ok(());
    }
    if !(6..=9).contains(&args.len()) {
        return Err(errors::SYNTAX.into());
    }
    let range = pending_range(args)?;
    let found = ctx.worker.stream_at(ctx.client.db, &key).group(args.at(2)).pending(&range)?;
    let found = found.map_err(|_| no_such_group(args, 1, 2))?;
    let now = ctx.worker.now();
    ctx.reply.array(found.len());
    for pending in found {
        ctx.reply.array(4);
        ctx.reply.bulk(stream_id::IdText::of(pending.id).bytes());
        ctx.reply.bulk(&pending.consumer);
        ctx.reply.int(now.saturating_sub(pending.time_ms).max(0));
        ctx.reply.int(pending.count as i64);
    }
    Ok(())
}

/// Milliseconds that an entry must have been idle.
fn min_idle(text: &[u8], command: &str) -> Result<i64, CmdError> {
    let idle = parse_i64(text).ok_or_else(|| format!("ERR Invalid min-idle-time argument for {command}"))?;
    Ok(idle.max(0))
}

/// The options of an `XCLAIM`, from an argument on.
fn claim_rule(ctx: &Ctx<'_>, args: &Args<'_>, mut index: usize) -> Result<ClaimRule, CmdError> {
    let mut rule = ClaimRule::new(min_idle(args.at(4), "XCLAIM")?, false);
    let number = |at: usize, name: &str| {
        parse_i64(args.at(at))
            .ok_or_else(|| CmdError::from(format!("ERR Invalid {name} option argument for XCLAIM")))
    };
    while index < args.len() {
        let has_more = index + 1 < args.len();
        if args.is(index, "FORCE") {
            rule.forces = true;
        } else if args.is(index, "JUSTID") {
            rule.is_silent = true;
        } else if args.is(index, "IDLE") && has_more {
            index += 1;
            rule.time_ms = Some(ctx.worker.now().saturating_sub(number(index, "IDLE")?));
        } else if args.is(index, "TIME") && has_more {
            index += 1;
            rule.time_ms = Some(number(index, "TIME")?);
        } else if args.is(index, "RETRYCOUNT") && has_more {
            index += 1;
            rule.count = u64::try_from(number(index, "RETRYCOUNT")?).ok();
        } else if args.is(index, "LASTID") && has_more {
            index += 1;
            rule.last = Some(stream_id::strict(args.at(index), 0)?);
        } else {
            return Err(errors::with_words("ERR Unrecognized XCLAIM option '%'", &[args.at(index)]).into());
        }
        index += 1;
    }
    Ok(rule)
}

/// Refuses where there is no such group.
fn must_have_group(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let found = ctx.worker.stream_at(db, &key).group(args.at(2)).info()?;
    found.map(drop).map_err(|_| no_such_group(args, 1, 2))
}

pub fn xclaim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    must_have_group(ctx, args)?;
    min_idle(args.at(4), "XCLAIM")?;
    let ids: Vec<StreamId> = args.from(5).map_while(|id| stream_id::strict(id, 0).ok()).collect();
    let rule = claim_rule(ctx, args, 5 + ids.len())?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let entries = std::cell::RefCell::new(Entries::new(&ctx.reply));
    let claimed = ctx.worker.stream_at(db, &key).group(args.at(2)).claim(
        args.at(3),
        &ids,
        &rule,
        || entries.borrow_mut().clear(),
        |id, parts| entries.borrow_mut().put_claimed(id, parts, rule.is_silent),
    )?;
    claimed.map_err(|_| no_such_group(args, 1, 2))?;
    entries.into_inner().give(&mut ctx.reply);
    Ok(())
}

/// So many entries an `XAUTOCLAIM` claims, unless it says how many; and at most.
const CLAIMED: u64 = 100;
const CLAIMED_MAX: i64 = i64::MAX / 16;

pub fn xautoclaim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut rule = ClaimRule::new(min_idle(args.at(4), "XAUTOCLAIM")?, false);
    let from = stream_id::least(args.at(5))?;
    let (mut most, mut index) = (CLAIMED, 6);
    while index < args.len() {
        if args.is(index, "COUNT") && index + 1 < args.len() {
            let count = parse_i64(args.at(index + 1)).filter(|count| (1..=CLAIMED_MAX).contains(count));
            most = count.ok_or("ERR COUNT must be > 0")? as u64;
            index += 2;
        } else if args.is(index, "JUSTID") {
            rule.is_silent = true;
            index += 1;
        } else {
            return Err(errors::SYNTAX.into());
        }
    }
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let entries = std::cell::RefCell::new(Entries::new(&ctx.reply));
    let claimed = ctx.worker.stream_at(db, &key).group(args.at(2)).auto_claim(
        args.at(3),
        (from, most),
        &rule,
        || entries.borrow_mut().clear(),
        |id, parts| entries.borrow_mut().put_claimed(id, parts, rule.is_silent),
    )?;
    let claimed = claimed.map_err(|_| no_such_group(args, 1, 2))?;
    ctx.reply.array(3);
    ctx.reply.bulk(stream_id::IdText::of(claimed.next).bytes());
    entries.into_inner().give(&mut ctx.reply);
    ctx.reply.array(claimed.gone.len());
    claimed.gone.iter().for_each(|id| ctx.reply.bulk(stream_id::IdText::of(*id).bytes()));
    Ok(())
}

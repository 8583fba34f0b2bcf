//! `XINFO`: what a stream says of itself.

use stillframe_store::{
    ConsumerInfo, EntryRange, GroupInfo, NoGroup, PendingInfo, PendingRange, StreamId, StreamInfo,
};

use crate::command::operand::integer;
use crate::command::stream_id;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::commands::stream_range::{look, Entries};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("xinfo", -2, 0)
        .doc(Group::Stream, "5.0.0", "A container for stream introspection commands", "Depends on subcommand."),
    Command::new("xinfo|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("xinfo|stream", -3, flag::READONLY, Touch::Steps, stream).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "Get information about a stream", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("xinfo|groups", 3, flag::READONLY, Touch::OneOperation, groups).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "List the consumer groups of a stream", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("xinfo|consumers", 4, flag::READONLY, Touch::OneOperation, consumers).acl(acl::STREAM)
        .doc(Group::Stream, "5.0.0", "List the consumers in a consumer group", "O(1)")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
];

/// So many entries `FULL` shows, unless it says how many.
const SHOWN: u64 = 10;

/// How many entries are to be shown; `None`: the short form. 0: all.
fn full_count(args: &Args<'_>) -> Result<Option<u64>, CmdError> {
    let text = "ERR unknown subcommand or wrong number of arguments for '%'. Try XINFO HELP.";
    let wrong = || CmdError::from(errors::with_words(text, &[args.at(1)]));
    match args.len() {
        3 => Ok(None),
        4 if args.is(3, "FULL") => Ok(Some(SHOWN)),
        6 if args.is(3, "FULL") && args.is(4, "COUNT") => {
            Ok(Some(u64::try_from(integer(args.at(5))?).unwrap_or(SHOWN)))
        }
        _ => Err(wrong()),
    }
}

fn put_id(ctx: &mut Ctx<'_>, name: &str, id: StreamId) {
    ctx.reply.bulk(name.as_bytes());
    ctx.reply.bulk(stream_id::IdText::of(id).bytes());
}

fn put_number(ctx: &mut Ctx<'_>, name: &str, number: u64) {
    ctx.reply.bulk(name.as_bytes());
    ctx.reply.int(number as i64);
}

/// What both forms begin with.
fn put_marks(ctx: &mut Ctx<'_>, info: &StreamInfo) {
    put_number(ctx, "length", info.len);
    put_number(ctx, "radix-tree-keys", info.node_count);
    // There is no such tree: one node above each listpack's, as Redis has with few of them.
    put_number(ctx, "radix-tree-nodes", info.node_count + 1);
    put_id(ctx, "last-generated-id", info.last);
    put_id(ctx, "max-deleted-entry-id", info.max_deleted);
    put_number(ctx, "entries-added", info.added_count);
    put_id(ctx, "recorded-first-entry-id", info.first);
}

fn entries(ctx: &mut Ctx<'_>, args: &Args<'_>, is_downwards: bool, most: u64) -> Result<Entries, CmdError> {
    let range = EntryRange { from: StreamId::MIN, to: StreamId::MAX, is_downwards, most };
    look(ctx, args, 2, &range)?.ok_or(errors::NO_SUCH_KEY.into())
}

pub fn stream(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 2);
    let info = ctx.worker.stream_at(ctx.client.db, &key).info()?;
    ctx.looked_up(&key, info.is_some());
    let Some(info) = info else { return Err(errors::NO_SUCH_KEY.into()) };
    match full_count(args)? {
        None => {
            let ends = [entries(ctx, args, false, 1)?, entries(ctx, args, true, 1)?];
            ctx.reply.map(10);
            put_marks(ctx, &info);
            put_number(ctx, "groups", info.group_count);
            for (name, end) in ["first-entry", "last-entry"].into_iter().zip(ends) {
                ctx.reply.bulk(name.as_bytes());
                end.give_one(&mut ctx.reply);
            }
        }
        Some(count) => {
            let groups = full_groups(ctx, args, count)?;
            let shown = entries(ctx, args, false, if count == 0 { u64::MAX } else { count })?;
            ctx.reply.map(9);
            put_marks(ctx, &info);
            ctx.reply.bulk(b"entries");
            shown.give(&mut ctx.reply);
            put_groups_in_full(ctx, &groups);
        }
    }
    Ok(())
}

/// An optional number.
fn put_count(ctx: &mut Ctx<'_>, name: &str, count: Option<u64>) {
    ctx.reply.bulk(name.as_bytes());
    match count {
        Some(count) => ctx.reply.int(count as i64),
        None => ctx.reply.null(),
    }
}

fn put_name(ctx: &mut Ctx<'_>, name: &[u8]) {
    ctx.reply.bulk(b"name");
    ctx.reply.bulk(name);
}

/// A group as the long form shows it.
struct FullGroup {
    info: GroupInfo,
    pending: Vec<PendingInfo>,
    consumers: Vec<(ConsumerInfo, Vec<PendingInfo>)>,
}

/// The first entries that are pending, or that a consumer owns.
fn first_pending(most: u64, consumer: Option<&[u8]>) -> PendingRange<'_> {
    PendingRange { from: StreamId::MIN, to: StreamId::MAX, most, consumer, min_idle_ms: i64::MIN }
}

/// Looks at all groups before the first is shown.
fn full_groups(ctx: &mut Ctx<'_>, args: &Args<'_>, count: u64) -> Result<Vec<FullGroup>, CmdError> {
    let key = ctx.key(args, 2);
    let db = ctx.client.db;
    let most = if count == 0 { u64::MAX } else { count };
    let mut all = Vec::new();
    for info in ctx.worker.stream_at(db, &key).groups()?.unwrap_or_default() {
        let name = &info.name[..];
        let pending = ctx
            .worker
            .stream_at(db, &key)
            .group(name)
            .pending(&first_pending(most, None))?
            .unwrap_or_default();
        let mut consumers = Vec::new();
        for consumer in ctx.worker.stream_at(db, &key).group(name).consumers()?.unwrap_or_default() {
            let wanted = first_pending(most, Some(&consumer.name));
            let owned = ctx.worker.stream_at(db, &key).group(name).pending(&wanted)?.unwrap_or_default();
            consumers.push((consumer, owned));
        }
        all.push(FullGroup { pending, consumers, info: info.clone() });
    }
    Ok(all)
}

fn put_groups_in_full(ctx: &mut Ctx<'_>, groups: &[FullGroup]) {
    ctx.reply.bulk(b"groups");
    ctx.reply.array(groups.len());
    for FullGroup { info, pending, consumers } in groups {
        ctx.reply.map(7);
        put_name(ctx, &info.name);
        put_id(ctx, "last-delivered-id", info.last);
        put_count(ctx, "entries-read", info.read_count);
        put_count(ctx, "lag", info.lag);
        put_number(ctx, "pel-count", info.pending_count);
        ctx.reply.bulk(b"pending");
        ctx.reply.array(pending.len());
        for PendingInfo { id, consumer, time_ms, count } in pending {
            ctx.reply.array(4);
            ctx.reply.bulk(stream_id::IdText::of(*id).bytes());
            ctx.reply.bulk(consumer);
            ctx.reply.int(*time_ms);
            ctx.reply.int(*count as i64);
        }
        ctx.reply.bulk(b"consumers");
        ctx.reply.array(consumers.len());
        for (consumer, owned) in consumers {
            put_consumer_in_full(ctx, consumer, owned);
        }
    }
}

fn put_consumer_in_full(ctx: &mut Ctx<'_>, consumer: &ConsumerInfo, owned: &[PendingInfo]) {
    ctx.reply.map(4);
    put_name(ctx, &consumer.name);
    ctx.reply.bulk(b"seen-time");
    ctx.reply.int(consumer.seen_ms);
    put_number(ctx, "pel-count", consumer.pending_count);
    ctx.reply.bulk(b"pending");
    ctx.reply.array(owned.len());
    for PendingInfo { id, time_ms, count, .. } in owned {
        ctx.reply.array(3);
        ctx.reply.bulk(stream_id::IdText::of(*id).bytes());
        ctx.reply.int(*time_ms);
        ctx.reply.int(*count as i64);
    }
}

pub fn groups(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 2);
    let groups = ctx.worker.stream_at(ctx.client.db, &key).groups()?;
    ctx.looked_up(&key, groups.is_some());
    let Some(groups) = groups else { return Err(errors::NO_SUCH_KEY.into()) };
    ctx.reply.array(groups.len());
    for info in groups {
        ctx.reply.map(6);
        put_name(ctx, &info.name);
        put_number(ctx, "consumers", info.consumer_count);
        put_number(ctx, "pending", info.pending_count);
        put_id(ctx, "last-delivered-id", info.last);
        put_count(ctx, "entries-read", info.read_count);
        put_count(ctx, "lag", info.lag);
    }
    Ok(())
}

pub fn consumers(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 2);
    let found = ctx.worker.stream_at(ctx.client.db, &key).group(args.at(3)).consumers()?;
    ctx.looked_up(&key, found != Err(NoGroup::NoStream));
    let consumers = match found {
        Ok(consumers) => consumers,
        Err(NoGroup::NoStream) => return Err(errors::NO_SUCH_KEY.into()),
        Err(NoGroup::NoGroup) => {
            let words = [args.at(3), args.at(2)];
            return Err(
                errors::with_words("NOGROUP No such consumer group '%' for key name '%'", &words).into()
            );
        }
    };
    let now = ctx.worker.now();
    ctx.reply.array(consumers.len());
    for consumer in consumers {
        ctx.reply.map(3);
        put_name(ctx, &consumer.name);
        put_number(ctx, "pending", consumer.pending_count);
        ctx.reply.bulk(b"idle");
        ctx.reply.int(now.saturating_sub(consumer.seen_ms).max(0));
    }
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply
        .help("XINFO", &["STREAM <key> [FULL [COUNT <count>]", "    Show information about the stream."]);
    Ok(())
}

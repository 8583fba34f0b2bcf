//! `XINFO`: what a stream says of itself.

use stillframe_store::{EntryRange, StreamId, StreamInfo};

use crate::command::operand::integer;
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
];

/// So many entries `FULL` shows, unless it says how many.
const SHOWN: u64 = 10;

/// How many entries are to be shown; `None`: the short form. 0: all.
fn full_count(args: &Args<'_>) -> Result<Option<u64>, CmdError> {
    let wrong = || {
        let sub = String::from_utf8_lossy(errors::printed(args.at(1))).into_owned();
        CmdError::from(format!(
            "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try XINFO HELP."
        ))
    };
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
    ctx.reply.bulk(id.to_string().as_bytes());
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
            put_number(ctx, "groups", 0);
            for (name, end) in ["first-entry", "last-entry"].into_iter().zip(ends) {
                ctx.reply.bulk(name.as_bytes());
                end.give_one(&mut ctx.reply);
            }
        }
        Some(count) => {
            let shown = entries(ctx, args, false, if count == 0 { u64::MAX } else { count })?;
            ctx.reply.map(9);
            put_marks(ctx, &info);
            ctx.reply.bulk(b"entries");
            shown.give(&mut ctx.reply);
            ctx.reply.bulk(b"groups");
            ctx.reply.array(0);
        }
    }
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply
        .help("XINFO", &["STREAM <key> [FULL [COUNT <count>]", "    Show information about the stream."]);
    Ok(())
}

//! `SLOWLOG`.

use crate::command::{flag, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::waiting::note_served;
use crate::protocol::args::Args;
use crate::text::number;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("slowlog", -2, 0)
        .acl(0)
        .doc(Group::Server, "2.2.12", "A container for slow log commands", "Depends on subcommand."),
    Command::new("slowlog|get", -2, flag::ADMIN | flag::LOADING | flag::STALE, Touch::Nothing, get)
        .acl(0)
        .doc(Group::Server, "2.2.12", "Get the slow log's entries", "O(N) where N is the number of entries returned")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    Command::new("slowlog|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .acl(0)
        .doc(Group::Server, "6.2.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("slowlog|len", 2, flag::ADMIN | flag::LOADING | flag::STALE, Touch::Nothing, len)
        .acl(0)
        .doc(Group::Server, "2.2.12", "Get the slow log's length", "O(1)")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    Command::new("slowlog|reset", 2, flag::ADMIN | flag::LOADING | flag::STALE, Touch::Nothing, reset)
        .acl(0)
        .doc(Group::Server, "2.2.12", "Clear all entries from the slow log", "O(N) where N is the number of entries in the slowlog")
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

const DEFAULT_COUNT: usize = 10;

pub fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let count = match args.get(2) {
        _ if args.len() > 3 => {
            return Err(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.".into()
            )
        }
        None => DEFAULT_COUNT,
        Some(text) => match number::parse_i64(text) {
            Some(-1) => usize::MAX,
            Some(count @ 0..) => count as usize,
            _ => return Err("ERR count should be greater than or equal to -1".into()),
        },
    };
    note_served(ctx.server, ctx.local, ctx.registry);
    let slowlog = ctx.server.slowlog.lock();
    let entries: Vec<_> = slowlog.entries.iter().take(count).collect();
    let reply = &mut ctx.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.int(entry.id as i64);
        reply.int(entry.unix_seconds as i64);
        reply.int(entry.time.as_micros() as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(&entry.client_name);
    }
    Ok(())
}

pub fn len(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    note_served(ctx.server, ctx.local, ctx.registry);
    ctx.reply.int(ctx.server.slowlog.lock().entries.len() as i64);
    Ok(())
}

pub fn reset(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    note_served(ctx.server, ctx.local, ctx.registry);
    ctx.server.slowlog.lock().entries.clear();
    ctx.reply.ok();
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "SLOWLOG",
        &[
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "    Entries are made of:",
            "    id, timestamp, time in microseconds, arguments array, client IP and port,",
            "    client name",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
        ],
    );
    Ok(())
}

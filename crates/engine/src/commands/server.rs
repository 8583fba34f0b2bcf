//! The server as a whole: time, role, monitoring, and what there is none of (replication, modules).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::operand;
use crate::command::{acl, flag, CmdResult, Group, Touch};
use crate::commands::connection::REDIS_VERSION;
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::monitor as monitors;
use crate::dispatch::subscribed;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("failover", -1, flag::ADMIN | flag::NOSCRIPT | flag::STALE, Touch::Nothing, failover)
        .acl(0)
        .doc(Group::Server, "6.2.0", "Start a coordinated failover between this server and one of its replicas.", "O(1)"),
    Command::new("lolwut", -1, flag::READONLY | flag::FAST, Touch::Nothing, lolwut)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Display some computer art and the Redis version", ""),
    Command::new("monitor", 1, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, monitor)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Listen for all requests received by the server in real time", ""),
    Command::new("replicaof", 3, flag::ADMIN | flag::NOSCRIPT | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, replicaof)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Make the server a replica of another instance, or promote it as master.", "O(1)"),
    Command::new("role", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST, Touch::Nothing, role)
        .acl(acl::ADMIN | acl::DANGEROUS)
        .doc(Group::Server, "2.8.12", "Return the role of the instance in the context of replication", "O(1)"),
    Command::new("slaveof", 3, flag::ADMIN | flag::NOSCRIPT | flag::STALE | flag::NO_ASYNC_LOADING, Touch::Nothing, slaveof)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Make the server a replica of another instance, or promote it as master.", "O(1)"),
    Command::new("time", 1, flag::LOADING | flag::STALE | flag::FAST, Touch::Nothing, time)
        .acl(0)
        .doc(Group::Server, "2.6.0", "Return the current server time", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("wait", 3, flag::NOSCRIPT, Touch::Nothing, wait)
        .acl(acl::CONNECTION)
        .doc(Group::Generic, "3.0.0", "Wait for the synchronous replication of all the write commands sent in the context of the current connection", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_min"]),
    Command::container("module", -2, 0)
        .acl(0)
        .doc(Group::Server, "4.0.0", "A container for module commands", "Depends on subcommand."),
    Command::new("module|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, module_help)
        .acl(0)
        .doc(Group::Server, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("module|list", 2, flag::ADMIN | flag::NOSCRIPT, Touch::Nothing, module_list)
        .acl(0)
        .doc(Group::Server, "4.0.0", "List all modules loaded by the server", "O(N) where N is the number of loaded modules.")
        .tips(&["nondeterministic_output_order"]),
];

pub fn time(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ctx.reply.array(2);
    ctx.reply.bulk_int(now.as_secs() as i64);
    ctx.reply.bulk_int(i64::from(now.subsec_micros()));
    Ok(())
}

pub fn role(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.int(0);
    ctx.reply.array(0);
    Ok(())
}

/// There are no replicas to wait for.
pub fn wait(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    operand::integer(args.at(1))?;
    match number::parse_i64(args.at(2)) {
        Some(0..) => ctx.reply.int(0),
        Some(_) => return Err("ERR timeout is negative".into()),
        None => return Err("ERR timeout is not an integer or out of range".into()),
    }
    Ok(())
}

pub fn replicaof(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.is(1, "no") && args.is(2, "one") {
        ctx.reply.ok();
        return Ok(());
    }
    match number::parse_i64(args.at(2)) {
        Some(0..=65535) => Err("ERR replication is not available in this server".into()),
        _ => Err("ERR Invalid master port".into()),
    }
}

pub fn slaveof(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    replicaof(ctx, args)
}

pub fn failover(_ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    match args.len() {
        1 => Err("ERR FAILOVER requires connected replicas.".into()),
        2 if args.is(1, "abort") => Err("ERR No failover in progress.".into()),
        _ if args.is(1, "to") || args.is(1, "timeout") => {
            Err("ERR FAILOVER requires connected replicas.".into())
        }
        _ => Err(errors::SYNTAX.into()),
    }
}

pub fn monitor(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    if ctx.client.within.is_transaction() {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    subscribed::hear(ctx, ctx.reply.out.len());
    monitors::start(ctx);
    ctx.reply.ok();
    subscribed::hear_behind(ctx);
    Ok(())
}

pub fn lolwut(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let text = format!("Redis ver. {REDIS_VERSION}\n");
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

pub fn module_list(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.array(0);
    Ok(())
}

pub fn module_help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help("MODULE", &["LIST", "    Return a list of loaded modules."]);
    Ok(())
}

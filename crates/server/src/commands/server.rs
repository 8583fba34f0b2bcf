//! The server as a whole: time, role, monitoring, and what there is none of (replication, modules).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::{Args, CmdResult};
use crate::commands::connection::REDIS_VERSION;
use crate::ctx::Ctx;
use crate::errors;
use crate::monitor as monitors;
use crate::number;

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
    number::integer(args.at(1))?;
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
    if ctx.client.is_in_exec {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    monitors::start(ctx);
    ctx.reply.ok();
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

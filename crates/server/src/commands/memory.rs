//! `MEMORY`.

use crate::command::{Args, CmdResult};
use crate::ctx::Ctx;
use crate::errors;
use crate::number::integer;

/// Below this much data there is nothing to be told, in bytes (as in Redis).
const WORTH_A_REPORT_BYTES: u64 = 5 << 20;

pub fn usage(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    for index in (3..args.len()).step_by(2) {
        match args.get(index + 1) {
            Some(count) if args.is(index, "SAMPLES") => {
                if integer(count)? < 0 {
                    return Err(errors::SYNTAX.into());
                }
            }
            _ => return Err(errors::SYNTAX.into()),
        }
    }
    let key = ctx.key(args, 2);
    match ctx.worker.entry(ctx.client.db, &key)? {
        Some(entry) => ctx.reply.int(entry.memory_bytes as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

pub fn stats(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    let store = &ctx.server.store;
    let dbs = (0..ctx.server.database_count).map(|n| store.db_stats(stillframe_store::DbId(n)));
    let key_count: u64 = dbs.map(|stats| stats.key_count).sum();
    let used = store.used_memory_bytes();
    let per_key = used.checked_div(key_count).unwrap_or(0);
    let reply = &mut ctx.reply;
    reply.map(3);
    for (name, number) in
        [("total.allocated", used), ("keys.count", key_count), ("keys.bytes-per-key", per_key)]
    {
        reply.bulk(name.as_bytes());
        reply.int(number as i64);
    }
    Ok(())
}

pub fn malloc_stats(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply.verbatim(b"Stats not supported for the current allocator");
    Ok(())
}

pub fn doctor(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    let text: &str = if ctx.server.store.used_memory_bytes() < WORTH_A_REPORT_BYTES {
        "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in \
         these conditions. Please, leave for your mission on Earth and fill it with some data. The new Sam and \
         I will be back to our programming as soon as I finished rebooting.\n"
    } else {
        "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this \
         base.\n"
    };
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

/// The pool gives memory back by itself, but for a reserve and after a while.
pub fn purge(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.server.store.pool().purge();
    ctx.reply.ok();
    Ok(())
}

pub fn help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.reply.help(
        "MEMORY",
        &[
            "DOCTOR",
            "    Return memory problems reports.",
            "MALLOC-STATS",
            "    Return internal statistics report from the memory allocator.",
            "PURGE",
            "    Attempt to purge dirty pages for reclamation by the allocator.",
            "STATS",
            "    Return information about the memory usage of the server.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value. Nested values are",
            "    sampled up to <count> times (default: 5, 0 means sample all).",
        ],
    );
    Ok(())
}

//! `MEMORY`.

use crate::command::operand::integer;
use crate::command::{flag, key_flag, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("memory", -2, 0)
        .doc(Group::Server, "4.0.0", "A container for memory diagnostics commands", "Depends on subcommand."),
    Command::new("memory|usage", -3, flag::READONLY, Touch::OneOperation, usage)
        .doc(Group::Server, "4.0.0", "Estimate the memory usage of a key", "O(N) where N is the number of samples.")
        .keys(&[KeySpec::range(2, 0, 1, key_flag::RO)]),
    Command::new("memory|stats", 2, 0, Touch::Nothing, stats)
        .doc(Group::Server, "4.0.0", "Show memory usage details", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("memory|malloc-stats", 2, 0, Touch::Nothing, malloc_stats)
        .doc(Group::Server, "4.0.0", "Show allocator internal stats", "Depends on how much memory is allocated, could be slow")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("memory|doctor", 2, 0, Touch::Nothing, doctor)
        .doc(Group::Server, "4.0.0", "Outputs memory problems report", "O(1)")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    Command::new("memory|purge", 2, 0, Touch::Nothing, purge)
        .doc(Group::Server, "4.0.0", "Ask the allocator to release memory", "Depends on how much memory is allocated, could be slow")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("memory|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .doc(Group::Server, "4.0.0", "Show helpful text about the different subcommands", "O(1)"),
];

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
    match ctx.worker.memory_bytes(ctx.client.db, &key)? {
        Some(bytes) => ctx.reply.int(bytes as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

pub fn stats(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    let store = &ctx.server.store;
    let dbs = (0..ctx.server.database_count).map(|n| store.db_stats(stillframe_store::DbId(n)));
    let key_count: u64 = dbs.map(|stats| stats.key_count).sum();
    let used = ctx.server.used_memory_bytes();
    let per_key = store.used_memory_bytes().checked_div(key_count).unwrap_or(0);
    let reply = &mut ctx.reply;
    let figures = [
        ("total.allocated", used),
        ("keys.count", key_count),
        ("keys.bytes-per-key", per_key),
        ("access-tracking.bytes", store.accesses().memory_bytes()),
    ];
    reply.map(figures.len());
    for (name, number) in figures {
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

/// Pages and heap are given back anyway, but for a reserve and after a while.
pub fn purge(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    ctx.server.store.pool().purge();
    ctx.server.heap.trim();
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

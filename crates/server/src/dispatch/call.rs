//! Calling a command function: keys locked and resolved, its time measured, its error written.

use std::time::{Duration, Instant};

use stillframe_store::{Fault, OpError};

use crate::command::{flag, CmdError, CmdResult, Scope};
use crate::dispatch::ctx::{Command, Ctx, Found};
use crate::dispatch::monitor;
use crate::dispatch::prepare::{prepare, Held, Needs, TOO_LATE};
use crate::dispatch::redact;
use crate::dispatch::waiting::serve_ready;
use crate::protocol::args::Args;

/// What became of a command.
pub enum Outcome {
    /// The reply is written (or the client asked for none).
    Done,
    /// Nothing has happened; run it again when the pages are in memory.
    Fault(Fault),
    /// Nothing has happened; run it again when the pause is over.
    Paused,
}

/// Arguments or a reply of so many bytes have their command measured by itself.
const LARGE_BYTES: usize = 16 * 1024;
/// A command that has waited for so many times as many pages as may be in memory needs more of them at a time than that.
const MEMORIES_MISSED_MAX: u64 = 3;
const LARGER_THAN_MEMORY: &str =
    "ERR what this command needs at a time is larger than memory: 'maxmemory' does not let so many pages be there together";

/// Calls the command function with keys locked and resolved, measures it and writes its error. `is_outer` is
/// false for the commands of a transaction: their keys are locked, and `EXEC` is measured as a whole.
pub fn call(ctx: &mut Ctx<'_>, found: Found, args: &Args<'_>, is_outer: bool) -> Outcome {
    let command = found.command;
    let is_measured = command.may_be_slow || ctx.local.time_each || !is_outer || is_large(args);
    let start = is_measured.then(Instant::now);
    let mark = ctx.reply.out.mark();
    ctx.client.is_in_exec = !is_outer;
    ctx.server.notifier.name_stored(command.event);
    let result = if is_outer { call_prepared(ctx, command, args) } else { (command.run)(ctx, args) };
    let result = match result {
        Err(CmdError::Store(OpError::Fault(fault))) if !is_outer || may_come_to_its_end(ctx, &fault) => {
            ctx.reply.out.back_to(mark);
            return Outcome::Fault(fault);
        }
        Err(CmdError::Store(OpError::Fault(_))) => Err(LARGER_THAN_MEMORY.into()),
        done_or_failed => done_or_failed,
    };
    ctx.client.missed_page_count = 0;
    if ctx.server.monitor_count.load(std::sync::atomic::Ordering::Relaxed) > 0 {
        monitor::feed(ctx, command, args);
    }
    let time = match start {
        Some(start) => Some(start.elapsed()),
        None if ctx.reply.out.len() > mark.len + LARGE_BYTES => Some(ctx.local.since_last_reading()),
        None => None,
    };
    match time {
        Some(time) => {
            ctx.local.measured(found.id, time, is_outer);
            note_slow(ctx, command, args, time);
        }
        None => ctx.local.count(found.id),
    }
    if let Err(error) = result {
        ctx.reply.out.back_to(mark);
        let text = error.into_text();
        ctx.stats.command(found.id).failed.add(1);
        ctx.server.count_error(&text);
        ctx.reply.error(&text);
    }
    Outcome::Done
}

/// Whether a command that begins anew will ever find all its pages in memory.
fn may_come_to_its_end(ctx: &mut Ctx<'_>, fault: &Fault) -> bool {
    let most = ctx.server.store.memory_page_count().unwrap_or(u64::MAX);
    ctx.client.note_missed(fault) <= most.saturating_mul(MEMORIES_MISSED_MAX)
}

fn is_large(args: &Args<'_>) -> bool {
    args.buffer_span() > LARGE_BYTES
}

fn note_slow(ctx: &Ctx<'_>, command: &Command, args: &Args<'_>, time: Duration) {
    let settings = &ctx.config.settings;
    if settings.slowlog_threshold.is_some_and(|t| time >= t) && !command.is(flag::SKIP_SLOWLOG) {
        let name = ctx.peer.names.lock().name.clone();
        let mut slowlog = ctx.server.slowlog.lock();
        let args = redact::shortened(command, args);
        slowlog.push(args, time, (&ctx.peer.addr, &name), settings.slowlog_max_len);
    }
    let event = if command.is(flag::FAST) { "fast-command" } else { "command" };
    ctx.server.latency.record(event, time, settings.latency_threshold);
}

/// Calls the command function once everything that may have to be waited for is there (C3).
fn call_prepared(ctx: &mut Ctx<'_>, command: &'static Command, args: &Args<'_>) -> CmdResult {
    if let Scope::Keys = command.scope {
        let needs_nothing = ctx.server.worker_count == 1 && !ctx.server.store.may_miss_pages();
        if needs_nothing || command.key_specs.is_empty() {
            let result = (command.run)(ctx, args);
            serve_ready(ctx, &Held::Nothing);
            return result;
        }
    }
    let may_miss_pages =
        || ctx.server.store.may_miss_pages() || ctx.server.store.memory_page_count().is_some();
    if let Some(ahead) = command.ahead.filter(|_| may_miss_pages()) {
        ahead(ctx, args)?;
    }
    let needs = Needs::of_call(ctx, command, args);
    let held = prepare(ctx, &needs)?;
    let mut result = (command.run)(ctx, args);
    if let Err(CmdError::Store(OpError::Fault(fault))) = result {
        result = Err(match needs.runs_once() && !fault.is_pause() {
            true => CmdError::Reply(TOO_LATE.into()),
            false => OpError::Fault(needs.complete(ctx, fault)).into(),
        });
    }
    serve_ready(ctx, &held);
    drop(held);
    // The reply is written: what cannot be removed now is left to the active expiry.
    let _ = ctx.worker.remove_left_expired();
    result
}

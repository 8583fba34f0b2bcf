//! Calling a command function: keys locked and resolved, its time measured, its error written.

use std::time::{Duration, Instant};

use stillframe_store::{Fault, OpError};

use crate::command::{flag, CmdError, CmdResult, Touch};
use crate::dispatch::checked;
use crate::dispatch::ctx::{Command, Ctx, Found};
use crate::dispatch::held;
use crate::dispatch::monitor;
use crate::dispatch::prepare::{prepare, KeptAway, Needs, TOO_LATE};
use crate::dispatch::slow;
use crate::dispatch::subscribed;
use crate::dispatch::waiting::serve_ready;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::exceptions::Matter;
use crate::state::session::Within;

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
const LARGER_THAN_MEMORY: &str =
    "ERR what this command needs at a time is larger than memory: 'maxmemory' does not let so many pages be there together";

/// Calls the command function with keys locked and resolved, measures it and writes its error. The keys of a command within another
/// are locked, and that one is measured as a whole.
pub fn call(ctx: &mut Ctx<'_>, found: Found, args: &Args<'_>, within: Within) -> Outcome {
    let (command, is_outer) = (found.command, within == Within::Client);
    let is_measured = command.may_be_slow || ctx.local.time_each || !is_outer || is_large(args);
    let start = is_measured.then(Instant::now);
    let mark = ctx.reply.out.mark();
    ctx.client.within = within;
    if let Some(patience) = ctx.client.patience.as_deref_mut().filter(|_| is_outer) {
        // The choices of its beginning before: what those missed is there.
        ctx.worker.begin_choices(patience.seed());
    }
    let matter = ctx.server.exceptions.now();
    if matter.has(Matter::NOTIFYING) {
        ctx.worker.steps().name_call(command.event);
    }
    let result = match is_outer {
        true if matter.has(Matter::HOLDING) => call_holding(ctx, command, args, matter),
        true => call_prepared(ctx, command, args, matter),
        false => checked::run(ctx, command, args),
    };
    let result = match result {
        Err(CmdError::Store(OpError::Fault(fault))) => {
            match if is_outer { wait_for(ctx, fault) } else { Some(fault) } {
                Some(fault) => {
                    ctx.reply.out.back_to(mark);
                    return Outcome::Fault(fault);
                }
                None => Err(larger_than_memory(ctx)),
            }
        }
        done_or_failed => done_or_failed,
    };
    if is_outer {
        ctx.client.patience = None;
    }
    if matter.has(Matter::MONITORED) {
        monitor::feed(ctx, command, args);
    }
    let time = match start {
        Some(start) => Some(start.elapsed()),
        None if ctx.reply.out.len() > mark.len + LARGE_BYTES => Some(ctx.local.since_last_reading()),
        None => None,
    };
    match time {
        Some(time) if command.is(flag::BLOCKING) && std::mem::take(&mut ctx.client.is_waiting) => {
            ctx.local.began_to_wait(found.id, time);
            ctx.server.waiters.note_first_step(ctx.client.id, time);
        }
        Some(time) => {
            ctx.local.measured(found.id, time, is_outer);
            note_slow(ctx, command, args, time);
        }
        None => ctx.local.count(found.id),
    }
    if let Err(error) = result {
        ctx.reply.out.back_to(mark);
        if matches!(error, CmdError::Store(OpError::WrongType)) && looks_up_to_read(command) {
            ctx.stats.looked_up(true);
        }
        let text = error.into_text();
        ctx.stats.command(found.id).failed.add(1);
        ctx.server.count_error(&text);
        ctx.reply.error(&text);
    }
    if !is_outer && ctx.client.listener.is_some() && !ctx.client.reply_mode.is_silent() {
        subscribed::hear(ctx, mark.len);
    }
    Outcome::Done
}

/// Whether it looks its key up as a read does: Redis counts the key as found before it looks at the type.
fn looks_up_to_read(command: &Command) -> bool {
    command.is_reading.unwrap_or(command.is(flag::READONLY))
}

/// What a command that has met `fault` waits for before it begins anew; `None` if its pages will never be there together.
fn wait_for(ctx: &mut Ctx<'_>, fault: Fault) -> Option<Fault> {
    let goes_on = fault.is_pause() || ctx.client.goes_on();
    let patience = ctx.client.patience.get_or_insert_default();
    if goes_on {
        patience.note_progress();
        return Some(fault);
    }
    patience.wait_for(&ctx.server.store, fault)
}

/// The error of a command that will never have all its pages. A transaction is given up with it.
#[cold]
fn larger_than_memory(ctx: &mut Ctx<'_>) -> CmdError {
    match ctx.client.transaction.take() {
        // Of all that is called at once between `MULTI` and `EXEC`, that alone waits for pages.
        Some(_) => {
            ctx.server.watches.unwatch_all(ctx.client);
            errors::discarded(LARGER_THAN_MEMORY.as_bytes()).into()
        }
        None => LARGER_THAN_MEMORY.into(),
    }
}

fn is_large(args: &Args<'_>) -> bool {
    args.buffer_span() > LARGE_BYTES
}

fn note_slow(ctx: &Ctx<'_>, command: &Command, args: &Args<'_>, time: Duration) {
    let settings = &ctx.config.settings;
    let is_slow = |bound: Option<Duration>| bound.is_some_and(|bound| time >= bound);
    // The bounds may be lower from this command on.
    let may_be_noted = is_slow(settings.slowlog_threshold)
        || is_slow(settings.latency_threshold)
        || command.is(flag::CONFIGURES);
    if may_be_noted {
        slow::note(ctx.server, ctx.peer, command, args, time);
    }
}

/// The same as [`call_prepared`] while replies are held.
#[cold]
fn call_holding(ctx: &mut Ctx<'_>, command: &'static Command, args: &Args<'_>, matter: Matter) -> CmdResult {
    held::begin(ctx, command, matter);
    let result = call_prepared(ctx, command, args, matter);
    let is_answered = !matches!(result, Err(CmdError::Store(OpError::Fault(_))));
    held::end(ctx, command, args, is_answered);
    result
}

/// Calls the command function once everything that may have to be waited for is there (C3).
fn call_prepared(ctx: &mut Ctx<'_>, command: &'static Command, args: &Args<'_>, matter: Matter) -> CmdResult {
    let _in_order = subscribed::see_in_order(ctx);
    let touch = command.touch_of(args);
    let needs_nothing = || ctx.server.worker_count == 1 && !matter.has(Matter::MISSING_PAGES);
    let may_need_nothing = touch.is_of_keys() || matches!(touch, Touch::Script);
    if (may_need_nothing && needs_nothing()) || matches!(touch, Touch::Nothing | Touch::Queued) {
        return run_as_step(ctx, command, args, &KeptAway::Nothing);
    }
    let may_miss_pages =
        || matter.has(Matter::MISSING_PAGES) || ctx.server.store.memory_page_count().is_some();
    if let Some(ahead) = command.ahead.filter(|_| may_miss_pages()) {
        ahead(ctx, args)?;
    }
    let needs = Needs::of_call(ctx, command, args);
    let held = prepare(ctx, &needs)?;
    let before = ctx.worker.change_count();
    let mut result = run_as_step(ctx, command, args, &held);
    if let Err(CmdError::Store(OpError::Fault(fault))) = result {
        let is_begun = needs.runs_once() && ctx.worker.change_count() != before;
        result = Err(match is_begun && !fault.is_pause() {
            true => CmdError::Reply(TOO_LATE.into()),
            false => OpError::Fault(needs.complete(ctx, fault)).into(),
        });
    }
    drop(held);
    // The reply is written: what cannot be removed now is left to the active expiry.
    let _ = ctx.worker.upkeep().remove_left_expired();
    result
}

/// Calls the command function and serves those who wait for what it has made ready: together one step, told to its end before the
/// locks go.
fn run_as_step(ctx: &mut Ctx<'_>, command: &Command, args: &Args<'_>, held: &KeptAway) -> CmdResult {
    // What expires where a command only looks is locked, and a step, by itself.
    let is_step = command.is(flag::CHANGES);
    if is_step {
        ctx.worker.steps().begin();
    }
    let result = checked::run(ctx, command, args);
    serve_ready(ctx, held);
    if is_step {
        ctx.worker.steps().end();
        ctx.local.alone = None;
    }
    result
}

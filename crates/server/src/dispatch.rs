//! From arguments to a reply: lookup, checks, locks, the command function.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use stillframe_store::{Fault, OpError};

use crate::command::{flag, Args, CmdError, CmdResult, Command, Scope};
use crate::commands::transaction;
use crate::config::{Protection, Settings};
use crate::ctx::Ctx;
use crate::errors;
use crate::log;
use crate::monitor;
use crate::pause::PauseKind;
use crate::prepare::{prepare, Needs, TOO_LATE};
use crate::reply::Mark;
use crate::server::{unix_ms, Server};
use crate::session::{Ending, ReplyMode};
use crate::table::{Found, TABLE};

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

/// Finds the row of a call and checks its number of arguments.
///
/// # Errors
/// Redis's texts for unknown commands, unknown subcommands and wrong arity.
pub fn lookup(args: &Args<'_>) -> Result<Found, CmdError> {
    let found = row_of(args)?;
    if !found.command.arity_fits(args.len()) {
        return Err(format!("ERR wrong number of arguments for '{}' command", found.command.name).into());
    }
    Ok(found)
}

/// The row of a call; of a container, that of the subcommand if one is named.
fn row_of(args: &Args<'_>) -> Result<Found, CmdError> {
    let Some(mut found) = TABLE.lookup(args.at(0)) else { return Err(unknown_command(args)) };
    if found.command.is_container && args.len() > 1 {
        let Some(sub) = TABLE.subcommand(found, args.at(1)) else { return Err(unknown_subcommand(args)) };
        found = sub;
    }
    Ok(found)
}

/// At most `max` bytes, and up to the first NUL, as C prints a string.
fn c_string(bytes: &[u8], max: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(max)];
    bytes.iter().position(|&b| b == 0).map_or(bytes, |end| &bytes[..end])
}

fn unknown_command(args: &Args<'_>) -> CmdError {
    let mut shown = Vec::new();
    for arg in args.from(1) {
        if shown.len() >= 128 {
            break;
        }
        let arg = c_string(arg, 128 - shown.len());
        shown.push(b'\'');
        shown.extend_from_slice(arg);
        shown.extend_from_slice(b"' ");
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(c_string(args.at(0), 128));
    text.extend_from_slice(b"', with args beginning with: ");
    text.extend_from_slice(&shown);
    text.into()
}

fn unknown_subcommand(args: &Args<'_>) -> CmdError {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(c_string(args.at(1), 128));
    text.extend_from_slice(b"'. Try ");
    text.extend(args.at(0).to_ascii_uppercase());
    text.extend_from_slice(b" HELP.");
    text.into()
}

/// Whether this is how an HTTP request begins, or goes on: a browser can be made to send one whose body is made of
/// commands.
fn is_cross_protocol(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// At most once in this many milliseconds, as in Redis.
const ATTACK_WARNING_PERIOD_MS: i64 = 60_000;

fn warn_of_attack(server: &Server) {
    let (now, last) = (unix_ms(), &server.attack_warned_unix_ms);
    let then = last.load(Relaxed);
    let is_due = now.checked_sub(then).is_none_or(|ms| !(0..=ATTACK_WARNING_PERIOD_MS).contains(&ms));
    if is_due && last.compare_exchange(then, now, Relaxed, Relaxed).is_ok() {
        log::warning(
            "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to Redis. This \
             is likely due to an attacker attempting to use Cross Protocol Scripting to compromise your Redis instance. \
             Connection aborted.",
        );
    }
}

/// Looks a command up and runs it.
pub fn dispatch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Outcome {
    match lookup(args) {
        Ok(found) => run(ctx, found, args),
        Err(_) if is_cross_protocol(args.at(0)) => {
            warn_of_attack(ctx.server);
            ctx.client.ending = Ending::AtOnce;
            Outcome::Done
        }
        Err(error) => {
            let mark = begin_reply(ctx);
            reject(ctx, row_of(args).ok(), error);
            end_reply(ctx, mark);
            Outcome::Done
        }
    }
}

/// Runs a command whose row is known: checks, queueing, locks, resolve, call.
pub fn run(ctx: &mut Ctx<'_>, found: Found, args: &Args<'_>) -> Outcome {
    ctx.client.last_command = Some(found.id);
    if is_paused(ctx, found.command) {
        return Outcome::Paused;
    }
    let mark = begin_reply(ctx);
    let outcome = match admit(ctx, found.command) {
        Err(error) => {
            reject(ctx, Some(found), error);
            Outcome::Done
        }
        Ok(()) if ctx.client.transaction.is_some() && !transaction::runs_inside(found.command) => {
            transaction::queue(ctx, found, args);
            Outcome::Done
        }
        Ok(()) => call(ctx, found, args, true),
    };
    match outcome {
        Outcome::Done => end_reply(ctx, mark),
        // It begins anew.
        _ if ctx.client.reply_mode == ReplyMode::Skip => ctx.client.reply_mode = ReplyMode::SkipNext,
        _ => {}
    }
    outcome
}

fn begin_reply(ctx: &mut Ctx<'_>) -> Mark {
    if ctx.client.reply_mode == ReplyMode::SkipNext {
        ctx.client.reply_mode = ReplyMode::Skip;
    }
    ctx.reply.out.mark()
}

fn end_reply(ctx: &mut Ctx<'_>, mark: Mark) {
    if ctx.client.reply_mode == ReplyMode::On {
        return;
    }
    ctx.reply.out.back_to(mark);
    ctx.client.late.drop_all();
    if ctx.client.reply_mode == ReplyMode::Skip {
        ctx.client.reply_mode = ReplyMode::On;
    }
}

fn is_paused(ctx: &mut Ctx<'_>, command: &Command) -> bool {
    if ctx.server.is_stopping.load(std::sync::atomic::Ordering::Acquire) {
        return true;
    }
    if must_wait_for_data(ctx, command) {
        // It is refused, now and not after the pause.
        return false;
    }
    let kind = ctx.server.pause.kind(ctx.worker.now());
    // The data stays as it is, also for commands that only look at it.
    ctx.worker.keep_expired(kind != PauseKind::None);
    match kind {
        PauseKind::None => false,
        PauseKind::All => true,
        PauseKind::Writes => {
            let queued = ctx.client.transaction.as_ref().map_or(0, |t| t.flags);
            command.is(flag::WRITE) || (transaction::is_exec(command) && queued & flag::WRITE != 0)
        }
    }
}

/// Whether the data is still being read at the start, and the command needs it.
fn must_wait_for_data(ctx: &Ctx<'_>, command: &Command) -> bool {
    ctx.server.loading.is_on() && !command.is(flag::LOADING)
}

/// The checks that depend on the state of client and server, in Redis's order.
fn admit(ctx: &Ctx<'_>, command: &Command) -> CmdResult {
    let settings = &ctx.config.settings;
    if let Some(option) = protecting_option(command) {
        if !option.0(settings).allows(ctx.peer.is_local) {
            let (command, option) = (option.1, option.2);
            return Err(format!(
                "ERR {command} command not allowed. If the {option} option is set to \"local\", you can run it \
                 from a local connection, otherwise you need to set this option in the configuration file, and then \
                 restart the server."
            )
            .into());
        }
    }
    if !ctx.client.is_authenticated && !settings.requirepass.is_empty() && !command.is(flag::NO_AUTH) {
        return Err(errors::NO_AUTH.into());
    }
    if ctx.client.transaction.is_some() && command.is(flag::NO_MULTI) {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    // In Redis the last check; but of those below none refuses anything while it loads.
    if must_wait_for_data(ctx, command) {
        return Err(errors::LOADING.into());
    }
    if settings.maxmemory_bytes > 0 && is_refused_without_memory(ctx, command) {
        return Err(errors::OUT_OF_MEMORY.into());
    }
    if ctx.server.saver.has_failed() && (command.is(flag::WRITE) || command.name == "ping") {
        let must_save = settings.stop_writes_on_save_error && !settings.save_points.is_empty();
        if must_save {
            return Err(errors::MISCONF.into());
        }
    }
    Ok(())
}

type ProtectingOption = (fn(&Settings) -> Protection, &'static str, &'static str);

/// The option that must allow a command, with the names that the error shows.
fn protecting_option(command: &Command) -> Option<ProtectingOption> {
    if command.is(flag::ADMIN) && command.name == "debug" {
        return Some((|s| s.debug_command, "DEBUG", "enable-debug-command"));
    }
    None
}

fn is_refused_without_memory(ctx: &Ctx<'_>, command: &Command) -> bool {
    let needs_memory = match &ctx.client.transaction {
        Some(_) if !transaction::runs_inside(command) => true,
        Some(transaction) if transaction::is_exec(command) => transaction.flags & flag::DENYOOM != 0,
        _ => command.is(flag::DENYOOM),
    };
    needs_memory && ctx.server.store.used_memory_bytes() > ctx.config.settings.maxmemory_bytes
}

/// Answers a command that may not run; a transaction that it belongs to is broken.
fn reject(ctx: &mut Ctx<'_>, found: Option<Found>, error: CmdError) {
    let text = error_text(error);
    if let Some(found) = found {
        ctx.stats.command(found.id).rejected.add(1);
        if transaction::is_exec(found.command) {
            transaction::abort(ctx, &text);
            return;
        }
    }
    if let Some(transaction) = &mut ctx.client.transaction {
        transaction.is_broken = true;
    }
    ctx.server.count_error(&text);
    ctx.reply.error(&text);
}

/// Calls the command function with keys locked and resolved, measures it and writes its error. `is_outer` is
/// false for the commands of a transaction: their keys are locked, and `EXEC` is measured as a whole.
pub fn call(ctx: &mut Ctx<'_>, found: Found, args: &Args<'_>, is_outer: bool) -> Outcome {
    let command = found.command;
    let is_measured = command.may_be_slow || ctx.local.time_each || !is_outer || is_large(args);
    let start = is_measured.then(Instant::now);
    let mark = ctx.reply.out.mark();
    ctx.client.is_in_exec = !is_outer;
    let result = if is_outer { call_prepared(ctx, command, args) } else { (command.run)(ctx, args) };
    if let Err(CmdError::Store(OpError::Fault(fault))) = result {
        ctx.reply.out.back_to(mark);
        return Outcome::Fault(fault);
    }
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
        let text = error_text(error);
        ctx.stats.command(found.id).failed.add(1);
        ctx.server.count_error(&text);
        ctx.reply.error(&text);
    }
    Outcome::Done
}

fn is_large(args: &Args<'_>) -> bool {
    args.buffer_span() > LARGE_BYTES
}

fn note_slow(ctx: &Ctx<'_>, command: &Command, args: &Args<'_>, time: Duration) {
    let settings = &ctx.config.settings;
    if settings.slowlog_threshold.is_some_and(|t| time >= t) && !command.is(flag::SKIP_SLOWLOG) {
        let name = ctx.peer.names.lock().name.clone();
        let mut slowlog = ctx.server.slowlog.lock();
        slowlog.push((command, args), time, (&ctx.peer.addr, &name), settings.slowlog_max_len);
    }
    let event = if command.is(flag::FAST) { "fast-command" } else { "command" };
    ctx.server.latency.record(event, time, settings.latency_threshold);
}

/// Calls the command function once everything that may have to be waited for is there (C3).
fn call_prepared(ctx: &mut Ctx<'_>, command: &'static Command, args: &Args<'_>) -> CmdResult {
    if let Scope::Keys = command.scope {
        let needs_nothing = ctx.server.worker_count == 1 && !ctx.server.store.may_miss_pages();
        if needs_nothing || command.key_specs.is_empty() {
            return (command.run)(ctx, args);
        }
    }
    let needs = Needs::of_call(ctx, command, args);
    let held = prepare(ctx, &needs)?;
    let mut result = (command.run)(ctx, args);
    if needs.runs_once() && matches!(result, Err(CmdError::Store(OpError::Fault(_)))) {
        result = Err(CmdError::Reply(TOO_LATE.into()));
    }
    drop(held);
    // The reply is written: what cannot be removed now is left to the active expiry.
    let _ = ctx.worker.remove_left_expired();
    result
}

/// The text of an error reply. A fault never gets here.
fn error_text(error: CmdError) -> Cow<'static, [u8]> {
    match error {
        CmdError::Reply(text) => text,
        CmdError::Store(OpError::OutOfMemory { .. }) => Cow::Borrowed(errors::OUT_OF_MEMORY.as_bytes()),
        CmdError::Store(OpError::TooLarge) => Cow::Borrowed(errors::TOO_LARGE.as_bytes()),
        CmdError::Store(other) => Cow::Owned(format!("ERR {other}").into_bytes()),
    }
}

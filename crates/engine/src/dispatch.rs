//! From arguments to a reply: lookup, checks, and then the call or its place in a transaction.

mod broken;
pub mod call;
mod carry;
mod checked;
pub mod ctx;
pub mod exec;
pub mod held;
mod lookup;
pub mod monitor;
mod pace;
pub mod prepare;
mod redact;
pub mod script;
mod slow;
mod step;
pub mod stream;
pub mod subscribed;
pub mod talk;
pub mod waiting;
pub mod while_busy;

use std::sync::atomic::Ordering::Relaxed;

use crate::clock::unix_ms;
use crate::command::{flag, CmdError, CmdResult};
use crate::config::{Protection, Settings};
use crate::eviction::MemoryRoom;
use crate::log;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::Mark;
use crate::server::Server;
use crate::state::clients::ClientInfo;
use crate::state::exceptions::Matter;
use crate::state::pause::PauseKind;
use crate::state::session::{Ending, Session, Within};

use call::{call, Outcome};
use ctx::{Command, Ctx, Found};
pub use lookup::lookup;
use lookup::row_of;

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
    match lookup(ctx.registry, args) {
        Ok(found) => run(ctx, found, args),
        Err(_) if is_cross_protocol(args.at(0)) => {
            warn_of_attack(ctx.server);
            ctx.client.ending = Ending::AtOnce;
            Outcome::Done
        }
        Err(error) => {
            let mark = ctx.reply.out.mark();
            reject(ctx, row_of(ctx.registry, args).ok(), error);
            end_reply(ctx, mark);
            Outcome::Done
        }
    }
}

/// Runs a command whose row is known: checks, queueing, locks, resolve, call.
pub fn run(ctx: &mut Ctx<'_>, found: Found, args: &Args<'_>) -> Outcome {
    ctx.client.last_command = Some(found.id);
    let matter = ctx.server.exceptions.now();
    ctx.worker.keep_still(ctx.client.no_touch);
    if is_halted(ctx, found.command, matter) {
        // Nobody waits for this one's turn meanwhile.
        ctx.client.patience.iter_mut().for_each(|patience| patience.note_progress());
        return Outcome::Paused;
    }
    let mark = ctx.reply.out.mark();
    let outcome = match admit(ctx, found.command, matter) {
        Err(error) => {
            reject(ctx, Some(found), error);
            Outcome::Done
        }
        Ok(()) if ctx.client.transaction.is_some() && !exec::runs_inside(found.command) => {
            exec::queue(&mut ctx.talk(), found, args);
            Outcome::Done
        }
        Ok(()) => call(ctx, found, args, Within::Client),
    };
    if let Outcome::Done = outcome {
        ctx.client.end_walks();
        broken::check(ctx, found.command, &mark);
        end_reply(ctx, mark);
    }
    outcome
}

fn end_reply(ctx: &mut Ctx<'_>, mark: Mark) {
    ctx.hold_back(mark);
    if !ctx.client.reply_mode.is_plain() {
        ctx.client.reply_mode.end_command();
    }
    if ctx.client.listener.is_some() {
        ctx.talk().end_reply(mark.len);
    }
}

/// Whether the command waits.
#[inline(always)]
fn is_halted(ctx: &mut Ctx<'_>, command: &Command, matter: Matter) -> bool {
    if matter.has(Matter::HALTED) {
        return is_paused(ctx, command, matter);
    }
    ctx.worker.keep_expired(false);
    false
}

#[cold]
fn is_paused(ctx: &mut Ctx<'_>, command: &Command, matter: Matter) -> bool {
    if matter.has(Matter::STOPPING) {
        return true;
    }
    if must_wait_for_data(command, matter) {
        // It is refused, now and not after the pause.
        return false;
    }
    if matter.has(Matter::LOG_FULL) && changes_something(ctx, command) {
        return true;
    }
    let kind = ctx.server.pause.kind(ctx.worker.now());
    // The data stays as it is, also for commands that only look at it.
    ctx.worker.keep_expired(kind != PauseKind::None);
    match kind {
        PauseKind::None => {
            ctx.server.pause.end_if_over(ctx.worker.now());
            false
        }
        PauseKind::All => true,
        PauseKind::Writes => changes_something(ctx, command),
    }
}

/// Whether it may change something, by itself or by what it carries out.
fn changes_something(ctx: &Ctx<'_>, command: &Command) -> bool {
    let queued = ctx.client.transaction.as_ref().map_or(0, |t| t.flags);
    command.is(flag::CHANGES) || (exec::is_exec(command) && queued & flag::CHANGES != 0)
}

/// Whether the data is still being read at the start, and the command needs it.
fn must_wait_for_data(command: &Command, matter: Matter) -> bool {
    matter.has(Matter::LOADING) && !command.is(flag::LOADING)
}

/// The checks that depend on the state of client and server, in Redis's order.
fn admit(ctx: &mut Ctx<'_>, command: &Command, matter: Matter) -> CmdResult {
    let config = ctx.config;
    let settings = &config.settings;
    admit_client(settings, ctx.client, ctx.peer, command)?;
    // In Redis the last check; but of those below none refuses anything while it loads.
    if must_wait_for_data(command, matter) {
        return Err(errors::LOADING.into());
    }
    // The configuration that this worker has may be the one before.
    let is_bounded = matter.has(Matter::BOUNDED) && settings.maxmemory_bytes > 0;
    if is_bounded && is_refused_without_memory(ctx, command) {
        return Err(errors::OUT_OF_MEMORY.into());
    }
    if matter.has(Matter::REFUSES_CHANGES) {
        admit_change(ctx.server, settings, command.flags, matter)?;
    }
    subscribed::admit(ctx.client, command)
}

/// The first of them: whether the client may call such a command, and now.
#[inline(always)]
fn admit_client(settings: &Settings, client: &Session, peer: &ClientInfo, command: &Command) -> CmdResult {
    if let Some(option) = protecting_option(command) {
        if !option.0(settings).allows(peer.is_local) {
            let (command, option) = (option.1, option.2);
            return Err(format!(
                "ERR {command} command not allowed. If the {option} option is set to \"local\", you can run it \
                 from a local connection, otherwise you need to set this option in the configuration file, and then \
                 restart the server."
            )
            .into());
        }
    }
    if !client.is_authenticated && !settings.requirepass.is_empty() && !command.is(flag::NO_AUTH) {
        return Err(errors::NO_AUTH.into());
    }
    if client.transaction.is_some() && command.is(flag::NO_MULTI) {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    Ok(())
}

/// Whether what a command changes could be saved, and be in the log.
#[cold]
fn admit_change(server: &Server, settings: &Settings, flags: u32, matter: Matter) -> CmdResult {
    let is = |flag: u32| flags & flag != 0;
    let must_save = settings.stop_writes_on_save_error && !settings.save_points.is_empty();
    if matter.has(Matter::SAVE_FAILED) && must_save && is(flag::WRITE | flag::PROBES) {
        return Err(errors::MISCONF.into());
    }
    if matter.has(Matter::LOG_FAILED) && is(flag::WRITE | flag::PROBES) {
        return Err(server.data_log.error());
    }
    // What only removes may make space.
    if matter.has(Matter::LOG_NO_SPACE) && is(flag::DENYOOM) {
        return Err("MISCONF Errors writing to the AOF file: No space left on device".into());
    }
    Ok(())
}

type ProtectingOption = (fn(&Settings) -> Protection, &'static str, &'static str);

/// The option that must allow a command, with the names that the error shows.
fn protecting_option(command: &Command) -> Option<ProtectingOption> {
    if command.is(flag::DEBUG) {
        return Some((|s| s.debug_command, "DEBUG", "enable-debug-command"));
    }
    None
}

fn is_refused_without_memory(ctx: &mut Ctx<'_>, command: &Command) -> bool {
    let needs_memory = match &ctx.client.transaction {
        Some(_) if !exec::runs_inside(command) => true,
        Some(transaction) if exec::is_exec(command) => transaction.flags & flag::DENYOOM != 0,
        _ => command.is(flag::DENYOOM),
    };
    needs_memory && is_out_of_memory(ctx)
}

/// Whether memory is over its bound, and nothing can go.
fn is_out_of_memory(ctx: &mut Ctx<'_>) -> bool {
    let settings = &ctx.config.settings;
    if settings.tiered_bytes() > 0 {
        return ctx.server.store.is_stuck();
    }
    let room = ctx.server.make_room(ctx.worker, settings);
    ctx.local.is_evicting |= room == MemoryRoom::Freeing;
    room == MemoryRoom::Nothing
}

/// Answers a command that may not run; a transaction that it belongs to is broken.
fn reject(ctx: &mut Ctx<'_>, found: Option<Found>, error: CmdError) {
    let text = error.into_text();
    if let Some(found) = found {
        ctx.stats.command(found.id).rejected.add(1);
        if exec::is_exec(found.command) {
            exec::abort(&mut ctx.talk(), &text);
            return;
        }
    }
    if let Some(transaction) = &mut ctx.client.transaction {
        transaction.is_broken = true;
    }
    ctx.server.count_error(&text);
    ctx.reply.error(&text);
}

//! Commands that wait for a key to hold something, and serving those who do.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stillframe_store::{Fault, OpError, Patient, ValueType, Worker};

use crate::command::{CmdError, CmdResult};
use crate::config::Config;
use crate::dispatch::broken;
use crate::dispatch::checked;
use crate::dispatch::ctx::{Ctx, Registry};
use crate::dispatch::prepare::{prepare, KeptAway, Needs};
use crate::dispatch::slow;
use crate::protocol::args::Args;
use crate::protocol::reply::{Replies, Reply, ReplyBuf};
use crate::server::Server;
use crate::state::exceptions::Matter;
use crate::state::local::{Delivery, Local};
use crate::state::mailbox::Message;
use crate::state::session::{Session, Within};
use crate::state::waiting::{ReadyKey, Wait, Waiter};

/// What is said to a client whose time is over.
const TIME_IS_OVER: fn(&mut Reply<'_>) = |reply| reply.null_array();
const KEY_HAS_GONE: &str = "UNBLOCKED the stream key no longer exists";
pub const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// How a command waits.
pub struct Blocking {
    /// The arguments that are the keys. The first of them that holds something is taken from.
    pub keys: Range<usize>,
    /// None: for ever.
    pub timeout: Option<Duration>,
    pub wants: ValueType,
    /// The wait ends with its key.
    pub minds_end: bool,
    /// What it replies in a transaction, which waits for nothing.
    pub nothing: fn(&mut Reply<'_>),
}

/// Lets `take` look at the keys, one after the other, until it says that it has found something and replied. If there is nothing
/// the client waits; when one of the keys is ready the command is called anew, for that key.
///
/// # Errors
/// Those of `take`, which has changed nothing then.
pub fn take_or_wait(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    blocking: &Blocking,
    take: impl Fn(&mut Ctx<'_>, usize) -> Result<bool, CmdError>,
) -> CmdResult {
    if let Within::Served { index } = ctx.client.within {
        if !take(ctx, index)? {
            ctx.client.within = Within::ServedInVain;
        }
        return Ok(());
    }
    for index in blocking.keys.clone() {
        if take(ctx, index)? {
            return Ok(());
        }
    }
    if ctx.client.within.is_transaction() {
        (blocking.nothing)(&mut ctx.reply);
    } else {
        wait(ctx, args, blocking);
    }
    Ok(())
}

/// Lets the client wait; when one of the keys is ready its command is called with these arguments, for that key.
pub fn wait(ctx: &mut Ctx<'_>, args: &Args<'_>, blocking: &Blocking) {
    let Some(command) = ctx.client.last_command else { return };
    let hash = |index: usize| ctx.key(args, index).hash;
    let mut targets = Vec::new();
    ctx.registry.found(command).command.for_each_key(args, &mut |index, _| {
        if !blocking.keys.contains(&index) {
            targets.push((index, hash(index)));
        }
    });
    let wait = Wait {
        command,
        args,
        keys: blocking.keys.clone(),
        hashes: blocking.keys.clone().map(hash).collect(),
        targets,
        db: ctx.db(),
        wants: blocking.wants,
        minds_end: blocking.minds_end,
        resp3: ctx.client.resp3,
        // One that is too far off to be told is none.
        deadline: blocking.timeout.and_then(|time| Instant::now().checked_add(time)),
        reply: ctx.reply_later(),
    };
    let waiter = ctx.server.waiters.add(ctx.peer.clone(), wait);
    ctx.client.is_waiting = true;
    ctx.client.late.waiting_bytes = waiter.byte_count();
    if let Some(deadline) = waiter.deadline {
        ctx.local.deadlines.insert((deadline, waiter.arrival), waiter);
    }
}

/// The reply to a client that has waited in vain.
pub fn time_is_over(waiter: &Waiter) -> Vec<u8> {
    let mut out = ReplyBuf::default();
    TIME_IS_OVER(&mut Reply { resp3: waiter.resp3, out: &mut out });
    out.split_off(0)
}

/// Tells a client that another one has ended its wait. Its command has failed, as in Redis, whatever the reply.
pub fn end_wait(ctx: &mut Ctx<'_>, waiter: &Arc<Waiter>, is_error: bool) {
    ctx.stats.command(waiter.command).failed.add(1);
    ctx.local.served.push((waiter.clone(), Duration::ZERO));
    match is_error {
        true => deliver_error(ctx, waiter, UNBLOCKED),
        false => deliver(ctx, waiter, time_is_over(waiter).into()),
    }
}

fn deliver_error(ctx: &mut Ctx<'_>, waiter: &Waiter, text: &str) {
    ctx.server.count_error(text.as_bytes());
    deliver(ctx, waiter, format!("-{text}\r\n").into_bytes().into());
}

/// The key of a client has gone whose wait ends with it.
fn end_with_key(ctx: &mut Ctx<'_>, waiter: &Arc<Waiter>) {
    if ctx.server.waiters.end(waiter) {
        ctx.stats.command(waiter.command).failed.add(1);
        ctx.local.served.push((waiter.clone(), Duration::ZERO));
        deliver_error(ctx, waiter, KEY_HAS_GONE);
    }
}

/// Serves those who wait for the keys that the running command has made ready, as a part of it: the locks that it holds are for
/// this, too (invariants W1 and W3).
#[inline]
pub fn serve_ready(ctx: &mut Ctx<'_>, held: &KeptAway) {
    if ctx.server.exceptions.now().has(Matter::READY) {
        serve_all_ready(ctx, held);
    }
}

#[cold]
fn serve_all_ready(ctx: &mut Ctx<'_>, held: &KeptAway) {
    while let Some(key) = ctx.server.waiters.take_ready(ctx.worker.steps().worker()) {
        serve_key(ctx, held, &key);
    }
}

/// Notes the calls of clients that have waited and been answered, with the times of both of their steps.
pub fn note_served(server: &Arc<Server>, local: &mut Local, registry: &'static Registry) {
    for (waiter, second_step) in std::mem::take(&mut local.served) {
        let time = waiter.first_step() + second_step;
        local.ended_to_wait(waiter.command, second_step, time);
        let command = registry.found(waiter.command).command;
        slow::note(server, &waiter.client, command, &waiter.args(), time);
        let threshold = server.config().settings.latency_threshold;
        server.latency.record("command-unblocking", second_step, threshold);
    }
}

/// What became of an attempt to serve somebody.
enum Served {
    Yes,
    /// There was nothing, or somebody else has answered the client.
    No,
    /// Pages are missing.
    Later(Fault),
}

/// Serves those who wait for a key, in the order in which they came, as long as it has something for them.
fn serve_key(ctx: &mut Ctx<'_>, held: &KeptAway, ready: &ReadyKey) {
    let mut last = 0;
    loop {
        let key = ctx.worker.key(&ready.key);
        let value_type = match ctx.worker.entry(ready.db, &key) {
            Ok(entry) => entry.map(|entry| entry.value_type),
            Err(OpError::Fault(fault)) => return serve_later(ctx, ready, fault),
            // Of what cannot be read there is nothing to be had.
            Err(_) => return,
        };
        let Some(waiter) = ctx.server.waiters.next(ready, last) else { return };
        last = waiter.arrival;
        if value_type != Some(waiter.wants) {
            if waiter.minds_end {
                end_with_key(ctx, &waiter);
            }
        } else {
            if !held.covers(&waiter) {
                return ready_again(ctx, ready);
            }
            if let Served::Later(fault) = serve(ctx, &waiter, &ready.key) {
                return serve_later(ctx, ready, fault);
            }
        }
    }
}

/// Runs the command of a client that waits, in its place, for one of its keys.
fn serve(ctx: &mut Ctx<'_>, waiter: &Arc<Waiter>, key: &[u8]) -> Served {
    let Some(index) = waiter.index_of(key) else { return Served::No };
    let waiters = &ctx.server.waiters;
    let (mut out, mut outcome, start) = (ReplyBuf::default(), Served::No, Instant::now());
    out.send_values(true);
    let is_served = waiters.serve(waiter, || {
        outcome = run_for(ctx, waiter, index, &mut out);
        matches!(outcome, Served::Yes)
    });
    if is_served {
        ctx.local.served.push((waiter.clone(), start.elapsed()));
        // What it gets is there once the step that has served it is.
        let need = ctx.server.reply_gate.running(ctx.worker.steps().worker());
        deliver(ctx, waiter, out.split_off_all(0).with_need(need));
    }
    outcome
}

fn run_for(ctx: &mut Ctx<'_>, waiter: &Waiter, index: usize, out: &mut ReplyBuf) -> Served {
    let mut client = Session::new(waiter.client.id, true);
    (client.db, client.resp3, client.within) = (waiter.db, waiter.resp3, Within::Served { index });
    let command = ctx.registry.found(waiter.command).command;
    let mut inner = ctx.inner(&mut client, &waiter.client, out);
    inner.server.notifier.name_stored(inner.worker, command.event);
    let mark = inner.reply.out.mark();
    match checked::run(&mut inner, command, &waiter.args()) {
        Ok(()) if inner.client.within == Within::ServedInVain => Served::No,
        Ok(()) => {
            if !inner.reply.out.is_whole_since(&mark) {
                broken::log(command, &waiter.client);
                inner.reply.out.back_to(mark);
                inner.server.send(&waiter.client, Message::Kill);
            }
            Served::Yes
        }
        Err(CmdError::Store(OpError::Fault(fault))) => Served::Later(fault),
        Err(error) => {
            inner.reply.out.back_to(mark);
            let text = error.into_text();
            inner.stats.command(waiter.command).failed.add(1);
            inner.server.count_error(&text);
            inner.reply.error(&text);
            Served::Yes
        }
    }
}

/// Hands a client's reply to its worker.
fn deliver(ctx: &mut Ctx<'_>, waiter: &Waiter, bytes: Replies) {
    if waiter.client.worker == ctx.local.worker {
        ctx.local.deliveries.push(Delivery { token: waiter.client.token(), reply: waiter.reply, bytes });
    } else {
        ctx.server.send(&waiter.client, |token| Message::Reply(token, waiter.reply, bytes));
    }
}

/// Serves the key soon, as a step of its own that locks what the next of those who wait change.
fn ready_again(ctx: &Ctx<'_>, ready: &ReadyKey) {
    ctx.server.workers[ctx.local.worker].mailbox.send(Message::KeyReady(ready.clone()));
}

/// Serves the key when its pages are in memory, as a step of its own: others may come before it then.
fn serve_later(ctx: &Ctx<'_>, ready: &ReadyKey, fault: Fault) {
    ctx.server.load(ctx.local.worker, fault, Message::KeyReady(ready.clone()));
}

/// Serves a key that was not served when it became ready: its pages were missing, or there were too many to be served at once.
pub fn serve_ready_key(
    worker: &mut Worker,
    server: &Arc<Server>,
    config: &Arc<Config>,
    local: &mut Local,
    registry: &'static Registry,
    key: ReadyKey,
) {
    let Some(waiter) = server.waiters.next(&key, 0) else { return };
    if !Patient::is_not_needed_by(worker) {
        Patient { worker, meanwhile: &mut || local.stand_aside(&server.busy) }.quiesce();
    }
    let (stats, mut out) = (local.stats.clone(), ReplyBuf::default());
    let mut ctx = Ctx {
        worker,
        client: &mut Session::new(waiter.client.id, true),
        reply: Reply { resp3: false, out: &mut out },
        server,
        stats: &stats,
        peer: &waiter.client,
        config,
        local,
        registry,
    };
    serve_alone(&mut ctx, key);
}

/// The next client of a worker whose time is over, if there is one. The caller is the one to tell it.
pub fn next_over(server: &Server, local: &mut Local) -> Option<Arc<Waiter>> {
    while let Some(first) = local.deadlines.first_entry() {
        if first.key().0 > Instant::now() {
            return None;
        }
        let waiter = first.remove();
        // If somebody else has answered it, that reply is on its way.
        if server.waiters.end(&waiter) {
            return Some(waiter);
        }
    }
    None
}

/// A client of this worker waits no longer, or has gone.
pub fn forget(server: &Server, local: &mut Local, client: u64) {
    let Some(waiter) = server.waiters.forget(client) else { return };
    server.waiters.end(&waiter);
    if let Some(deadline) = waiter.deadline {
        local.deadlines.remove(&(deadline, waiter.arrival));
    }
}

/// Serves a key as a step of its own.
fn serve_alone(ctx: &mut Ctx<'_>, ready: ReadyKey) {
    let mut needs = Needs::of_change();
    needs.add_key(ctx, ready.db, ctx.worker.key(&ready.key));
    match prepare(ctx, &needs) {
        Ok(held) => {
            ctx.worker.steps().begin();
            ctx.server.waiters.make_ready(ctx.worker.steps().worker(), ready.clone());
            serve_ready(ctx, &held);
            ctx.worker.steps().end();
        }
        Err(OpError::Fault(fault)) => serve_later(ctx, &ready, fault),
        // A page that cannot be read: there is nothing to be had.
        Err(_) => {}
    }
}

//! Stage 3 of a batch: running its commands.

use std::sync::Arc;

use stillframe_engine::command::{flag, Touch};
use stillframe_engine::config::Config;
use stillframe_engine::dispatch;
use stillframe_engine::dispatch::call::Outcome;
use stillframe_engine::dispatch::ctx::{Ctx, Registry};
use stillframe_engine::protocol::args::Args;
use stillframe_engine::protocol::reply::Reply;
use stillframe_engine::server::Server;
use stillframe_engine::state::local::Local;
use stillframe_engine::state::mailbox::Message;
use stillframe_engine::state::session::{Ending, Session};
use stillframe_engine::state::stats::WorkerStats;
use stillframe_engine::state::token::Token;
use stillframe_store::{Fault, OpError, SlabNeeds, Worker};

use crate::event_loop::batch::{Batch, Item};
use crate::event_loop::lend::{lend, settle};
use crate::event_loop::worker::EventLoop;
use crate::net::conn::{Conn, Hold, Interest, Output, OUTPUT_FULL_BYTES};
use crate::net::slots::Slots;

/// Commands of a connection that are looked at when one before them misses a page.
const AHEAD_COMMANDS: usize = 64;

impl EventLoop {
    /// Stage 3: runs the commands, those of a connection in their order.
    pub(super) fn execute(&mut self) {
        if self.batch.items.is_empty() {
            return;
        }
        self.local.begin_batch();
        for index in 0..self.batch.items.len() {
            if self.server.config_version() != self.config_version {
                self.refresh_config();
            }
            // What has been taken apart is not what there is any more once connections were at the desk.
            if self.pass_by() || self.execute_item(index) {
                break;
            }
        }
        self.local.end_batch();
        self.local.count_expired(&self.worker);
        self.batch.items.clear();
        self.batch.ranges.clear();
    }

    /// Runs a command. True if the connections were at the desk meanwhile.
    fn execute_item(&mut self, index: usize) -> bool {
        let item = &self.batch.items[index];
        let slot = item.slot;
        let Some(conn) = self.slots.get(slot) else { return false };
        if conn.hold != Hold::Free || conn.session.ending != Ending::Open {
            return false;
        }
        if item.range_count == 0 {
            conn.session.reply_mode.end_command();
            conn.input.executed(item.end);
            return false;
        }
        if may_be_long(item, self.server.worker_count) {
            return execute_long(self, index);
        }
        let token = self.slots.token(slot);
        let (hand, slots) = hand(self);
        let Some(conn) = slots.get(slot) else { return false };
        let hold = hand.execute(conn, token, index);
        self.has_paused |= hold == Hold::Paused;
        false
    }
}

/// Runs a command that may take long, or has to wait for one: the other connections are lent meanwhile.
#[inline(never)]
fn execute_long(of: &mut EventLoop, index: usize) -> bool {
    let slot = of.batch.items[index].slot;
    let token = of.slots.token(slot);
    let Some(mut conn) = of.slots.lend(slot) else { return false };
    lend(of);
    let (hand, _) = hand(of);
    let hold = hand.execute(&mut conn, token, index);
    of.has_paused |= hold == Hold::Paused;
    let called = of.take_back();
    if called.is_some() && conn.input.parsed != conn.input.done {
        conn.input.rewind();
        conn.protocol_error = None;
    }
    if called.is_some() {
        // What epoll has told of it nobody has taken: asked anew, it tells again.
        conn.interest = Interest { read: false, write: false };
    }
    of.slots.put_back(slot, conn);
    let Some(called) = called else { return false };
    of.update_interest(slot);
    settle(of, called);
    true
}

/// What a command is run with, and the connections.
#[inline(always)]
fn hand(of: &mut EventLoop) -> (Hand<'_>, &mut Slots) {
    let EventLoop { batch, slots, worker, server, stats, config, local, registry, index, .. } = of;
    (Hand { batch, worker, server, stats, config, local, registry, index: *index }, slots)
}

/// Whether a command may take any time, or may have to wait for one of another worker that does.
fn may_be_long(item: &Item, worker_count: usize) -> bool {
    let Some(found) = item.found else { return false };
    found.command.is(flag::RUNS_SCRIPT | flag::EXEC)
        || (worker_count > 1
            && !found.command.touch.is_of_keys()
            && !matches!(found.command.touch, Touch::Nothing))
}

/// What a command is run with.
struct Hand<'l> {
    batch: &'l Batch,
    worker: &'l mut Worker,
    server: &'l Arc<Server>,
    stats: &'l WorkerStats,
    config: &'l Arc<Config>,
    local: &'l mut Local,
    registry: &'static Registry,
    /// The number of the worker.
    index: usize,
}

impl Hand<'_> {
    /// Runs a command of the batch, of this connection; what holds afterwards.
    #[inline(always)]
    fn execute(self, conn: &mut Conn, token: Token, index: usize) -> Hold {
        let Hand { batch, worker, server, stats, config, local, registry, index: worker_index } = self;
        let item = &batch.items[index];
        conn.output.set_hard_limit(conn.session.output_limit(&config.settings).hard_bytes);
        let Conn { session, info, input, output, .. } = conn;
        let ranges = &batch.ranges[item.first_range as usize..(item.first_range + item.range_count) as usize];
        let args = input.args(ranges);
        let args = item.key.as_ref().map_or(args, |found| args.with_hashed(found.arg as usize, found.key));
        let element = item.key.as_ref().and_then(|found| found.element.as_ref());
        worker.know_element(element.map(|element| (args.at(element.arg as usize), element.ahead)));
        let mut ctx = Ctx {
            worker,
            reply: Reply { resp3: session.resp3, out: &mut output.buf },
            client: session,
            server,
            stats,
            peer: info,
            config,
            local,
            registry,
        };
        let queued_before = ctx.client.queued_count();
        let outcome = match item.found {
            Some(found) => dispatch::run(&mut ctx, found, &args),
            None => dispatch::dispatch(&mut ctx, &args),
        };
        ctx.worker.know_element(None);
        let (hold, fault) = match outcome {
            Outcome::Done => {
                if let Some(queued) = session.queued_since(queued_before) {
                    queued.incoming = input.take_incoming();
                }
                input.executed(item.end);
                (hold_after(session, output), None)
            }
            Outcome::Fault(fault) => (Hold::Fault, Some(with_later(worker, batch, index, &input.buf, fault))),
            Outcome::Paused => (Hold::Paused, None),
        };
        conn.go_on_as(hold);
        if let Some(fault) = fault {
            server.load(worker_index, fault, Message::PagesLoaded(token));
        }
        hold
    }
}

/// With what the next commands of the connection will miss: it comes with the same read.
fn with_later(worker: &mut Worker, batch: &Batch, index: usize, buf: &[u8], fault: Fault) -> Fault {
    let (item, later) = (&batch.items[index], &batch.items[index + 1..]);
    let of_same = later.iter().take_while(|later| later.slot == item.slot).take(AHEAD_COMMANDS);
    let key = |item: &Item| {
        let found = item.key.as_ref()?;
        let range = batch.ranges[item.first_range as usize + found.arg as usize];
        let bytes = buf.get(range.start as usize..(range.start + range.len) as usize)?;
        let ranges = &batch.ranges[item.first_range as usize..(item.first_range + item.range_count) as usize];
        let command = item.found.map(|found| found.command)?;
        let reach = command.reach_of(&Args::new(buf, ranges), found.arg as usize);
        Some((found.db, worker.key(bytes), reach))
    };
    let keys: Vec<_> = of_same.filter_map(key).collect();
    match worker.resolve_reaching(keys.into_iter(), &SlabNeeds::default()) {
        Err(OpError::Fault(later)) => fault.and(later),
        _ => fault,
    }
}

/// Why the next commands wait once one has been executed, if they do.
fn hold_after(session: &mut Session, output: &mut Output) -> Hold {
    let is_full = output.pending_bytes() > OUTPUT_FULL_BYTES;
    if session.drawing.is_some() {
        return Hold::Drawing;
    }
    match session.late.first_place() {
        Some(at) => {
            session.late.hold(output.buf.split_off_all(at));
            Hold::Blocked
        }
        None if is_full => Hold::Full,
        None => Hold::Free,
    }
}

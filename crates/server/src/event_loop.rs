//! A worker's loop: many connections, one thread.
//!
//! One round, across all connections that have something to say:
//!
//! ```text
//!   wait -> read, parse -> hash, prefetch -> execute -> write -> messages, timers
//! ```
//!
//! The stages run over a batch of commands one after the other, so that the cache misses of many lookups
//! overlap.

mod batch;
mod cron;
mod flow;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use stillframe_store::Worker;

use crate::clients::ClientInfo;
use crate::config::Config;
use crate::conn::{Conn, Hold, Input, Interest, Output};
use crate::local::Local;
use crate::mailbox::{Message, Token};
use crate::server::{unix_ms, Server};
use crate::session::Session;
use crate::slots::{SlotId, Slots};
use crate::stats::WorkerStats;

use batch::Batch;
use cron::Cron;

use flow::event_flags;
pub use flow::publish_session;

/// Events taken from epoll at once.
const EVENT_COUNT: usize = 1024;
/// Tokens beyond those of connections, whose top bit is clear.
const WAKE_TOKEN: u64 = u64::MAX;
const LISTEN_TOKEN: u64 = u64::MAX - 1;

pub struct EventLoop {
    server: Arc<Server>,
    stats: Arc<WorkerStats>,
    index: usize,
    worker: Worker,
    config: Arc<Config>,
    config_version: u64,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    slots: Slots,
    /// Connections to be served in the next round, and whether their socket is to be read.
    ready: Vec<(SlotId, bool)>,
    batch: Batch,
    local: Local,
    messages: Vec<Message>,
    has_messages: bool,
    cron: Cron,
    spin: Spin,
    is_stopping: bool,
}

/// Spinning before blocking (`busy-poll`), as long as it pays.
#[derive(Default)]
struct Spin {
    /// Of the last spins, in 1/256: how many found something.
    payoff: u32,
    /// Rounds to go without spinning.
    pause_rounds: u32,
}

const SPIN_PAYOFF_ONE: u32 = 256;
const SPIN_PAYOFF_LEAST: u32 = SPIN_PAYOFF_ONE / 2;
const SPIN_PAUSE_ROUNDS: u32 = 1000;

impl Spin {
    fn is_on(&mut self) -> bool {
        if self.pause_rounds > 0 {
            self.pause_rounds -= 1;
            if self.pause_rounds == 0 {
                self.payoff = SPIN_PAYOFF_ONE;
            }
        }
        self.pause_rounds == 0
    }

    fn learn(&mut self, found: bool) {
        self.payoff = (self.payoff * 31 + if found { SPIN_PAYOFF_ONE } else { 0 }) / 32;
        if self.payoff < SPIN_PAYOFF_LEAST {
            self.pause_rounds = SPIN_PAUSE_ROUNDS;
        }
    }
}

impl EventLoop {
    /// # Errors
    /// epoll could not be set up.
    pub fn new(server: Arc<Server>, index: usize) -> std::io::Result<EventLoop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = server.workers[index].mailbox.wake_fd();
        epoll::add(&epoll, wake, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        if index == 0 {
            let data = epoll::EventData::new_u64(LISTEN_TOKEN);
            epoll::add(&epoll, server.listeners.fd(), data, epoll::EventFlags::IN)?;
        }
        let stats = server.workers[index].stats.clone();
        let worker = server.store.worker();
        let config = server.config();
        let mut event_loop = EventLoop {
            index,
            worker,
            config_version: 0,
            config,
            epoll,
            events: Vec::with_capacity(EVENT_COUNT),
            slots: Slots::default(),
            ready: Vec::new(),
            batch: Batch::default(),
            local: Local::new(stats.clone()),
            stats,
            messages: Vec::new(),
            has_messages: false,
            cron: Cron::new(index),
            spin: Spin { payoff: SPIN_PAYOFF_ONE, pause_rounds: 0 },
            is_stopping: false,
            server,
        };
        event_loop.refresh_config();
        Ok(event_loop)
    }

    /// Serves until it is told to stop.
    pub fn run(mut self) {
        while !self.is_stopping {
            self.wait();
            self.worker.set_now(unix_ms());
            self.refresh_config();
            self.take_events();
            self.serve_ready();
            self.evict_clients();
            self.take_messages();
            self.run_cron();
        }
        let ids: Vec<SlotId> = self.slots.ids().collect();
        for id in ids {
            self.close(id);
        }
    }

    fn refresh_config(&mut self) {
        let version = self.server.config_version();
        if version != self.config_version {
            self.config_version = version;
            self.config = self.server.config();
            let settings = &self.config.settings;
            self.local.latency_tracking = settings.latency_tracking;
            self.local.time_each = settings.slowlog_threshold.is_some_and(|t| t < Duration::from_millis(1))
                || settings.latency_threshold.is_some_and(|t| t < Duration::from_millis(2));
        }
    }

    /// Waits for events, not longer than to the next timer; the store may take cuts meanwhile.
    fn wait(&mut self) {
        let EventLoop { worker, epoll, events, ready, cron, config, spin, local, .. } = self;
        events.clear();
        let mut poll = |timeout: Duration| {
            let timeout =
                Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
            match epoll::wait(&*epoll, spare_capacity(events), Some(&timeout)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                // The descriptors are ours and valid; there is nothing to do but to go on.
                Err(_) => 0,
            }
        };
        if !ready.is_empty() {
            worker.quiesce();
            poll(Duration::ZERO);
            return;
        }
        let busy_poll = config.settings.busy_poll;
        worker.idle(|| {
            if !busy_poll.is_zero() && spin.is_on() {
                let start = Instant::now();
                loop {
                    if poll(Duration::ZERO) > 0 {
                        spin.learn(true);
                        local.stats.busy_poll_hits.add(1);
                        return;
                    }
                    if start.elapsed() >= busy_poll {
                        break;
                    }
                    std::hint::spin_loop();
                }
                spin.learn(false);
            }
            poll(cron.time_left());
        });
    }

    fn take_events(&mut self) {
        for index in 0..self.events.len() {
            let event = self.events[index];
            let (flags, data) = (event.flags, event.data.u64());
            if data == WAKE_TOKEN {
                self.has_messages = true;
                continue;
            }
            if data == LISTEN_TOKEN {
                self.accept();
                continue;
            }
            let Some(id) = self.slots.find(Token(data)) else { continue };
            if flags.intersects(epoll::EventFlags::OUT) {
                self.flush(id);
            }
            let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(closed) {
                if let Some(conn) = self.slots.get(id) {
                    conn.has_hung_up = true;
                }
            }
            if flags.intersects(closed | epoll::EventFlags::IN) {
                self.make_ready(id, true);
            }
        }
    }

    /// Puts a connection on the list for the next round.
    fn make_ready(&mut self, id: SlotId, can_read: bool) {
        let Some(conn) = self.slots.get(id) else { return };
        if !conn.is_ready {
            conn.is_ready = true;
            self.ready.push((id, can_read));
        } else if can_read {
            if let Some(entry) = self.ready.iter_mut().find(|(other, _)| *other == id) {
                entry.1 = true;
            }
        }
    }

    fn accept(&mut self) {
        for accepted in self.server.listeners.accept(&self.server, &self.config) {
            let (fd, info) = accepted;
            if info.worker == self.index {
                self.add(fd, info);
            } else {
                self.server.workers[info.worker].mailbox.send(Message::Accepted(fd, info.clone()));
            }
        }
    }

    /// Takes over a connection.
    fn add(&mut self, fd: OwnedFd, info: Arc<ClientInfo>) {
        let interest = Interest { read: true, write: false };
        let conn = Box::new(Conn {
            session: Session::new(info.id, self.config.settings.requirepass.is_empty()),
            info,
            fd,
            input: Input::default(),
            output: Output::default(),
            hold: Hold::Free,
            protocol_error: None,
            interest,
            has_hung_up: false,
            is_ready: false,
            is_touched: false,
        });
        let token = self.slots.add(conn);
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        conn.info.set_token(token);
        let data = epoll::EventData::new_u64(token.0);
        if epoll::add(&self.epoll, &conn.fd, data, event_flags(interest)).is_err() {
            self.close(id);
        }
    }

    fn take_messages(&mut self) {
        if !std::mem::take(&mut self.has_messages) {
            return;
        }
        let mut messages = std::mem::take(&mut self.messages);
        self.server.workers[self.index].mailbox.take(&mut messages);
        for message in messages.drain(..) {
            self.take_message(message);
        }
        self.messages = messages;
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Accepted(fd, info) => self.add(fd, info),
            Message::PagesLoaded(token) => self.release(token, Hold::Fault),
            Message::Reply(token, which, bytes) => self.unblock(token, which, bytes),
            Message::Push(token, bytes) => self.push(token, &bytes),
            Message::Kill(token) => {
                if let Some(id) = self.slots.find(token) {
                    self.close(id);
                }
            }
            Message::PauseChanged => self.release_paused(),
            Message::Stop => self.is_stopping = true,
        }
    }
}

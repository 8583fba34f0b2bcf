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
mod drawing;
mod execute;
mod farewell;
mod flow;
mod held;
mod held_queue;
mod lend;
mod lent;
mod receive;
mod spin;
mod stages;
mod visits;
mod waits;
mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;
use stillframe_engine::clock::unix_ms;
use stillframe_engine::state::clients::ClientInfo;
use stillframe_engine::state::mailbox::Message;
use stillframe_engine::state::token::Token;
use stillframe_store::Patient;

use crate::net::conn::{Conn, Hold, LISTEN_TOKEN, WAKE_TOKEN};
use crate::net::listen::Admission;
use crate::net::slots::SlotId;
use crate::net::watched;

pub use worker::EventLoop;

impl EventLoop {
    /// Serves until it is told to stop.
    pub fn run(mut self) {
        while !self.is_stopping {
            self.release_held();
            self.wait();
            self.worker.set_now(unix_ms());
            self.refresh_config();
            self.take_events();
            self.end_waits();
            self.serve_ready();
            self.go_on_drawing();
            self.evict_clients();
            self.take_messages();
            self.run_chores();
            self.go_on_evicting();
        }
        // What is held still will never be answered: whether it has happened a client may ask after the next start.
        self.release_held();
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
            self.local.follow(&self.config.settings);
        }
    }

    /// Waits for events, not longer than to the next timer; the store may take cuts meanwhile.
    fn wait(&mut self) {
        self.events.clear();
        if !self.ready.is_empty() || !self.drawing.is_empty() || self.local.is_evicting {
            self.pass_by();
            poll(&self.epoll, &mut self.events, Duration::ZERO);
            return;
        }
        // What it wakes to may be that another worker's script has to end first.
        let is_lent = self.server.worker_count > 1;
        if is_lent {
            lend::lend(self);
        }
        sleep(self);
        if is_lent {
            self.end_lending();
        }
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
                self.note_progress(id);
                self.flush(id);
            }
            let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(closed) {
                if let Some(conn) = self.slots.get(id) {
                    conn.peer.hangs_up();
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
        let admission = Admission {
            settings: &self.config.settings,
            clients: &self.server.clients,
            stats: &self.server.stats,
            worker_count: self.server.worker_count,
        };
        for (socket, info) in self.doors.accept(&admission) {
            let worker = info.worker;
            if worker == self.index {
                self.add(socket, info);
            } else {
                self.doors.hand_over(socket, info);
                self.server.workers[worker].mailbox.send(Message::Arrived);
            }
        }
    }

    /// Takes over a connection.
    fn add(&mut self, socket: OwnedFd, info: Arc<ClientInfo>) {
        let conn = Conn::new(socket, info, self.config.settings.requirepass.is_empty());
        let token = self.slots.add(Box::new(conn));
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        conn.info.set_token(token);
        if !watched::watch(&self.epoll, conn, token) {
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
        self.flush_listening();
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Arrived => {
                self.doors.take(self.index).into_iter().for_each(|(socket, info)| self.add(socket, info));
            }
            Message::PagesLoaded(token) => self.release(token, Hold::Fault),
            Message::InputLoaded(token) => self.go_on_reading(token),
            Message::ValueLoaded(token) => self.go_on_sending(token),
            Message::Reply(token, which, bytes) => self.unblock(token, which, bytes),
            Message::KeyReady(key) => self.serve_waiting(key),
            Message::Part(token, part) => self.append_part(token, part),
            Message::Heard(tokens) => self.hear(&tokens),
            Message::Kill(token) => {
                if let Some(id) = self.slots.find(token) {
                    self.close(id);
                }
            }
            Message::PauseChanged => self.release_paused(),
            // What it lets go is written before the worker waits again.
            Message::Durable => {}
            Message::Stop => self.is_stopping = true,
        }
    }
}

/// Waits for events, or the next timer.
fn sleep(of: &mut EventLoop) {
    let EventLoop { worker, server, stats, epoll, events, chores, config, spin, local, .. } = of;
    let (busy_poll, start) = (config.settings.busy_poll, Instant::now());
    let until_timer = chores.time_left().min(local.time_to_deadline());
    let sleep = || {
        if !busy_poll.is_zero() && spin.is_on() {
            loop {
                if poll(epoll, events, Duration::ZERO) > 0 {
                    spin.learn(true);
                    stats.busy_poll_hits.add(1);
                    return;
                }
                if start.elapsed() >= busy_poll {
                    break;
                }
                std::hint::spin_loop();
            }
            spin.learn(false);
        }
        poll(epoll, events, until_timer);
    };
    Patient { worker, meanwhile: &mut || local.stand_aside(&server.busy) }.idle(sleep);
}

/// Waits for events; how many there are.
fn poll(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, timeout: Duration) -> usize {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    match epoll::wait(epoll, spare_capacity(events), Some(&timeout)) {
        Ok(count) => count,
        Err(Errno::INTR) => 0,
        // The descriptors are ours and valid; there is nothing to do but to go on.
        Err(_) => 0,
    }
}

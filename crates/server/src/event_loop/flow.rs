//! Holding, releasing, flushing and closing connections.

use rustix::event::epoll;
use stillframe_engine::dispatch::subscribed;
use stillframe_engine::log;
use stillframe_engine::protocol::reply::Replies;
use stillframe_engine::state::client_line::{describe, publish_session};
use stillframe_engine::state::clients::{client_flag, ClientInfo, Clients};
use stillframe_engine::state::mailbox::{Message, Part};
use stillframe_engine::state::session::{Ending, LateReply};
use stillframe_engine::state::token::Token;
use stillframe_store::UnixMillis;

use crate::event_loop::worker::EventLoop;
use crate::net::conn::{Conn, Hold, Interest, WriteEvent};
use crate::net::slots::SlotId;
use std::sync::atomic::Ordering::Relaxed;

/// A client that has so much unsent output waits until it reads.
pub const OUTPUT_FULL_BYTES: usize = 1 << 20;

impl EventLoop {
    /// Ends a hold; the commands that waited are served in the next round.
    pub(super) fn release(&mut self, token: Token, hold: Hold) {
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        if conn.hold == hold {
            conn.hold = Hold::Free;
            publish_session(&conn.session, &conn.info);
            // What has arrived meanwhile may have been left in the socket.
            self.make_ready(id, true);
            self.update_interest(id);
        }
    }

    /// Walks over all connections, but only if a pause has held one.
    pub(super) fn release_paused(&mut self) {
        if !std::mem::take(&mut self.has_paused) {
            return;
        }
        let ids: Vec<SlotId> = self.slots.ids().collect();
        for id in ids {
            let token = self.slots.token(id);
            self.release(token, Hold::Paused);
        }
    }

    /// Delivers a reply of a blocked command, and lets the client go on if it was the last.
    pub(super) fn unblock(&mut self, token: Token, which: LateReply, reply: Replies) {
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        conn.hear(&mut self.local.heard, conn.session.output_limit(&self.config.settings).hard_bytes);
        if let Some(replies) = conn.session.late.take(which, reply) {
            let client = conn.info.id;
            let limit = conn.session.output_limit(&self.config.settings);
            conn.append_replies(replies, limit.hard_bytes);
            conn.hear(&mut self.local.heard, limit.hard_bytes);
            publish_session(&conn.session, &conn.info);
            publish_input(&self.server.clients, conn);
            self.forget_wait(client);
            self.release(token, Hold::Blocked);
            self.flush(id);
        }
    }

    /// Sends a part of a reply whose rest is still to come.
    pub(super) fn append_part(&mut self, token: Token, part: Part) {
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        let limit = conn.session.output_limit(&self.config.settings);
        conn.hear(&mut self.local.heard, limit.hard_bytes);
        conn.append(&part.bytes, limit.hard_bytes);
        conn.session.late.begin();
        conn.part_written = Some(part.written);
        self.flush(id);
    }

    /// Something has come for these connections. It is written with what else comes in this round.
    pub(super) fn hear(&mut self, tokens: &[Token]) {
        for &token in tokens {
            let Some(id) = self.slots.find(token) else { continue };
            let Some(conn) = self.slots.get(id) else { continue };
            let limit = conn.session.output_limit(&self.config.settings);
            conn.hear(&mut self.local.heard, limit.hard_bytes);
            self.listening.push(id);
        }
    }

    /// Writes what has come for those who listen.
    pub(super) fn flush_listening(&mut self) {
        let mut listening = std::mem::take(&mut self.listening);
        listening.sort_unstable();
        listening.dedup();
        listening.drain(..).for_each(|id| self.flush(id));
        self.listening = listening;
    }

    /// Writes what there is to write. Closes the connection if that fails, if it was the last thing to do, or if
    /// the client has asked for or leaves unread too much.
    pub(super) fn flush(&mut self, id: SlotId) {
        let stats = self.stats.clone();
        let token = self.slots.token(id);
        let Some(conn) = self.slots.get(id) else { return };
        if conn.session.ending == Ending::AtOnce {
            if conn.output.buf.is_over() {
                self.log_output_limit(id);
            }
            return self.close(id);
        }
        let mut event = conn.output.write(&mut conn.wire, |count| {
            stats.writes.add(1);
            stats.output_bytes.add(count as u64);
        });
        if event == WriteEvent::Closed || conn.peer.is_deaf() {
            self.drop_output(id);
            event = WriteEvent::Drained;
        }
        let Some(conn) = self.slots.get(id) else { return };
        if let Some(fault) = conn.output.take_wanted() {
            let loaded = Message::ValueLoaded(token);
            self.server.load(self.index, fault, loaded);
        }
        let Some(conn) = self.slots.get(id) else { return };
        let pending = conn.output.pending_bytes();
        let is_sent = event == WriteEvent::Drained && conn.session.ending == Ending::AfterReply;
        if event == WriteEvent::Unreadable || is_sent {
            return self.close(id);
        }
        if self.is_unread_for_too_long(id) {
            self.log_output_limit(id);
            return self.close(id);
        }
        let Some(conn) = self.slots.get(id) else { return };
        if pending == 0 {
            // Who writes the rest may have gone.
            let _ = conn.part_written.take().map(|written| written.send(()));
        }
        if event == WriteEvent::Unfinished {
            // Asked anew, epoll tells at once that the socket takes more.
            conn.interest = Interest { read: false, write: false };
        }
        publish_output(&self.server.clients, conn);
        match conn.hold {
            Hold::Full if pending < OUTPUT_FULL_BYTES / 2 => {
                conn.hold = Hold::Free;
                self.make_ready(id, true);
            }
            Hold::Drawing => self.list_drawing(id),
            _ => {}
        }
        self.update_interest(id);
    }

    /// There is room for more of a value that comes.
    pub(super) fn go_on_reading(&mut self, token: Token) {
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        conn.input.is_awaiting_pages = false;
        self.make_ready(id, true);
    }

    /// More of a large value is in memory.
    pub(super) fn go_on_sending(&mut self, token: Token) {
        let Some(id) = self.slots.find(token) else { return };
        let Some(conn) = self.slots.get(id) else { return };
        conn.output.end_loading();
        conn.session.drawing.iter_mut().for_each(|drawing| drawing.is_listed = false);
        self.flush(id);
    }

    /// Whether the soft limit of `client-output-buffer-limit`, or a hard one that has been lowered, says that
    /// the client must go.
    fn is_unread_for_too_long(&mut self, id: SlotId) -> bool {
        let Some(Conn { output, session, .. }) = self.slots.get(id) else { return false };
        let limit = session.output_limit(&self.config.settings);
        let counted = output.counted_bytes() + session.heard_bytes() as u64;
        if limit.hard_bytes > 0 && counted > limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || counted <= limit.soft_bytes {
            output.over_soft_limit_since = None;
            return false;
        }
        output.over_soft_limit_since.get_or_insert_with(std::time::Instant::now).elapsed() > limit.soft_time
    }

    fn log_output_limit(&mut self, id: SlotId) {
        let now = self.worker.now();
        let Some(conn) = self.slots.get(id) else { return };
        publish(&self.server.clients, conn, now);
        let client = describe(&conn.info, now, self.registry);
        let client = String::from_utf8_lossy(&client);
        log::warning(format!("Client {client} closed for overcoming of output buffer limits."));
        self.server.stats.output_limit_closed.fetch_add(1, Relaxed);
    }

    /// Closes the largest clients while all together hold more than `maxmemory-clients`.
    pub(super) fn evict_clients(&self) {
        let limit_bytes = self.config.settings.max_client_bytes();
        let clients = &self.server.clients;
        if limit_bytes == 0 || clients.memory_bytes() <= limit_bytes {
            return;
        }
        for info in clients.to_evict(limit_bytes) {
            let client = describe(&info, self.worker.now(), self.registry);
            log::notice(format!("Evicting client: {}", String::from_utf8_lossy(&client)));
            self.server.stats.clients_evicted.fetch_add(1, Relaxed);
            self.server.send(&info, Message::Kill);
        }
    }

    /// Tells epoll what the connection waits for, if that has changed.
    pub(super) fn update_interest(&mut self, id: SlotId) {
        let token = self.slots.token(id);
        let Some(conn) = self.slots.get(id) else { return };
        let wanted = Interest { read: conn.wants_input(), write: conn.output.pending_bytes() > 0 };
        if wanted == conn.interest {
            return;
        }
        let reads_again = wanted.read && !conn.interest.read;
        let flags = event_flags(wanted);
        if epoll::modify(&self.epoll, &conn.wire, epoll::EventData::new_u64(token.0), flags).is_ok() {
            conn.interest = wanted;
        }
        if reads_again && conn.wire.has_pending() {
            self.make_ready(id, true);
        }
    }

    pub(super) fn close(&mut self, id: SlotId) {
        let Some(mut conn) = self.slots.remove(id) else { return };
        self.server.clients.remove(conn.info.id);
        if conn.session.late.is_awaited() {
            self.forget_wait(conn.info.id);
        }
        self.server.watches.unwatch_all(&mut conn.session);
        subscribed::stop(&self.server, &mut conn.session);
        conn.wire.close();
    }
}

/// What epoll is asked for. Edge-triggered: the kernel need not look again at sockets that have been drained.
pub(super) fn event_flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::ET | epoll::EventFlags::RDHUP;
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

/// Lets others see what has become of a client.
pub fn publish(clients: &Clients, conn: &Conn, now: UnixMillis) {
    let to = &conn.info.published;
    publish_session(&conn.session, &conn.info);
    publish_input(clients, conn);
    if conn.hold == Hold::Paused {
        to.flags.fetch_or(client_flag::BLOCKED, Relaxed);
    }
    to.last_active_unix_ms.store(now, Relaxed);
    to.argv_bytes.store(0, Relaxed);
}

/// What writing changes, and what has been appended for it.
pub(super) fn publish_output(clients: &Clients, conn: &Conn) {
    let to = &conn.info.published;
    to.output_bytes.store(conn.output.pending_bytes() + conn.session.heard_bytes(), Relaxed);
    if conn.output.held_bytes() + conn.session.heard_bytes() != to.output_capacity_bytes.load(Relaxed) {
        publish_input(clients, conn);
    }
}

/// The part of [`publish`] that reading changes.
pub(super) fn publish_input(clients: &Clients, conn: &Conn) {
    let to = &conn.info.published;
    let capacity = conn.input.buf.capacity();
    let output_capacity = conn.output.held_bytes() + conn.session.heard_bytes();
    to.input_bytes.store(conn.input.waiting_bytes(), Relaxed);
    to.input_free_bytes.store(capacity - conn.input.buf.len(), Relaxed);
    to.output_capacity_bytes.store(output_capacity, Relaxed);
    clients.set_memory(
        &conn.info,
        capacity
            + conn.input.received_bytes()
            + output_capacity
            + conn.session.byte_count()
            + size_of::<Conn>()
            + size_of::<ClientInfo>(),
    );
}

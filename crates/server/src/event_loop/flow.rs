//! Holding, releasing, flushing and closing connections.

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
use crate::net::conn::{Conn, Hold, Interest, WriteEvent, OUTPUT_FULL_BYTES};
use crate::net::slots::SlotId;
use crate::net::watched;
use std::sync::atomic::Ordering::Relaxed;

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
        conn.session.need.join(&part.need);
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
        let free_bytes = self.free_bytes(id);
        let Some(conn) = self.slots.get(id) else { return };
        let mut event = conn.output.write(&mut conn.wire, free_bytes, |count| {
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
        let is_lost = event == WriteEvent::Held && self.server.reply_gate.has_failed();
        if event == WriteEvent::Unreadable || is_sent || is_lost {
            return self.close(id);
        }
        if conn.is_unread_for_too_long(&self.config.settings) {
            self.log_output_limit(id);
            return self.close(id);
        }
        let Some(conn) = self.slots.get(id) else { return };
        if pending == 0 {
            // The writer of the rest may have gone.
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
        if watched::update(&self.epoll, conn, token) {
            self.make_ready(id, true);
        }
    }

    pub(super) fn close(&mut self, id: SlotId) {
        self.queue_held(id, None);
        let Some(mut conn) = self.slots.remove(id) else { return };
        self.server.clients.remove(conn.info.id);
        if conn.session.late.is_awaited() {
            self.forget_wait(conn.info.id);
            self.server.data_log.take_of_client(conn.info.id);
        }
        self.server.watches.unwatch_all(&mut conn.session);
        subscribed::stop(&self.server, &mut conn.session);
        conn.wire.close();
    }
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

//! Connections whose peer sends no more, or takes no more ([`crate::net::conn::Peer`]).

use std::sync::atomic::Ordering::Relaxed;

use stillframe_engine::dispatch::subscribed;
use stillframe_engine::dispatch::waiting::time_is_over;
use stillframe_engine::logging;
use stillframe_engine::state::session::Ending;

use crate::event_loop::worker::EventLoop;
use crate::net::conn::Peer;
use crate::net::slots::SlotId;

impl EventLoop {
    /// The peer has taken something: the connection is not idle.
    pub(super) fn note_progress(&mut self, id: SlotId) {
        let now = self.worker.now();
        if let Some(conn) = self.slots.get(id) {
            conn.info.published.last_active_unix_ms.store(now, Relaxed);
        }
    }

    /// Everything that the peer has sent has been read.
    pub(super) fn end_input(&mut self, id: SlotId) {
        if let Some(conn) = self.slots.get(id) {
            conn.peer.ends();
        }
    }

    /// A peer that has ended its side may be gone: what it took from a key would be lost. So it waits for none any more, and the
    /// commands behind have their turn.
    pub(super) fn end_wait_of_silent(&mut self, id: SlotId) {
        let token = self.slots.token(id);
        let Some(conn) = self.slots.get(id) else { return };
        if conn.peer == Peer::Sends {
            return;
        }
        let Some(waiter) = self.server.waiters.of_client(conn.info.id) else {
            return logging::end_wait_of_silent(&self.server, conn.info.id);
        };
        if self.server.waiters.end(&waiter) {
            self.unblock(token, waiter.reply, time_is_over(&waiter).into());
        }
    }

    /// Everything that has come is executed, and no more will come: closes the connection once the replies are sent.
    pub(super) fn part(&mut self, id: SlotId) {
        self.end_hearing(id);
        let Some(conn) = self.slots.get(id) else { return };
        conn.input.discard();
        if conn.session.ending == Ending::Open {
            conn.session.ending = Ending::AfterReply;
        }
        self.flush(id);
    }

    /// The client hears nothing from now on; what it has been told by now is the last.
    pub(super) fn end_hearing(&mut self, id: SlotId) {
        let Some(conn) = self.slots.get(id) else { return };
        subscribed::stop(&self.server, &mut conn.session);
        conn.hear(&mut self.local.heard, conn.session.output_limit(&self.config.settings).hard_bytes);
    }

    /// A write has failed: nobody takes what there is, nor what would come. What has arrived is executed all the same.
    pub(super) fn drop_output(&mut self, id: SlotId) {
        let Some(conn) = self.slots.get(id) else { return };
        if !conn.peer.is_deaf() {
            conn.peer.turns_deaf();
            subscribed::stop(&self.server, &mut conn.session);
            self.make_ready(id, true);
        }
        let Some(conn) = self.slots.get(id) else { return };
        conn.output.discard();
        // The thread that writes a large reply gives up.
        conn.part_written = None;
    }
}

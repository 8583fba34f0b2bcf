//! Connections whose output is held until what it tells of is durable (G1).
//!
//! ```text
//!   flush ── need above what is durable ──▶ in the queue, by its lowest need ──┐
//!     ▲                                                                        │ ask: the gate rings when it is durable
//!     └──────────────────────── release ◀── Message::Durable ──────────────────┘
//! ```
//! Commands that come behind are executed meanwhile.

use stillframe_engine::protocol::need::Need;

use crate::event_loop::worker::EventLoop;
use crate::net::slots::SlotId;

impl EventLoop {
    /// How many bytes of a connection's output may leave now.
    #[inline]
    pub(super) fn free_bytes(&mut self, id: SlotId) -> usize {
        match self.slots.get(id) {
            Some(conn) if !conn.session.need.is_nothing() => self.look_at_need(id),
            _ => usize::MAX,
        }
    }

    /// Notes what the output needs, and puts the connection where it belongs in the queue.
    #[cold]
    fn look_at_need(&mut self, id: SlotId) -> usize {
        let limit_offset = self.server.reply_gate.limit_offset();
        let Some(conn) = self.slots.get(id) else { return 0 };
        let settled_offset = conn.session.need.settled_offset();
        let is_free = settled_offset.is_some_and(|need_offset| need_offset <= limit_offset);
        if is_free || limit_offset == u64::MAX {
            conn.session.need = Need::default();
            conn.output.held.clear();
            self.queue_held(id, None);
            return usize::MAX;
        }
        let unsent_bytes = conn.output.pending_bytes();
        conn.output.note_need(settled_offset);
        let free_bytes = conn.output.held.free_bytes(limit_offset);
        // What is not noted depends on a step that runs still.
        let next_offset = conn.output.held.next_offset(limit_offset).unwrap_or(0);
        self.queue_held(id, (free_bytes < unsent_bytes).then_some(next_offset));
        free_bytes
    }

    /// The output of the connection waits for this, or for nothing.
    pub(super) fn queue_held(&mut self, id: SlotId, need_offset: Option<u64>) {
        let Some(conn) = self.slots.get(id) else { return };
        let before = std::mem::replace(&mut conn.held_at, need_offset);
        if before != need_offset {
            before.map(|before| self.held.by_need.remove(&(before, id)));
            need_offset.map(|need_offset| self.held.by_need.insert((need_offset, id)));
        }
    }

    /// Lets go what has become durable, and asks to be woken for the rest. To be called before the worker sleeps.
    #[inline]
    pub(super) fn release_held(&mut self) {
        if !self.held.by_need.is_empty() || self.held.has_asked {
            self.release_and_ask();
        }
    }

    #[cold]
    fn release_and_ask(&mut self) {
        loop {
            let lowest_offset = self.held.lowest_offset();
            self.held.has_asked = lowest_offset.is_some();
            self.server.reply_gate.ask(self.index, lowest_offset);
            // Looked at once more: it may have become durable before the gate was asked.
            if !self.flush_due() {
                return;
            }
        }
    }

    /// Writes what may leave by now. Whether there was any.
    fn flush_due(&mut self) -> bool {
        let (limit_offset, has_failed) =
            (self.server.reply_gate.limit_offset(), self.server.reply_gate.has_failed());
        let mut is_any = false;
        for id in self.held.up_to(if has_failed { u64::MAX } else { limit_offset }) {
            let Some(conn) = self.slots.get(id) else { continue };
            let runs_still = conn.held_at == Some(0) && conn.session.need.settled_offset().is_none();
            if runs_still && limit_offset != u64::MAX && !has_failed {
                continue;
            }
            is_any = true;
            match has_failed {
                true => self.close(id),
                false => self.flush(id),
            }
        }
        is_any
    }
}

//! Replies of random elements that go on as their clients take them.

use stillframe_engine::log;
use stillframe_engine::protocol::reply::Reply;
use stillframe_engine::state::mailbox::Message;
use stillframe_store::OpError;

use crate::event_loop::flow::publish_input;
use crate::event_loop::worker::EventLoop;
use crate::net::conn::Hold;
use crate::net::slots::SlotId;

/// With less unsent output the next part is written.
const WANTING_BYTES: usize = 64 << 10;

impl EventLoop {
    /// Puts a connection on the list of those whose next part is to be written, if it has room for that.
    pub(super) fn list_drawing(&mut self, id: SlotId) {
        let Some(conn) = self.slots.get(id) else { return };
        if conn.hold != Hold::Drawing || conn.output.pending_bytes() >= WANTING_BYTES {
            return;
        }
        if let Some(drawing) = conn.session.drawing.as_mut().filter(|drawing| !drawing.is_listed) {
            drawing.is_listed = true;
            self.drawing.push(id);
        }
    }

    /// Writes a part for each connection on the list. Others are served before the next.
    pub(super) fn go_on_drawing(&mut self) {
        for id in std::mem::take(&mut self.drawing) {
            self.draw_part(id);
        }
    }

    fn draw_part(&mut self, id: SlotId) {
        self.pass_by();
        let EventLoop { slots, worker, config, server, index, local, .. } = self;
        let token = slots.token(id);
        let Some(conn) = slots.get(id) else { return };
        let Some(mut drawing) = conn.session.drawing.take() else { return };
        let hard_bytes = conn.session.output_limit(&config.settings).hard_bytes;
        conn.output.set_hard_limit(hard_bytes);
        let mut reply = Reply { resp3: conn.session.resp3, out: &mut conn.output.buf };
        // What nobody takes need not be drawn.
        let is_wanted = !conn.peer.is_deaf();
        let written = if is_wanted { drawing.write_part(worker, &mut reply) } else { Ok(()) };
        if server.reply_gate.is_holding() {
            // A part shows what there is now.
            let (db, key) = drawing.key();
            conn.session.need.raise(server.reply_gate.seen_end_offset(worker, db, &worker.key(key)));
        }
        conn.end_if_over();
        let is_done = drawing.is_done() || !is_wanted;
        match written {
            // It stays on the list until they are there.
            Err(OpError::Fault(fault)) => {
                conn.session.drawing = Some(drawing);
                return server.load(*index, fault, Message::ValueLoaded(token));
            }
            // How many come has been announced.
            Err(error) => {
                log::warning(format!("A reply of random elements could not be written to its end: {error}"));
                return self.close(id);
            }
            Ok(()) if is_done => {
                conn.hold = Hold::Free;
                conn.hear(&mut local.heard, hard_bytes);
            }
            Ok(()) => {
                drawing.is_listed = false;
                conn.session.drawing = Some(drawing);
            }
        }
        publish_input(&server.clients, conn);
        if is_done {
            // What has arrived meanwhile may have been left in the socket.
            self.make_ready(id, true);
        }
        self.flush(id);
    }
}

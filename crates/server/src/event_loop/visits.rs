//! What a worker does now and then, connections included.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use stillframe_engine::chores::Hands;
use stillframe_engine::log;
use stillframe_engine::state::pause::PauseKind;
use stillframe_engine::state::session::Session;

use crate::event_loop::flow::publish_input;
use crate::event_loop::worker::EventLoop;
use crate::net::conn::Hold;
use crate::net::slots::SlotId;

/// Buffers of connections that have been quiet for so long are given back.
const IDLE_BUFFERS: Duration = Duration::from_secs(2);

/// Whether the client is silent because it listens.
fn waits_for_more(session: &Session) -> bool {
    session.is_monitor || !session.subscriptions.is_empty()
}

impl EventLoop {
    pub(super) fn run_chores(&mut self) {
        let EventLoop { worker, local, server, config, chores, .. } = self;
        if !chores.run(&mut Hands { worker, local, server, config }) {
            return;
        }
        if self.server.pause.kind(self.worker.now()) == PauseKind::None {
            self.release_paused();
        }
        self.visit_some_clients();
    }

    pub(super) fn go_on_evicting(&mut self) {
        let EventLoop { worker, local, server, config, .. } = self;
        Hands { worker, local, server, config }.go_on_evicting();
    }

    /// Timeouts, idle buffers, soft limits: of some clients in each round, of all within a second. All at once, 10,000 take
    /// longer than those who wait for a command should notice.
    fn visit_some_clients(&mut self) {
        let slot_count = self.slots.count();
        for _ in 0..slot_count.div_ceil(self.config.settings.hz) {
            let id = SlotId(self.visited_slot % slot_count);
            self.visited_slot = id.0 + 1;
            self.visit_client(id);
        }
    }

    fn visit_client(&mut self, id: SlotId) {
        let timeout = self.config.settings.timeout;
        let Some(conn) = self.slots.get(id) else { return };
        let active = conn.info.published.last_active_unix_ms.load(Relaxed);
        let idle = Duration::from_millis((self.worker.now() - active).max(0) as u64);
        let is_answered = conn.held_at.is_none();
        let is_idle = matches!(conn.hold, Hold::Free | Hold::Full) && is_answered;
        if !timeout.is_zero() && idle > timeout && is_idle && !waits_for_more(&conn.session) {
            log::verbose(format!("Closing idle client id={} addr={}", conn.info.id, conn.info.addr));
            return self.close(id);
        }
        if idle > IDLE_BUFFERS {
            conn.input.shrink();
            conn.output.shrink();
            publish_input(&self.server.clients, conn);
        }
        if conn.output.pending_bytes() > 0 {
            self.flush(id);
        }
    }
}

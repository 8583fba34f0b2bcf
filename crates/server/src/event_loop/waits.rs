//! Clients that wait for a key: their replies, and those whose time is over.

use stillframe_engine::dispatch::waiting;
use stillframe_engine::state::local::Delivery;
use stillframe_engine::state::waiting::ReadyKey;

use crate::event_loop::lend::lend;
use crate::event_loop::worker::EventLoop;

impl EventLoop {
    /// Hands out the replies of clients of this worker that have been served.
    pub(super) fn deliver(&mut self) {
        if !self.local.served.is_empty() {
            waiting::note_served(&self.server, &mut self.local, self.registry);
        }
        if self.local.deliveries.is_empty() {
            return;
        }
        for Delivery { token, reply, bytes } in std::mem::take(&mut self.local.deliveries) {
            self.unblock(token, reply, bytes);
        }
    }

    /// Answers those whose time is over.
    pub(super) fn end_waits(&mut self) {
        while let Some(waiter) = waiting::next_over(&self.server, &mut self.local) {
            self.unblock(waiter.client.token(), waiter.reply, waiting::time_is_over(&waiter).into());
        }
    }

    /// A client waits no longer, or has gone.
    pub(super) fn forget_wait(&mut self, client: u64) {
        waiting::forget(&self.server, &mut self.local, client);
    }

    /// Serves those who wait for a key whose pages were missing.
    pub(super) fn serve_waiting(&mut self, key: ReadyKey) {
        // It may have to wait for another worker's script.
        lend(self);
        let EventLoop { worker, server, config, local, registry, .. } = self;
        waiting::serve_ready_key(worker, server, config, local, registry, key);
        self.end_lending();
        self.deliver();
    }
}

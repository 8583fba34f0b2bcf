//! Clients that wait for a key: their replies, and those whose time is over.

use std::time::Instant;

use stillframe_engine::dispatch::ctx::Ctx;
use stillframe_engine::dispatch::waiting::{note_served, serve_alone, time_is_over};
use stillframe_engine::protocol::reply::{Reply, ReplyBuf};
use stillframe_engine::state::local::Delivery;
use stillframe_engine::state::session::Session;
use stillframe_engine::state::waiting::ReadyKey;

use crate::event_loop::worker::EventLoop;

impl EventLoop {
    /// Hands out the replies of clients of this worker that have been served.
    pub(super) fn deliver(&mut self) {
        if !self.local.served.is_empty() {
            note_served(&self.server, &mut self.local, self.registry);
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
        while let Some(first) = self.local.deadlines.first_entry() {
            if first.key().0 > Instant::now() {
                return;
            }
            let waiter = first.remove();
            // If somebody else has answered it, that reply is on its way.
            if self.server.waiters.end(&waiter) {
                self.unblock(waiter.client.token(), waiter.reply, time_is_over(&waiter).into());
            }
        }
    }

    /// A client waits no longer, or has gone.
    pub(super) fn forget_wait(&mut self, client: u64) {
        let Some(waiter) = self.server.waiters.forget(client) else { return };
        self.server.waiters.end(&waiter);
        if let Some(deadline) = waiter.deadline {
            self.local.deadlines.remove(&(deadline, waiter.arrival));
        }
    }

    /// Serves those who wait for a key whose pages were missing.
    pub(super) fn serve_waiting(&mut self, key: ReadyKey) {
        let Some(waiter) = self.server.waiters.next(&key, 0) else { return };
        let EventLoop { worker, server, stats, config, local, registry, .. } = self;
        worker.quiesce();
        let mut out = ReplyBuf::default();
        let mut ctx = Ctx {
            worker,
            client: &mut Session::new(waiter.client.id, true),
            reply: Reply { resp3: false, out: &mut out },
            server,
            stats,
            peer: &waiter.client,
            config,
            local,
            registry,
        };
        serve_alone(&mut ctx, key);
        self.deliver();
    }
}

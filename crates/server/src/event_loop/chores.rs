//! What a worker does now and then.

use std::time::{Duration, Instant};

use stillframe_store::DbId;
use stillframe_engine::eviction::Room;
use stillframe_engine::state::heap::resident_bytes;
use stillframe_engine::state::pause::PauseKind;
use stillframe_engine::state::session::Session;
use stillframe_engine::log;

use crate::event_loop::cron::Rates;
use crate::event_loop::flow::publish_input;
use crate::event_loop::worker::EventLoop;
use crate::net::conn::Hold;
use crate::net::slots::SlotId;
use std::sync::atomic::Ordering::Relaxed;

/// Buffers of connections that have been quiet for so long are given back.
const IDLE_BUFFERS: Duration = Duration::from_secs(2);

/// Whether the client is silent because it listens.
fn waits_for_more(session: &Session) -> bool {
    session.is_monitor || !session.subscriptions.is_empty()
}

/// Keys of a database that are looked at in one second for `avg_ttl`.
const SAMPLED_KEYS: usize = 100;

impl EventLoop {
    pub(super) fn run_cron(&mut self) {
        let now = Instant::now();
        if now < self.cron.next {
            return;
        }
        let period = Duration::from_secs(1) / self.config.settings.hz;
        self.cron.next = now + period;
        if self.server.is_cron_paused.load(Relaxed) {
            return;
        }
        self.cron.rounds += 1;
        if self.cron.is_first {
            self.measure_rates(now);
        }
        if self.cron.is_first && !self.server.loading.is_on() {
            self.expire(period);
            self.server.saver.check_save_points(self.server.change_count(), &self.config.settings);
        }
        self.local.count_expired(&self.worker);
        if self.cron.is_first {
            self.server.store.accesses().settle();
            // What was loaded, or comes back into memory after a restart, may be too much.
            self.local.is_evicting |= self.config.settings.evicts_keys();
        }
        if self.server.pause.kind(self.worker.now()) == PauseKind::None {
            self.release_paused();
        }
        self.visit_some_clients();
        if self.cron.rounds % u64::from(self.config.settings.hz) == 0 {
            if self.cron.is_first && !self.server.loading.is_on() {
                self.sample_deadlines();
            }
            self.report_damage();
            if self.cron.is_first {
                self.server.store.settle_memory();
                self.settle_heap();
            }
        }
    }

    /// Gives memory back that clients and commands have freed.
    fn settle_heap(&self) {
        let stats = self.server.store.pool().stats();
        let page_bytes = stats.snapshot_resident_bytes + stats.free_frame_bytes;
        let known_bytes = page_bytes + self.server.used_memory_bytes();
        self.server.heap.settle(resident_bytes(), known_bytes);
    }

    /// Evicts keys for a bounded time if a command, or `CONFIG SET`, has left memory over its bound.
    pub(super) fn go_on_evicting(&mut self) {
        if self.local.is_evicting {
            let room = self.server.make_room(&mut self.worker, &self.config.settings);
            self.local.is_evicting = room == Room::Freeing;
        }
    }

    /// Tells the log of pages that the warm-up or a command could not read.
    fn report_damage(&mut self) {
        if !self.cron.is_first || !self.server.store.pool().residency().has_damage() {
            return;
        }
        self.server.store.damage().take_notes().iter().for_each(log::warning);
        let damaged = self.server.store.damage().pages();
        if damaged.page_count > self.cron.logged_damage {
            damaged.examples.iter().for_each(log::warning);
            log::warning(format!(
                "{} pages of the page file cannot be read: their keys answer with an error. See 'page_file_damaged_pages' \
                 in INFO, and 'stillframe-server --salvage'",
                damaged.page_count
            ));
        }
        self.cron.logged_damage = damaged.page_count;
    }

    /// Removes expired keys for at most a quarter of the time.
    fn expire(&mut self, period: Duration) {
        let is_paused = self.server.pause.kind(self.worker.now()) != PauseKind::None;
        if self.server.active_expire.load(Relaxed) && !is_paused {
            // A fault or damaged page is met again by the command that needs the page.
            let since = Instant::now();
            let _ = self.worker.upkeep().expire_cycle(period / 4, |_, _| {});
            self.stats.expire_nanos.add(since.elapsed().as_nanos() as u64);
        }
    }

    /// Once a second: estimates `avg_ttl` from some keys of each database, those of former seconds weighing more.
    fn sample_deadlines(&mut self) {
        let now = self.worker.now();
        for (number, average) in self.server.average_ttl_ms.iter().enumerate() {
            let db = DbId(number as u32);
            let stats = self.server.store.db_stats(db);
            if stats.deadline_count == 0 {
                average.store(0, Relaxed);
                continue;
            }
            let (mut sum_ms, mut count) = (0, 0);
            let start = if stats.key_count <= SAMPLED_KEYS as u64 { 0 } else { fastrand::u64(1..1 << 52) };
            let sampled = self.worker.database(db).scan(start, SAMPLED_KEYS, |_, entry| {
                if let Some(deadline) = entry.deadline {
                    sum_ms += deadline.saturating_sub(now).max(0);
                    count += 1;
                }
            });
            // Pages that are not in memory yet are not worth waiting for.
            if sampled.is_ok() && count > 0 {
                let (old, new) = (average.load(Relaxed), sum_ms / count);
                average.store(if old == 0 { new } else { old / 50 * 49 + new / 50 }, Relaxed);
            }
        }
    }

    fn measure_rates(&mut self, now: Instant) {
        let server = &self.server;
        let totals = Rates {
            at: Some(now),
            commands: server.sum(|s| s.commands.get()),
            input_bytes: server.sum(|s| s.input_bytes.get()),
            output_bytes: server.sum(|s| s.output_bytes.get()),
        };
        let last = std::mem::replace(&mut self.cron.rates, totals);
        let Some(at) = last.at else { return };
        let seconds = now.duration_since(at).as_secs_f64().max(1e-3);
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds) as u64;
        let present = &self.cron.rates;
        server.stats.ops_per_second.store(rate(present.commands, last.commands), Relaxed);
        server.stats.input_bytes_per_second.store(rate(present.input_bytes, last.input_bytes), Relaxed);
        server.stats.output_bytes_per_second.store(rate(present.output_bytes, last.output_bytes), Relaxed);
        server.stats.used_memory_peak_bytes.fetch_max(server.used_memory_bytes(), Relaxed);
    }

    /// Timeouts, idle buffers, soft limits: of some clients in each round, of all within a second. All at once, 10,000 take
    /// longer than those who wait for a command should notice.
    fn visit_some_clients(&mut self) {
        let slot_count = self.slots.count();
        for _ in 0..slot_count.div_ceil(self.config.settings.hz) {
            let id = SlotId(self.cron.visited_slot % slot_count);
            self.cron.visited_slot = id.0 + 1;
            self.visit_client(id);
        }
    }

    fn visit_client(&mut self, id: SlotId) {
        let timeout = self.config.settings.timeout;
        let Some(conn) = self.slots.get(id) else { return };
        let active = conn.info.published.last_active_unix_ms.load(Relaxed);
        let idle = Duration::from_millis((self.worker.now() - active).max(0) as u64);
        let is_idle = matches!(conn.hold, Hold::Free | Hold::Full);
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

//! What is done beside commands: by a worker now and then, and by threads of their own.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stillframe_store::{sched, DbId, Worker};

use crate::config::Config;
use crate::eviction::MemoryRoom;
use crate::log;
use crate::logging;
use crate::persistence;
use crate::scrub;
use crate::server::Server;
use crate::state::heap::resident_bytes;
use crate::state::local::Local;
use crate::state::mailbox::Message;
use crate::state::pause::PauseKind;

/// Keys of a database that are looked at in one second for `avg_ttl`.
const SAMPLED_KEYS: usize = 100;

/// When a worker does what it does now and then, and what it remembers of the last time.
pub struct Chores {
    next: Instant,
    /// One worker does what is to be done once for all.
    is_first: bool,
    rounds: u64,
    rates: Rates,
    /// Damaged pages that the log tells of.
    logged_damage: usize,
}

/// Totals at the last measurement, for the `instantaneous_` figures.
#[derive(Default)]
struct Rates {
    at: Option<Instant>,
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
}

/// What a worker has at hand between two commands.
pub struct Hands<'a> {
    pub worker: &'a mut Worker,
    pub local: &'a mut Local,
    pub server: &'a Server,
    pub config: &'a Config,
}

impl Hands<'_> {
    /// Evicts keys for a bounded time if a command, or `CONFIG SET`, has left memory over its bound.
    pub fn go_on_evicting(&mut self) {
        if self.local.is_evicting {
            let room = self.server.make_room(self.worker, &self.config.settings);
            self.local.is_evicting = room == MemoryRoom::Freeing;
            self.pass_ready_on();
        }
    }

    /// Removes expired keys for at most a quarter of the time.
    fn expire(&mut self, period: Duration) {
        let is_paused = self.server.pause.kind(self.worker.now()) != PauseKind::None;
        if self.server.active_expire.load(Relaxed) && !is_paused {
            // A fault or damaged page is met again by the command that needs the page.
            let since = Instant::now();
            let _ = self.worker.upkeep().expire_cycle(period / 4, |_, _| {});
            self.local.stats.expire_nanos.add(since.elapsed().as_nanos() as u64);
            self.pass_ready_on();
        }
    }

    /// Clients that wait for a key that has gone without a command are told in a step of its own.
    fn pass_ready_on(&mut self) {
        let worker = self.worker.steps().worker();
        while let Some(key) = self.server.waiters.take_ready(worker) {
            self.server.workers[self.local.worker].mailbox.send(Message::KeyReady(key));
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
}

impl Chores {
    pub fn new(worker: usize) -> Chores {
        Chores {
            next: Instant::now(),
            is_first: worker == 0,
            rounds: 0,
            rates: Rates::default(),
            logged_damage: 0,
        }
    }

    /// Time to the next round.
    pub fn time_left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Does a round if one is due, and says whether that was so: what else is to be done `hz` times a second is up to the caller.
    pub fn run(&mut self, at: &mut Hands<'_>) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        let config = at.config;
        let settings = &config.settings;
        let period = Duration::from_secs(1) / settings.hz;
        self.next = now + period;
        if at.server.is_cron_paused.load(Relaxed) {
            return false;
        }
        self.rounds += 1;
        let is_loading = at.server.loading.is_on();
        if self.is_first {
            self.measure_rates(at.server, now);
        }
        if self.is_first && !is_loading {
            at.expire(period);
            at.server.saver.check_save_points(at.server.change_count(), settings);
            logging::check_growth(at.server, settings);
        }
        at.local.count_expired(at.worker);
        if self.is_first {
            logging::answer_waiters(at.server);
            at.server.store.accesses().settle();
            // What was loaded, or comes back into memory after a restart, may be too much.
            at.local.is_evicting |= settings.evicts_keys();
        }
        if self.rounds % u64::from(settings.hz) == 0 && self.is_first {
            if !is_loading {
                at.sample_deadlines();
            }
            self.report_damage(at.server);
            at.server.store.settle_memory();
            settle_heap(at.server);
        }
        true
    }

    /// Tells the log of pages that the warm-up or a command could not read.
    fn report_damage(&mut self, server: &Server) {
        if !server.store.pool().residency().has_damage() {
            return;
        }
        server.store.damage().take_notes().iter().for_each(log::warning);
        let damaged = server.store.damage().pages();
        if damaged.page_count > self.logged_damage {
            damaged.examples.iter().for_each(log::warning);
            log::warning(format!(
                "{} pages of the page file cannot be read: their keys answer with an error. See 'page_file_damaged_pages' \
                 in INFO, and 'stillframe-server --salvage'",
                damaged.page_count
            ));
        }
        self.logged_damage = damaged.page_count;
    }

    fn measure_rates(&mut self, server: &Server, now: Instant) {
        let totals = Rates {
            at: Some(now),
            commands: server.sum(|s| s.commands.get()),
            input_bytes: server.sum(|s| s.input_bytes.get()),
            output_bytes: server.sum(|s| s.output_bytes.get()),
        };
        let last = std::mem::replace(&mut self.rates, totals);
        let Some(at) = last.at else { return };
        let seconds = now.duration_since(at).as_secs_f64().max(1e-3);
        let rate = |now: u64, then: u64| (now.saturating_sub(then) as f64 / seconds) as u64;
        let present = &self.rates;
        server.stats.ops_per_second.store(rate(present.commands, last.commands), Relaxed);
        server.stats.input_bytes_per_second.store(rate(present.input_bytes, last.input_bytes), Relaxed);
        server.stats.output_bytes_per_second.store(rate(present.output_bytes, last.output_bytes), Relaxed);
        server.stats.used_memory_peak_bytes.fetch_max(server.used_memory_bytes(), Relaxed);
    }
}

/// Gives memory back that clients and commands have freed.
fn settle_heap(server: &Server) {
    let stats = server.store.pool().stats();
    let page_bytes = stats.snapshot_resident_bytes + stats.free_frame_bytes;
    let known_bytes = page_bytes + server.used_memory_bytes();
    server.heap.settle(resident_bytes(), known_bytes);
}

/// Starts the threads beside the workers: the saver and the scrubber. [`Server::stop`] ends them.
///
/// # Errors
/// The system has no thread left.
pub fn start_threads(server: &Arc<Server>) -> std::io::Result<[JoinHandle<()>; 2]> {
    let host = server.clone();
    let saver = std::thread::Builder::new().name("saver".into()).spawn(move || {
        sched::enroll("saver");
        persistence::run(&host);
    })?;
    let host = server.clone();
    let scrubber = std::thread::Builder::new().name("scrubber".into()).spawn(move || {
        sched::enroll("scrubber");
        scrub::run(&*host, &host.scrubber);
    })?;
    Ok([saver, scrubber])
}

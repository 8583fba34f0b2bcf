//! The client's ticks, the cuts between them, and the saver beside.
//!
//! ```text
//!   client:  tick ── is a cut due? ── cut ──▶ updates ── idle until the next is due; it draws that one's updates first
//!   saver:        waits ── access ──▶ durable ── waits
//! ```
//!
//! A tick's latency runs from the time when it was due: a cut, and a tick before it that was late, are part of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Mutex;
use std::time::Duration;

use super::case::{Outcome, Plan, Ticks, TICK_NS};
use super::draw::{Draws, Update};
use super::engine::Engine;
use super::memory::copies_of_thread;
use crate::clock::{now_ns, seconds_to_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::pin;
use crate::stats::percentile;

/// Ticks before the first cut: caches and clocks get going.
const LEAD_IN_TICKS: u64 = 20;
/// Ticks between the end of a checkpoint and the next cut.
const REST_TICKS: u64 = 5;
/// So long before a tick is due the client wakes up and spins.
const SPIN_NS: u64 = 100_000;
/// A checkpoint that has not ended this long after the last was to begin never will.
const PATIENCE_NS: u64 = 120 * NS_PER_S;

fn wait_until(due_ns: u64) {
    let idle_ns = due_ns.saturating_sub(now_ns() + SPIN_NS);
    std::thread::sleep(Duration::from_nanos(idle_ns));
    while now_ns() < due_ns {
        std::hint::spin_loop();
    }
}

/// What the client tells the saver at a cut.
struct Cut {
    began_ns: u64,
    /// The rows, where the image is to be held against them.
    content: Option<Vec<u8>>,
}

/// What both see.
struct Shared {
    is_idle: AtomicBool,
    stop: AtomicBool,
    checkpoints: Mutex<Checkpoints>,
}

#[derive(Default)]
struct Checkpoints {
    ns: Vec<u64>,
    verified: u32,
    failure: Option<BenchError>,
}

impl Shared {
    fn checkpoints(&self) -> std::sync::MutexGuard<'_, Checkpoints> {
        self.checkpoints.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn fail(&self, error: BenchError) {
        self.checkpoints().failure.get_or_insert(error);
        self.stop.store(true, Ordering::SeqCst);
    }

    fn save<E: Engine>(&self, engine: &E, cuts: &Receiver<Cut>) -> Result<()> {
        while let Ok(cut) = cuts.recv() {
            engine.access()?;
            self.checkpoints().ns.push(now_ns() - cut.began_ns);
            if let Some(content) = cut.content {
                if content != engine.image()? {
                    return Err(BenchError::Failed("an image differs from the rows at its cut".to_owned()));
                }
                self.checkpoints().verified += 1;
            }
            self.is_idle.store(true, Ordering::Release);
        }
        Ok(())
    }
}

fn pinned(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    pin::pin_current_thread(cpus)
}

/// Runs the ticks of a plan.
///
/// # Errors
/// A cut or an image failed, or, where that is looked at, an image is not as the rows were.
pub fn drive<E: Engine>(engine: &E, plan: &Plan, ticks: &Ticks) -> Result<Outcome> {
    let shared = Shared {
        is_idle: AtomicBool::new(true),
        stop: AtomicBool::new(false),
        checkpoints: Mutex::default(),
    };
    let (sender, receiver) = channel();
    let client = std::thread::scope(|scope| {
        let shared = &shared;
        let save = move || pinned(&plan.saver_cpus).and_then(|()| shared.save(engine, &receiver));
        let saver = scope.spawn(move || save().unwrap_or_else(|error| shared.fail(error)));
        if E::HAS_SERVER {
            let serve = move || pinned(&plan.saver_cpus).and_then(|()| engine.serve(&shared.stop));
            scope.spawn(move || serve().unwrap_or_else(|error| shared.fail(error)));
        }
        let run = || -> Result<Client> {
            pinned(&plan.client_cpus)?;
            let mut client = Client::new(plan, ticks)?;
            match ticks.is_each_timed {
                true => client.run::<E, true>(engine, shared, |cut| drop(sender.send(cut)))?,
                false => client.run::<E, false>(engine, shared, |cut| drop(sender.send(cut)))?,
            }
            Ok(client)
        };
        let client = run();
        drop(sender);
        // Whatever the saver is at may need its writers served: the other thread ends after it.
        while !saver.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.stop.store(true, Ordering::SeqCst);
        client
    });
    let mut checkpoints = shared.checkpoints();
    match checkpoints.failure.take() {
        Some(error) => Err(error),
        None => Ok(client?.outcome(&checkpoints)),
    }
}

struct Client<'p> {
    ticks: &'p Ticks,
    draws: Draws,
    updates: Vec<Update>,
    updates_per_tick: u32,
    value: u64,
    /// (due, latency, update stage) of each tick since the first cut, in ns.
    measured: Vec<(u64, u64, u64)>,
    cut_ns: Vec<u64>,
    first_copies: u64,
    last_copies: u64,
    longest_update_ns: u64,
}

impl<'p> Client<'p> {
    fn new(plan: &Plan, ticks: &'p Ticks) -> Result<Client<'p>> {
        let case = &plan.case;
        let mut draws = Draws::new(case.draw, case.row_count(), case.row_len, plan.seed)?;
        let mut updates = Vec::with_capacity(case.updates_per_tick as usize);
        draws.fill(&mut updates, case.updates_per_tick);
        Ok(Client {
            ticks,
            draws,
            updates,
            updates_per_tick: case.updates_per_tick,
            value: 1,
            measured: Vec::with_capacity(1 << 16),
            cut_ns: Vec::new(),
            first_copies: 0,
            last_copies: 0,
            longest_update_ns: 0,
        })
    }

    fn run<E: Engine, const EACH: bool>(
        &mut self,
        engine: &E,
        shared: &Shared,
        tell: impl Fn(Cut),
    ) -> Result<()> {
        let start_ns = now_ns() + TICK_NS;
        let last_begin_ns = start_ns + seconds_to_ns(self.ticks.seconds);
        let mut next_cut_tick = LEAD_IN_TICKS;
        let mut was_idle = true;
        for tick in 0.. {
            let due_ns = start_ns + tick * TICK_NS;
            wait_until(due_ns);
            let begin_ns = now_ns();
            let is_idle = shared.is_idle.load(Ordering::Acquire);
            if is_idle && !was_idle {
                next_cut_tick = tick + REST_TICKS;
                self.last_copies = copies_of_thread();
            }
            was_idle = is_idle;
            let is_over = self.cut_ns.len() >= self.ticks.checkpoints as usize
                || (!self.cut_ns.is_empty() && begin_ns > last_begin_ns);
            if shared.stop.load(Ordering::Relaxed) || (is_idle && is_over) {
                break;
            }
            if begin_ns > last_begin_ns + PATIENCE_NS {
                return Err(BenchError::Failed("a checkpoint did not end within two minutes".to_owned()));
            }
            if is_idle && tick >= next_cut_tick {
                was_idle = false;
                self.cut(engine, shared, &tell)?;
            }
            self.update::<E, EACH>(engine);
            let end_ns = now_ns();
            if !self.cut_ns.is_empty() {
                self.measured.push((due_ns, end_ns - due_ns, end_ns - begin_ns));
            }
            self.draws.fill(&mut self.updates, self.updates_per_tick);
        }
        Ok(())
    }

    fn cut<E: Engine>(&mut self, engine: &E, shared: &Shared, tell: impl Fn(Cut)) -> Result<()> {
        if self.cut_ns.is_empty() {
            self.first_copies = copies_of_thread();
        }
        shared.is_idle.store(false, Ordering::Relaxed);
        let began_ns = now_ns();
        engine.cut()?;
        self.cut_ns.push(now_ns() - began_ns);
        let content = self.ticks.is_verified.then(|| engine.content());
        tell(Cut { began_ns, content });
        Ok(())
    }

    #[inline]
    fn update<E: Engine, const EACH: bool>(&mut self, engine: &E) {
        let mut before_ns = if EACH { now_ns() } else { 0 };
        for update in &self.updates {
            engine.write(update.row, update.word, self.value);
            self.value += 1;
            if EACH {
                let after_ns = now_ns();
                self.longest_update_ns = self.longest_update_ns.max(after_ns - before_ns);
                before_ns = after_ns;
            }
        }
    }

    fn outcome(self, checkpoints: &Checkpoints) -> Outcome {
        let mut latencies: Vec<u64> = self.measured.iter().map(|tick| tick.1).collect();
        let count = latencies.len().max(1) as f64;
        let mean = |of: fn(&(u64, u64, u64)) -> u64| {
            self.measured.iter().map(|tick| of(tick) as f64).sum::<f64>() / count
        };
        let first_ns = self.measured.first().map_or(0, |tick| tick.0);
        let trace = self.measured.iter().filter(|_| self.ticks.is_traced);
        Outcome {
            tick_count: latencies.len(),
            mean_ns: mean(|tick| tick.1),
            p50_ns: percentile(&mut latencies, 50.0),
            p99_ns: percentile(&mut latencies, 99.0),
            p999_ns: percentile(&mut latencies, 99.9),
            p9999_ns: percentile(&mut latencies, 99.99),
            max_ns: percentile(&mut latencies, 100.0),
            stage_mean_ns: mean(|tick| tick.2),
            stage_max_ns: self.measured.iter().map(|tick| tick.2).max().unwrap_or(0),
            cut_ns: self.cut_ns,
            checkpoint_ns: checkpoints.ns.clone(),
            client_copies: self.last_copies - self.first_copies,
            longest_update_ns: self.longest_update_ns,
            update_count: self.value - 1,
            verified_images: checkpoints.verified,
            trace: trace.map(|tick| (tick.0 - first_ns, tick.1)).collect(),
            ..Outcome::default()
        }
    }
}

/// Updates, four cuts and their images by one thread and without a clock: half of a period's updates before the image is made
/// and half after, so that its writes meet what has been saved and what has not.
///
/// # Errors
/// As of [`drive`].
pub fn count<E: Engine>(engine: &E, plan: &Plan, tick_count: u32) -> Result<Outcome> {
    const PERIODS: u32 = 4;
    let case = &plan.case;
    let mut draws = Draws::new(case.draw, case.row_count(), case.row_len, plan.seed)?;
    let mut updates = Vec::new();
    let mut value = 0;
    for half in 0..2 * PERIODS {
        match half % 2 {
            0 => engine.cut()?,
            _ => engine.access()?,
        }
        for _ in 0..tick_count / (2 * PERIODS) {
            draws.fill(&mut updates, case.updates_per_tick);
            for update in &updates {
                value += 1;
                engine.write(update.row, update.word, value);
            }
        }
    }
    Ok(Outcome { update_count: value, ..Outcome::default() })
}

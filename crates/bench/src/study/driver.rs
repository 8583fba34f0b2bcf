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

use super::case::{Outcome, Plan, Ticks, Writes, TICK_NS};
use super::draw::{Draws, Update};
use super::engine::Engine;
use super::memory::copies_of_thread;
use crate::clock::{now_ns, seconds_to_ns, NS_PER_S};
use crate::error::{BenchError, Result};
use crate::pin;
use crate::stats::percentile;
use crate::stops::{Stops, Watch};

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
    let watch = match ticks.is_verified {
        // Nothing is measured.
        true => Watch::none(),
        false => Watch::begin(&plan.client_cpus),
    };
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
            let tell = |cut| drop(sender.send(cut));
            match (plan.case.writes, ticks.is_each_timed) {
                (Writes::Part, true) => client.run::<E, false, true>(engine, shared, tell)?,
                (Writes::Part, false) => client.run::<E, false, false>(engine, shared, tell)?,
                (Writes::Row, true) => client.run::<E, true, true>(engine, shared, tell)?,
                (Writes::Row, false) => client.run::<E, true, false>(engine, shared, tell)?,
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
    let stops = watch.end();
    let mut checkpoints = shared.checkpoints();
    match checkpoints.failure.take() {
        Some(error) => Err(error),
        None => Ok(client?.outcome(&checkpoints, &stops)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tick {
    due_ns: u64,
    /// From then to the end of its updates.
    latency_ns: u64,
    /// Of its updates alone.
    stage_ns: u64,
}

/// The ticks that say something, and those that do not: in which the machine stood still, or which had to wait for that longer
/// than for anything else.
fn apart(ticks: Vec<Tick>, stops: &Stops) -> (Vec<Tick>, Vec<Tick>) {
    // Of the ticks that were late one after the other.
    let (mut last_end_ns, mut stopped_ns) = (0, 0);
    ticks.into_iter().partition(|tick| {
        let end_ns = tick.due_ns + tick.latency_ns;
        let waited_ns = tick.latency_ns - tick.stage_ns;
        if tick.due_ns >= last_end_ns {
            stopped_ns = 0;
        }
        let own_ns = stops.within_ns(tick.due_ns.max(last_end_ns), end_ns);
        stopped_ns += own_ns;
        last_end_ns = end_ns;
        own_ns == 0 && 2 * stopped_ns <= waited_ns
    })
}

struct Client<'p> {
    ticks: &'p Ticks,
    draws: Draws,
    updates: Vec<Update>,
    updates_per_tick: u32,
    value: u64,
    /// Each since the first cut.
    measured: Vec<Tick>,
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

    fn run<E: Engine, const WHOLE: bool, const EACH: bool>(
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
            self.update::<E, WHOLE, EACH>(engine);
            let end_ns = now_ns();
            if !self.cut_ns.is_empty() {
                self.measured.push(Tick { due_ns, latency_ns: end_ns - due_ns, stage_ns: end_ns - begin_ns });
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
    fn update<E: Engine, const WHOLE: bool, const EACH: bool>(&mut self, engine: &E) {
        let mut before_ns = if EACH { now_ns() } else { 0 };
        for update in &self.updates {
            engine.write::<WHOLE>(*update, self.value);
            self.value += 1;
            if EACH {
                let after_ns = now_ns();
                self.longest_update_ns = self.longest_update_ns.max(after_ns - before_ns);
                before_ns = after_ns;
            }
        }
    }

    fn outcome(self, checkpoints: &Checkpoints, stops: &Stops) -> Outcome {
        let first_ns = self.measured.first().map_or(0, |tick| tick.due_ns);
        let (measured, stopped) = apart(self.measured, stops);
        let mut latencies: Vec<u64> = measured.iter().map(|tick| tick.latency_ns).collect();
        let count = latencies.len().max(1) as f64;
        let mean = |of: fn(&Tick) -> u64| measured.iter().map(|tick| of(tick) as f64).sum::<f64>() / count;
        let trace = |ticks: &[Tick]| {
            let traced = ticks.iter().filter(|_| self.ticks.is_traced);
            traced.map(|tick| (tick.due_ns - first_ns, tick.latency_ns)).collect()
        };
        Outcome {
            stopped_tick_count: stopped.len(),
            stop_count: stops.count(),
            stopped_ns: stops.total_ns(),
            tick_count: latencies.len(),
            mean_ns: mean(|tick| tick.latency_ns),
            p50_ns: percentile(&mut latencies, 50.0),
            p99_ns: percentile(&mut latencies, 99.0),
            p999_ns: percentile(&mut latencies, 99.9),
            p9999_ns: percentile(&mut latencies, 99.99),
            max_ns: percentile(&mut latencies, 100.0),
            stage_mean_ns: mean(|tick| tick.stage_ns),
            stage_max_ns: measured.iter().map(|tick| tick.stage_ns).max().unwrap_or(0),
            cut_ns: self.cut_ns,
            checkpoint_ns: checkpoints.ns.clone(),
            client_copies: self.last_copies - self.first_copies,
            longest_update_ns: self.longest_update_ns,
            update_count: self.value - 1,
            verified_images: checkpoints.verified,
            trace: trace(&measured),
            stopped_trace: trace(&stopped),
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
                match case.writes {
                    Writes::Part => engine.write::<false>(*update, value),
                    Writes::Row => engine.write::<true>(*update, value),
                }
            }
        }
    }
    Ok(Outcome { update_count: value, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stops::Stop;

    #[test]
    fn ticks_of_stops_and_those_that_wait_for_them_are_apart() {
        let tick = |due_ns, latency_ns| Tick { due_ns, latency_ns, stage_ns: 3 };
        // The second was stopped, the third is late for that, the fifth for its cut alone.
        let of_stop = [tick(0, 3), tick(10, 25), tick(20, 18), tick(40, 3), tick(50, 30)];
        // A long cut, a stop in what is late for it, and a tick that waits for the cut more than for the stop.
        let of_cut = [tick(100, 90), tick(110, 93), tick(120, 86), tick(130, 79)];
        let ticks = [&of_stop[..], &of_cut].concat();
        let stops = [(12, 33), (194, 202)].map(|(from_ns, to_ns)| Stop { from_ns, to_ns });
        let (kept, left_out) = apart(ticks, &Stops::of(stops.to_vec()));
        assert_eq!(kept, [of_stop[0], of_stop[3], of_stop[4], of_cut[0], of_cut[2], of_cut[3]]);
        assert_eq!(left_out, [of_stop[1], of_stop[2], of_cut[1]]);
    }
}

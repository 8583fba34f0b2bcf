//! Terminals without think times: each thread does one transaction after the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::generate::constants;
use super::random::Constants;
use super::schema::Scale;
use super::transactions::{Drawn, Kind, Terminal};
use crate::error::{BenchError, Result};
use crate::kv::{KeyValue, Session, Verdict};
use crate::ticks::Ticks;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Mix {
    pub scale: Scale,
    pub thread_count: usize,
    pub seconds: f64,
    /// Of the load.
    pub seed: u64,
    /// Tells runs over the same data apart.
    pub number: u32,
}

/// What was done. Transactions that were to be rolled back, and were, count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MixReport {
    pub per_second: f64,
    /// Of each full second.
    pub over_time: Vec<u64>,
    pub kinds: Vec<KindReport>,
    pub retry_count: u64,
}

impl MixReport {
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }
}

/// Transactions of one kind, with their times from begin to end, conflicts included.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KindReport {
    pub kind: Kind,
    pub count: u64,
    pub rollback_count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// Longer ones count as this.
const LATENCY_MAX_NS: u64 = 600 * 1_000_000_000;

struct Tally {
    latency: Histogram<u64>,
    rollback_count: u64,
}

impl Tally {
    fn new() -> Result<Tally> {
        let latency = Histogram::new_with_max(LATENCY_MAX_NS, 3)
            .map_err(|error| BenchError::failed("make a histogram", error))?;
        Ok(Tally { latency, rollback_count: 0 })
    }

    fn report(&self, kind: Kind) -> KindReport {
        KindReport {
            kind,
            count: self.latency.len(),
            rollback_count: self.rollback_count,
            p50_ns: self.latency.value_at_percentile(50.0),
            p99_ns: self.latency.value_at_percentile(99.0),
            max_ns: self.latency.max(),
        }
    }
}

/// What one thread did.
struct Work {
    tallies: BTreeMap<&'static str, Tally>,
    retry_count: u64,
    per_second: f64,
}

/// # Errors
/// Those of the store; a row is missing that has to be there.
pub fn run(store: &dyn KeyValue, mix: Mix) -> Result<MixReport> {
    let mut rng = Rng::with_seed(mix.seed ^ u64::from(mix.number) << 32);
    let constants = Constants::of_run(&mut rng, constants(mix.seed));
    let seeds: Vec<u64> = (0..mix.thread_count).map(|_| rng.u64(..)).collect();
    let ticks = Ticks::new(Duration::from_secs_f64(mix.seconds));
    let works = std::thread::scope(|scope| {
        let start = |(thread, seed): (usize, u64)| {
            let terminal = Terminal {
                rng: Rng::with_seed(seed),
                scale: mix.scale,
                constants,
                session: mix.number * 1000 + thread as u32 + 1,
                payment_count: 0,
            };
            let ticks = &ticks;
            scope.spawn(move || work(store, terminal, ticks))
        };
        let threads: Vec<_> = seeds.into_iter().enumerate().map(start).collect();
        let joined = |thread: std::thread::ScopedJoinHandle<'_, Result<Work>>| {
            thread.join().unwrap_or_else(|_| Err(BenchError::Failed("a terminal panicked".to_owned())))
        };
        threads.into_iter().map(joined).collect::<Result<Vec<Work>>>()
    })?;
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        let mut sum = Tally::new()?;
        for tally in works.iter().filter_map(|work| work.tallies.get(kind.name())) {
            let added = sum.latency.add(&tally.latency);
            added.map_err(|error| BenchError::failed("add up latencies", error))?;
            sum.rollback_count += tally.rollback_count;
        }
        kinds.push(sum.report(kind));
    }
    Ok(MixReport {
        per_second: works.iter().map(|work| work.per_second).sum(),
        over_time: ticks.over_time(),
        kinds,
        retry_count: works.iter().map(|work| work.retry_count).sum(),
    })
}

fn work(store: &dyn KeyValue, mut terminal: Terminal, ticks: &Ticks) -> Result<Work> {
    let mut session = store.session()?;
    let mut work = Work { tallies: BTreeMap::new(), retry_count: 0, per_second: 0.0 };
    for kind in Kind::ALL {
        work.tallies.insert(kind.name(), Tally::new()?);
    }
    work.per_second = ticks.fill(1, || {
        let kind = Kind::draw(&mut terminal.rng);
        let drawn = Drawn::new(kind, &mut terminal);
        perform(&mut *session, kind, &drawn, &mut work)?;
        Ok::<u64, BenchError>(1)
    })?;
    Ok(work)
}

fn perform(session: &mut dyn Session, kind: Kind, drawn: &Drawn, work: &mut Work) -> Result<()> {
    let begin = Instant::now();
    let done = session.transaction(kind.access(), &mut |txn| drawn.run(txn))?;
    let taken_ns = begin.elapsed().as_nanos() as u64;
    work.retry_count += done.retry_count;
    if let Some(tally) = work.tallies.get_mut(kind.name()) {
        tally.latency.saturating_record(taken_ns);
        tally.rollback_count += u64::from(done.verdict == Verdict::Rollback);
    }
    Ok(())
}

//! What evictions cost another thread: the second looks rows up that stay in memory, while the first walks through more rows
//! than there is memory for. Each has a processor of its own, the store's threads share the first one's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::lookups::{look_up_many, KEY_BYTES};
use super::plan::{Beside, DiskUse, Eviction, First};
use crate::error::{BenchError, Result};
use crate::kv::KeyValue;
use crate::pin;
use crate::ticks::Ticks;

/// Keys of a call of the second thread.
const HOT_BATCH: usize = 32;
/// Keys of a call of the first.
const WALK_BATCH: usize = 256;
/// Rows from one key of a walk to the next: about those of a page.
const WALK_STEP: u64 = 28;
/// Seconds between two looks of an idle thread.
const IDLE: Duration = Duration::from_millis(1);

/// A processor for each of the two threads, as far as there are two.
pub struct Cpus(Vec<usize>);

impl Cpus {
    pub fn apart() -> Cpus {
        Cpus(pin::allowed_cpus())
    }

    /// Moves this thread, and those that it starts from now on, to the first one's.
    ///
    /// # Errors
    /// The system refuses.
    pub fn first(&self) -> Result<()> {
        self.place(self.0.first())
    }

    fn second(&self) -> Result<()> {
        self.place(self.0.last())
    }

    fn place(&self, cpu: Option<&usize>) -> Result<()> {
        match (self.0.len() > 1, cpu) {
            (true, Some(&cpu)) => pin::pin_current_thread(&[cpu]),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// Those of the store; a row is missing or wrong.
pub fn run(store: &dyn KeyValue, work: &Eviction, cpus: &Cpus, progress: &str) -> Result<Vec<Beside>> {
    let mut measured: Vec<Beside> = Vec::new();
    for first in First::ALL {
        // Each row of the walk before was on a page of its own, which was read.
        let pace = measured.last().map_or(0.0, |before| before.first_per_second);
        beside(store, work, cpus, first, (pace, work.warm_up_s))?;
        let beside = beside(store, work, cpus, first, (pace, work.measured_s))?;
        eprintln!(
            "{progress}: the first thread {}: {:.0} rows/s, the second {:.0} lookups/s",
            first.name(),
            beside.first_per_second,
            beside.second_per_second
        );
        measured.push(beside);
    }
    Ok(measured)
}

/// For some seconds. Reads into buffers go at that pace, pages a second.
fn beside(
    store: &dyn KeyValue,
    work: &Eviction,
    cpus: &Cpus,
    first: First,
    (pace, seconds): (f64, f64),
) -> Result<Beside> {
    let (stop, walked) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, disk_before, begin) = (store.evictions(), DiskUse::now(), Instant::now());
    let second_per_second = std::thread::scope(|scope| {
        let walker = scope.spawn(|| {
            let walk = cpus.first().and_then(|()| walk(store, work, (first, pace), &stop, &walked));
            // The other one is not to go on alone until its time is over.
            stop.store(true, Ordering::Relaxed);
            walk
        });
        let second = scope.spawn(|| {
            let rate = cpus.second().and_then(|()| look_up_hot(store, work, seconds, &stop));
            stop.store(true, Ordering::Relaxed);
            rate
        });
        let panicked = |_| Err(BenchError::Failed("a measuring thread panicked".to_owned()));
        let rate = second.join().unwrap_or_else(panicked);
        walker.join().unwrap_or_else(|_| Err(BenchError::Failed("a walking thread panicked".to_owned())))?;
        rate
    })?;
    let measured_s = begin.elapsed().as_secs_f64();
    let evictions = store.evictions().zip(before).map(|(now, before)| now.since(before));
    Ok(Beside {
        first,
        first_per_second: walked.into_inner() as f64 / measured_s,
        second_per_second,
        evictions,
        measured_s,
        disk: DiskUse::now().since(disk_before),
    })
}

/// A row of each page, round and round. The second thread's rows are not among them: nobody else keeps them in memory.
fn walk(
    store: &dyn KeyValue,
    work: &Eviction,
    (first, pace): (First, f64),
    stop: &AtomicBool,
    walked: &AtomicU64,
) -> Result<()> {
    let (key_count, hot_count) = (work.key_count, work.hot_count);
    let cold = hot_count % key_count;
    let (from, to) = match first {
        First::Idle => {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(IDLE);
            }
            return Ok(());
        }
        First::WalksFew => (cold, (cold + hot_count).min(key_count)),
        First::WalksAll => (cold, key_count),
        First::ReadsRaw => return work.raw.walk(WALK_BATCH, pace, stop, walked),
    };
    let mut session = store.session()?;
    let mut keys = vec![[0; KEY_BYTES]; WALK_BATCH];
    let mut number = from;
    while !stop.load(Ordering::Relaxed) {
        for key in &mut keys {
            *key = number.to_be_bytes();
            number += WALK_STEP;
            if number >= to {
                number = from + number % WALK_STEP.min(to - from);
            }
        }
        let count = look_up_many(&mut *session, &keys)?;
        walked.fetch_add(count, Ordering::Relaxed);
    }
    Ok(())
}

fn look_up_hot(store: &dyn KeyValue, work: &Eviction, seconds: f64, stop: &AtomicBool) -> Result<f64> {
    let mut session = store.session()?;
    let mut rng = fastrand::Rng::with_seed(work.seed);
    let mut keys = vec![[0; KEY_BYTES]; HOT_BATCH];
    let ticks = Ticks::new(Duration::from_secs_f64(seconds));
    ticks.fill(1, || {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Failed("the walking thread has ended".to_owned()));
        }
        keys.fill_with(|| rng.u64(..work.hot_count).to_be_bytes());
        look_up_many(&mut *session, &keys)
    })
}

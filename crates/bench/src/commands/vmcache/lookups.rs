//! Random lookups: keys of 8 bytes, values of 120, all there, uniform.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::plan::{DiskUse, Lookups, Phase, Rates};
use crate::error::{BenchError, Result};
use crate::kv::{Access, KeyValue, Order, Session, TreeId, TreeRow, Verdict};
use crate::progress::Progress;
use crate::ticks::Ticks;

pub const TREES: [&str; 1] = ["rows"];
const TREE: TreeId = TreeId(0);
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 120;
/// Of a row, without what a store needs beside it.
pub const ROW_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;
/// Keys between two looks at the clock.
const CHECK_KEYS: u32 = 16;

/// Nothing that could be compressed, and its key.
fn value_of(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    fastrand::Rng::with_seed(number).fill(&mut value);
    value[..KEY_BYTES].copy_from_slice(&number.to_be_bytes());
    value
}

/// Rows in the order of their keys. Returns how long it took, in seconds.
///
/// # Errors
/// Those of the store.
pub fn load(store: &dyn KeyValue, work: &Lookups, progress: &str) -> Result<f64> {
    let begin = Instant::now();
    let mut progress = Progress::new(format!("{progress}: loading {} rows", work.key_count), work.key_count);
    let mut rows = (0..work.key_count).map(|number| -> TreeRow {
        progress.add(1);
        (TREE, number.to_be_bytes().to_vec(), value_of(number).to_vec())
    });
    store.bulk_load(&mut rows)?;
    store.flush()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Reads all rows, and says so if some are not there.
///
/// # Errors
/// Those of the store.
fn warm(store: &dyn KeyValue, work: &Lookups) -> Result<()> {
    let mut number = 0u64;
    store.session()?.transaction(Access::Read, &mut |txn| {
        number = 0;
        txn.scan(TREE, &[0][..]..&[0xff; KEY_BYTES][..], Order::Ascending, &mut |key, value| {
            if key != number.to_be_bytes() || value != value_of(number) {
                return Err(wrong(number));
            }
            number += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Verdict::Commit)
    })?;
    if number != work.key_count {
        return Err(wrong(number));
    }
    Ok(())
}

fn wrong(number: u64) -> BenchError {
    BenchError::Failed(format!("row {number} is not there, or not as it was written"))
}

/// # Errors
/// Those of the store; a row is missing or wrong.
pub fn run(store: &dyn KeyValue, work: &Lookups, progress: &str) -> Result<Vec<(Phase, Rates)>> {
    if work.is_warmed {
        warm(store, work)?;
    }
    let mut measured = Vec::new();
    for (index, &phase) in work.phases.iter().enumerate() {
        let seed = work.seed.wrapping_add(index as u64 * 1000);
        threads(store, work, phase, seed ^ 1, work.warm_up_s)?;
        let rates = threads(store, work, phase, seed, work.measured_s)?;
        eprintln!(
            "{progress}: {} threads, {} keys a call: {:.0} lookups/s",
            phase.thread_count, phase.batch, rates.per_second
        );
        measured.push((phase, rates));
    }
    Ok(measured)
}

fn threads(store: &dyn KeyValue, work: &Lookups, phase: Phase, seed: u64, seconds: f64) -> Result<Rates> {
    let before = DiskUse::now();
    let ticks = Ticks::new(Duration::from_secs_f64(seconds));
    let look_up = |thread: usize| -> Result<f64> {
        let mut session = store.session()?;
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(thread as u64));
        match phase.batch {
            1 => ticks.fill(CHECK_KEYS, || look_up_one(&mut *session, rng.u64(..work.key_count))),
            batch => {
                let mut keys = vec![[0; KEY_BYTES]; batch];
                let check_every = CHECK_KEYS.div_ceil(batch as u32);
                ticks.fill(check_every, || {
                    keys.fill_with(|| rng.u64(..work.key_count).to_be_bytes());
                    look_up_many(&mut *session, &keys)
                })
            }
        }
    };
    let per_second = std::thread::scope(|scope| {
        let look_up = &look_up;
        let threads: Vec<_> =
            (0..phase.thread_count).map(|thread| scope.spawn(move || look_up(thread))).collect();
        threads.into_iter().map(joined).sum::<Result<f64>>()
    })?;
    let disk = DiskUse::now().since(before);
    Ok(Rates { per_second, over_time: ticks.over_time(), count: ticks.total(), disk })
}

fn joined(thread: std::thread::ScopedJoinHandle<'_, Result<f64>>) -> Result<f64> {
    thread.join().unwrap_or_else(|_| Err(BenchError::Failed("a measuring thread panicked".to_owned())))
}

fn look_up_one(session: &mut dyn Session, number: u64) -> Result<u64> {
    let key = number.to_be_bytes();
    let mut is_right = false;
    session.get(TREE, &key, &mut |value| is_right = is_of(value, &key))?;
    match is_right {
        true => Ok(1),
        false => Err(wrong(number)),
    }
}

fn look_up_many(session: &mut dyn Session, keys: &[[u8; KEY_BYTES]]) -> Result<u64> {
    let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut right_count = 0;
    session
        .get_many(TREE, &slices, &mut |index, value| right_count += u64::from(is_of(value, &keys[index])))?;
    match right_count == keys.len() as u64 {
        true => Ok(right_count),
        false => Err(BenchError::Failed("of a batch not all rows are there as they were written".to_owned())),
    }
}

/// Whether the value begins as it was written.
fn is_of(value: &[u8], key: &[u8; KEY_BYTES]) -> bool {
    value.len() == VALUE_BYTES && value.starts_with(key)
}

//! Random lookups: keys of 8 bytes, values of 120, all there, uniform.

use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use super::plan::{DiskUse, Lookups, Phase, Rates};
use crate::error::{BenchError, Result};
use crate::kv::{Access, KeyValue, Order, Session, TreeId, TreeRow, Verdict};
use crate::progress::Progress;
use crate::ticks::{in_threads, Ticks};

pub const TREES: [&str; 1] = ["rows"];
const TREE: TreeId = TreeId(0);
pub const KEY_BYTES: usize = 8;
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
pub fn load(store: &dyn KeyValue, numbers: Range<u64>, progress: &str) -> Result<f64> {
    let begin = Instant::now();
    let count = numbers.end - numbers.start;
    let mut progress = Progress::new(format!("{progress}: loading {count} rows"), count);
    let mut rows = numbers.map(|number| -> TreeRow {
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
fn warm(store: &dyn KeyValue, numbers: Range<u64>) -> Result<()> {
    let mut number = numbers.start;
    store.session()?.transaction(Access::Read, &mut |txn| {
        number = numbers.start;
        txn.scan(TREE, &[0][..]..&[0xff; KEY_BYTES][..], Order::Ascending, &mut |key, value| {
            if key != number.to_be_bytes() || value != value_of(number) {
                return Err(wrong(number));
            }
            number += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Verdict::Commit)
    })?;
    if number != numbers.end {
        return Err(wrong(number));
    }
    Ok(())
}

fn wrong(number: u64) -> BenchError {
    BenchError::Failed(format!("row {number} is not there, or not as it was written"))
}

/// In one store, or in several, each with its share of the rows and a thread.
///
/// # Errors
/// Those of the store; a row is missing or wrong.
pub fn run(stores: &[&dyn KeyValue], work: &Lookups, progress: &str) -> Result<Vec<(Phase, Rates)>> {
    let share = work.key_count / stores.len() as u64;
    if work.is_warmed {
        for (number, store) in (0..).zip(stores) {
            warm(*store, number * share..(number + 1) * share)?;
        }
    }
    let mut measured = Vec::new();
    for (index, &phase) in work.phases.iter().enumerate() {
        let seed = work.seed.wrapping_add(index as u64 * 1000);
        let mut over_time = threads(stores, share, phase, seed ^ 1, work.warm_up_s)?.over_time;
        let mut rates = threads(stores, share, phase, seed, work.measured_s)?;
        if !work.is_warmed {
            over_time.append(&mut rates.over_time);
            rates.over_time = over_time;
        }
        let apart = if phase.is_apart { " with a store each" } else { "" };
        eprintln!(
            "{progress}: {} threads{apart}, {} keys a call: {:.0} lookups/s",
            phase.thread_count, phase.batch, rates.per_second
        );
        measured.push((phase, rates));
    }
    Ok(measured)
}

/// Each thread in the store of its number.
fn threads(stores: &[&dyn KeyValue], share: u64, phase: Phase, seed: u64, seconds: f64) -> Result<Rates> {
    let before = DiskUse::now();
    let ticks = Ticks::new(Duration::from_secs_f64(seconds));
    let look_up = |thread: u64| -> Result<f64> {
        let own = thread as usize % stores.len();
        let rows = own as u64 * share..(own as u64 + 1) * share;
        let mut session = stores[own].session()?;
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(thread));
        match phase.batch {
            1 => ticks.fill(CHECK_KEYS, || look_up_one(&mut *session, rng.u64(rows.clone()))),
            batch => {
                let mut keys = vec![[0; KEY_BYTES]; batch];
                let check_every = CHECK_KEYS.div_ceil(batch as u32);
                ticks.fill(check_every, || {
                    keys.fill_with(|| rng.u64(rows.clone()).to_be_bytes());
                    look_up_many(&mut *session, &keys)
                })
            }
        }
    };
    let per_second = in_threads(phase.thread_count, look_up)?;
    let disk = DiskUse::now().since(before);
    Ok(Rates { per_second, over_time: ticks.over_time(), count: ticks.total(), disk })
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

/// All of them, which are there.
pub fn look_up_many(session: &mut dyn Session, keys: &[[u8; KEY_BYTES]]) -> Result<u64> {
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

//! Times single operations in process: `cargo run --release --example ops -- [keys] [value bytes] [batch] [huge]`.
//!
//! Prints CPU nanoseconds an operation (median of short slices) and memory a key. A batch of 1 does not prefetch.

use std::hint::black_box;

use rustix::time::{clock_gettime, ClockId};
use stillframe_store::{DbId, Deadline, Key, NewValue, Options, Store, Worker};

const DB: DbId = DbId(0);
const SLICE: usize = 4096;

struct Setup {
    key_count: u64,
    value: Vec<u8>,
    batch: usize,
}

/// Runs `op` on `count` keys chosen by `pick`, in batches; returns the median CPU ns a key of slices.
fn time(
    setup: &Setup,
    worker: &mut Worker,
    count: u64,
    mut pick: impl FnMut(u64) -> u64,
    mut op: impl FnMut(&mut Worker, &Key<'_>),
) -> f64 {
    let mut slices = Vec::new();
    let mut names = vec![[0u8; 16]; SLICE];
    for start in (0..count).step_by(SLICE) {
        for (i, name) in (start..).zip(&mut names) {
            name.copy_from_slice(format!("key:{:012}", pick(i)).as_bytes());
        }
        let since = cpu_ns();
        for batch in names.chunks(setup.batch) {
            if setup.batch == 1 {
                let key = worker.key(&batch[0]);
                op(worker, &key);
            } else {
                let mut keys: Vec<Key<'_>> = batch.iter().map(|name| worker.key(name)).collect();
                worker.prefetch().all(DB, &mut keys);
                for key in &keys {
                    op(worker, key);
                }
            }
            worker.quiesce();
        }
        slices.push((cpu_ns() - since) / SLICE as f64);
    }
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 2]
}

/// CPU time of this thread: others may use the machine meanwhile.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let (key_count, value_bytes, batch) = (number(1_000_000), number(100), number(64));
    let huge_pages = number(1) == 1;
    let setup =
        Setup { key_count, value: vec![b'v'; value_bytes as usize], batch: (batch as usize).clamp(1, SLICE) };
    let dir = std::env::temp_dir().join(format!("stillframe-ops-{}", std::process::id()));
    let options = Options { huge_pages, checkpoint_on_drop: false, ..Options::default() };
    let store = Store::open(&dir, options).unwrap_or_else(|error| panic!("{error}"));
    run(&setup, &store);
    drop(store);
    // Nothing in it is needed any more.
    let _ = std::fs::remove_dir_all(&dir);
}

fn run(setup: &Setup, store: &Store) {
    let mut worker = store.nonblocking_worker().unwrap();
    let keys = setup.key_count;
    let value = NewValue::Bytes { bytes: &setup.value, raw: true };
    let mut random = fastrand::Rng::with_seed(1);
    let before = resident_bytes();
    let set = |worker: &mut Worker, key: &Key<'_>| {
        if let Err(error) = worker.set(DB, key, value, Deadline::Clear) {
            panic!("{error}");
        }
    };
    let load = time(setup, &mut worker, keys, |i| i, set);
    let loaded = store.db_stats(DB).key_count;
    let used = (store.used_memory_bytes() as f64, (resident_bytes() - before) as f64);
    println!("{loaded} keys, {} B values, batches of {}", setup.value.len(), setup.batch);
    println!(
        "load          {load:7.1} ns/SET  {:.1} B/key counted, {:.1} resident",
        used.0 / loaded as f64,
        used.1 / loaded as f64
    );
    let count = keys.clamp(200_000, 2_000_000);
    let mut reply = Vec::new();
    let mut get = |worker: &mut Worker, key: &Key<'_>| {
        reply.clear();
        let found = worker.get(DB, key, |value| value.append_to(&mut reply));
        assert!(matches!(found, Ok(Some(()))));
        black_box(&reply);
    };
    for round in 0..2 {
        let gets = time(setup, &mut worker, count, |_| random.u64(..keys), &mut get);
        let sets = time(setup, &mut worker, count, |_| random.u64(..keys), set);
        println!("round {round}       {gets:7.1} ns/GET  {sets:7.1} ns/SET");
    }
    let misses = time(
        setup,
        &mut worker,
        count,
        |i| keys + SLICE as u64 + i,
        |worker, key| {
            assert!(matches!(worker.get(DB, key, |_| ()), Ok(None)));
        },
    );
    println!("absent        {misses:7.1} ns/GET");
    churn(setup, store, &mut worker, set);
}

/// A random key is removed and a new one stored, twice as often as there are keys.
fn churn(setup: &Setup, store: &Store, worker: &mut Worker, set: impl Fn(&mut Worker, &Key<'_>)) {
    let keys = setup.key_count;
    let mut random = fastrand::Rng::with_seed(2);
    let mut present: Vec<u64> = (0..keys).collect();
    let (mut next, mut turn) = (1 << 33, 0);
    let churn = time(
        setup,
        worker,
        4 * keys,
        |i| {
            let at = random.usize(..present.len());
            if i % 2 == 0 {
                present.swap_remove(at)
            } else {
                next += 1;
                present.push(next);
                next
            }
        },
        |worker, key| {
            turn += 1;
            if turn % 2 == 0 {
                set(worker, key);
            } else {
                assert!(worker.remove(DB, key).is_ok());
            }
        },
    );
    let left = store.db_stats(DB).key_count;
    println!(
        "churn         {churn:7.1} ns  {left} keys, {:.1} B/key counted",
        store.used_memory_bytes() as f64 / left as f64
    );
}

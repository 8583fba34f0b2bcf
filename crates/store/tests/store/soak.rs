//! Everything that makes garbage, from several threads, over restarts: no page is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stillframe_store::{DbId, Deadline, Incoming, NewValue, Options, Sending, Store, Worker};

use crate::contract::wait_for_garbage;
use crate::restart::wait_until_warm;
use stillframe_testkit::{seed, TempDir};

use crate::open;

const WORKERS: u64 = 3;
const DATABASES: u32 = 3;
const ROUNDS: u64 = 4;

/// Values that come and go in parts.
#[derive(Default)]
struct UnderWay {
    arriving: Option<Incoming>,
    leaving: Option<Sending>,
}

fn change(worker: &mut Worker, under_way: &mut UnderWay, random: &mut fastrand::Rng) {
    let db = DbId(random.u32(..DATABASES));
    let name = format!("key:{}", random.u32(..600)).into_bytes();
    let key = worker.key(&name);
    match random.u32(..400) {
        0 => worker.database(db).flush().unwrap(),
        1 => worker.database(DbId(0)).swap_with(db).unwrap(),
        3 => drop(worker.upkeep().expire_cycle(Duration::from_millis(1), |_, _| ()).unwrap()),
        // Its bytes come over many steps.
        2 => under_way.arriving = worker.begin_incoming(random.u64(70_000..1_500_000)).ok(),
        // Freed in the background.
        4 => under_way.leaving = worker.string_at(db, &key).begin_sending(|len| 0..len).unwrap(),
        5..=7 => {
            _ = worker.string_at(db, &key).write_range(random.u64(1_100_000..1_300_000), b"x").unwrap();
        }
        8..=40 => drop(worker.remove(db, &key).unwrap()),
        41..=60 => drop(worker.string_at(db, &key).write_range(random.u64(..30_000), &[3; 300]).unwrap()),
        _ => {
            let len = if random.u32(..20) == 0 { 20_000 } else { 600 };
            let value = vec![random.u8(..); random.usize(..len)];
            let deadline = worker.now() + random.i64(1..3_000);
            let deadline = if random.bool() { Deadline::At(deadline) } else { Deadline::Clear };
            worker.set(db, &key, NewValue::Bytes { bytes: &value, raw: false }, deadline).unwrap();
        }
    }
}

/// Lets some bytes come, and stores the value when all are there.
fn receive(worker: &mut Worker, under_way: &mut UnderWay, random: &mut fastrand::Rng) {
    if random.u32(..50) == 0 {
        under_way.leaving = None;
    }
    let Some(incoming) = &mut under_way.arriving else { return };
    incoming.append(&[random.u8(..); 20_000]).unwrap();
    if incoming.is_complete() {
        let name = format!("key:{}", random.u32(..600)).into_bytes();
        let key = worker.key(&name);
        worker
            .set(DbId(random.u32(..DATABASES)), &key, NewValue::Incoming(incoming), Deadline::Clear)
            .unwrap();
        under_way.arriving = None;
    }
}

/// Changes from several workers, with saves in between; the last save is somewhere in the middle.
fn churn(store: &Store, seed: u64, now: &AtomicU64) -> u64 {
    let stop = AtomicBool::new(false);
    let mut save_count = 0;
    std::thread::scope(|scope| {
        for thread in 0..WORKERS {
            let stop = &stop;
            scope.spawn(move || {
                let mut worker = store.nonblocking_worker().unwrap();
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(thread));
                let mut under_way = UnderWay::default();
                while !stop.load(Ordering::Relaxed) {
                    worker.set_now(now.fetch_add(1, Ordering::Relaxed) as i64);
                    change(&mut worker, &mut under_way, &mut random);
                    receive(&mut worker, &mut under_way, &mut random);
                    worker.quiesce();
                }
            });
        }
        for _ in 0..12 {
            std::thread::sleep(Duration::from_millis(40));
            store.checkpoint().unwrap();
            save_count += 1;
        }
        std::thread::sleep(Duration::from_millis(40));
        stop.store(true, Ordering::Relaxed);
    });
    save_count
}

/// Empties everything and returns how many pages are left.
fn pages_of_nothing(store: &Store) -> u64 {
    let mut worker = store.nonblocking_worker().unwrap();
    (0..DATABASES).for_each(|db| worker.database(DbId(db)).flush().unwrap());
    wait_for_garbage(store, &mut worker);
    store.check().unwrap();
    store.pool().stats().allocated_pages
}

#[test]
fn no_page_is_lost_over_restarts() {
    let seed = seed();
    let options = Options { worker_count: WORKERS as usize, database_count: DATABASES, ..Options::default() };
    let dir = TempDir::new("store");
    let (empty_dir, now) = (TempDir::new("store"), AtomicU64::new(1_000_000));
    let pages_of_a_new_store = pages_of_nothing(&open(&empty_dir, options.clone()));
    for round in 0..ROUNDS {
        let store = open(&dir, options.clone());
        let mut worker = store.nonblocking_worker().unwrap();
        wait_until_warm(&store, &mut worker);
        // With what of the garbage was not worked off, and of the collector's work is not saved.
        store.check().unwrap();
        worker.idle(|| assert!(churn(&store, seed + 10 * round, &now) > 0));
        store.check().unwrap();
        wait_for_garbage(&store, &mut worker);
        store.check().unwrap();
    }
    let store = open(&dir, options);
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    drop(worker);
    assert_eq!(pages_of_nothing(&store), pages_of_a_new_store);
}

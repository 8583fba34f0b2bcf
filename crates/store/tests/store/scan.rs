//! Iteration under concurrent change, and random keys.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use stillframe_store::{DbId, Deadline, NewValue, Options, Worker};

use stillframe_testkit::{seed, TempDir};

use crate::open;

const DB: DbId = DbId(0);

fn set(worker: &mut Worker, name: &str, len: usize) {
    let bytes = vec![b'v'; len];
    let key = worker.key(name.as_bytes());
    worker.set(DB, &key, NewValue::Bytes { bytes: &bytes, raw: false }, Deadline::Clear).unwrap();
}

/// Keys that are there throughout are given exactly once, whatever others come and go.
fn exactly_once(hash_bits: u32, stable_count: usize) {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { hash_bits, worker_count: 3, ..Options::default() });
    let seed = seed();
    let mut worker = store.nonblocking_worker().unwrap();
    let stable: BTreeSet<Vec<u8>> = (0..stable_count).map(|i| format!("stable:{i}").into_bytes()).collect();
    for key in &stable {
        set(&mut worker, std::str::from_utf8(key).unwrap(), 40);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (store, done) = (store.clone(), &done);
            scope.spawn(move || {
                let mut worker = store.nonblocking_worker().unwrap();
                let mut random = fastrand::Rng::with_seed(seed ^ thread);
                while !done.load(Ordering::Relaxed) {
                    let name = format!("passing:{thread}:{}", random.u32(..5_000));
                    if random.bool() {
                        set(&mut worker, &name, random.usize(..300));
                    } else {
                        worker.remove(DB, &worker.key(name.as_bytes())).unwrap();
                    }
                    worker.quiesce();
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..20 {
            let (mut cursor, mut seen) = (0, BTreeSet::new());
            loop {
                let count = random.usize(1..200);
                cursor = worker
                    .database(DB)
                    .scan(cursor, count, |key, _| {
                        if key.starts_with(b"stable:") {
                            assert!(seen.insert(key.to_vec()), "{key:?} was given twice");
                        }
                    })
                    .unwrap();
                assert!(cursor < 1 << 53);
                worker.quiesce();
                if cursor == 0 {
                    break;
                }
            }
            assert!(seen == stable, "{} of {} keys were given", seen.len(), stable.len());
        }
        done.store(true, Ordering::Relaxed);
    });
    store.check().unwrap();
}

#[test]
fn keys_that_stay_are_scanned_exactly_once() {
    exactly_once(64, 3_000);
}

#[test]
fn so_are_keys_of_equal_hashes() {
    exactly_once(8, 3_000);
}

#[test]
fn a_step_gives_about_as_many_keys_as_asked_for() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    for i in 0..10_000 {
        set(&mut worker, &format!("key:{i}"), 3);
    }
    let (mut cursor, mut steps) = (0, 0);
    loop {
        let mut given = 0;
        cursor = worker.database(DB).scan(cursor, 10, |_, _| given += 1).unwrap();
        steps += 1;
        assert!(given <= 14, "{given} keys in a step of 10");
        if cursor == 0 {
            break;
        }
    }
    assert!((800..=1000).contains(&steps), "{steps} steps");
}

/// Chi-square over 200 keys: every key comes equally often.
#[test]
fn random_keys_are_even() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    fastrand::seed(seed());
    let mut worker = store.nonblocking_worker().unwrap();
    let (key_count, draws) = (400, 80_000);
    for i in 0..key_count {
        set(&mut worker, &i.to_string(), 100);
    }
    let mut counts = vec![0f64; key_count];
    for _ in 0..draws {
        let key = worker.database(DB).random_key().unwrap().unwrap();
        counts[std::str::from_utf8(&key).unwrap().parse::<usize>().unwrap()] += 1.0;
    }
    let expected = draws as f64 / key_count as f64;
    let chi_square: f64 = counts.iter().map(|n| (n - expected).powi(2) / expected).sum();
    // 399 degrees of freedom: mean 399, standard deviation 28; leaves of unequal density may add a little.
    assert!(chi_square < 650.0, "chi-square {chi_square}");
}

#[test]
fn random_keys_are_found_among_expired_ones() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(1);
    for i in 0..5_000 {
        let name = i.to_string();
        let key = worker.key(name.as_bytes());
        worker.set(DB, &key, NewValue::Int(i), Deadline::At(10)).unwrap();
    }
    set(&mut worker, "alive", 3);
    worker.set_now(20);
    assert_eq!(worker.database(DB).random_key().unwrap().as_deref(), Some(&b"alive"[..]));
    assert!(worker.remove(DB, &worker.key(b"alive")).unwrap());
    assert_eq!(worker.database(DB).random_key().unwrap(), None);
}

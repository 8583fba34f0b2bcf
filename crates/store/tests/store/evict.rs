//! Keys that go to make room: which, and what else hears of it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_store::*;
use stillframe_testkit::{seed, TempDir};

const DB: DbId = DbId(0);
const START: UnixMillis = 1_700_000_000_000;
/// Keys of a sample, as Redis takes them.
const SAMPLES: usize = 5;

fn policy(name: &str) -> EvictionPolicy {
    EvictionPolicy::by_name(name).unwrap_or_else(|| panic!("{name}"))
}

fn open(worker_count: usize, tracking: Option<Tracking>) -> (Store, TempDir) {
    let dir = TempDir::new("evict");
    let store = crate::open(&dir, Options { worker_count, huge_pages: false, ..Options::default() });
    store.accesses().track(tracking, START);
    (store, dir)
}

fn worker(store: &Store, now: UnixMillis) -> Worker {
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(now);
    worker
}

fn name(number: u64) -> Vec<u8> {
    match number % 50 {
        // Outside of its leaf.
        0 => format!("{number:0500}").into_bytes(),
        _ => format!("key:{number}").into_bytes(),
    }
}

fn set(worker: &mut Worker, db: DbId, number: u64, deadline: Deadline) {
    let (name, bytes) = (name(number), vec![b'v'; 1 + (number * 37 % 1000) as usize]);
    let key = worker.key(&name);
    worker.set(db, &key, NewValue::Bytes { bytes: &bytes, raw: false }, deadline).unwrap();
}

fn has(worker: &mut Worker, db: DbId, number: u64) -> bool {
    let name = name(number);
    let key = worker.key(&name);
    worker.entry(db, &key).unwrap().is_some()
}

fn evict(worker: &mut Worker, policy: EvictionPolicy) -> u64 {
    match worker.upkeep().evict(policy, SAMPLES).unwrap() {
        Evicted::Keys { evicted_count, memory_bytes, .. } => {
            assert!(memory_bytes > 0);
            evicted_count
        }
        other => panic!("{policy:?}: {other:?}"),
    }
}

/// Evicts so many keys.
fn evict_keys(worker: &mut Worker, policy: EvictionPolicy, count: u64) {
    let mut evicted_count = 0;
    while evicted_count < count {
        evicted_count += evict(worker, policy);
        worker.quiesce();
    }
}

#[test]
fn each_policy_takes_its_candidates_and_no_others() {
    for (policy_name, policy) in EvictionPolicy::NAMED {
        let (store, _dir) = open(1, None);
        let mut worker = worker(&store, START);
        for number in 0..2_000 {
            let deadline = if number % 3 == 0 { Deadline::At(START + 1_000_000) } else { Deadline::Clear };
            set(&mut worker, DbId((number % 2) as u32), number, deadline);
        }
        let is_candidate = |number: u64| policy.candidates == Candidates::All || number % 3 == 0;
        let count = (0..2_000).filter(|number| is_candidate(*number)).count() as u64;
        evict_keys(&mut worker, policy, count);
        assert_eq!(worker.upkeep().evict(policy, SAMPLES).unwrap(), Evicted::Nothing, "{policy_name}");
        for number in 0..2_000 {
            let is_there = has(&mut worker, DbId((number % 2) as u32), number);
            assert_eq!(is_there, !is_candidate(number), "{policy_name}: {number}");
        }
        drop(worker);
        store.check().unwrap();
    }
}

/// What part of the keys that are used survives until nine of ten others are gone.
fn surviving_share(tracking: Tracking, policy: EvictionPolicy) -> f64 {
    let (store, _dir) = open(1, Some(tracking));
    let mut worker = worker(&store, START);
    let (hot, all) = (2_000, 20_000);
    for number in 0..all {
        set(&mut worker, DB, number, Deadline::At(START + 1_000_000_000));
        if number % 1000 == 0 {
            store.accesses().settle();
        }
    }
    for minute in 1..5 {
        worker.set_now(START + minute * 60_000);
        for number in (0..hot).flat_map(|number| [number; 4]) {
            let name = name(number);
            let key = worker.key(&name);
            worker.get(DB, &key, |_| ()).unwrap();
        }
    }
    evict_keys(&mut worker, policy, (all - hot) * 9 / 10);
    let there = (0..hot).filter(|number| has(&mut worker, DB, *number)).count();
    there as f64 / hot as f64
}

#[test]
fn keys_that_are_used_survive() {
    let lfu = Tracking::Frequency { log_factor: 10, decay_minutes: 1 };
    let cases = [
        ("allkeys-lru", Tracking::Recency),
        ("volatile-lru", Tracking::Recency),
        ("allkeys-lfu", lfu),
        ("volatile-lfu", lfu),
    ];
    for (name, tracking) in cases {
        let share = surviving_share(tracking, policy(name));
        assert!(share > 0.97, "{name}: {share}");
    }
    let by_chance = surviving_share(Tracking::Recency, policy("allkeys-random"));
    assert!((0.1..0.35).contains(&by_chance), "{by_chance}");
}

#[test]
fn the_soonest_deadlines_go_first() {
    let (store, _dir) = open(1, None);
    let mut worker = worker(&store, START);
    (0..5_000).for_each(|number| {
        set(&mut worker, DB, number, Deadline::At(START + 1_000_000 + number as i64 * 1000));
    });
    evict_keys(&mut worker, policy("volatile-ttl"), 2_500);
    let early = (0..1_250).filter(|number| has(&mut worker, DB, *number)).count();
    let late = (3_750..5_000).filter(|number| has(&mut worker, DB, *number)).count();
    assert!(early < 100 && late > 1_100, "of 1250 early keys {early} are there, of as many late ones {late}");
}

/// One key in a hundred thousand has a deadline.
#[test]
fn the_only_key_with_a_deadline_is_found() {
    let (store, _dir) = open(1, None);
    let mut worker = worker(&store, START);
    (0..100_000).for_each(|number| set(&mut worker, DB, number * 50 + 1, Deadline::Clear));
    for number in [3, 5, 7] {
        set(&mut worker, DB, number, Deadline::At(START + 1_000_000));
        assert_eq!(evict(&mut worker, policy("volatile-random")), 1);
        assert!(!has(&mut worker, DB, number));
    }
    assert_eq!(worker.upkeep().evict(policy("volatile-lru"), SAMPLES).unwrap(), Evicted::Nothing);
}

#[derive(Default)]
struct Counts {
    evicted: AtomicU64,
    expired: AtomicU64,
}

impl Listener for Counts {
    fn hear(&self, _: &Step, effect: &Effect<'_>) {
        match effect {
            Effect::Evict { .. } => self.evicted.fetch_add(1, Ordering::Relaxed),
            Effect::Expire { .. } => self.expired.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[test]
fn what_has_expired_goes_first_and_every_key_is_told_of() {
    let (store, _dir) = open(1, None);
    let counts = Arc::new(Counts::default());
    store.listen(vec![counts.clone()]);
    let mut worker = worker(&store, START);
    for number in 0..1_000 {
        let deadline = if number < 900 { Deadline::At(START + 1_000) } else { Deadline::Clear };
        set(&mut worker, DB, number, deadline);
    }
    worker.set_now(START + 2_000);
    let changes = worker.change_count();
    while store.db_stats(DB).key_count > 0 {
        evict(&mut worker, policy("allkeys-random"));
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&counts.evicted), count(&counts.expired)), (100, 900));
    assert_eq!(worker.change_count() - changes, 100, "what has expired is no change");
}

/// Several workers evict from the same keys, write and read.
#[test]
fn workers_evict_beside_each_other() {
    let seed = seed();
    let (store, _dir) = open(4, Some(Tracking::Recency));
    let evicted = AtomicU64::new(0);
    let created: Vec<BTreeSet<u64>> = std::thread::scope(|scope| {
        let run = |part: u64| {
            let (store, evicted) = (&store, &evicted);
            move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ part);
                let (mut worker, mut created) = (worker(store, START), BTreeSet::new());
                for step in 0..8_000u64 {
                    worker.set_now(START + step as i64 * 10);
                    let number = rng.u64(..3_000) * 4 + part;
                    set(&mut worker, DB, number, Deadline::Clear);
                    created.insert(number);
                    has(&mut worker, DB, rng.u64(..12_000));
                    if store.db_stats(DB).key_count > 2_000 {
                        let sum = evict(&mut worker, policy("allkeys-lru"));
                        evicted.fetch_add(sum, Ordering::Relaxed);
                    }
                    if part == 0 && step % 500 == 0 {
                        store.accesses().settle();
                    }
                    worker.quiesce();
                }
                created
            }
        };
        let threads: Vec<_> = (0..4).map(|part| scope.spawn(run(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut worker = worker(&store, START);
    let there = created.iter().flatten().filter(|number| has(&mut worker, DB, **number)).count() as u64;
    drop(worker);
    let report = store.check().unwrap();
    assert_eq!(store.db_stats(DB).key_count, there, "{report:?}");
    assert!(there <= 2_004 && evicted.load(Ordering::Relaxed) > 10_000);
}

/// Whether what is in use stays, if all else that a worker remembers has gone and one key that it has not met is cold.
fn finds_what_is_cold() -> bool {
    let (store, _dir) = open(2, Some(Tracking::Recency));
    // A thread has one of those that run on.
    let (mut first, mut second) = (store.worker(), store.worker());
    first.set_now(START);
    second.set_now(START);
    let (gone, in_use, cold) = (0..13, 13..19, 20);
    gone.clone().for_each(|number| set(&mut first, DB, number, Deadline::Clear));
    first.set_now(START + 100_000);
    in_use.clone().for_each(|number| set(&mut first, DB, number, Deadline::Clear));
    evict_keys(&mut first, policy("allkeys-lru"), 4);
    for number in gone {
        let name = name(number);
        let key = second.key(&name);
        second.remove(DB, &key).unwrap();
    }
    set(&mut second, DB, cold, Deadline::Clear);
    evict_keys(&mut first, policy("allkeys-lru"), 1);
    in_use.clone().all(|number| has(&mut second, DB, number))
}

/// A worker may remember nothing but keys that another one has evicted, and some in use: it looks again before those go.
#[test]
fn what_is_in_use_stays_when_what_was_remembered_is_gone() {
    let rounds = 60;
    let found = (0..rounds).filter(|_| finds_what_is_cold()).count();
    assert!(found > rounds * 9 / 10, "{found} of {rounds}");
}

/// Reads and evictions do not write to pages that they do not change.
#[test]
fn accesses_change_no_page() {
    let (store, _dir) = open(1, Some(Tracking::Recency));
    let mut worker = worker(&store, START);
    (0..5_000).for_each(|number| set(&mut worker, DB, number, Deadline::Clear));
    let checkpoint = |worker: &mut Worker| worker.idle(|| store.checkpoint().unwrap().pages_changed);
    checkpoint(&mut worker);
    for number in 0..5_000 {
        let name = name(number);
        let key = worker.key(&name);
        worker.get(DB, &key, |_| ()).unwrap();
        worker.touch(DB, &key).unwrap();
    }
    store.accesses().settle();
    // The catalog's own pages.
    let changed = checkpoint(&mut worker);
    assert!(changed <= 4, "{changed} pages");
}

/// Memory comes back in proportion to what is evicted, though records share pages.
#[test]
fn pages_come_back() {
    let (store, _dir) = open(1, None);
    let mut worker = worker(&store, START);
    for number in 0..40_000u64 {
        let name = format!("key:{number}").into_bytes();
        let key = worker.key(&name);
        worker.set(DB, &key, NewValue::Bytes { bytes: &[b'v'; 100], raw: false }, Deadline::Clear).unwrap();
    }
    let pages = store.pool().allocated_pages() as f64;
    evict_keys(&mut worker, policy("allkeys-random"), 20_000);
    let left = store.pool().allocated_pages() as f64 / pages;
    assert!(left < 0.7, "{left} of the pages are left for half of the keys");
}

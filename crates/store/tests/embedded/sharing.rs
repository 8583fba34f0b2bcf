//! Any number of threads may work on the same keys, whatever the options say.

use std::sync::atomic::{AtomicBool, Ordering};

use stillframe_store::{DbId, Deadline, NewValue, OpError, Options, Store};
use stillframe_testkit::TempDir;

use crate::{get, open, set, DB};

const THREADS: u64 = 4;
const EACH: u64 = 4_000;

/// Four threads on one hash, list, set and sorted set.
fn work_together(store: &Store) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let (hash, list, set) = (store.hash("hash"), store.list("list"), store.set("set"));
                let sorted = store.sorted_set("sorted");
                for number in 0..EACH {
                    let name = format!("{thread}:{number}");
                    assert!(hash.set(&name, "v").unwrap());
                    list.push_back(&name).unwrap();
                    assert!(set.add(&name).unwrap());
                    sorted.add("sum", 1.0).unwrap();
                    let next = |old: Option<&[u8]>| {
                        let old =
                            old.and_then(|old| old.first_chunk()).map_or(0, |old| u64::from_le_bytes(*old));
                        (old + 1).to_le_bytes()
                    };
                    hash.renew("count", next).unwrap();
                }
            });
        }
    });
}

fn check(store: &Store) {
    let all = THREADS * EACH;
    let hash = store.hash("hash");
    assert_eq!(hash.len().unwrap(), all + 1);
    assert_eq!(hash.get("count").unwrap(), Some(all.to_le_bytes().to_vec()));
    assert_eq!(store.list("list").len().unwrap(), all);
    assert_eq!(store.set("set").len().unwrap(), all);
    assert_eq!(store.sorted_set("sorted").score("sum").unwrap(), Some(all as f64));
    store.check().unwrap();
}

/// With the options as they are by default, and with those that expect one thread.
#[test]
fn threads_share_collections_by_default() {
    for worker_count in [Options::default().worker_count, 1, 0] {
        let dir = TempDir::new("default");
        let options = Options { worker_count, ..Options::default() };
        let store = open(&dir, options.clone());
        work_together(&store);
        check(&store);
        store.checkpoint().unwrap();
        drop(store);
        check(&open(&dir, options));
    }
}

/// Workers of several threads on the same strings: each change is whole.
#[test]
fn threads_share_strings_by_default() {
    let dir = TempDir::new("strings");
    let store = open(&dir, Options::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut worker = store.worker();
                let value = vec![b'a' + thread as u8; 9_000];
                for number in 0..EACH / 4 {
                    let name = format!("{}", number % 7);
                    set(&mut worker, &name, &value).unwrap();
                    let found = get(&mut worker, &name).unwrap().unwrap();
                    assert!(found.len() == 9_000 && found.iter().all(|byte| *byte == found[0]));
                }
            });
        }
    });
    store.check().unwrap();
}

/// A nonblocking worker has the keys to itself, without locks, until another thread comes in the midst of its work; and again when
/// the others have gone.
#[test]
fn a_nonblocking_worker_takes_locks_once_others_come() {
    let dir = TempDir::new("change-over");
    let store = open(&dir, Options::default());
    let (is_ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let batched = std::thread::scope(|scope| {
        let batched = scope.spawn(|| {
            let mut worker = store.nonblocking_worker().unwrap();
            let key = worker.key(b"hash");
            let mut count = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..32 {
                    let field = format!("batched:{count}");
                    let pair = [(field.as_bytes(), &b"v"[..])];
                    let mode = stillframe_store::FieldMode::All;
                    worker.hash_at(DB, &key).set(&pair, mode, Deadline::Clear).unwrap();
                    count += 1;
                }
                is_ready.store(true, Ordering::Relaxed);
                worker.quiesce();
            }
            count
        });
        while !is_ready.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for round in 0..3 {
            let threads: Vec<_> = (0..2)
                .map(|thread| {
                    let store = &store;
                    scope.spawn(move || {
                        let hash = store.hash("hash");
                        (0..EACH / 4).for_each(|field| {
                            assert!(hash.set(format!("{round}:{thread}:{field}"), "v").unwrap());
                        });
                        // A second one of the same kind, which hands the keys back.
                        drop(hash);
                        let mut worker = store.nonblocking_worker().unwrap();
                        let name = format!("string:{round}:{thread}");
                        let key = worker.key(name.as_bytes());
                        worker.set(DbId(0), &key, NewValue::Int(1), Deadline::Clear).unwrap();
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        batched.join().unwrap()
    });
    assert_eq!(store.hash("hash").len().unwrap(), batched + 3 * 2 * (EACH / 4));
    store.check().unwrap();
}

/// One a thread, and nothing beside it but while it is idle.
#[test]
fn a_nonblocking_worker_is_all_that_its_thread_has() {
    let dir = TempDir::new("seated");
    let store = open(&dir, Options::default());
    let (hash, tree) = (store.hash("h"), store.tree("t").unwrap());
    let mut worker = store.nonblocking_worker().unwrap();
    assert!(matches!(store.nonblocking_worker(), Err(OpError::Busy)));
    assert!(matches!(hash.set("f", "v"), Err(OpError::Busy)));
    assert!(tree.put("k", "v").is_err() && store.checkpoint().is_err() && store.view().is_err());
    worker.idle(|| {
        assert!(hash.set("f", "v").unwrap() && !tree.put("k", "v").unwrap());
        store.checkpoint().unwrap();
    });
    assert!(matches!(hash.set("f", "v"), Err(OpError::Busy)));
    let alone = worker.stop_others().unwrap();
    assert!(matches!(worker.stop_others(), Err(OpError::Busy)));
    store.checkpoint().unwrap();
    drop(alone);
    drop(worker);
    assert!(!hash.set("f", "v").unwrap());
    assert!(store.nonblocking_worker().is_ok());
}

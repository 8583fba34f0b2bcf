//! Workers as a program has them: several, forgotten, asleep, beside handles, in other threads.

use std::sync::mpsc;
use std::time::Duration;

use stillframe_store::{Deadline, NewValue, OpError, Options};
use stillframe_testkit::TempDir;

use crate::{checkpoint_elsewhere, get, in_time, open, set, DB};

/// E7a, b, d: a checkpoint beside workers and handles of the same thread, one of which has been leaked.
#[test]
fn any_number_of_workers_and_handles_may_be_in_a_thread() {
    let dir = TempDir::new("several");
    let store = open(&dir, Options::default());
    in_time("a thread with several workers", move || {
        let (mut a, mut b) = (store.worker(), store.worker());
        std::mem::forget(store.worker());
        let (hash, tree) = (store.hash("h"), store.tree("t").unwrap());
        std::mem::forget(store.hash("leaked"));
        for round in 0..5 {
            set(&mut a, "k", format!("{round}").as_bytes()).unwrap();
            assert_eq!(get(&mut b, "k").unwrap(), Some(format!("{round}").into_bytes()));
            tree.put("a", "b").unwrap();
            hash.set("f", "v").unwrap();
            store.checkpoint().unwrap();
            drop(store.view().unwrap());
            checkpoint_elsewhere(&store).unwrap();
        }
        let key = a.key(b"k");
        let inner =
            a.get(DB, &key, |_| b.set(DB, &key, NewValue::Bytes { bytes: b"w", raw: true }, Deadline::Clear));
        assert!(matches!(inner, Ok(Some(Err(OpError::Busy)))));
        b.database(DB).flush().unwrap();
        assert!(store.drop_tree("t").unwrap());
    });
}

/// Keys that a worker locks before its first operation are locked, also if it has been the only one until then.
#[test]
fn a_worker_that_has_been_alone_locks_what_it_says() {
    let dir = TempDir::new("locks-alone");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let key = worker.key(b"k");
    let locks = worker.lock(&[(DB, key)], true);
    let (told, has_set) = mpsc::channel();
    let other = store.clone();
    let sets = std::thread::spawn(move || {
        set(&mut other.worker(), "k", b"other").unwrap();
        told.send(()).unwrap();
    });
    assert!(has_set.recv_timeout(Duration::from_millis(200)).is_err(), "the key is locked");
    set(&mut worker, "k", b"own").unwrap();
    drop(locks);
    in_time("the other worker", move || has_set.recv().unwrap());
    sets.join().unwrap();
    assert_eq!(get(&mut worker, "k").unwrap(), Some(b"other".to_vec()));
}

/// E7c: nobody waits for a thread that sleeps between two calls; it wakes only when all others have gone on.
#[test]
fn nobody_waits_for_a_worker_that_sleeps() {
    let dir = TempDir::new("sleeps");
    let store = open(&dir, Options::default());
    let (has_slept, sleeps) = mpsc::channel::<()>();
    let (told, begun) = mpsc::channel();
    let sleeper = store.clone();
    let asleep = std::thread::spawn(move || {
        let mut worker = sleeper.worker();
        set(&mut worker, "k", b"v").unwrap();
        told.send(()).unwrap();
        sleeps.recv().unwrap();
        set(&mut worker, "k", b"w").unwrap();
    });
    begun.recv().unwrap();
    let others = store.clone();
    in_time("what others do", move || {
        others.checkpoint().unwrap();
        others.tree("t").unwrap().put("a", "b").unwrap();
        others.worker().database(DB).flush().unwrap();
        others.drop_tree("t").unwrap();
    });
    has_slept.send(()).unwrap();
    asleep.join().unwrap();
    assert_eq!(get(&mut store.worker(), "k").unwrap().as_deref(), Some(&b"w"[..]));
}

/// A worker goes from thread to thread, and ends elsewhere.
#[test]
fn a_worker_may_change_threads() {
    let dir = TempDir::new("moves");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    for number in 0..5 {
        let (other, name) = (store.clone(), format!("{number}"));
        worker = in_time("a worker in another thread", move || {
            set(&mut worker, &name, b"v").unwrap();
            other.hash("h").set(&name, "v").unwrap();
            other.checkpoint().unwrap();
            worker
        });
        set(&mut worker, "here", b"v").unwrap();
        store.checkpoint().unwrap();
    }
    in_time("its end", move || drop(worker));
    store.checkpoint().unwrap();
}

/// A nonblocking worker runs on: a thread that waits for one that has been leaked, or sleeps, is told so.
#[test]
fn a_nonblocking_worker_that_does_not_come_is_named() {
    let dir = TempDir::new("leaked-batch");
    let options = Options { cut_patience: Some(Duration::from_millis(200)), ..Options::default() };
    let store = open(&dir, options);
    let leaked = store.clone();
    let thread = std::thread::Builder::new().name("the leaky one".into());
    let leak = move || std::mem::forget(leaked.nonblocking_worker().unwrap());
    thread.spawn(leak).unwrap().join().unwrap();
    let error = checkpoint_elsewhere(&store).unwrap_err().to_string();
    assert!(error.contains("'the leaky one'"), "{error}");
    // The others go on.
    let tree = store.tree("t").unwrap();
    in_time("an operation", {
        let store = store.clone();
        move || store.tree("t").unwrap().put("a", "b").unwrap()
    });
    assert_eq!(tree.len().unwrap(), 1);
}

/// After a restart nothing is in memory, and a worker waits for what it needs.
#[test]
fn a_worker_reads_what_is_not_in_memory() {
    const COUNT: u32 = 20_000;
    let dir = TempDir::new("restart");
    let options = Options { memory_bytes: 12 << 20, ..Options::default() };
    let store = open(&dir, options.clone());
    let mut worker = store.worker();
    for number in 0..COUNT {
        set(&mut worker, &format!("{number}"), &[b'v'; 400]).unwrap();
    }
    drop(worker);
    store.checkpoint().unwrap();
    drop(store);
    let store = open(&dir, options);
    let mut worker = store.worker();
    for number in (0..COUNT).step_by(3) {
        assert_eq!(get(&mut worker, &format!("{number}")).unwrap().map(|value| value.len()), Some(400));
    }
    let mut found = 0;
    let mut cursor = 0;
    loop {
        cursor = worker.database(DB).scan(cursor, 100, |_, _| found += 1).unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert!(found >= COUNT);
}

/// Its clock is the system's, unless it is given another.
#[test]
fn deadlines_go_by_the_clock() {
    let dir = TempDir::new("clock");
    let store = open(&dir, Options::default());
    let mut worker = store.worker();
    let key = worker.key(b"k");
    let deadline = worker.now() + 50;
    assert!(deadline > 1_700_000_000_000);
    worker.set(DB, &key, NewValue::Int(1), Deadline::At(deadline)).unwrap();
    while worker.now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(worker.get(DB, &key, |value| value.len()).unwrap().is_none());
    worker.set_now(1_000);
    worker.set(DB, &key, NewValue::Int(1), Deadline::At(2_000)).unwrap();
    assert!(worker.get(DB, &key, |value| value.len()).unwrap().is_some());
    worker.set_now(2_000);
    assert!(worker.get(DB, &key, |value| value.len()).unwrap().is_none());
}

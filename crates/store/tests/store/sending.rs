//! Large values that are read in parts: they stay as they were, whatever happens to their keys meanwhile.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stillframe_store::{
    DbId, Deadline, Duplicate, Fault, NewValue, OpError, Options, Sending, Store, StrRef, Worker,
};
use stillframe_testkit::TempDir;

use crate::contract::wait_for_garbage;
use crate::open;
use crate::restart::wait_until_warm;

const DB: DbId = DbId(0);
const LEN: usize = 1_500_003;

fn bytes(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn set(worker: &mut Worker, name: &str, value: &[u8]) {
    let key = worker.key(name.as_bytes());
    worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: false }, Deadline::Clear).unwrap();
}

fn begin(worker: &mut Worker, name: &str) -> Option<Sending> {
    let key = worker.key(name.as_bytes());
    worker.string_at(DB, &key).begin_sending(|len| 0..len).unwrap()
}

/// All of it, in parts that end anywhere.
fn read(worker: &mut Worker, sending: &Sending) -> Vec<u8> {
    let (mut all, mut random) = (Vec::new(), fastrand::Rng::with_seed(7));
    while (all.len() as u64) < sending.len_bytes() {
        let start = all.len() as u64;
        let take = |parts: &[IoSlice<'_>]| parts.iter().for_each(|part| all.extend_from_slice(part));
        sending.with_parts(start, random.usize(1..200_000), take).unwrap();
        worker.quiesce();
    }
    assert!(sending
        .with_parts(sending.len_bytes(), 100, |parts| parts.iter().all(|part| part.is_empty()))
        .unwrap());
    all
}

fn allocated(store: &Store) -> u64 {
    store.pool().stats().allocated_pages
}

/// A store with a short value beside those that a test is about, and the pages that it takes.
fn with_other() -> (TempDir, Store, Worker, u64) {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    set(&mut worker, "other", b"x");
    let before = allocated(&store);
    (dir, store, worker, before)
}

type Change = fn(&mut Worker, &[u8]);

/// Everything that can happen to a key whose value is being read.
#[test]
fn a_value_stays_as_it_was_when_it_was_asked_for() {
    let (_dir, store, mut worker, before) = with_other();
    let (old, new) = (bytes(1), bytes(2));
    let changes: [(&str, Change); 9] = [
        ("nothing", |_, _| ()),
        ("the same length", |worker, new| set(worker, "key", new)),
        ("a shorter value", |worker, _| set(worker, "key", b"short")),
        ("a part", |worker, new| {
            let key = worker.key(b"key");
            worker.string_at(DB, &key).write_range(700_000, &new[..5_000]).unwrap();
        }),
        ("more", |worker, new| {
            let key = worker.key(b"key");
            worker.string_at(DB, &key).write_range(LEN as u64, new).unwrap();
        }),
        ("removal", |worker, _| {
            let key = worker.key(b"key");
            worker.remove(DB, &key).unwrap();
        }),
        ("another name", |worker, _| {
            let (key, other) = (worker.key(b"key").detach(), worker.key(b"other").detach());
            worker.rename((DB, &key.attach(b"key")), (DB, &other.attach(b"other"))).unwrap();
            set(worker, "other", b"x");
        }),
        ("emptying", |worker, _| worker.database(DB).flush().unwrap()),
        ("its end", |worker, _| {
            let key = worker.key(b"key");
            worker.set_deadline(DB, &key, Some(worker.now() + 1)).unwrap();
            worker.set_now(worker.now() + 2);
            assert!(worker.entry(DB, &key).unwrap().is_none());
        }),
    ];
    for (what, change) in changes {
        set(&mut worker, "other", b"x");
        set(&mut worker, "key", &old);
        let sending = begin(&mut worker, "key").expect("it is large");
        let again = begin(&mut worker, "key").expect("there can be two readers");
        change(&mut worker, &new);
        worker.idle(|| store.checkpoint()).unwrap();
        drop(again);
        worker.quiesce();
        assert!(read(&mut worker, &sending) == old, "{what}");
        worker.idle(|| store.check()).unwrap();
        drop(sending);
        worker.database(DB).flush().unwrap();
        wait_for_garbage(&store, &mut worker);
        set(&mut worker, "other", b"x");
        assert_eq!(allocated(&store), before, "{what}");
    }
}

/// Readers beside writers, and saves: each value is one byte over and over, so a reader who sees two has seen a write.
#[test]
fn readers_beside_writers_see_one_value_each() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: 4, ..Options::default() });
    let stop = AtomicBool::new(false);
    let read_count = AtomicU64::new(0);
    let seed = stillframe_testkit::seed();
    std::thread::scope(|scope| {
        let (store, stop, read_count) = (&store, &stop, &read_count);
        for thread in 0..2 {
            scope.spawn(move || {
                let (mut worker, mut random) =
                    (store.nonblocking_worker().unwrap(), fastrand::Rng::with_seed(seed ^ thread));
                while !stop.load(Ordering::Relaxed) {
                    let name = NAMES[random.usize(..3)];
                    let key = worker.key(name.as_bytes());
                    match random.u8(..8) {
                        0 => drop(worker.remove(DB, &key).unwrap()),
                        1 => worker.database(DB).flush().unwrap(),
                        _ => set(
                            &mut worker,
                            name,
                            &vec![random.u8(..); 300_000 + random.usize(..3) * 100_000],
                        ),
                    }
                    worker.quiesce();
                }
            });
            scope.spawn(move || {
                let (mut worker, mut random) =
                    (store.nonblocking_worker().unwrap(), fastrand::Rng::with_seed(seed ^ thread << 8));
                while !stop.load(Ordering::Relaxed) {
                    if let Some(sending) = begin(&mut worker, NAMES[random.usize(..3)]) {
                        let all = read(&mut worker, &sending);
                        assert!(all.iter().all(|byte| *byte == all[0]), "two values in one");
                        read_count.fetch_add(1, Ordering::Relaxed);
                    }
                    worker.quiesce();
                }
            });
        }
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(50));
            store.checkpoint().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(read_count.load(Ordering::Relaxed) > 10);
    let mut worker = store.nonblocking_worker().unwrap();
    wait_for_garbage(&store, &mut worker);
    worker.idle(|| store.check()).unwrap();
}

#[test]
fn values_that_are_copied_sooner_are_not_kept() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    assert!(begin(&mut worker, "absent").is_none());
    set(&mut worker, "small", &[1; 200_000]);
    assert!(begin(&mut worker, "small").is_none());
    let names: Vec<_> = (0..400).map(|i| format!("large:{i}")).collect();
    let value = bytes(1);
    names.iter().for_each(|name| set(&mut worker, name, &value[..300_000]));
    let kept: Vec<_> = names.iter().map_while(|name| begin(&mut worker, name)).collect();
    assert!(kept.len() > 100 && kept.len() < 400, "{}", kept.len());
    let begun: Vec<_> = std::iter::from_fn(|| worker.begin_incoming(1 << 20).ok()).take(400).collect();
    worker.database(DB).flush().unwrap();
    worker.idle(|| store.checkpoint()).expect("all of them fit a catalog");
    assert!(begun.len() > 100 && begun.len() < 400, "{}", begun.len());
    for sending in &kept {
        assert!(read(&mut worker, sending) == value[..300_000]);
    }
    worker.idle(|| drop((kept, begun)));
    wait_for_garbage(&store, &mut worker);
    worker.idle(|| store.check()).unwrap();
}

/// What was removed while it was read is garbage to a cut: nothing of it is left after a restart.
#[test]
fn a_restart_frees_what_was_being_read() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    set(&mut worker, "other", b"x");
    worker.idle(|| store.checkpoint()).unwrap();
    let before = allocated(&store);
    set(&mut worker, "key", &bytes(1));
    let sending = begin(&mut worker, "key").expect("it is large");
    let key = worker.key(b"key");
    worker.remove(DB, &key).unwrap();
    worker.idle(|| store.checkpoint()).unwrap();
    // As after a crash: what is done from here on is not saved.
    drop((sending, worker, store));
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    wait_for_garbage(&store, &mut worker);
    assert_eq!(allocated(&store), before);
    worker.idle(|| store.check()).unwrap();
}

fn load(store: &Store, worker: &mut Worker, fault: Fault) {
    let (done, is_done) = std::sync::mpsc::channel();
    store.load(fault, Box::new(move || done.send(()).unwrap()));
    worker.idle(|| is_done.recv()).unwrap();
}

/// Values of three times the memory, and two readers: each finds what it asks for, part by part, and nobody waits for ever.
#[test]
fn values_larger_than_memory_are_read_by_parts() {
    const LARGE: usize = 24 << 20;
    let dir = TempDir::new("store");
    let store = open(&dir, Options { tiered_bytes: 8 << 20, worker_count: 2, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let mut value = vec![0; LARGE];
    fastrand::Rng::with_seed(stillframe_testkit::seed()).fill(&mut value);
    let mut incoming = worker.begin_incoming(LARGE as u64).unwrap();
    for part in value.chunks(100_000) {
        while let Err(error) = incoming.append(part) {
            let OpError::Fault(fault) = error else { panic!("{error}") };
            load(&store, &mut worker, fault);
        }
        incoming.awaited_room().into_iter().for_each(|fault| load(&store, &mut worker, fault));
    }
    let key = worker.key(b"key");
    worker.set(DB, &key, NewValue::Incoming(&incoming), Deadline::Clear).unwrap();
    drop(incoming);
    assert!(matches!(worker.get(DB, &key, |_| ()), Err(OpError::LargerThanMemory { .. })));
    drop(worker);
    std::thread::scope(|scope| {
        for first in [0, 5_000_001] {
            let (store, value) = (&store, &value);
            scope.spawn(move || {
                let mut worker = store.nonblocking_worker().unwrap();
                let key = worker.key(b"key");
                let sending =
                    worker.string_at(DB, &key).begin_sending(|len| first..len).unwrap().expect("it is large");
                let mut at = 0;
                while at < sending.len_bytes() {
                    let mut part = Vec::new();
                    let take =
                        |parts: &[IoSlice<'_>]| parts.iter().for_each(|some| part.extend_from_slice(some));
                    match sending.with_parts(at, 150_000, take) {
                        Ok(()) => {
                            let from = (first + at) as usize;
                            assert!(!part.is_empty() && part == value[from..from + part.len()]);
                            at += part.len() as u64;
                        }
                        Err(OpError::Fault(fault)) => load(store, &mut worker, fault),
                        Err(error) => panic!("{error}"),
                    }
                    if let Some(fault) = sending.ahead(at) {
                        store.load(fault, Box::new(|| ()));
                    }
                    worker.quiesce();
                }
            });
        }
    });
    assert!(store.pool().room().evicts());
    let mut worker = store.nonblocking_worker().unwrap();
    let part = |worker: &mut Worker| {
        let bytes = |value: StrRef<'_>| {
            let mut part = Vec::new();
            value.chunks(20_000_000, 20_010_000, |chunk| part.extend_from_slice(chunk));
            part
        };
        worker.string_at(DB, &worker.key(b"key")).get_part(|_| 20_000_000..20_010_000, bytes)
    };
    let found = loop {
        match part(&mut worker) {
            Err(OpError::Fault(fault)) => load(&store, &mut worker, fault),
            found => break found.unwrap().expect("it is there"),
        }
    };
    assert!(found == value[20_000_000..20_010_000]);
}

fn finish(worker: &mut Worker, copy: &mut Duplicate) {
    while !copy.step().unwrap() {
        worker.quiesce();
    }
}

fn get(worker: &mut Worker, name: &[u8]) -> Vec<u8> {
    let key = worker.key(name);
    worker.get(DB, &key, |value| value.to_vec()).unwrap().expect("it is there")
}

/// A copy takes the place of its source, or becomes a value of its own, as long as the source is what it was.
#[test]
fn a_copy_made_by_parts_is_used_if_its_source_is_still_there() {
    let (_dir, store, mut worker, before) = with_other();
    let (old, new) = (bytes(1), bytes(2));
    set(&mut worker, "key", &old);
    let key = worker.key(b"key");
    let other = worker.key(b"other");
    assert!(worker.string_at(DB, &key).begin_duplicate(true).unwrap().is_none(), "nobody reads it");
    assert!(worker.string_at(DB, &other).begin_duplicate(false).unwrap().is_none(), "it is short");

    let reader = begin(&mut worker, "key").expect("it is large");
    let mut copy = worker.string_at(DB, &key).begin_duplicate(true).unwrap().expect("somebody reads it");
    assert!(!copy.step().unwrap());
    worker.idle(|| store.checkpoint()).unwrap();
    finish(&mut worker, &mut copy);
    assert!(worker.string_at(DB, &key).is_source(&copy).unwrap());
    assert!(worker.string_at(DB, &key).replace_by_duplicate(&copy).unwrap());
    assert!(
        !worker.string_at(DB, &key).replace_by_duplicate(&copy).unwrap(),
        "the source is another one now"
    );
    drop(copy);
    let pages = allocated(&store);
    worker.string_at(DB, &key).write_range(700_000, b"changed").unwrap();
    assert_eq!(allocated(&store), pages, "it is changed in place");
    assert!(get(&mut worker, b"key")[700_000..].starts_with(b"changed"));
    assert!(read(&mut worker, &reader) == old);
    drop(reader);

    let changed = get(&mut worker, b"key");
    let mut copy = worker.string_at(DB, &key).begin_duplicate(false).unwrap().expect("it is large");
    finish(&mut worker, &mut copy);
    assert!(worker.copy_duplicate((DB, &key), (DB, &other), &copy).unwrap());
    drop(copy);
    assert!(get(&mut worker, b"other") == changed && get(&mut worker, b"key") == changed);

    let changes: [Change; 3] = [
        |worker, new| set(worker, "key", new),
        |worker, new| {
            let key = worker.key(b"key");
            worker.string_at(DB, &key).write_range(5, &new[..10]).unwrap();
        },
        |worker, _| {
            let key = worker.key(b"key");
            worker.remove(DB, &key).unwrap();
        },
    ];
    for change in changes {
        let mut copy = worker.string_at(DB, &key).begin_duplicate(false).unwrap().expect("it is large");
        assert!(!copy.step().unwrap());
        change(&mut worker, &new);
        finish(&mut worker, &mut copy);
        assert!(!worker.string_at(DB, &key).is_source(&copy).unwrap());
        assert!(!worker.string_at(DB, &key).replace_by_duplicate(&copy).unwrap());
        worker.idle(|| drop(copy));
    }
    set(&mut worker, "other", b"x");
    wait_for_garbage(&store, &mut worker);
    worker.idle(|| store.check()).unwrap();
    assert_eq!(allocated(&store), before);
}

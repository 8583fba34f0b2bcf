//! Values that come in parts: one step makes them part of the data, and until then they belong to nobody.

use std::io::{IoSliceMut, Read};

use stillframe_store::{DbId, Deadline, Incoming, NewValue, OpError, Options, Store, Worker};
use stillframe_testkit::TempDir;

use crate::contract::wait_for_garbage;
use crate::open;
use crate::restart::wait_until_warm;

const DB: DbId = DbId(0);
const LEN: usize = 3_000_001;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Lets the bytes up to `end` come, in parts that end anywhere.
fn fill(worker: &mut Worker, incoming: &mut Incoming, value: &[u8], end: usize) {
    let mut random = fastrand::Rng::with_seed(end as u64);
    while (incoming.filled_bytes() as usize) < end {
        let from = incoming.filled_bytes() as usize;
        let most = random.usize(1..200_000);
        let mut rest = &value[from..end.min(from + random.usize(1..=most))];
        let fill = |room: &mut [IoSliceMut<'_>]| rest.read_vectored(room).unwrap();
        incoming.fill(most, fill).unwrap();
        worker.quiesce();
    }
}

fn set(worker: &mut Worker, name: &str, value: NewValue<'_>) {
    let key = worker.key(name.as_bytes());
    worker.set(DB, &key, value, Deadline::Clear).unwrap();
}

fn get(worker: &mut Worker, name: &str) -> Option<Vec<u8>> {
    let key = worker.key(name.as_bytes());
    worker.get(DB, &key, |value| value.to_vec()).unwrap()
}

fn allocated(store: &Store) -> u64 {
    store.pool().stats().allocated_pages
}

#[test]
fn a_value_that_came_in_parts_is_like_any_other() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { checkpoint_on_drop: false, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let value = bytes(1, LEN);
    set(&mut worker, "whole", NewValue::Bytes { bytes: &value, raw: false });
    let before = allocated(&store);
    let mut incoming = worker.begin_incoming(LEN as u64).unwrap();
    fill(&mut worker, &mut incoming, &value, LEN);
    set(&mut worker, "parts", NewValue::Incoming(&incoming));
    drop(incoming);
    assert_eq!(allocated(&store) - before, LEN.div_ceil(4096) as u64);
    let of =
        |worker: &mut Worker, name: &str| worker.entry(DB, &worker.key(name.as_bytes())).unwrap().unwrap();
    let (whole, parts) = (of(&mut worker, "whole"), of(&mut worker, "parts"));
    assert_eq!(
        (whole.encoding, whole.value_bytes, whole.memory_bytes),
        (parts.encoding, parts.value_bytes, parts.memory_bytes)
    );
    worker.idle(|| store.checkpoint()).unwrap();
    let key = worker.key(b"parts");
    worker.string_at(DB, &key).write_range(LEN as u64, b"and more").unwrap();
    drop((worker, store));
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    assert_eq!(get(&mut worker, "parts").as_deref(), Some(&value[..]));
    drop(worker);
    store.check().unwrap();
}

#[test]
fn what_nobody_wants_is_freed() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    let before = allocated(&store);
    let value = bytes(2, LEN);
    let mut half = worker.begin_incoming(LEN as u64).unwrap();
    fill(&mut worker, &mut half, &value, LEN / 2);
    assert_eq!(half.filled_bytes() as usize, LEN / 2);
    let mut whole = worker.begin_incoming(LEN as u64).unwrap();
    fill(&mut worker, &mut whole, &value, LEN);
    let key = worker.key(b"over");
    // A deadline in the past stores nothing.
    worker.set(DB, &key, NewValue::Incoming(&whole), Deadline::At(worker.now())).unwrap();
    worker.idle(|| drop((half, whole)));
    wait_for_garbage(&store, &mut worker);
    assert_eq!(allocated(&store), before);
    assert!(matches!(worker.begin_incoming(1 << 30), Err(OpError::TooLarge)));
    assert!(matches!(worker.begin_incoming(100), Err(OpError::TooSmall)));
    worker.idle(|| store.check()).unwrap();
}

#[test]
fn an_announced_length_takes_no_memory() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { maxmemory_bytes: 64 << 20, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let before = allocated(&store);
    let begun: Vec<_> = std::iter::from_fn(|| worker.begin_incoming(512 << 20).ok()).take(1_000).collect();
    assert!(begun.len() > 50 && begun.len() < 1_000, "{} at a time", begun.len());
    assert!(allocated(&store) - before < 64 * begun.len() as u64);
    worker.idle(|| store.checkpoint()).expect("they fit a catalog");
    drop(begun);
    wait_for_garbage(&store, &mut worker);
    assert_eq!(allocated(&store), before);
    let mut large = worker.begin_incoming(128 << 20).unwrap();
    let part = vec![0; 1 << 20];
    let error = loop {
        match large.append(&part) {
            Ok(_) => worker.quiesce(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, OpError::OutOfMemory { .. }), "{error}");
    assert!(large.filled_bytes() > 32 << 20 && !large.is_complete());
}

/// A cut in the middle, with what was there before still there; what restarts from it frees what had come.
#[test]
fn to_a_cut_what_arrives_is_garbage() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { checkpoint_on_drop: false, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    set(&mut worker, "key", NewValue::Bytes { bytes: b"old", raw: false });
    worker.idle(|| store.checkpoint()).unwrap();
    let without = allocated(&store);
    let value = bytes(3, LEN);
    let mut incoming = worker.begin_incoming(LEN as u64).unwrap();
    fill(&mut worker, &mut incoming, &value, LEN / 3);
    let view = worker.idle(|| store.view()).unwrap();
    worker.idle(|| store.checkpoint()).unwrap();
    fill(&mut worker, &mut incoming, &value, LEN);
    set(&mut worker, "key", NewValue::Incoming(&incoming));
    assert_eq!(get(&mut worker, "key").as_deref(), Some(&value[..]));
    drop((incoming, view));
    worker.idle(|| store.check()).unwrap();
    drop((worker, store));

    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    wait_until_warm(&store, &mut worker);
    assert_eq!(get(&mut worker, "key").as_deref(), Some(&b"old"[..]));
    wait_for_garbage(&store, &mut worker);
    assert_eq!(allocated(&store), without);
    worker.idle(|| store.check()).unwrap();
}

//! A command on many elements waits for all of their pages at once, not for one after the other.

use std::sync::mpsc::channel;
use std::sync::Arc;

use fastrand::Rng;
use stillframe_pagepool::device::SimDevice;
use stillframe_store::{DbId, Deadline, FieldMode, NewValue, OpError, ScoreRule, Worker};

use crate::collections_model::load;
use crate::model::{open_in_little_memory, Opened};

const DB: DbId = DbId(0);
const MEMBER_COUNT: u32 = 30_000;
const LOOKED_FOR: usize = 200;
/// More than memory has room for.
const FILLER_COUNT: u32 = 100;
const FILLER_BYTES: usize = 100_000;
const LONG_BYTES: usize = 300_000;
/// The key's leaf, three levels of two trees, slabs, and a page that had to go meanwhile.
const FAULTS_MAX: usize = 12;

fn member(number: u32) -> Vec<u8> {
    format!("member:{number:08}").into_bytes()
}

/// Runs an operation until its pages are in memory; how often it had to wait.
fn faults(opened: &mut Opened, mut op: impl FnMut(&mut Worker) -> Result<(), OpError>) -> usize {
    let mut count = 0;
    loop {
        opened.worker.quiesce();
        if opened.store.is_full() {
            load(&opened.store, &mut opened.worker, stillframe_store::Fault::room());
        }
        match op(&mut opened.worker) {
            Ok(()) => return count,
            Err(OpError::Fault(fault)) => {
                count += 1;
                let (sender, receiver) = channel();
                opened.store.load(fault, Box::new(move || sender.send(()).expect("the test waits")));
                opened.worker.idle(|| receiver.recv().expect("the load ends"));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn change(worker: &mut Worker, members: &[Vec<u8>], score: f64) -> Result<(), OpError> {
    let names: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|name| (*name, *name)).collect();
    let scored: Vec<(f64, &[u8])> = names.iter().map(|name| (score, *name)).collect();
    worker.set_at(DB, &worker.key(b"set")).add(&names)?;
    worker.hash_at(DB, &worker.key(b"hash")).set(&pairs, FieldMode::All, Deadline::Keep)?;
    worker.sorted_set_at(DB, &worker.key(b"sorted")).put(&scored, &ScoreRule::default()).map(drop)
}

fn filler(number: u32) -> Vec<u8> {
    format!("filler:{number}").into_bytes()
}

fn fill(opened: &mut Opened) {
    for number in 0..FILLER_COUNT {
        let value = vec![number as u8; FILLER_BYTES];
        faults(opened, |worker| {
            let value = NewValue::Bytes { bytes: &value, raw: false };
            worker.set(DB, &worker.key(&filler(number)), value, Deadline::Clear).map(drop)
        });
    }
}

/// Memory is full of what [`fill`] has put there.
fn evict_others(opened: &mut Opened) {
    for number in (0..FILLER_COUNT).chain(0..FILLER_COUNT) {
        faults(opened, |worker| worker.get(DB, &worker.key(&filler(number)), |_| ()).map(drop));
    }
}

#[test]
fn pages_of_many_elements_are_waited_for_together() {
    let mut opened = open_in_little_memory(&Arc::new(SimDevice::new(5))).expect("a new store");
    let numbers: Vec<u32> = (0..MEMBER_COUNT).collect();
    for some in numbers.chunks(100) {
        let members: Vec<_> = some.iter().map(|number| member(*number)).collect();
        faults(&mut opened, |worker| change(worker, &members, f64::from(some[0])));
    }
    fill(&mut opened);
    let mut rng = Rng::with_seed(5);
    let some: Vec<Vec<u8>> = (0..LOOKED_FOR).map(|_| member(rng.u32(..MEMBER_COUNT))).collect();
    let names: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
    type Op<'a> = Box<dyn FnMut(&mut Worker) -> Result<(), OpError> + 'a>;
    let each = || names.iter().copied();
    let (set, hash, sorted) = (b"set", b"hash", b"sorted");
    let ops: Vec<(&str, Op<'_>)> = vec![
        ("SMISMEMBER", Box::new(|w| w.set_at(DB, &w.key(set)).contains(each(), |_, _| ()).map(drop))),
        ("HMGET", Box::new(|w| w.hash_at(DB, &w.key(hash)).get(each(), |_, _| ()).map(drop))),
        ("ZMSCORE", Box::new(|w| w.sorted_set_at(DB, &w.key(sorted)).scores(each(), |_, _| ()).map(drop))),
        ("SADD, HSET and ZADD", Box::new(|w| change(w, &some, -1.0))),
        ("SREM", Box::new(|w| w.set_at(DB, &w.key(set)).remove(&names).map(drop))),
        ("HDEL", Box::new(|w| w.hash_at(DB, &w.key(hash)).remove(&names).map(drop))),
        ("ZREM", Box::new(|w| w.sorted_set_at(DB, &w.key(sorted)).remove(&names).map(drop))),
    ];
    for (name, mut op) in ops {
        evict_others(&mut opened);
        let count = faults(&mut opened, &mut op);
        println!("{name}: {count}");
        assert!((1..=3 * FAULTS_MAX).contains(&count), "{name} waited {count} times");
        assert!(name.contains("and") || count <= FAULTS_MAX, "{name} waited {count} times");
    }
    opened.check();
}

#[test]
fn pages_of_a_long_name_are_waited_for_together() {
    let mut opened = open_in_little_memory(&Arc::new(SimDevice::new(6))).expect("a new store");
    let long = vec![b'n'; LONG_BYTES];
    faults(&mut opened, |worker| change(worker, std::slice::from_ref(&long), 1.0));
    fill(&mut opened);
    type Op<'a> = Box<dyn FnMut(&mut Worker) -> Result<(), OpError> + 'a>;
    let name = || [long.as_slice()].into_iter();
    let is_long = |name: &[u8]| assert_eq!(name.len(), LONG_BYTES);
    let ops: Vec<(&str, Op<'_>)> = vec![
        ("SISMEMBER", Box::new(|w| w.set_at(DB, &w.key(b"set")).contains(name(), |_, _| ()).map(drop))),
        ("HGET", Box::new(|w| w.hash_at(DB, &w.key(b"hash")).get(name(), |_, _| ()).map(drop))),
        ("ZSCORE", Box::new(|w| w.sorted_set_at(DB, &w.key(b"sorted")).scores(name(), |_, _| ()).map(drop))),
        ("SSCAN", Box::new(|w| w.set_at(DB, &w.key(b"set")).scan(0, 10, is_long).map(drop))),
    ];
    for (name, mut op) in ops {
        evict_others(&mut opened);
        let count = faults(&mut opened, &mut op);
        println!("{name}: {count}");
        assert!((1..=FAULTS_MAX).contains(&count), "{name} waited {count} times");
    }
    opened.check();
}

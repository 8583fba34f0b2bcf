//! A worker that waits: right after a restart, and with data larger than memory, no operation says that a page is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use stillframe_store::{
    DbId, Deadline, Draw, End, FieldMode, NewValue, OpError, Options, ScoreRule, ScoredRange, Worker,
};
use stillframe_testkit::TempDir;

use crate::open;

const DB: DbId = DbId(0);
const KEYS: u32 = 20_000;
const ELEMENTS: u32 = 5_000;
const LONG: usize = 3_000_000;

fn value_of(number: u32) -> Vec<u8> {
    vec![number as u8; [20, 400, 400, 3_000][number as usize % 4]]
}

fn fill(worker: &mut Worker) {
    for number in 0..KEYS {
        let name = format!("k{number}");
        let (key, value) = (worker.key(name.as_bytes()), value_of(number));
        worker.set(DB, &key, NewValue::Bytes { bytes: &value, raw: true }, Deadline::Clear).unwrap();
        worker.quiesce();
    }
    let [hash, set, list, sorted, long] = keys(worker);
    for number in 0..ELEMENTS {
        let (name, value) = (format!("e{number}"), vec![b'v'; 200]);
        let name = name.as_bytes();
        worker.hash_at(DB, &hash).set(&[(name, &value[..])], FieldMode::All, Deadline::Clear).unwrap();
        worker.set_at(DB, &set).add(&[name]).unwrap();
        worker.list_at(DB, &list).push(End::Right, &[name], false).unwrap();
        worker.sorted_set_at(DB, &sorted).put(&[(f64::from(number), name)], &ScoreRule::default()).unwrap();
        worker.quiesce();
    }
    let value = vec![b'l'; LONG];
    worker.set(DB, &long, NewValue::Bytes { bytes: &value, raw: true }, Deadline::Clear).unwrap();
}

fn keys(worker: &Worker) -> [stillframe_store::Key<'static>; 5] {
    [&b"hash"[..], b"set", b"list", b"sorted", b"long"].map(|name| worker.key(name))
}

/// Every operation on keys, in an order that no page is in.
fn strings(worker: &mut Worker) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut order: Vec<u32> = (0..KEYS).collect();
    random.shuffle(&mut order);
    for number in order {
        let name = format!("k{number}");
        let key = worker.key(name.as_bytes());
        let found = worker.get(DB, &key, |value| value.to_vec()).unwrap();
        assert!(found == Some(value_of(number)), "{name}");
        match number % 16 {
            0 => assert_eq!(
                worker.string_at(DB, &key).write_range(0, b"w").unwrap() as usize,
                value_of(number).len()
            ),
            1 => assert!(worker.set(DB, &key, NewValue::Int(1), Deadline::Clear).unwrap()),
            2 => assert!(worker.remove(DB, &key).unwrap()),
            3 => assert!(worker.rename((DB, &key), (DbId(1), &key)).unwrap()),
            4 => assert!(worker.copy((DB, &key), (DbId(2), &key)).unwrap()),
            _ => assert!(worker.entry(DB, &key).unwrap().is_some()),
        }
        worker.quiesce();
    }
}

/// Walks give each element once, whatever they begin anew.
fn walks(worker: &mut Worker) {
    let [hash, set, list, sorted, _] = keys(worker);
    let mut names = BTreeMap::<Vec<u8>, u32>::new();
    let mut cursor = 0;
    loop {
        cursor = worker
            .database(DB)
            .scan(cursor, 100, |key, _| *names.entry(key.to_vec()).or_default() += 1)
            .unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert!(names.len() as u32 == KEYS + 5 && names.values().all(|count| *count == 1), "{}", names.len());
    let mut found = BTreeSet::new();
    loop {
        let next = worker
            .hash_at(DB, &hash)
            .scan(cursor, 50, |field| assert!(found.insert(field.field.to_vec())))
            .unwrap();
        cursor = next.unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(found.len() as u32, ELEMENTS);
    let (counted, given) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let begin = |count| {
        counted.set(count);
        given.set(0);
    };
    let mut take = |_: &[u8]| {
        given.set(given.get() + 1);
        ControlFlow::Continue(())
    };
    assert!(worker.set_at(DB, &set).for_each(begin, &mut take).unwrap());
    assert_eq!((counted.get(), given.get()), (u64::from(ELEMENTS), u64::from(ELEMENTS)));
    assert!(worker.list_at(DB, &list).range(0, -1, begin, &mut take).unwrap());
    assert_eq!((counted.get(), given.get()), (u64::from(ELEMENTS), u64::from(ELEMENTS)));
    let scored = |member: &[u8], _: f64| take(member);
    assert!(worker
        .sorted_set_at(DB, &sorted)
        .range(&ScoredRange::ALL, true, stillframe_store::RangeLimit::NONE, begin, scored)
        .unwrap());
    assert_eq!((counted.get(), given.get()), (u64::from(ELEMENTS), u64::from(ELEMENTS)));
    let mut places = Vec::new();
    worker
        .list_at(DB, &list)
        .pos(&b"e4321"[..], true, u64::MAX, |place| {
            places.push(place);
            true
        })
        .unwrap();
    assert_eq!(places, [4321]);
}

fn elements(worker: &mut Worker) {
    let [hash, set, list, sorted, long] = keys(worker);
    assert_eq!(
        worker.string_at(DB, &long).get_part(|_| 2_000_000..2_000_001, |value| value.len()).unwrap(),
        Some(LONG as u64)
    );
    assert_eq!(worker.get(DB, &long, |value| value.to_vec().len()).unwrap(), Some(LONG));
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..300 {
        let name = format!("e{}", random.u32(..ELEMENTS));
        let name = name.as_bytes();
        let mut is_there = [false; 3];
        worker.hash_at(DB, &hash).get([name].into_iter(), |_, value| is_there[0] = value.is_some()).unwrap();
        worker.set_at(DB, &set).contains([name].into_iter(), |_, found| is_there[1] = found).unwrap();
        worker
            .sorted_set_at(DB, &sorted)
            .scores([name].into_iter(), |_, score| is_there[2] = score.is_some())
            .unwrap();
        assert_eq!(is_there, [true; 3]);
        assert!(worker.sorted_set_at(DB, &sorted).rank(name, false).unwrap().1.is_some());
        worker.hash_at(DB, &hash).set(&[(name, &b"other"[..])], FieldMode::All, Deadline::Clear).unwrap();
    }
    let taken = std::cell::Cell::new(0);
    let (begin, take) = (|_| taken.set(0), || taken.set(taken.get() + 1));
    worker.list_at(DB, &list).pop(End::Left, 100, begin, |_| take()).unwrap();
    assert_eq!(taken.get(), 100);
    worker.set_at(DB, &set).pop(100, begin, |_| take()).unwrap();
    assert_eq!(taken.get(), 100);
    let draw = |_: stillframe_store::FieldRef<'_>| {
        take();
        ControlFlow::Continue(())
    };
    worker.hash_at(DB, &hash).random(Draw::Distinct(100), begin, draw).unwrap();
    assert_eq!(taken.get(), 100);
    assert!(worker.memory_bytes(DB, &sorted).unwrap().is_some());
    worker.resolve(&[(DB, hash), (DB, long)]).unwrap();
}

fn run(options: Options) {
    let dir = TempDir::new("waiting");
    {
        let store = open(&dir, options.clone());
        fill(&mut store.worker());
        store.checkpoint().unwrap();
    }
    for part in [strings, walks, elements] {
        let store = open(&dir, Options { checkpoint_on_drop: false, ..options.clone() });
        let mut worker = store.worker();
        part(&mut worker);
        worker.idle(|| store.pool().residency().wait_until_warm());
    }
    // The other kind says what it misses.
    let store = open(&dir, options);
    let mut worker = store.nonblocking_worker().unwrap();
    let mut fault_count = 0;
    for number in 0..KEYS {
        let name = format!("k{number}");
        let key = worker.key(name.as_bytes());
        match worker.get(DB, &key, |value| value.len()) {
            Ok(found) => assert!(found.is_some()),
            Err(OpError::Fault(_)) => fault_count += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(fault_count > 0, "it does not wait");
}

#[test]
fn right_after_a_restart() {
    run(Options::default());
}

#[test]
fn beyond_memory() {
    run(Options {
        tiered_bytes: 12 << 20,
        snapshot_memory_bytes: 1 << 20,
        huge_pages: false,
        ..Options::default()
    });
}

/// In the midst of a standstill there is nobody to make room, and what is missing comes all the same.
#[test]
fn while_the_others_stand_still() {
    let dir = TempDir::new("waiting");
    let options = Options {
        tiered_bytes: 12 << 20,
        snapshot_memory_bytes: 1 << 20,
        huge_pages: false,
        ..Options::default()
    };
    {
        let store = open(&dir, options.clone());
        fill(&mut store.worker());
        store.checkpoint().unwrap();
    }
    let store = open(&dir, options);
    let mut worker = store.worker();
    let alone = worker.stop_others().unwrap();
    for number in 0..KEYS {
        let name = format!("k{number}");
        let key = worker.key(name.as_bytes());
        assert!(worker.get(DB, &key, |value| value.len()).unwrap().is_some(), "{name}");
    }
    drop(alone);
}

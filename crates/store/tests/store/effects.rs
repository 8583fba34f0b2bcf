//! Effects, replayed step by step on an empty store, make the same store again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_store::{
    DbId, Deadline, Effect, Key, Listener, NewValue, Options, Position, Step, Store, UnixMillis, Worker,
    WorkerId,
};

use stillframe_testkit::TempDir;

const DATABASES: u32 = 3;

/// An effect with its bytes.
enum Owned {
    Set(DbId, Vec<u8>, Result<i64, (Vec<u8>, bool)>, Deadline),
    Write(DbId, Vec<u8>, u64, Vec<u8>),
    Deadline(DbId, Vec<u8>, Option<UnixMillis>),
    Remove(DbId, Vec<u8>),
    Move((DbId, Vec<u8>), (DbId, Vec<u8>)),
    Copy((DbId, Vec<u8>), (DbId, Vec<u8>)),
    Flush(DbId),
    Swap(DbId, DbId),
}

impl Owned {
    fn of(effect: &Effect<'_>) -> Owned {
        let place = |(db, key): (DbId, stillframe_store::Key<'_>)| (db, key.bytes.to_vec());
        match *effect {
            Effect::Set { db, key, value, deadline, .. } => {
                let value = match value {
                    NewValue::Int(int) => Ok(int),
                    NewValue::Bytes { bytes, raw } => Err((bytes.to_vec(), raw)),
                    NewValue::Incoming(incoming) => {
                        let mut bytes = Vec::new();
                        incoming.read(|part| bytes.extend_from_slice(part)).unwrap();
                        Err((bytes, false))
                    }
                };
                Owned::Set(db, key.bytes.to_vec(), value, deadline)
            }
            Effect::Write { db, key, offset, bytes, .. } => {
                Owned::Write(db, key.bytes.to_vec(), offset, bytes.to_vec())
            }
            Effect::Deadline { db, key, deadline } => Owned::Deadline(db, key.bytes.to_vec(), deadline),
            Effect::Delete { db, key } | Effect::Expire { db, key } | Effect::Evict { db, key } => {
                Owned::Remove(db, key.bytes.to_vec())
            }
            Effect::Move { from, to, .. } => Owned::Move(place(from), place(to)),
            Effect::Copy { from, to } => Owned::Copy(place(from), place(to)),
            Effect::Element { .. } | Effect::Replace { .. } => panic!("nobody makes collections here"),
            Effect::Flush { db, .. } => Owned::Flush(db),
            Effect::Swap { a, b, .. } => Owned::Swap(a, b),
            Effect::LibrarySet { .. } | Effect::LibraryRemoved { .. } | Effect::LibrariesRemoved => {
                panic!("nobody has libraries here")
            }
        }
    }

    fn apply(&self, to: &mut Worker) {
        match self {
            Owned::Set(db, key, value, deadline) => {
                let value = match value {
                    Ok(int) => NewValue::Int(*int),
                    Err((bytes, raw)) => NewValue::Bytes { bytes, raw: *raw },
                };
                to.set(*db, &to.key(key), value, *deadline).unwrap();
            }
            Owned::Write(db, key, offset, bytes) => {
                to.string_at(*db, &to.key(key)).write_range(*offset, bytes).unwrap();
            }
            Owned::Deadline(db, key, deadline) => {
                assert!(to.set_deadline(*db, &to.key(key), *deadline).unwrap(), "a deadline of no key");
            }
            Owned::Remove(db, key) => {
                assert!(to.remove(*db, &to.key(key)).unwrap(), "what was removed is not there");
            }
            Owned::Move(from, at) => {
                assert!(to.rename((from.0, &to.key(&from.1)), (at.0, &to.key(&at.1))).unwrap());
            }
            Owned::Copy(from, at) => {
                assert!(to.copy((from.0, &to.key(&from.1)), (at.0, &to.key(&at.1))).unwrap());
            }
            Owned::Flush(db) => to.database(*db).flush().unwrap(),
            Owned::Swap(a, b) => to.database(*a).swap_with(*b).unwrap(),
        }
    }
}

/// Steps by their positions, those that have not ended, and what was told out of order: a panic here would be caught.
#[derive(Default)]
struct Log {
    steps: Mutex<BTreeMap<Position, Vec<Owned>>>,
    begun: Mutex<HashMap<WorkerId, Vec<Owned>>>,
    faults: Mutex<Vec<String>>,
}

impl Log {
    fn effect_count(&self) -> usize {
        self.steps.lock().values().map(Vec::len).sum()
    }

    fn check(&self, is_right: bool, fault: &str) {
        if !is_right {
            self.faults.lock().push(fault.to_owned());
        }
    }
}

impl Listener for Log {
    fn begin(&self, step: &Step) {
        let before = self.begun.lock().insert(step.worker, Vec::new());
        self.check(before.is_none(), "the step before has not ended");
    }

    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        let effect = Owned::of(effect);
        let is_begun = self.begun.lock().get_mut(&step.worker).map(|effects| effects.push(effect)).is_some();
        self.check(is_begun, "no step has begun");
    }

    fn end(&self, step: &Step, position: Position) {
        let effects = self.begun.lock().remove(&step.worker).unwrap_or_default();
        self.check(!effects.is_empty(), "nothing was told of the step");
        self.check(self.steps.lock().insert(position, effects).is_none(), "a position twice");
    }
}

fn open(worker_count: usize) -> (Store, TempDir) {
    let dir = TempDir::new("effects");
    let options =
        Options { database_count: DATABASES, worker_count, huge_pages: false, ..Options::default() };
    (crate::open(&dir, options), dir)
}

fn rng(seed: u64, number: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed.wrapping_add(number))
}

/// Value and deadline by database and key.
type Content = BTreeMap<(u32, Vec<u8>), (Vec<u8>, Option<UnixMillis>)>;

/// Everything that is in a store, also what has expired and not been removed.
fn content(store: &Store) -> Content {
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(0);
    let mut all = Content::new();
    for db in (0..DATABASES).map(DbId) {
        let (mut cursor, mut keys) = (0, Vec::new());
        loop {
            cursor = worker
                .database(db)
                .scan(cursor, 100, |key, info| keys.push((key.to_vec(), info.deadline)))
                .unwrap();
            if cursor == 0 {
                break;
            }
        }
        for (key, deadline) in keys {
            let value = worker.get(db, &worker.key(&key), |value| value.to_vec()).unwrap().unwrap();
            all.insert((db.0, key), (value, deadline));
        }
    }
    all
}

fn random_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let number = rng.u32(..40);
    match number % 8 {
        // Longer than what fits a leaf.
        0 => format!("{number:0500}").into_bytes(),
        _ => format!("key:{number}").into_bytes(),
    }
}

fn random_value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let len = match rng.u32(..10) {
        0 => rng.usize(10_000..40_000),
        1 | 2 => rng.usize(500..5_000),
        _ => rng.usize(..100),
    };
    vec![rng.alphanumeric() as u8; len]
}

/// Some operations on keys that are locked, which are one step.
fn random_transaction(worker: &mut Worker, rng: &mut fastrand::Rng) {
    let names: Vec<(DbId, Vec<u8>)> =
        (0..rng.usize(2..6)).map(|_| (DbId(rng.u32(..DATABASES)), random_key(rng))).collect();
    let keys: Vec<(DbId, Key<'_>)> = names.iter().map(|(db, name)| (*db, worker.key(name))).collect();
    let _locks = worker.lock(&keys, true);
    worker.steps().begin();
    for (db, key) in &keys {
        match rng.u32(..4) {
            0 => drop(worker.remove(*db, key).unwrap()),
            1 => drop(worker.get(*db, key, |value| value.len()).unwrap()),
            _ => drop(worker.set(*db, key, NewValue::Int(rng.i64(..)), Deadline::Keep).unwrap()),
        }
    }
    worker.steps().end();
}

fn random_step(worker: &mut Worker, rng: &mut fastrand::Rng, now: &mut UnixMillis) {
    *now += rng.i64(0..3);
    worker.set_now(*now);
    if rng.u32(..10) == 0 {
        random_transaction(worker, rng);
        return worker.quiesce();
    }
    let (db, bytes) = (DbId(rng.u32(..DATABASES)), random_key(rng));
    let key = worker.key(&bytes);
    match rng.u32(..100) {
        0..=29 => {
            let value = random_value(rng);
            let value = match rng.bool() {
                true => NewValue::Bytes { bytes: &value, raw: rng.bool() },
                false => NewValue::Int(rng.i64(..)),
            };
            let deadline = match rng.u32(..3) {
                0 => Deadline::Keep,
                1 => Deadline::Clear,
                _ => Deadline::At(*now + rng.i64(-2..60)),
            };
            worker.set(db, &key, value, deadline).unwrap();
        }
        30..=44 => {
            let bytes = random_value(rng);
            worker.string_at(db, &key).write_range(rng.u64(..3_000), &bytes).unwrap();
        }
        45..=54 => drop(worker.remove(db, &key).unwrap()),
        55..=69 => {
            let deadline = rng.bool().then(|| *now + rng.i64(1..60));
            worker.set_deadline(db, &key, deadline).unwrap();
        }
        70..=79 => drop(worker.get(db, &key, |value| value.len()).unwrap()),
        step @ 80..=93 => {
            let (to_db, to_bytes) = (DbId(rng.u32(..DATABASES)), random_key(rng));
            let to = worker.key(&to_bytes);
            let _locks = worker.lock(&[(db, key), (to_db, to)], true);
            if step < 87 {
                worker.rename((db, &key), (to_db, &to)).unwrap();
            } else if (db, &bytes) != (to_db, &to_bytes) {
                worker.copy((db, &key), (to_db, &to)).unwrap();
            }
        }
        94..=96 => {
            _ = worker.upkeep().expire_cycle(std::time::Duration::from_millis(1), |_, _| {}).unwrap();
        }
        97 => worker.database(db).flush().unwrap(),
        _ => worker.database(db).swap_with(DbId(rng.u32(..DATABASES))).unwrap(),
    }
    worker.quiesce();
}

fn check_replay(store: &Store, log: &Log) {
    let (again, _dir) = open(1);
    let mut worker = again.nonblocking_worker().unwrap();
    worker.set_now(0);
    let steps = log.steps.lock();
    assert_eq!(*log.faults.lock(), Vec::<String>::new());
    assert!(log.begun.lock().is_empty(), "a step has not ended");
    for (number, (position, effects)) in (1..).zip(steps.iter()) {
        assert_eq!(*position, Position(number), "positions follow each other");
        effects.iter().for_each(|effect| effect.apply(&mut worker));
        worker.quiesce();
    }
    drop(worker);
    assert!(content(&again) == content(store), "the replayed store differs");
}

#[test]
fn replayed_they_make_the_same_store() {
    let seed = stillframe_testkit::seed();
    for round in 0..20 {
        let ((store, _dir), log) = (open(1), Arc::new(Log::default()));
        assert!(store.listen(vec![log.clone()]));
        let (mut worker, mut rng, mut now) =
            (store.nonblocking_worker().unwrap(), rng(seed, round), 1_000_000);
        for _ in 0..600 {
            random_step(&mut worker, &mut rng, &mut now);
        }
        drop(worker);
        check_replay(&store, &log);
    }
}

#[test]
fn so_they_do_with_several_workers() {
    let seed = stillframe_testkit::seed();
    for round in 0..5 {
        let ((store, _dir), log) = (open(3), Arc::new(Log::default()));
        assert!(store.listen(vec![log.clone()]));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let store = &store;
                scope.spawn(move || {
                    let (mut worker, mut rng, mut now) =
                        (store.nonblocking_worker().unwrap(), rng(seed, 100 + round * 3 + thread), 1_000_000);
                    for _ in 0..600 {
                        random_step(&mut worker, &mut rng, &mut now);
                    }
                });
            }
        });
        check_replay(&store, &log);
    }
}

#[test]
fn a_store_has_one_list_of_listeners() {
    let (store, _dir) = open(1);
    assert!(store.listen(vec![Arc::new(Log::default())]));
    assert!(!store.listen(vec![Arc::new(Log::default())]));
}

#[test]
fn an_effect_each_and_expiry_counts_nothing() {
    let ((store, _dir), log) = (open(1), Arc::new(Log::default()));
    store.listen(vec![log.clone()]);
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(1000);
    let (db, key) = (DbId(0), worker.key(b"a"));
    worker.set(db, &key, NewValue::Int(1), Deadline::At(1010)).unwrap();
    worker.string_at(db, &key).write_range(0, b"x").unwrap();
    // Changes the encoding at most.
    worker.string_at(db, &key).write_range(0, b"").unwrap();
    assert_eq!((store.change_count(), log.effect_count()), (2, 2));
    worker.set_now(1010);
    assert!(worker.get(db, &key, |_| ()).unwrap().is_none());
    assert_eq!((store.change_count(), log.effect_count()), (2, 3));
    assert!(!worker.remove(db, &key).unwrap());
    assert_eq!((store.change_count(), log.effect_count()), (2, 3));
}

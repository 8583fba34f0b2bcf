//! Several workers on overlapping keys.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

use stillframe_store::{
    DbId, Deadline, Effect, Listener, NewValue, Options, Patient, SaveError, Step, Store, Worker,
};

use crate::contract::wait_for_garbage;
use stillframe_testkit::{seed, TempDir};

use crate::open;

const DB: DbId = DbId(0);
const WORKERS: u64 = 3;

/// Values say which key they belong to and are of one byte throughout, so that a torn one shows.
fn value_for(name: u32, random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u32(..10) {
        0..=6 => random.usize(4..200),
        7..=8 => random.usize(4..3000),
        _ => random.usize(4..60_000),
    };
    let mut bytes = vec![random.u8(..); len];
    bytes[..4].copy_from_slice(&name.to_le_bytes());
    bytes
}

fn check_value(name: u32, bytes: &[u8]) {
    assert_eq!(bytes[..4], name.to_le_bytes(), "a value of another key");
    assert!(bytes[4..].windows(2).all(|pair| pair[0] == pair[1]), "a torn value");
}

fn churn(worker: &mut Worker, random: &mut fastrand::Rng, key_count: u32) {
    let number = random.u32(..key_count);
    let name = format!("key:{number}").into_bytes();
    let mut key = worker.key(&name);
    worker.prefetch().all(DB, std::slice::from_mut(&mut key));
    match random.u32(..10) {
        0..=3 => {
            let bytes = value_for(number, random);
            worker.set(DB, &key, NewValue::Bytes { bytes: &bytes, raw: false }, Deadline::Clear).unwrap();
        }
        4..=6 => {
            worker.get(DB, &key, |value| check_value(number, &value.to_vec())).unwrap();
        }
        7..=8 => {
            worker.remove(DB, &key).unwrap();
        }
        _ => {
            let at = worker.now() + random.i64(1..50);
            worker.set_deadline(DB, &key, Some(at)).unwrap();
        }
    }
}

fn run_threads(store: &Store, duration: Duration, body: impl Fn(&mut Worker, &mut fastrand::Rng) + Sync) {
    let seed = seed();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..WORKERS {
            let (stop, body) = (&stop, &body);
            scope.spawn(move || {
                let mut worker = store.nonblocking_worker().unwrap();
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(thread));
                let mut now = 1_000_000;
                while !stop.load(Ordering::Relaxed) {
                    now += 1;
                    worker.set_now(now);
                    body(&mut worker, &mut random);
                    worker.quiesce();
                }
            });
        }
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
    });
}

fn churned(hash_bits: u32, key_count: u32) {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, hash_bits, ..Options::default() });
    run_threads(&store, Duration::from_millis(1500), |worker, random| {
        churn(worker, random, key_count);
        if random.u32(..2000) == 0 {
            worker.upkeep().expire_cycle(Duration::from_millis(1), |_, _| ()).unwrap();
        }
    });
    wait_for_garbage(&store, &mut store.nonblocking_worker().unwrap());
    let report = store.check().unwrap();
    assert!(report.key_count > 0 && report.key_count <= u64::from(key_count));
}

#[test]
fn overlapping_keys() {
    churned(64, 5_000);
}

#[test]
fn few_keys() {
    churned(64, 20);
}

#[test]
fn overlapping_keys_of_equal_hashes() {
    churned(6, 3_000);
}

/// Money moves between accounts under lock sets; whoever locks all of them sees the same sum.
#[test]
fn lock_sets_isolate() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, ..Options::default() });
    let names: Vec<String> = (0..10).map(|i| format!("account:{i}")).collect();
    {
        let mut worker = store.nonblocking_worker().unwrap();
        for name in &names {
            let key = worker.key(name.as_bytes());
            worker.set(DB, &key, NewValue::Int(100), Deadline::Clear).unwrap();
        }
    }
    let audits = AtomicI64::new(0);
    run_threads(&store, Duration::from_millis(800), |worker, random| {
        let keys: Vec<_> = names.iter().map(|name| (DB, worker.key(name.as_bytes()))).collect();
        let read = |worker: &mut Worker, i: usize| {
            worker.get(DB, &keys[i].1, |value| value.as_int()).unwrap().flatten().expect("an account")
        };
        if random.u32(..4) == 0 {
            let _locks = worker.lock(&keys, false);
            let sum: i64 = (0..keys.len()).map(|i| read(worker, i)).sum();
            assert_eq!(sum, 1000);
            audits.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (from, to) = (random.usize(..10), random.usize(..10));
        let _locks = worker.lock(&[keys[from], keys[to]], true);
        for (account, delta) in [(from, -7), (to, 7)] {
            let balance = read(worker, account) + delta;
            worker.set(DB, &keys[account].1, NewValue::Int(balance), Deadline::Clear).unwrap();
        }
    });
    assert!(audits.load(Ordering::Relaxed) > 10);
}

/// Two keys are raised together; whoever reads one after the other, without locks, sees no half of that.
#[test]
fn single_reads_see_whole_lock_sets() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, ..Options::default() });
    let names = ["first", "second"];
    let reads = AtomicI64::new(0);
    run_threads(&store, Duration::from_millis(800), |worker, random| {
        let keys = names.map(|name| (DB, worker.key(name.as_bytes())));
        let read = |worker: &mut Worker, i: usize| {
            let value = worker.get(DB, &keys[i].1, |value| value.as_int()).unwrap().flatten();
            value.unwrap_or(0)
        };
        if random.u32(..8) > 0 {
            let seen = [read(worker, 0), read(worker, 1)];
            assert!(seen[0] <= seen[1], "half of a lock set: {seen:?}");
            reads.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let _locks = worker.lock(&keys, true);
        let next = read(worker, 0) + 1;
        for (_, key) in &keys {
            worker.set(DB, key, NewValue::Int(next), Deadline::Clear).unwrap();
        }
    });
    assert!(reads.load(Ordering::Relaxed) > 100);
}

/// Entries are renamed over each other: none is lost but those overwritten, and none comes twice.
#[test]
fn renames_keep_entries_whole() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, ..Options::default() });
    let name = |number: u32| format!("name:{number}").into_bytes();
    // An entry's size tells which it is: records, slab slots and objects are among them.
    let len_of = |id: u32| (id as usize % 40 + 4) * [10, 100, 1000][id as usize % 3];
    {
        let mut worker = store.nonblocking_worker().unwrap();
        for id in 0..600u32 {
            let mut bytes = vec![id as u8; len_of(id)];
            bytes[..4].copy_from_slice(&id.to_le_bytes());
            let key = name(id);
            let value = NewValue::Bytes { bytes: &bytes, raw: false };
            worker.set(DbId(id % 2), &worker.key(&key), value, Deadline::Clear).unwrap();
        }
    }
    run_threads(&store, Duration::from_millis(600), |worker, random| {
        let (from_name, to_name) = (name(random.u32(..600)), name(random.u32(..1200)));
        let from = (DbId(random.u32(..2)), worker.key(&from_name));
        let to = (DbId(random.u32(..2)), worker.key(&to_name));
        let locks = worker.lock(&[from, to], true);
        // Overwriting would end the test too soon.
        if worker.get(to.0, &to.1, |_| ()).unwrap().is_none() {
            worker.rename((from.0, &from.1), (to.0, &to.1)).unwrap();
        }
        drop(locks);
    });
    let mut seen = std::collections::BTreeSet::new();
    let view = store.view().unwrap();
    view.for_each(|entry| {
        let bytes = entry.value.as_string().unwrap().to_vec();
        let id = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        assert!(seen.insert(id), "entry {id} is there twice");
        assert!(bytes.len() == len_of(id) && bytes[4..].iter().all(|b| *b == id as u8), "entry {id}");
        Ok::<(), SaveError>(())
    })
    .unwrap();
    assert_eq!(seen.len(), 600);
    store.check().unwrap();
}

/// While a reader holds a key, a single-key write to it waits.
#[test]
fn single_writes_respect_lock_sets() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: 2, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let key = worker.key(b"k");
    worker.set(DB, &key, NewValue::Int(1), Deadline::Clear).unwrap();
    let locks = worker.lock(&[(DB, key)], false);
    std::thread::scope(|scope| {
        let store = &store;
        let writer = scope.spawn(move || {
            let mut other = store.nonblocking_worker().unwrap();
            let key = other.key(b"k");
            other.set(DB, &key, NewValue::Int(2), Deadline::Clear).unwrap();
        });
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(worker.get(DB, &key, |value| value.as_int()).unwrap(), Some(Some(1)));
        }
        drop(locks);
        writer.join().unwrap();
    });
    assert_eq!(worker.get(DB, &key, |value| value.as_int()).unwrap(), Some(Some(2)));
}

/// A key found expired is gone for the count of keys at once, whoever of several removes it.
#[test]
fn expired_entries_leave_the_count_when_they_are_met() {
    const WRITER_NOW: i64 = 1_000_000;
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, ..Options::default() });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 1..WORKERS {
            scope.spawn(|| {
                let mut worker = store.nonblocking_worker().unwrap();
                worker.set_now(WRITER_NOW + 10_000);
                while !stop.load(Ordering::Relaxed) {
                    worker.upkeep().expire_cycle(Duration::from_micros(50), |_, _| ()).unwrap();
                    worker.quiesce();
                }
            });
        }
        let mut worker = store.nonblocking_worker().unwrap();
        let keys = [worker.key(b"a"), worker.key(b"b")];
        for round in 0..20_000 {
            worker.set_now(WRITER_NOW);
            worker.set(DB, &keys[0], NewValue::Int(round), Deadline::At(WRITER_NOW + 1)).unwrap();
            worker.set_now(WRITER_NOW + 2);
            let locks = (round % 2 == 0).then(|| worker.lock(&keys.map(|key| (DB, key)), false));
            let met = worker.entry(DB, &keys[0]).unwrap();
            drop(locks);
            worker.upkeep().remove_left_expired().unwrap();
            // The scope would wait for the others for ever.
            let key_count = store.db_stats(DB).key_count;
            stop.store(met.is_some() || key_count != 0, Ordering::Relaxed);
            assert!(met.is_none());
            assert_eq!(key_count, 0, "round {round}");
            worker.quiesce();
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.check().unwrap();
}

/// Under a shared lock set a key that has expired counts as absent and stays until the set is released.
#[test]
fn what_expired_under_a_shared_lock_set_is_removed_after_it() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: 2, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let keys = [worker.key(b"a"), worker.key(b"b")];
    worker.set_now(1_000);
    worker.set(DB, &keys[0], NewValue::Int(1), Deadline::At(1_001)).unwrap();
    worker.set_now(1_002);
    let locks = worker.lock(&keys.map(|key| (DB, key)), false);
    assert!(worker.get(DB, &keys[0], |_| ()).unwrap().is_none());
    worker.upkeep().remove_left_expired().unwrap();
    assert_eq!(store.db_stats(DB).key_count, 1, "others may still read it");
    drop(locks);
    worker.upkeep().remove_left_expired().unwrap();
    assert_eq!(store.db_stats(DB).key_count, 0);
    assert_eq!(worker.expired_counts().0, 1);
}

/// Cuts come between commands: pairs of keys that change together are equal in every view.
#[test]
fn views_see_whole_transactions() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, ..Options::default() });
    let seed = seed();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..WORKERS {
            let (store, stop) = (store.clone(), &stop);
            scope.spawn(move || {
                let mut worker = store.nonblocking_worker().unwrap();
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(thread));
                while !stop.load(Ordering::Relaxed) {
                    let pair = random.u32(..500);
                    let names = [format!("a:{pair}"), format!("b:{pair}")];
                    let keys = [worker.key(names[0].as_bytes()), worker.key(names[1].as_bytes())];
                    let locks = worker.lock(&[(DB, keys[0]), (DB, keys[1])], true);
                    let bytes = vec![random.u8(..); random.usize(1..3000)];
                    for key in &keys {
                        let value = NewValue::Bytes { bytes: &bytes, raw: false };
                        worker.set(DB, key, value, Deadline::Clear).unwrap();
                    }
                    drop(locks);
                    worker.quiesce();
                }
            });
        }
        for _ in 0..10 {
            let view = store.view().unwrap();
            let mut halves = std::collections::BTreeMap::new();
            view.for_each(|entry| {
                let pair = entry.key[2..].to_vec();
                match halves.remove(&pair) {
                    None => {
                        halves.insert(pair, entry.value.as_string().unwrap().to_vec());
                    }
                    Some(other) => {
                        assert!(other == entry.value.as_string().unwrap().to_vec(), "half a transaction")
                    }
                }
                Ok::<(), SaveError>(())
            })
            .unwrap();
            assert!(halves.is_empty());
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.check().unwrap();
}

#[test]
fn databases_are_exchanged_between_commands() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { worker_count: WORKERS as usize, ..Options::default() });
    run_threads(&store, Duration::from_millis(500), |worker, random| match random.u32(..200) {
        0 => worker.database(DbId(0)).swap_with(DbId(1)).unwrap(),
        1 => worker.database(DbId(1)).flush().unwrap(),
        _ => churn(worker, random, 500),
    });
    wait_for_garbage(&store, &mut store.nonblocking_worker().unwrap());
    store.check().unwrap();
}

/// A listener that says that a change is about to be told, and takes its time.
struct Slow {
    begun: Mutex<mpsc::Sender<()>>,
    has_told: AtomicBool,
}

impl Listener for Slow {
    fn hear(&self, _: &Step, _: &Effect<'_>) {
        self.begun.lock().unwrap().send(()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        self.has_told.store(true, Ordering::Release);
    }
}

/// A reader that asks for it finds no change that has not been told.
#[test]
fn reads_wait_for_what_is_being_told() {
    let dir = TempDir::new("told");
    let store = open(&dir, Options { worker_count: 2, ..Options::default() });
    let (begun, begins) = mpsc::channel();
    let slow = Arc::new(Slow { begun: Mutex::new(begun), has_told: AtomicBool::new(false) });
    store.listen(vec![slow.clone()]);
    let mut reader = store.nonblocking_worker().unwrap();
    for number in 0..5 {
        slow.has_told.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = store.nonblocking_worker().unwrap();
                let key = writer.key(b"k");
                writer.set(DB, &key, NewValue::Int(number), Deadline::Clear).unwrap();
            });
            begins.recv().unwrap();
            let key = reader.key(b"k");
            let in_order = reader.read_behind_locks();
            let found = reader.get(DB, &key, |value| value.to_vec()).unwrap();
            drop(in_order);
            assert_eq!(found, Some(number.to_string().into_bytes()));
            assert!(slow.has_told.load(Ordering::Acquire), "it is seen before it is told");
        });
    }
}

/// A worker that waits for a key is quiescent in the middle of a command, and nothing can be done for its caller's clients meanwhile.
#[test]
fn a_worker_that_waits_for_a_key_goes_on_before_others_are_stopped_for_long() {
    let dir = TempDir::new("for-long");
    let store = open(&dir, Options::default());
    // Workers that have their keys to themselves lock nothing: there are two from the beginning.
    let mut worker = store.nonblocking_worker().unwrap();
    let is_done = AtomicBool::new(false);
    let ((lock, is_locked), (begin, has_begun)) = (mpsc::channel(), mpsc::channel());
    std::thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || {
            let mut worker = store.nonblocking_worker().unwrap();
            let key = worker.key(b"key");
            let locks = worker.lock(&[(DB, key)], true);
            lock.send(()).unwrap();
            // Long enough for one to wait for the key, and for one to wait for this worker.
            std::thread::sleep(Duration::from_secs(2));
            drop(locks);
        });
        worker.idle(|| is_locked.recv()).unwrap();
        let is_done = &is_done;
        scope.spawn(move || {
            let mut worker = store.nonblocking_worker().unwrap();
            begin.send(()).unwrap();
            let key = worker.key(b"key");
            worker.set(DB, &key, NewValue::Bytes { bytes: b"value", raw: true }, Deadline::Clear).unwrap();
            is_done.store(true, Ordering::SeqCst);
        });
        worker.idle(|| has_begun.recv()).unwrap();
        // A machine with much else to do needs a while until the command of the thread has begun.
        worker.idle(|| std::thread::sleep(Duration::from_secs(1)));
        assert!(!is_done.load(Ordering::SeqCst), "nothing was locked");
        let alone = Patient { worker: &mut worker, meanwhile: &mut || {} }.stop_others_for_long().unwrap();
        assert!(is_done.load(Ordering::SeqCst), "a worker stands still in the middle of its command");
        drop(alone);
    });
}

//! One worker, all operations, against the model.

use std::time::Duration;

use fastrand::Rng;
use stillframe_store::{DbId, Deadline, NewValue, Options, SaveError, Store, Worker, MAX_STRING_BYTES};

use crate::model::{compare_db, Entry, Model, Value};
use stillframe_testkit::{seed, TempDir};

use crate::open;

/// What a run draws from.
pub struct Mix {
    pub key_count: u32,
    pub value_max: usize,
    pub databases: u32,
}

pub struct Run {
    pub random: Rng,
    pub model: Model,
    pub mix: Mix,
}

fn random_bytes(random: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(..)).collect()
}

impl Run {
    pub fn new(seed: u64, mix: Mix) -> Run {
        let model = Model::new(mix.databases as usize);
        Run { random: Rng::with_seed(seed), model, mix }
    }

    fn db(&mut self) -> DbId {
        DbId(self.random.u32(..self.mix.databases))
    }

    /// Mostly short keys; some empty, some around the limit of what a record holds, some of several pages.
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.u32(..self.mix.key_count);
        let mut key = format!("key:{number}").into_bytes();
        match number % 50 {
            0 => key.resize(250 + number as usize % 10, b'k'),
            1 => key.resize(600 + number as usize, b'l'),
            2 if number == 2 => key.resize(20_000, b'm'),
            3 if number == 3 => key.clear(),
            _ => {}
        }
        key
    }

    fn value_len(&mut self) -> usize {
        let max = self.mix.value_max;
        match self.random.u32(..10) {
            0..=4 => self.random.usize(..=max.min(60)),
            5..=7 => self.random.usize(..=max.min(1500)),
            8 => self.random.usize(..=max.min(12_000)),
            _ => self.random.usize(..=max),
        }
    }

    fn value(&mut self) -> Value {
        if self.random.u32(..4) == 0 {
            return Value::Int(self.random.i64(..) >> self.random.u32(..63));
        }
        let len = self.value_len();
        Value::Bytes { bytes: random_bytes(&mut self.random, len), raw: self.random.bool() }
    }

    fn deadline(&mut self) -> Deadline {
        match self.random.u32(..5) {
            0 => Deadline::Keep,
            1 => Deadline::At(self.model.now + self.random.i64(-1000..20_000)),
            _ => Deadline::Clear,
        }
    }

    /// One operation on both; results are equal.
    pub fn step(&mut self, worker: &mut Worker) {
        if self.random.u32(..20) == 0 {
            self.model.now += self.random.i64(0..3000);
        }
        worker.set_now(self.model.now);
        self.model.expire();
        let (db, name) = (self.db(), self.key());
        let mut key = worker.key(&name);
        if self.random.bool() {
            worker.prefetch().all(db, std::slice::from_mut(&mut key));
        }
        match self.random.u32(..100) {
            0..=34 => {
                let (value, deadline) = (self.value(), self.deadline());
                let there = worker.set(db, &key, value.as_new(), deadline).unwrap();
                assert_eq!(there, self.model.set(db, &name, value, deadline));
            }
            35..=49 => {
                let found = worker.get(db, &key, |value| (value.to_vec(), value.encoding())).unwrap();
                let expected = self.model.db(db).get(&name).map(|e| (e.value.to_bytes(), e.value.encoding()));
                assert!(found == expected, "{name:?}");
            }
            50..=59 => {
                assert_eq!(worker.remove(db, &key).unwrap(), self.model.db(db).remove(&name).is_some());
            }
            60..=71 => self.write_range(worker, db, &name),
            72..=77 => {
                let deadline = self.random.bool().then(|| self.model.now + self.random.i64(1..20_000));
                let there = worker.set_deadline(db, &key, deadline).unwrap();
                let entry = self.model.db(db).get_mut(&name);
                assert_eq!(there, entry.map(|entry| entry.deadline = deadline).is_some());
            }
            78..=81 => self.check_entry(worker, db, &name),
            82..=91 => self.rename_or_copy(worker, db, &name),
            92..=93 => self.get_range(worker, db, &name),
            94 => {
                let found = worker.database(db).random_key().unwrap();
                let db = self.model.db(db);
                assert!(found.map_or(db.is_empty(), |key| db.contains_key(&key)));
            }
            95..=96 => {
                worker.upkeep().expire_cycle(Duration::from_millis(5), |_, _| ()).unwrap();
            }
            97 if self.random.u32(..10) == 0 => {
                worker.database(db).flush().unwrap();
                self.model.db(db).clear();
            }
            98 => {
                let other = self.db();
                worker.database(db).swap_with(other).unwrap();
                self.model.dbs.swap(db.0 as usize, other.0 as usize);
            }
            _ => worker.quiesce(),
        }
    }

    fn write_range(&mut self, worker: &mut Worker, db: DbId, name: &[u8]) {
        let old_len = self.model.db(db).get(name).map_or(0, |e| e.value.to_bytes().len());
        let offset = match self.random.u32(..4) {
            0 => old_len,
            1 => old_len + self.random.usize(..5000).min(self.mix.value_max),
            _ => self.random.usize(..=old_len),
        };
        let len = self.value_len();
        if offset + len > 2 * self.mix.value_max {
            return;
        }
        let bytes = random_bytes(&mut self.random, len);
        let found = worker.string_at(db, &worker.key(name)).write_range(offset as u64, &bytes).unwrap();
        assert_eq!(found, self.model.write_range(db, name, offset, &bytes));
    }

    fn check_entry(&mut self, worker: &mut Worker, db: DbId, name: &[u8]) {
        let found = worker.entry(db, &worker.key(name)).unwrap();
        let expected = self.model.db(db).get(name);
        assert_eq!(found.and_then(|info| info.encoding), expected.map(|e| e.value.encoding()));
        assert_eq!(found.map(|i| i.value_bytes), expected.map(|e| e.value.to_bytes().len() as u64));
        assert_eq!(found.and_then(|info| info.deadline), expected.and_then(|e| e.deadline));
        let payload = expected.map_or(0, |e| (name.len() + e.value.to_bytes().len().max(8)) as u64);
        let is_int = expected.is_some_and(|e| matches!(e.value, Value::Int(_)));
        assert!(is_int || found.map_or(0, |info| info.memory_bytes) >= payload.saturating_sub(8));
    }

    fn rename_or_copy(&mut self, worker: &mut Worker, db: DbId, name: &[u8]) {
        let (to_db, to_name) = (self.db(), self.key());
        let (from, to) = (worker.key(name), worker.key(&to_name));
        let _locks = worker.lock(&[(db, from), (to_db, to)], true);
        let entry = self.model.db(db).get(name).cloned();
        let done = if self.random.bool() {
            self.model.db(db).remove(name);
            worker.rename((db, &from), (to_db, &to)).unwrap()
        } else {
            worker.copy((db, &from), (to_db, &to)).unwrap()
        };
        assert_eq!(done, entry.is_some());
        if let Some(entry) = entry {
            self.model.db(to_db).insert(to_name, entry);
        }
    }

    fn get_range(&mut self, worker: &mut Worker, db: DbId, name: &[u8]) {
        let Some(Entry { value, .. }) = self.model.db(db).get(name).cloned() else { return };
        let bytes = value.to_bytes();
        let (start, end) = (self.random.usize(..=bytes.len()), self.random.usize(..=bytes.len() + 10));
        let mut found = Vec::new();
        worker
            .get(db, &worker.key(name), |value| {
                value.chunks(start as u64, end as u64, |chunk| found.extend_from_slice(chunk));
            })
            .unwrap();
        assert!(found == bytes[start..end.min(bytes.len()).max(start)]);
    }

    /// Compares everything, also through a view, and checks the invariants.
    pub fn compare(&mut self, store: &Store, worker: &mut Worker) {
        worker.set_now(self.model.now);
        self.model.expire();
        worker.upkeep().expire_cycle(Duration::from_secs(5), |_, _| ()).unwrap();
        wait_for_garbage(store, worker);
        for db in (0..self.mix.databases).map(DbId) {
            compare_db(worker, db, self.model.db(db));
        }
        let report = store.check().unwrap();
        // Deadlines are swept by the second: a few expired keys may be left.
        let keys: usize = self.model.dbs.iter().map(|db| db.len()).sum();
        assert!(report.key_count >= keys as u64, "{report:?}, {keys} keys expected");
    }

    pub fn compare_view(&mut self, store: &Store, worker: &mut Worker) {
        self.model.expire();
        let view = worker.idle(|| store.view()).unwrap();
        let mut left = self.model.dbs.clone();
        let now = self.model.now;
        view.for_each(|entry| {
            if entry.deadline.is_some_and(|deadline| deadline <= now) {
                return Ok::<(), SaveError>(());
            }
            let expected = left[entry.db.0 as usize].remove(entry.key).expect("a key of the model, once");
            assert!(entry.value.as_string().unwrap().to_vec() == expected.value.to_bytes());
            assert_eq!(entry.value.as_string().unwrap().encoding(), expected.value.encoding());
            assert_eq!(entry.deadline, expected.deadline);
            Ok(())
        })
        .unwrap();
        assert!(left.iter().all(|db| db.is_empty()), "the view misses keys");
    }
}

/// Waits until the background thread has freed everything, so that pages can be counted.
pub fn wait_for_garbage(store: &Store, worker: &mut Worker) {
    for _ in 0..2000 {
        if store.is_tidy() {
            return;
        }
        worker.idle(|| std::thread::sleep(Duration::from_millis(1)));
    }
    panic!("the garbage is never collected");
}

fn run(mix: Mix, steps: usize, hash_bits: u32) {
    let dir = TempDir::new("store");
    let seed = seed();
    // The store draws the secret of its hash from this generator.
    fastrand::seed(seed);
    let store = open(&dir, Options { hash_bits, database_count: mix.databases, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let mut run = Run::new(seed, mix);
    for step in 1..=steps {
        run.step(&mut worker);
        if step % (steps / 4) == 0 {
            run.compare_view(&store, &mut worker);
            run.compare(&store, &mut worker);
        }
    }
    for db in (0..run.mix.databases).map(DbId) {
        for name in run.model.db(db).keys() {
            assert!(worker.remove(db, &worker.key(name)).unwrap());
        }
        run.model.db(db).clear();
    }
    worker.set_now(i64::MAX);
    worker.upkeep().expire_cycle(Duration::from_secs(5), |_, _| ()).unwrap();
    wait_for_garbage(&store, &mut worker);
    let report = store.check().unwrap();
    assert_eq!((report.key_count, report.slab_count, report.object_page_count), (0, 0, 0));
    assert!(report.leaf_count <= u64::from(run.mix.databases), "memory shrinks with the data: {report:?}");
}

#[test]
fn small_values() {
    run(Mix { key_count: 30_000, value_max: 120, databases: 3 }, 200_000, 64);
}

#[test]
fn values_of_all_sizes() {
    run(Mix { key_count: 2_000, value_max: 100_000, databases: 3 }, 40_000, 64);
}

#[test]
fn equal_hashes() {
    run(Mix { key_count: 12_000, value_max: 300, databases: 2 }, 60_000, 4);
}

#[test]
fn eight_bit_hashes() {
    run(Mix { key_count: 20_000, value_max: 2_000, databases: 1 }, 60_000, 8);
}

/// A chain of one hash, then keys of other hashes on both sides of it.
#[test]
fn keys_beside_a_chain() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { hash_bits: 4, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let mut model = Model::new(1);
    let names: Vec<Vec<u8>> = (0..4_000).map(|i| format!("key:{i}").into_bytes()).collect();
    for turn in 0..3u64 {
        for name in &names {
            let key = worker.key(name);
            let now = match key.hash >> 60 {
                7 => 0,
                5..=9 => 1,
                _ => 2,
            };
            if now == turn {
                let value = Value::Bytes { bytes: vec![b'v'; name.len() * 10], raw: false };
                assert!(!worker.set(DbId(0), &key, value.as_new(), Deadline::Clear).unwrap());
                model.set(DbId(0), name, value, Deadline::Clear);
            }
        }
        store.check().unwrap();
        compare_db(&mut worker, DbId(0), model.db(DbId(0)));
    }
    for name in &names {
        assert!(worker.remove(DbId(0), &worker.key(name)).unwrap());
    }
    assert_eq!(store.check().unwrap().leaf_count, 1);
}

#[test]
fn a_string_may_have_512_megabytes_and_no_more() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options::default());
    let mut worker = store.nonblocking_worker().unwrap();
    let (db, key) = (DbId(0), worker.key(b"large"));
    assert_eq!(worker.string_at(db, &key).write_range(MAX_STRING_BYTES - 1, b"x").unwrap(), MAX_STRING_BYTES);
    assert!(worker.string_at(db, &key).write_range(MAX_STRING_BYTES, b"y").is_err());
    assert!(worker.string_at(db, &key).write_range(u64::MAX, b"y").is_err());
    assert_eq!(worker.string_at(db, &key).write_range(300_000_000, b"middle").unwrap(), MAX_STRING_BYTES);
    let mut found = Vec::new();
    worker
        .get(db, &key, |value| value.chunks(299_999_999, 300_000_007, |c| found.extend_from_slice(c)))
        .unwrap();
    assert_eq!(found, b"\0middle\0");
    assert!(worker.remove(db, &key).unwrap());
    wait_for_garbage(&store, &mut worker);
    assert_eq!(store.check().unwrap().object_page_count, 0);
}

#[test]
fn memory_has_a_bound() {
    let dir = TempDir::new("store");
    let store = open(&dir, Options { maxmemory_bytes: 2 << 20, ..Options::default() });
    let mut worker = store.nonblocking_worker().unwrap();
    let value = NewValue::Bytes { bytes: &[1; 100], raw: false };
    let mut stored = 0u32;
    let error = loop {
        let name = format!("key:{stored}");
        match worker.set(DbId(0), &worker.key(name.as_bytes()), value, Deadline::Clear) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("maxmemory"), "{error}");
    assert!(stored > 5_000 && store.used_memory_bytes() <= 2 << 20);
    assert_eq!(store.check().unwrap().key_count, u64::from(stored));
    store.set_maxmemory_bytes(0);
    let name = format!("key:{stored}");
    assert!(!worker.set(DbId(0), &worker.key(name.as_bytes()), value, Deadline::Clear).unwrap());
}

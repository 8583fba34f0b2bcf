//! A model of a store's content, a random workload for both, and how to read a store that may be damaged.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::Arc;

use stillframe_pagepool::device::SimDevice;
use stillframe_store::{
    DbId, Deadline, NewValue, OpError, OpenError, Options, PoolBackend, SaveError, SnapshotKind, Store,
    UnixMillis, Worker,
};

/// The first and the last are used.
pub const DATABASE_COUNT: u32 = 3;
/// By this clock nothing expires.
const NOW: UnixMillis = 1_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub value: Vec<u8>,
    pub deadline: Option<UnixMillis>,
}

/// What a store holds, by database and key.
pub type Content = BTreeMap<(u32, Vec<u8>), Entry>;

/// What a read gave: an entry, nothing, or the reason why it cannot be read.
pub type Reading = Result<Option<Entry>, String>;

thread_local! {
    /// How often this thread has opened a store.
    static OPENED_COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Every other time the default; between these the others that the backend serves, in turn. So a test is replayed by its seed.
fn drawn_algorithm(backend: PoolBackend) -> SnapshotKind {
    let count = OPENED_COUNT.with(|count| count.replace(count.get() + 1));
    let is_other =
        |kind: &SnapshotKind| *kind != SnapshotKind::default() && kind.check(backend, false).is_ok();
    let others: Vec<_> = SnapshotKind::ALL.into_iter().filter(is_other).collect();
    if count % 2 == 0 {
        SnapshotKind::default()
    } else {
        others[count / 2 % others.len()]
    }
}

pub fn open(device: &Arc<SimDevice>) -> Result<Opened, OpenError> {
    open_accepting(device, None)
}

/// The same, with the loss accepted of what came after a checkpoint.
pub fn open_accepting(device: &Arc<SimDevice>, accepted: Option<u64>) -> Result<Opened, OpenError> {
    let snapshot_kind = drawn_algorithm(stillframe_testkit::pool_backend());
    open_with(device, Options { accept_loss_after_checkpoint: accepted, snapshot_kind, ..Options::default() })
}

/// With as little memory as there can be: 2,048 pages, the others are in the file alone.
pub fn open_in_little_memory(device: &Arc<SimDevice>) -> Result<Opened, OpenError> {
    open_with(device, Options { tiered_bytes: 1 << 20, ..Options::default() })
}

fn open_with(device: &Arc<SimDevice>, options: Options) -> Result<Opened, OpenError> {
    let options = Options {
        database_count: DATABASE_COUNT,
        snapshot_memory_bytes: 1 << 20,
        pool_backend: stillframe_testkit::pool_backend(),
        // A store that is dropped is a machine that crashes.
        checkpoint_on_drop: false,
        ..options
    };
    let store = Store::open_on(device.clone(), options)?;
    let mut worker = store.nonblocking_worker().unwrap();
    worker.set_now(NOW);
    Ok(Opened { store, worker })
}

/// A store and this thread's access to it.
pub struct Opened {
    pub store: Store,
    pub worker: Worker,
}

impl Opened {
    /// Runs an operation until its pages are in memory. An error says why they will never be.
    pub fn run<T>(&mut self, mut op: impl FnMut(&mut Worker) -> Result<T, OpError>) -> Result<T, String> {
        loop {
            self.worker.quiesce();
            match op(&mut self.worker) {
                Ok(result) => return Ok(result),
                Err(OpError::Fault(fault)) => {
                    let (sender, receiver) = channel();
                    let done = Box::new(move || sender.send(()).expect("the test waits"));
                    self.store.load(fault, done);
                    self.worker.idle(|| receiver.recv().expect("the load ends"));
                }
                Err(OpError::Damaged(reason)) => return Err(reason.to_string()),
                // Of a damaged key the type may be wrong.
                Err(other) => return Err(other.to_string()),
            }
        }
    }

    pub fn put(&mut self, db: u32, key: &[u8], value: &[u8]) -> Result<bool, String> {
        self.run(|worker| {
            let value = NewValue::Bytes { bytes: value, raw: false };
            worker.set(DbId(db), &worker.key(key), value, Deadline::Clear)
        })
    }

    pub fn remove(&mut self, db: u32, key: &[u8]) -> Result<bool, String> {
        self.run(|worker| worker.remove(DbId(db), &worker.key(key)))
    }

    /// All keys of a database, as they come.
    pub fn scan(&mut self, db: u32) -> Result<Vec<Vec<u8>>, String> {
        let (mut cursor, mut keys) = (0, Vec::new());
        loop {
            let (next, found) = self.run(|worker| {
                let mut found = Vec::new();
                let next = worker.database(DbId(db)).scan(cursor, 50, |key, _| found.push(key.to_vec()))?;
                Ok((next, found))
            })?;
            keys.extend(found);
            cursor = next;
            if cursor == 0 {
                return Ok(keys);
            }
        }
    }

    pub fn allocated_page_count(&self) -> u64 {
        self.store.pool().stats().allocated_pages
    }

    pub fn checkpoint(&mut self) -> Result<(), SaveError> {
        let store = self.store.clone();
        self.worker.idle(|| store.checkpoint().map(drop))
    }

    pub fn wait_until_warm(&mut self) {
        while self.store.is_warming_up() {
            self.worker.idle(|| std::thread::sleep(std::time::Duration::from_micros(200)));
        }
    }

    pub fn read(&mut self, db: u32, key: &[u8]) -> Reading {
        self.run(|worker| {
            let key = worker.key(key);
            let deadline = worker.entry(DbId(db), &key)?.and_then(|info| info.deadline);
            let value = worker.get(DbId(db), &key, |value| value.to_vec())?;
            Ok(value.map(|value| Entry { value, deadline }))
        })
    }

    /// Whether every page belongs to something, garbage included, and to nothing else.
    pub fn check(&mut self) {
        self.wait_until_warm();
        self.store.check().unwrap_or_else(|text| panic!("{text}"));
    }

    /// Waits until what was removed is free; in vain after a while.
    pub fn wait_until_tidy(&mut self) {
        for _ in 0..3_000 {
            if self.store.is_tidy() {
                return;
            }
            self.worker.idle(|| std::thread::sleep(std::time::Duration::from_millis(1)));
        }
        panic!("the garbage is never collected");
    }

    /// All of it, found by scanning.
    pub fn content(&mut self) -> Content {
        let mut content = Content::new();
        for db in 0..DATABASE_COUNT {
            for key in self.scan(db).expect("an undamaged store") {
                let entry = self.read(db, &key).expect("an undamaged store").expect("a key that was scanned");
                assert!(content.insert((db, key.clone()), entry).is_none(), "{key:?} was scanned twice");
            }
            let key_count = content.keys().filter(|(of, _)| *of == db).count() as u64;
            assert_eq!(self.store.db_stats(DbId(db)).key_count, key_count, "keys of database {db}");
        }
        content
    }

    /// Applies a random change to the store and to its model.
    pub fn change(&mut self, content: &mut Content, rng: &mut fastrand::Rng) {
        self.try_change(content, rng).expect("an undamaged store");
    }

    /// The same for a store that may be damaged.
    pub fn try_change(&mut self, content: &mut Content, rng: &mut fastrand::Rng) -> Result<(), String> {
        let db = if rng.u8(..4) == 0 { DATABASE_COUNT - 1 } else { 0 };
        match rng.u8(..100) {
            0 => {
                self.worker.database(DbId(db)).flush().expect("databases can be emptied always");
                content.retain(|(of, _), _| *of != db);
                return Ok(());
            }
            1 => return self.exchange_vast(db, content),
            _ => {}
        }
        let (name, longest) = match rng.u8(..20) {
            0..=13 => (format!("small-{}", rng.u8(..120)), 60),
            14..=17 => (format!("middle-{}", rng.u8(..12)), 3_000),
            18 => (format!("large-{}", rng.u8(..3)), 20_000),
            _ => (format!("huge-{}", rng.u8(..2)), 120_000),
        };
        let key = name.into_bytes();
        let id = (db, key.clone());
        match rng.u8(..10) {
            0..=5 => {
                let mut value = vec![0; rng.usize(..longest)];
                rng.fill(&mut value);
                let deadline = (rng.u8(..5) == 0).then(|| NOW + 1 + rng.i64(0..1 << 40));
                self.run(|worker| {
                    let value = NewValue::Bytes { bytes: &value, raw: false };
                    let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
                    worker.set(DbId(db), &worker.key(&key), value, deadline)
                })?;
                content.insert(id, Entry { value, deadline });
            }
            6 | 7 => {
                let old_len = content.get(&id).map_or(0, |entry| entry.value.len());
                let offset = rng.usize(..=old_len);
                let mut part = vec![0; rng.usize(1..200)];
                rng.fill(&mut part);
                self.run(|worker| {
                    worker.string_at(DbId(db), &worker.key(&key)).write_range(offset as u64, &part)
                })?;
                let entry = content.entry(id).or_insert(Entry { value: Vec::new(), deadline: None });
                let end = offset + part.len();
                entry.value.resize(end.max(old_len), 0);
                entry.value[offset..end].copy_from_slice(&part);
            }
            _ => {
                let was_there = self.run(|worker| worker.remove(DbId(db), &worker.key(&key)))?;
                assert_eq!(was_there, content.remove(&id).is_some(), "{id:?}");
            }
        }
        Ok(())
    }

    /// Removes a value that is freed in the background, or makes it if it is not there.
    fn exchange_vast(&mut self, db: u32, content: &mut Content) -> Result<(), String> {
        const LAST: usize = 1_100_000;
        let key = b"vast".to_vec();
        let id = (db, key.clone());
        if content.contains_key(&id) {
            assert!(self.run(|worker| worker.remove(DbId(db), &worker.key(&key)))?);
            content.remove(&id);
            return Ok(());
        }
        self.run(|worker| worker.string_at(DbId(db), &worker.key(&key)).write_range(LAST as u64, b"x"))?;
        let mut value = vec![0; LAST];
        value.push(b'x');
        content.insert(id, Entry { value, deadline: None });
        Ok(())
    }

    /// Adds what takes `len` bytes of room.
    pub fn add(&mut self, content: &mut Content, key: &str, len: usize, rng: &mut fastrand::Rng) {
        let mut value = vec![0; len];
        rng.fill(&mut value);
        self.run(|worker| {
            let value = NewValue::Bytes { bytes: &value, raw: false };
            worker.set(DbId(0), &worker.key(key.as_bytes()), value, Deadline::Clear)
        })
        .expect("an undamaged store");
        content.insert((0, key.as_bytes().to_vec()), Entry { value, deadline: None });
    }

    pub fn change_some(&mut self, content: &mut Content, rng: &mut fastrand::Rng, most: u32) {
        (0..rng.u32(most / 2..=most)).for_each(|_| self.change(content, rng));
    }
}

/// Opens the store after a crash and fails unless it holds exactly one of the contents and no page is lost. Returns
/// which.
pub fn reopen(device: &Arc<SimDevice>, contents: &[&Content]) -> (Opened, usize) {
    let mut opened = open(device).unwrap_or_else(|error| panic!("the store does not open: {error}"));
    let found = opened.content();
    let Some(index) = contents.iter().position(|content| **content == found) else {
        let differing = |content: &Content| {
            let keys = content.keys().chain(found.keys()).filter(|key| content.get(*key) != found.get(*key));
            keys.count()
        };
        let counts: Vec<_> = contents.iter().map(|content| (content.len(), differing(content))).collect();
        panic!("{} keys found; allowed are (keys, of which differ) {counts:?}", found.len());
    };
    opened.check();
    (opened, index)
}

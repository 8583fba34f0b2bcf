//! How many keys and deadlines each database has, and how much has been changed: counted by each worker for itself.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{DbId, DbStats};

/// What a worker has added to the counters; only its own thread writes, others read.
#[derive(Default)]
pub(super) struct Deltas {
    keys: Box<[AtomicI64]>,
    deadlines: Box<[AtomicI64]>,
    changes: AtomicU64,
}

fn add(counter: &AtomicI64, delta: i64) {
    counter.store(counter.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
}

impl Deltas {
    fn new(database_count: usize) -> Deltas {
        let zeros = || (0..database_count).map(|_| AtomicI64::new(0)).collect();
        Deltas { keys: zeros(), deadlines: zeros(), changes: AtomicU64::new(0) }
    }

    pub fn count_key(&self, db: DbId, delta: i64) {
        add(&self.keys[db.0 as usize], delta);
    }

    pub fn count_deadline(&self, db: DbId, delta: i64) {
        if delta != 0 {
            add(&self.deadlines[db.0 as usize], delta);
        }
    }

    pub fn count_change(&self) {
        self.changes.store(self.changes() + 1, Ordering::Relaxed);
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

/// Totals of workers that are gone, and of the run before this one.
#[derive(Default)]
struct Totals {
    keys: Vec<i64>,
    deadlines: Vec<i64>,
    changes: u64,
    workers: Vec<Arc<Deltas>>,
}

pub(super) struct Counters {
    totals: Mutex<Totals>,
}

impl Counters {
    /// Counters that begin with these of each database.
    pub fn new(databases: impl Iterator<Item = DbStats>) -> Counters {
        let mut totals = Totals::default();
        for stats in databases {
            totals.keys.push(stats.key_count as i64);
            totals.deadlines.push(stats.deadline_count as i64);
        }
        Counters { totals: Mutex::new(totals) }
    }

    /// What a new worker counts in.
    pub fn join(&self) -> Arc<Deltas> {
        let mut totals = self.totals.lock();
        let deltas = Arc::new(Deltas::new(totals.keys.len()));
        totals.workers.push(deltas.clone());
        deltas
    }

    /// A worker's counters outlive it.
    pub fn retire(&self, deltas: &Arc<Deltas>) {
        let mut totals = self.totals.lock();
        for db in 0..totals.keys.len() {
            totals.keys[db] += deltas.keys[db].load(Ordering::Relaxed);
            totals.deadlines[db] += deltas.deadlines[db].load(Ordering::Relaxed);
        }
        totals.changes += deltas.changes();
        totals.workers.retain(|other| !Arc::ptr_eq(other, deltas));
    }

    /// None of a database that there is not.
    pub fn db_stats(&self, db: DbId) -> DbStats {
        let totals = self.totals.lock();
        let db = db.0 as usize;
        if db >= totals.keys.len() {
            return DbStats::default();
        }
        let load = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let keys = totals.keys[db] + totals.workers.iter().map(|w| load(&w.keys[db])).sum::<i64>();
        let deadlines =
            totals.deadlines[db] + totals.workers.iter().map(|w| load(&w.deadlines[db])).sum::<i64>();
        DbStats { key_count: keys.max(0) as u64, deadline_count: deadlines.max(0) as u64 }
    }

    /// Keys written since the process started.
    pub fn change_count(&self) -> u64 {
        let totals = self.totals.lock();
        totals.changes + totals.workers.iter().map(|deltas| deltas.changes()).sum::<u64>()
    }

    /// Corrects a database's counters by what was found missing in them.
    pub fn correct(&self, db: DbId, keys: i64, deadlines: i64) {
        let mut totals = self.totals.lock();
        totals.keys[db.0 as usize] += keys;
        totals.deadlines[db.0 as usize] += deadlines;
    }

    /// Two databases are exchanged: one change. Runs in the barrier.
    pub fn swap(&self, a: DbId, b: DbId) {
        let (a, b) = (a.0 as usize, b.0 as usize);
        let swap = |list: &[AtomicI64]| {
            let was = list[a].load(Ordering::Relaxed);
            list[a].store(list[b].load(Ordering::Relaxed), Ordering::Relaxed);
            list[b].store(was, Ordering::Relaxed);
        };
        let mut totals = self.totals.lock();
        totals.changes += 1;
        totals.keys.swap(a, b);
        totals.deadlines.swap(a, b);
        for worker in &totals.workers {
            swap(&worker.keys);
            swap(&worker.deadlines);
        }
    }

    /// A database is emptied: a change for each key that was there. Runs in the barrier.
    pub fn clear(&self, db: DbId) {
        let removed = self.db_stats(db).key_count;
        let db = db.0 as usize;
        let mut totals = self.totals.lock();
        totals.changes += removed;
        totals.keys[db] = 0;
        totals.deadlines[db] = 0;
        for worker in &totals.workers {
            worker.keys[db].store(0, Ordering::Relaxed);
            worker.deadlines[db].store(0, Ordering::Relaxed);
        }
    }
}

//! Counters of one worker: written by it alone, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with a single writer: no locked instruction.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Counters of one worker.
#[derive(Default, Debug)]
pub struct WorkerStats {
    /// Changes of the data set, as Redis counts them (`rdb_changes_since_last_save` is a difference of it).
    pub changes: Counter,
    pub keyspace_hits: Counter,
    pub keyspace_misses: Counter,
}

impl WorkerStats {
    pub fn add_changes(&self, n: u64) {
        self.changes.add(n);
    }

    /// A key was looked up for reading (`keyspace_hits`, `keyspace_misses`).
    pub fn looked_up(&self, found: bool) {
        if found {
            self.keyspace_hits.add(1);
        } else {
            self.keyspace_misses.add(1);
        }
    }
}

//! Counters: of one worker, written by it alone and read by anybody, and of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::command::CommandId;

/// A counter with a single writer: no locked instruction.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn reset(&self) {
        self.set(0);
    }
}

/// Counters of one command on one worker.
#[derive(Default, Debug)]
pub struct CommandStats {
    pub calls: Counter,
    pub nanos: Counter,
    /// Refused before they ran.
    pub rejected: Counter,
    /// Ran and gave an error.
    pub failed: Counter,
    /// Times in nanoseconds, from the first call on.
    pub times_ns: Mutex<Option<Box<Histogram<u64>>>>,
}

/// Longest time that a histogram tells apart, as in Redis: one second.
const HISTOGRAM_MAX_NS: u64 = 1_000_000_000;
const HISTOGRAM_DIGITS: u8 = 2;

/// An empty histogram of times in nanoseconds.
pub fn new_histogram() -> Option<Box<Histogram<u64>>> {
    Histogram::new_with_bounds(1, HISTOGRAM_MAX_NS, HISTOGRAM_DIGITS).ok().map(Box::new)
}

impl CommandStats {
    /// Counts `count` calls of `nanos` each.
    pub fn record(&self, count: u64, nanos: u64, with_histogram: bool) {
        self.calls.add(count);
        self.nanos.add(count * nanos);
        if with_histogram {
            self.record_time(count, nanos);
        }
    }

    /// Enters `count` times of `nanos` into the histogram.
    pub fn record_time(&self, count: u64, nanos: u64) {
        let mut times = self.times_ns.lock();
        if times.is_none() {
            *times = new_histogram();
        }
        if let Some(times) = &mut *times {
            times.saturating_record_n(nanos.max(1), count);
        }
    }
}

/// Counters of the server that are not on the path of a command.
#[derive(Default, Debug)]
pub struct ServerStats {
    pub connections_received: AtomicU64,
    pub connections_rejected: AtomicU64,
    pub output_limit_closed: AtomicU64,
    pub clients_evicted: AtomicU64,
    pub query_limit_closed: AtomicU64,
    pub protocol_errors: AtomicU64,
    pub used_memory_peak_bytes: AtomicU64,
    pub ops_per_second: AtomicU64,
    pub input_bytes_per_second: AtomicU64,
    pub output_bytes_per_second: AtomicU64,
}

/// Counters of one worker.
#[derive(Debug)]
pub struct WorkerStats {
    /// What Redis counts as changes and the store does not, wrapping, less what only the store does.
    pub recounted_changes: Counter,
    pub keyspace_hits: Counter,
    pub keyspace_misses: Counter,
    pub commands: Counter,
    pub input_bytes: Counter,
    pub output_bytes: Counter,
    pub reads: Counter,
    pub writes: Counter,
    pub batches: Counter,
    /// Of the worker's state of Lua, garbage counted, after the last script.
    pub lua_bytes: Counter,
    /// Sleeps that `busy-poll` has saved.
    pub busy_poll_hits: Counter,
    pub expired: Counter,
    /// Fields of hashes.
    pub expired_fields: Counter,
    /// Spent on looking for what has expired.
    pub expire_nanos: Counter,
    by_command: Box<[CommandStats]>,
}

impl WorkerStats {
    pub fn new(command_count: usize) -> WorkerStats {
        WorkerStats {
            recounted_changes: Counter::default(),
            keyspace_hits: Counter::default(),
            keyspace_misses: Counter::default(),
            commands: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            batches: Counter::default(),
            lua_bytes: Counter::default(),
            busy_poll_hits: Counter::default(),
            expired: Counter::default(),
            expired_fields: Counter::default(),
            expire_nanos: Counter::default(),
            by_command: (0..command_count).map(|_| CommandStats::default()).collect(),
        }
    }

    /// Adds to, or wrapping takes from, the changes that the store counts.
    pub fn recount_changes(&self, n: u64) {
        self.recounted_changes.add(n);
    }

    /// A key was looked up for reading (`keyspace_hits`, `keyspace_misses`).
    pub fn looked_up(&self, found: bool) {
        if found {
            self.keyspace_hits.add(1);
        } else {
            self.keyspace_misses.add(1);
        }
    }

    /// Number of commands that are counted.
    pub fn command_count(&self) -> usize {
        self.by_command.len()
    }

    pub fn command(&self, id: CommandId) -> &CommandStats {
        &self.by_command[id.0 as usize]
    }

    /// `CONFIG RESETSTAT`. The count of changes stays, it belongs to the save points.
    pub fn reset(&self) {
        for counter in [
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.commands,
            &self.input_bytes,
            &self.output_bytes,
            &self.reads,
            &self.writes,
            &self.batches,
            &self.busy_poll_hits,
            &self.expired,
            &self.expired_fields,
            &self.expire_nanos,
        ] {
            counter.reset();
        }
        for command in &self.by_command {
            for counter in [&command.calls, &command.nanos, &command.rejected, &command.failed] {
                counter.reset();
            }
            *command.times_ns.lock() = None;
        }
    }
}

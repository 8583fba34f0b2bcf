//! What a device has done and is doing, for `INFO`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::metrics::{Histogram, Summary};

/// Which way the bytes of an operation go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    Write,
}

/// How a device does its operations, how many it has, and how they went.
#[derive(Clone, Default, Debug)]
pub struct IoReport {
    /// What does many operations of one call: `io_uring` or `threads`.
    pub engine: &'static str,
    /// Why it is not the other, if that was wanted rather.
    pub engine_note: Option<String>,
    /// Whether operations go around the page cache.
    pub is_direct: bool,
    /// Why they do not, if that was wanted rather.
    pub direct_note: Option<&'static str>,
    /// Whether memory that stays is known to the kernel: pages there are not pinned anew for each operation.
    pub has_registered_buffers: bool,
    /// Why it is not, if it was to be.
    pub buffers_note: Option<String>,
    /// Operations under way.
    pub depth: u64,
    /// The most that there were at a time.
    pub depth_peak: u64,
    pub reads: OpReport,
    pub writes: OpReport,
    /// Syncs that failed.
    pub sync_error_count: u64,
}

/// Operations in one direction.
#[derive(Clone, Copy, Default, Debug)]
pub struct OpReport {
    /// Bytes of those that succeeded.
    pub byte_count: u64,
    pub error_count: u64,
    /// From handing an operation to the system to its end, however it ended; the count is that of all operations.
    pub latency: Summary,
}

#[derive(Default)]
struct Counters {
    byte_count: AtomicU64,
    error_count: AtomicU64,
    latency: Histogram,
}

impl Counters {
    fn report(&self) -> OpReport {
        OpReport {
            byte_count: self.byte_count.load(Ordering::Relaxed),
            error_count: self.error_count.load(Ordering::Relaxed),
            latency: self.latency.summary(),
        }
    }
}

/// Counts operations; any thread may add to it.
#[derive(Default)]
pub struct Meter {
    reads: Counters,
    writes: Counters,
    sync_error_count: AtomicU64,
    depth: AtomicU64,
    depth_peak: AtomicU64,
}

impl Meter {
    /// An operation begins.
    pub fn begin(&self) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        if depth > self.depth_peak.load(Ordering::Relaxed) {
            self.depth_peak.fetch_max(depth, Ordering::Relaxed);
        }
    }

    /// Operations that have begun are not under way any more: they are back, or nobody will be told of them.
    pub fn leave(&self, count: usize) {
        self.depth.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// An operation of `byte_len` bytes, which is back, has ended.
    pub fn end(&self, direction: Direction, byte_len: u64, is_done: bool, took: Duration) {
        let counters = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        counters.latency.record(took);
        match is_done {
            true => counters.byte_count.fetch_add(byte_len, Ordering::Relaxed),
            false => counters.error_count.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Measures an operation that is done at once.
    pub fn time<T, E>(
        &self,
        direction: Direction,
        byte_len: u64,
        operation: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin();
        let began = Instant::now();
        let result = operation();
        self.leave(1);
        self.end(direction, byte_len, result.is_ok(), began.elapsed());
        result
    }

    pub fn note_sync_error(&self) {
        self.sync_error_count.fetch_add(1, Ordering::Relaxed);
    }

    /// What has been counted; how it is done the device knows.
    pub fn report(&self) -> IoReport {
        IoReport {
            depth: self.depth.load(Ordering::Relaxed),
            depth_peak: self.depth_peak.load(Ordering::Relaxed),
            reads: self.reads.report(),
            writes: self.writes.report(),
            sync_error_count: self.sync_error_count.load(Ordering::Relaxed),
            ..IoReport::default()
        }
    }
}

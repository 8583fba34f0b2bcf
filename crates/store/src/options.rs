use std::time::Duration;

use stillframe_pagepool::device::IoOptions;
use stillframe_pagepool::{Layout, PoolBackend, SnapshotKind};

use crate::log_options::LogOptions;
use crate::shares::MemoryShares;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of logical databases.
    pub database_count: u32,
    /// Upper bound of the store's memory, in bytes, whatever it holds and whatever fills it: what does not fit is in the page
    /// file alone, and is read when it is asked for. 0 is no bound. Only with [`SnapshotKind::Epoch`].
    ///
    /// A part of it is for snapshots and for what is on its way; [`Options::memory_shares`] says what that leaves for pages of
    /// data, and [`crate::Store::memory_shares`] what there is left now. A bound that leaves less than 8 MB is refused. Handles
    /// and [`crate::Worker`]s wait for room by themselves.
    pub memory_bytes: u64,
    /// The same by its earlier name; of two bounds the smaller one counts. It is never refused: pages
    /// have 8 MB at least.
    pub tiered_bytes: u64,
    /// Upper bound of data, in bytes, beyond which what would store more is refused; 0 is no bound. For a store whose data is
    /// to be in memory; for one whose data may be larger there is [`Options::memory_bytes`].
    pub maxmemory_bytes: u64,
    pub snapshot_kind: SnapshotKind,
    /// How the number of a page leads to its bytes.
    pub pool_backend: PoolBackend,
    /// Budget for before-images, spare frames and quarantined pages, in bytes; not more than an eighth of
    /// [`Options::memory_bytes`].
    pub snapshot_memory_bytes: u64,
    /// Back the pool with huge pages (epoch only).
    pub huge_pages: bool,
    /// How the page file is read and written.
    pub io: IoOptions,
    /// Threads that are expected to work on keys: a hint. Keys are locked from the start with two, and with one as soon as
    /// there is anybody beside a single [`crate::Store::nonblocking_worker`]. So any number of threads may come, whatever it says.
    pub worker_count: usize,
    /// How long a checkpoint, a view and whatever else everybody stands still for wait for an operation of a thread to end:
    /// after that they are errors that name the thread, and the others go on. `None`: without end.
    pub cut_patience: Option<Duration>,
    /// Significant bits of the key hash; 64 but in tests of equal hashes.
    pub hash_bits: u32,
    /// Numbers that pages may have, and so the address space: [`Layout::FULL`] but under tools that can map less. What was saved
    /// with a larger one is opened with as large a one.
    pub layout: Layout,
    /// Serve the checkpoint of this number although a later one, which was saved, cannot be: what came after it is lost.
    pub accept_loss_after_checkpoint: Option<u64>,
    /// Keep a log of all that changes, and so what has changed since the last checkpoint; `None`: none. A log that goes with the
    /// checkpoint is replayed in any case. What named trees hold is in no log.
    pub log: Option<LogOptions>,
    /// When the last clone of the store is dropped, take a checkpoint if anything has changed since the last one.
    pub checkpoint_on_drop: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            database_count: 16,
            memory_bytes: 0,
            tiered_bytes: 0,
            maxmemory_bytes: 0,
            snapshot_kind: SnapshotKind::Epoch,
            pool_backend: PoolBackend::default(),
            snapshot_memory_bytes: 64 << 20,
            huge_pages: true,
            io: IoOptions::default(),
            worker_count: 1,
            cut_patience: Some(Duration::from_secs(5)),
            hash_bits: 64,
            layout: Layout::FULL,
            accept_loss_after_checkpoint: None,
            log: None,
            checkpoint_on_drop: true,
        }
    }
}

impl Options {
    /// The bound of memory; 0 is none.
    pub(crate) fn bound_bytes(&self) -> u64 {
        let bounds = [self.memory_bytes, self.tiered_bytes].into_iter().filter(|bytes| *bytes != 0);
        bounds.min().unwrap_or(0)
    }

    /// How the bound of memory is divided as long as there is no data, if there is one.
    pub fn memory_shares(&self) -> Option<MemoryShares> {
        MemoryShares::of(self.bound_bytes(), self.snapshot_memory_bytes, 0)
    }
}

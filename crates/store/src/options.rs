use stillframe_pagepool::device::IoOptions;
use stillframe_pagepool::{Layout, PoolBackend, SnapshotKind};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of logical databases.
    pub database_count: u32,
    /// Upper bound of memory for data, in bytes; 0 is no bound.
    pub maxmemory_bytes: u64,
    /// Upper bound of memory of a store with a page file, in bytes: what does not fit is in the file alone, and is read when
    /// it is asked for. 0 is no bound. Only with [`SnapshotKind::Epoch`].
    pub tiered_bytes: u64,
    pub snapshot_kind: SnapshotKind,
    /// How the number of a page leads to its bytes.
    pub pool_backend: PoolBackend,
    /// Budget for before-images, spare frames and quarantined pages, in bytes.
    pub snapshot_memory_bytes: u64,
    /// Back the pool with huge pages (epoch only).
    pub huge_pages: bool,
    /// How the page file is read and written.
    pub io: IoOptions,
    /// Threads that will hold a [`crate::Worker`]; with one, keys are not locked.
    pub worker_count: usize,
    /// Significant bits of the key hash; 64 but in tests of equal hashes.
    pub hash_bits: u32,
    /// Numbers that pages may have, and so the address space: [`Layout::FULL`] but under tools that can map less. What was saved
    /// with a larger one is opened with as large a one.
    pub layout: Layout,
    /// Serve the checkpoint of this number although a later one, which was saved, cannot be: what came after it is lost.
    pub accept_loss_after_checkpoint: Option<u64>,
    /// When the last clone of the store is dropped, take a checkpoint if anything has changed since the last one.
    pub checkpoint_on_drop: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            database_count: 16,
            maxmemory_bytes: 0,
            tiered_bytes: 0,
            snapshot_kind: SnapshotKind::Epoch,
            pool_backend: PoolBackend::default(),
            snapshot_memory_bytes: 64 << 20,
            huge_pages: true,
            io: IoOptions::default(),
            worker_count: 1,
            hash_bits: 64,
            layout: Layout::FULL,
            accept_loss_after_checkpoint: None,
            checkpoint_on_drop: true,
        }
    }
}

//! Options of the small pools that tests make.

use stillframe_pagepool::{Layout, PoolBackend, PoolOptions, SnapshotKind};

/// The backend of the suite.
pub fn backend() -> PoolBackend {
    if stillframe_testkit::simulates_exmap() {
        stillframe_pagepool::exmap::simulate_exmap();
    }
    stillframe_testkit::pool_backend()
}

/// The algorithms that the backend of the suite serves.
#[allow(dead_code)]
pub fn kinds() -> impl Iterator<Item = SnapshotKind> {
    let backend = backend();
    SnapshotKind::ALL.into_iter().filter(move |kind| kind.check(backend, false).is_ok())
}

/// Of few pages, on the backend that the suite runs on.
pub fn small_pool(snapshot_kind: SnapshotKind, snapshot_memory_bytes: u64) -> PoolOptions {
    let (layout, backend) = (Layout::TINY, backend());
    PoolOptions { layout, snapshot_kind, backend, snapshot_memory_bytes, ..PoolOptions::default() }
}

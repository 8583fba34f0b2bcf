//! Options of the small pools that tests make.

use stillframe_pagepool::{Layout, PoolOptions, SnapshotKind};

/// The algorithms that the backend of the suite serves.
#[allow(dead_code)]
pub fn kinds() -> impl Iterator<Item = SnapshotKind> {
    let backend = stillframe_testkit::pool_backend();
    SnapshotKind::ALL.into_iter().filter(move |kind| kind.check(backend, false).is_ok())
}

/// Of few pages, on the backend that the suite runs on.
pub fn small_pool(snapshot_kind: SnapshotKind, snapshot_memory_bytes: u64) -> PoolOptions {
    let (layout, backend) = (Layout::TINY, stillframe_testkit::pool_backend());
    PoolOptions { layout, snapshot_kind, backend, snapshot_memory_bytes, ..PoolOptions::default() }
}

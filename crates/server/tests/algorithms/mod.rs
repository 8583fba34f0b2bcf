//! The snapshot algorithms as a server is started with them.

use stillframe_pagepool::{PoolBackend, SnapshotKind};

/// The flags of an algorithm, with what it wants of the others.
pub fn flags(kind: SnapshotKind) -> Vec<&'static str> {
    let mut flags = vec!["--snapshot-algorithm", kind.name()];
    if kind.check(PoolBackend::default(), false).is_err() {
        flags.extend(["--pool-backend", PoolBackend::Array.name()]);
    }
    flags
}

/// All algorithms but the default.
#[allow(dead_code)]
pub fn others() -> impl Iterator<Item = SnapshotKind> {
    SnapshotKind::ALL.into_iter().filter(|&kind| kind != SnapshotKind::default())
}

//! The page pool: 4 KB pages that the store itself maps, latches and versions (vmcache, SIGMOD 2023),
//! with consistent snapshots of them and the page file they are kept in.
//!
//! It is not a key-value store: it knows pages and objects (runs of pages), never keys or values.
//!
//! From the ground up: `exmap`, `device`, `space`, `page`, `pagefile`, `snapshot`, `residency`; above them, at the root, what a caller
//! sees. Each uses only those before it.
//!
//! Besides two bindings for the benchmark, this is the only crate of the workspace with unsafe code; each block cites an invariant
//! of `docs/internals/design.md`.
#![deny(clippy::undocumented_unsafe_blocks)]
#![deny(unsafe_op_in_unsafe_fn)]

mod barrier;
mod checkpoint;
mod conditions;
pub mod device;
mod error;
pub mod exmap;
pub mod failing;
mod fence;
mod guard;
pub mod heap;
mod held;
pub mod metrics;
mod objects;
mod page;
pub mod pagefile;
mod phase;
mod pool;
mod reason;
mod residency;
pub mod sched;
pub mod snapshot;
mod space;
mod view;

/// What protocols between threads are made of; the model checker puts its own in the place of these.
mod sync {
    pub use crate::fence::{heavy_fence, light_fence, pause};
    pub use parking_lot::{ArcMutexGuard, Condvar, Mutex, MutexGuard, RawMutex, RwLock, RwLockReadGuard};
    pub use std::sync::{atomic, Arc};
    pub use std::thread;
    pub use std::time::Instant;
}

pub use crate::barrier::{is_acting, Barrier, BarrierTimes, Grace, Late, Member, Standstill};
pub use crate::checkpoint::CheckpointStats;
pub use crate::conditions::Conditions;
pub use crate::error::{CheckpointError, PoolError, Restart, Unserved};
pub use crate::guard::{ExclusiveGuard, Hints, OptimisticGuard, SharedGuard};
pub use crate::page::{prefetch_value, prefetch_value_for_write, Epoch};
pub use crate::phase::{is_carrying, is_looking, Carrying, Looking};
pub use crate::pool::{Pool, PoolOptions, PoolStats};
pub use crate::reason::Reason;
pub use crate::residency::{
    DamagedPages, Residency, Room, ScrubReport, ScrubStats, Turn, Turns, SCRUB_STEP_PAGES,
};
pub use crate::snapshot::{SnapshotKind, UnknownSnapshotKind};
pub use crate::space::{
    AnonMemory, ExmapMemory, ForkedWriter, HeapMemory, Layout, MapError, Memory, PoolBackend,
    UnknownPoolBackend, VirtualArray, WriteProtection,
};
pub use crate::view::View;

/// Number of a 4 KB page of the pool; the page table knows where it lies. Zero is never allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u32);

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// Content of a page.
pub type PageBytes = [u8; PAGE_SIZE];

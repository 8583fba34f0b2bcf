//! The page pool: 4 KB pages that the store itself maps, latches and versions (vmcache, SIGMOD 2023),
//! with consistent snapshots of them and the page file they are kept in.
//!
//! It is not a key-value store: it knows pages and objects (runs of pages), never keys or values.
//! This is the only crate of the workspace with unsafe code; each block cites an invariant of `docs/design.md`.
#![deny(clippy::undocumented_unsafe_blocks)]
#![deny(unsafe_op_in_unsafe_fn)]

mod alloc;
mod barrier;
mod checkpoint;
mod core;
pub mod device;
mod epochs;
mod error;
mod frames;
mod guard;
mod latch;
mod loader;
pub mod memory;
pub mod metrics;
pub mod pagefile;
mod pool;
mod small_zone;
pub mod snapshot;
mod stock;
mod view;

/// What protocols between threads are made of; the model checker puts its own in the place of these.
mod sync {
    pub use parking_lot::{ArcMutexGuard, Condvar, Mutex, RawMutex, RwLock, RwLockReadGuard};
    pub use std::sync::{atomic, Arc};
    pub use std::thread;
    pub use std::time::Instant;
}

pub use crate::alloc::Layout;
pub use crate::barrier::{Barrier, BarrierTimes, Member, Standstill};
pub use crate::checkpoint::CheckpointStats;
pub use crate::core::Epoch;
pub use crate::error::{CheckpointError, PoolError, Restart};
pub use crate::guard::{ExclusiveGuard, OptimisticGuard, SharedGuard};
pub use crate::loader::DamagedPages;
pub use crate::pool::{prefetch_value, Pool, PoolOptions, PoolStats};
pub use crate::snapshot::SnapshotKind;
pub use crate::view::View;

/// Number of a 4 KB page of the pool; page `pid` lies at `base + pid * 4096`. Zero is never allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u32);

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// Content of a page.
pub type PageBytes = [u8; PAGE_SIZE];

//! The key space: databases as B+trees of hashes over the pages of a pool.
//!
//! ```text
//! catalog ─▶ root (inner) ─▶ … ─▶ inner, level 1 ─▶ leaf ─▶ slab slot, or an object of pages
//! ```
//! A root keeps its page for the life of its tree. Inner nodes are read optimistically, leaves under a shared
//! latch; a writer latches the leaf exclusively and, to divide or join leaves, first the node above it. Latches are
//! waited for downwards only; neighbours are tried. Errors come before the first change of an operation.

mod catalog;
pub(crate) mod check;
mod choice;
pub(crate) mod collect;
pub(crate) mod collections;
mod counters;
pub(crate) mod damage;
mod databases;
pub(crate) mod elements;
pub(crate) mod evict;
pub(crate) mod expire;
mod expiry;
pub(crate) mod find;
mod gate;
mod limits;
mod locks;
mod missed;
mod op;
mod prefetch;
pub(crate) mod random;
pub(crate) mod read;
pub(crate) mod resolve;
pub(crate) mod scan;
mod sharing;
mod skips;
mod stamps;
mod state;
mod steps;
pub(crate) mod sweep;
pub(crate) mod update;
mod walks;
pub(crate) mod whole;
pub(crate) mod write;

pub(crate) use catalog::{Catalog, CATALOG_DB_MAX, CATALOG_PAGE_COUNT};
pub use check::CheckReport;
pub(crate) use check::{CollectionChecks, PageCheck};
pub(crate) use collections::{CollectionKey, Opened, Rest};
pub use limits::CollectionLimits;
pub use locks::{BehindLocks, Locks};
pub(crate) use missed::{Draws, Missed};
pub(crate) use op::Op;
pub use prefetch::Prefetch;
pub use skips::SkipStats;
pub(crate) use state::{Keyspace, Local};
pub(crate) use steps::Acting;
pub(crate) use write::{copy_record, Put, Was};

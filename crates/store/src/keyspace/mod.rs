//! The key space: databases as B+trees of hashes over the pages of a pool.
//!
//! ```text
//! catalog ─▶ root (inner) ─▶ … ─▶ inner, level 1 ─▶ leaf ─▶ slab slot, or an object of pages
//! ```
//! A root keeps its page for the life of its tree. Inner nodes are read optimistically, leaves under a shared
//! latch; a writer latches the leaf exclusively and, to divide or join leaves, first the node above it. Latches are
//! waited for downwards only; neighbours are tried. Errors come before the first change of an operation.

mod catalog;
mod check;
mod choice;
mod collect;
mod collections;
mod counters;
mod damage;
mod databases;
mod elements;
mod evict;
mod expire;
mod expiry;
mod find;
#[cfg(test)]
mod garbage_tests;
mod gate;
mod limits;
mod locks;
mod missed;
mod random;
mod read;
mod resolve;
mod scan;
mod sharing;
mod skips;
mod stamps;
mod state;
mod steps;
mod sweep;
mod update;
mod walks;
mod write;

pub(crate) use catalog::{Catalog, CATALOG_DB_MAX, CATALOG_PAGE_COUNT};
pub use check::CheckReport;
pub(crate) use check::{CollectionChecks, PageCheck};
pub(crate) use collections::{CollectionKey, Opened, Rest};
pub use limits::CollectionLimits;
pub use locks::{BehindLocks, Locks};
pub(crate) use missed::{Draws, Missed};
pub use skips::SkipStats;
pub(crate) use state::{Keyspace, Local};
pub(crate) use write::{copy_record, Put, Was};

//! The store: keys and values in the pages of `stillframe-pagepool`; an embeddable library.
//!
//! It is not a server: no sockets, no protocol, no command names.
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

mod keyspace;
pub mod offline;
mod options;
mod page;
mod store;
mod types;
mod value;
mod walk;
mod worker;

/// Atomics: those of the standard library, or of the model checker in its tests.
mod sync {
    pub use std::sync::atomic;
}

pub use keyspace::{CheckReport, Locks};
pub use options::{Options, SnapshotKind};
pub use store::{CheckpointReport, OpenError, SaveError, SaveProgress, Store, View, ViewEntry};
pub use types::*;
pub use value::StrRef;
pub use walk::Lost;
pub use worker::{Alone, Worker};

pub mod rdb;

/// Seed of a random test: `STILLFRAME_SEED`, or a fresh one; printed, so that a failure can be replayed.
#[cfg(test)]
pub(crate) fn test_seed() -> u64 {
    let given = std::env::var("STILLFRAME_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("STILLFRAME_SEED={seed}");
    seed
}

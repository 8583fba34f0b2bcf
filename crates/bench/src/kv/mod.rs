//! Stores of ordered byte strings behind one interface, so that one workload runs on each of them: ours and its peers.

#[cfg(feature = "fjall")]
mod fjall;
mod lmdb;
#[cfg(test)]
mod model;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod seam;
mod stillframe;
mod systems;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "redb", feature = "fjall"))]
mod versions;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

#[cfg(test)]
pub use model::Model;
pub use seam::{
    Access, Evictions, KeyValue, OpenOptions, Order, Session, Settings, Transaction, TreeId, TreeRow, Verdict,
};
pub use systems::System;

use stillframe_store::PoolBackend;

use crate::error::Result;

/// This project's store with any backend, also one that not every machine has.
///
/// # Errors
/// Those of [`System::open`], and the backend is missing.
pub fn open_own(options: &OpenOptions<'_>, backend: PoolBackend) -> Result<Box<dyn KeyValue>> {
    Ok(Box::new(stillframe::Stillframe::open(options, backend)?))
}

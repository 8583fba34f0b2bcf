//! The list of stores that can be compared.

use serde::{Deserialize, Serialize};
use stillframe_store::PoolBackend;

use super::lmdb::Lmdb;
use super::seam::{KeyValue, OpenOptions};
use super::stillframe::Stillframe;
#[cfg(feature = "wiredtiger")]
use super::wiredtiger::{Pages, WiredTiger};
use crate::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum System {
    Stillframe,
    /// With pages in frames
    #[value(name = "stillframe-array")]
    StillframeArray,
    Lmdb,
    #[cfg(feature = "wiredtiger")]
    WiredTiger,
    /// With pages of 4 KB
    #[cfg(feature = "wiredtiger")]
    WiredTiger4k,
    #[cfg(feature = "rocksdb")]
    RocksDb,
    #[cfg(feature = "redb")]
    Redb,
    #[cfg(feature = "fjall")]
    Fjall,
}

impl System {
    pub fn all() -> &'static [System] {
        <System as clap::ValueEnum>::value_variants()
    }

    pub fn name(self) -> &'static str {
        match self {
            System::Stillframe => "stillframe",
            System::StillframeArray => "stillframe-array",
            System::Lmdb => "lmdb",
            #[cfg(feature = "wiredtiger")]
            System::WiredTiger => "wiredtiger",
            #[cfg(feature = "wiredtiger")]
            System::WiredTiger4k => "wiredtiger4k",
            #[cfg(feature = "rocksdb")]
            System::RocksDb => "rocksdb",
            #[cfg(feature = "redb")]
            System::Redb => "redb",
            #[cfg(feature = "fjall")]
            System::Fjall => "fjall",
        }
    }

    /// Whether it is this project's store.
    pub fn is_own(self) -> bool {
        matches!(self, System::Stillframe | System::StillframeArray)
    }

    /// Whether it takes part in a quick run that names no systems: those of the paper, and RocksDB.
    pub fn is_of_quick_runs(self) -> bool {
        match self {
            System::Stillframe | System::StillframeArray | System::Lmdb => true,
            #[cfg(feature = "wiredtiger")]
            System::WiredTiger => true,
            #[cfg(feature = "wiredtiger")]
            System::WiredTiger4k => false,
            #[cfg(feature = "rocksdb")]
            System::RocksDb => true,
            #[cfg(feature = "redb")]
            System::Redb => false,
            #[cfg(feature = "fjall")]
            System::Fjall => false,
        }
    }

    /// Opens the store, or makes a new one if the directory is empty.
    ///
    /// # Errors
    /// The directory has something else, or an I/O error.
    pub fn open(self, options: &OpenOptions<'_>) -> Result<Box<dyn KeyValue>> {
        Ok(match self {
            System::Stillframe => Box::new(Stillframe::open(options, PoolBackend::Vmcache)?),
            System::StillframeArray => Box::new(Stillframe::open(options, PoolBackend::Array)?),
            System::Lmdb => Box::new(Lmdb::open(options)?),
            #[cfg(feature = "wiredtiger")]
            System::WiredTiger => Box::new(WiredTiger::open(options, Pages::Large)?),
            #[cfg(feature = "wiredtiger")]
            System::WiredTiger4k => Box::new(WiredTiger::open(options, Pages::Of4Kb)?),
            #[cfg(feature = "rocksdb")]
            System::RocksDb => Box::new(super::rocksdb::Rocksdb::open(options)?),
            #[cfg(feature = "redb")]
            System::Redb => Box::new(super::redb::Redb::open(options)?),
            #[cfg(feature = "fjall")]
            System::Fjall => Box::new(super::fjall::Fjall::open(options)?),
        })
    }
}

//! What can go wrong: contention restarts, operations return errors, bugs assert.

use std::sync::Arc;

use crate::barrier::Late;
use crate::exmap::ExmapError;
use crate::pagefile::{PageFileError, SpillError};
use crate::reason::Reason;
use crate::space::{MapError, PoolBackend};
use crate::PageId;

/// Why an access did not succeed now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// A latch was held or a version changed: run the operation again from its beginning.
    Contended,
    /// The page must be read from the page file first ([`crate::Residency::load`]).
    Fault(PageId),
    /// The page must be read from the page file first, but everything in memory is needed there: it cannot be written.
    NoRoom,
    /// The page is damaged or unreadable, for good; the reason says where.
    Damaged(Reason),
    /// The page is there, and this thread only looks ([`crate::Looking`]).
    Looking,
}

/// Why a snapshot algorithm cannot serve a pool.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unserved {
    #[error(
        "the snapshot algorithm '{kind}' keeps each page in one of two places, and with pool backend '{backend}' a page has one \
         address: it wants '{}'",
        PoolBackend::Array
    )]
    TwoPlaces { kind: &'static str, backend: PoolBackend },
    #[error("the snapshot algorithm '{kind}' saves from a child process, which does not have the pages of pool backend '{backend}'")]
    Child { kind: &'static str, backend: PoolBackend },
    #[error(
        "the snapshot algorithm '{kind}' needs all data in memory: only with 'epoch' there may be more data"
    )]
    Bounded { kind: &'static str },
    #[error("the page file has more pages than the snapshot algorithm '{kind}' serves, which needs all of them in memory")]
    LargerThanMemory { kind: &'static str },
}

/// Why the pool could not be opened or extended.
#[derive(thiserror::Error, Debug)]
pub enum PoolError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Exmap(#[from] ExmapError),
    #[error("no page ids are left for an object of {page_count} pages")]
    Exhausted { page_count: u32 },
    #[error(transparent)]
    PageFile(#[from] PageFileError),
    #[error(
        "{path} has page {page}, beyond the {limit} pages of this layout: it was written by another version"
    )]
    Layout { path: String, page: u32, limit: u32 },
    #[error(transparent)]
    Unserved(#[from] Unserved),
    /// This thread only looks ([`crate::Looking`]).
    #[error("nothing is allocated by who only looks")]
    Looking,
    #[error("cannot start a background thread: {0}")]
    Thread(#[source] std::io::Error),
    #[error("cannot have a descriptor to wake a thread by: {0}; raise `ulimit -n`")]
    Bell(#[source] rustix::io::Errno),
}

/// Why a checkpoint did not complete. The previous one stays loadable.
#[derive(thiserror::Error, Debug, Clone)]
pub enum CheckpointError {
    #[error("a checkpoint is already in progress")]
    InProgress,
    #[error(transparent)]
    Io(Reason),
    #[error("the snapshot child failed: {0}")]
    Child(Arc<str>),
    #[error("no cuts are left in this process; restart it")]
    EpochsExhausted,
    /// There was no cut.
    #[error(transparent)]
    Late(#[from] Late),
}

impl From<PageFileError> for CheckpointError {
    fn from(error: PageFileError) -> Self {
        match error {
            PageFileError::CheckpointRunning { .. } => CheckpointError::InProgress,
            error => CheckpointError::Io(Reason::of(&error)),
        }
    }
}

impl From<SpillError> for CheckpointError {
    fn from(error: SpillError) -> Self {
        CheckpointError::Io(Reason::of(&error))
    }
}

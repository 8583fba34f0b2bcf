//! Why a step inside the store stopped.

use stillframe_pagepool::{ExclusiveGuard, PageId, Pool, PoolError, Reason, Restart, SharedGuard};

use crate::db::DbId;
use crate::error::{Fault, OpError};

/// Why a step of an operation stopped. Nothing has been changed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Run the operation again.
    Contended,
    Fault(PageId),
    /// The same with all pages of a value that are missing.
    Missing(Vec<PageId>),
    /// So much of a value cannot be in memory at a time.
    LargerThanMemory {
        needed_bytes: u64,
        most_bytes: u64,
    },
    Damaged(Reason),
    OutOfMemory {
        limit_bytes: u64,
    },
    TooLarge,
    WrongType,
    NoDatabase {
        db: DbId,
        database_count: u32,
    },
    /// A key is one of another store.
    OtherStore,
    NoRoom,
    /// What it was going to change is in memory, and this thread only looks.
    Looking,
}

impl From<Restart> for Stop {
    fn from(restart: Restart) -> Stop {
        match restart {
            Restart::Contended => Stop::Contended,
            Restart::Fault(pid) => Stop::Fault(pid),
            Restart::NoRoom => Stop::NoRoom,
            Restart::Damaged(reason) => Stop::Damaged(reason),
            Restart::Looking => Stop::Looking,
        }
    }
}

impl From<PoolError> for Stop {
    fn from(error: PoolError) -> Stop {
        match error {
            PoolError::Looking => Stop::Looking,
            error => Stop::Damaged(Reason::of(&error)),
        }
    }
}

impl From<Stop> for OpError {
    fn from(stop: Stop) -> OpError {
        match stop {
            Stop::Contended => OpError::Damaged("an operation was not retried".into()),
            Stop::Fault(pid) => OpError::Fault(Fault::of(vec![pid])),
            Stop::Missing(pages) => OpError::Fault(Fault::of(pages)),
            Stop::LargerThanMemory { needed_bytes, most_bytes } => {
                OpError::LargerThanMemory { needed_bytes, most_bytes }
            }
            Stop::Damaged(reason) => OpError::Damaged(reason),
            Stop::OutOfMemory { limit_bytes } => OpError::OutOfMemory { limit_bytes },
            Stop::TooLarge => OpError::TooLarge,
            Stop::WrongType => OpError::WrongType,
            Stop::NoDatabase { db, database_count } => OpError::NoDatabase { db, database_count },
            Stop::OtherStore => OpError::OtherStore,
            Stop::NoRoom => OpError::NoRoom,
            Stop::Looking => OpError::Looking,
        }
    }
}

/// Latching a page that is referred to by one that does not change meanwhile.
///
/// # Errors
/// As [`stop_at`] says.
pub(crate) trait Follow {
    fn follow_shared(&self, pid: PageId) -> Result<SharedGuard<'_>, Stop>;
    fn follow_exclusive(&self, pid: PageId) -> Result<ExclusiveGuard<'_>, Stop>;
}

impl Follow for Pool {
    #[inline(always)]
    fn follow_shared(&self, pid: PageId) -> Result<SharedGuard<'_>, Stop> {
        self.shared(pid).map_err(|restart| stop_at(self, restart))
    }

    #[inline(always)]
    fn follow_exclusive(&self, pid: PageId) -> Result<ExclusiveGuard<'_>, Stop> {
        self.exclusive(pid).map_err(|restart| stop_at(self, restart))
    }
}

/// Why a page could not be had that is referred to by one that does not change meanwhile. One that is not in use would be
/// waited for in vain.
#[cold]
pub(crate) fn stop_at(pool: &Pool, restart: Restart) -> Stop {
    match restart {
        Restart::Fault(pid) if !pool.residency().is_in_use(pid) => {
            Stop::Damaged(format!("page {} is not in use, but another one refers to it", pid.0).into())
        }
        other => other.into(),
    }
}

/// Restarts after which a tree is taken for damaged: about a second. Each is after a change of somebody else's, so contention
/// ends long before.
const RESTARTS_MAX: u32 = 1_000_000;

/// Runs a step until nobody gets in its way.
///
/// # Errors
/// [`OpError`]; nothing has been changed.
#[inline(always)]
pub(crate) fn retry<R>(mut step: impl FnMut() -> Result<R, Stop>) -> Result<R, OpError> {
    match step() {
        Ok(result) => Ok(result),
        Err(stop) => retry_on(stop, step),
    }
}

#[cold]
#[inline(never)]
fn retry_on<R>(mut stop: Stop, mut step: impl FnMut() -> Result<R, Stop>) -> Result<R, OpError> {
    for attempt in 0..RESTARTS_MAX {
        match stop {
            Stop::Contended if attempt < 32 => std::hint::spin_loop(),
            Stop::Contended => std::thread::yield_now(),
            other => return Err(other.into()),
        }
        match step() {
            Ok(result) => return Ok(result),
            Err(next) => stop = next,
        }
    }
    Err(OpError::Damaged("an operation never got through; the tree's pages contradict each other".into()))
}

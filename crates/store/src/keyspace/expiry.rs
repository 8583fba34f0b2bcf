//! How far the active expiry has come.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use stillframe_pagepool::PageId;

use super::walks::Walks;
use crate::DbId;

/// Where a walk over all leaves goes on: a database and a hash. `None`: they are all known.
pub(super) type Unregistered = Option<(DbId, u64)>;

#[derive(Default)]
pub(crate) struct Expiry {
    /// Where it looks next, as a page id.
    at: AtomicU32,
    /// Leaves that the side array does not know yet after a restart.
    unregistered: Mutex<Unregistered>,
    /// Through collections whose elements have deadlines.
    pub walks: Walks,
}

impl Expiry {
    /// After a restart: no leaf is known.
    pub fn forget_leaves(&self) {
        *self.unregistered.lock() = Some((DbId(0), 0));
    }

    pub fn at(&self) -> PageId {
        PageId(self.at.load(Ordering::Relaxed))
    }

    pub fn go_on_at(&self, pid: PageId) {
        self.at.store(pid.0, Ordering::Relaxed);
    }

    /// `None` if another thread is at it.
    pub fn unregistered(&self) -> Option<MutexGuard<'_, Unregistered>> {
        self.unregistered.try_lock()
    }
}

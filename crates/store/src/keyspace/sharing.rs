//! Whether keys are locked: not as long as a single nonblocking worker has them to itself.
//!
//! ```text
//!   NOBODY ── a nonblocking worker comes ──▶ ALONE: it takes no locks ── it goes ──▶ NOBODY
//!     │                                 │                  ▲
//!     │ anybody else comes              │ anybody else     │ all others have gone
//!     │                                 │ comes: in the barrier, while that worker is between two commands
//!     └─────────────▶ SHARED ◀──────────┘                  │
//!                     everybody takes locks ───────────────┘
//! ```
//! A worker or handle is counted before its first operation, and works on no key before it has found SHARED, or is ALONE
//! (C10).

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, OnceLock};

/// Workers and handles that there are.
#[derive(Default)]
struct Users {
    count: u32,
    /// Those of them that are nonblocking workers with a thread of their own.
    seated_count: u32,
}

impl Users {
    fn is_one_alone(&self) -> bool {
        self.count == 1 && self.seated_count == 1
    }
}

/// See the module; `L` are the locks.
pub(crate) struct Sharing<L> {
    is_shared: AtomicBool,
    locks: OnceLock<L>,
    users: Mutex<Users>,
    /// Several are expected: SHARED from the start, for good.
    expects_several: bool,
}

impl<L> Sharing<L> {
    pub fn new(expects_several: bool, make: impl FnOnce() -> L) -> Sharing<L> {
        let sharing = Sharing {
            is_shared: AtomicBool::new(expects_several),
            locks: OnceLock::new(),
            users: Mutex::new(Users::default()),
            expects_several,
        };
        if expects_several {
            sharing.locks.get_or_init(make);
        }
        sharing
    }

    /// Whether it is SHARED.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// The locks, if it is SHARED.
    #[inline(always)]
    pub fn locks(&self) -> Option<&L> {
        if self.is_shared() {
            self.locks.get()
        } else {
            None
        }
    }

    /// A worker or handle comes. Whether it may work on keys as it is: else it has to share first.
    #[must_use]
    pub fn come(&self, is_seated: bool) -> bool {
        let mut users = self.users.lock();
        users.count += 1;
        users.seated_count += u32::from(is_seated);
        self.is_shared() || users.is_one_alone()
    }

    /// It goes, after its last operation: SHARED → ALONE, if a nonblocking worker is left and nobody else. The next to come finds
    /// that under the same lock.
    pub fn go(&self, is_seated: bool) {
        let mut users = self.users.lock();
        users.count -= 1;
        users.seated_count -= u32::from(is_seated);
        if users.is_one_alone() && !self.expects_several {
            self.is_shared.store(false, Ordering::Release);
        }
    }

    /// NOBODY → SHARED, for one that has come. False if there is anybody else.
    #[must_use]
    pub fn try_share(&self, make: impl FnOnce() -> L) -> bool {
        let users = self.users.lock();
        if users.count == 1 && !self.is_shared() {
            self.share(make);
        }
        self.is_shared()
    }

    /// ALONE → SHARED. Runs in the barrier.
    pub fn share(&self, make: impl FnOnce() -> L) {
        self.locks.get_or_init(make);
        self.is_shared.store(true, Ordering::Release);
    }
}

//! Whether pages may be in use to which nothing leads, because others are lost.
//!
//! ```text
//!            a page of a tree is given up                     everything has been looked at
//!   TIDY ──────────────────────────────────▶ MAY LEAK, DUE ──────────────────────────────▶ TIDY
//!                                              ▲        │
//!             another page is given up, or a   │        ▼ a page on the way cannot be read
//!             database is emptied              └── MAY LEAK
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
/// See the module.
pub(crate) struct Leaks {
    may_leak: AtomicBool,
    is_due: AtomicBool,
}

impl Leaks {
    pub fn new(may_leak: bool) -> Leaks {
        Leaks { may_leak: AtomicBool::new(may_leak), is_due: AtomicBool::new(may_leak) }
    }

    /// TIDY, MAY LEAK → MAY LEAK, DUE
    pub fn ask(&self) {
        self.may_leak.store(true, Ordering::Relaxed);
        self.is_due.store(true, Ordering::Release);
    }

    /// TIDY → MAY LEAK: something stays in use whose time will come when everything is looked at.
    pub fn note_leak(&self) {
        self.may_leak.store(true, Ordering::Relaxed);
    }

    pub fn may_leak(&self) -> bool {
        self.may_leak.load(Ordering::Relaxed)
    }

    pub fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// MAY LEAK, DUE → MAY LEAK
    pub fn begin(&self) {
        self.is_due.store(false, Ordering::Release);
    }

    /// MAY LEAK → TIDY, unless more has been lost meanwhile
    pub fn end(&self) {
        self.may_leak.store(self.is_due(), Ordering::Relaxed);
    }
}

//! The lock of a row, for strict two-phase locking.
//!
//! ```text
//!   FREE ── try_take(Shared) ──▶ SHARED(1) ── try_take(Shared) ──▶ SHARED(2) ...
//!    │                              │ try_take(Exclusive), by its only holder
//!    └── try_take(Exclusive) ──▶ EXCLUSIVE ── release ──▶ FREE
//!   any ── want ──▶ the same, WANTED: nobody but the elder takes it; with its take the mark goes
//! ```
//! Nobody waits here. Who does not get the lock restarts, and only the elder tries until it has it (invariant V1).

use crate::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Shared,
    Exclusive,
}

const EXCLUSIVE: u32 = 1 << 31;
const WANTED: u32 = 1 << 30;

/// Holders, and whether the elder waits for it.
pub struct RowLock(AtomicU32);

impl RowLock {
    pub fn new() -> RowLock {
        RowLock(AtomicU32::new(0))
    }

    /// FREE or SHARED → SHARED; FREE, or SHARED by the caller alone, → EXCLUSIVE. `shared` says whether the caller is among
    /// those who share it.
    #[inline]
    pub fn try_take(&self, mode: Mode, shared: bool, is_elder: bool) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & WANTED != 0 && !is_elder {
                return false;
            }
            let holders = word & !WANTED;
            let next = match mode {
                Mode::Shared if holders & EXCLUSIVE == 0 => holders + 1,
                Mode::Exclusive if holders == u32::from(shared) => EXCLUSIVE,
                _ => return false,
            };
            match self.0.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// any → WANTED, by the elder.
    pub fn want(&self) {
        self.0.fetch_or(WANTED, Ordering::Relaxed);
    }

    /// EXCLUSIVE → FREE; SHARED(n) → SHARED(n - 1) or FREE.
    #[inline]
    pub fn release(&self, mode: Mode) {
        let before = match mode {
            Mode::Shared => self.0.fetch_sub(1, Ordering::Release),
            Mode::Exclusive => self.0.fetch_and(!EXCLUSIVE, Ordering::Release),
        };
        debug_assert_ne!(before & !WANTED, 0, "released by who holds it");
    }

    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

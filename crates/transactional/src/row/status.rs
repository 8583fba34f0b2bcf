//! Whether a row has a second copy for a cut (CALC, CPR), and whether the sweep has been there.
//!
//! ```text
//!   EMPTY ── hold: a writer copies live to stable ──▶ HELD ── take: the sweep has the stable copy ──▶ DONE
//!     │ ▲                                              │                                              ▲
//!     │ └────────── let_go: it was not needed ─────────┘                                              │
//!     └────────────── take: the sweep has copied live, and the row is still EMPTY ────────────────────┘
//!   EMPTY ── mark_read ──▶ EMPTY, READ: CPR alone; what else is said of EMPTY holds
//! ```
//! DONE at one cut is EMPTY at the next: the meaning changes with the number of the cut, and no pass clears flags.
//! A writer has the row's lock; the sweep has none. It copies live without one, and then its edge validates the copy: a writer
//! leaves EMPTY before it touches live, and nobody comes back to EMPTY while the sweep runs (invariant V4).

use crate::sync::atomic::{fence, AtomicU8, Ordering};

/// Of a cut's number: says which of two values is EMPTY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parity(pub bool);

impl Parity {
    fn empty(self) -> u8 {
        u8::from(self.0)
    }

    fn done(self) -> u8 {
        u8::from(!self.0)
    }
}

const HELD: u8 = 2;
const READ: u8 = 4;

/// Where the sweep found what it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    Live,
    Stable,
    /// It had been there before.
    Nothing,
}

pub struct RowStatus(AtomicU8);

impl RowStatus {
    /// EMPTY at the first cut.
    pub fn new() -> RowStatus {
        RowStatus(AtomicU8::new(Parity(false).empty()))
    }

    /// EMPTY → HELD, by who is going to write the row. False if that was not necessary. `copy` copies live to stable.
    #[inline]
    pub fn hold(&self, parity: Parity, copy: impl FnOnce()) -> bool {
        let status = self.0.load(Ordering::Acquire);
        let is_held = status & !READ == parity.empty() && {
            copy();
            self.0.compare_exchange(status, HELD, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        // Whoever sees a word that is written from here on sees that the row is not EMPTY.
        fence(Ordering::Release);
        is_held
    }

    /// HELD → EMPTY, by who held it, before the sweep begins.
    pub fn let_go(&self, parity: Parity) {
        debug_assert!(self.is_held());
        self.0.store(parity.empty(), Ordering::Release);
    }

    /// EMPTY → READ, by who shares the row's lock.
    #[inline]
    pub fn mark_read(&self, parity: Parity) {
        let empty = parity.empty();
        // If another reader or the sweep was first there is nothing left to do.
        let _ = self.0.compare_exchange(empty, empty | READ, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// EMPTY or HELD → DONE, by the sweep. `copy` copies from the place that it is given.
    pub fn take(&self, parity: Parity, mut copy: impl FnMut(Taken)) -> Taken {
        loop {
            let status = self.0.load(Ordering::Acquire);
            if status == HELD {
                copy(Taken::Stable);
                self.0.store(parity.done(), Ordering::Release);
                return Taken::Stable;
            }
            if status & !READ != parity.empty() {
                return Taken::Nothing;
            }
            copy(Taken::Live);
            fence(Ordering::Acquire);
            if self.0.compare_exchange(status, parity.done(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Taken::Live;
            }
        }
    }

    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire) == HELD
    }

    #[inline]
    pub fn is_read(&self) -> bool {
        self.0.load(Ordering::Acquire) & READ != 0
    }

    /// Whether the sweep has been there, and nothing is held or marked.
    pub fn is_done(&self, parity: Parity) -> bool {
        self.0.load(Ordering::Acquire) == parity.done()
    }
}

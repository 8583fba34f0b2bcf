//! Which of two copies of a row is the latest (vPB).
//!
//! ```text
//!   SAME ── take ──▶ ONLY(me)                            take: a writer, which has the row's lock
//!   ONLY(other) ── take ──▶ BUSY ── copied ──▶ ONLY(me)
//!   ONLY(old) ── settle ──▶ BUSY ── copied ──▶ SAME      settle: the pass between cut and image
//!   any ── move_to ──▶ ONLY(new)                         a transaction that the cut has overtaken
//! ```
//! Who copies to a side has made the row BUSY, and others wait: two copies at once would lose a write (invariant V7).

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::pause;

/// One of the two copies of all rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Zero = 0,
    One = 1,
}

impl Side {
    /// The one that is written in that epoch.
    #[inline]
    pub fn of_epoch(epoch: u16) -> Side {
        if epoch & 1 == 0 {
            Side::Zero
        } else {
            Side::One
        }
    }

    #[inline]
    pub fn other(self) -> Side {
        match self {
            Side::Zero => Side::One,
            Side::One => Side::Zero,
        }
    }
}

const SAME: u8 = 0;
const ONLY: u8 = 2;
/// Being copied from this side to the other.
const BUSY: u8 = 4;

/// SAME, or ONLY or BUSY and in the lowest bit the side that is the latest.
pub struct RowSide(AtomicU8);

impl RowSide {
    pub fn new() -> RowSide {
        RowSide(AtomicU8::new(SAME))
    }

    /// Where the latest is, for who has the row's lock. Also while it is being copied.
    #[inline]
    pub fn live(&self) -> Side {
        Side::of_epoch(u16::from(self.0.load(Ordering::Acquire)))
    }

    /// SAME, or ONLY(other) by way of BUSY, → ONLY(me). `copy` copies from the other side to this.
    #[inline]
    pub fn take(&self, me: Side, copy: impl FnOnce()) {
        let (only_me, only_other) = (ONLY | me as u8, ONLY | me.other() as u8);
        loop {
            let state = self.0.load(Ordering::Acquire);
            if state == only_me {
                return;
            }
            if state == SAME && self.moved(SAME, only_me) {
                return;
            }
            if state == only_other && self.moved(only_other, BUSY | me.other() as u8) {
                copy();
                return self.0.store(only_me, Ordering::Release);
            }
            pause();
        }
    }

    /// ONLY(old) → SAME by way of BUSY. `copy` copies from the old side to the other.
    pub fn settle(&self, old: Side, copy: impl FnOnce()) -> bool {
        loop {
            let state = self.0.load(Ordering::Acquire);
            if state == ONLY | old as u8 && self.moved(state, BUSY | old as u8) {
                copy();
                self.0.store(SAME, Ordering::Release);
                return true;
            }
            if state == SAME || state == ONLY | old.other() as u8 {
                return false;
            }
            pause();
        }
    }

    /// any → ONLY(new), before the pass begins, by who has the row's lock and has written the new side.
    pub fn move_to(&self, new: Side) {
        self.0.store(ONLY | new as u8, Ordering::Release);
    }

    pub fn is_only(&self, side: Side) -> bool {
        self.0.load(Ordering::Acquire) == ONLY | side as u8
    }

    fn moved(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

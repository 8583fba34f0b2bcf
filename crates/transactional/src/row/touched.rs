//! Which of two copies of a row is the latest, and which have been written since they were last in an image (vHG).
//!
//! ```text
//!   latest(me) ── touch ──▶ latest(me), touched(me)          touch: a writer, which has the row's lock
//!   latest(other) ── touch ──▶ BUSY ── copied ──▶ latest(me), touched(me)
//!   touched(old) ── clear ──▶ not touched(old)               the image is there
//!   touched(old) ── carry ──▶ BUSY ── copied ──▶ latest(new), touched(new), not touched(old)   it failed
//!   any ── move_to ──▶ latest(new), touched(new)             a transaction that the cut has overtaken
//! ```
//! One byte a row: neighbours share no word. Who copies to a side has made the row BUSY (invariant V7).

use super::side::Side;
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::pause;

/// The side that is the latest.
const LATEST: u8 = 1;
const BUSY: u8 = 8;

/// Written since the last image of that side.
const fn touched(side: Side) -> u8 {
    2 << side as u8
}

pub struct RowTouched(AtomicU8);

impl RowTouched {
    /// Side zero is the latest, and the first image has all rows.
    pub fn new() -> RowTouched {
        RowTouched(AtomicU8::new(touched(Side::Zero)))
    }

    /// Where the latest is, for who has the row's lock. Also while it is being copied.
    #[inline]
    pub fn live(&self) -> Side {
        side_in(self.0.load(Ordering::Acquire))
    }

    pub fn is_touched(&self, side: Side) -> bool {
        self.0.load(Ordering::Acquire) & touched(side) != 0
    }

    /// → latest(me), touched(me). `copy` copies from the other side to this.
    #[inline]
    pub fn touch(&self, me: Side, copy: impl FnOnce()) {
        loop {
            let flags = self.0.load(Ordering::Acquire);
            if flags & BUSY != 0 {
                pause();
            } else if side_in(flags) == me {
                if flags & touched(me) != 0 || self.moved(flags, flags | touched(me)) {
                    return;
                }
            } else if self.moved(flags, flags | BUSY) {
                copy();
                return self.move_to(me);
            }
        }
    }

    /// any → latest(new), touched(new), and not BUSY. By who has made it BUSY; or before the image begins, by who has the
    /// row's lock and has written the new side.
    pub fn move_to(&self, new: Side) {
        self.change(|flags| flags & !(BUSY | LATEST) | new as u8 | touched(new));
    }

    /// touched(side) → not touched(side)
    pub fn clear(&self, side: Side) {
        self.0.fetch_and(!touched(side), Ordering::AcqRel);
    }

    /// touched(old) → touched(new), so that the next image has the row. `copy` copies from the old side to the other.
    pub fn carry(&self, old: Side, copy: impl FnOnce()) {
        let new = old.other();
        loop {
            let flags = self.0.load(Ordering::Acquire);
            if flags & BUSY != 0 {
                pause();
            } else if flags & touched(old) == 0 || flags & touched(new) != 0 {
                return self.clear(old);
            } else if self.moved(flags, flags | BUSY) {
                copy();
                return self
                    .change(|flags| flags & !(BUSY | LATEST | touched(old)) | new as u8 | touched(new));
            }
        }
    }

    fn moved(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn change(&self, next: impl Fn(u8) -> u8) {
        let mut flags = self.0.load(Ordering::Relaxed);
        while let Err(now) =
            self.0.compare_exchange_weak(flags, next(flags), Ordering::AcqRel, Ordering::Relaxed)
        {
            flags = now;
        }
    }
}

fn side_in(flags: u8) -> Side {
    Side::of_epoch(u16::from(flags & LATEST))
}

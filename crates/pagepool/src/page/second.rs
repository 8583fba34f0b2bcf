//! The second place of a page: where the other copy lies, for algorithms that keep two and write them in turn.
//!
//! A word a page says which of the two the page table's place has, and in which frame the other is, if it is anywhere:
//!
//! ```text
//!     1 bit                                   30 bits
//!   | the place has the first, the second | frame of the other copy, 0: none |
//! ```
//!
//! ```text
//!            ┌─ name ─┐
//!            ▼        │    fill: the content is copied
//!          ALONE(c) ──┴────────────────────────────────▶ TWO(c, frame) ◀─┐
//!            ▲                                               │   │       │ fill: copied anew; place: the page table has
//!            └── let_go: the frame becomes free ─────────────┘   └───────┘ the other frame from now on, and `c` turns
//! ```
//! The place that the page table has holds the latest content, whatever else (M6).

// `sync` is the standard library's here and loom's in `tests/loom_second.rs`, which includes this file.
use crate::sync::atomic::{AtomicU32, Ordering};

/// One of the two copies of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    First,
    Second,
}

const SIDE: u32 = 1 << 31;

/// See the module. Zero is ALONE(first).
pub struct SecondWord(AtomicU32);

/// What a [`SecondWord`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Second(u32);

impl Second {
    /// Which copy the page table's place has.
    pub fn side(self) -> Side {
        if self.0 & SIDE == 0 {
            Side::First
        } else {
            Side::Second
        }
    }

    /// The frame of the other copy; 0 if there is none.
    pub fn frame(self) -> u32 {
        self.0 & !SIDE
    }

    fn of(side: Side, frame: u32) -> Second {
        Second(frame | if side == Side::Second { SIDE } else { 0 })
    }
}

impl SecondWord {
    #[cfg(test)]
    #[allow(dead_code)]
    pub fn new_alone() -> SecondWord {
        SecondWord(AtomicU32::new(0))
    }

    pub fn get(&self) -> Second {
        Second(self.0.load(Ordering::Acquire))
    }

    /// Changes the word unless it has changed meanwhile.
    fn turn(&self, from: Second, to: Second) -> bool {
        self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// ALONE, TWO → TWO: the frame has the latest content now. False if somebody else has changed the word, as below.
    #[must_use]
    pub fn filled(&self, now: Second, frame: u32) -> bool {
        self.turn(now, Second::of(now.side(), frame))
    }

    /// TWO → TWO, turned: the page's place is going to be the frame of the other copy, from `place` on, which it is yet.
    #[must_use]
    pub fn placed(&self, now: Second, place: u32) -> bool {
        let other = if now.side() == Side::First { Side::Second } else { Side::First };
        self.turn(now, Second::of(other, place))
    }

    /// ALONE → ALONE: what is going to be in the page's place is this copy.
    #[must_use]
    pub fn name(&self, side: Side) -> bool {
        let now = self.get();
        self.turn(now, Second::of(side, now.frame()))
    }

    /// TWO → ALONE, if the place has not the copy `but`. The frame of the other copy.
    pub fn let_go(&self, but: Option<Side>) -> Option<u32> {
        loop {
            let now = self.get();
            if now.frame() == 0 || Some(now.side()) == but {
                return None;
            }
            if self.turn(now, Second::of(now.side(), 0)) {
                return Some(now.frame());
            }
        }
    }
}

//! The epochs of a page and the order in which sweep, writers and reuse look at them (invariants S1 to S4).
//!
//! ```text
//!   writer, latched:  claim ──▶ copy, queue ──▶ raise `written` ──▶ modify
//!   sweep:            `written` <= cut ──▶ copy ──▶ `written` as before ──▶ claim ──▶ emit
//!   free:             set `freed` ──▶ is the content needed, and not claimed? keep it : let it go
//!   reuse:            was it free at the cut? claim its tombstone ──▶ raise `written` ──▶ clear `freed` ──▶ modify
//! ```

// `sync` is the standard library's here and loom's in `tests/loom_epochs.rs`, which includes this file.
use crate::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// A period between two cuts. Cut *e* separates epoch *e* from *e + 1*. Epochs count from 1 in each process; 0 is
/// "as in the checkpoint that the process started from".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u32);

/// When the content of a page was first modified, and when it was freed.
#[derive(Debug)]
pub struct PageEpochs {
    /// Epoch of the first modification of the content that the page holds (invariant S1).
    written: AtomicU32,
    /// Epoch in which the page was freed; 0 while it is in use.
    freed: AtomicU32,
}

impl PageEpochs {
    // For the models in `tests`.
    #[cfg(test)]
    #[allow(dead_code)]
    pub fn new() -> PageEpochs {
        PageEpochs { written: AtomicU32::new(0), freed: AtomicU32::new(0) }
    }

    #[inline(always)]
    pub fn written(&self) -> Epoch {
        Epoch(self.written.load(Ordering::Acquire))
    }

    pub fn freed(&self) -> Option<Epoch> {
        match self.freed.load(Ordering::Acquire) {
            0 => None,
            epoch => Some(Epoch(epoch)),
        }
    }

    /// Raises the write epoch; nothing of the content is modified before this is visible (invariant S2).
    pub fn set_written(&self, epoch: Epoch) {
        self.written.store(epoch.0, Ordering::Release);
        fence(Ordering::AcqRel);
    }

    pub fn set_freed(&self, epoch: Option<Epoch>) {
        self.freed.store(epoch.map_or(0, |e| e.0), Ordering::Release);
    }

    /// Runs `copy`, which may race with a writer, if the content was last written at or before `cut`. True if what
    /// it copied is the content as of the cut: a writer raises the write epoch before it touches the content (S2).
    pub fn copy_as_of(&self, cut: Epoch, copy: impl FnOnce()) -> bool {
        let before = self.written();
        if before > cut {
            return false;
        }
        copy();
        fence(Ordering::Acquire);
        self.written() == before
    }
}

/// UNCLAIMED → CLAIMED for bit `number` of a bitmap's word; false if somebody else has claimed it (invariant S4).
pub fn claim(word: &AtomicU64, number: u32) -> bool {
    let bit = 1 << number;
    word.fetch_or(bit, Ordering::AcqRel) & bit == 0
}

pub fn is_claimed(word: &AtomicU64, number: u32) -> bool {
    word.load(Ordering::Acquire) & (1 << number) != 0
}

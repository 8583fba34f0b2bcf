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

impl Epoch {
    /// The last there can be.
    pub const LAST: Epoch = Epoch(TOLD - 1);
}

/// Bit of `written`: the content has been written back since its last modification. So the next one is noticed although it
/// may be of the same epoch (invariant R1).
const WRITTEN_BACK: u32 = 1 << 31;

/// Bit of `written`: an algorithm that is told of each write has been told of all. So it is noticed when the next one begins.
const TOLD: u32 = 1 << 30;

/// Bit of `freed`: the page was not in memory when it was freed, so its content is in the page file alone.
const IN_FILE: u32 = 1 << 31;

/// When the content of a page was first modified, and when it was freed.
#[derive(Debug)]
pub struct PageEpochs {
    /// Epoch of the first modification of the content that the page holds (invariant S1), [`WRITTEN_BACK`] and [`TOLD`].
    written: AtomicU32,
    /// Epoch in which the page was freed, and [`IN_FILE`]; 0 while it is in use.
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
        Epoch(self.written.load(Ordering::Acquire) & !(WRITTEN_BACK | TOLD))
    }

    /// Whether a modification in `epoch`, which is the present one, is the first in it or since the content was written
    /// back.
    #[inline(always)]
    pub fn is_first_write(&self, epoch: Epoch) -> bool {
        self.written.load(Ordering::Acquire) != epoch.0
    }

    /// Whether the content in memory is also in the page file; `durable` is the cut of the last durable checkpoint.
    pub fn is_clean(&self, durable: Epoch) -> bool {
        let written = self.written.load(Ordering::Acquire);
        written & WRITTEN_BACK != 0 || written & !TOLD <= durable.0
    }

    /// The content has been written back. Under the page's exclusive latch, as all changes of `written`.
    pub fn set_written_back(&self) {
        self.written.fetch_or(WRITTEN_BACK, Ordering::AcqRel);
    }

    /// The algorithm has been told of what has been written.
    pub fn set_told(&self) {
        self.written.fetch_or(TOLD, Ordering::AcqRel);
    }

    pub fn freed(&self) -> Option<Epoch> {
        match self.freed.load(Ordering::Acquire) & !IN_FILE {
            0 => None,
            epoch => Some(Epoch(epoch)),
        }
    }

    /// Of a page that has been freed: its content is not in its place but in the page file.
    pub fn set_in_file(&self) {
        self.freed.fetch_or(IN_FILE, Ordering::AcqRel);
    }

    pub fn is_in_file(&self) -> bool {
        self.freed.load(Ordering::Acquire) & IN_FILE != 0
    }

    /// Raises the write epoch; nothing of the content is modified before this is visible (invariant S2).
    pub fn set_written(&self, epoch: Epoch) {
        self.written.store(epoch.0, Ordering::Release);
        fence(Ordering::AcqRel);
    }

    /// The page has been freed, by the caller. False if it has been already.
    #[must_use]
    pub fn set_freed(&self, epoch: Epoch) -> bool {
        self.freed.compare_exchange(0, epoch.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The page is in use again.
    pub fn set_in_use(&self) {
        self.freed.store(0, Ordering::Release);
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

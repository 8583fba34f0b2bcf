//! Where a session says in which phase its transaction began, and how many it has committed.
//!
//! ```text
//!   IDLE ── begin ──▶ IN(phase) ── end ──▶ IDLE
//! ```
//! A session writes its place and then looks at the phase once more; a cut begins a phase and then looks at the places. So
//! one of the two sees the other: a transaction that goes by an older phase is waited for (invariant V3).

use super::word::{CommitWord, Phase};
use crate::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// Number of committed transactions of a session; that of the first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionSeq(pub u64);

const IDLE: u32 = 0;

/// On a cache line of its own. Only its session writes it.
#[repr(align(128))]
pub struct Place {
    /// IDLE, or the phase in which the transaction began, plus 1.
    active: AtomicU32,
    committed: AtomicU64,
    /// The epoch of the last transaction that began, and how many were committed when that epoch began.
    epoch: AtomicU32,
    committed_before: AtomicU64,
}

impl Place {
    pub fn new(epoch: u16) -> Place {
        Place {
            active: AtomicU32::new(IDLE),
            committed: AtomicU64::new(0),
            epoch: AtomicU32::new(u32::from(epoch)),
            committed_before: AtomicU64::new(0),
        }
    }

    /// IDLE → IN(phase)
    #[inline]
    pub fn begin(&self, word: &CommitWord) -> Phase {
        let mut phase = word.phase();
        loop {
            self.active.store(u32::from(phase.bits()) + 1, Ordering::Release);
            fence(Ordering::SeqCst);
            let now = word.phase();
            if now == phase {
                return phase;
            }
            phase = now;
        }
    }

    /// IN(phase) → IDLE
    #[inline]
    pub fn end(&self) {
        self.active.store(IDLE, Ordering::Release);
    }

    /// For who has begun `phase`, which is the latest, and has issued a fence since.
    pub fn is_past(&self, phase: Phase) -> bool {
        match self.active.load(Ordering::Acquire) {
            IDLE => true,
            active => !Phase::from_bits((active - 1) as u16).is_before(phase),
        }
    }

    /// A transaction begins in this epoch; if it is the session's first in it, all before belong to the one before.
    #[inline]
    pub fn enter_epoch(&self, epoch: u16) {
        if self.epoch.load(Ordering::Relaxed) != u32::from(epoch) {
            self.committed_before.store(self.committed.load(Ordering::Relaxed), Ordering::Relaxed);
            self.epoch.store(u32::from(epoch), Ordering::Release);
        }
    }

    /// One more.
    #[inline]
    pub fn count_commit(&self) -> SessionSeq {
        let count = self.committed.load(Ordering::Relaxed) + 1;
        self.committed.store(count, Ordering::Release);
        SessionSeq(count)
    }

    /// The last one.
    pub fn committed(&self) -> SessionSeq {
        SessionSeq(self.committed.load(Ordering::Acquire))
    }

    /// How many were committed before the session's first in `epoch`, which is the latest; all of them, if there was none in
    /// it. For who knows that none of an older epoch is under way.
    pub fn committed_before(&self, epoch: u16) -> SessionSeq {
        // The count may rise between, but only after the epoch has.
        let committed = self.committed.load(Ordering::Acquire);
        if self.epoch.load(Ordering::Acquire) == u32::from(epoch) {
            return SessionSeq(self.committed_before.load(Ordering::Relaxed));
        }
        SessionSeq(committed)
    }
}

/// Between the beginning of a phase and the first look at a place.
pub fn fence_before_places() {
    fence(Ordering::SeqCst);
}

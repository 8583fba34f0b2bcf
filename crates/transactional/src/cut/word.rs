//! The commit word: the number of commits and the phase, in one word.
//!
//! ```text
//!   commits n, phase p ── commit ──▶ commits n + 1, phase p
//!   commits n, phase p ── advance ──▶ commits n, phase p'
//! ```
//! A commit is one `fetch_add`, and so is the beginning of a phase. So each commit is before or after a cut, nobody waits, and
//! the cut knows how many commits it has (invariant V2).

use crate::sync::atomic::{AtomicU64, Ordering};

/// Place of a commit in the order of all; the first is 1. That of a cut is the last that it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommitSeq(pub u64);

/// How far a cut is: 0 between cuts. Each algorithm has names for its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stage(pub u8);

impl Stage {
    pub const REST: Stage = Stage(0);
}

/// Number of a cut, modulo 8192, and its stage. Both only rise, and come round together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase(u16);

const STAGE_BITS: u32 = 3;
const STAGES: u16 = 1 << STAGE_BITS;
const CUTS: u16 = 1 << (u16::BITS - STAGE_BITS);

impl Phase {
    pub fn from_bits(bits: u16) -> Phase {
        Phase(bits)
    }

    pub fn bits(self) -> u16 {
        self.0
    }

    /// Modulo 8192, an even number: so its lowest bit alternates for ever.
    #[inline]
    pub fn cut(self) -> u16 {
        self.0 >> STAGE_BITS
    }

    #[inline]
    pub fn stage(self) -> Stage {
        Stage((self.0 % STAGES) as u8)
    }

    /// The epoch of this phase, if a new one begins with `stage`. Modulo 8192, too.
    #[inline]
    pub fn epoch(self, stage: Stage) -> u16 {
        (self.cut() + u16::from(self.stage() >= stage)) % CUTS
    }

    /// Phases that exist at once are a few apart, so that coming round does no harm.
    pub fn is_before(self, other: Phase) -> bool {
        (other.0.wrapping_sub(self.0) as i16) > 0
    }
}

const COMMIT_BITS: u32 = 48;
const COMMITS: u64 = (1 << COMMIT_BITS) - 1;

/// On a cache line of its own: each commit writes it.
#[repr(align(128))]
pub struct CommitWord(AtomicU64);

impl CommitWord {
    pub fn new() -> CommitWord {
        CommitWord(AtomicU64::new(0))
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        phase_in(self.0.load(Ordering::Acquire))
    }

    /// One more commit: its place in the order, and the phase that it belongs to.
    #[inline]
    pub fn commit(&self) -> (CommitSeq, Phase) {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before & COMMITS < COMMITS, "48 bits last for years");
        (CommitSeq((before & COMMITS) + 1), phase_in(before))
    }

    /// Begins a phase; the one with stage 0 is that of the next cut. Returns the last commit before it, and the phase. One
    /// thread at a time does this.
    pub fn advance(&self, to: Stage) -> (CommitSeq, Phase) {
        let now = self.phase();
        let steps = (u16::from(to.0)).wrapping_sub(u16::from(now.stage().0)) % STAGES;
        let before = self.0.fetch_add(u64::from(steps) << COMMIT_BITS, Ordering::AcqRel);
        (CommitSeq(before & COMMITS), Phase(now.0.wrapping_add(steps)))
    }
}

fn phase_in(word: u64) -> Phase {
    Phase((word >> COMMIT_BITS) as u16)
}

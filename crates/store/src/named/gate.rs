//! Keeping single operations on a tree out while a transaction changes it, at the price of one exchange each: every handle
//! says at a place of its own that it is inside, and looks at the gate then.
//!
//! ```text
//!   gate:   OPEN ── a transaction begins ──▶ TO WRITERS ── it applies ──▶ TO ALL ── it ends ──▶ OPEN
//!   place:  OUTSIDE ── enter ──▶ READS or WRITES ── leave ──▶ OUTSIDE
//! ```
//! Whoever enters writes the place and then reads the gate; whoever closes writes the gate and then reads the places. Both
//! are in one total order, so one of the two sees the other. Only the holder of the tree's turn moves the gate.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Who is kept out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(crate) enum KeptOut {
    Nobody = 0,
    Writers = 1,
    All = 2,
}

/// What an operation does inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Visit {
    Reads = 1,
    Writes = 2,
}

const OUTSIDE: u32 = 0;

/// A tree's gate. On a cache line of its own: everybody reads it, hardly anybody writes it.
#[repr(align(128))]
pub(crate) struct Gate {
    closed: AtomicU32,
}

/// Where a handle says that it is inside. Only its own thread writes it.
#[repr(align(128))]
pub(crate) struct GateSeat {
    inside: AtomicU32,
}

impl Gate {
    pub fn new() -> Gate {
        Gate { closed: AtomicU32::new(KeptOut::Nobody as u32) }
    }

    /// For the holder of the turn. Those whom this keeps out may still be inside: [`GateSeat::is_out`].
    pub fn set(&self, kept_out: KeptOut) {
        self.closed.store(kept_out as u32, Ordering::SeqCst);
    }

    fn admits(&self, visit: Visit) -> bool {
        let closed = self.closed.load(Ordering::SeqCst);
        closed == KeptOut::Nobody as u32 || visit == Visit::Reads && closed == KeptOut::Writers as u32
    }
}

impl GateSeat {
    pub fn new() -> GateSeat {
        GateSeat { inside: AtomicU32::new(OUTSIDE) }
    }

    /// OUTSIDE → READS or WRITES, if the gate lets one in.
    #[inline(always)]
    pub fn try_enter(&self, gate: &Gate, visit: Visit) -> bool {
        self.inside.store(visit as u32, Ordering::SeqCst);
        let is_in = gate.admits(visit);
        if !is_in {
            self.leave();
        }
        is_in
    }

    /// READS or WRITES → OUTSIDE
    #[inline(always)]
    pub fn leave(&self) {
        self.inside.store(OUTSIDE, Ordering::Release);
    }

    /// Whether nobody is inside here whom the gate, closed like this, keeps out.
    pub fn is_out(&self, kept_out: KeptOut) -> bool {
        let inside = self.inside.load(Ordering::SeqCst);
        match kept_out {
            KeptOut::Nobody => true,
            KeptOut::Writers => inside != Visit::Writes as u32,
            KeptOut::All => inside == OUTSIDE,
        }
    }
}

//! Spare frames that writers hand over, a ring.
//!
//! ```text
//!   free ── a writer takes the first ──▶ its writer's ── a row of the cut is in it ──▶ handed over
//!    ▲                                                                                    │ the sweep takes the first
//!    └───────────────── given back, those at the end first ──── the sweep's ◀─────────────┘
//! ```
//!
//! A frame is told from itself in the next *lap* round the ring: its slot says in which lap it has been handed over. Frames are
//! used one after the other, so both sides go over memory in order. A writer that is held up before it hands over holds up the
//! frames behind its own, but no other writer: these help when no frame is free.

use crate::rows::RowId;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A place in the ring: the lap in the upper half, the frame in the lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn(u64);

impl Turn {
    fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// A slot of [`CopyId::SPARE`](crate::rows::CopyId::SPARE).
    #[inline(always)]
    pub fn frame(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn next(self, frame_count: u32) -> Turn {
        match self.frame() + 1 < frame_count {
            true => Turn(self.0 + 1),
            false => Turn(u64::from(self.lap().wrapping_add(1)) << 32),
        }
    }

    /// What the slot says when a row has been handed over in this turn: never zero.
    fn handed_over(self, row: RowId) -> u64 {
        u64::from(self.lap().wrapping_add(1)) << 32 | u64::from(row.0)
    }
}

/// A line of the cache to itself, and the one that is fetched with it.
#[repr(align(128))]
struct Line(AtomicU64);

pub struct Frames {
    /// The next to be taken by a writer.
    head: Line,
    /// The next to be given back by the sweep.
    tail: Line,
    slots: Box<[AtomicU64]>,
}

impl Frames {
    /// All free.
    pub fn new(frame_count: u32) -> Frames {
        Frames {
            head: Line(AtomicU64::new(0)),
            tail: Line(AtomicU64::new(0)),
            slots: (0..frame_count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// A free frame, for a writer.
    #[inline]
    pub fn take(&self) -> Option<Turn> {
        let mut head = Turn(self.head.0.load(Ordering::Relaxed));
        loop {
            // Its reads of the frame came before it gave the frame back.
            let tail = Turn(self.tail.0.load(Ordering::Acquire));
            let same_lap = head.lap() == tail.lap();
            let is_free = same_lap && self.count() > 0
                || head.lap() == tail.lap().wrapping_add(1) && head.frame() < tail.frame();
            if !is_free {
                return None;
            }
            let next = head.next(self.count());
            match self.head.0.compare_exchange_weak(head.0, next.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(head),
                Err(other) => head = Turn(other),
            }
        }
    }

    /// Hands over a frame that the caller has taken, with a row of the cut in it.
    #[inline]
    pub fn hand_over(&self, turn: Turn, row: RowId) {
        self.slots[turn.frame() as usize].store(turn.handed_over(row), Ordering::Release);
    }

    /// Where the sweep begins.
    pub fn first(&self) -> Turn {
        Turn(self.tail.0.load(Ordering::Relaxed))
    }

    /// The row that has been handed over in this turn, if one has, and the turn after it. Only the sweep asks.
    #[inline]
    pub fn handed_over(&self, turn: Turn) -> Option<(RowId, Turn)> {
        let slot = self.slots.get(turn.frame() as usize)?.load(Ordering::Acquire);
        let row = RowId(slot as u32);
        (slot == turn.handed_over(row)).then(|| (row, turn.next(self.count())))
    }

    /// Frames that writers have taken from this turn on.
    pub fn taken_since(&self, turn: Turn) -> u32 {
        let head = Turn(self.head.0.load(Ordering::Relaxed));
        match head.lap() == turn.lap() {
            true => head.frame() - turn.frame(),
            false => self.count() - turn.frame() + head.frame(),
        }
    }

    /// Gives back what the sweep has taken, up to this turn.
    #[inline]
    pub fn give_back(&self, until: Turn) {
        self.tail.0.store(until.0, Ordering::Release);
    }

    /// Gives everything back, while no writer and no sweep is at work.
    pub fn give_back_all(&self) {
        self.tail.0.store(self.head.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether this is the next to be taken by a writer.
    pub fn is_next(&self, turn: Turn) -> bool {
        self.head.0.load(Ordering::Relaxed) == turn.0
    }

    /// Whether all are free, while no writer and no sweep is at work.
    pub fn are_free(&self) -> bool {
        self.tail.0.load(Ordering::Relaxed) == self.head.0.load(Ordering::Relaxed)
    }
}

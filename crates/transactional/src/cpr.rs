//! CPR: concurrent prefix recovery (Prasaad, Chandramouli, Kossmann, SIGMOD 2019), the transactional variant.
//!
//! ```text
//!   REST ──▶ PREPARE ── who began at REST has ended ──▶ IN PROGRESS ── who began in PREPARE has ended ──▶ WAIT FLUSH
//!    ▲                                                  the cut                                             │ sweep
//!    └──────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! A transaction belongs before the cut if it began before IN PROGRESS, whenever it ends. So each session has a point of its own,
//! and the image has of each session all before its point. From IN PROGRESS on a stable copy is held before a row is written, and
//! a row that is read is marked. Who belongs before the cut, and meets one of the two, begins anew: then it belongs after it.

use crate::captures::{parity, Captures};
use crate::cut::{CommitWord, Phase, Stage};
use crate::probe::{Mutation, Probe};
use crate::row::{Change, RowId, Shape};
use crate::seam::{Algorithm, RestartCause, Step};
use crate::sync::atomic::AtomicU64;
use crate::writes::Writes;

const PREPARE: Stage = Stage(1);
const IN_PROGRESS: Stage = Stage(2);
const WAIT_FLUSH: Stage = Stage(3);

/// Rows with a stable copy where a session's point needs one.
pub struct Cpr {
    rows: Captures,
    probe: Probe,
}

/// Whether the transaction has made the stable copy of a row.
#[derive(Clone, Copy)]
pub struct Held(bool);

impl Cpr {
    /// A transaction of PREPARE comes to a row.
    #[inline]
    fn check_version(&self, row: RowId, is_write: bool) -> Result<(), RestartCause> {
        let status = self.rows.status(row);
        let is_newer = status.is_held() || is_write && status.is_read();
        if is_newer && !self.probe.has(Mutation::MeetsNewer) {
            return Err(RestartCause::MetNewer);
        }
        Ok(())
    }
}

impl Algorithm for Cpr {
    const BY_COMMIT_ORDER: bool = false;
    const IS_FULL: bool = true;
    const STEPS: &'static [Step] = &[
        Step::Enter(PREPARE),
        Step::Drain,
        Step::Cut(IN_PROGRESS),
        Step::Drain,
        Step::Enter(WAIT_FLUSH),
        Step::Access,
        Step::Rest,
    ];
    const EPOCH_BEGINS: Stage = IN_PROGRESS;
    type Mark = Held;

    fn new(shape: Shape, probe: Probe) -> Cpr {
        Cpr { rows: Captures::new(shape, probe.clone()), probe }
    }

    fn drains(&self, stage: Stage) -> bool {
        !self.probe.has(match stage {
            PREPARE => Mutation::NoWaitForPrepare,
            _ => Mutation::NoWaitForSessions,
        })
    }

    #[inline]
    fn live(&self, row: RowId) -> &[AtomicU64] {
        self.rows.live(row)
    }

    #[inline]
    fn before_read(&self, began: Phase, row: RowId) -> Result<(), RestartCause> {
        match began.stage() {
            PREPARE => self.check_version(row, false)?,
            IN_PROGRESS if !self.probe.has(Mutation::ReadsUnmarked) => {
                self.rows.status(row).mark_read(parity(began.cut()));
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn before_write(
        &self,
        began: Phase,
        _word: &CommitWord,
        row: RowId,
        _change: Change,
    ) -> Result<Held, RestartCause> {
        match began.stage() {
            PREPARE => self.check_version(row, true)?,
            IN_PROGRESS | WAIT_FLUSH => return Ok(Held(self.rows.hold(began.cut(), row))),
            _ => {}
        }
        Ok(Held(false))
    }

    fn committed(&self, _began: Phase, _ended: Phase, _writes: &Writes<Held>) {}

    fn undone(&self, began: Phase, row: RowId, held: Held) {
        // The stable copy stays: the sweep may have copied live just now, and would find the row EMPTY again.
        if held.0 && self.probe.has(Mutation::UndoLetsGoInSweep) {
            self.rows.status(row).let_go(parity(began.cut()));
        }
    }

    fn sweep<E>(&self, cut: u16, emit: impl FnMut(RowId, &[u64]) -> Result<(), E>) -> Result<u32, E> {
        self.rows.sweep(cut, emit)
    }

    fn settle(&self, cut: u16, is_kept: bool) {
        if !is_kept {
            self.rows.settle(cut);
        }
    }

    fn first_unclean(&self, cut: u16) -> Option<RowId> {
        self.rows.first_unclean(cut)
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}

//! CALC: checkpointing asynchronously using logical consistency (Ren, Diamond, Abadi, Thomson, SIGMOD 2016; section 4.2.1
//! of the study, TKDE 2019).
//!
//! ```text
//!   REST ──▶ PREPARE ── who began at REST has ended ──▶ RESOLVE ── who began in PREPARE has ended ──▶ CAPTURE
//!    ▲                                                  the cut                                          │ sweep
//!    └── who began in CAPTURE has ended ◀── COMPLETE ◀───────────────────────────────────────────────────┘
//! ```
//! A transaction goes by the phase of its beginning. From PREPARE to CAPTURE it holds a stable copy of a row before it writes
//! it. Who began in PREPARE may commit before the cut or after it: its commit says which, and before it the copies go.

use crate::captures::Captures;
use crate::cut::{CommitWord, Phase, Stage};
use crate::probe::{Mutation, Probe};
use crate::row::{Change, RowId, Shape};
use crate::seam::{Algorithm, RestartCause, Step};
use crate::sync::atomic::AtomicU64;
use crate::writes::Writes;

const PREPARE: Stage = Stage(1);
const RESOLVE: Stage = Stage(2);
const CAPTURE: Stage = Stage(3);
const COMPLETE: Stage = Stage(4);

/// Rows with a stable copy where the cut needs one.
pub struct Calc {
    rows: Captures,
    probe: Probe,
}

/// Whether the transaction has made the stable copy of a row.
#[derive(Clone, Copy)]
pub struct Held(bool);

impl Calc {
    /// The row has been written, or restored, and the cut does not need its stable copy.
    fn let_go(&self, cut: u16, row: RowId) {
        self.rows.status(row).let_go(crate::captures::parity(cut));
    }
}

impl Algorithm for Calc {
    const BY_COMMIT_ORDER: bool = true;
    const IS_FULL: bool = true;
    const STEPS: &'static [Step] = &[
        Step::Enter(PREPARE),
        Step::Drain,
        Step::Cut(RESOLVE),
        Step::Drain,
        Step::Enter(CAPTURE),
        Step::Access,
        Step::Enter(COMPLETE),
        Step::Drain,
        Step::Rest,
    ];
    const EPOCH_BEGINS: Stage = RESOLVE;
    type Mark = Held;

    fn new(shape: Shape, probe: Probe) -> Calc {
        Calc { rows: Captures::new(shape, probe.clone()), probe }
    }

    fn drains(&self, stage: Stage) -> bool {
        !(stage == PREPARE && self.probe.has(Mutation::NoWaitForRest))
    }

    #[inline]
    fn live(&self, row: RowId) -> &[AtomicU64] {
        self.rows.live(row)
    }

    #[inline]
    fn before_write(
        &self,
        began: Phase,
        _word: &CommitWord,
        row: RowId,
        _change: Change,
    ) -> Result<Held, RestartCause> {
        let copies = (PREPARE..=CAPTURE).contains(&began.stage());
        Ok(Held(copies && self.rows.hold(began.cut(), row)))
    }

    fn committed(&self, began: Phase, ended: Phase, writes: &Writes<Held>) {
        let lets_go = match began.stage() {
            PREPARE if self.probe.has(Mutation::StraddlerLetsGo) => true,
            PREPARE => ended.stage() == PREPARE && !self.probe.has(Mutation::StraddlerKeeps),
            RESOLVE => self.probe.has(Mutation::StableLetGoEarly),
            _ => false,
        };
        if lets_go {
            writes.written().filter(|(_, held)| held.0).for_each(|(row, _)| self.let_go(began.cut(), row));
        }
    }

    fn undone(&self, began: Phase, row: RowId, held: Held) {
        // Later copies stay: the sweep may have copied live just now, and would find the row EMPTY again.
        let lets_go = match began.stage() {
            PREPARE => !self.probe.has(Mutation::UndoForgetsCopy),
            _ => self.probe.has(Mutation::UndoLetsGoInSweep),
        };
        if held.0 && lets_go {
            self.let_go(began.cut(), row);
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

//! vPB: Piggyback for transactions (section 4.2.2 of the study, TKDE 2019), corrected.
//!
//! ```text
//!   REST ── the cut: the other side is written from now on ──▶ UNDER WAY ── who began before has ended ──▶
//!        ── pass: rows of the old side are copied to the other ──▶ image of the old side ──▶ REST
//! ```
//! What is corrected is what `vhg.rs` says. Besides, the pass makes a row BUSY while it copies it, and says that both copies are
//! the same only then; both sides are the same after it but for what has been written since the cut, so images are full.

use crate::cut::{CommitWord, Phase, Stage};
use crate::probe::{Mutation, Point, Probe};
use crate::row::{Change, RowId, RowSide, Shape, Side};
use crate::seam::{Algorithm, RestartCause, Step};
use crate::sides::{Sides, STEPS, UNDER_WAY};
use crate::sync::atomic::AtomicU64;
use crate::writes::Writes;

/// Two sides, and a byte a row.
pub struct VirtualPiggyback {
    sides: Sides,
    latest: Box<[RowSide]>,
}

impl VirtualPiggyback {
    #[inline]
    fn latest(&self, row: RowId) -> &RowSide {
        &self.latest[row.index()]
    }
}

impl Algorithm for VirtualPiggyback {
    const BY_COMMIT_ORDER: bool = true;
    const IS_FULL: bool = true;
    const STEPS: &'static [Step] = STEPS;
    const EPOCH_BEGINS: Stage = UNDER_WAY;
    type Mark = Side;

    fn new(shape: Shape, probe: Probe) -> VirtualPiggyback {
        VirtualPiggyback { sides: Sides::new(shape, probe), latest: shape.one_each(RowSide::new) }
    }

    fn drains(&self, _stage: Stage) -> bool {
        self.sides.drains()
    }

    #[inline]
    fn live(&self, row: RowId) -> &[AtomicU64] {
        self.sides.row(self.latest(row).live(), row)
    }

    #[inline]
    fn before_write(
        &self,
        began: Phase,
        word: &CommitWord,
        row: RowId,
        change: Change,
    ) -> Result<Side, RestartCause> {
        let is_as_published = self.sides.probe().has(Mutation::AsPublished);
        let phase = if is_as_published { began } else { word.phase() };
        let me = Side::of_epoch(phase.epoch(UNDER_WAY));
        self.latest(row).take(me, || self.sides.copy_for(change, me, row));
        Ok(me)
    }

    fn committed(&self, began: Phase, ended: Phase, writes: &Writes<Side>) {
        let epoch = ended.epoch(UNDER_WAY);
        if began.epoch(UNDER_WAY) != epoch && !self.sides.probe().has(Mutation::AsPublished) {
            let new = Side::of_epoch(epoch);
            self.sides.move_overtaken(new, writes, |row| self.latest(row).move_to(new));
        }
    }

    /// All that was overwritten has been restored: on the side of the first write, of which the flags say that it is the latest.
    fn undone(&self, _began: Phase, _row: RowId, _side: Side) {}

    fn gather(&self, cut: u16) {
        let old = Side::of_epoch(cut);
        for row in self.sides.shape().rows() {
            if self.sides.probe().has(Mutation::SameBeforeCopy) {
                if self.latest(row).settle(old, || ()) {
                    self.sides.probe().reach(Point::PassClaimed);
                    self.sides.copy_to(old.other(), row);
                }
                continue;
            }
            self.latest(row).settle(old, || {
                self.sides.probe().reach(Point::PassClaimed);
                self.sides.copy_to(old.other(), row);
            });
        }
    }

    fn sweep<E>(&self, cut: u16, mut emit: impl FnMut(RowId, &[u64]) -> Result<(), E>) -> Result<u32, E> {
        let old = Side::of_epoch(cut);
        let mut words = vec![0; self.sides.shape().row_words()];
        for row in self.sides.shape().rows() {
            self.sides.read(old, row, &mut words);
            emit(row, &words)?;
        }
        Ok(self.sides.shape().row_count())
    }

    /// Nothing is left to do after the pass. A cut that was given up may not have had it.
    fn settle(&self, cut: u16, is_kept: bool) {
        if !is_kept {
            self.gather(cut);
        }
    }

    fn first_unclean(&self, cut: u16) -> Option<RowId> {
        self.sides.shape().rows().find(|row| self.latest(*row).is_only(Side::of_epoch(cut)))
    }

    fn bytes(&self) -> usize {
        self.sides.bytes()
    }
}

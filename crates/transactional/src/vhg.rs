//! vHG: Hourglass for transactions (section 4.2.2 of the study, TKDE 2019), corrected.
//!
//! ```text
//!   REST ── the cut: the other side is written from now on ──▶ UNDER WAY ── who began before has ended ──▶ image ──▶ REST
//! ```
//! As published a transaction writes to the side of its beginning. Under two-phase locking it may then read or overwrite what a
//! transaction after the cut has committed, and takes that along into the image. Here a row is written to the side of the epoch
//! in which the transaction locked it. Who commits after the cut moves what it wrote before (invariants V2, V6).
//! The image has the rows that were written since the one before.

use crate::cut::{CommitWord, Phase, Stage};
use crate::probe::{Mutation, Probe};
use crate::row::{Change, RowId, RowTouched, Shape, Side};
use crate::seam::{Algorithm, RestartCause, Step};
use crate::sides::{Sides, STEPS, UNDER_WAY};
use crate::sync::atomic::AtomicU64;
use crate::writes::Writes;

/// Two sides, and a byte a row.
pub struct VirtualHourglass {
    sides: Sides,
    flags: Box<[RowTouched]>,
}

impl VirtualHourglass {
    #[inline]
    fn flags(&self, row: RowId) -> &RowTouched {
        &self.flags[row.index()]
    }
}

impl Algorithm for VirtualHourglass {
    const BY_COMMIT_ORDER: bool = true;
    const IS_FULL: bool = false;
    const STEPS: &'static [Step] = STEPS;
    const EPOCH_BEGINS: Stage = UNDER_WAY;
    type Mark = Side;

    fn new(shape: Shape, probe: Probe) -> VirtualHourglass {
        VirtualHourglass { sides: Sides::new(shape, probe), flags: shape.one_each(RowTouched::new) }
    }

    fn drains(&self, _stage: Stage) -> bool {
        self.sides.drains()
    }

    #[inline]
    fn live(&self, row: RowId) -> &[AtomicU64] {
        self.sides.row(self.flags(row).live(), row)
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
        self.flags(row).touch(me, || self.sides.copy_for(change, me, row));
        Ok(me)
    }

    fn committed(&self, began: Phase, ended: Phase, writes: &Writes<Side>) {
        let epoch = ended.epoch(UNDER_WAY);
        if began.epoch(UNDER_WAY) != epoch && !self.sides.probe().has(Mutation::AsPublished) {
            let new = Side::of_epoch(epoch);
            self.sides.move_overtaken(new, writes, |row| self.flags(row).move_to(new));
        }
    }

    /// All that was overwritten has been restored: on the side of the first write, of which the flags say that it is the latest.
    fn undone(&self, _began: Phase, _row: RowId, _side: Side) {}

    fn sweep<E>(&self, cut: u16, mut emit: impl FnMut(RowId, &[u64]) -> Result<(), E>) -> Result<u32, E> {
        let old = Side::of_epoch(cut);
        let mut words = vec![0; self.sides.shape().row_words()];
        let mut row_count = 0;
        for row in self.sides.shape().rows().filter(|row| self.flags(*row).is_touched(old)) {
            self.sides.read(old, row, &mut words);
            row_count += 1;
            emit(row, &words)?;
        }
        Ok(row_count)
    }

    fn settle(&self, cut: u16, is_kept: bool) {
        let old = Side::of_epoch(cut);
        let is_kept = is_kept || self.sides.probe().has(Mutation::FailedImageForgotten);
        for row in self.sides.shape().rows().filter(|row| self.flags(*row).is_touched(old)) {
            match is_kept {
                true => self.flags(row).clear(old),
                false => self.flags(row).carry(old, || self.sides.copy_to(old.other(), row)),
            }
        }
    }

    fn first_unclean(&self, cut: u16) -> Option<RowId> {
        self.sides.shape().rows().find(|row| self.flags(*row).is_touched(Side::of_epoch(cut)))
    }

    fn bytes(&self) -> usize {
        self.sides.bytes()
    }
}

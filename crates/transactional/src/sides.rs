//! Two copies of all rows, one of which is written in an epoch: what vHG and vPB have in common.

use crate::cut::Stage;
use crate::probe::{Mutation, Probe};
use crate::row::{copy_row, Change, RowArray, RowId, Shape, Side};
use crate::seam::Step;
use crate::sync::atomic::AtomicU64;
use crate::writes::Writes;

/// From the cut until its image is there.
pub const UNDER_WAY: Stage = Stage(1);

pub const STEPS: &[Step] = &[Step::Cut(UNDER_WAY), Step::Drain, Step::Access, Step::Rest];

pub struct Sides {
    shape: Shape,
    copies: [RowArray; 2],
    probe: Probe,
}

impl Sides {
    pub fn new(shape: Shape, probe: Probe) -> Sides {
        Sides { shape, copies: [RowArray::new(shape), RowArray::new(shape)], probe }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    pub fn drains(&self) -> bool {
        !self.probe.has(Mutation::NoWaitForOvertaken)
    }

    #[inline]
    pub fn row(&self, side: Side, row: RowId) -> &[AtomicU64] {
        self.copies[side as usize].row(row)
    }

    pub fn read(&self, side: Side, row: RowId, to: &mut [u64]) {
        self.copies[side as usize].read(row, to);
    }

    /// The whole row, so that a write of a part of it is right.
    #[inline]
    pub fn copy_to(&self, side: Side, row: RowId) {
        copy_row(self.row(side.other(), row), self.row(side, row));
    }

    /// The same, unless all of the row is going to be written.
    #[inline]
    pub fn copy_for(&self, change: Change, side: Side, row: RowId) {
        if change == Change::Part && !self.probe.has(Mutation::PartTakenForWhole) {
            self.copy_to(side, row);
        }
    }

    /// Rows that a transaction wrote before the cut that it has committed after: their content goes to the new side, and the
    /// old one becomes what it was at the cut.
    pub fn move_overtaken(&self, new: Side, writes: &Writes<Side>, mut moved: impl FnMut(RowId)) {
        let old = new.other();
        for (row, _) in writes.written().filter(|(_, side)| *side == old) {
            self.copy_to(new, row);
        }
        if !self.probe.has(Mutation::OvertakenNotUndone) {
            let is_old = |row| writes.mark(row) == Some(old);
            writes.undo(|row| is_old(row).then(|| self.row(old, row)));
        }
        writes.written().filter(|(_, side)| *side == old).for_each(|(row, _)| moved(row));
    }

    pub fn bytes(&self) -> usize {
        self.copies.iter().map(RowArray::bytes).sum::<usize>() + self.shape.row_count() as usize
    }
}

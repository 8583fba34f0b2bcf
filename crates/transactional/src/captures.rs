//! Live rows, and stable copies of those that a cut still needs: what CALC and CPR have in common.

use crate::probe::{Mutation, Point, Probe};
use crate::row::{copy_row, Parity, RowArray, RowId, RowStatus, Shape, Taken};
use crate::sync::atomic::AtomicU64;

pub struct Captures {
    shape: Shape,
    live: RowArray,
    /// As many, so that no writer waits for memory.
    stable: RowArray,
    status: Box<[RowStatus]>,
    probe: Probe,
}

/// Of a cut's number.
#[inline]
pub fn parity(cut: u16) -> Parity {
    Parity(cut & 1 != 0)
}

impl Captures {
    pub fn new(shape: Shape, probe: Probe) -> Captures {
        Captures {
            shape,
            live: RowArray::new(shape),
            stable: RowArray::new(shape),
            status: shape.one_each(RowStatus::new),
            probe,
        }
    }

    #[inline]
    pub fn live(&self, row: RowId) -> &[AtomicU64] {
        self.live.row(row)
    }

    #[inline]
    pub fn status(&self, row: RowId) -> &RowStatus {
        &self.status[row.index()]
    }

    /// Keeps the row as it is for the cut. False if that was not necessary.
    #[inline]
    pub fn hold(&self, cut: u16, row: RowId) -> bool {
        let copy = || copy_row(self.live.row(row), self.stable.row(row));
        self.status(row).hold(parity(cut), copy)
    }

    /// The copies that were held are counted.
    pub fn sweep<E>(&self, cut: u16, mut emit: impl FnMut(RowId, &[u64]) -> Result<(), E>) -> Result<u32, E> {
        let mut words = vec![0; self.shape.row_words()];
        let mut held_count = 0;
        for row in self.shape.rows() {
            let taken = self.take(cut, row, &mut words);
            debug_assert_ne!(taken, Taken::Nothing, "each row once");
            held_count += u32::from(taken == Taken::Stable);
            emit(row, &words)?;
        }
        Ok(held_count)
    }

    fn take(&self, cut: u16, row: RowId, words: &mut [u64]) -> Taken {
        let mut has_copied = false;
        self.status(row).take(parity(cut), |from| match from {
            Taken::Stable if has_copied && self.probe.has(Mutation::NoValidation) => {}
            Taken::Stable => self.stable.read(row, words),
            _ => {
                has_copied = true;
                self.probe.reach(Point::SweepFound);
                self.live.read(row, words);
                self.probe.reach(Point::SweepCopied);
            }
        })
    }

    /// Takes what the sweep has left.
    pub fn settle(&self, cut: u16) {
        for row in self.shape.rows() {
            self.status(row).take(parity(cut), |_| ());
        }
    }

    pub fn first_unclean(&self, cut: u16) -> Option<RowId> {
        self.shape.rows().find(|row| !self.status(*row).is_done(parity(cut)))
    }

    pub fn bytes(&self) -> usize {
        self.live.bytes() + self.stable.bytes() + self.status.len()
    }
}

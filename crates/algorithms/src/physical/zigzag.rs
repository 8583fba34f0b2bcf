//! Zigzag (section 3.1.3, after Cao et al., SIGMOD 2011): two copies, and for each row two bits that say which of them is
//! read (`MR`) and which is written (`MW`).
//!
//! ```text
//!   MR != MW ── first write, of a part: copy D[MR] to D[MW], MR = MW ──▶ MR == MW
//!        ▲    └ of the whole row: MR = MW ──────────────────────────────▶ │
//!        └─────────── cut: MW = not MR, 64 rows at a time ────────────────┘
//!   access phase: D[not MW] ──▶ image       nobody writes there
//! ```
//!
//! Against the publication: the first write copies the row if it writes a part of it (H2); one of the whole row copies nothing, as
//! published. So the second copy needs no initial content; the bits have to say that it has none.

use crate::bits::{Bits, ROWS_PER_WORD};
use crate::hooks::{mutate, mutated, point, Hooks};
use crate::image::{put, Image, ImageError};
use crate::rows::{let_go_where, Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicU32, Ordering};

const COPIES: [CopyId; 2] = [CopyId::D0, CopyId::D1];

/// See the module.
pub struct Zigzag {
    /// Whether a row is read from `D1`.
    reads_second: Bits,
    /// Whether a row is written in `D1`. Changes at the cut.
    writes_second: Bits,
    cut_row_count: AtomicU32,
    hooks: Hooks,
}

impl Zigzag {
    /// For at most `row_count` rows.
    #[must_use]
    pub fn new(row_count: u32) -> Zigzag {
        Zigzag::with_hooks(row_count, Hooks::default())
    }

    #[must_use]
    pub fn with_hooks(row_count: u32, hooks: Hooks) -> Zigzag {
        Zigzag {
            reads_second: Bits::new(row_count),
            writes_second: Bits::new(row_count),
            cut_row_count: AtomicU32::new(0),
            hooks,
        }
    }

    fn read_from(&self, row: RowId, second: bool) {
        mutate!(self.hooks, ZigzagNeighboursNotAtomic => {
            return self.reads_second.store(row, second, || self.hooks.pass(crate::hooks::Point::FlagsRead, row));
        });
        self.reads_second.set(row, second);
        point!(self.hooks, FlagsRead, row);
    }

    /// Rows that have been written since the cut: their other copy is the snapshot's alone.
    fn let_go(&self, copies: &impl Copies, row_count: u32) {
        for second in [false, true] {
            let_go_where(copies, COPIES[usize::from(second)], row_count, |row| {
                let written = self.writes_second.get(row);
                written != second && self.reads_second.get(row) == written
            });
        }
    }
}

impl<C: Copies> Algorithm<C> for Zigzag {
    const SECOND_COPIES: &'static [CopyId] = &[CopyId::D1];
    const IS_INCREMENTAL: bool = false;
    const SEES_EACH_WRITE: bool = false;

    fn start(&self, copies: &C) {
        let _ = copies;
        mutate!(self.hooks, ZigzagOneCopyNotInitialised => {
            Bits::words(copies.row_count()).for_each(|word| self.reads_second.set_word(word, u64::MAX));
        });
    }

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, change: Change) -> CopyId {
        let to = self.writes_second.get(row);
        let from = self.reads_second.get(row);
        if from != to {
            if !self.hooks.replaces(change) && !mutated!(self.hooks, ZigzagNoCarryOver) {
                let place = |second: bool| Place::of(row, COPIES[usize::from(second)]);
                copies.copy(place(from), place(to));
            }
            self.read_from(row, to);
        }
        COPIES[usize::from(to)]
    }

    #[inline(always)]
    fn live(&self, row: RowId) -> CopyId {
        COPIES[usize::from(self.reads_second.get(row))]
    }

    fn cut(&self, copies: &C) {
        let row_count = copies.row_count();
        self.cut_row_count.store(row_count, Ordering::Relaxed);
        mutate!(self.hooks, ZigzagBitsNotFlipped => { return });
        Bits::words(row_count)
            .for_each(|word| self.writes_second.set_word(word, !self.reads_second.word(word)));
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let row_count = self.cut_row_count.load(Ordering::Relaxed);
        for word in Bits::words(row_count) {
            let writes_second = self.writes_second.word(word);
            let first = word as u32 * ROWS_PER_WORD;
            for row in first..row_count.min(first + ROWS_PER_WORD) {
                let kept = writes_second >> (row - first) & 1 ^ 1;
                put(image, copies, RowId(row), Place::of(RowId(row), COPIES[kept as usize]))?;
            }
        }
        image.finish()?;
        if C::LETS_GO {
            self.let_go(copies, row_count);
        }
        Ok(())
    }

    /// Its bits are of rows, not of a cut.
    fn is_idle(&self) -> bool {
        true
    }
}

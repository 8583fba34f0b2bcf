//! Hourglass (section 3.2.1): two copies, of which the cut swaps the roles. Each image has the rows of one period.
//!
//! ```text
//!   a row, in the period that writes D[cur]:
//!
//!   latest in D[not cur] ── first write, of a part: copy the row to D[cur], `latest` = cur ──▶ latest in D[cur]
//!                         └ of the whole row: `latest` = cur ────────────────────────────────▶ `updated[cur]` is set
//!   cut: cur = not cur
//!   access phase: rows of `updated[not cur]` from D[not cur] ──▶ image, which finishes ──▶ `updated[not cur]` cleared
//! ```
//!
//! Against the publication: the first write of a row in a period copies it if it writes a part of it (H2); `latest`
//! is right after each write; flags are cleared only when the image has finished; and if it has not, the next cut
//! has its rows copied to the other ones, so that the next image has both periods (H9). The first image has all rows.

use crate::bits::{below, rows_of, Bits};
use crate::hooks::{mutate, mutated, Hooks};
use crate::image::{put, Image, ImageError};
use crate::rows::{let_go_where, Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const COPIES: [CopyId; 2] = [CopyId::D0, CopyId::D1];

/// See the module.
pub struct Hourglass {
    /// Whether `D1` is written in this period. Changes at the cut.
    writes_second: AtomicBool,
    /// Rows written in the last period that wrote this copy, until they are in an image.
    updated: [Bits; 2],
    /// Whether the latest content is in `D1` (`br` of the paper).
    latest: Bits,
    /// There is a cut whose image has not finished.
    is_owed: AtomicBool,
    cut_row_count: AtomicU32,
    hooks: Hooks,
}

impl Hourglass {
    /// For at most `row_count` rows.
    #[must_use]
    pub fn new(row_count: u32) -> Hourglass {
        Hourglass::with_hooks(row_count, Hooks::default())
    }

    #[must_use]
    pub fn with_hooks(row_count: u32, hooks: Hooks) -> Hourglass {
        Hourglass {
            writes_second: AtomicBool::new(false),
            updated: [Bits::new(row_count), Bits::new(row_count)],
            latest: Bits::new(row_count),
            is_owed: AtomicBool::new(false),
            cut_row_count: AtomicU32::new(0),
            hooks,
        }
    }

    /// Whether `D1` is written. The caller is in a period, so it does not change.
    #[inline(always)]
    fn cur(&self) -> bool {
        self.writes_second.load(Ordering::Relaxed)
    }

    /// An image has not finished: its rows are made rows of the present period, as which they have not been written.
    fn carry_over(&self, copies: &impl Copies) {
        let cur = self.cur();
        let (from, to) = (COPIES[usize::from(!cur)], COPIES[usize::from(cur)]);
        for word in Bits::words(self.cut_row_count.load(Ordering::Relaxed)) {
            let owed = self.updated[usize::from(!cur)].word(word);
            let written = self.updated[usize::from(cur)].word(word);
            mutate!(self.hooks, HourglassFailedImageForgotten => {
                self.updated[usize::from(!cur)].set_word(word, 0);
                continue;
            });
            for row in rows_of(word, owed & !written) {
                copies.copy(Place::of(row, from), Place::of(row, to));
                self.latest.set(row, cur);
            }
            self.updated[usize::from(cur)].set_word(word, owed | written);
            self.updated[usize::from(!cur)].set_word(word, 0);
        }
    }
}

impl<C: Copies> Algorithm<C> for Hourglass {
    const SECOND_COPIES: &'static [CopyId] = &[CopyId::D1];
    const IS_INCREMENTAL: bool = true;
    const SEES_EACH_WRITE: bool = false;

    fn start(&self, copies: &C) {
        mutate!(self.hooks, HourglassNoBaseImage => { return });
        let row_count = copies.row_count();
        Bits::words(row_count).for_each(|word| self.updated[0].set_word(word, below(word, row_count)));
    }

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, change: Change) -> CopyId {
        let cur = self.cur();
        let to = COPIES[usize::from(cur)];
        if self.latest.get(row) != cur {
            if !self.hooks.replaces(change) && !mutated!(self.hooks, HourglassNoCarryOver) {
                copies.copy(Place::of(row, COPIES[usize::from(!cur)]), Place::of(row, to));
            }
            if !mutated!(self.hooks, HourglassLatestNotKept) {
                self.latest.set(row, cur);
            }
        }
        self.updated[usize::from(cur)].set(row, true);
        to
    }

    #[inline(always)]
    fn live(&self, row: RowId) -> CopyId {
        COPIES[usize::from(self.latest.get(row))]
    }

    fn cut(&self, copies: &C) {
        if self.is_owed.swap(true, Ordering::Relaxed) {
            self.carry_over(copies);
        }
        self.cut_row_count.store(copies.row_count(), Ordering::Relaxed);
        self.writes_second.store(!self.cur(), Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let from = !self.cur();
        let row_count = self.cut_row_count.load(Ordering::Relaxed);
        let updated = &self.updated[usize::from(from)];
        for word in Bits::words(row_count) {
            let rows = updated.word(word);
            mutate!(self.hooks, HourglassClearedBeforeFinish => { updated.set_word(word, 0); });
            for row in rows_of(word, rows) {
                put(image, copies, row, Place::of(row, COPIES[usize::from(from)]))?;
            }
        }
        image.finish()?;
        Bits::words(row_count).for_each(|word| updated.set_word(word, 0));
        self.is_owed.store(false, Ordering::Relaxed);
        if C::LETS_GO {
            // Rows whose latest content is in the other copy. They stay so until this one is written again.
            let is_dead = |row| self.latest.get(row) != from;
            let_go_where(copies, COPIES[usize::from(from)], row_count, is_dead);
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let kept = &self.updated[usize::from(!self.cur())];
        Bits::words(self.cut_row_count.load(Ordering::Relaxed)).all(|word| kept.word(word) == 0)
    }
}

//! Ping-Pong (section 3.1.4, after Cao et al., SIGMOD 2011): each write goes to `D` and to the update copy of the period.
//! Each image has the rows of one period.
//!
//! ```text
//!   a row, in the period of U[cur]:
//!   not updated ── first write: D, then the row copied to U[cur] ──▶ updated ── write: D, the same bytes to U[cur] ──┐
//!                                                                       ▲───────────────────────────────────────────┘
//!   cut: cur = not cur
//!   access phase: rows updated in U[not cur] ──▶ image, which finishes ──▶ not updated
//! ```
//!
//! Against the publication: the first write of a period copies the whole row, for it may have written a part of it; flags are
//! cleared only when the image has finished; and if it has not, the next cut takes its rows over (H9). The first image has
//! all rows.

use crate::bits::{below, rows_of, Bits};
use crate::hooks::{mutate, mutated, Hooks};
use crate::image::{put, Image, ImageError};
use crate::rows::{Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const UPDATES: [CopyId; 2] = [CopyId::U0, CopyId::U1];

/// See the module.
pub struct PingPong {
    /// Whether `U1` is the update copy of this period. Changes at the cut.
    updates_second: AtomicBool,
    /// Rows that are in an update copy, until they are in an image.
    updated: [Bits; 2],
    /// There is a cut whose image has not finished.
    is_owed: AtomicBool,
    cut_row_count: AtomicU32,
    hooks: Hooks,
}

impl PingPong {
    /// For at most `row_count` rows.
    #[must_use]
    pub fn new(row_count: u32) -> PingPong {
        PingPong::with_hooks(row_count, Hooks::default())
    }

    #[must_use]
    pub fn with_hooks(row_count: u32, hooks: Hooks) -> PingPong {
        PingPong {
            updates_second: AtomicBool::new(false),
            updated: [Bits::new(row_count), Bits::new(row_count)],
            is_owed: AtomicBool::new(false),
            cut_row_count: AtomicU32::new(0),
            hooks,
        }
    }

    /// The number of the update copy. The caller is in a period, so it does not change.
    #[inline(always)]
    fn cur(&self) -> usize {
        usize::from(self.updates_second.load(Ordering::Relaxed))
    }

    /// An image has not finished: its rows are made rows of the present period, as which they have not been written.
    fn carry_over(&self, copies: &impl Copies) {
        let (cur, owed) = (self.cur(), 1 - self.cur());
        for word in Bits::words(self.cut_row_count.load(Ordering::Relaxed)) {
            let (written, kept) = (self.updated[cur].word(word), self.updated[owed].word(word));
            for row in rows_of(word, kept & !written) {
                copies.copy(Place::of(row, UPDATES[owed]), Place::of(row, UPDATES[cur]));
            }
            self.updated[cur].set_word(word, kept | written);
            self.updated[owed].set_word(word, 0);
        }
    }
}

impl<C: Copies> Algorithm<C> for PingPong {
    const SECOND_COPIES: &'static [CopyId] = &[CopyId::U0, CopyId::U1];
    const IS_INCREMENTAL: bool = true;
    const SEES_EACH_WRITE: bool = true;

    fn start(&self, copies: &C) {
        let row_count = copies.row_count();
        copies.copy_rows(0..row_count, CopyId::D, CopyId::U0);
        Bits::words(row_count).for_each(|word| self.updated[0].set_word(word, below(word, row_count)));
    }

    #[inline(always)]
    fn before_write(&self, _: &C, _: RowId, _: Change) -> CopyId {
        CopyId::D
    }

    #[inline]
    fn after_write(&self, copies: &C, row: RowId, change: Change) {
        let bytes = change.bytes(copies.row_len());
        let cur = self.cur();
        let (from, to) = (Place::of(row, CopyId::D), Place::of(row, UPDATES[cur]));
        if self.updated[cur].get(row) {
            if !mutated!(self.hooks, PingPongFirstWriteOnly) {
                copies.copy_part(from, to, bytes);
            }
            return;
        }
        match mutated!(self.hooks, PingPongNoCarryOver) {
            true => copies.copy_part(from, to, bytes),
            false => copies.copy(from, to),
        }
        self.updated[cur].set(row, true);
    }

    #[inline(always)]
    fn live(&self, _: RowId) -> CopyId {
        CopyId::D
    }

    fn cut(&self, copies: &C) {
        if self.is_owed.swap(true, Ordering::Relaxed) {
            self.carry_over(copies);
        }
        self.cut_row_count.store(copies.row_count(), Ordering::Relaxed);
        self.updates_second.store(self.cur() == 0, Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let kept = 1 - self.cur();
        let row_count = self.cut_row_count.load(Ordering::Relaxed);
        for word in Bits::words(row_count) {
            let rows = self.updated[kept].word(word);
            mutate!(self.hooks, PingPongClearedBeforeFinish => { self.updated[kept].set_word(word, 0); });
            for row in rows_of(word, rows) {
                put(image, copies, row, Place::of(row, UPDATES[kept]))?;
            }
        }
        image.finish()?;
        Bits::words(row_count).for_each(|word| self.updated[kept].set_word(word, 0));
        copies.let_go(UPDATES[kept], 0..row_count);
        self.is_owed.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let kept = &self.updated[1 - self.cur()];
        Bits::words(self.cut_row_count.load(Ordering::Relaxed)).all(|word| kept.word(word) == 0)
    }
}

//! Copy-on-update (section 3.1.2): whoever comes first to a row of the cut, writer or access phase, deals with it.
//!
//! ```text
//!            ┌── writer takes it ──▶ BUSY ── D copied to S ──▶ SAVED ── S put ──┐
//!   CLEAN ───┤                                                                  ├──▶ DONE
//!     ▲      └── access phase takes it ──▶ BUSY ── D put ───────────────────────┘      │
//!     └──────────────────────────────── cut ───────────────────────────────────────────┘
//! ```
//!
//! `SAVED` is said after the copy (H4), and `BUSY` is held by one thread while it copies: the other waits (H6). Flags are set anew by the
//! cut, a word of 32 at a time, so the cut grows with the data.

use crate::backoff::Backoff;
use crate::hooks::{mutate, point, Hooks};
use crate::image::{Image, ImageError};
use crate::pairs::{Pair, Pairs};
use crate::rows::{Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicU32, Ordering};

const CLEAN: Pair = 0;
const SAVED: Pair = 1;
const BUSY: Pair = 2;
const DONE: Pair = 3;

/// See the module.
pub struct Cou {
    flags: Pairs,
    /// Rows of the cut. Those that came later need nothing.
    cut_row_count: AtomicU32,
    hooks: Hooks,
}

impl Cou {
    /// For at most `row_count` rows.
    #[must_use]
    pub fn new(row_count: u32) -> Cou {
        Cou::with_hooks(row_count, Hooks::default())
    }

    #[must_use]
    pub fn with_hooks(row_count: u32, hooks: Hooks) -> Cou {
        Cou { flags: Pairs::new(row_count, DONE), cut_row_count: AtomicU32::new(0), hooks }
    }

    /// The writer's edge from `CLEAN`. False if somebody else was first.
    #[inline]
    fn save(&self, copies: &impl Copies, row: RowId) -> bool {
        let copy = || {
            point!(self.hooks, WriterCopies, row);
            copies.copy(Place::of(row, CopyId::D), Place::of(row, CopyId::S));
        };
        mutate!(self.hooks, CouSavedBeforeCopy => {
            let is_mine = self.flags.exchange(row, CLEAN, SAVED);
            if is_mine {
                copy();
            }
            return is_mine;
        });
        let is_mine = self.flags.exchange(row, CLEAN, BUSY);
        if is_mine {
            copy();
            self.flags.replace(row, BUSY, SAVED);
        }
        is_mine
    }

    /// The access phase's way to `DONE`: `put` is given where the row of the cut is.
    #[inline]
    fn settle(
        &self,
        row: RowId,
        put: impl FnOnce(CopyId) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let mut backoff = Backoff::default();
        loop {
            match self.flags.get(row) {
                CLEAN => {
                    mutate!(self.hooks, CouTestThenEmit => {
                        point!(self.hooks, BackgroundCopies, row);
                        let result = put(CopyId::D);
                        self.flags.store(row, DONE, || ());
                        return result;
                    });
                    if self.flags.exchange(row, CLEAN, BUSY) {
                        point!(self.hooks, BackgroundCopies, row);
                        let result = put(CopyId::D);
                        self.flags.replace(row, BUSY, DONE);
                        return result;
                    }
                }
                SAVED => {
                    let result = put(CopyId::S);
                    self.flags.replace(row, SAVED, DONE);
                    return result;
                }
                BUSY => backoff.wait(),
                _ => return Ok(()),
            }
        }
    }
}

impl<C: Copies> Algorithm<C> for Cou {
    const SECOND_COPIES: &'static [CopyId] = &[CopyId::S];
    const IS_INCREMENTAL: bool = false;
    const SEES_EACH_WRITE: bool = false;

    fn start(&self, _: &C) {}

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, _: Change) -> CopyId {
        if row.0 < self.cut_row_count.load(Ordering::Relaxed) {
            let mut backoff = Backoff::default();
            loop {
                match self.flags.get(row) {
                    CLEAN if self.save(copies, row) => break,
                    CLEAN => {}
                    BUSY => backoff.wait(),
                    _ => break,
                }
            }
        }
        CopyId::D
    }

    #[inline(always)]
    fn live(&self, _: RowId) -> CopyId {
        CopyId::D
    }

    fn cut(&self, copies: &C) {
        let row_count = copies.row_count();
        self.flags.fill(0..row_count, CLEAN);
        self.cut_row_count.store(row_count, Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let mut rows = (0..self.cut_row_count.load(Ordering::Relaxed)).map(RowId);
        let mut result = rows.try_for_each(|row| {
            if !image.has_room() {
                image.drain()?;
            }
            self.settle(row, |from| image.put(copies, row, Place::of(row, from)))
        });
        if result.is_ok() {
            result = image.finish();
        }
        // After a failure nobody needs the rest: writers are not to copy it.
        for row in (0..self.cut_row_count.load(Ordering::Relaxed)).map(RowId).filter(|_| result.is_err()) {
            self.settle(row, |_| Ok(())).expect("nothing is put");
        }
        copies.let_go(CopyId::S, 0..self.cut_row_count.load(Ordering::Relaxed));
        result
    }

    fn is_idle(&self) -> bool {
        (0..self.cut_row_count.load(Ordering::Relaxed)).all(|row| self.flags.get(RowId(row)) == DONE)
    }
}

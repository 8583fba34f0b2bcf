//! Epoch for long rows: a writer keeps the parts of a row that it is going to change, not the row.
//!
//! ```text
//!   a row of the running cut, as its word says:
//!
//!   older ──── writer: exchange ───────▶ BEGUN ◀──┐ writer, at the first write of each part:
//!     │                                    │  └───┘ copy the part to a spare frame, link it to the row, hand it over
//!     │ sweep: put D, then exchange        │
//!     │ (it was changed: take it back)     │ sweep: D to a row of its own, kept parts over it, put that, then exchange
//!     │                                    │ writer, if no frame is free: the same, and give that to the image itself
//!     ▼                                    ▼
//!   CLAIMED ◀──────────────────────────────┘         nothing is kept any more, and nothing asked for
//! ```
//!
//! A part is a line of the cache, which the writer needs anyway; so a write costs the same however long its row is. Who has
//! copied bytes of a row that a writer had changed finds the part that the writer had linked before (H7): the sweep never
//! has to begin anew.
//!
//! The sweep goes over the rows as they lie, but those first of which writers have handed over parts. When it comes to a frame
//! it puts the whole row, and all frames of that row can go; so they become free in the order in which they were taken.

use crate::backoff::Backoff;
use crate::frames::Turn;
use crate::hooks::{mutate, mutated, point, Hooks};
use crate::image::{Image, ImageError};
use crate::parts::{Link, Parts};
use crate::rows::{Change, CopyId, Place, RowId, WordCopies};
use crate::seam::Algorithm;
use crate::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::Mutex;

use std::ops::Range;
use std::sync::PoisonError;

use super::epoch::EpochOptions;
use super::helpers::Helpers;

/// Rows of so many bytes and more are long.
pub const LONG_ROW_LEN: usize = 1024;

/// Parts of a row: a bit each.
const PARTS_MAX: usize = 64;

/// A line of the cache.
const PART_WORDS_MIN: usize = 8;

const WORD_LEN: usize = size_of::<u64>();

/// Where the sweep puts rows together.
const OF_SWEEP: Place = Place { copy: CopyId::SPARE, slot: 0 };
/// Where writers that help do, one at a time.
const OF_HELPERS: Place = Place { copy: CopyId::SPARE, slot: 1 };

/// How far a row is with a cut: twice the cut's number, and one more when it has been claimed. It takes 2^31 cuts without
/// an image for a number to come again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stage(u32);

impl Stage {
    fn begun(cut: u32) -> Stage {
        Stage(cut << 1)
    }

    fn claimed(cut: u32) -> Stage {
        Stage(cut << 1 | 1)
    }
}

struct Row {
    stage: AtomicU32,
    /// The part that was kept last. This, and what follows, is of the cut for which the row has been begun.
    newest: AtomicU32,
    /// Parts that have been kept, a bit each.
    kept: AtomicU64,
}

impl Row {
    fn stage(&self) -> Stage {
        Stage(self.stage.load(Ordering::Acquire))
    }

    /// Whoever exchanges the stage is who goes on with the row.
    fn exchange(&self, seen: Stage, next: Stage) -> Result<(), Stage> {
        let result = self.stage.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire);
        result.map(drop).map_err(Stage)
    }
}

/// See the module.
pub struct EpochParts<C> {
    rows: Box<[Row]>,
    /// The last cut.
    cut: AtomicU32,
    /// Whether writers are to keep parts for the cut: from the cut to the end of its access phase.
    is_streaming: AtomicBool,
    cut_row_count: AtomicU32,
    parts: Parts,
    part_len: usize,
    helpers: Helpers<C>,
    /// Has [`OF_HELPERS`].
    helping: Mutex<()>,
    hooks: Hooks,
}

impl<C: WordCopies> EpochParts<C> {
    /// For at most `row_count` rows of `row_len` bytes, and parts of whole lines. The sweep's order is its own.
    #[must_use]
    pub fn with_hooks(
        row_count: u32,
        row_len: usize,
        options: EpochOptions<C>,
        hooks: Hooks,
    ) -> EpochParts<C> {
        let part_words = (row_len / WORD_LEN).div_ceil(PARTS_MAX).max(PART_WORDS_MIN);
        EpochParts::with_parts(row_count, row_len, part_words, options, hooks)
    }

    /// The same for parts of so many words.
    #[must_use]
    pub fn with_parts(
        row_count: u32,
        row_len: usize,
        part_words: usize,
        options: EpochOptions<C>,
        hooks: Hooks,
    ) -> EpochParts<C> {
        assert!(row_len <= PARTS_MAX * part_words * WORD_LEN, "a bit for each part");
        let budget_bytes = u64::from(options.spare_frames) * row_len as u64;
        let frame_count = budget_bytes / Parts::frame_bytes(part_words) as u64;
        let row = |_| Row { stage: AtomicU32::new(0), newest: AtomicU32::new(0), kept: AtomicU64::new(0) };
        EpochParts {
            rows: (0..row_count).map(row).collect(),
            cut: AtomicU32::new(0),
            is_streaming: AtomicBool::new(false),
            cut_row_count: AtomicU32::new(0),
            parts: Parts::new(u32::try_from(frame_count).unwrap_or(u32::MAX - 1), part_words),
            part_len: part_words * WORD_LEN,
            helpers: Helpers::new(options.help),
            helping: Mutex::new(()),
            hooks,
        }
    }

    #[inline(always)]
    fn row(&self, row: RowId) -> &Row {
        &self.rows[row.0 as usize]
    }

    /// A bit for each part of these bytes.
    #[inline(always)]
    fn parts_of(&self, bytes: &Range<usize>) -> u64 {
        let (first, last) = (bytes.start / self.part_len, bytes.end.saturating_sub(1) / self.part_len);
        (u64::MAX >> (PARTS_MAX - 1 - last.max(first))) & (u64::MAX << first)
    }

    /// Parts of a row that has not been claimed are about to be written.
    fn keep(&self, copies: &C, id: RowId, cut: u32, seen: Stage, wanted: u64) {
        let row = self.row(id);
        if seen != Stage::begun(cut) && !self.begin(row, cut, seen) {
            return;
        }
        let mut kept = row.kept.load(Ordering::Relaxed);
        let mut missing = wanted & !kept;
        while missing != 0 {
            let Some(turn) = self.parts.frames.take() else { return self.help(copies, id, cut) };
            point!(self.hooks, WriterCopies, id);
            let (part, newest) =
                (missing.trailing_zeros(), Link::from_bits(row.newest.load(Ordering::Relaxed)));
            let link = self.parts.keep(turn, copies.words(Place::of(id, CopyId::D)), part, newest);
            if !mutated!(self.hooks, PartsNotLinked) {
                row.newest.store(link.bits(), Ordering::Release);
            }
            self.parts.hand_over(turn, id);
            kept |= 1 << part;
            row.kept.store(kept, Ordering::Relaxed);
            missing &= missing - 1;
        }
    }

    /// The writer's edge to BEGUN. False if the sweep was first.
    fn begin(&self, row: &Row, cut: u32, seen: Stage) -> bool {
        if !mutated!(self.hooks, PartsOfLastCut) {
            // Nobody looks at these before the row has been begun.
            row.newest.store(Link::NONE.bits(), Ordering::Relaxed);
            row.kept.store(0, Ordering::Relaxed);
        }
        row.exchange(seen, Stage::begun(cut)).is_ok()
    }

    /// The content of a row at the cut, if it is not claimed meanwhile: the caller finds out.
    fn put_together(&self, copies: &C, id: RowId, at: Place) {
        copies.copy(Place::of(id, CopyId::D), at);
        fence(Ordering::Acquire);
        mutate!(self.hooks, PartsNotLaidOver => { return });
        let mut next = Link::from_bits(self.row(id).newest.load(Ordering::Acquire));
        // There are no more of a row; what goes on has been used again meanwhile.
        for _ in 0..PARTS_MAX {
            let Some(before) = self.parts.lay_over(next, copies.words(at)) else { return };
            next = before;
        }
    }

    /// Gives a row, of which the caller is the writer, to the image: there is no free frame for a part of it.
    fn help(&self, copies: &C, id: RowId, cut: u32) {
        let turn = self.helping.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match mutated!(self.hooks, HelpWithoutParts) {
            true => Place::of(id, CopyId::D),
            false => OF_HELPERS,
        };
        if at == OF_HELPERS {
            self.put_together(copies, id, at);
        }
        if self.row(id).exchange(Stage::begun(cut), Stage::claimed(cut)).is_ok() {
            match mutated!(self.hooks, EpochNoHelp) {
                true => self.helpers.count(),
                false => self.helpers.emit(copies, id, at),
            }
        }
        drop(turn);
    }
}

/// One access phase.
struct Sweep<'s, C, I> {
    algorithm: &'s EpochParts<C>,
    copies: &'s C,
    image: &'s mut I,
    cut: u32,
    row_count: u32,
    put_count: u32,
    /// What writers hand over next.
    turn: Turn,
}

/// Frames that are given back at once.
const GIVE_BACK_FRAMES: u32 = 64;

/// Rows of the sweep between two looks at what writers have handed over.
const ROWS_BETWEEN_LOOKS: u32 = 16;

impl<C: WordCopies, I: Image<C>> Sweep<'_, C, I> {
    /// Puts the rows of parts that have been handed over, so that their frames become free.
    fn put_handed_over(&mut self) -> Result<(), ImageError> {
        self.algorithm.helpers.check()?;
        let mut frame_count = 0;
        while let Some((row, next)) = self.algorithm.parts.frames.handed_over(self.turn) {
            if !mutated!(self.algorithm.hooks, PartsReleasedUnclaimed) {
                self.sweep(row)?;
            }
            self.turn = next;
            frame_count += 1;
            if frame_count % GIVE_BACK_FRAMES == 0 {
                self.algorithm.parts.frames.give_back(self.turn);
            }
        }
        if frame_count > 0 {
            self.algorithm.parts.frames.give_back(self.turn);
        }
        Ok(())
    }

    /// The sweep at one row.
    #[inline]
    fn sweep(&mut self, id: RowId) -> Result<(), ImageError> {
        let (begun, claimed) = (Stage::begun(self.cut), Stage::claimed(self.cut));
        let row = self.algorithm.row(id);
        let seen = row.stage();
        if seen == claimed {
            return Ok(());
        }
        if !self.image.has_room() {
            self.algorithm.parts.frames.give_back(self.turn);
            self.image.drain()?;
        }
        if seen != begun {
            point!(self.algorithm.hooks, BackgroundCopies, id);
            self.image.put(self.copies, id, Place::of(id, CopyId::D))?;
            point!(self.algorithm.hooks, BackgroundCopied, id);
            // With the writer's: bytes that follow its exchange are not copied without the exchange being seen.
            fence(Ordering::Acquire);
            if row.exchange(seen, claimed).is_ok() || mutated!(self.algorithm.hooks, EpochNoValidation) {
                self.put_count += 1;
                return Ok(());
            }
            self.image.take_back();
        }
        self.put_begun(id, begun, claimed)
    }

    /// A row of which parts have been kept, and perhaps more are.
    fn put_begun(&mut self, id: RowId, begun: Stage, claimed: Stage) -> Result<(), ImageError> {
        point!(self.algorithm.hooks, BackgroundCopies, id);
        self.algorithm.put_together(self.copies, id, OF_SWEEP);
        point!(self.algorithm.hooks, BackgroundCopied, id);
        self.image.put(self.copies, id, OF_SWEEP)?;
        match self.algorithm.row(id).exchange(begun, claimed) {
            Ok(()) => self.put_count += 1,
            // A writer has helped.
            Err(_) => self.image.take_back(),
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), ImageError> {
        for row in 0..self.row_count {
            if row % ROWS_BETWEEN_LOOKS == 0 {
                self.put_handed_over()?;
            }
            self.sweep(RowId(row))?;
        }
        point!(self.algorithm.hooks, SweepEnds, RowId(0));
        let mut backoff = Backoff::default();
        loop {
            self.put_handed_over()?;
            let done = self.put_count + self.algorithm.helpers.row_count();
            if done >= self.row_count || mutated!(self.algorithm.hooks, EpochEndsBeforeCaptured) {
                break;
            }
            // Every row is claimed: a writer is about to give the rest to the image (H8).
            backoff.wait();
        }
        self.image.finish()
    }
}

impl<C: WordCopies> Algorithm<C> for EpochParts<C> {
    const SECOND_COPIES: &'static [CopyId] = &[];
    const IS_INCREMENTAL: bool = false;
    const SEES_EACH_WRITE: bool = true;

    fn spare_frames(&self) -> u32 {
        2
    }

    fn start(&self, copies: &C) {
        self.cut_row_count.store(copies.row_count(), Ordering::Relaxed);
    }

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, change: Change) -> CopyId {
        let bytes = change.bytes(copies.row_len());
        let (cut, seen) = (self.cut.load(Ordering::Relaxed), self.row(row).stage());
        if seen != Stage::claimed(cut)
            && self.is_streaming.load(Ordering::Relaxed)
            && row.0 < self.cut_row_count.load(Ordering::Relaxed)
            && !bytes.is_empty()
        {
            self.keep(copies, row, cut, seen, self.parts_of(&bytes));
            // Before the row's bytes: who has copied any of those that follow finds what has been kept, or claimed (H7).
            fence(Ordering::Release);
        }
        CopyId::D
    }

    #[inline(always)]
    fn live(&self, _: RowId) -> CopyId {
        CopyId::D
    }

    fn cut(&self, copies: &C) {
        // What still waits belongs to rows that have been put, or to a cut of which there will be no image.
        self.parts.frames.give_back_all();
        self.cut.store(self.cut.load(Ordering::Relaxed).wrapping_add(1) & (u32::MAX >> 1), Ordering::Relaxed);
        self.cut_row_count.store(copies.row_count(), Ordering::Relaxed);
        self.helpers.begin();
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let mut sweep = Sweep {
            algorithm: self,
            copies,
            image,
            cut: self.cut.load(Ordering::Relaxed),
            row_count: self.cut_row_count.load(Ordering::Relaxed),
            put_count: 0,
            turn: self.parts.frames.first(),
        };
        let result = sweep.run();
        self.is_streaming.store(false, Ordering::Relaxed);
        result
    }

    /// Parts that a writer was just handing over when their row was put are still there, until the next cut.
    fn is_idle(&self) -> bool {
        let claimed = Stage::claimed(self.cut.load(Ordering::Relaxed));
        let mut turn = self.parts.frames.first();
        while let Some((row, next)) = self.parts.frames.handed_over(turn) {
            if self.row(row).stage() != claimed {
                return false;
            }
            turn = next;
        }
        !self.is_streaming.load(Ordering::Relaxed) && self.parts.frames.is_next(turn)
    }
}

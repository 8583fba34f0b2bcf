//! Epoch, ours: the cut changes the meaning of a bit and copies nothing. A row has one bit, which says whether the row has been
//! claimed for the last cut: so the bits of many rows stay in the caches.
//!
//! ```text
//!   a row of the running cut:
//!                  ┌── sweep: put, then claim (it was claimed meanwhile: take the row back) ─────▶ CLAIMED, emitted
//!   not claimed ───┼── sweep, image is busy: copy to a spare frame, then claim ───────────▶ CLAIMED, put later
//!                  └── writer: claim ─┬─ copy to a spare frame, hand it over ───────────────────▶ CLAIMED, put soon
//!                                     └─ no frame is free: give the row to the image itself ────▶ CLAIMED, emitted
//!   writer, then: modify D
//!
//!   the cut: all are CLAIMED ── what a claimed row's bit is, is no claim from now on ──▶ none is
//! ```
//!
//! The sweep's claim is validation, too: whoever modifies a row has claimed it before (H7). The budget is the number of spare
//! frames. They are recycled, so they stay populated. The sweep has a quarter of them to copy ahead, and the hottest rows can
//! go first: both spare writers their captures.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backoff::Backoff;
use crate::bits::Bits;
use crate::frames::{Frames, Turn};
use crate::hooks::{mutate, mutated, point, Hooks};
use crate::image::{Help, Image, ImageError};
use crate::rows::{Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU8, Ordering};

use super::helpers::Helpers;

/// In which order the sweep goes over the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SweepOrder {
    /// As they lie.
    #[default]
    Address,
    /// Rows that writers captured at most of the last eight cuts first, for they are likely to come to them next. Takes a byte
    /// a row.
    HottestFirst,
}

impl SweepOrder {
    /// Heats from which on rows are in one round of the sweep, for each round.
    fn rounds(self) -> &'static [u32] {
        match self {
            SweepOrder::Address => &[0],
            SweepOrder::HottestFirst => &[6, 2, 0],
        }
    }
}

/// How [`Epoch`] is made.
pub struct EpochOptions<C> {
    /// The budget, in rows.
    pub spare_frames: u32,
    pub sweep_order: SweepOrder,
    /// Where writers give rows when the budget is used up.
    pub help: Arc<dyn Help<C>>,
}

/// The part of the spare frames that the sweep has to copy ahead: one in so many.
const AHEAD_PART: u32 = 4;

/// At which of the last eight cuts writers captured each row, the last is the highest bit.
struct Heat(Box<[AtomicU8]>);

impl Heat {
    fn new(order: SweepOrder, row_count: u32) -> Heat {
        let row_count = if order == SweepOrder::HottestFirst { row_count } else { 0 };
        Heat((0..row_count).map(|_| AtomicU8::new(0)).collect())
    }

    fn note_capture(&self, row: RowId) {
        if let Some(heat) = self.0.get(row.0 as usize) {
            heat.fetch_or(1 << 7, Ordering::Relaxed);
        }
    }

    fn of(&self, row: RowId) -> u32 {
        self.0.get(row.0 as usize).map_or(0, |heat| heat.load(Ordering::Relaxed).count_ones())
    }

    /// The sweep goes by. A writer's note may get lost: it is a hint.
    fn age(&self, row: RowId) {
        if let Some(heat) = self.0.get(row.0 as usize) {
            heat.store(heat.load(Ordering::Relaxed) >> 1, Ordering::Relaxed);
        }
    }
}

/// See the module.
pub struct Epoch<C> {
    bits: Bits,
    /// What the bit of a claimed row is. All are so but from a cut to the end of its access phase.
    claimed: AtomicBool,
    /// Since the last cut there was no access phase that has ended.
    is_owed: AtomicBool,
    cut_row_count: AtomicU32,
    /// For writers.
    frames: Frames,
    /// For the sweep; the slots after those.
    ahead_frame_count: u32,
    helpers: Helpers<C>,
    sweep_order: SweepOrder,
    heat: Heat,
    hooks: Hooks,
}

impl<C: Copies> Epoch<C> {
    /// For at most `row_count` rows.
    #[must_use]
    pub fn new(row_count: u32, options: EpochOptions<C>) -> Epoch<C> {
        Epoch::with_hooks(row_count, options, Hooks::default())
    }

    #[must_use]
    pub fn with_hooks(row_count: u32, options: EpochOptions<C>, hooks: Hooks) -> Epoch<C> {
        let ahead_frame_count = options.spare_frames / AHEAD_PART;
        Epoch {
            bits: Bits::new(row_count),
            claimed: AtomicBool::new(false),
            is_owed: AtomicBool::new(false),
            cut_row_count: AtomicU32::new(0),
            frames: Frames::new(options.spare_frames - ahead_frame_count),
            ahead_frame_count,
            helpers: Helpers::new(options.help),
            sweep_order: options.sweep_order,
            heat: Heat::new(options.sweep_order, row_count),
            hooks,
        }
    }

    /// The first modification of a row that the sweep has not put.
    #[cold]
    fn capture(&self, copies: &C, row: RowId, claimed: bool) {
        let from = Place::of(row, CopyId::D);
        mutate!(self.hooks, EpochCaptureUnclaimed => {
            point!(self.hooks, WriterCopies, row);
            let Some(turn) = self.frames.take() else { return };
            copies.copy(from, spare(turn.frame()));
            return self.frames.hand_over(turn, row);
        });
        if !self.bits.change(row, claimed) {
            return;
        }
        self.heat.note_capture(row);
        point!(self.hooks, WriterCopies, row);
        if let Some(turn) = self.frames.take() {
            copies.copy(from, spare(turn.frame()));
            self.frames.hand_over(turn, row);
        } else if mutated!(self.hooks, EpochNoHelp) {
            self.helpers.count();
        } else {
            self.helpers.emit(copies, row, from);
        }
    }

    /// A cut that is taken back at once. Its code is mapped then: the first one would wait for the kernel, some 20 us.
    fn rehearse(&self, copies: &C) {
        self.cut(copies);
        self.claimed.store(false, Ordering::Relaxed);
        self.is_owed.store(false, Ordering::Relaxed);
    }

    /// What is left of a cut is for nobody any more. Writers may be at it.
    fn claim_all(&self) {
        self.bits.fill(
            Bits::words(self.cut_row_count.load(Ordering::Relaxed)),
            self.claimed.load(Ordering::Relaxed),
        );
    }
}

fn spare(frame: u32) -> Place {
    Place { copy: CopyId::SPARE, slot: frame }
}

/// One access phase.
struct Sweep<'s, C, I> {
    algorithm: &'s Epoch<C>,
    copies: &'s C,
    image: &'s mut I,
    claimed: bool,
    row_count: u32,
    put_count: u32,
    /// What writers hand over next.
    turn: Turn,
    /// Copied ahead, not yet put: rows and frames.
    ahead: VecDeque<(RowId, u32)>,
    /// Frames to copy ahead to.
    ahead_free: Vec<u32>,
}

/// Frames of writers that are given back at once.
const GIVE_BACK_FRAMES: u32 = 64;

/// Rows of the sweep between two looks at what writers have handed over.
const ROWS_BETWEEN_LOOKS: u32 = 64;

/// The part of the writers' frames that are left with them: who comes right behind a writer has to wait for each line, and
/// makes him wait for the next.
const LEFT_PART: u32 = 4;

impl<C: Copies, I: Image<C>> Sweep<'_, C, I> {
    /// Room for a row, if need be after all that is waiting for it.
    fn make_room(&mut self) -> Result<(), ImageError> {
        if self.image.has_room() {
            return Ok(());
        }
        // The frames that are empty by now are what writers need while this thread waits.
        self.algorithm.frames.give_back(self.turn);
        self.image.drain()
    }

    fn put_frame(&mut self, row: RowId, frame: u32) -> Result<(), ImageError> {
        self.make_room()?;
        self.image.put(self.copies, row, spare(frame))?;
        self.put_count += 1;
        Ok(())
    }

    /// Puts what is in frames, so that these become free: what writers captured, and then what was copied ahead.
    fn put_frames(&mut self) -> Result<(), ImageError> {
        self.algorithm.helpers.check()?;
        let mut put_count = 0;
        while let Some((row, next)) = self.algorithm.frames.handed_over(self.turn) {
            self.put_frame(row, self.turn.frame())?;
            self.turn = next;
            put_count += 1;
            if put_count % GIVE_BACK_FRAMES == 0 {
                self.algorithm.frames.give_back(self.turn);
            }
        }
        if put_count > 0 {
            self.algorithm.frames.give_back(self.turn);
        }
        while let Some(&(row, frame)) = self.ahead.front() {
            self.put_frame(row, frame)?;
            self.ahead.pop_front();
            self.ahead_free.push(frame);
        }
        Ok(())
    }

    /// Copies a row to a spare frame while the image is busy. False if there is no frame for that.
    fn copy_ahead(&mut self, row: RowId) -> bool {
        let Some(&frame) = self.ahead_free.last() else { return false };
        self.copies.copy(Place::of(row, CopyId::D), spare(frame));
        point!(self.algorithm.hooks, BackgroundCopied, row);
        if self.claim(row) {
            self.ahead_free.pop();
            self.ahead.push_back((row, frame));
        }
        true
    }

    /// Claims a row that has been copied. False if a writer was first, so that the copy may have what he wrote.
    #[inline]
    fn claim(&self, row: RowId) -> bool {
        // With the writer's: bytes that follow his claim are not copied without the claim being seen.
        fence(Ordering::Acquire);
        self.algorithm.bits.change(row, self.claimed)
    }

    /// After an error: what has been handed over by now is for nobody.
    fn give_back_rest(&mut self) {
        while let Some((_, next)) = self.algorithm.frames.handed_over(self.turn) {
            self.turn = next;
        }
        self.algorithm.frames.give_back(self.turn);
    }

    /// The sweep at one row.
    #[inline]
    fn sweep(&mut self, row: RowId) -> Result<(), ImageError> {
        while self.algorithm.bits.get(row) != self.claimed {
            if !self.image.has_room() {
                if self.image.is_busy() && self.copy_ahead(row) {
                    return Ok(());
                }
                self.make_room()?;
                self.put_frames()?;
                continue;
            }
            point!(self.algorithm.hooks, BackgroundCopies, row);
            self.image.put(self.copies, row, Place::of(row, CopyId::D))?;
            point!(self.algorithm.hooks, BackgroundCopied, row);
            if self.claim(row) || mutated!(self.algorithm.hooks, EpochNoValidation) {
                self.put_count += 1;
            } else {
                self.image.take_back();
            }
            return Ok(());
        }
        Ok(())
    }

    /// One round over the rows that are hot enough.
    fn sweep_round(&mut self, heat_min: u32) -> Result<(), ImageError> {
        let left_count = self.algorithm.frames.count() / LEFT_PART;
        for row in 0..self.row_count {
            if row % ROWS_BETWEEN_LOOKS == 0
                && self.algorithm.frames.taken_since(self.turn) > left_count
                && (self.ahead.is_empty() || self.image.has_room())
            {
                self.put_frames()?;
            }
            if heat_min == 0 {
                self.algorithm.heat.age(RowId(row));
            }
            if heat_min == 0 || self.algorithm.heat.of(RowId(row)) >= heat_min {
                self.sweep(RowId(row))?;
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), ImageError> {
        for &heat_min in self.algorithm.sweep_order.rounds() {
            self.sweep_round(heat_min)?;
        }
        point!(self.algorithm.hooks, SweepEnds, RowId(0));
        let mut backoff = Backoff::default();
        loop {
            self.put_frames()?;
            let done = self.put_count + self.algorithm.helpers.row_count();
            if done >= self.row_count || mutated!(self.algorithm.hooks, EpochEndsBeforeCaptured) {
                break;
            }
            // Every row is claimed: a writer is about to hand over the rest (H8).
            backoff.wait();
        }
        self.image.finish()
    }
}

impl<C: Copies> Algorithm<C> for Epoch<C> {
    const SECOND_COPIES: &'static [CopyId] = &[];
    const IS_INCREMENTAL: bool = false;
    const SEES_EACH_WRITE: bool = false;

    fn spare_frames(&self) -> u32 {
        self.frames.count() + self.ahead_frame_count
    }

    fn start(&self, copies: &C) {
        self.cut_row_count.store(copies.row_count(), Ordering::Relaxed);
        self.rehearse(copies);
    }

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, _: Change) -> CopyId {
        let claimed = self.claimed.load(Ordering::Relaxed);
        if self.bits.get(row) != claimed && row.0 < self.cut_row_count.load(Ordering::Relaxed) {
            self.capture(copies, row, claimed);
            // Before the row's bytes: who has copied any of those that follow finds the row claimed (H7).
            fence(Ordering::Release);
        }
        CopyId::D
    }

    #[inline(always)]
    fn live(&self, _: RowId) -> CopyId {
        CopyId::D
    }

    // Not inlined: what was rehearsed is what runs.
    #[inline(never)]
    fn cut(&self, copies: &C) {
        // What still waits belongs to a cut of which there will be no image.
        self.frames.give_back_all();
        if self.is_owed.swap(true, Ordering::Relaxed) {
            self.claim_all();
        }
        let (claimed, row_count) = (self.claimed.load(Ordering::Relaxed), copies.row_count());
        // Those that have come since the last cut are no different.
        let since = self.cut_row_count.swap(row_count, Ordering::Relaxed).min(row_count)..row_count;
        since.for_each(|row| self.bits.set(RowId(row), claimed));
        self.claimed.store(!claimed, Ordering::Relaxed);
        self.helpers.begin();
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let mut sweep = Sweep {
            algorithm: self,
            copies,
            image,
            claimed: self.claimed.load(Ordering::Relaxed),
            row_count: self.cut_row_count.load(Ordering::Relaxed),
            put_count: 0,
            turn: self.frames.first(),
            ahead: VecDeque::new(),
            ahead_free: (self.frames.count()..self.spare_frames()).collect(),
        };
        let result = sweep.run();
        if result.is_err() {
            self.claim_all();
        }
        sweep.give_back_rest();
        self.is_owed.store(false, Ordering::Relaxed);
        result
    }

    fn is_idle(&self) -> bool {
        let mut rows = (0..self.cut_row_count.load(Ordering::Relaxed)).map(RowId);
        let claimed = self.claimed.load(Ordering::Relaxed);
        rows.all(|row| self.bits.get(row) == claimed) && self.frames.are_free()
    }
}

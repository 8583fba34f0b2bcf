//! Epoch, ours: the cut raises a number and copies nothing. A row knows the last cut for which it has been claimed, and whether
//! it has been written since, in a word of two bytes: so the words of many rows stay in the caches.
//!
//! ```text
//!   a row of the running cut:
//!                  ┌── sweep: put, then exchange the word as it was before ──────────────────────▶ CLAIMED, emitted
//!   not claimed ───┤      (it was changed: take the row back)
//!                  ├── sweep, image is busy: copy to a spare frame, then exchange ──────────▶ CLAIMED, put later
//!                  └── writer: claim ─┬─ copy to a spare frame, hand it over ───────────────────▶ CLAIMED, put soon
//!                                     └─ no frame is free: give the row to the image itself ────▶ CLAIMED, emitted
//!   writer, then: say *written* in the word, modify D
//! ```
//!
//! The exchange is claim and validation in one: whoever modifies a row has changed its word before (H7). The budget is the number
//! of spare frames. They are recycled, so they stay populated. The sweep has a quarter of them to copy ahead, and the
//! hottest rows can go first: both spare writers their captures.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::backoff::Backoff;
use crate::frames::{Frames, Turn};
use crate::hooks::{mutate, mutated, point, Hooks};
use crate::image::{Help, Image, ImageError};
use crate::rows::{Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{fence, AtomicBool, AtomicU16, AtomicU32, AtomicU8, Ordering};

use super::helpers::Helpers;

/// In which order the sweep goes over the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SweepOrder {
    /// As they lie.
    #[default]
    Address,
    /// Rows that were written in most of the last eight epochs first, for writers are likely to come to them next.
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

/// A cut's number, of which a row's word has the lowest eight bits. Who holds one of 256 cuts ago for the present one would be
/// wrong: before that all words are brought up to date ([`STALE_CUTS_MAX`]).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tag(u8);

/// The word of a row: a tag (the lower byte), and in which of the eight epochs up to the one after that cut the row was written
/// (the upper, the last is the highest). With the present cut's tag the row is claimed; whoever writes it claims it too.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u16);

/// The part of the spare frames that the sweep has to copy ahead: one in so many.
const AHEAD_PART: u32 = 4;

/// Cuts in a row without a complete image, after which all words are brought up to date: the sweep of an image does that, too.
const STALE_CUTS_MAX: u32 = 200;

const WRITTEN: u16 = 1 << 15;

impl State {
    /// Rows that were there at the start: claimed for cut 0, which there is not.
    const INITIAL: State = State(0);

    #[inline(always)]
    fn tag(self) -> Tag {
        Tag(self.0 as u8)
    }

    /// Whether the row has been written since this cut, which is the last.
    #[inline(always)]
    fn is_written_since(self, cut: Tag) -> bool {
        self.0 & (WRITTEN | 0xff) == WRITTEN | u16::from(cut.0)
    }

    /// In which of the eight epochs up to the one after `cut` it was written.
    #[inline(always)]
    fn history(self, cut: Tag) -> u8 {
        let history = (self.0 >> 8) as u8;
        history.checked_shr(u32::from(cut.0.wrapping_sub(self.tag().0))).unwrap_or(0)
    }

    #[inline(always)]
    fn claim(self, cut: Tag) -> State {
        State(u16::from(self.history(cut)) << 8 | u16::from(cut.0))
    }

    /// Written in the epoch after `cut`.
    #[inline(always)]
    fn raise(self, cut: Tag) -> State {
        State(self.claim(cut).0 | WRITTEN)
    }

    /// In how many of the last eight epochs it was written.
    fn heat(self, cut: Tag) -> u32 {
        self.history(cut).count_ones()
    }
}

/// See the module.
pub struct Epoch<C> {
    states: Box<[AtomicU16]>,
    /// The last cut; the present epoch is the one after it.
    cut: AtomicU8,
    /// Cuts since there was a complete image.
    stale_cuts: AtomicU32,
    /// Whether writers are to keep rows for the cut: from the cut to the end of its access phase.
    is_streaming: AtomicBool,
    cut_row_count: AtomicU32,
    /// For writers.
    frames: Frames,
    /// For the sweep; the slots after those.
    ahead_frame_count: u32,
    helpers: Helpers<C>,
    sweep_order: SweepOrder,
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
            states: (0..row_count).map(|_| AtomicU16::new(State::INITIAL.0)).collect(),
            cut: AtomicU8::new(0),
            stale_cuts: AtomicU32::new(0),
            is_streaming: AtomicBool::new(false),
            cut_row_count: AtomicU32::new(0),
            frames: Frames::new(options.spare_frames - ahead_frame_count),
            ahead_frame_count,
            helpers: Helpers::new(options.help),
            sweep_order: options.sweep_order,
            hooks,
        }
    }

    #[inline(always)]
    fn state(&self, row: RowId) -> State {
        State(self.states[row.0 as usize].load(Ordering::Acquire))
    }

    /// Claims a row whose word is still this one.
    #[inline(always)]
    fn claim(&self, row: RowId, seen: State, cut: Tag) -> Result<State, State> {
        let (word, claimed) = (&self.states[row.0 as usize], seen.claim(cut));
        match word.compare_exchange(seen.0, claimed.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(claimed),
            Err(other) => Err(State(other)),
        }
    }

    /// The last cut.
    #[inline(always)]
    fn last_cut(&self) -> Tag {
        Tag(self.cut.load(Ordering::Relaxed))
    }

    /// The first modification of a row since the last cut. Nobody but the sweep, which claims, changes the row's word meanwhile.
    fn first_write(&self, copies: &C, row: RowId, cut: Tag, mut state: State) {
        if self.is_streaming.load(Ordering::Relaxed) && row.0 < self.cut_row_count.load(Ordering::Relaxed) {
            mutate!(self.hooks, EpochRaiseBeforeCapture => {
                let is_owed = state.tag() != cut;
                point!(self.hooks, WriterCopies, row);
                self.states[row.0 as usize].store(state.raise(cut).0, Ordering::Release);
                return if is_owed { self.capture(copies, row) };
            });
            while state.tag() != cut {
                match self.claim(row, state, cut) {
                    Ok(claimed) => {
                        state = claimed;
                        self.capture(copies, row);
                    }
                    Err(other) => state = other,
                }
            }
        }
        self.states[row.0 as usize].store(state.raise(cut).0, Ordering::Release);
        // Before the row's bytes: who has copied any of those that follow finds the word changed (H7).
        fence(Ordering::Release);
    }

    /// Brings words up to date while nobody writes, so that no tag is taken for one of 256 cuts later.
    fn refresh(&self, rows: Range<u32>, last: Tag) {
        for word in &self.states[rows.start as usize..rows.end as usize] {
            let state = State(word.load(Ordering::Relaxed));
            if state.tag() != last {
                word.store(state.claim(last).0, Ordering::Relaxed);
            }
        }
    }

    /// Keeps the content of a row that the caller, its writer, has claimed.
    fn capture(&self, copies: &C, row: RowId) {
        point!(self.hooks, WriterCopies, row);
        let from = Place::of(row, CopyId::D);
        if let Some(turn) = self.frames.take() {
            copies.copy(from, spare(turn.frame()));
            return self.frames.hand_over(turn, row);
        }
        match mutated!(self.hooks, EpochNoHelp) {
            true => self.helpers.count(),
            false => self.helpers.emit(copies, row, from),
        }
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
    cut: Tag,
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
    fn copy_ahead(&mut self, row: RowId, seen: State) -> bool {
        let Some(&frame) = self.ahead_free.last() else { return false };
        self.copies.copy(Place::of(row, CopyId::D), spare(frame));
        point!(self.algorithm.hooks, BackgroundCopied, row);
        fence(Ordering::Acquire);
        if self.algorithm.claim(row, seen, self.cut).is_ok() {
            self.ahead_free.pop();
            self.ahead.push_back((row, frame));
        }
        true
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
    fn sweep(&mut self, row: RowId, heat_min: u32) -> Result<(), ImageError> {
        loop {
            let seen = self.algorithm.state(row);
            if seen.tag() == self.cut {
                return Ok(());
            }
            if heat_min > 0 && seen.heat(self.cut) < heat_min {
                return Ok(());
            }
            if !self.image.has_room() {
                if self.image.is_busy() && self.copy_ahead(row, seen) {
                    return Ok(());
                }
                self.make_room()?;
                self.put_frames()?;
                continue;
            }
            point!(self.algorithm.hooks, BackgroundCopies, row);
            self.image.put(self.copies, row, Place::of(row, CopyId::D))?;
            point!(self.algorithm.hooks, BackgroundCopied, row);
            // With the writer's: bytes that follow its change of the word are not copied without the change being seen.
            fence(Ordering::Acquire);
            let is_valid = self.algorithm.claim(row, seen, self.cut).is_ok();
            if is_valid || mutated!(self.algorithm.hooks, EpochNoValidation) {
                self.put_count += 1;
            } else {
                self.image.take_back();
            }
            return Ok(());
        }
    }

    fn run(&mut self) -> Result<(), ImageError> {
        for &heat_min in self.algorithm.sweep_order.rounds() {
            for row in 0..self.row_count {
                if row % ROWS_BETWEEN_LOOKS == 0 && (self.ahead.is_empty() || self.image.has_room()) {
                    self.put_frames()?;
                }
                self.sweep(RowId(row), heat_min)?;
            }
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
    }

    #[inline]
    fn before_write(&self, copies: &C, row: RowId, _: Range<usize>) -> CopyId {
        let (cut, state) = (self.last_cut(), self.state(row));
        if !state.is_written_since(cut) {
            self.first_write(copies, row, cut, state);
        }
        CopyId::D
    }

    #[inline(always)]
    fn live(&self, _: RowId) -> CopyId {
        CopyId::D
    }

    fn cut(&self, copies: &C) {
        // What still waits belongs to a cut of which there will be no image.
        self.frames.give_back_all();
        let (last, row_count) = (self.last_cut(), copies.row_count());
        if self.stale_cuts.fetch_add(1, Ordering::Relaxed) == STALE_CUTS_MAX {
            self.stale_cuts.store(1, Ordering::Relaxed);
            self.refresh(0..row_count, last);
        } else {
            // No sweep has been at those that have come since.
            self.refresh(self.cut_row_count.load(Ordering::Relaxed).min(row_count)..row_count, last);
        }
        self.cut.store(last.0.wrapping_add(1), Ordering::Relaxed);
        self.cut_row_count.store(row_count, Ordering::Relaxed);
        self.helpers.begin();
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let mut sweep = Sweep {
            algorithm: self,
            copies,
            image,
            cut: self.last_cut(),
            row_count: self.cut_row_count.load(Ordering::Relaxed),
            put_count: 0,
            turn: self.frames.first(),
            ahead: VecDeque::new(),
            ahead_free: (self.frames.count()..self.spare_frames()).collect(),
        };
        let result = sweep.run();
        if result.is_ok() {
            self.stale_cuts.store(0, Ordering::Relaxed);
        }
        self.is_streaming.store(false, Ordering::Relaxed);
        sweep.give_back_rest();
        result
    }

    fn is_idle(&self) -> bool {
        !self.is_streaming.load(Ordering::Relaxed) && self.frames.are_free()
    }
}

//! Spare frames: a bounded, prefaulted, recycled stock of 4 KB buffers for before-images and for the sweep.
//!
//! ```text
//!   FREE ── take ──▶ HELD(1) ── share ──▶ HELD(n) ── release ──▶ HELD(n-1) … ──▶ FREE
//! ```
//! A frame has one writer (whoever took it) until it is shared; from then on it is read-only (invariant F1).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::budget::Budget;
use crate::sched::give_way;
use crate::space::{populate_idly, AnonMemory, MapError, Memory, VirtualArray, HUGE_PAGE_SIZE};
use crate::{PageBytes, PAGE_SIZE};

/// Frames that are populated in one step (2 MB).
const STEP_FRAMES: u32 = (HUGE_PAGE_SIZE / PAGE_SIZE) as u32;
/// Frames beyond the budget, for what a cut itself writes.
const RESERVE_FRAMES: u32 = 64;
/// The least that a stock's budget is.
const BUDGET_FRAMES_MIN: u64 = 64;

/// How many frames are to be populated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameWish {
    /// Between streams, so that no cut waits for its first frames.
    pub kept: u32,
    /// While a stream runs.
    pub stream: u32,
    /// The same, beyond those that have been handed out.
    pub ahead: u32,
}

impl FrameWish {
    /// Between streams (4 MB), and as which part of the data at most.
    const KEPT: u32 = 2 * STEP_FRAMES;
    const KEPT_PART: u64 = 64;
    /// While a stream runs, unless the data is smaller (16 MB).
    const STREAM: u32 = 8 * STEP_FRAMES;

    /// Of an algorithm that copies a page before its first write, if a cut needs it.
    pub fn for_before_images(data_pages: u64) -> FrameWish {
        FrameWish {
            kept: (data_pages / FrameWish::KEPT_PART).min(u64::from(FrameWish::KEPT)) as u32,
            stream: data_pages.min(u64::from(FrameWish::STREAM)) as u32,
            ahead: STEP_FRAMES,
        }
    }
}

/// A stock of frames. Frames that are held count against its budget, as does what else is held instead of copies.
pub struct FramePool {
    memory: AnonMemory,
    budget: Budget,
    frame_count: u32,
    /// References a frame; zero is free.
    references: VirtualArray<AtomicU32>,
    free: Mutex<FreeList>,
    /// Frames that take memory, as of the last change of `free`.
    resident_count: AtomicU64,
}

#[derive(Default)]
struct FreeList {
    recycled: Vec<u32>,
    /// Frames from here on have not been handed out since they were last discarded.
    fresh: u32,
    /// Frames below are populated.
    populated: u32,
    /// Whether somebody is at the next step of them. Nobody waits for that, it may take long (Y1).
    is_populating: bool,
    /// So many frames are to stay, and the others to be given back, when that is over.
    discard_due: Option<u32>,
}

impl FreeList {
    fn held_count(&self) -> u32 {
        self.fresh - self.recycled.len() as u32
    }

    fn resident_count(&self) -> u32 {
        self.populated.max(self.fresh)
    }
}

/// A frame that is being filled or read; released when the last reference goes.
pub struct Frame<'a> {
    pool: &'a FramePool,
    index: u32,
}

/// A reference to a frame that is kept in a table; must be given to [`FramePool::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is not released is lost"]
pub struct FrameId(u32);

impl FramePool {
    /// A stock of `byte_len / 4096` frames (at least 64) and a small reserve; takes no memory until it is used.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(byte_len: u64) -> Result<FramePool, MapError> {
        let budget_frames =
            (byte_len / PAGE_SIZE as u64).clamp(BUDGET_FRAMES_MIN, u64::from(u32::MAX / 2)) as u32;
        let frame_count = budget_frames + RESERVE_FRAMES;
        let byte_len = (frame_count as usize * PAGE_SIZE).next_multiple_of(HUGE_PAGE_SIZE);
        Ok(FramePool {
            memory: AnonMemory::new(byte_len)?,
            budget: Budget::new(u64::from(budget_frames)),
            frame_count,
            references: VirtualArray::new(frame_count as usize)?,
            free: Mutex::default(),
            resident_count: AtomicU64::new(0),
        })
    }

    /// Bounds what is held by `byte_len`, and by what the stock was made for.
    pub fn set_budget(&self, byte_len: u64) {
        let most = u64::from(self.frame_count - RESERVE_FRAMES);
        self.budget.set_limit_pages((byte_len / PAGE_SIZE as u64).clamp(BUDGET_FRAMES_MIN, most));
    }

    /// Frames that may ever be wanted at once: no more are populated.
    fn wanted_frames(&self) -> u32 {
        (self.budget.limit_pages() as u32 + RESERVE_FRAMES).min(self.frame_count)
    }

    /// Takes a free frame; `None` when the budget is used up.
    pub fn take(&self) -> Option<Frame<'_>> {
        self.budget.try_take().then(|| self.take_paid()).flatten()
    }

    /// Takes a free frame, beyond the budget if need be; `None` when the reserve is used up, too.
    pub fn take_reserved(&self) -> Option<Frame<'_>> {
        self.budget.take(1);
        self.budget.note_peak();
        self.take_paid()
    }

    /// A frame that the budget has been charged for.
    fn take_paid(&self) -> Option<Frame<'_>> {
        let mut free = self.free.lock();
        let index = match free.recycled.pop() {
            Some(index) => index,
            None if free.fresh < self.frame_count => {
                free.fresh += 1;
                self.note_resident(&free);
                free.fresh - 1
            }
            None => {
                self.budget.give(1);
                return None;
            }
        };
        drop(free);
        self.references.get(index as usize).store(1, Ordering::Relaxed);
        Some(Frame { pool: self, index })
    }

    /// Sees to it that a cut finds a few frames populated, if its stream is going to want some. Where some are kept it has
    /// nothing to do.
    pub fn prepare(&self, wish: &FrameWish) {
        if self.free.lock().populated == 0 && wish.stream > 0 {
            self.populate_step();
        }
    }

    /// Populates a little more unless the stream has what it should: so hardly any writer meets a first touch. For a
    /// thread that may wait for memory.
    pub fn top_up(&self, wish: &FrameWish) {
        let (fresh, populated) = {
            let free = self.free.lock();
            (free.fresh, free.populated)
        };
        if populated < wish.stream.max(fresh + wish.ahead) {
            self.populate_step();
        }
    }

    /// Populates a little of what is to be kept between streams, if it is not there yet.
    pub fn keep_ready(&self, wish: &FrameWish) {
        if self.free.lock().populated < self.kept_frames(wish) {
            self.populate_step();
        }
    }

    /// Whole steps of what is to be kept.
    fn kept_frames(&self, wish: &FrameWish) -> u32 {
        wish.kept.min(self.wanted_frames()) / STEP_FRAMES * STEP_FRAMES
    }

    /// Populates the next step of never-used frames, if there are any and nobody is at it.
    fn populate_step(&self) {
        let start = {
            let mut free = self.free.lock();
            if free.is_populating || free.populated >= self.wanted_frames() {
                return;
            }
            free.is_populating = true;
            free.populated
        };
        populate_idly(&self.memory, start as usize * PAGE_SIZE, HUGE_PAGE_SIZE);
        let mut free = self.free.lock();
        free.is_populating = false;
        free.populated = start + STEP_FRAMES;
        self.note_resident(&free);
        let due = free.discard_due.take();
        drop(free);
        if let Some(kept_frames) = due {
            self.discard_beyond(kept_frames);
        }
    }

    /// Gives the memory of all frames back, but for `kept` of them in whole steps, if none is held. Returns whether it did. While
    /// some are being populated, the thread that does that gives them back afterwards.
    pub fn discard_if_idle(&self, wish: &FrameWish) -> bool {
        self.discard_beyond(self.kept_frames(wish))
    }

    fn discard_beyond(&self, kept_frames: u32) -> bool {
        let (kept, touched) = {
            let mut free = self.free.lock();
            if free.held_count() != 0 {
                return false;
            }
            if free.is_populating {
                free.discard_due = Some(kept_frames);
                return false;
            }
            let touched = free.resident_count();
            *free = FreeList { populated: kept_frames.min(free.populated), ..FreeList::default() };
            self.note_resident(&free);
            (free.populated as usize * PAGE_SIZE, touched as usize * PAGE_SIZE)
        };
        // From the end and with the lock held for one step at a time: a writer may want frames again.
        for at in (kept..touched).step_by(HUGE_PAGE_SIZE).rev() {
            give_way();
            let free = self.free.lock();
            let populating = u32::from(free.is_populating) * STEP_FRAMES;
            if (free.resident_count() + populating) as usize * PAGE_SIZE <= at {
                self.memory.discard(at, HUGE_PAGE_SIZE);
            }
        }
        true
    }

    /// Another reference to a frame: it becomes read-only.
    pub fn share(&self, id: &FrameId) -> FrameId {
        self.references.get(id.0 as usize).fetch_add(1, Ordering::Relaxed);
        FrameId(id.0)
    }

    /// Turns a kept reference back into one that releases itself.
    pub fn adopt(&self, id: FrameId) -> Frame<'_> {
        Frame { pool: self, index: id.0 }
    }

    pub fn release(&self, id: FrameId) {
        drop(self.adopt(id));
    }

    fn bytes(&self, index: u32) -> &PageBytes {
        // SAFETY: F1: the caller holds a reference, so nobody but its taker writes, and only before sharing it.
        unsafe { &*self.address(index) }
    }

    fn address(&self, index: u32) -> *mut PageBytes {
        assert!(index < self.frame_count);
        // SAFETY: M1: the index is in range, so the frame lies in the mapping.
        unsafe { self.memory.base().as_ptr().add(index as usize * PAGE_SIZE).cast() }
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    fn note_resident(&self, free: &FreeList) {
        self.resident_count.store(u64::from(free.resident_count()), Ordering::Relaxed);
    }

    /// Frames that take memory now: held ones and spare ones.
    pub fn resident_count(&self) -> u64 {
        self.resident_count.load(Ordering::Relaxed)
    }
}

impl Frame<'_> {
    pub fn bytes(&self) -> &PageBytes {
        self.pool.bytes(self.index)
    }

    /// The frame's bytes, to be filled by whoever took it.
    pub fn bytes_mut(&mut self) -> &mut PageBytes {
        let references = self.pool.references.get(self.index as usize).load(Ordering::Relaxed);
        assert_eq!(references, 1, "F1: only a frame's taker writes it");
        // SAFETY: F1: one reference exists and it is borrowed mutably.
        unsafe { &mut *self.pool.address(self.index) }
    }

    /// Keeps the reference in a table.
    pub fn into_id(self) -> FrameId {
        let id = FrameId(self.index);
        std::mem::forget(self);
        id
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if self.pool.references.get(self.index as usize).fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut free = self.pool.free.lock();
            free.recycled.push(self.index);
            drop(free);
            self.pool.budget.give(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY_PAGES: u64 = 1 << 20;

    fn wish(data_pages: u64) -> FrameWish {
        FrameWish::for_before_images(data_pages)
    }

    fn pool() -> FramePool {
        FramePool::new(64 << 20).unwrap()
    }

    #[test]
    fn what_a_cut_needs_is_ready_before_it_is_asked_for() {
        let frames = pool();
        for _ in 0..10 {
            frames.keep_ready(&wish(MANY_PAGES));
        }
        assert_eq!(frames.resident_count(), u64::from(FrameWish::KEPT));
        frames.prepare(&wish(MANY_PAGES));
        assert_eq!(frames.resident_count(), u64::from(FrameWish::KEPT), "the cut waits for nothing");
        for step in 1..20 {
            frames.top_up(&wish(MANY_PAGES));
            let wanted = (FrameWish::KEPT + step * STEP_FRAMES).min(FrameWish::STREAM);
            assert_eq!(frames.resident_count(), u64::from(wanted), "a step at a time");
        }
        let held: Vec<_> = (0..FrameWish::STREAM).map(|_| frames.take().unwrap()).collect();
        frames.top_up(&wish(MANY_PAGES));
        assert_eq!(frames.resident_count(), u64::from(FrameWish::STREAM + STEP_FRAMES), "few are left");
        assert!(!frames.discard_if_idle(&wish(MANY_PAGES)));
        drop(held);
        assert!(frames.discard_if_idle(&wish(MANY_PAGES)));
        assert_eq!(frames.resident_count(), u64::from(FrameWish::KEPT));
        assert!(frames.take().is_some_and(|frame| frame.bytes().iter().all(|byte| *byte == 0)));
        assert!(frames.discard_if_idle(&wish(0)));
        assert_eq!(frames.resident_count(), 0);
    }

    #[test]
    fn what_is_kept_is_a_small_part_of_the_data() {
        let frames = pool();
        for data_pages in [0, 1, 1000, 10_000, 40_000, 70_000, MANY_PAGES] {
            (0..10).for_each(|_| frames.keep_ready(&wish(data_pages)));
            assert!(
                frames.resident_count()
                    <= (data_pages / FrameWish::KEPT_PART).min(u64::from(FrameWish::KEPT))
            );
        }
        let tiny = FramePool::new(1).unwrap();
        (0..10).for_each(|_| tiny.keep_ready(&wish(MANY_PAGES)));
        (0..10).for_each(|_| tiny.top_up(&wish(MANY_PAGES)));
        assert_eq!(tiny.resident_count(), u64::from(STEP_FRAMES), "no further than its memory");
    }

    #[test]
    fn a_stream_that_wants_no_frames_gets_none() {
        let frames = pool();
        let none = FrameWish { stream: 0, ahead: 0, ..wish(MANY_PAGES) };
        frames.prepare(&none);
        frames.top_up(&none);
        assert_eq!(frames.resident_count(), 0);
    }
}

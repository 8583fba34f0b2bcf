//! Spare frames: a bounded, prefaulted, recycled stock of 4 KB buffers for before-images and for the sweep.
//!
//! ```text
//!   FREE ── take ──▶ HELD(1) ── share ──▶ HELD(n) ── release ──▶ HELD(n-1) … ──▶ FREE
//! ```
//! A frame has one writer (whoever took it) until it is shared; from then on it is read-only (invariant F1).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::memory::{AnonMemory, Memory, VirtualArray, HUGE_PAGE_SIZE};
use crate::snapshot::Budget;
use crate::{PageBytes, PoolError, PAGE_SIZE};

/// Populated frames that should be left while a stream runs (2 MB).
const LOW_WATER_FRAMES: u32 = 512;
/// Frames beyond the budget, for what a cut itself writes.
const RESERVE_FRAMES: u32 = 64;

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
    /// [`PoolError::Map`].
    pub fn new(byte_len: u64) -> Result<FramePool, PoolError> {
        let budget_frames = (byte_len / PAGE_SIZE as u64).clamp(64, u64::from(u32::MAX / 2)) as u32;
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

    /// Populates the next `byte_len` bytes of never-used frames, so that no writer meets a first touch.
    pub fn prefault(&self, byte_len: usize) {
        let wanted = (byte_len / PAGE_SIZE).min(self.frame_count as usize) as u32;
        let start = self.free.lock().populated;
        for at in (start..wanted.max(start)).step_by(HUGE_PAGE_SIZE / PAGE_SIZE) {
            self.memory.populate(at as usize * PAGE_SIZE, HUGE_PAGE_SIZE);
            let mut free = self.free.lock();
            free.populated = at + (HUGE_PAGE_SIZE / PAGE_SIZE) as u32;
            self.note_resident(&free);
        }
    }

    /// Populates a little more if few populated frames are left. For a thread that may wait for memory.
    pub fn top_up(&self) {
        let (fresh, populated) = {
            let free = self.free.lock();
            (free.fresh, free.populated)
        };
        if fresh + LOW_WATER_FRAMES > populated && populated < self.frame_count {
            self.prefault((populated as usize) * PAGE_SIZE + HUGE_PAGE_SIZE);
        }
    }

    /// Gives the memory of all frames back, if none is held. Returns whether it did.
    pub fn discard_if_idle(&self) -> bool {
        let touched = {
            let mut free = self.free.lock();
            if free.held_count() != 0 {
                return false;
            }
            let touched = free.resident_count() as usize * PAGE_SIZE;
            *free = FreeList::default();
            self.note_resident(&free);
            touched
        };
        // From the end and with the lock held for one step at a time: a writer may want frames again.
        for at in (0..touched).step_by(HUGE_PAGE_SIZE).rev() {
            let free = self.free.lock();
            if free.resident_count() as usize * PAGE_SIZE <= at {
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

    /// Content of a frame.
    pub fn read(&self, id: &FrameId) -> &PageBytes {
        self.bytes(id.0)
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

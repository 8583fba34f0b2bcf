//! What the pool and its snapshot algorithms share: page memory, descriptors, the epoch, spare frames.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::epochs::PageEpochs;
use crate::frames::{Frame, FramePool};
use crate::latch::StateWord;
use crate::memory::{Memory, VirtualArray, ZeroInit};
use crate::metrics::PoolMetrics;
use crate::snapshot::{Extent, BATCH_PAGES};
use crate::{Layout, PageBytes, PageId, PoolError, PAGE_SIZE};

pub use crate::epochs::Epoch;

/// Side data of a page, 16 bytes. All zero is evicted or unallocated, content as of the durable checkpoint.
pub struct Descriptor {
    pub state: StateWord,
    pub epochs: PageEpochs,
}

// SAFETY: M3: atomics alone, each valid as zero.
unsafe impl ZeroInit for Descriptor {}

/// See the module.
pub struct Core {
    /// `memory`'s base (M1), kept here because every access needs it.
    base: NonNull<u8>,
    memory: Box<dyn Memory>,
    descriptors: VirtualArray<Descriptor>,
    /// Pages from here on belong to large objects, which give their memory back when they are freed.
    small_end: PageId,
    epoch: AtomicU32,
    /// Whether the barrier's action runs, and with it nobody else.
    is_cutting: AtomicBool,
    standstill_count: AtomicU64,
    pub frames: FramePool,
    /// Frames of the sweep, apart from the writers' (invariant F2: it always finds its batch).
    pub staging: FramePool,
    pub metrics: PoolMetrics,
}

// SAFETY: M1: the mapping may be used from any thread; the latches and epochs say who may touch which page.
unsafe impl Send for Core {}
// SAFETY: M1: as above.
unsafe impl Sync for Core {}

impl Core {
    /// # Errors
    /// [`PoolError::Map`].
    pub fn new(memory: Box<dyn Memory>, layout: Layout, snapshot_bytes: u64) -> Result<Core, PoolError> {
        let page_count = layout.page_count() as usize;
        assert!(page_count <= memory.byte_len() / PAGE_SIZE, "M1: memory for each page");
        Ok(Core {
            base: memory.base(),
            memory,
            descriptors: VirtualArray::new(page_count)?,
            small_end: PageId(layout.small_end),
            epoch: AtomicU32::new(1),
            is_cutting: AtomicBool::new(false),
            standstill_count: AtomicU64::new(0),
            frames: FramePool::new(snapshot_bytes)?,
            staging: FramePool::new(((BATCH_PAGES + 1) * PAGE_SIZE) as u64)?,
            metrics: PoolMetrics::default(),
        })
    }

    /// Backs the first `page_count` pages and their descriptors with huge pages: fewer TLB misses on every access.
    pub fn prefer_huge(&self, page_count: u32) {
        self.memory.prefer_huge(0, page_count as usize * PAGE_SIZE);
        self.descriptors.prefer_huge(page_count as usize);
    }

    /// Makes pages and their descriptors resident ahead of their first touch.
    pub fn populate(&self, start: PageId, page_count: u32) {
        let (start, count) = (start.0 as usize, page_count as usize);
        self.descriptors.populate(start, start + count);
        self.memory.populate(start * PAGE_SIZE, count * PAGE_SIZE);
    }

    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    #[inline(always)]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// Begins the next epoch; runs in the barrier. Returns the cut, or `None` if epochs are used up.
    pub fn cut(&self) -> Option<Epoch> {
        let cut = self.epoch();
        let next = cut.0.checked_add(1).filter(|&next| next < u32::MAX)?;
        self.epoch.store(next, Ordering::SeqCst);
        Some(cut)
    }

    /// Runs the barrier's action.
    pub fn cutting<R>(&self, action: impl FnOnce() -> R) -> R {
        self.is_cutting.store(true, Ordering::Relaxed);
        let result = action();
        self.is_cutting.store(false, Ordering::Relaxed);
        self.standstill_count.fetch_add(1, Ordering::Release);
        result
    }

    /// How often the barrier's action has run. Whoever runs as a member and reads the number knows that the members have
    /// all been between two commands since, once it is higher.
    pub fn standstill_count(&self) -> u64 {
        self.standstill_count.load(Ordering::Acquire)
    }

    /// Takes a frame for a before-image; `None` when the budget is used up. In the barrier nobody waits for the disk:
    /// what is written there finds a frame beyond the budget.
    pub fn take_frame(&self) -> Option<Frame<'_>> {
        let beyond =
            || self.is_cutting.load(Ordering::Relaxed).then(|| self.frames.take_reserved()).flatten();
        self.frames.take().or_else(beyond)
    }

    #[inline(always)]
    pub fn descriptor(&self, page: PageId) -> &Descriptor {
        self.descriptors.get(page.0 as usize)
    }

    /// The same for a page number that may have been made up by a damaged file.
    #[inline(always)]
    pub fn try_descriptor(&self, page: PageId) -> Option<&Descriptor> {
        self.descriptors.try_get(page.0 as usize)
    }

    pub fn descriptor_address(&self, page: PageId) -> *const Descriptor {
        self.descriptors.address(page.0 as usize)
    }

    /// Address of a page's bytes; dereferencing needs a latch (P1, P2), ownership (P3) or `copy_racy`.
    #[inline(always)]
    pub fn address(&self, page: PageId) -> *mut PageBytes {
        debug_assert!((page.0 as usize) < self.descriptors.len());
        self.base.as_ptr().wrapping_add(page.0 as usize * PAGE_SIZE).cast()
    }

    /// Copies a page that others may be writing. The copy means nothing until the caller has checked that the
    /// write epoch was not raised meanwhile ([`Core::copy_as_of`]).
    fn copy_racy(&self, page: PageId, into: &mut PageBytes) {
        assert!((page.0 as usize) < self.descriptors.len());
        // SAFETY: M1: the page lies in the mapping. P4: this is the one racy read; nobody interprets the bytes
        // before the validation that follows, and they are plain bytes for which every value is valid.
        unsafe { std::ptr::copy_nonoverlapping(self.address(page).cast_const(), into, 1) };
    }

    /// Copies a page's content if it was last written at or before `cut`. False if it has been, or is being,
    /// written since.
    pub fn copy_as_of(&self, page: PageId, cut: Epoch, into: &mut PageBytes) -> bool {
        self.descriptor(page).epochs.copy_as_of(cut, || self.copy_racy(page, into))
    }

    /// Whether a page lies in the small zone, where freed pages keep their content until they are trimmed.
    pub fn is_small(&self, page: PageId) -> bool {
        page < self.small_end
    }

    /// Gives the memory of a freed extent back, which reads as zero then. The caller owns the extent (M2).
    pub fn give_back(&self, extent: Extent) {
        let (start, count) = (extent.start.0 as usize, extent.page_count as usize);
        self.memory.discard(start * PAGE_SIZE, count * PAGE_SIZE);
    }

    /// Bytes of a page that nobody can modify: latched by the caller, or freed and in quarantine (P3).
    ///
    /// # Safety
    /// The caller holds the page's latch for the lifetime of the result, or the page is in quarantine.
    pub unsafe fn stable_bytes(&self, page: PageId) -> &PageBytes {
        // SAFETY: M1: in the mapping; P3: the caller guarantees that nobody writes.
        unsafe { &*self.address(page) }
    }
}

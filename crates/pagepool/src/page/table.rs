//! Where pages and their descriptors are. Nobody else computes an address from a page's number.

use std::ptr::NonNull;

use super::epochs::{Epoch, PageEpochs};
use super::latch::{Mark, StateWord};
use crate::space::{Extent, Layout, MapError, Memory, VirtualArray, ZeroInit};
use crate::{PageBytes, PageId, PAGE_SIZE};

/// Side data of a page, 16 bytes. All zero is evicted or unallocated, content as of the durable checkpoint.
pub struct Descriptor {
    pub state: StateWord,
    pub epochs: PageEpochs,
}

impl Descriptor {
    /// Whether the page, if it was ever allocated, has not been freed since.
    pub fn is_in_use(&self) -> bool {
        self.epochs.freed().is_none()
    }
}

// SAFETY: M3: atomics alone, each valid as zero.
unsafe impl ZeroInit for Descriptor {}

/// The memory of all pages and their descriptors.
pub struct PageTable {
    /// `memory`'s base (M1), kept here because every access needs it.
    base: NonNull<u8>,
    memory: Box<dyn Memory>,
    descriptors: VirtualArray<Descriptor>,
    /// Pages from here on belong to large objects, which give their memory back when they are freed.
    small_end: PageId,
}

// SAFETY: M1: the mapping may be used from any thread; the latches and epochs say who may touch which page.
unsafe impl Send for PageTable {}
// SAFETY: M1: as above.
unsafe impl Sync for PageTable {}

impl PageTable {
    /// # Errors
    /// [`MapError`].
    pub fn new(memory: Box<dyn Memory>, layout: Layout) -> Result<PageTable, MapError> {
        let page_count = layout.page_count() as usize;
        assert!(page_count <= memory.byte_len() / PAGE_SIZE, "M1: memory for each page");
        Ok(PageTable {
            base: memory.base(),
            memory,
            descriptors: VirtualArray::new(page_count)?,
            small_end: PageId(layout.small_end),
        })
    }

    /// Pages that there is memory for.
    pub fn page_limit(&self) -> u32 {
        (self.memory.byte_len() / PAGE_SIZE) as u32
    }

    /// Backs the first `page_count` pages and their descriptors with huge pages: fewer TLB misses on every access.
    pub fn prefer_huge(&self, page_count: u32) {
        self.memory.prefer_huge(0, page_count as usize * PAGE_SIZE);
        self.descriptors.prefer_huge(page_count as usize);
    }

    /// Makes pages and their descriptors resident ahead of their first touch.
    pub fn populate(&self, start: PageId, page_count: u32) {
        self.descriptors.populate(start.0 as usize, start.0 as usize + page_count as usize);
        self.populate_content(start, page_count);
    }

    /// Makes the content of pages resident ahead of its first touch.
    pub fn populate_content(&self, start: PageId, page_count: u32) {
        self.memory.populate(start.0 as usize * PAGE_SIZE, page_count as usize * PAGE_SIZE);
    }

    /// Whether a page is in memory; one that is still being read is not, one that is latched is.
    #[inline]
    pub fn is_resident(&self, page: PageId) -> bool {
        self.try_descriptor(page).is_some_and(|descriptor| descriptor.state.is_resident())
    }

    /// The same, and this is an access, after which the page stays in memory until its thread, a member of the barrier, has
    /// been between two commands (R3).
    #[inline]
    pub fn touch(&self, page: PageId) -> bool {
        self.try_descriptor(page).is_some_and(|descriptor| descriptor.state.touch())
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

    /// Address of a byte of a page.
    #[inline(always)]
    pub fn byte_address(&self, page: PageId, offset: usize) -> *mut u8 {
        self.address(page).cast::<u8>().wrapping_add(offset)
    }

    /// Copies a page that others may be writing. The copy means nothing until the caller has checked that the
    /// write epoch was not raised meanwhile ([`PageTable::copy_as_of`]).
    fn copy_racy(&self, page: PageId, into: &mut PageBytes) {
        assert!((page.0 as usize) < self.descriptors.len());
        // SAFETY: M1: the page lies in the mapping. P4: this is the one racy read; nobody interprets the bytes
        // before the validation that follows, and they are plain bytes for which every value is valid.
        unsafe { std::ptr::copy_nonoverlapping(self.address(page).cast_const(), into, 1) };
    }

    /// Copies bytes of a page that others may be writing. Nothing in the copy is to be believed (P10).
    #[inline(always)]
    pub fn peek<const N: usize>(&self, page: PageId, offset: usize, into: &mut [u8; N]) {
        // More would be copied by a call of the library.
        const { assert!(N <= 128) };
        assert!((page.0 as usize) < self.descriptors.len() && offset + N <= PAGE_SIZE);
        let from = self.byte_address(page, offset).cast_const();
        // SAFETY: M1: the bytes lie in the mapping. P10: they are plain bytes for which every value is valid, copied once.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), N) };
        // Whoever looks twice sees the same.
        std::hint::black_box(into);
    }

    /// Copies the content of a page in memory if it was last written at or before `cut`. False if it has been, or is being,
    /// written since, or is not in memory throughout (P11): then it may be worth another try.
    pub fn copy_as_of(&self, page: PageId, cut: Epoch, into: &mut PageBytes) -> bool {
        let descriptor = self.descriptor(page);
        let Some(since) = descriptor.state.residence() else { return false };
        self.copy_kept_as_of(page, cut, into) && descriptor.state.is_still_resident(since)
    }

    /// The same of a page that has been freed and stays in its place (P3).
    pub fn copy_kept_as_of(&self, page: PageId, cut: Epoch, into: &mut PageBytes) -> bool {
        self.descriptor(page).epochs.copy_as_of(cut, || self.copy_racy(page, into))
    }

    /// Copies a page that nobody has touched since the clock met it. False if somebody has.
    pub fn copy_idle(&self, page: PageId, mark: Mark, into: &mut PageBytes) -> bool {
        self.copy_racy(page, into);
        self.descriptor(page).state.is_idle(mark)
    }

    /// Whether a page lies in the small zone, where freed pages keep their content until they are trimmed.
    pub fn is_small(&self, page: PageId) -> bool {
        page < self.small_end
    }

    /// Gives the memory of pages back, ascending, which the caller has claimed (M2).
    pub fn give_back_pages(&self, pages: &[PageId]) {
        let mut ranges: Vec<(usize, usize)> = Vec::with_capacity(pages.len());
        for page in pages {
            let start = page.0 as usize * PAGE_SIZE;
            match ranges.last_mut().filter(|(start_before, len)| start_before + *len == start) {
                Some((_, byte_len)) => *byte_len += PAGE_SIZE,
                None => ranges.push((start, PAGE_SIZE)),
            }
        }
        self.memory.discard_parts(&ranges);
    }

    /// From now on no huge page backs the content of pages: single ones are going to be given back.
    pub fn avoid_huge(&self) {
        self.memory.avoid_huge();
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

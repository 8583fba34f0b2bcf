//! Where pages and their descriptors are. Nobody else computes an address from a page's number.
//!
//! Either each page has an address of its own, and memory behind it while it is in memory. Or it lies in a frame of an arena
//! then, which its state word names.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::epochs::{Epoch, PageEpochs};
use super::latch::{Mark, Place, StateWord, FRAME_BITS};
use super::parking::relocated_and_wake;
use super::second::SecondWord;
use crate::exmap::Exmap;
use crate::space::{
    populate_idly, Arena, Extent, Layout, MapError, Memory, PoolBackend, VirtualArray, ZeroInit,
    HUGE_PAGE_SIZE,
};
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

/// Frames that become free with one look at the arena.
const GIVE_FRAMES: usize = 64;

// SAFETY: M3: an atomic integer of zero.
unsafe impl ZeroInit for SecondWord {}

/// The second places of all pages.
pub struct Seconds {
    pub(super) words: VirtualArray<SecondWord>,
    /// Frames that hold a second copy, or have held one that was let go.
    pub(super) frame_count: AtomicU64,
}

/// The memory of the pages' content.
enum Content {
    /// At a page's number.
    InPlace(Box<dyn Memory>),
    /// At the number of its frame.
    InFrames(Arena),
}

impl Seconds {
    fn of(words: VirtualArray<SecondWord>) -> Seconds {
        Seconds { words, frame_count: AtomicU64::new(0) }
    }
}

/// The memory of all pages and their descriptors.
pub struct PageTable {
    /// The base of `content` (M1), kept here because every access needs it, as is which of the two it is.
    base: NonNull<u8>,
    has_frames: bool,
    /// Whether pages without frames are given memory, or have it from the first touch on.
    is_given: bool,
    backend: PoolBackend,
    content: Content,
    descriptors: VirtualArray<Descriptor>,
    /// Where pages in frames may have two places.
    seconds: Option<Seconds>,
    /// Pages from here on belong to large objects, which give their memory back when they are freed.
    small_end: PageId,
}

// SAFETY: M1: the mapping may be used from any thread; the latches and epochs say who may touch which page.
unsafe impl Send for PageTable {}
// SAFETY: M1: as above.
unsafe impl Sync for PageTable {}

/// Keeps the compiler from choosing between two values without a branch: where a page's number says where it lies, its bytes are
/// then fetched beside its state word, which is foreseen, and not after it.
#[inline(always)]
fn stay_a_branch() {
    #[cfg(not(miri))]
    // SAFETY: M1: no instruction at all.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

impl PageTable {
    /// `has_seconds` if pages are to have two places in turn; that wants frames.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(
        memory: Box<dyn Memory>,
        layout: Layout,
        backend: PoolBackend,
        has_seconds: bool,
    ) -> Result<PageTable, MapError> {
        let page_count = layout.page_count() as usize;
        let places = 1 + u32::from(has_seconds);
        assert!(backend.memory_bytes(layout, places) <= memory.byte_len(), "M1: memory for each page");
        assert!(!has_seconds || backend == PoolBackend::Array, "M6: second places are frames");
        let (base, is_given) = (memory.base(), memory.is_given());
        let content = match backend {
            PoolBackend::Vmcache | PoolBackend::Exmap => Content::InPlace(memory),
            PoolBackend::Array => {
                let frame_count = memory.byte_len() / PAGE_SIZE;
                assert!(frame_count <= 1 << FRAME_BITS, "P14: a state word can name each frame");
                Content::InFrames(Arena::new(memory, layout.page_count()))
            }
        };
        Ok(PageTable {
            base,
            has_frames: backend == PoolBackend::Array,
            is_given,
            backend,
            content,
            descriptors: VirtualArray::new(page_count)?,
            seconds: has_seconds.then(|| VirtualArray::new(page_count)).transpose()?.map(Seconds::of),
            small_end: PageId(layout.small_end),
        })
    }

    /// How a page's number leads to its bytes.
    pub fn backend(&self) -> PoolBackend {
        self.backend
    }

    /// Pages that there may be.
    pub fn page_limit(&self) -> u32 {
        self.descriptors.len() as u32
    }

    /// The frames that pages lie in, if they do.
    pub fn arena(&self) -> Option<&Arena> {
        match &self.content {
            Content::InPlace(_) => None,
            Content::InFrames(arena) => Some(arena),
        }
    }

    /// The map that they lie in, if files are to be read by way of it.
    pub fn exmap(&self) -> Option<&Arc<Exmap>> {
        self.in_place()?.exmap()
    }

    /// The memory of pages each of which has an address of its own.
    fn in_place(&self) -> Option<&dyn Memory> {
        match &self.content {
            Content::InPlace(memory) => Some(&**memory),
            Content::InFrames(_) => None,
        }
    }

    /// Pages whose descriptors a huge page backs.
    pub const DESCRIPTOR_CHUNK_PAGES: u32 = (HUGE_PAGE_SIZE / std::mem::size_of::<Descriptor>()) as u32;

    /// Frames that get memory ahead of those who take them are to be backed with huge pages: fewer TLB misses on every access.
    pub fn prefer_huge_frames(&self) {
        self.arena().into_iter().for_each(Arena::prefer_huge);
    }

    /// Backs the descriptors of a chunk of pages with a huge page. Nobody else touches them meanwhile (M10).
    pub fn back_descriptors(&self, first: PageId) {
        let (start, end) = (first.0 as usize, first.0 as usize + Self::DESCRIPTOR_CHUNK_PAGES as usize);
        self.descriptors.prefer_huge(start, end);
        self.descriptors.populate(start, start + 1);
    }

    /// Has the system make a huge page of the descriptors of a chunk of pages when it comes to it: somebody may be using them.
    pub fn gather_descriptors(&self, first: PageId) {
        let (start, end) = (first.0 as usize, first.0 as usize + Self::DESCRIPTOR_CHUNK_PAGES as usize);
        // The first touch of all is one of 4 KB then.
        self.descriptors.populate(start, start + 1);
        self.descriptors.prefer_huge(start, end);
    }

    /// Makes descriptors of pages, and what has an address of its own of their content, resident ahead of their first touch.
    pub fn populate(&self, extent: Extent) {
        let start = extent.start.0 as usize;
        self.descriptors.populate(start, start + extent.page_count as usize);
        self.give_memory(extent);
        self.populate_content(extent);
    }

    /// Makes the content of pages resident ahead of its first touch, where it has an address of its own.
    pub fn populate_content(&self, extent: Extent) {
        let (start, count) = (extent.start.0 as usize, extent.page_count as usize);
        let memory = self.in_place().into_iter();
        memory.for_each(|memory| populate_idly(memory, start * PAGE_SIZE, count * PAGE_SIZE));
    }

    /// Has a huge page back a chunk of pages from its first touch on, which is the caller's: nobody else touches one of them
    /// meanwhile (M10).
    pub fn prefer_huge(&self, extent: Extent) {
        let (start, count) = (extent.start.0 as usize, extent.page_count as usize);
        let memory = self.in_place().into_iter();
        memory.for_each(|memory| memory.prefer_huge(start * PAGE_SIZE, count * PAGE_SIZE));
    }

    /// No huge page backs a chunk of pages that has no memory, at its next touch.
    pub fn refuse_huge(&self, extent: Extent) {
        let (start, count) = (extent.start.0 as usize, extent.page_count as usize);
        let memory = self.in_place().into_iter();
        memory.for_each(|memory| memory.refuse_huge(start * PAGE_SIZE, count * PAGE_SIZE));
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

    /// The same for a page number that may have been made up by a damaged file. Page 0 is none.
    #[inline(always)]
    pub fn try_descriptor(&self, page: PageId) -> Option<&Descriptor> {
        self.descriptors.try_get(page.0 as usize).filter(|_| page.0 != 0)
    }

    /// The same for a caller that asks for nothing but a page in memory. Page 0 never is one (M11), so its number is not
    /// asked for.
    #[inline(always)]
    pub fn find(&self, page: PageId) -> Option<&Descriptor> {
        self.descriptors.try_get(page.0 as usize)
    }

    pub fn descriptor_address(&self, page: PageId) -> *const Descriptor {
        self.descriptors.address(page.0 as usize)
    }

    /// Address of a page's bytes; dereferencing needs a latch (P1, P2) or ownership (P3).
    #[inline(always)]
    pub fn address(&self, page: PageId) -> *mut PageBytes {
        let index = if self.has_frames { self.descriptor(page).state.frame() } else { page.0 };
        debug_assert!((page.0 as usize) < self.descriptors.len() && index != 0);
        self.address_of(index)
    }

    /// The same of a page whose descriptor the caller has.
    #[inline(always)]
    pub fn address_by(&self, page: PageId, descriptor: &Descriptor) -> *mut PageBytes {
        debug_assert!(std::ptr::eq(descriptor, self.descriptor(page)) && page.0 != 0);
        if self.has_frames {
            let frame = descriptor.state.frame();
            debug_assert_ne!(frame, 0, "P14: a page in memory has a frame");
            stay_a_branch();
            self.address_of(frame)
        } else {
            self.address_of(page.0)
        }
    }

    /// The address of a page that lies, or lay, at this place.
    #[inline(always)]
    pub fn address_at(&self, page: PageId, place: Place) -> *mut PageBytes {
        if self.has_frames {
            stay_a_branch();
            self.address_of(place.frame())
        } else {
            self.address_of(page.0)
        }
    }

    #[inline(always)]
    pub(super) fn address_of(&self, index: u32) -> *mut PageBytes {
        self.base.as_ptr().wrapping_add(index as usize * PAGE_SIZE).cast()
    }

    /// Address of a byte of a page, of which that of [`PageTable::address`] holds.
    #[inline(always)]
    pub fn byte_address(&self, page: PageId, offset: usize) -> *mut u8 {
        self.address(page).cast::<u8>().wrapping_add(offset)
    }

    /// Address of a byte from the start of a page on, for prefetching alone; of a page in a frame that is not in memory, or
    /// does not exist, some other.
    #[inline(always)]
    pub fn hint_address(&self, page: PageId, offset: usize) -> *const u8 {
        let (mut index, mut offset) = (page.0, offset);
        if self.has_frames {
            index = index.wrapping_add((offset / PAGE_SIZE) as u32);
            offset %= PAGE_SIZE;
            index = self.try_descriptor(PageId(index)).map_or(0, |descriptor| descriptor.state.frame());
        }
        self.address_of(index).cast::<u8>().wrapping_add(offset)
    }

    /// Gives a page a frame, if it is to lie in one, or memory, if it has to be given that. The caller has made it MOVING or
    /// EXCLUSIVE, and it has none.
    #[inline]
    pub fn give_frame(&self, page: PageId) {
        if let Content::InFrames(arena) = &self.content {
            self.descriptor(page).state.set_frame(arena.take());
        } else if self.is_given {
            self.give_memory(Extent { start: page, page_count: 1 });
        }
    }

    /// Gives memory to pages that have to be given it, all of them at once. The caller owns them (M2).
    pub fn give_memory(&self, extent: Extent) {
        if let Content::InPlace(memory) = &self.content {
            memory.give(&[(extent.start.0 as usize * PAGE_SIZE, extent.page_count as usize * PAGE_SIZE)]);
        }
    }

    /// Takes their second places away from pages that the caller has made MOVING, or that have been freed and retired.
    fn drop_seconds(&self, pages: impl Iterator<Item = PageId>) {
        let Some(seconds) = self.seconds() else { return };
        let let_go = |page: PageId| seconds.words.get(page.0 as usize).let_go(None);
        let dropped: Vec<u32> = pages.filter_map(let_go).collect();
        self.give_seconds(&dropped);
    }

    /// Frames become free that were let go as second places.
    pub fn give_seconds(&self, frames: &[u32]) {
        let Some((arena, seconds)) = self.arena().zip(self.seconds()) else { return };
        seconds.frame_count.fetch_sub(frames.len() as u64, Ordering::Relaxed);
        frames.chunks(GIVE_FRAMES).for_each(|part| arena.give(part.iter().copied()));
    }

    /// Takes their frames away from pages that the caller has made MOVING, or that have been freed and retired.
    fn take_frames(&self, arena: &Arena, pages: impl Iterator<Item = PageId> + Clone) {
        self.drop_seconds(pages.clone());
        let mut pages = pages.peekable();
        // A few at a time: others wait for the arena's lock.
        while pages.peek().is_some() {
            let mut frames = [0; GIVE_FRAMES];
            let group = pages.by_ref().take(GIVE_FRAMES);
            frames
                .iter_mut()
                .zip(group)
                .for_each(|(frame, page)| *frame = self.descriptor(page).state.take_frame());
            arena.give(frames.into_iter().filter(|&frame| frame != 0));
        }
    }

    /// Second places, if pages have any.
    pub(super) fn seconds(&self) -> Option<&Seconds> {
        self.seconds.as_ref()
    }

    /// The same of one page that could not be read.
    pub fn drop_frame(&self, page: PageId) {
        self.arena().into_iter().for_each(|arena| self.take_frames(arena, std::iter::once(page)));
    }

    /// Moves the bytes of a page to another frame, unless it has been touched since it was marked, which was before each
    /// member of the barrier was last between two commands (R6).
    pub fn relocate(&self, page: PageId, mark: Mark) -> bool {
        let Some(arena) = self.arena() else { return false };
        let state = &self.descriptor(page).state;
        if !state.begin_relocation(mark) {
            return false;
        }
        let (from, to) = (mark.place().frame(), arena.take());
        // SAFETY: M1: both are frames of the mapping. M4: nobody else has the new one. R6: nobody writes the page.
        unsafe { std::ptr::copy_nonoverlapping(self.address_of(from).cast_const(), self.address_of(to), 1) };
        relocated_and_wake(state, to);
        arena.give(std::iter::once(from));
        true
    }

    /// Copies a page that others may be writing from where it lies. The copy means nothing until the caller has checked that
    /// it was there throughout (P13), and that the write epoch was not raised meanwhile ([`PageTable::copy_as_of`]).
    pub(super) fn copy_racy(&self, page: PageId, place: Place, into: &mut PageBytes) {
        assert!((page.0 as usize) < self.descriptors.len());
        // SAFETY: M1: the page, or the frame, lies in the mapping. P4: this is the one racy read; nobody interprets the
        // bytes before the validation that follows, and they are plain bytes for which every value is valid.
        unsafe { std::ptr::copy_nonoverlapping(self.address_at(page, place).cast_const(), into, 1) };
    }

    /// Copies bytes of a page that others may be writing. Nothing in the copy is to be believed (P10). False if the page is
    /// not in memory.
    #[inline(always)]
    pub fn peek<const N: usize>(&self, page: PageId, offset: usize, into: &mut [u8; N]) -> bool {
        let place = self.try_descriptor(page).and_then(|descriptor| descriptor.state.residence());
        place.map(|place| self.peek_at(page, place, offset, into)).is_some()
    }

    /// The same of a page that lies, or lay, at this place.
    #[inline(always)]
    pub fn peek_at<const N: usize>(&self, page: PageId, place: Place, offset: usize, into: &mut [u8; N]) {
        // More would be copied by a call of the library.
        const { assert!(N <= 128) };
        assert!((page.0 as usize) < self.descriptors.len() && offset + N <= PAGE_SIZE);
        let from = self.address_at(page, place).cast::<u8>().wrapping_add(offset).cast_const();
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
        descriptor.epochs.copy_as_of(cut, || self.copy_racy(page, since, into))
            && descriptor.state.is_still_resident(since)
    }

    /// The same of a page that has been freed and stays in its place (P3); false also if it does not.
    pub fn copy_kept_as_of(&self, page: PageId, cut: Epoch, into: &mut PageBytes) -> bool {
        let descriptor = self.descriptor(page);
        let since = descriptor.state.place();
        !self.has_lost(since)
            && descriptor.epochs.copy_as_of(cut, || self.copy_racy(page, since, into))
            && descriptor.state.is_still_at(since)
    }

    /// Whether a page that has been freed was not in memory then, or has been let go.
    pub fn is_let_go(&self, page: PageId) -> bool {
        self.has_lost(self.descriptor(page).state.place())
    }

    pub(super) fn has_lost(&self, place: Place) -> bool {
        self.has_frames && place.frame() == 0
    }

    /// Copies a page that nobody has touched since the clock met it. False if somebody has.
    pub fn copy_idle(&self, page: PageId, mark: Mark, into: &mut PageBytes) -> bool {
        self.copy_racy(page, mark.place(), into);
        self.descriptor(page).state.is_idle(mark)
    }

    /// Whether a page lies in the small zone, where freed pages keep their content until they are trimmed.
    pub fn is_small(&self, page: PageId) -> bool {
        page < self.small_end
    }

    /// Whether objects of this page's zone begin with content that reads as zero.
    pub fn begins_as_zero(&self, page: PageId) -> bool {
        !self.has_frames && !self.is_given && !self.is_small(page)
    }

    /// Gives the memory of pages back, ascending, which the caller has claimed (M2).
    pub fn give_back_pages(&self, pages: &[PageId]) {
        let memory = match &self.content {
            Content::InPlace(memory) => memory,
            Content::InFrames(arena) => return self.take_frames(arena, pages.iter().copied()),
        };
        let mut ranges: Vec<(usize, usize)> = Vec::with_capacity(pages.len());
        for page in pages {
            let start = page.0 as usize * PAGE_SIZE;
            match ranges.last_mut().filter(|(start_before, len)| start_before + *len == start) {
                Some((_, byte_len)) => *byte_len += PAGE_SIZE,
                None => ranges.push((start, PAGE_SIZE)),
            }
        }
        memory.discard_parts(&ranges);
    }

    /// From now on no huge page backs what has an address of its own: single ones are going to be given back.
    pub fn avoid_huge(&self) {
        self.in_place().into_iter().for_each(Memory::avoid_huge);
    }

    /// Gives the memory of a freed extent back; if it is at an address of its own, that reads as zero then. The caller owns
    /// the extent (M2).
    pub fn give_back(&self, extent: Extent) {
        match &self.content {
            Content::InPlace(memory) => {
                let (start, count) = (extent.start.0 as usize, extent.page_count as usize);
                memory.discard(start * PAGE_SIZE, count * PAGE_SIZE);
            }
            Content::InFrames(arena) => self.take_frames(arena, extent.pages()),
        }
    }

    /// The same where free pages of the extent's zone keep no memory.
    pub fn let_go(&self, extent: Extent) {
        if self.has_frames {
            self.give_back(extent);
        }
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

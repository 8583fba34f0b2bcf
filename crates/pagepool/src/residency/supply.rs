//! Where pages come from and where freed ones go: numbers, memory, and what still stands in the way of using them again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::room::Room;
use super::stock::{Stock, StockOptions, HUGE_EXTENT_PAGES};
use crate::page::{evict_and_wake, unlock_and_wake, Epoch};
use crate::pagefile::PageFile;
use crate::snapshot::{Core, Snapshotter};
use crate::space::{Allocator, Extent, Layout, CHUNK_PAGES};
use crate::{PageId, PoolError};

/// Extents let go by snapshots that an allocation takes back at once, so that it does not pay for all of them.
const TAKE_BACK_EXTENTS: usize = 64;
/// Between two looks whether frees that loaders hold up are over.
const SETTLE_PAUSE: Duration = Duration::from_micros(200);

/// Freed pages that a thread may still be reading optimistically.
///
/// ```text
///   freed ──▶ LINGERS ── the barrier has run, or each member has been between two commands ──▶ goes on as any freed page
/// ```
#[derive(Default)]
struct Lingering {
    /// In the order in which they were freed; how often the barrier had run then.
    pages: VecDeque<(PageId, u64)>,
    /// Pages that were in the queue before its first one, since the start.
    gone_count: u64,
    /// Nobody reads those before this one any more, counted in the same way.
    read_end: u64,
}

impl Lingering {
    /// Takes those that nobody reads, now that the barrier has run `standstill_count` times.
    fn take(&mut self, standstill_count: u64) -> Vec<PageId> {
        let by_turns = self.read_end.saturating_sub(self.gone_count) as usize;
        let still_read = |&(_, freed_at): &(PageId, u64)| freed_at >= standstill_count;
        let by_barrier = self.pages.iter().position(still_read).unwrap_or(self.pages.len());
        let count = by_barrier.max(by_turns).min(self.pages.len());
        self.gone_count += count as u64;
        self.pages.drain(..count).map(|(page, _)| page).collect()
    }
}

/// Pages that are not in use.
pub struct Supply {
    core: Arc<Core>,
    snapshotter: Arc<dyn Snapshotter>,
    allocator: Arc<Mutex<Allocator>>,
    room: Arc<Room>,
    /// Where pages lie that are not in memory.
    file: Option<Arc<PageFile>>,
    stock: Stock,
    layout: Layout,
    lingering: Mutex<Lingering>,
    any_lingering: AtomicBool,
    /// The listener that is told of nodes that have been freed.
    nodes_listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Objects that were freed while a loader read into one of their pages.
    deferred_frees: Mutex<Vec<Extent>>,
    any_deferred: AtomicBool,
    /// Threads that have taken frees from one of the two and are not done with them.
    finishing: AtomicUsize,
}

impl Supply {
    /// Of a pool that uses no page yet.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(
        core: Arc<Core>,
        snapshotter: Arc<dyn Snapshotter>,
        layout: Layout,
        how: StockOptions,
        room: Arc<Room>,
        file: Option<Arc<PageFile>>,
    ) -> Result<Supply, PoolError> {
        let allocator = Arc::new(Mutex::new(Allocator::new(layout)));
        let stock = Stock::start(core.clone(), snapshotter.clone(), allocator.clone(), how, room.clone())?;
        Ok(Supply {
            core,
            snapshotter,
            allocator,
            room,
            file,
            stock,
            layout,
            lingering: Mutex::default(),
            any_lingering: AtomicBool::new(false),
            nodes_listener: OnceLock::new(),
            deferred_frees: Mutex::default(),
            any_deferred: AtomicBool::new(false),
            finishing: AtomicUsize::new(0),
        })
    }

    /// These runs of pages, ascending, are in use and not in memory, and everything else is free. False if the
    /// snapshot algorithm does not serve as many.
    #[must_use]
    pub fn adopt(&self, runs: Vec<(PageId, u32)>) -> bool {
        let is_admitted =
            |&(start, page_count): &(PageId, u32)| self.snapshotter.admit(Extent { start, page_count });
        if !runs.iter().all(is_admitted) {
            return false;
        }
        for (_, page_count) in &runs {
            self.room.note_absent(u64::from(*page_count));
            self.room.note_allocated(*page_count);
        }
        let mut allocator = self.allocator.lock();
        allocator.adopt(runs.into_iter());
        self.stock.note_adopted(&mut allocator);
        true
    }

    /// Gives memory to all pages from `first` on that an address of its own each has, `page_count` of them, which are about to be
    /// loaded. Huge pages back those chunks of which each page is the caller's, as `is_callers` says, or free (M10).
    pub fn populate_for_load(&self, first: PageId, page_count: u32, is_callers: impl Fn(PageId) -> bool) {
        let extent = Extent { start: first, page_count };
        let mut taken = Vec::new();
        for chunk in first.0.div_ceil(CHUNK_PAGES)..(first.0 + page_count) / CHUNK_PAGES {
            let pages = Extent { start: PageId(chunk * CHUNK_PAGES), page_count: CHUNK_PAGES };
            if !self.core.pages.is_small(pages.start) {
                break;
            }
            let Some(empty) = self.stock.take_empty_in(chunk) else { break };
            let mut others = pages.pages().filter(|page| !is_callers(*page));
            if others.all(|page| empty.iter().any(|pages| pages.contains(&page.0))) {
                self.core.pages.prefer_huge(pages);
            }
            taken.extend(empty);
        }
        self.core.pages.populate_content(extent);
        self.stock.give_ready(taken);
    }

    /// The id ranges that have ever been in use, `[start, end)`.
    pub fn used_ranges(&self) -> Vec<(u32, u32)> {
        self.allocator.lock().used_ranges()
    }

    /// Pages in use.
    #[inline]
    pub fn allocated_pages(&self) -> u64 {
        self.room.allocated_pages()
    }

    /// As of [`Allocator::block_at`].
    pub fn block_at(&self, page: PageId) -> (PageId, u32) {
        self.allocator.lock().block_at(page)
    }

    /// Takes an object's pages, the first of them latched exclusively.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`].
    pub fn take(&self, page_count: u32, reserve_count: u32) -> Result<PageId, PoolError> {
        self.finish_deferred_frees();
        self.snapshotter.relieve(&self.core, page_count);
        self.take_back();
        let start = self.take_ids(page_count, reserve_count).or_else(|| {
            // Perhaps there are some whose memory is still to be given back.
            self.take_back_released();
            self.stock.discard_all();
            self.take_ids(page_count, reserve_count)
        });
        let start = start.ok_or(PoolError::Exhausted { page_count })?;
        self.room.note_allocated(page_count);
        self.core.pages.give_memory(Extent { start, page_count });
        self.bring_to_life(start, true);
        for index in 1..page_count {
            self.bring_to_life(PageId(start.0 + index), false);
        }
        Ok(start)
    }

    fn take_ids(&self, page_count: u32, reserve_count: u32) -> Option<PageId> {
        let mut allocator = self.allocator.lock();
        let start = allocator.allocate(page_count, reserve_count);
        self.stock.note_used(&mut allocator);
        let start = start?;
        if !self.snapshotter.admit(Extent { start, page_count }) {
            allocator.free(start, page_count);
            return None;
        }
        Some(start)
    }

    /// Gives a free page its descriptor; `latched` leaves it exclusive.
    fn bring_to_life(&self, page: PageId, latched: bool) {
        debug_assert_ne!(page.0, 0, "M11: no page has the number 0");
        let descriptor = self.core.pages.descriptor(page);
        if let Some(freed) = descriptor.epochs.freed() {
            self.snapshotter.before_reuse(&self.core, page, freed);
        }
        // A loader that found the page in the map of the last start may have it until it sees that it was freed.
        while !descriptor.state.begin_life() {
            std::thread::yield_now();
        }
        self.core.pages.give_frame(page);
        descriptor.epochs.set_written(self.core.epoch());
        self.snapshotter.begin_life(&self.core, page);
        descriptor.epochs.set_in_use();
        if !latched {
            unlock_and_wake(&descriptor.state);
        }
    }

    /// Pages to which an object of `page_count` pages can grow in place.
    pub fn capacity(&self, object: PageId, page_count: u32) -> u32 {
        self.allocator.lock().capacity(object, page_count)
    }

    /// Grows an object in place; false if its block is too small.
    pub fn extend(&self, start: PageId, old_count: u32, new_count: u32) -> bool {
        let grown = Extent { start, page_count: new_count };
        let mut new_pages = grown.pages().skip(old_count as usize);
        let has_room = new_count <= self.capacity(start, old_count) && self.layout.has_place_for(grown);
        // Unless the count has been made up, nobody has the new ones.
        if !has_room || new_pages.any(|page| self.is_in_use(page)) || !self.snapshotter.admit(grown) {
            return false;
        }
        let (first_new, new_pages) = (PageId(start.0 + old_count), new_count - old_count);
        self.core.pages.give_memory(Extent { start: first_new, page_count: new_pages });
        for index in old_count..new_count {
            self.bring_to_life(PageId(start.0 + index), false);
        }
        self.room.note_allocated(new_count - old_count);
        true
    }

    /// Whether a page is in use: in memory or on its way, or known to the page file.
    fn is_in_use(&self, page: PageId) -> bool {
        let descriptor = self.core.pages.descriptor(page);
        let is_in_file = || self.file.as_ref().is_some_and(|file| file.has_page(page));
        descriptor.is_in_use() && (!descriptor.state.is_evicted() || is_in_file())
    }

    /// Whether all of these pages are in use, and can be an object. What says so of others, a page that somebody has made up,
    /// is not to be believed.
    pub fn may_be_freed(&self, extent: Extent) -> bool {
        self.layout.has_place_for(extent) && extent.pages().all(|page| self.is_in_use(page))
    }

    /// Marks an extent that may be freed: whoever looks at its descriptors from now on knows. False if somebody else frees
    /// some of it at this moment: what is not his is lost until the next start.
    #[must_use]
    pub fn mark_freed(&self, extent: Extent) -> bool {
        let epoch = self.core.epoch();
        let is_whole = extent.pages().all(|page| self.core.pages.descriptor(page).epochs.set_freed(epoch));
        if is_whole {
            self.room.note_freed(extent.page_count);
        }
        is_whole
    }

    /// A latched page that is marked as freed is not in memory any more for those who look for it.
    pub fn let_go_of(&self, page: PageId) {
        self.room.note_absent(1);
        evict_and_wake(&self.core.pages.descriptor(page).state);
    }

    /// Lets an extent go that is marked as freed, unless a cut needs it. Its memory is not given back, nor its pages
    /// used again, while one of them is on its way in or out (M2): then that is put off.
    pub fn finish_free(&self, extent: Extent) {
        // Nobody waits for what is in the way: a loader, the evictor, or for a moment the latch of a stale hint.
        let retired = extent.pages().filter(|&page| self.retire(page)).count();
        if retired < extent.page_count as usize {
            return self.defer_free(extent);
        }
        self.room.note_present(u64::from(extent.page_count));
        if self.snapshotter.keep_freed(&self.core, extent) {
            return;
        }
        if !self.core.pages.is_small(extent.start) && extent.page_count < HUGE_EXTENT_PAGES {
            self.forget(extent);
            self.core.pages.give_back(extent);
            return self.allocator.lock().free(extent.start, extent.page_count);
        }
        self.recycle(extent);
    }

    /// Takes a freed page out of memory for those who look for it. False while it is on its way in or out.
    fn retire(&self, page: PageId) -> bool {
        let descriptor = self.core.pages.descriptor(page);
        match descriptor.state.retire() {
            Some(true) => self.room.note_absent(1),
            // If it has been retired before and is clean, both places have the content.
            Some(false) if self.file.is_some() && self.core.is_clean(page) => descriptor.epochs.set_in_file(),
            Some(false) => {}
            None => return false,
        }
        true
    }

    /// Nobody needs what these pages hold in the page file, but for checkpoints.
    fn forget(&self, extent: Extent) {
        if let Some(file) = &self.file {
            extent.pages().for_each(|page| file.forget_location(page));
        }
    }

    /// Puts off the rest of a free until loaders have let go of the extent.
    fn defer_free(&self, extent: Extent) {
        self.deferred_frees.lock().push(extent);
        self.any_deferred.store(true, Ordering::Release);
    }

    /// Goes on with frees that loaders held up.
    #[inline]
    pub fn finish_deferred_frees(&self) {
        if self.any_deferred.load(Ordering::Acquire) {
            self.finish(|| self.take_deferred_frees());
        }
    }

    /// Goes on with frees that were put off, which `take` takes from where they wait.
    fn finish(&self, take: impl FnOnce() -> Vec<Extent>) {
        // Before they are taken: who finds none of them waiting any more finds out that they are not over (R5).
        self.finishing.fetch_add(1, Ordering::SeqCst);
        take().into_iter().for_each(|extent| self.finish_free(extent));
        self.finishing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends all frees of the epochs up to `cut`, which lies behind (R5). Waits for loaders and the evictor; not to be called by
    /// them, nor by a running member of the barrier.
    pub fn settle_frees(&self, cut: Epoch) {
        loop {
            self.finish_deferred_frees();
            self.finish_lingering();
            if self.are_frees_over(cut) {
                return;
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
    }

    fn are_frees_over(&self, cut: Epoch) -> bool {
        let is_of_cut =
            |page: PageId| self.core.pages.descriptor(page).epochs.freed().is_some_and(|at| at <= cut);
        // Both at once: whoever has taken a free from one of them has counted itself before, and puts it off again, if it
        // has to, before it counts itself out. So it is seen here or there.
        let (deferred, lingering) = (self.deferred_frees.lock(), self.lingering.lock());
        self.finishing.load(Ordering::SeqCst) == 0
            && !deferred.iter().any(|extent| is_of_cut(extent.start))
            && !lingering.pages.iter().any(|&(page, _)| is_of_cut(page))
    }

    fn take_deferred_frees(&self) -> Vec<Extent> {
        let mut deferred = self.deferred_frees.lock();
        self.any_deferred.store(false, Ordering::Release);
        std::mem::take(&mut deferred)
    }

    /// Frees a latched page that is marked as freed, and is not used again before each member of the barrier has been
    /// between two commands. It takes memory until then.
    pub fn free_node(&self, page: PageId) {
        self.room.note_lingering();
        evict_and_wake(&self.core.pages.descriptor(page).state);
        let mut lingering = self.lingering.lock();
        lingering.pages.push_back((page, self.core.standstill_count()));
        let is_first = lingering.pages.len() == 1;
        self.any_lingering.store(true, Ordering::Relaxed);
        drop(lingering);
        if is_first {
            self.nodes_listener.get().into_iter().for_each(|listener| listener());
        }
    }

    pub fn set_nodes_listener(&self, listener: Box<dyn Fn() + Send + Sync>) {
        let _ = self.nodes_listener.set(listener);
    }

    pub fn has_lingering(&self) -> bool {
        self.any_lingering.load(Ordering::Relaxed)
    }

    /// What has been freed by now, for [`Supply::end_lingering`].
    pub fn lingering_end(&self) -> u64 {
        let lingering = self.lingering.lock();
        lingering.gone_count + lingering.pages.len() as u64
    }

    /// Nobody reads any more what had been freed when [`Supply::lingering_end`] said this.
    pub fn end_lingering(&self, end: u64) {
        let mut lingering = self.lingering.lock();
        lingering.read_end = lingering.read_end.max(end);
        drop(lingering);
        self.take_back_released();
    }

    /// Goes on with the frees of nodes that nobody reads any more.
    #[cold]
    fn finish_lingering(&self) {
        self.finish(|| {
            let mut lingering = self.lingering.lock();
            let pages = lingering.take(self.core.standstill_count());
            self.any_lingering.store(!lingering.pages.is_empty(), Ordering::Relaxed);
            self.room.note_lingered(pages.len() as u64);
            pages.into_iter().map(|start| Extent { start, page_count: 1 }).collect()
        });
    }

    /// Makes an extent that nobody needs available again; a large one once its memory has been given back.
    fn recycle(&self, extent: Extent) {
        self.forget(extent);
        if !self.core.pages.is_small(extent.start) {
            return self.stock.discard_later(extent);
        }
        self.core.pages.let_go(extent);
        let mut allocator = self.allocator.lock();
        allocator.free(extent.start, extent.page_count);
        self.stock.note_freed(&mut allocator);
    }

    /// Gives the memory of everything that is free back to the system.
    pub fn purge(&self) {
        self.take_back_released();
        self.stock.purge();
    }

    /// Makes extents that snapshots have let go available again.
    pub fn take_back_released(&self) {
        while self.take_back() == TAKE_BACK_EXTENTS {}
    }

    /// Returns to the allocator some of what snapshots have let go; how many extents.
    fn take_back(&self) -> usize {
        if self.any_lingering.load(Ordering::Relaxed) {
            self.finish_lingering();
        }
        self.stock.help();
        let released = self.snapshotter.take_released(&self.core, TAKE_BACK_EXTENTS);
        released.iter().for_each(|&extent| self.recycle(extent));
        released.len()
    }
}

//! The pool: page memory, who may touch it, and where pages come from.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::alloc::Allocator;
use crate::core::Core;
use crate::device::Device;
use crate::guard::{evict_and_wake, unlock_and_wake};
use crate::loader::Loading;
use crate::memory::{AnonMemory, Memory};
use crate::metrics::PoolMetrics;
use crate::pagefile::{NeededPages, OpenOptions, PageFile, Recovered};
use crate::snapshot::{EpochSnapshotter, Extent, ForkSnapshotter, NoSpill, SnapshotKind, Snapshotter, Spill};
use crate::stock::{Stock, HUGE_EXTENT_PAGES};
use crate::{
    Barrier, BarrierTimes, CheckpointError, Epoch, ExclusiveGuard, Layout, Member, OptimisticGuard, PageId,
    PoolError, Restart, SharedGuard, View, PAGE_SIZE,
};

/// Extents let go by snapshots that an allocation takes back at once, so that it does not pay for all of them.
const TAKE_BACK_EXTENTS: usize = 64;

/// Objects of up to so many pages are handed out with whatever content their pages had.
const SMALL_PAGES_MAX: u32 = 16;

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub layout: Layout,
    /// Back tree nodes and slabs with huge pages (`epoch` only: after a fork the first write would copy 2 MB).
    pub huge_pages: bool,
    pub snapshot_kind: SnapshotKind,
    /// Budget of snapshots: before-images, spare frames, freed pages that a cut needs.
    pub snapshot_memory_bytes: u64,
    /// Pages without which a checkpoint of the page file counts as damaged.
    pub needed_pages: NeededPages,
    /// The checkpoint of this generation may be served although a later one was acknowledged.
    pub accept_loss_after: Option<u64>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            layout: Layout::FULL,
            huge_pages: true,
            snapshot_kind: SnapshotKind::Epoch,
            snapshot_memory_bytes: 64 << 20,
            needed_pages: |_| 0..0,
            accept_loss_after: None,
        }
    }
}

/// Sizes, for `INFO`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PoolStats {
    pub allocated_pages: u64,
    /// Bytes that snapshots hold beyond the data now: before-images in frames and freed pages that a cut needs.
    pub snapshot_held_bytes: u64,
    /// The most of them since the last checkpoint or view began.
    pub snapshot_peak_held_bytes: u64,
    /// Bytes of spare frames, in use or not.
    pub snapshot_resident_bytes: u64,
}

/// A page pool. Share it by `Arc`.
pub struct Pool {
    core: Arc<Core>,
    snapshotter: Arc<dyn Snapshotter>,
    barrier: Arc<Barrier>,
    allocator: Arc<Mutex<Allocator>>,
    allocated_pages: AtomicU64,
    stock: Stock,
    /// Freed pages that somebody may still be reading optimistically, and how often the barrier had run when each was
    /// freed, in that order.
    lingering: Mutex<VecDeque<(PageId, u64)>>,
    any_lingering: AtomicBool,
    file: Option<Arc<PageFile>>,
    loading: Loading,
    /// The cut of the last durable checkpoint; held while one is taken.
    durable: Mutex<Epoch>,
}

impl Pool {
    /// A pool over anonymous memory.
    ///
    /// # Errors
    /// [`PoolError::Map`] if the address space is limited.
    pub fn new(options: &PoolOptions, spill: Arc<dyn Spill>) -> Result<Pool, PoolError> {
        let memory = AnonMemory::new(options.layout.page_count() as usize * PAGE_SIZE)?;
        Pool::with_memory(Box::new(memory), options, spill)
    }

    /// A pool over anonymous memory that keeps nothing: views that outgrow the budget fail.
    ///
    /// # Errors
    /// [`PoolError::Map`].
    pub fn in_memory(options: &PoolOptions) -> Result<Arc<Pool>, PoolError> {
        Pool::new(options, Arc::new(NoSpill)).map(Arc::new)
    }

    /// Opens the page file on `device`, empty or not, and a pool over it. Pages are served at once and brought in
    /// when they are asked for, and in the background.
    ///
    /// # Errors
    /// [`PoolError::PageFile`] if no checkpoint of the file loads.
    pub fn open(device: Arc<dyn Device>, options: &PoolOptions) -> Result<(Arc<Pool>, Recovered), PoolError> {
        let (needed, accept_loss_after) = (options.needed_pages, options.accept_loss_after);
        let open_options = OpenOptions { needed, accept_loss_after, ..OpenOptions::default() };
        let (file, recovered) = PageFile::create_or_open_with(device, &open_options)?;
        let mut pool = Pool::new(options, file.clone())?;
        pool.adopt(&file, options.layout)?;
        pool.file = Some(file);
        let pool = Arc::new(pool);
        if recovered.page_count > 0 {
            pool.start_loading(recovered.page_count)?;
        }
        Ok((pool, recovered))
    }

    /// Takes over the pages of a page file: what it maps is in use, everything else is free.
    fn adopt(&self, file: &PageFile, layout: Layout) -> Result<(), PoolError> {
        let (mut runs, mut page_count, mut end) = (Vec::new(), 0, 0);
        file.for_each_mapped(|first, count| {
            runs.push((first, count));
            page_count += u64::from(count);
            end = first.0 + count;
        });
        let limit = layout.page_count();
        if end > limit {
            return Err(PoolError::Layout { path: file.name().to_owned(), page: end - 1, limit });
        }
        self.allocator.lock().adopt(runs.into_iter());
        self.allocated_pages.store(page_count, Ordering::Relaxed);
        Ok(())
    }

    /// The page file, if the pool has one.
    pub fn file(&self) -> Option<&Arc<PageFile>> {
        self.file.as_ref()
    }

    pub(crate) fn loading(&self) -> &Loading {
        &self.loading
    }

    pub(crate) fn durable_epoch(&self) -> MutexGuard<'_, Epoch> {
        self.durable.lock()
    }

    pub(crate) fn used_ranges(&self) -> Vec<(u32, u32)> {
        self.allocator.lock().used_ranges()
    }

    /// Makes extents that snapshots have let go available again.
    pub(crate) fn take_back_released(&self) {
        while self.take_back() == TAKE_BACK_EXTENTS {}
    }

    /// A pool over any memory, which must cover the layout.
    ///
    /// # Errors
    /// [`PoolError::Map`].
    pub fn with_memory(
        memory: Box<dyn Memory>,
        options: &PoolOptions,
        spill: Arc<dyn Spill>,
    ) -> Result<Pool, PoolError> {
        let page_count = options.layout.page_count();
        let core = Arc::new(Core::new(memory, options.layout, options.snapshot_memory_bytes)?);
        let is_huge = options.huge_pages && options.snapshot_kind == SnapshotKind::Epoch;
        if is_huge {
            core.prefer_huge(options.layout.small_end);
        }
        let epoch = EpochSnapshotter::new(page_count, spill)?;
        let snapshotter: Arc<dyn Snapshotter> = match options.snapshot_kind {
            SnapshotKind::Epoch => Arc::new(epoch),
            SnapshotKind::Fork => Arc::new(ForkSnapshotter::new(epoch)?),
        };
        let allocator = Arc::new(Mutex::new(Allocator::new(options.layout)));
        let stock = Stock::start(core.clone(), allocator.clone(), is_huge)?;
        Ok(Pool {
            core,
            snapshotter,
            barrier: Arc::default(),
            allocator,
            allocated_pages: AtomicU64::new(0),
            stock,
            lingering: Mutex::default(),
            any_lingering: AtomicBool::new(false),
            file: None,
            loading: Loading::default(),
            durable: Mutex::new(Epoch(0)),
        })
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn snapshotter(&self) -> &dyn Snapshotter {
        &*self.snapshotter
    }

    pub fn barrier(&self) -> &Arc<Barrier> {
        &self.barrier
    }

    /// Joins the barrier: every thread that modifies pages does.
    pub fn join(&self) -> Member {
        self.barrier.join()
    }

    /// Reads a page without a latch.
    ///
    /// # Errors
    /// [`Restart`]: run the operation again, after loading the page if it says so.
    #[inline(always)]
    pub fn optimistic(&self, page: PageId) -> Result<OptimisticGuard<'_>, Restart> {
        OptimisticGuard::new(self, page)
    }

    /// Latches a page or the object whose head it is, shared; parks while it is held exclusively.
    ///
    /// # Errors
    /// [`Restart::Fault`], [`Restart::Damaged`].
    #[inline(always)]
    pub fn shared(&self, page: PageId) -> Result<SharedGuard<'_>, Restart> {
        SharedGuard::new(self, page)
    }

    /// The same, exclusive. A thread that holds a latch asks only for pages below it in the tree; for any other
    /// it uses [`Pool::try_exclusive`].
    #[inline(always)]
    pub fn exclusive(&self, page: PageId) -> Result<ExclusiveGuard<'_>, Restart> {
        ExclusiveGuard::new(self, page)
    }

    /// Latches exclusively if that needs no waiting.
    ///
    /// # Errors
    /// [`Restart::Contended`] if it does.
    #[inline(always)]
    pub fn try_exclusive(&self, page: PageId) -> Result<ExclusiveGuard<'_>, Restart> {
        ExclusiveGuard::try_new(self, page)
    }

    /// Hints that byte `offset` of a page will be read soon.
    #[inline(always)]
    pub fn prefetch(&self, page: PageId, offset: usize) {
        let address = self.core.address(page).cast::<i8>().wrapping_add(offset);
        prefetch(address);
    }

    /// Hints that a page will be latched soon.
    #[inline(always)]
    pub fn prefetch_latch(&self, page: PageId) {
        prefetch(self.core.descriptor_address(page).cast());
    }

    /// Whether the page is in memory; one that is still being read is not, one that is latched is.
    pub fn is_resident(&self, page: PageId) -> bool {
        self.core.try_descriptor(page).is_some_and(|descriptor| descriptor.state.is_resident())
    }

    /// Page `index` of an object whose head is latched.
    #[inline(always)]
    pub(crate) fn object_page(&self, head: PageId, index: u32) -> Result<PageId, Restart> {
        let page = PageId(head.0.saturating_add(index));
        if index == 0 || self.is_resident(page) {
            Ok(page)
        } else {
            Err(self.absent(page))
        }
    }

    /// Captures a page for running snapshots if this is its first modification since the last cut.
    #[inline(always)]
    pub(crate) fn before_write(&self, page: PageId) {
        if self.core.descriptor(page).epochs.written() != self.core.epoch() {
            self.first_write(page);
        }
    }

    #[cold]
    fn first_write(&self, page: PageId) {
        self.snapshotter.before_first_write(&self.core, page);
        self.core.descriptor(page).epochs.set_written(self.core.epoch());
    }

    /// A new page, latched. Its content is undefined.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`].
    pub fn allocate(&self) -> Result<ExclusiveGuard<'_>, PoolError> {
        self.allocate_object(1, 1)
    }

    /// A new object of consecutive pages with room to grow in place to `reserve_count`, its head latched. The
    /// content of objects of 17 pages and more, and of those with a reserve, is zero, that of others undefined.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`].
    pub fn allocate_object(
        &self,
        page_count: u32,
        reserve_count: u32,
    ) -> Result<ExclusiveGuard<'_>, PoolError> {
        assert!(page_count > 0, "an object has pages");
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
        self.allocated_pages.fetch_add(u64::from(page_count), Ordering::Relaxed);
        self.bring_to_life(start, true);
        for index in 1..page_count {
            self.bring_to_life(PageId(start.0 + index), false);
        }
        let mut object = ExclusiveGuard::allocated(self, start);
        // Large objects start in memory that reads as zero, but for those that found no place of their own.
        if self.core.is_small(start) && (page_count > SMALL_PAGES_MAX || reserve_count > page_count) {
            object.zero(page_count);
        }
        Ok(object)
    }

    fn take_ids(&self, page_count: u32, reserve_count: u32) -> Option<PageId> {
        let mut allocator = self.allocator.lock();
        let start = allocator.allocate(page_count, reserve_count);
        self.stock.note_used(&mut allocator);
        start
    }

    /// Gives a free page its descriptor; `latched` leaves it exclusive.
    fn bring_to_life(&self, page: PageId, latched: bool) {
        let descriptor = self.core.descriptor(page);
        if let Some(freed) = descriptor.epochs.freed() {
            self.snapshotter.before_reuse(&self.core, page, freed);
        }
        // A loader that found the page in the map of the last start may have it until it sees that it was freed.
        while !descriptor.state.begin_life() {
            std::thread::yield_now();
        }
        descriptor.epochs.set_written(self.core.epoch());
        descriptor.epochs.set_freed(None);
        if !latched {
            unlock_and_wake(&descriptor.state);
        }
    }

    /// Grows an object in place. False if its block is too small: the caller moves it.
    pub fn extend(&self, object: &mut ExclusiveGuard<'_>, old_count: u32, new_count: u32) -> bool {
        let start = object.id();
        if new_count > self.allocator.lock().capacity(start, old_count) {
            return false;
        }
        for index in old_count..new_count {
            self.bring_to_life(PageId(start.0 + index), false);
        }
        self.allocated_pages.fetch_add(u64::from(new_count - old_count), Ordering::Relaxed);
        true
    }

    /// Frees an object with all its pages; `page_count` is what it was allocated with or extended to (O1).
    /// A cut that needs the content keeps it; otherwise the pages can be allocated again at once.
    pub fn free(&self, object: ExclusiveGuard<'_>, page_count: u32) {
        let start = object.into_id();
        let extent = self.mark_freed(start, page_count);
        evict_and_wake(&self.core.descriptor(start).state);
        self.finish_free(extent);
    }

    /// Frees an object without its head's latch, because the head is not in memory or cannot be read. Only for what
    /// nothing refers to any more. False if there are no such pages.
    #[must_use]
    pub fn free_unread(&self, head: PageId, page_count: u32) -> bool {
        let last = page_count.checked_sub(1).and_then(|more| head.0.checked_add(more));
        let exists = last.is_some_and(|last| self.core.try_descriptor(PageId(last)).is_some());
        if exists {
            let extent = self.mark_freed(head, page_count);
            self.finish_free(extent);
        }
        exists
    }

    fn mark_freed(&self, start: PageId, page_count: u32) -> Extent {
        let (extent, epoch) = (Extent { start, page_count }, self.core.epoch());
        extent.pages().for_each(|page| self.core.descriptor(page).epochs.set_freed(Some(epoch)));
        self.allocated_pages.fetch_sub(u64::from(page_count), Ordering::Relaxed);
        extent
    }

    /// Lets an extent go that is marked as freed, unless a cut needs it. Its memory is not given back, nor its pages
    /// used again, while a loader reads into one of them (M2): then that is put off.
    pub(crate) fn finish_free(&self, extent: Extent) {
        // Nobody waits for what is in the way: a loader, or for a moment the latch of a stale hint.
        let retired = extent.pages().filter(|&page| self.core.descriptor(page).state.retire()).count();
        if retired < extent.page_count as usize {
            self.loading.defer_free(extent);
        } else if !self.snapshotter.keep_freed(&self.core, extent) {
            if !self.core.is_small(extent.start) && extent.page_count < HUGE_EXTENT_PAGES {
                self.core.give_back(extent);
                return self.allocator.lock().free(extent.start, extent.page_count);
            }
            self.recycle(extent);
        }
    }

    /// Frees a page that others may be reading optimistically: it is not used again before each member of the barrier
    /// has been between two commands (P5). Content of other kinds is written in other ways.
    pub fn free_node(&self, node: ExclusiveGuard<'_>) {
        let page = node.into_id();
        let descriptor = self.core.descriptor(page);
        descriptor.epochs.set_freed(Some(self.core.epoch()));
        evict_and_wake(&descriptor.state);
        self.allocated_pages.fetch_sub(1, Ordering::Relaxed);
        let mut lingering = self.lingering.lock();
        lingering.push_back((page, self.core.standstill_count()));
        self.any_lingering.store(true, Ordering::Relaxed);
    }

    /// Goes on with the frees of nodes that nobody reads any more.
    #[cold]
    fn finish_lingering(&self) {
        let mut lingering = self.lingering.lock();
        let still_read = |&(_, freed_at): &(PageId, u64)| freed_at >= self.core.standstill_count();
        let count = lingering.iter().position(still_read).unwrap_or(lingering.len());
        let finished: Vec<_> = lingering.drain(..count).collect();
        self.any_lingering.store(!lingering.is_empty(), Ordering::Relaxed);
        drop(lingering);
        finished.into_iter().for_each(|(start, _)| self.finish_free(Extent { start, page_count: 1 }));
    }

    /// Makes an extent that nobody needs available again; a large one once its memory has been given back.
    fn recycle(&self, extent: Extent) {
        if !self.core.is_small(extent.start) {
            return self.stock.discard_later(extent);
        }
        let mut allocator = self.allocator.lock();
        allocator.free(extent.start, extent.page_count);
        self.stock.note_freed(&mut allocator);
    }

    /// Gives all free memory back to the system, that of free pages and of idle spare frames, in the background but at
    /// once. Without this a reserve is kept, and the rest given back after a while.
    pub fn purge(&self) {
        self.take_back_released();
        self.stock.purge();
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

    /// How long things took.
    pub fn metrics(&self) -> &PoolMetrics {
        &self.core.metrics
    }

    /// Pages in use.
    #[inline]
    pub fn allocated_pages(&self) -> u64 {
        self.allocated_pages.load(Ordering::Relaxed)
    }

    pub fn stats(&self) -> PoolStats {
        PoolStats {
            allocated_pages: self.allocated_pages(),
            snapshot_held_bytes: self.snapshotter.held_bytes(&self.core),
            snapshot_peak_held_bytes: self.snapshotter.peak_held_bytes(&self.core),
            snapshot_resident_bytes: self.core.frames.resident_count() * PAGE_SIZE as u64,
        }
    }

    /// A read-only picture of all pages; `at_cut` runs in the barrier just before the cut, and what it writes belongs
    /// to the picture. Waits for the end of the warm-up first: pages that are not in memory cannot be kept for a cut.
    /// Not to be called by a running member of the barrier.
    ///
    /// # Errors
    /// [`CheckpointError::EpochsExhausted`].
    pub fn view_after(
        self: &Arc<Self>,
        at_cut: impl FnOnce() + Send + 'static,
    ) -> Result<View, CheckpointError> {
        self.wait_until_warm();
        let (cut, barrier) = self.at_barrier(|pool| {
            at_cut();
            pool.snapshotter.begin_view(&pool.core)
        });
        Ok(View::new(self.clone(), cut?, barrier))
    }

    /// Runs `action` while no member runs; returns its result and what the barrier cost.
    pub fn at_barrier<R: Send + 'static>(
        self: &Arc<Self>,
        action: impl FnOnce(&Pool) -> R + Send + 'static,
    ) -> (R, BarrierTimes) {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let pool = self.clone();
        let times = self.barrier.run(move || {
            let _ = sender.send(pool.core.cutting(|| action(&pool)));
        });
        let result = receiver.recv().expect("the barrier has run the action");
        (result, times)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.loading.shut_down();
    }
}

/// Hints that a value outside the pool will be read soon.
#[inline(always)]
pub fn prefetch_value<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast());
}

#[inline(always)]
fn prefetch(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A1: a prefetch of any address has no effect that a program can observe.
    unsafe {
        std::arch::x86_64::_mm_prefetch(address, std::arch::x86_64::_MM_HINT_T0)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

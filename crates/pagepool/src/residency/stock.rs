//! The stock of free pages that take memory: a thread that touches memory ahead of the allocator, so that no writer does,
//! and that gives memory back which is not needed any more, so that no worker does (60 ms for 512 MB).
//!
//! Freed extents of large objects are given back at once. Of the free pages of the small zone a reserve keeps its memory;
//! what has been above that for a while is given back, from the top, a chunk of 2 MB at a time: whole ones where huge
//! pages back the zone, else whatever is free in them.
//!
//! Where pages lie in frames, free pages keep no memory: then this looks after descriptors, and gives large objects back in
//! the background. Of frames takes care the keeper.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::background::{Background, StopSign};
use super::room::Room;
use crate::snapshot::{Core, Snapshotter};
use crate::space::{Allocator, Extent, HUGE_PAGE_SIZE};
use crate::{PageId, PoolError, PAGE_SIZE};

/// Pages kept populated ahead of the small zone's end of use (8 MB), if memory is not limited to less than 64 times that.
pub const STOCK_PAGES: u32 = 2048;
const STEP_PAGES: u32 = (HUGE_PAGE_SIZE / PAGE_SIZE) as u32;

/// Free pages that keep their memory (16 MB, and a part of what is in use). Where memory is limited they are not more than
/// that part of the limit: most of what is in use may be in the file alone.
pub const RESERVE_PAGES: u32 = 4096;
pub const RESERVE_PART: u32 = 32;
/// How long pages above the reserve stay there before they are given back, and how long the thread rests between two
/// chunks: what is freed is often allocated again, and whoever runs on this processor goes first.
pub const TRIM_DELAY: Duration = Duration::from_millis(200);
pub const TRIM_PAUSE: Duration = Duration::from_micros(500);
/// When it looks again, if what is above the reserve lies scattered between pages in use.
pub const TRIM_AGAIN: Duration = Duration::from_secs(10);
/// Chunks looked at with the allocator locked.
const TRIM_LOOKS: u32 = 16;

/// Extents from this size on (2 MB) are given back by the thread alone.
pub const HUGE_EXTENT_PAGES: u32 = 512;
/// Pages of smaller ones that wait for the thread before workers help, one extent an allocation (64 MB).
const WAITING_PAGES_MAX: u64 = 16_384;

/// Freed extents whose memory is to be given back: they belong to whoever takes them out (M2).
#[derive(Default)]
struct ToDiscard {
    small: Vec<Extent>,
    huge: Vec<Extent>,
}

struct Shared {
    core: Arc<Core>,
    snapshotter: Arc<dyn Snapshotter>,
    allocator: Arc<Mutex<Allocator>>,
    room: Arc<Room>,
    /// Whether chunks are given back whole or not at all, as long as nothing is evicted.
    whole_chunks: bool,
    /// End of use of the small zone.
    used_end: AtomicU32,
    /// Pages before this one are populated (or were in use before the pool was opened).
    populated_end: AtomicU32,
    to_discard: Mutex<ToDiscard>,
    /// Pages of `to_discard.small`.
    waiting_pages: AtomicU64,
    /// Held while an extent belongs to nobody else: whoever finds no free page waits for it.
    discarding: Mutex<()>,
    /// Whether the thread knows that free pages with memory run short, or that there are more than the reserve.
    is_refilling: AtomicBool,
    is_trimming: AtomicBool,
    /// Whether the reserve is to be given back too, and all of it at once.
    purge: AtomicBool,
    stop: StopSign,
}

impl Shared {
    /// That part of the limit, if there is one.
    fn part_of_limit(&self, part: u32) -> u32 {
        self.room
            .limit_pages()
            .map_or(u32::MAX, |limit| (limit / u64::from(part)).min(u64::from(u32::MAX)) as u32)
    }

    /// Pages kept populated ahead.
    fn stock_pages(&self) -> u32 {
        STOCK_PAGES.min(self.part_of_limit(2 * RESERVE_PART))
    }

    /// Free pages that take memory, above the reserve.
    fn pages_above_reserve(&self, allocator: &mut Allocator) -> u32 {
        if self.core.pages.arena().is_some() {
            return 0;
        }
        let zone = allocator.small();
        let reserve =
            (RESERVE_PAGES + zone.used_pages() / RESERVE_PART).min(self.part_of_limit(RESERVE_PART));
        zone.resident_free_pages().saturating_sub(reserve)
    }

    /// Gives the memory of one freed extent back; false if there is none to do.
    fn discard_one(&self, with_huge: bool) -> bool {
        let _belongs_to_nobody = self.discarding.lock();
        let extent = {
            let mut to_discard = self.to_discard.lock();
            let huge = if with_huge { to_discard.huge.pop() } else { None };
            huge.or_else(|| {
                let extent = to_discard.small.pop()?;
                self.waiting_pages.fetch_sub(u64::from(extent.page_count), Ordering::Relaxed);
                Some(extent)
            })
        };
        let Some(extent) = extent else { return false };
        self.core.pages.give_back(extent);
        self.allocator.lock().free(extent.start, extent.page_count);
        true
    }

    /// Populates free pages that are going to be allocated next; false if there are enough.
    fn refill(&self) -> bool {
        let pages = {
            let mut allocator = self.allocator.lock();
            let zone = allocator.small();
            let is_low = zone.empty_pages() > 0 && zone.resident_free_pages() < self.stock_pages();
            is_low.then(|| zone.take_for_refill()).flatten()
        };
        let Some(pages) = pages else { return false };
        // They may be in use by now: populating changes no content.
        self.core.pages.populate(PageId(pages.start), pages.len() as u32);
        true
    }

    /// Populates pages that have never been used; false if enough are.
    fn populate_ahead(&self) -> bool {
        let page_limit = self.core.pages.page_limit();
        let used_end = self.used_end.load(Ordering::Relaxed);
        let populated = self.populated_end.load(Ordering::Relaxed).max(used_end / STEP_PAGES * STEP_PAGES);
        let target = used_end.saturating_add(self.stock_pages()).min(page_limit);
        if used_end == 0 || populated >= target {
            return false;
        }
        let count = STEP_PAGES.min(page_limit - populated);
        self.core.pages.populate(PageId(populated), count);
        self.core.frames.keep_ready(&self.snapshotter.frame_wish(u64::from(used_end)));
        self.populated_end.store(populated + count, Ordering::Relaxed);
        true
    }

    /// Gives free pages of one chunk back, or looks at some in vain; false if there is none before `below`.
    fn trim(&self, below: &mut u32) -> bool {
        if self.core.pages.arena().is_some() {
            return false;
        }
        let _belongs_to_nobody = self.discarding.lock();
        let taken = {
            let mut allocator = self.allocator.lock();
            // Once single pages are evicted no huge page is to be kept.
            let whole = self.whole_chunks && !self.room.evicts();
            let mut look = || allocator.small().take_for_trimming(below, whole);
            (0..TRIM_LOOKS)
                .map(|_| look())
                .find(|taken| taken.as_ref().is_none_or(|ranges| !ranges.is_empty()))
        };
        let Some(taken) = taken else { return true };
        let Some(ranges) = taken else { return false };
        for pages in ranges {
            let start = PageId(pages.start);
            self.core.pages.give_back(Extent { start, page_count: pages.len() as u32 });
            self.allocator.lock().small().give_trimmed(pages);
        }
        true
    }
}

/// The thread and what it is told.
pub struct Stock {
    shared: Arc<Shared>,
    thread: Background,
}

impl Stock {
    /// `whole_chunks` where huge pages back the small zone.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(
        core: Arc<Core>,
        snapshotter: Arc<dyn Snapshotter>,
        allocator: Arc<Mutex<Allocator>>,
        whole_chunks: bool,
        room: Arc<Room>,
    ) -> Result<Stock, PoolError> {
        let stop = StopSign::default();
        let shared = Arc::new(Shared {
            core,
            snapshotter,
            allocator,
            room,
            whole_chunks,
            used_end: AtomicU32::new(0),
            populated_end: AtomicU32::new(0),
            to_discard: Mutex::default(),
            waiting_pages: AtomicU64::new(0),
            discarding: Mutex::default(),
            is_refilling: AtomicBool::new(false),
            is_trimming: AtomicBool::new(false),
            purge: AtomicBool::new(false),
            stop: stop.clone(),
        });
        let for_thread = shared.clone();
        let thread = Background::start("sf-stock", stop, move || replenish(&for_thread))?;
        Ok(Stock { shared, thread })
    }

    /// Tells what an allocation has left; wakes the thread when the stock runs low.
    pub fn note_used(&self, allocator: &mut Allocator) {
        let (zone, stock) = (allocator.small(), self.shared.stock_pages());
        let is_low = zone.empty_pages() > 0 && zone.resident_free_pages() < stock / 2;
        let used_end = zone.fresh();
        let has_moved = self.shared.used_end.swap(used_end, Ordering::Relaxed) != used_end;
        let is_near = || used_end + stock / 2 > self.shared.populated_end.load(Ordering::Relaxed);
        let has_become_low = || !self.shared.is_refilling.swap(true, Ordering::Relaxed);
        if is_low && has_become_low() || has_moved && is_near() {
            self.thread.wake();
        }
    }

    /// Tells what a free has left; wakes the thread when there is more than the reserve.
    pub fn note_freed(&self, allocator: &mut Allocator) {
        if self.shared.pages_above_reserve(allocator) > 0
            && !self.shared.is_trimming.swap(true, Ordering::Relaxed)
        {
            self.thread.wake();
        }
    }

    /// Takes over a freed extent of a large object; the allocator gets it back when its memory has been given back.
    pub fn discard_later(&self, extent: Extent) {
        let mut to_discard = self.shared.to_discard.lock();
        if extent.page_count >= HUGE_EXTENT_PAGES {
            to_discard.huge.push(extent);
        } else {
            to_discard.small.push(extent);
            self.shared.waiting_pages.fetch_add(u64::from(extent.page_count), Ordering::Relaxed);
        }
        drop(to_discard);
        self.thread.wake();
    }

    /// Gives one extent back if the thread does not keep up: so freed memory does not pile up.
    pub fn help(&self) {
        if self.shared.waiting_pages.load(Ordering::Relaxed) > WAITING_PAGES_MAX {
            self.shared.discard_one(false);
        }
    }

    /// Gives all freed extents back now, on this thread.
    pub fn discard_all(&self) {
        while self.shared.discard_one(true) {}
    }

    /// Asks for everything to be given back that is free, the reserve too, at once.
    pub fn purge(&self) {
        self.shared.purge.store(true, Ordering::Relaxed);
        self.thread.wake();
    }
}

fn replenish(shared: &Shared) {
    // Where the trimmer is, and when it goes on.
    let mut below = u32::MAX;
    let mut trim_at: Option<Instant> = None;
    while !shared.stop.is_given() {
        if shared.purge.swap(false, Ordering::Relaxed) {
            below = u32::MAX;
            while shared.discard_one(true) || shared.trim(&mut below) {}
            shared.core.frames.discard_if_idle(&shared.snapshotter.frame_wish(0));
            continue;
        }
        if shared.is_refilling.swap(false, Ordering::Relaxed) {
            while shared.refill() {}
        }
        if shared.discard_one(true) || shared.populate_ahead() {
            continue;
        }
        shared.is_trimming.store(false, Ordering::Relaxed);
        if shared.pages_above_reserve(&mut shared.allocator.lock()) == 0 {
            trim_at = None;
            std::thread::park();
            continue;
        }
        shared.is_trimming.store(true, Ordering::Relaxed);
        let now = Instant::now();
        let due = *trim_at.get_or_insert_with(|| {
            below = u32::MAX;
            now + TRIM_DELAY
        });
        if now < due {
            std::thread::park_timeout(due - now);
        } else if shared.trim(&mut below) {
            std::thread::park_timeout(TRIM_PAUSE);
        } else {
            below = u32::MAX;
            trim_at = Some(now + TRIM_AGAIN);
        }
    }
}

//! The stock of free pages that take memory: a thread that touches memory ahead of the allocator, so that no writer does,
//! and that gives memory back which is not needed any more, so that no worker does (60 ms for 512 MB).
//!
//! Pages that are to get memory are taken out of the allocator, 2 MB at a time, and are its free pages afterwards. So nobody else
//! touches them before, and a huge page may back them (M10): clearing one takes as long as hundreds of commands. A thread that allocates
//! faster than that finds other pages, and touches 4 KB at a time.
//!
//! Freed extents of large objects are given back at once, 2 MB at a time. Of the free pages of the small zone a reserve keeps its
//! memory; what has been above that for a while is given back, from the top, a chunk of 2 MB at a time: whole ones where huge
//! pages back the zone, else whatever is free in them.
//!
//! Where pages lie in frames, free pages keep no memory: then this looks after descriptors, and gives large objects back in
//! the background. Of frames takes care the keeper.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::background::{Background, StopSign};
use super::room::Room;
use crate::page::PageTable;
use crate::snapshot::{Core, Snapshotter};
use crate::space::{Allocator, Extent, CHUNK_PAGES};
use crate::{sched, PageId, PoolError};

/// Free pages of the small zone that have memory before they are wanted (8 MB), if memory is not limited to less than 64 times
/// that.
pub const STOCK_PAGES: u32 = 2048;
/// Pages whose descriptors have memory ahead of those in use (256 MB).
const DESCRIPTORS_AHEAD: u32 = PageTable::DESCRIPTOR_CHUNK_PAGES / 2;
/// Chunks of descriptors (each of 512 MB of pages) that get memory while the pool is opened: a start waits for no more.
const DESCRIPTOR_CHUNKS_AT_OPEN: u32 = 4;

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
/// Pages of a large extent that are given back in one step (2 MB), and where others are to go first.
const DISCARD_PAGES: u32 = CHUNK_PAGES;
const DISCARD_PAGES_GIVING_WAY: u32 = 64;

/// Extents from this size on (2 MB) are given back by the thread alone.
pub const HUGE_EXTENT_PAGES: u32 = 512;
/// Pages of smaller ones that wait for the thread before workers help, one extent an allocation (64 MB).
const WAITING_PAGES_MAX: u64 = 16_384;

/// A freed extent, of which the pages before `next` have given their memory back.
struct Discarding {
    extent: Extent,
    next: u32,
}

/// Freed extents whose memory is to be given back: they belong to whoever takes them out (M2).
#[derive(Default)]
struct ToDiscard {
    small: Vec<Discarding>,
    huge: Vec<Discarding>,
}

struct Shared {
    core: Arc<Core>,
    snapshotter: Arc<dyn Snapshotter>,
    allocator: Arc<Mutex<Allocator>>,
    room: Arc<Room>,
    how: StockOptions,
    /// Pages before this one have descriptors that a huge page backs, or that somebody has touched. Changed with the allocator
    /// locked.
    descriptors_end: AtomicU32,
    to_discard: Mutex<ToDiscard>,
    /// Pages of `to_discard.small`.
    waiting_pages: AtomicU64,
    /// Held for a step in which a part of an extent belongs to nobody else: a thread that finds no free page waits for it.
    discarding: Mutex<()>,
    /// Pages that have been taken to get memory, and are not free again: a thread that finds no free page waits for them.
    taken_pages: AtomicU32,
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

    /// Whether a huge page may back chunks of the zone.
    fn takes_huge(&self) -> bool {
        self.how.huge_pages && !self.room.evicts()
    }

    /// Gives the memory of a part of a freed extent back; false if there is none to do.
    fn discard_some(&self, with_huge: bool) -> bool {
        let _belongs_to_nobody = self.discarding.lock();
        let taken = {
            let mut to_discard = self.to_discard.lock();
            let huge = if with_huge { to_discard.huge.pop() } else { None };
            huge.or_else(|| to_discard.small.pop())
        };
        let Some(Discarding { extent, next }) = taken else { return false };
        let most = if sched::gives_way() { DISCARD_PAGES_GIVING_WAY } else { DISCARD_PAGES };
        let page_count = most.min(extent.page_count - next);
        self.core.pages.give_back(Extent { start: PageId(extent.start.0 + next), page_count });
        let is_small = extent.page_count < HUGE_EXTENT_PAGES;
        if is_small {
            self.waiting_pages.fetch_sub(u64::from(page_count), Ordering::Relaxed);
        }
        let next = next + page_count;
        if next < extent.page_count {
            let mut to_discard = self.to_discard.lock();
            let list = if is_small { &mut to_discard.small } else { &mut to_discard.huge };
            list.push(Discarding { extent, next });
        } else {
            self.allocator.lock().free(extent.start, extent.page_count);
        }
        true
    }

    /// Gives memory to free pages that are going to be allocated next; false if there are enough.
    fn refill(&self) -> bool {
        let takes_huge = self.takes_huge();
        let (taken, staying) = {
            let mut allocator = self.allocator.lock();
            let zone = allocator.small();
            let wanted = self.stock_pages();
            if zone.resident_free_pages() >= wanted {
                return false;
            }
            let chunk = if takes_huge { zone.take_empty_chunk() } else { None };
            let staying = if chunk.is_none() { zone.take_for_refill() } else { None };
            let taken = chunk.or_else(|| if staying.is_none() { zone.take_ahead(wanted) } else { None });
            self.taken_pages
                .fetch_add(taken.as_ref().map_or(0, |pages| pages.len() as u32), Ordering::Relaxed);
            (taken, staying)
        };
        if let Some(pages) = staying {
            // They may be in use by now: populating changes no content.
            self.core.pages.populate(extent_of(&pages));
            return true;
        }
        let Some(pages) = taken else { return false };
        let extent = extent_of(&pages);
        if takes_huge && extent.page_count == CHUNK_PAGES && sched::may_take_long() {
            self.core.pages.prefer_huge(extent);
        }
        self.core.pages.populate(extent);
        let mut allocator = self.allocator.lock();
        allocator.small().give(pages);
        let used_pages = allocator.small().used_pages();
        drop(allocator);
        self.taken_pages.fetch_sub(extent.page_count, Ordering::Relaxed);
        self.core.frames.keep_ready(&self.snapshotter.frame_wish(u64::from(used_pages)));
        true
    }

    /// Whether pages come into use soon, `fresh` being the next, whose descriptors have no memory yet.
    fn wants_descriptors(&self, fresh: u32, ahead: u32) -> bool {
        let first = self.descriptors_end.load(Ordering::Relaxed);
        let last = first.saturating_add(PageTable::DESCRIPTOR_CHUNK_PAGES - 1);
        let is_near = fresh <= first && first - fresh < ahead;
        is_near && self.how.huge_pages && self.core.pages.is_small(PageId(last))
    }

    fn refill_all(&self) {
        while !self.stop.is_given() && (self.refill_descriptors() || self.refill()) {}
    }

    /// Gives memory to the descriptors of pages that are going to be used; false if there are enough.
    fn refill_descriptors(&self) -> bool {
        let first = {
            let mut allocator = self.allocator.lock();
            let first = self.descriptors_end.load(Ordering::Relaxed);
            if !self.wants_descriptors(allocator.small().fresh(), DESCRIPTORS_AHEAD) {
                return false;
            }
            self.descriptors_end.store(first + PageTable::DESCRIPTOR_CHUNK_PAGES, Ordering::Relaxed);
            first
        };
        // A thread that allocates may come there before long, and be it after 256 MB.
        sched::promptly(|| self.core.pages.back_descriptors(PageId(first)));
        true
    }

    /// Descriptors that nobody has touched yet have memory from now on, as far as that does not take long.
    fn prepare_descriptors(&self, used_end: u32) {
        if !self.how.huge_pages {
            return;
        }
        let chunk = PageTable::DESCRIPTOR_CHUNK_PAGES;
        let limit = self.core.pages.page_limit() / chunk * chunk;
        let end = used_end.max(1).next_multiple_of(chunk).min(limit);
        for first in (0..end).step_by(chunk as usize) {
            match first / chunk < DESCRIPTOR_CHUNKS_AT_OPEN {
                true => self.core.pages.back_descriptors(PageId(first)),
                false => self.core.pages.gather_descriptors(PageId(first)),
            }
        }
        self.descriptors_end.store(end, Ordering::Relaxed);
    }

    /// Gives free pages of one chunk back, or looks at some in vain; false if there is none before `below`.
    fn trim(&self, below: &mut u32) -> bool {
        if self.core.pages.arena().is_some() {
            return false;
        }
        let _belongs_to_nobody = self.discarding.lock();
        // Once single pages are evicted no huge page is to be kept.
        let whole = self.takes_huge();
        let taken = {
            let mut allocator = self.allocator.lock();
            let mut look = || allocator.small().take_for_trimming(below, whole);
            (0..TRIM_LOOKS)
                .map(|_| look())
                .find(|taken| taken.as_ref().is_none_or(|ranges| !ranges.is_empty()))
        };
        let Some(taken) = taken else { return true };
        let Some(ranges) = taken else { return false };
        for pages in ranges {
            self.core.pages.give_back(extent_of(&pages));
            if whole {
                self.core.pages.refuse_huge(extent_of(&pages));
            }
            self.allocator.lock().small().give_trimmed(pages);
        }
        true
    }
}

fn extent_of(pages: &Range<u32>) -> Extent {
    Extent { start: PageId(pages.start), page_count: pages.len() as u32 }
}

/// How a stock works.
#[derive(Clone, Copy)]
pub struct StockOptions {
    /// Huge pages back the small zone, and its chunks are given back whole or not at all, as long as nothing is evicted.
    pub huge_pages: bool,
    /// Free pages get memory before they are wanted.
    pub is_ahead: bool,
}

/// The thread and what it is told.
pub struct Stock {
    shared: Arc<Shared>,
    thread: Background,
}

impl Stock {
    /// Of a pool that uses no page yet.
    ///
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(
        core: Arc<Core>,
        snapshotter: Arc<dyn Snapshotter>,
        allocator: Arc<Mutex<Allocator>>,
        how: StockOptions,
        room: Arc<Room>,
    ) -> Result<Stock, PoolError> {
        let stop = StopSign::default();
        let shared = Arc::new(Shared {
            core,
            snapshotter,
            allocator,
            room,
            how,
            descriptors_end: AtomicU32::new(0),
            to_discard: Mutex::default(),
            waiting_pages: AtomicU64::new(0),
            discarding: Mutex::default(),
            taken_pages: AtomicU32::new(0),
            is_refilling: AtomicBool::new(false),
            is_trimming: AtomicBool::new(false),
            purge: AtomicBool::new(false),
            stop: stop.clone(),
        });
        shared.prepare_descriptors(0);
        let for_thread = shared.clone();
        let thread = Background::start("sf-stock", stop, move || replenish(&for_thread))?;
        Ok(Stock { shared, thread })
    }

    /// Pages before this one are in use from the start on.
    pub fn note_adopted(&self, allocator: &mut Allocator) {
        self.shared.prepare_descriptors(allocator.small().fresh());
    }

    /// Tells what an allocation has left; wakes the thread when the stock runs low.
    pub fn note_used(&self, allocator: &mut Allocator) {
        let zone = allocator.small();
        let fresh = zone.fresh();
        if fresh > self.shared.descriptors_end.load(Ordering::Relaxed) {
            // Somebody is about to touch theirs, 4 KB at a time.
            let end = fresh.next_multiple_of(PageTable::DESCRIPTOR_CHUNK_PAGES);
            self.shared.descriptors_end.store(end, Ordering::Relaxed);
        }
        let is_low = zone.resident_free_pages() < self.shared.stock_pages() / 2
            || self.shared.wants_descriptors(fresh, DESCRIPTORS_AHEAD / 2);
        if is_low && self.shared.how.is_ahead && !self.shared.is_refilling.swap(true, Ordering::Relaxed) {
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
        let discarding = Discarding { extent, next: 0 };
        if extent.page_count >= HUGE_EXTENT_PAGES {
            to_discard.huge.push(discarding);
        } else {
            to_discard.small.push(discarding);
            self.shared.waiting_pages.fetch_add(u64::from(extent.page_count), Ordering::Relaxed);
        }
        drop(to_discard);
        self.thread.wake();
    }

    /// Gives some of an extent back if the thread does not keep up: so freed memory does not pile up.
    pub fn help(&self) {
        if self.shared.waiting_pages.load(Ordering::Relaxed) > WAITING_PAGES_MAX {
            self.shared.discard_some(false);
        }
    }

    /// Gives all freed extents back now, on this thread, and waits for pages that are getting memory.
    pub fn discard_all(&self) {
        while self.shared.discard_some(true) {}
        while self.shared.taken_pages.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(TRIM_PAUSE);
        }
    }

    /// Takes the free pages of a chunk that take no memory, if huge pages may back it: the caller is going to give memory to all
    /// of it.
    pub fn take_empty_in(&self, chunk: u32) -> Option<Vec<Range<u32>>> {
        let takes_huge = self.shared.takes_huge() && self.shared.core.pages.arena().is_none();
        takes_huge.then(|| self.shared.allocator.lock().small().take_empty_in(chunk))
    }

    /// Gives back what was taken so, with memory.
    pub fn give_ready(&self, taken: Vec<Range<u32>>) {
        let mut allocator = self.shared.allocator.lock();
        taken.into_iter().for_each(|pages| allocator.small().give(pages));
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
        sched::give_way();
        if shared.purge.swap(false, Ordering::Relaxed) {
            below = u32::MAX;
            while shared.discard_some(true) || shared.trim(&mut below) {
                sched::give_way();
            }
            shared.core.frames.discard_if_idle(&shared.snapshotter.frame_wish(0));
            continue;
        }
        if shared.is_refilling.swap(false, Ordering::Relaxed) {
            shared.refill_all();
        }
        if shared.discard_some(true) {
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

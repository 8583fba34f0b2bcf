//! How much memory pages may take, how much they do, and who waits until it is less.
//!
//! ```text
//!   resident pages:   0 ............ low ............ high ......... full ..... limit
//!                       nothing to do │ evictor stops  │ evictor begins │ who may wait waits
//! ```
//! Between `full` and the limit is room for what the commands under way allocate: none of them waits in its middle.
//!
//! While the file takes no writes, what is dirty stays. Then memory is full from `high` on for those who store, who are
//! refused, and what is above that, and some beyond the limit (16 MB at most), is left to pages that are read: they are clean,
//! and follow each other.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::conditions::Conditions;
use crate::PageId;

/// The room above each mark, as a part of the limit, and in pages (16 MB at most).
const STEP_PART: u64 = 32;
const STEP_PAGES_MAX: u64 = 4096;
const STEP_PAGES_MIN: u64 = 4;
/// Pages beyond the limit for what is read while nothing can be written, at least.
const BEYOND_PAGES_MIN: u64 = 64;

/// If nothing could be evicted for so long, nobody waits for it any more: the file takes no writes, or commands hold what
/// there is.
const STUCK_AFTER: Duration = Duration::from_millis(500);
/// Who waits for the evictor, while that has waited for so long for a command to end, waits no more: it may be for his own.
/// Memory is exceeded then.
const NO_TURN_AFTER: Duration = Duration::from_secs(1);
/// Whoever waits looks again after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Pages in use, how many of them take memory, and how many may.
pub struct Room {
    /// `u64::MAX`: any number.
    limit_pages: AtomicU64,
    allocated_pages: AtomicU64,
    /// Pages in use that take no memory. For moments pages that are being freed count, so it may be too high.
    absent_pages: AtomicI64,
    /// Pages that are not in use any more and take memory: a thread may still be reading them.
    lingering_pages: AtomicU64,
    /// [`Conditions::EVICTING`]: whether a page has ever been, or is about to be, evicted.
    conditions: Arc<Conditions>,
    /// Nothing could be evicted for a while although there was too much.
    is_stuck: AtomicBool,
    /// The file has not taken the last pages that it was given.
    is_unwritable: AtomicBool,
    /// Since when the evictor has been waiting for members to come between two commands.
    waits_since: Mutex<Option<Instant>>,
    /// The pool closes: nobody waits any more.
    is_closed: AtomicBool,
    /// Runs of pages that stay in memory, `[start, end)`; few.
    kept: RwLock<Vec<(u32, u32)>>,
    evictor: OnceLock<Thread>,
    /// Since when nothing could be evicted.
    idle_since: Mutex<Option<Instant>>,
    changed: Condvar,
    listener: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Whether pages have room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prospect {
    Now,
    /// When others have gone.
    Later,
    /// Nothing can be evicted.
    Never,
}

impl Room {
    pub(crate) fn new(limit_pages: Option<u64>) -> Room {
        Room {
            limit_pages: AtomicU64::new(limit_pages.unwrap_or(u64::MAX)),
            allocated_pages: AtomicU64::new(0),
            absent_pages: AtomicI64::new(0),
            lingering_pages: AtomicU64::new(0),
            conditions: Arc::default(),
            is_stuck: AtomicBool::new(false),
            is_unwritable: AtomicBool::new(false),
            waits_since: Mutex::default(),
            is_closed: AtomicBool::new(false),
            kept: RwLock::default(),
            evictor: OnceLock::new(),
            idle_since: Mutex::default(),
            changed: Condvar::new(),
            listener: OnceLock::new(),
        }
    }

    pub(crate) fn set_limit(&self, limit_pages: Option<u64>) {
        self.limit_pages.store(limit_pages.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.wake_evictor_if_short();
    }

    /// Who is woken when memory runs short.
    pub(crate) fn set_evictor(&self, thread: Thread) {
        let _ = self.evictor.set(thread);
    }

    #[inline]
    pub(crate) fn allocated_pages(&self) -> u64 {
        self.allocated_pages.load(Ordering::Relaxed)
    }

    pub(crate) fn absent_pages(&self) -> u64 {
        self.absent_pages.load(Ordering::Relaxed).max(0) as u64
    }

    /// Pages in use that are in memory.
    #[inline]
    pub fn resident_pages(&self) -> u64 {
        (self.allocated_pages() + self.lingering_pages()).saturating_sub(self.absent_pages())
    }

    #[inline]
    pub(crate) fn lingering_pages(&self) -> u64 {
        self.lingering_pages.load(Ordering::Relaxed)
    }

    /// A page that has been freed keeps its memory for a while.
    pub(crate) fn note_lingering(&self) {
        self.lingering_pages.fetch_add(1, Ordering::Relaxed);
    }

    /// So many of them are absent from now on, until they are free.
    pub(crate) fn note_lingered(&self, page_count: u64) {
        self.note_absent(page_count);
        self.lingering_pages.fetch_sub(page_count, Ordering::Relaxed);
    }

    fn limit(&self) -> u64 {
        self.limit_pages.load(Ordering::Relaxed)
    }

    fn step(&self) -> u64 {
        (self.limit() / STEP_PART).clamp(STEP_PAGES_MIN, STEP_PAGES_MAX)
    }

    /// The limit, less so many steps.
    fn mark(&self, steps: u64) -> u64 {
        self.limit().saturating_sub(self.step().saturating_mul(steps))
    }

    /// Pages are in use from now on, in memory.
    #[inline]
    pub(crate) fn note_allocated(&self, page_count: u32) {
        self.allocated_pages.fetch_add(u64::from(page_count), Ordering::Relaxed);
        self.wake_evictor_if_short();
    }

    pub(crate) fn note_freed(&self, page_count: u32) {
        self.allocated_pages.fetch_sub(u64::from(page_count), Ordering::Relaxed);
    }

    /// Pages take memory no more.
    pub(crate) fn note_absent(&self, page_count: u64) {
        self.absent_pages.fetch_add(page_count as i64, Ordering::Relaxed);
    }

    /// Pages take memory again, or are not in use any more.
    pub(crate) fn note_present(&self, page_count: u64) {
        self.absent_pages.fetch_sub(page_count as i64, Ordering::Relaxed);
        self.wake_evictor_if_short();
    }

    #[inline]
    fn wake_evictor_if_short(&self) {
        if self.limit() != u64::MAX && self.is_short() {
            self.evictor.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// Whether the evictor is to begin.
    pub(crate) fn is_short(&self) -> bool {
        self.resident_pages() > self.mark(2)
    }

    /// Pages to be evicted until the evictor may stop. While nothing can be written only clean ones can go, which have just
    /// been read: they stay as long as there is room for others, or who has asked for one would find it gone.
    pub(crate) fn excess_pages(&self, may_write: bool) -> u64 {
        self.resident_pages().saturating_sub(self.mark(if may_write { 3 } else { 0 }))
    }

    /// Pages that can be brought in ahead of any need.
    pub(crate) fn spare_pages(&self) -> u64 {
        self.mark(3).saturating_sub(self.resident_pages())
    }

    /// Whether whoever is going to store waits for room.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.resident_pages() >= self.mark(if self.is_unwritable() { 2 } else { 1 })
    }

    /// How far pages that are read may fill memory. While nothing can be written, beyond its limit: what is dirty may have
    /// come up to that.
    fn read_mark(&self) -> u64 {
        match self.is_unwritable() {
            true => self
                .limit()
                .saturating_add(self.limit().div_euclid(8).clamp(BEYOND_PAGES_MIN, STEP_PAGES_MAX)),
            false => self.mark(1),
        }
    }

    pub(crate) fn is_unwritable(&self) -> bool {
        self.is_unwritable.load(Ordering::Relaxed)
    }

    /// The file has, or has not, taken pages.
    pub(crate) fn note_written(&self, is_good: bool) {
        self.is_unwritable.store(!is_good, Ordering::Relaxed);
    }

    /// Pages that may be in memory; `None`: all of them.
    pub fn limit_pages(&self) -> Option<u64> {
        Some(self.limit()).filter(|&limit| limit != u64::MAX)
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit() != u64::MAX
    }

    /// Pages may be absent from now on although nobody has freed them.
    pub(crate) fn begin_evicting(&self) {
        self.conditions.set(Conditions::EVICTING, true);
    }

    /// What commands look at before they begin; [`Conditions::FIRST_FREE`] and the bits above it are the caller's.
    pub fn conditions(&self) -> &Arc<Conditions> {
        &self.conditions
    }

    /// Whether a page has ever been, or is about to be, evicted.
    #[inline(always)]
    pub fn evicts(&self) -> bool {
        self.conditions.get() & Conditions::EVICTING != 0
    }

    /// Pages that may be brought in together, so that there is ever going to be room for them: for more, whoever waits would
    /// wait for an evictor that has nothing to do.
    pub(crate) fn batch_pages(&self) -> usize {
        self.step() as usize
    }

    /// Keeps the pages of an object in memory for good, from when they are there on.
    pub fn keep(&self, head: PageId, page_count: u32) {
        self.kept.write().push((head.0, head.0 + page_count));
    }

    pub(crate) fn is_kept(&self, page: PageId) -> bool {
        self.kept.read().iter().any(|&(start, end)| (start..end).contains(&page.0))
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        let _looked_at_under_it = self.idle_since.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Whether so many more pages, a batch at most, have room. If not, the evictor is at work.
    pub(crate) fn look_for(&self, page_count: u64) -> Prospect {
        // The limit may have been lowered since the batch was made.
        if self.resident_pages() + page_count.min(self.step()) <= self.read_mark() {
            return Prospect::Now;
        }
        if self.is_closed.load(Ordering::Relaxed) || self.is_stuck() {
            return Prospect::Never;
        }
        if self.is_stuck.load(Ordering::Relaxed) {
            // There is room for some of them, and for these there will be no more.
            return Prospect::Now;
        }
        if self.is_held_up() {
            return Prospect::Now;
        }
        self.wake_evictor_if_short();
        Prospect::Later
    }

    /// Waits until so many more pages, a batch at most, have room. False if there will be none: nothing can be evicted.
    pub(crate) fn wait_for(&self, page_count: u64) -> bool {
        let mut waiting = self.idle_since.lock();
        loop {
            match self.look_for(page_count) {
                Prospect::Now => return true,
                Prospect::Never => return false,
                Prospect::Later => drop(self.changed.wait_for(&mut waiting, LOOK_AGAIN)),
            }
        }
    }

    /// Who is told, beside those that wait, whenever there may be room.
    pub(crate) fn set_listener(&self, listener: Box<dyn Fn() + Send + Sync>) {
        let _ = self.listener.set(listener);
    }

    /// Runs `wait`, in which the evictor waits for members.
    pub(crate) fn awaiting_turns(&self, wait: impl FnOnce()) {
        *self.waits_since.lock() = Some(Instant::now());
        wait();
        *self.waits_since.lock() = None;
    }

    /// Whether the evictor waits for somebody who does not come.
    fn is_held_up(&self) -> bool {
        self.waits_since.lock().is_some_and(|since| since.elapsed() > NO_TURN_AFTER)
    }

    /// The evictor has been round: something could go, or nothing has to. Nobody is told of an earlier want then.
    pub(crate) fn note_round(&self, is_good: bool) {
        let mut idle_since = self.idle_since.lock();
        *idle_since = if is_good { None } else { Some(idle_since.unwrap_or_else(Instant::now)) };
        let is_stuck = idle_since.is_some_and(|since| since.elapsed() > STUCK_AFTER);
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
        self.changed.notify_all();
        drop(idle_since);
        self.listener.get().into_iter().for_each(|listener| listener());
    }

    /// Whether there is too much in memory and nothing of it can be evicted.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed) && self.resident_pages() >= self.read_mark()
    }

    /// Whether who stores is refused: what he would make dirty could not be evicted.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.is_full() && (self.is_unwritable() || self.is_stuck.load(Ordering::Relaxed))
    }
}

//! What is known of a store's pages as a whole: how many there may be, whether some are missing, whether some are lost.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use stillframe_pagepool::failing::{self, Failure};
use stillframe_pagepool::{is_carrying, Conditions, Pool, PAGE_SIZE};

use crate::leaks::Leaks;
use crate::options::Options;
use crate::shares::MemoryShares;
use crate::stop::Stop;

/// Memory of a page beside its content: its descriptor, its places in the page file, and in the snapshot's tables.
const DESCRIPTOR_BYTES: u64 = 24;
/// What is brought in ahead of a walk is at most this part of the memory.
const AHEAD_PART: usize = 32;
thread_local! {
    /// The operation of this thread is one of a worker that waits for room, and has.
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
    /// Operations of this thread whose memory has been decided on.
    static ADMITTED: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, pages are not refused to its thread for want of memory: that has been decided (C5).
#[must_use]
pub(crate) struct Admitted(PhantomData<*const ()>);

impl Admitted {
    fn begin() -> Admitted {
        ADMITTED.set(ADMITTED.get() + 1);
        Admitted(PhantomData)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        ADMITTED.set(ADMITTED.get() - 1);
    }
}

/// While it lives, pages are refused to its thread where memory is full and nothing in it can go.
#[must_use]
pub(crate) struct Waiting(PhantomData<*const ()>);

impl Waiting {
    pub fn begin() -> Waiting {
        IS_WAITING.set(true);
        Waiting(PhantomData)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        IS_WAITING.set(false);
    }
}

pub(crate) struct Pages {
    pub pool: Arc<Pool>,
    /// Upper bound of memory; 0 is none.
    limit_bytes: AtomicU64,
    /// Upper bound of memory beyond which pages are in the page file alone; 0 is none.
    memory_bytes: AtomicU64,
    /// The same at the start.
    first_memory_bytes: u64,
    /// What snapshots may hold, unless that is too much of the bound.
    snapshot_bytes: u64,
    /// Memory that is taken beside the pool, by what belongs to pages.
    pub beside_bytes: Arc<AtomicU64>,
    /// The pool's.
    conditions: Arc<Conditions>,
    pub leaks: Leaks,
}

impl Pages {
    pub fn new(pool: Arc<Pool>, options: &Options, may_leak: bool) -> Pages {
        Pages {
            conditions: pool.room().conditions().clone(),
            pool,
            limit_bytes: AtomicU64::new(options.maxmemory_bytes),
            memory_bytes: AtomicU64::new(options.bound_bytes()),
            first_memory_bytes: options.bound_bytes(),
            snapshot_bytes: options.snapshot_memory_bytes,
            beside_bytes: Arc::default(),
            leaks: Leaks::new(may_leak),
        }
    }

    /// Memory of the data, as far as it is in memory, and of what is known of the rest.
    pub fn used_bytes(&self) -> u64 {
        self.pool.room().resident_pages() * PAGE_SIZE as u64 + self.side_bytes()
    }

    fn side_bytes(&self) -> u64 {
        self.pool.allocated_pages() * DESCRIPTOR_BYTES + self.beside_bytes.load(Ordering::Relaxed)
    }

    /// As of [`crate::Store::most_memory_bytes`].
    pub fn most_memory_bytes(&self) -> Option<u64> {
        let is_reserved = self.pool.most_memory_pages().is_some();
        is_reserved.then_some(self.first_memory_bytes)
    }

    pub fn set_memory_bytes(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Ordering::Relaxed);
        self.settle_bound();
    }

    /// Leaves pages what the bound leaves them, now that there is so much data. To be called now and then.
    pub fn settle_bound(&self) {
        let shares = self.shares();
        self.pool.set_memory_pages(shares.map(|shares| shares.page_count()));
        self.pool.set_snapshot_memory(shares.map_or(self.snapshot_bytes, |shares| shares.snapshot_bytes));
    }

    /// How the bound of memory is divided now, if there is one.
    pub fn shares(&self) -> Option<MemoryShares> {
        let bytes = self.memory_bytes.load(Ordering::Relaxed);
        MemoryShares::of(bytes, self.snapshot_bytes, self.side_bytes())
    }

    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether `page_count` more pages may be allocated.
    pub fn admit(&self, page_count: u32) -> Result<(), Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let more = u64::from(page_count) * PAGE_SIZE as u64;
        if ADMITTED.get() == 0 && failing::is_refused(Failure::NoMemory) {
            return Err(Stop::OutOfMemory { limit_bytes });
        }
        if limit_bytes != 0 && self.used_bytes() + more > limit_bytes && ADMITTED.get() == 0 {
            return Err(Stop::OutOfMemory { limit_bytes });
        }
        if IS_WAITING.get() && ADMITTED.get() == 0 && self.pool.is_stuck() {
            return Err(Stop::NoRoom);
        }
        Ok(())
    }

    /// Decides on an operation that stores several things of so many bytes together, before the first of them: what comes
    /// after a change must not fail.
    ///
    /// # Errors
    /// [`Stop::OutOfMemory`].
    pub fn admit_together(&self, bytes: u64) -> Result<Admitted, Stop> {
        let page_count = bytes / PAGE_SIZE as u64;
        self.admit(u32::try_from(page_count).unwrap_or(u32::MAX))?;
        Ok(Admitted::begin())
    }

    /// For what takes things away, and for what notes a change that has been made.
    pub fn admit_all(&self) -> Admitted {
        Admitted::begin()
    }

    /// Whether so much is too much to be in memory together, for one command beside others.
    pub fn is_too_large(&self, bytes: u64) -> bool {
        self.check_together(bytes).is_err()
    }

    /// # Errors
    /// [`Stop::LargerThanMemory`]: so much is too much, likewise.
    pub fn check_together(&self, needed_bytes: u64) -> Result<(), Stop> {
        match self.pool.room().limit_pages().map(|most| most / 2 * PAGE_SIZE as u64) {
            Some(most_bytes) if needed_bytes > most_bytes && !is_carrying() => {
                Err(Stop::LargerThanMemory { needed_bytes, most_bytes })
            }
            _ => Ok(()),
        }
    }

    /// So many pages may be brought in ahead of a walk, at most `count`.
    pub fn ahead_pages(&self, count: usize) -> usize {
        let most = self.pool.room().limit_pages().map_or(usize::MAX, |pages| pages as usize / AHEAD_PART);
        count.min(most).max(1)
    }

    /// Whether every page is in memory, so that nothing needs to be asked for.
    #[inline(always)]
    pub fn all_resident(&self) -> bool {
        self.conditions.get() & Conditions::MISSING_PAGES == 0
    }

    /// After a restart: pages may be missing.
    pub fn note_missing(&self) {
        self.conditions.set(Conditions::WARMING_UP, true);
    }

    /// Notes, after a restart, that no page is missing any more.
    #[cold]
    pub fn note_residence(&self) {
        if !self.pool.may_miss_pages() {
            self.conditions.set(Conditions::WARMING_UP, false);
        }
    }
}

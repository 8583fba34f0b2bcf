//! Guards: the doors to a page. Every write goes through [`ExclusiveGuard`].

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot_core::{ParkResult, DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN};

use crate::latch::{Refused, StateWord, Version, Wanted};
use crate::pool::Pool;
use crate::{PageBytes, PageId, Restart, PAGE_SIZE};

/// Attempts before a contended latch parks.
const SPIN_COUNT: u32 = 64;

/// 64-bit words of a page, for content that optimistic readers interpret (inner tree nodes).
type PageWords = [AtomicU64; PAGE_SIZE / 8];

fn acquire(
    word: &StateWord,
    wanted: Wanted,
    attempt: impl Fn() -> Result<(), Refused>,
) -> Result<(), Refused> {
    loop {
        for _ in 0..SPIN_COUNT {
            match attempt() {
                Err(Refused::Held) => std::hint::spin_loop(),
                other => return other,
            }
        }
        park(word, wanted);
    }
}

/// Waits until a page is not being read any more. For threads that may wait for the disk.
pub(crate) fn wait_for_load(word: &StateWord) {
    while park(word, Wanted::EndOfLoad) {}
}

/// Parks while the word refuses what is wanted; false if it does not.
#[cold]
fn park(word: &StateWord, wanted: Wanted) -> bool {
    if !word.announce_waiter(wanted) {
        return false;
    }
    let key = word as *const StateWord as usize;
    // SAFETY: L1: the key is the word's own address, used by nothing else; the callbacks neither panic nor park.
    let _: ParkResult = unsafe {
        parking_lot_core::park(key, || word.still_waiting(), || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None)
    };
    true
}

#[cold]
fn wake(word: &StateWord) {
    let key = word as *const StateWord as usize;
    // SAFETY: L1: as in `park`.
    unsafe { parking_lot_core::unpark_all(key, DEFAULT_UNPARK_TOKEN) };
}

/// Gives up a latch that an allocation took.
pub(crate) fn unlock_and_wake(word: &StateWord) {
    if word.unlock() {
        wake(word);
    }
}

/// Ends a load: the page is in memory now, or could not be read.
pub(crate) fn end_load_and_wake(word: &StateWord, is_good: bool) {
    let is_awaited = if is_good { word.loaded() } else { word.load_failed() };
    if is_awaited {
        wake(word);
    }
}

pub(crate) fn evict_and_wake(word: &StateWord) {
    if word.evict() {
        wake(word);
    }
}

#[inline(always)]
fn words(pool: &Pool, page: PageId) -> &PageWords {
    // SAFETY: M1: in the mapping and aligned to a page. P5: pages whose words are read optimistically are written
    // through these atomics alone.
    unsafe { &*pool.core().address(page).cast::<PageWords>() }
}

/// The state of a page that somebody asks for: its number may have been made up by a damaged file.
#[inline(always)]
fn state(pool: &Pool, page: PageId) -> Result<&StateWord, Restart> {
    match pool.core().try_descriptor(page) {
        Some(descriptor) => Ok(&descriptor.state),
        None => Err(pool.absent(page)),
    }
}

/// A read that takes no latch: words may be torn between writers until [`OptimisticGuard::validate`] says not.
pub struct OptimisticGuard<'p> {
    pool: &'p Pool,
    page: PageId,
    version: Version,
}

impl<'p> OptimisticGuard<'p> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, page: PageId) -> Result<OptimisticGuard<'p>, Restart> {
        let word = state(pool, page)?;
        for _ in 0..SPIN_COUNT {
            match word.read_version() {
                Ok(version) => return Ok(OptimisticGuard { pool, page, version }),
                Err(Refused::Absent) => return Err(pool.absent(page)),
                Err(Refused::Held) => std::hint::spin_loop(),
            }
        }
        // A writer was preempted: queue behind it instead of burning its time.
        drop(SharedGuard::new(pool, page)?);
        Err(Restart::Contended)
    }

    pub fn id(&self) -> PageId {
        self.page
    }

    /// The `index`-th 8-byte word, relaxed. Meaningless before validation.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u64 {
        words(self.pool, self.page)[index].load(Ordering::Relaxed)
    }

    /// All words of the page.
    #[inline(always)]
    pub fn words(&self) -> &'p PageWords {
        words(self.pool, self.page)
    }

    /// Whether what was read is one writer's work.
    ///
    /// # Errors
    /// [`Restart::Contended`] if a writer came in between.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Restart> {
        if self.pool.core().descriptor(self.page).state.validate(self.version) {
            Ok(())
        } else {
            Err(Restart::Contended)
        }
    }

    /// Becomes an exclusive guard if nobody has written since.
    pub fn upgrade(self) -> Result<ExclusiveGuard<'p>, Restart> {
        let guard = ExclusiveGuard::try_new(self.pool, self.page)?;
        if guard.version_before() == self.version {
            Ok(guard)
        } else {
            Err(Restart::Contended)
        }
    }
}

/// Shared access: content does not change while it lives.
pub struct SharedGuard<'p> {
    pool: &'p Pool,
    page: PageId,
}

impl<'p> SharedGuard<'p> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, page: PageId) -> Result<SharedGuard<'p>, Restart> {
        let word = state(pool, page)?;
        match word.try_share() {
            Ok(()) => Ok(SharedGuard { pool, page }),
            Err(_) => match acquire(word, Wanted::Shared, || word.try_share()) {
                Ok(()) => Ok(SharedGuard { pool, page }),
                Err(_) => Err(pool.absent(page)),
            },
        }
    }

    pub fn id(&self) -> PageId {
        self.page
    }

    #[inline(always)]
    pub fn page(&self) -> &PageBytes {
        // SAFETY: P1: the shared latch is held while the borrow lives.
        unsafe { self.pool.core().stable_bytes(self.page) }
    }

    /// Page `index` of the object whose head is latched.
    ///
    /// # Errors
    /// [`Restart::Fault`] if that page is not in memory.
    #[inline(always)]
    pub fn object_page(&self, index: u32) -> Result<&PageBytes, Restart> {
        let page = self.pool.object_page(self.page, index)?;
        // SAFETY: P1: pages of an object are covered by the latch of its head (O1).
        Ok(unsafe { self.pool.core().stable_bytes(page) })
    }
}

impl Drop for SharedGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let word = &self.pool.core().descriptor(self.page).state;
        if word.unshare() {
            wake(word);
        }
    }
}

/// Exclusive access: the only way to modify a page.
pub struct ExclusiveGuard<'p> {
    pool: &'p Pool,
    page: PageId,
}

impl<'p> ExclusiveGuard<'p> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, page: PageId) -> Result<ExclusiveGuard<'p>, Restart> {
        let word = state(pool, page)?;
        match word.try_lock() {
            Ok(()) => Ok(ExclusiveGuard { pool, page }),
            Err(_) => match acquire(word, Wanted::Exclusive, || word.try_lock()) {
                Ok(()) => Ok(ExclusiveGuard { pool, page }),
                Err(_) => Err(pool.absent(page)),
            },
        }
    }

    #[inline(always)]
    pub(crate) fn try_new(pool: &'p Pool, page: PageId) -> Result<ExclusiveGuard<'p>, Restart> {
        match state(pool, page)?.try_lock() {
            Ok(()) => Ok(ExclusiveGuard { pool, page }),
            Err(Refused::Held) => Err(Restart::Contended),
            Err(Refused::Absent) => Err(pool.absent(page)),
        }
    }

    /// Wraps a latch that an allocation took.
    pub(crate) fn allocated(pool: &'p Pool, page: PageId) -> ExclusiveGuard<'p> {
        ExclusiveGuard { pool, page }
    }

    fn version_before(&self) -> Version {
        self.pool.core().descriptor(self.page).state.held_version()
    }

    pub fn id(&self) -> PageId {
        self.page
    }

    #[inline(always)]
    pub fn page(&self) -> &PageBytes {
        // SAFETY: P2: the exclusive latch is held and the borrow is of the guard.
        unsafe { self.pool.core().stable_bytes(self.page) }
    }

    /// The page for modification; the first time in an epoch this captures it for the cuts that need it.
    #[inline(always)]
    pub fn page_mut(&mut self) -> &mut PageBytes {
        self.pool.before_write(self.page);
        // SAFETY: P2: the exclusive latch is held and the guard is borrowed mutably.
        unsafe { &mut *self.pool.core().address(self.page) }
    }

    /// Page `index` of the object whose head is latched.
    ///
    /// # Errors
    /// [`Restart::Fault`] if that page is not in memory.
    #[inline(always)]
    pub fn object_page(&self, index: u32) -> Result<&PageBytes, Restart> {
        let page = self.pool.object_page(self.page, index)?;
        // SAFETY: P2: pages of an object are covered by the latch of its head (O1).
        Ok(unsafe { self.pool.core().stable_bytes(page) })
    }

    /// The same for modification.
    #[inline(always)]
    pub fn object_page_mut(&mut self, index: u32) -> Result<&mut PageBytes, Restart> {
        let page = self.pool.object_page(self.page, index)?;
        self.pool.before_write(page);
        // SAFETY: P2: covered by the head's latch (O1), and the guard is borrowed mutably.
        Ok(unsafe { &mut *self.pool.core().address(page) })
    }

    /// The `index`-th word of a page that is read optimistically.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u64 {
        words(self.pool, self.page)[index].load(Ordering::Relaxed)
    }

    /// Stores a word of a page that is read optimistically; captures the page at its first modification.
    #[inline(always)]
    pub fn set_word(&mut self, index: usize, value: u64) {
        self.pool.before_write(self.page);
        words(self.pool, self.page)[index].store(value, Ordering::Relaxed);
    }

    /// All words, for modification of many.
    #[inline(always)]
    pub fn words_mut(&mut self) -> &PageWords {
        self.pool.before_write(self.page);
        words(self.pool, self.page)
    }

    /// Fills all pages of a new object with zeros.
    pub(crate) fn zero(&mut self, page_count: u32) {
        for index in 0..page_count {
            let page = self.object_page_mut(index).expect("pages of a new object are in memory");
            page.fill(0);
        }
    }

    /// Gives up the latch without unlocking: the caller frees the page.
    pub(crate) fn into_id(self) -> PageId {
        let page = self.page;
        std::mem::forget(self);
        page
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let word = &self.pool.core().descriptor(self.page).state;
        if word.unlock() {
            wake(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::latch::{Refused, StateWord, Wanted};

    #[test]
    fn edges() {
        let word = StateWord::new_evicted();
        assert_eq!(word.try_lock(), Err(Refused::Absent));
        assert_eq!(word.try_share(), Err(Refused::Absent));
        assert!(word.begin_life() && !word.begin_life());
        assert_eq!(word.try_share(), Err(Refused::Held));
        assert!(!word.unlock());
        let version = word.read_version().unwrap();
        assert!(word.try_share().is_ok() && word.try_share().is_ok());
        assert!(word.validate(version), "a shared latch changes nothing");
        assert_eq!(word.try_lock(), Err(Refused::Held));
        assert!(word.announce_waiter(Wanted::Exclusive) && !word.announce_waiter(Wanted::Shared));
        assert!(!word.unshare());
        assert!(word.unshare(), "the last reader wakes the waiting writer");
        assert!(word.try_lock().is_ok() && word.is_resident(), "what is merely latched is in memory");
        assert!(!word.validate(version), "a writer is at it");
        assert!(!word.unlock());
        assert!(!word.validate(version), "a writer has been at it");
        assert!(word.try_lock().is_ok() && !word.evict() && !word.is_resident());
    }

    /// A page that is being read is absent for everybody; only its loader is waited for.
    #[test]
    fn edges_of_a_load() {
        let word = StateWord::new_evicted();
        assert!(!word.announce_waiter(Wanted::EndOfLoad), "nobody loads");
        for is_good in [false, true] {
            assert!(word.begin_load() && !word.begin_load() && !word.begin_life());
            assert!(!word.is_resident());
            assert_eq!(word.try_lock(), Err(Refused::Absent));
            assert_eq!(word.try_share(), Err(Refused::Absent));
            assert_eq!(word.read_version().err(), Some(Refused::Absent));
            assert!(!word.announce_waiter(Wanted::Exclusive) && !word.announce_waiter(Wanted::Shared));
            assert!(word.announce_waiter(Wanted::EndOfLoad) && word.still_waiting());
            assert!(!word.retire(), "a page that is being read is not used again");
            assert!(if is_good { word.loaded() } else { word.load_failed() }, "who waits is woken");
            assert!(!word.still_waiting() && !word.announce_waiter(Wanted::EndOfLoad));
            assert_eq!(word.is_resident(), is_good);
        }
        let version = word.read_version().unwrap();
        assert!(word.try_share().is_ok() && !word.retire() && !word.unshare());
        assert!(word.retire() && !word.is_resident() && !word.validate(version));
        assert!(word.retire(), "what was never read can be retired too");
    }
}

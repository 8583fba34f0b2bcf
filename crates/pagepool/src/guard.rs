//! Guards: the doors to a page. Every write goes through [`ExclusiveGuard`].

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::held::Held;
use crate::page::{
    acquire, prefetch, prefetch_for_write, prefetch_lines, touch_covered, unlock_and_wake, unshare_and_wake,
    Descriptor, PageTable, Place, Refused, Seen, StateWord, Wanted, SPIN_COUNT,
};
use crate::phase::is_looking;
use crate::pool::Pool;
use crate::{PageBytes, PageId, Restart, PAGE_SIZE};

/// 64-bit words of a page, for content that optimistic readers interpret (inner tree nodes).
type PageWords = [AtomicU64; PAGE_SIZE / 8];

/// The descriptor of a page that somebody asks for: its number may have been made up by a damaged file. One that does not exist
/// is absent.
//
// Here and below, what the common way returns is a number or two, and all else is made out of the way: a guard or an error
// that is put together in memory and moved from there is waited for, and so are the reads of pages before it.
#[inline(always)]
fn find(pool: &Pool, page: PageId) -> Result<&Descriptor, Refused> {
    pool.pages().find(page).ok_or(Refused::Absent)
}

/// The descriptor of a page whose latch an attempt takes, if it does at once.
#[inline(always)]
fn latched(
    pool: &Pool,
    page: PageId,
    attempt: impl Fn(&StateWord) -> Result<(), Refused>,
) -> Result<&Descriptor, Refused> {
    find(pool, page).and_then(|descriptor| attempt(&descriptor.state).map(|()| descriptor))
}

#[cold]
#[inline(never)]
fn restart(pool: &Pool, page: PageId, refused: Refused) -> Restart {
    match refused {
        Refused::Held => Restart::Contended,
        Refused::Absent => pool.residency().absent(page),
    }
}

/// Takes a latch that was not to be had at once.
#[cold]
#[inline(never)]
fn wait_for_latch(pool: &Pool, page: PageId, wanted: Wanted) -> Result<&Descriptor, Restart> {
    let taken = latched(pool, page, |word| match wanted {
        Wanted::Shared => acquire(word, wanted, || word.try_share()),
        _ => acquire(word, wanted, || word.try_lock()),
    });
    taken.map_err(|_| pool.residency().absent(page))
}

/// Why a thread that only looks does not get a latch to change the page.
#[cold]
#[inline(never)]
fn only_looks(pool: &Pool, page: PageId) -> Restart {
    match pool.is_resident(page) {
        true => Restart::Looking,
        false => pool.residency().absent(page),
    }
}

/// Indices of the pages of an object that have these bytes.
fn pages_of(start: u64, len_bytes: usize) -> std::ops::Range<u32> {
    (start / PAGE_SIZE as u64) as u32..(start + len_bytes as u64).div_ceil(PAGE_SIZE as u64) as u32
}

/// Where the bytes of an object are whose head is latched, in order: runs of pages that follow each other in memory.
fn object_runs(
    pool: &Pool,
    head: PageId,
    start: u64,
    len_bytes: usize,
) -> Result<Vec<(*mut u8, usize)>, Restart> {
    let end = start + len_bytes as u64;
    let mut runs: Vec<(*mut u8, usize)> = Vec::new();
    for index in pages_of(start, len_bytes) {
        let page = object_page(pool, head, index)?;
        let page_start = u64::from(index) * PAGE_SIZE as u64;
        let from = start.saturating_sub(page_start) as usize;
        let len = (end - page_start).min(PAGE_SIZE as u64) as usize - from;
        let at = pool.pages().byte_address(page, from);
        match runs.last_mut().filter(|(first, len_before)| first.wrapping_add(*len_before) == at) {
            Some((_, len_before)) => *len_before += len,
            None => runs.push((at, len)),
        }
    }
    Ok(runs)
}

/// A page to be read without a latch.
type Found<'p> = (&'p Descriptor, Seen);

/// A read that takes no latch: words may be torn between writers until [`OptimisticGuard::validate`] says not.
//
// What each access wants is looked up once: after the state word has been read, the compiler would read it all again.
pub struct OptimisticGuard<'p> {
    pool: &'p Pool,
    page: PageId,
    descriptor: &'p Descriptor,
    words: &'p PageWords,
    seen: Seen,
}

impl<'p> OptimisticGuard<'p> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, page: PageId) -> Result<OptimisticGuard<'p>, Restart> {
        Held::assert_none();
        OptimisticGuard::read(pool, page, OptimisticGuard::wait)
    }

    #[inline(always)]
    fn try_new(pool: &'p Pool, page: PageId) -> Result<OptimisticGuard<'p>, Restart> {
        OptimisticGuard::read(pool, page, OptimisticGuard::look_closer)
    }

    /// `otherwise` says what of a page of which a glance is not enough.
    #[inline(always)]
    fn read(
        pool: &'p Pool,
        page: PageId,
        otherwise: fn(&'p Pool, PageId) -> Result<Found<'p>, Restart>,
    ) -> Result<OptimisticGuard<'p>, Restart> {
        pool.residency().ask_for(page)?;
        let pages = pool.pages();
        let glance = pages.find(page).and_then(|descriptor| Some((descriptor, descriptor.state.glance()?)));
        let (descriptor, seen) = match glance {
            Some(found) => found,
            None => otherwise(pool, page)?,
        };
        let words = pages.address_at(page, seen.place()).cast::<PageWords>();
        // SAFETY: M1: in the mapping and aligned to a page. P5: pages whose words are read optimistically are written
        // through these atomics alone; R3, R6: the page stays there until the caller's command ends.
        let words = unsafe { &*words };
        Ok(OptimisticGuard { pool, page, descriptor, words, seen })
    }

    fn read_version(pool: &'p Pool, page: PageId) -> Result<Found<'p>, Refused> {
        find(pool, page).and_then(|descriptor| Ok((descriptor, descriptor.state.read_version()?)))
    }

    /// Reads a page that has the clock's mark, or says why it is not to be read now.
    #[cold]
    #[inline(never)]
    fn look_closer(pool: &'p Pool, page: PageId) -> Result<Found<'p>, Restart> {
        OptimisticGuard::read_version(pool, page).map_err(|refused| restart(pool, page, refused))
    }

    /// The same, and waits for a writer.
    #[cold]
    #[inline(never)]
    fn wait(pool: &'p Pool, page: PageId) -> Result<Found<'p>, Restart> {
        for _ in 0..SPIN_COUNT {
            match OptimisticGuard::read_version(pool, page) {
                Ok(found) => return Ok(found),
                Err(Refused::Held) => std::hint::spin_loop(),
                Err(refused) => return Err(restart(pool, page, refused)),
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
        self.words[index].load(Ordering::Relaxed)
    }

    /// All words of the page.
    #[inline(always)]
    pub fn words(&self) -> &'p PageWords {
        self.words
    }

    /// Whether what was read is one writer's work.
    ///
    /// # Errors
    /// [`Restart::Contended`] if a writer came in between.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Restart> {
        if self.descriptor.state.validate(self.seen) {
            Ok(())
        } else {
            Err(Restart::Contended)
        }
    }

    /// Copies `N` bytes, at most 128, of the page from byte `offset` on, all of them within the page, for content that is not
    /// written as words. So the copy is of use as a hint only ([`Pool::peek`]).
    #[inline(always)]
    pub fn peek<const N: usize>(&self, offset: usize, into: &mut [u8; N]) {
        self.pool.pages().peek_at(self.page, self.seen.place(), offset, into);
    }

    /// Hints that these bytes of the page will be read soon: each line of them.
    #[inline(always)]
    pub fn prefetch(&self, bytes: std::ops::Range<usize>) {
        prefetch_lines(std::ptr::from_ref(self.words).cast(), bytes);
    }

    /// Becomes a shared guard, without waiting, if nobody has written since: the page is what it was when this was made.
    ///
    /// # Errors
    /// [`Restart::Contended`] if somebody has, or does, or the page is gone, as one that has been freed.
    #[inline(always)]
    pub fn share(&self) -> Result<SharedGuard<'p>, Restart> {
        if self.descriptor.state.share_seen(self.seen) {
            let OptimisticGuard { pool, page, descriptor, .. } = *self;
            Ok(SharedGuard { pool, page, descriptor, _held: Held::new() })
        } else {
            Err(Restart::Contended)
        }
    }

    /// Becomes an exclusive guard if nobody has written since.
    pub fn upgrade(self) -> Result<ExclusiveGuard<'p>, Restart> {
        let guard = ExclusiveGuard::try_new(self.pool, self.page)?;
        if guard.version_before() == self.seen.place() {
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
    descriptor: &'p Descriptor,
    _held: Held,
}

impl<'p> SharedGuard<'p> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, page: PageId) -> Result<SharedGuard<'p>, Restart> {
        pool.residency().ask_for(page)?;
        let descriptor = match latched(pool, page, StateWord::try_share) {
            Ok(descriptor) => descriptor,
            Err(_) => wait_for_latch(pool, page, Wanted::Shared)?,
        };
        Ok(SharedGuard { pool, page, descriptor, _held: Held::new() })
    }

    pub fn id(&self) -> PageId {
        self.page
    }

    #[inline(always)]
    pub fn page(&self) -> &PageBytes {
        // SAFETY: M1: in the mapping. P1: the shared latch is held while the borrow lives.
        unsafe { &*self.pool.pages().address_by(self.page, self.descriptor) }
    }

    /// Page `index` of the object whose head is latched.
    ///
    /// # Errors
    /// [`Restart::Fault`] if that page is not in memory.
    #[inline(always)]
    pub fn object_page(&self, index: u32) -> Result<&PageBytes, Restart> {
        let page = object_page(self.pool, self.page, index)?;
        // SAFETY: P1: pages of an object are covered by the latch of its head (O1).
        Ok(unsafe { self.pool.pages().stable_bytes(page) })
    }
}

impl SharedGuard<'_> {
    /// `len_bytes` from byte `start` of the object whose head is latched, in as few parts as they have in memory: at most
    /// one a page.
    ///
    /// # Errors
    /// [`Restart::Fault`] if a page of them is not in memory.
    pub fn object_parts(&self, start: u64, len_bytes: usize) -> Result<Vec<IoSlice<'_>>, Restart> {
        let runs = object_runs(self.pool, self.page, start, len_bytes)?;
        // SAFETY: M1: the pages of a run follow each other in the mapping. P1: all of them are covered by the head's latch
        // (O1), which is held while the borrow lives.
        let part =
            |(from, len): (*mut u8, usize)| IoSlice::new(unsafe { std::slice::from_raw_parts(from, len) });
        Ok(runs.into_iter().map(part).collect())
    }
}

impl Drop for SharedGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        unshare_and_wake(&self.descriptor.state);
    }
}

/// Exclusive access: the only way to modify a page.
pub struct ExclusiveGuard<'p> {
    pool: &'p Pool,
    page: PageId,
    descriptor: &'p Descriptor,
    _held: Held,
}

impl<'p> ExclusiveGuard<'p> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool, page: PageId) -> Result<ExclusiveGuard<'p>, Restart> {
        if is_looking() {
            return Err(only_looks(pool, page));
        }
        pool.residency().ask_for(page)?;
        let descriptor = match latched(pool, page, StateWord::try_lock) {
            Ok(descriptor) => descriptor,
            Err(_) => wait_for_latch(pool, page, Wanted::Exclusive)?,
        };
        Ok(ExclusiveGuard { pool, page, descriptor, _held: Held::new() })
    }

    #[inline(always)]
    pub(crate) fn try_new(pool: &'p Pool, page: PageId) -> Result<ExclusiveGuard<'p>, Restart> {
        if is_looking() {
            return Err(only_looks(pool, page));
        }
        pool.residency().ask_for(page)?;
        match latched(pool, page, StateWord::try_lock) {
            Ok(descriptor) => Ok(ExclusiveGuard { pool, page, descriptor, _held: Held::new() }),
            Err(refused) => Err(restart(pool, page, refused)),
        }
    }

    /// Wraps a latch that an allocation took.
    pub(crate) fn allocated(pool: &'p Pool, page: PageId) -> ExclusiveGuard<'p> {
        ExclusiveGuard { pool, page, descriptor: pool.pages().descriptor(page), _held: Held::new() }
    }

    #[inline(always)]
    fn version_before(&self) -> Place {
        self.descriptor.state.held_version()
    }

    /// As [`before_write`], of the page itself.
    #[inline(always)]
    fn before_write(&self) {
        if self.descriptor.epochs.is_first_write(self.pool.core().epoch()) {
            first_write(self.pool, self.page, self.page);
        }
    }

    pub fn id(&self) -> PageId {
        self.page
    }

    #[inline(always)]
    pub fn page(&self) -> &PageBytes {
        // SAFETY: M1: in the mapping. P2: the exclusive latch is held and the borrow is of the guard.
        unsafe { &*self.pool.pages().address_by(self.page, self.descriptor) }
    }

    /// The page for modification; the first time in an epoch this captures it for the cuts that need it.
    #[inline(always)]
    pub fn page_mut(&mut self) -> &mut PageBytes {
        self.before_write();
        // SAFETY: M1: in the mapping. P2: the exclusive latch is held and the guard is borrowed mutably.
        unsafe { &mut *self.pool.pages().address_by(self.page, self.descriptor) }
    }

    /// Page `index` of the object whose head is latched.
    ///
    /// # Errors
    /// [`Restart::Fault`] if that page is not in memory.
    #[inline(always)]
    pub fn object_page(&self, index: u32) -> Result<&PageBytes, Restart> {
        let page = object_page(self.pool, self.page, index)?;
        // SAFETY: P2: pages of an object are covered by the latch of its head (O1).
        Ok(unsafe { self.pool.pages().stable_bytes(page) })
    }

    /// The same for modification.
    #[inline(always)]
    pub fn object_page_mut(&mut self, index: u32) -> Result<&mut PageBytes, Restart> {
        let page = object_page(self.pool, self.page, index)?;
        before_write(self.pool, self.page, page);
        // SAFETY: P2: covered by the head's latch (O1), and the guard is borrowed mutably.
        Ok(unsafe { &mut *self.pool.pages().address(page) })
    }

    /// Whether a cut needs the content of any of these pages of the object whose head is latched, so that modifying them
    /// costs copies. They are in memory.
    pub fn would_capture(&self, pages: std::ops::Range<u32>) -> bool {
        pages.into_iter().any(|index| would_capture(self.pool, PageId(self.page.0 + index)))
    }

    /// `len_bytes` from byte `start` of the object whose head is latched, for modification, in as few parts as they have in
    /// memory: at most one a page.
    ///
    /// # Errors
    /// [`Restart::Fault`] if a page of them is not in memory.
    pub fn object_parts_mut(&mut self, start: u64, len_bytes: usize) -> Result<Vec<IoSliceMut<'_>>, Restart> {
        for index in pages_of(start, len_bytes) {
            object_page(self.pool, self.page, index)?;
        }
        for index in pages_of(start, len_bytes) {
            before_write(self.pool, self.page, PageId(self.page.0 + index));
        }
        // Where they are is known now: a page may lie in another frame before its first modification than after it.
        let runs = object_runs(self.pool, self.page, start, len_bytes)?;
        let part = |(from, len): (*mut u8, usize)| {
            // SAFETY: M1: the pages of a run follow each other in the mapping, and none is in two runs. P2: all of them are
            // covered by the head's latch (O1) and were captured if need be, and the guard is borrowed mutably.
            IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(from, len) })
        };
        Ok(runs.into_iter().map(part).collect())
    }

    /// The `index`-th word of a page that is read optimistically.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u64 {
        self.words()[index].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn words(&self) -> &PageWords {
        let words = self.pool.pages().address_by(self.page, self.descriptor).cast::<PageWords>();
        // SAFETY: M1: in the mapping and aligned to a page. P5: pages whose words are read optimistically are written
        // through these atomics alone; the exclusive latch, which is held while the borrow lives, keeps the page there.
        unsafe { &*words }
    }

    /// Stores a word of a page that is read optimistically; captures the page at its first modification.
    #[inline(always)]
    pub fn set_word(&mut self, index: usize, value: u64) {
        self.before_write();
        self.words()[index].store(value, Ordering::Relaxed);
    }

    /// All words, for modification of many.
    #[inline(always)]
    pub fn words_mut(&mut self) -> &PageWords {
        self.before_write();
        self.words()
    }

    /// Fills new pages of an object with zeros.
    pub(crate) fn zero(&mut self, pages: std::ops::Range<u32>) {
        for index in pages {
            let page = self.object_page_mut(index).expect("new pages of an object are in memory");
            page.fill(0);
        }
    }

    /// Gives up the latch without unlocking: the caller frees the page.
    pub(crate) fn into_id(self) -> PageId {
        let page = self.page;
        if self.pool.core().tells_writes {
            // What is freed is not told of.
            drop(written::take(self.pool, page));
        }
        std::mem::forget(self);
        Held::give_up();
        page
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.pool.core().tells_writes {
            tell_written(self.pool, self.page);
        }
        unlock_and_wake(&self.descriptor.state);
    }
}

impl Pool {
    /// Reads a page without a latch. May wait for a writer, so for a thread that holds no latch (L1, asserted in debug
    /// builds); others use [`Pool::try_optimistic`].
    ///
    /// # Errors
    /// [`Restart`]: run the operation again, after loading the page if it says so.
    #[inline(always)]
    pub fn optimistic(&self, page: PageId) -> Result<OptimisticGuard<'_>, Restart> {
        OptimisticGuard::new(self, page)
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// [`Restart`]; [`Restart::Contended`] if somebody writes.
    #[inline(always)]
    pub fn try_optimistic(&self, page: PageId) -> Result<OptimisticGuard<'_>, Restart> {
        OptimisticGuard::try_new(self, page)
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

    /// Hints of what is going to be looked at.
    #[inline(always)]
    pub fn hints(&self) -> Hints<'_> {
        Hints(&self.core().pages)
    }

    /// Copies `N` bytes, at most 128, of a page from byte `offset` on, all of them within the page, without a latch: others
    /// may be writing them. So the copy is of use as a hint only. False if the page is not in memory.
    #[inline(always)]
    #[must_use]
    pub fn peek<const N: usize>(&self, page: PageId, offset: usize, into: &mut [u8; N]) -> bool {
        self.pages().peek(page, offset, into)
    }
}

/// Tells the processor what is going to be looked at. A hint that is wrong costs nothing.
#[derive(Clone, Copy)]
pub struct Hints<'p>(pub(crate) &'p PageTable);

impl Hints<'_> {
    /// Hints that byte `offset` from the start of a page on will be read soon.
    #[inline(always)]
    pub fn read(&self, page: PageId, offset: usize) {
        prefetch(self.0.hint_address(page, offset).cast());
    }

    /// The same of bytes of one page. What is asked for depends on the page's state word, where pages lie in frames:
    /// that is waited for, unless it was asked for a while ago ([`Hints::version`]).
    #[inline(always)]
    pub fn lines(&self, page: PageId, bytes: std::ops::Range<usize>) {
        prefetch_lines(self.0.hint_address(page, 0).cast(), bytes);
    }

    /// As [`Hints::read`], and written.
    #[inline(always)]
    pub fn write(&self, page: PageId, offset: usize) {
        prefetch_for_write(self.0.hint_address(page, offset).cast());
    }

    /// Hints that a page will be read optimistically soon.
    #[inline(always)]
    pub fn version(&self, page: PageId) {
        prefetch(self.0.descriptor_address(page).cast());
    }

    /// Hints that a page will be latched soon, which writes its state word.
    #[inline(always)]
    pub fn latch(&self, page: PageId) {
        prefetch_for_write(self.0.descriptor_address(page).cast());
    }
}

/// Page `index` of an object whose head is latched.
#[inline(always)]
fn object_page(pool: &Pool, head: PageId, index: u32) -> Result<PageId, Restart> {
    let page = PageId(head.0.saturating_add(index));
    pool.residency().ask_for(page)?;
    if index == 0 || pool.pages().try_descriptor(page).is_some_and(|d| touch_covered(&d.state)) {
        Ok(page)
    } else {
        Err(pool.residency().absent_part(page))
    }
}

/// Captures a page, under the latch of `head`, for running snapshots if this is its first modification since the last cut.
#[inline(always)]
fn before_write(pool: &Pool, head: PageId, page: PageId) {
    if pool.pages().descriptor(page).epochs.is_first_write(pool.core().epoch()) {
        first_write(pool, head, page);
    }
}

fn would_capture(pool: &Pool, page: PageId) -> bool {
    let core = pool.core();
    core.pages.descriptor(page).epochs.is_first_write(core.epoch())
        && pool.snapshotter().would_capture(core, page)
}

#[cold]
fn first_write(pool: &Pool, head: PageId, page: PageId) {
    pool.snapshotter().before_first_write(pool.core(), page);
    pool.pages().descriptor(page).epochs.set_written(pool.core().epoch());
    // What the page file has is the content of cuts alone from now on.
    if let Some(file) = pool.file() {
        file.forget_location(page);
    }
    if pool.core().tells_writes {
        written::note(pool, head, page);
    }
}

/// Tells the algorithm what has been modified under the latch of `head`, which is about to be given up.
#[cold]
#[inline(never)]
fn tell_written(pool: &Pool, head: PageId) {
    let told = written::take(pool, head);
    told.into_iter().for_each(|page| pool.snapshotter().after_write(pool.core(), page));
}

/// What each thread has modified under latches that it holds, where the algorithm wants to be told: no guard has room for it.
mod written {
    use std::cell::RefCell;

    use super::{PageId, Pool};

    struct Written {
        /// The address of the pool, of which a guard borrows.
        pool: usize,
        head: PageId,
        page: PageId,
    }

    thread_local! {
        static WRITTEN: RefCell<Vec<Written>> = const { RefCell::new(Vec::new()) };
    }

    fn address(pool: &Pool) -> usize {
        std::ptr::from_ref(pool) as usize
    }

    pub fn note(pool: &Pool, head: PageId, page: PageId) {
        WRITTEN.with_borrow_mut(|written| written.push(Written { pool: address(pool), head, page }));
    }

    /// Pages that have been noted under the latch of `head`, not noted any more.
    pub fn take(pool: &Pool, head: PageId) -> Vec<PageId> {
        WRITTEN.with_borrow_mut(|written| {
            let mut taken = Vec::new();
            written.retain(|entry| {
                let is_kept = entry.pool != address(pool) || entry.head != head;
                if !is_kept {
                    taken.push(entry.page);
                }
                is_kept
            });
            taken
        })
    }
}

//! Bringing pages in from the page file: on demand for commands, and all of them in the background (warm-up).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::core::{Descriptor, Epoch};
use crate::guard::{end_load_and_wake, wait_for_load};
use crate::pagefile::{PageError, PageFile};
use crate::snapshot::Extent;
use crate::{PageBytes, PageId, Pool, PoolError, Restart, PAGE_SIZE};

/// Threads that load what commands wait for.
const LOADER_COUNT: usize = 2;
/// Pages that the warm-up brings in at once (8 MB): large batches read through the gaps of a fragmented file.
const WARM_UP_PAGES: usize = 2048;

/// How often a read that fails is tried before its page counts as unreadable.
const READ_ATTEMPTS: u32 = 3;
/// After so long a page that could not be read is read again when somebody asks for it.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Why a page is not in memory although it was to be brought in.
struct Damage {
    reason: Arc<str>,
    /// Nothing is known about the page but that the device failed: that may pass.
    failed_at: Option<Instant>,
}

impl Damage {
    fn may_have_passed(&self) -> bool {
        self.failed_at.is_some_and(|at| at.elapsed() > READ_AGAIN)
    }
}

/// Pages of the last checkpoint that are neither in memory nor can be brought in.
#[derive(Clone, Default, Debug)]
pub struct DamagedPages {
    pub page_count: usize,
    /// What is wrong with some of them.
    pub examples: Vec<Arc<str>>,
}

/// Reasons that [`Pool::damaged_pages`] gives.
const EXAMPLE_COUNT: usize = 8;

struct Request {
    pages: Vec<PageId>,
    done: Box<dyn FnOnce() + Send>,
}

/// State of loading; part of the pool.
#[derive(Default)]
pub struct Loading {
    /// Where requests go while loader threads run, which is until the warm-up has ended.
    requests: Mutex<Option<Sender<Request>>>,
    warming_up: AtomicBool,
    stop: AtomicBool,
    warm_pages: AtomicU64,
    total_pages: AtomicU64,
    /// Pages that could not be read.
    damaged: Mutex<HashMap<PageId, Damage>>,
    any_damaged: AtomicBool,
    /// Objects that were freed while a loader read into one of their pages.
    deferred_frees: Mutex<Vec<Extent>>,
    any_deferred: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// To be told of the end of the warm-up.
    awaiting_warmth: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Loading {
    /// Called after the end of the warm-up.
    fn tell_of_warmth(&self) {
        let waiting = std::mem::take(&mut *self.awaiting_warmth.lock());
        waiting.into_iter().for_each(|done| done());
    }

    fn note_damage(&self, error: &PageError) {
        let failed_at = matches!(error, PageError::Device { .. }).then(Instant::now);
        let damage = Damage { reason: error.to_string().into(), failed_at };
        self.damaged.lock().insert(error.pid(), damage);
        self.any_damaged.store(true, Ordering::Release);
    }

    /// These pages have been read.
    fn forget_damage(&self, pages: impl Iterator<Item = PageId>) {
        if self.any_damaged.load(Ordering::Acquire) {
            let mut damaged = self.damaged.lock();
            pages.for_each(|page| drop(damaged.remove(&page)));
        }
    }

    /// What `look` makes of the damage of a page, if that could not be brought in.
    fn damage<T>(&self, page: PageId, look: impl FnOnce(&Damage) -> T) -> Option<T> {
        if !self.any_damaged.load(Ordering::Acquire) {
            return None;
        }
        self.damaged.lock().get(&page).map(look)
    }

    /// Puts off the rest of a free until loaders have let go of the extent.
    pub fn defer_free(&self, extent: Extent) {
        self.deferred_frees.lock().push(extent);
        self.any_deferred.store(true, Ordering::Release);
    }

    fn take_deferred_frees(&self) -> Vec<Extent> {
        let mut deferred = self.deferred_frees.lock();
        self.any_deferred.store(false, Ordering::Release);
        std::mem::take(&mut deferred)
    }

    pub fn is_warming_up(&self) -> bool {
        self.warming_up.load(Ordering::Acquire)
    }

    /// Pages brought in so far, and of how many.
    pub fn progress(&self) -> (u64, u64) {
        (self.warm_pages.load(Ordering::Relaxed), self.total_pages.load(Ordering::Relaxed))
    }

    /// Ends all threads.
    pub fn shut_down(&self) {
        self.stop.store(true, Ordering::Release);
        *self.requests.lock() = None;
        let this = std::thread::current().id();
        for thread in self.threads.lock().drain(..).filter(|thread| thread.thread().id() != this) {
            // A loader that panicked has nothing to give back.
            let _ = thread.join();
        }
    }
}

/// Pages of the file that were taken for loading, as exclusive buffers.
struct Taken<'p> {
    pool: &'p Pool,
    buffers: Vec<(PageId, &'p mut PageBytes)>,
}

impl<'p> Taken<'p> {
    fn new(pool: &'p Pool) -> Taken<'p> {
        Taken { pool, buffers: Vec::with_capacity(WARM_UP_PAGES) }
    }

    /// EVICTED → LOADING, if the page is as the checkpoint left it: neither resident nor freed since.
    fn add(&mut self, page: PageId) {
        let Some(descriptor) = self.pool.core().try_descriptor(page) else { return };
        if !descriptor.state.begin_load() {
            return;
        }
        if !is_as_checkpointed(descriptor) {
            end_load_and_wake(&descriptor.state, false);
            return;
        }
        // SAFETY: P2: nobody but this loader touches the page until `finish`; each is added once, because it stays
        // LOADING.
        let buffer = unsafe { &mut *self.pool.core().address(page) };
        self.buffers.push((page, buffer));
    }

    /// Reads and verifies; good pages become available, bad ones are remembered as damaged (D3).
    fn finish(mut self, file: &PageFile) {
        if let [(first, _), .., (last, _)] = &self.buffers[..] {
            let range = first.0 as usize * PAGE_SIZE..(last.0 as usize + 1) * PAGE_SIZE;
            if range.len() <= 2 * self.buffers.len() * PAGE_SIZE {
                self.pool.core().memory().populate(range.start, range.len());
            }
        }
        let errors = self.read_patiently(file);
        let loading = self.pool.loading();
        errors.iter().for_each(|error| loading.note_damage(error));
        let is_bad = |page: PageId| errors.iter().any(|error| error.pid() == page);
        loading.forget_damage(self.buffers.iter().map(|(page, _)| *page).filter(|page| !is_bad(*page)));
        for (page, _) in &self.buffers {
            end_load_and_wake(&self.pool.core().descriptor(*page).state, !is_bad(*page));
        }
        self.pool.finish_deferred_frees();
    }
}

impl Taken<'_> {
    /// Reads the pages, those that the device could not read once more. Returns what is wrong with those that failed.
    fn read_patiently(&mut self, file: &PageFile) -> Vec<PageError> {
        let mut errors = file.read_pages(&mut self.buffers);
        for _ in 1..READ_ATTEMPTS {
            let (failed, others): (Vec<_>, Vec<_>) =
                errors.into_iter().partition(|error| matches!(error, PageError::Device { .. }));
            errors = others;
            if failed.is_empty() {
                break;
            }
            let failed: HashSet<PageId> = failed.iter().map(PageError::pid).collect();
            let again = self.buffers.iter_mut().filter(|(page, _)| failed.contains(page));
            errors.extend(again.filter_map(|(page, buffer)| file.read_page(*page, buffer).err()));
        }
        errors
    }
}

/// Whether a page has been neither modified nor freed since the process started.
fn is_as_checkpointed(descriptor: &Descriptor) -> bool {
    descriptor.epochs.written() == Epoch(0) && descriptor.epochs.freed().is_none()
}

impl Pool {
    /// Brings pages in, now, on this thread, and waits for those that others are bringing in. One that is damaged or not
    /// mapped says so to whoever asks for it then.
    pub fn load(&self, pages: &[PageId]) {
        self.load_absent(pages);
        let states = pages.iter().filter_map(|&page| self.core().try_descriptor(page));
        states.for_each(|descriptor| wait_for_load(&descriptor.state));
    }

    fn load_absent(&self, pages: &[PageId]) {
        let Some(file) = self.file() else { return };
        for batch in pages.chunks(WARM_UP_PAGES) {
            let mut taken = Taken::new(self);
            batch.iter().for_each(|&page| taken.add(page));
            taken.finish(file);
        }
    }

    /// Goes on with frees that loaders held up.
    #[inline]
    pub(crate) fn finish_deferred_frees(&self) {
        if self.loading().any_deferred.load(Ordering::Acquire) {
            self.loading().take_deferred_frees().into_iter().for_each(|extent| self.finish_free(extent));
        }
    }

    /// Brings pages in on another thread and calls `done` from there.
    pub fn load_in_background(&self, pages: Vec<PageId>, done: Box<dyn FnOnce() + Send>) {
        let request = Request { pages, done };
        let refused = match &*self.loading().requests.lock() {
            Some(sender) => sender.send(request).err().map(|error| error.0),
            None => Some(request),
        };
        if let Some(request) = refused {
            // The warm-up has ended: what is still missing is damaged, or was freed.
            self.load(&request.pages);
            (request.done)();
        }
    }

    /// Whether pages of the last checkpoint are still to be brought in.
    #[inline]
    pub fn is_warming_up(&self) -> bool {
        self.loading().is_warming_up()
    }

    /// Whether any page has ever been found damaged or unreadable.
    pub fn has_damage(&self) -> bool {
        self.loading().any_damaged.load(Ordering::Acquire)
    }

    /// Pages that the warm-up has brought in, and of how many.
    pub fn warm_up_progress(&self) -> (u64, u64) {
        self.loading().progress()
    }

    /// Calls `done` once the warm-up has ended, at once if it has; not at all if the pool closes before.
    pub fn when_warm(&self, done: Box<dyn FnOnce() + Send>) {
        self.loading().awaiting_warmth.lock().push(done);
        if !self.is_warming_up() {
            self.loading().tell_of_warmth();
        }
    }

    /// Waits until the warm-up has ended.
    pub fn wait_until_warm(&self) {
        while self.is_warming_up() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[cold]
    pub(crate) fn absent(&self, page: PageId) -> Restart {
        match self.damage_in_place(page) {
            Some(_) if self.may_have_passed(page) => Restart::Fault(page),
            Some(reason) => Restart::Damaged(reason),
            None => Restart::Fault(page),
        }
    }

    /// Whether a page in use is not in memory and is worth loading: it is not known to be damaged, or is to be tried again.
    pub fn is_missing(&self, page: PageId) -> bool {
        !self.is_resident(page) && matches!(self.absent(page), Restart::Fault(_))
    }

    /// Whether a page that could not be read is worth another try.
    fn may_have_passed(&self, page: PageId) -> bool {
        self.loading().damage(page, Damage::may_have_passed).unwrap_or(false)
    }

    /// Why a page in use is not in memory although it was tried, if so.
    pub(crate) fn damage_in_place(&self, page: PageId) -> Option<Arc<str>> {
        let Some(descriptor) = self.core().try_descriptor(page) else {
            return Some(format!("there is no page {}: what refers to it is damaged", page.0).into());
        };
        // The page may have been freed, and used again, since it was found damaged.
        let reason = self.loading().damage(page, |damage| damage.reason.clone());
        reason.filter(|_| is_as_checkpointed(descriptor))
    }

    /// Why a page cannot be read as of a view's cut, after another try if that is worth it. Waits for the disk. The
    /// page may have been freed since the cut, but not used again.
    pub(crate) fn damage_at_cut(&self, page: PageId) -> Option<Arc<str>> {
        let descriptor =
            self.core().try_descriptor(page).filter(|descriptor| descriptor.epochs.freed().is_some());
        if let Some(freed) = descriptor {
            let reason = self.loading().damage(page, |damage| damage.reason.clone());
            return reason.filter(|_| freed.epochs.written() == Epoch(0));
        }
        self.damage_in_place(page)?;
        if self.may_have_passed(page) {
            self.load(&[page]);
        }
        self.damage_in_place(page)
    }

    /// What is in use and cannot be read. Pages that have been written or freed since are not among them: the next
    /// checkpoint has them whole, or not at all.
    pub fn damaged_pages(&self) -> DamagedPages {
        let mut found = DamagedPages::default();
        if !self.has_damage() {
            return found;
        }
        let mut damaged = self.loading().damaged.lock();
        // A view may still ask for one that has been freed.
        let descriptor = |page: &PageId| self.core().try_descriptor(*page);
        damaged.retain(|page, _| descriptor(page).is_some_and(|page| page.epochs.written() == Epoch(0)));
        let in_use = damaged.iter().filter(|(page, _)| descriptor(page).is_some_and(is_as_checkpointed));
        found.page_count = in_use.clone().count();
        found.examples = in_use.take(EXAMPLE_COUNT).map(|(_, damage)| damage.reason.clone()).collect();
        found
    }

    /// Starts loaders and the warm-up for what the page file holds.
    pub(crate) fn start_loading(self: &Arc<Self>, page_count: u64) -> Result<(), PoolError> {
        let loading = self.loading();
        loading.total_pages.store(page_count, Ordering::Relaxed);
        loading.warming_up.store(true, Ordering::Release);
        let (sender, receiver) = channel();
        *loading.requests.lock() = Some(sender);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = loading.threads.lock();
        for number in 0..LOADER_COUNT {
            let (pool, receiver) = (Arc::downgrade(self), receiver.clone());
            threads.push(spawn(&format!("sf-load-{number}"), move || serve(&pool, &receiver))?);
        }
        let pool = Arc::downgrade(self);
        threads.push(spawn("sf-warm-up", move || warm_up(&pool))?);
        Ok(())
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, PoolError> {
    std::thread::Builder::new().name(name.into()).spawn(body).map_err(PoolError::Thread)
}

fn serve(pool: &Weak<Pool>, receiver: &Mutex<Receiver<Request>>) {
    loop {
        let Ok(request) = receiver.lock().recv() else { return };
        if let Some(pool) = pool.upgrade() {
            pool.load(&request.pages);
        }
        (request.done)();
    }
}

/// Brings in every page of the checkpoint, in order of the file's map.
fn warm_up(pool: &Weak<Pool>) {
    let Some(strong) = pool.upgrade() else { return };
    let Some(file) = strong.file().cloned() else { return };
    let mut runs = Vec::new();
    file.for_each_mapped(|first, count| runs.push((first, count)));
    drop(strong);
    let pages = runs.iter().flat_map(|&(first, count)| (first.0..first.0 + count).map(PageId));
    let mut batch = Vec::with_capacity(WARM_UP_PAGES);
    let bring_in = |batch: &mut Vec<PageId>| {
        let Some(pool) = pool.upgrade().filter(|pool| !pool.loading().stop.load(Ordering::Acquire)) else {
            return false;
        };
        // Waits for what others are reading: the warm-up ends when every page of the checkpoint is in memory or known
        // to be damaged.
        pool.load(batch);
        pool.loading().warm_pages.fetch_add(batch.len() as u64, Ordering::Relaxed);
        batch.clear();
        true
    };
    for page in pages {
        batch.push(page);
        if batch.len() == WARM_UP_PAGES && !bring_in(&mut batch) {
            return;
        }
    }
    if bring_in(&mut batch) {
        if let Some(pool) = pool.upgrade() {
            pool.loading().warming_up.store(false, Ordering::Release);
            *pool.loading().requests.lock() = None;
            pool.loading().tell_of_warmth();
        }
    }
}

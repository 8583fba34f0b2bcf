//! Bringing pages in from the page file: on demand for commands, and all of them that there is room for in the background
//! (warm-up).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use super::damage::{DamageLog, DamagedPages};
use super::desk::{Desk, Request};
use super::room::Room;
use super::supply::Supply;
use crate::device::PageBuf;
use crate::failing::{self, Met};
use crate::page::{end_load_and_wake, wait_for_move, Descriptor, Epoch, Loaded};
use crate::pagefile::{PageError, PageFile};
use crate::phase::is_carrying;
use crate::reason::Reason;
use crate::sched::{self, promptly};
use crate::snapshot::{Core, Spill, SpilledImage};
use crate::space::CHUNK_PAGES;
use crate::{PageBytes, PageId, PoolError, Restart};

/// Pages that the warm-up brings in at once (8 MB): large batches read through the gaps of a fragmented file.
const WARM_UP_PAGES: usize = 2048;

/// Which pages are in memory, and how the others get there.
pub struct Residency {
    pub(super) core: Arc<Core>,
    supply: Arc<Supply>,
    file: Option<Arc<PageFile>>,
    pub(super) room: Arc<Room>,
    /// Where requests go while the threads of `stream.rs` run.
    pub(super) desk: Arc<Desk>,
    warming_up: AtomicBool,
    stop: AtomicBool,
    warm_pages: AtomicU64,
    total_pages: AtomicU64,
    /// Pages that could not be read.
    damage: DamageLog,
    /// What a test has met whose operations fail.
    met: Met,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// To be told of the end of the warm-up.
    awaiting_warmth: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Residency {
    /// Of a pool whose pages, but for those that it allocates, are in `file`.
    pub(crate) fn new(
        core: Arc<Core>,
        supply: Arc<Supply>,
        room: Arc<Room>,
        file: Option<Arc<PageFile>>,
    ) -> Residency {
        Residency {
            core,
            supply,
            file,
            room,
            desk: Arc::default(),
            warming_up: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            warm_pages: AtomicU64::new(0),
            total_pages: AtomicU64::new(0),
            damage: DamageLog::default(),
            met: Met::default(),
            threads: Mutex::default(),
            awaiting_warmth: Mutex::default(),
        }
    }

    /// The page file, if there is one.
    pub(crate) fn file(&self) -> Option<&Arc<PageFile>> {
        self.file.as_ref()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn met(&self) -> &Met {
        &self.met
    }

    /// What a test lets fail of the accesses to a page.
    ///
    /// # Errors
    /// [`Restart::Fault`], [`Restart::Damaged`]: it fails here.
    #[inline(always)]
    pub(crate) fn ask_for(&self, page: PageId) -> Result<(), Restart> {
        // In memory, and need not be.
        let may_fail = || self.core.pages.is_resident(page) && !self.room.is_kept(page);
        failing::ask_for(&self.met, page, may_fail)
    }

    fn is_warmth_awaited(&self) -> bool {
        !self.awaiting_warmth.lock().is_empty()
    }

    /// Called after the end of the warm-up.
    fn tell_of_warmth(&self) {
        let waiting = std::mem::take(&mut *self.awaiting_warmth.lock());
        waiting.into_iter().for_each(|done| done());
    }

    fn end_warm_up(&self) {
        if self.room.is_limited() && self.room.absent_pages() > 0 {
            self.core.pages.avoid_huge();
            self.room.begin_evicting();
        }
        self.warming_up.store(false, Ordering::Release);
        self.tell_of_warmth();
    }

    /// Whether pages of the last checkpoint are still to be brought in.
    #[inline]
    pub fn is_warming_up(&self) -> bool {
        self.warming_up.load(Ordering::Acquire)
    }

    /// Pages that the warm-up has brought in, and of how many.
    pub fn progress(&self) -> (u64, u64) {
        (self.warm_pages.load(Ordering::Relaxed), self.total_pages.load(Ordering::Relaxed))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Ends all threads.
    pub(crate) fn shut_down(&self) {
        self.stop.store(true, Ordering::Release);
        self.room.close();
        self.desk.close();
        let this = std::thread::current().id();
        for thread in self.threads.lock().drain(..).filter(|thread| thread.thread().id() != this) {
            // A loader that panicked has nothing to give back.
            let _ = thread.join();
        }
    }
}

/// Pages of the file that were taken for loading, as exclusive buffers.
struct Taken<'p> {
    residency: &'p Residency,
    buffers: Vec<(PageId, &'p mut PageBytes)>,
    /// How the load of those ends that can be read.
    loaded: Loaded,
}

impl<'p> Taken<'p> {
    fn new(residency: &'p Residency, loaded: Loaded) -> Taken<'p> {
        Taken { residency, buffers: Vec::new(), loaded }
    }

    /// If the page is absent, and nobody else is at it.
    fn add(&mut self, page: PageId) {
        if let Begun::Yes(buffer) = self.residency.begin_load(page) {
            self.buffers.push((page, buffer));
        }
    }

    /// Reads and verifies. Good pages become available as they come, bad ones are remembered as damaged (D3).
    fn finish(mut self, file: &PageFile) {
        if let [(first, _), .., (last, _)] = &self.buffers[..] {
            let span = (last.0 + 1).saturating_sub(first.0);
            if span as usize <= 2 * self.buffers.len() {
                let pages: HashSet<PageId> = self.buffers.iter().map(|(page, _)| *page).collect();
                self.residency.supply.populate_for_load(*first, span, |page| pages.contains(&page));
            }
        }
        let (residency, loaded) = (self.residency, self.loaded);
        let errors =
            file.read_pages_telling(&mut self.buffers, &|page| residency.end_load(page, loaded, None));
        for error in errors {
            let page = error.pid();
            let buffer = self.buffers.iter_mut().find(|(of, _)| *of == page);
            let result = match buffer {
                // What the device could not read may pass.
                Some((_, buffer)) if matches!(error, PageError::Device { .. }) => {
                    file.read_page_patiently(page, buffer)
                }
                _ => Err(error),
            };
            residency.end_load(page, loaded, result.err().as_ref());
        }
    }
}

/// What has become of an attempt to bring a page in.
pub enum Begun<'p> {
    /// It is to be read into this.
    Yes(&'p mut PageBytes),
    /// It is on its way in or out.
    ByOthers,
    /// It is in memory, or nobody needs it.
    No,
}

impl Residency {
    /// EVICTED → MOVING, if the page is neither in memory nor freed: until [`Residency::end_load`] it is the caller's.
    pub(super) fn begin_load(&self, page: PageId) -> Begun<'_> {
        let Some(descriptor) = self.core.pages.try_descriptor(page) else { return Begun::No };
        if !descriptor.state.begin_load() {
            return if descriptor.state.is_moving() { Begun::ByOthers } else { Begun::No };
        }
        // Under the claim that `Residency::give_up` takes, too.
        if !descriptor.is_in_use() || self.damage.is_given_up(page) {
            end_load_and_wake(&descriptor.state, Loaded::Failed);
            self.supply.finish_deferred_frees();
            return Begun::No;
        }
        self.core.pages.give_frame(page);
        // SAFETY: P2: nobody but its loader touches the page while it is MOVING, and it has one.
        Begun::Yes(unsafe { &mut *self.core.pages.address(page) })
    }

    /// MOVING → in memory, or EVICTED if it could not be read. Nobody touches the loader's buffer any more (P2).
    pub(super) fn end_load(&self, page: PageId, loaded: Loaded, error: Option<&PageError>) {
        match error {
            // Before the page is let go: who finds it absent then finds out why.
            Some(error) => {
                self.damage.note(error);
                self.core.pages.drop_frame(page);
            }
            None => {
                self.damage.forget(std::iter::once(page));
                self.room.note_present(1);
                self.core.metrics.loaded_page_count.fetch_add(1, Ordering::Relaxed);
            }
        }
        let loaded = if error.is_some() { Loaded::Failed } else { loaded };
        end_load_and_wake(&self.core.pages.descriptor(page).state, loaded);
        self.supply.finish_deferred_frees();
    }

    /// Brings pages in, now, on this thread, and waits for those that others are bringing in. One that is damaged or not
    /// mapped says so to whoever asks for it then, as does one that there is no room for. Not to be called with a latch
    /// held, nor by a running member of the barrier if pages are evicted: the evictor may be waiting for it.
    pub fn load(&self, pages: &[PageId]) {
        self.load_as(pages, Loaded::Wanted);
        failing::note_loaded(&self.met, pages);
    }

    /// The same for a running member that must not wait for room in the middle of a step (R4). So memory is exceeded by as
    /// much: for a few pages.
    pub fn load_at_once(&self, pages: &[PageId]) {
        let Some(file) = self.file() else { return };
        self.load_batch(file, pages, Loaded::Wanted);
        let states = pages.iter().filter_map(|&page| self.core.pages.try_descriptor(page));
        states.for_each(|descriptor| wait_for_move(&descriptor.state));
        failing::note_loaded(&self.met, pages);
    }

    /// Copies pages that nobody changes meanwhile, in memory or not, for a running member that must go over more of them than
    /// there may be in memory (C4): none is brought in, and it waits for the device alone. Not to be called with a latch held.
    ///
    /// # Errors
    /// [`Restart::Damaged`].
    pub fn copy_unchanging(&self, pages: &mut [(PageId, &mut PageBuf)]) -> Result<(), Restart> {
        let mut absent = Vec::new();
        for (page, into) in pages.iter_mut() {
            let Some(descriptor) = self.core.pages.try_descriptor(*page) else {
                return Err(self.absent(*page));
            };
            // What is on its way out may have been changed since the file has it; what moves in memory is copied again.
            while !self.core.pages.copy_as_of(*page, Epoch::LAST, &mut into.0) {
                wait_for_move(&descriptor.state);
                if !descriptor.state.is_resident() && !descriptor.state.is_moving() {
                    absent.push((*page, &mut into.0));
                    break;
                }
            }
        }
        let Some(file) = self.file().filter(|_| !absent.is_empty()) else { return Ok(()) };
        let failed = file.read_pages(&mut absent);
        for error in failed {
            let buffer = absent.iter_mut().find(|(page, _)| *page == error.pid());
            let again = buffer.map_or(Err(error), |(page, buffer)| file.read_page_patiently(*page, buffer));
            again.map_err(|error| Restart::Damaged(Reason::of(&error)))?;
        }
        Ok(())
    }

    fn load_as(&self, pages: &[PageId], loaded: Loaded) {
        self.load_absent(pages, loaded);
        let states = pages.iter().filter_map(|&page| self.core.pages.try_descriptor(page));
        states.for_each(|descriptor| wait_for_move(&descriptor.state));
    }

    fn load_absent(&self, pages: &[PageId], loaded: Loaded) {
        let Some(file) = self.file() else { return };
        for batch in pages.chunks(WARM_UP_PAGES.min(self.room.batch_pages())) {
            // Without it the pages stay absent, and who asks for them is told why.
            if self.room.is_limited() && !self.room.wait_for(batch.len() as u64) {
                return;
            }
            self.load_batch(file, batch, loaded);
        }
    }

    /// Others wait for what is on its way.
    fn load_batch(&self, file: &PageFile, pages: &[PageId], loaded: Loaded) {
        promptly(|| {
            let mut taken = Taken::new(self, loaded);
            pages.iter().for_each(|&page| taken.add(page));
            taken.finish(file);
        });
    }

    /// Brings pages in on another thread and calls `done` from there.
    pub fn load_in_background(&self, pages: Vec<PageId>, done: Box<dyn FnOnce() + Send>) {
        if let Some(request) = self.desk.leave(Request { pages, done, since: Instant::now() }) {
            // The pool closes, or has no file.
            self.load(&request.pages);
            (request.done)();
        }
    }

    /// Whether any page has ever been found damaged or unreadable.
    pub fn has_damage(&self) -> bool {
        self.damage.is_any()
    }

    /// Calls `done` once the warm-up has ended, at once if it has; not at all if the pool closes before.
    pub fn when_warm(&self, done: Box<dyn FnOnce() + Send>) {
        self.awaiting_warmth.lock().push(done);
        if !self.is_warming_up() {
            self.tell_of_warmth();
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
            Some(reason) if !self.may_have_passed(page) => Restart::Damaged(reason),
            // A thread that has to come to the end brings it in all the same.
            _ if self.room.is_stuck() && !is_carrying() => Restart::NoRoom,
            _ => Restart::Fault(page),
        }
    }

    /// The same of a page of an object whose head is latched: one that is not in use would be waited for in vain.
    pub(crate) fn absent_part(&self, page: PageId) -> Restart {
        match self.absent(page) {
            Restart::Fault(_) if !self.is_in_use(page) => {
                Restart::Damaged(format!("page {} is not in use, but an object has it", page.0).into())
            }
            absent => absent,
        }
    }

    /// Whether a page is allocated, as far as can be said of one that is not latched. What refers to one that is not, and is still
    /// the same afterwards, is damaged.
    pub fn is_in_use(&self, page: PageId) -> bool {
        self.core.pages.try_descriptor(page).is_some_and(|descriptor| descriptor.is_in_use())
    }

    /// Whether a page in use is not in memory and is worth loading: it is not known to be damaged, or is to be tried again.
    pub fn is_missing(&self, page: PageId) -> bool {
        match self.ask_for(page) {
            Ok(()) => !self.core.pages.touch(page) && matches!(self.absent_part(page), Restart::Fault(_)),
            Err(restart) => matches!(restart, Restart::Fault(_)),
        }
    }

    /// Whether a page could not be read, and the device has failed only lately: it may be there after a start, or before.
    pub fn may_yet_be_had(&self, page: PageId) -> bool {
        failing::is_damaged(page) || self.damage.may_yet_be_had(page)
    }

    /// From now on a page that could not be read stays absent until it is freed, so that what referred to it, or was
    /// linked to it, may be changed without it (P9). False if it may yet be had: it is in memory, or being read, or the device
    /// has failed only lately.
    #[must_use]
    pub fn give_up(&self, page: PageId) -> bool {
        // There is no such page.
        let Some(descriptor) = self.core.pages.try_descriptor(page) else { return true };
        if !descriptor.state.begin_load() {
            return false;
        }
        let is_lost = descriptor.is_in_use() && self.damage.give_up(page);
        end_load_and_wake(&descriptor.state, Loaded::Failed);
        self.supply.finish_deferred_frees();
        is_lost
    }

    /// Whether a page that could not be read is worth another try.
    fn may_have_passed(&self, page: PageId) -> bool {
        self.damage.may_have_passed(page)
    }

    /// Why a page in use is not in memory although it was tried, if so.
    pub(crate) fn damage_in_place(&self, page: PageId) -> Option<Reason> {
        let Some(descriptor) = self.core.pages.try_descriptor(page) else {
            return Some(format!("there is no page {}: what refers to it is damaged", page.0).into());
        };
        self.damage.reason(page).filter(|_| descriptor.is_in_use() && !descriptor.state.is_resident())
    }

    /// A page is being freed: what was wrong with it says nothing of what comes there next.
    pub(crate) fn forget_damage(&self, page: PageId) {
        self.damage.forget(std::iter::once(page));
    }

    /// The content of a page as it lies in the page file, as of [`Spill::keep`].
    pub(crate) fn image_in_file(&self, page: PageId) -> Option<SpilledImage> {
        let spill: Arc<dyn Spill> = self.file.clone()?;
        SpilledImage::keep(&spill, page)
    }

    /// What is in use and cannot be read. Pages that have been written or freed since are not among them: the next
    /// checkpoint has them whole, or not at all.
    pub fn damaged_pages(&self) -> DamagedPages {
        let is_in_use = |page| self.core.pages.try_descriptor(page).is_some_and(Descriptor::is_in_use);
        self.damage.report(is_in_use)
    }

    /// Starts the warm-up for what the page file holds.
    pub(crate) fn start_warm_up(self: &Arc<Self>, page_count: u64) -> Result<(), PoolError> {
        self.total_pages.store(page_count, Ordering::Relaxed);
        self.warming_up.store(true, Ordering::Release);
        if self.room.limit_pages().is_some_and(|limit| limit < page_count) {
            // A huge page that is made for one page takes memory for its neighbours, too, which stay absent: nobody would ever
            // give that back.
            self.core.pages.avoid_huge();
        }
        let residency = Arc::downgrade(self);
        self.spawn("sf-warm-up", move || {
            sched::enroll("sf-warm-up");
            warm_up(&residency);
        })
    }

    /// A thread that ends with the pool.
    pub(super) fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(body).map_err(PoolError::Thread)?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

/// Whether the next page begins another batch of the warm-up: batches end with a chunk of pages that a huge page may back.
fn is_batch_full(is_short: bool) -> impl Fn(&[PageId]) -> bool {
    let most = if is_short { CHUNK_PAGES as usize } else { WARM_UP_PAGES };
    move |batch: &[PageId]| {
        let ends_chunk = batch.last().is_some_and(|last| (last.0 + 1) % CHUNK_PAGES == 0);
        batch.len() >= most || ends_chunk && batch.len() + CHUNK_PAGES as usize > most
    }
}

/// Brings in every page of the checkpoint, in order of the file's map, as far as there is room.
fn warm_up(residency: &Weak<Residency>) {
    let Some(strong) = residency.upgrade() else { return };
    let Some(file) = strong.file().cloned() else { return };
    let mut runs = Vec::new();
    file.for_each_mapped(|first, count| runs.push((first, count)));
    drop(strong);
    let pages = runs.iter().flat_map(|&(first, count)| (first.0..first.0 + count).map(PageId));
    let mut batch = Vec::with_capacity(WARM_UP_PAGES);
    let bring_in = |batch: &mut Vec<PageId>| {
        let Some(residency) = residency.upgrade().filter(|it| !it.is_stopping()) else { return false };
        // Waits for what others are reading: the warm-up ends when every page of the checkpoint is in memory or known
        // to be damaged.
        residency.load_as(batch, Loaded::Ahead);
        residency.warm_pages.fetch_add(batch.len() as u64, Ordering::Relaxed);
        batch.clear();
        true
    };
    let has_room = |count: usize| residency.upgrade().is_some_and(|it| it.room.spare_pages() > count as u64);
    let mut is_full = is_batch_full(false);
    for page in pages {
        batch.push(page);
        if !is_full(&batch) {
            continue;
        }
        // Some commands wait until all is there.
        sched::set_urgent(residency.upgrade().is_some_and(|it| it.is_warmth_awaited()));
        sched::give_way();
        is_full = is_batch_full(sched::gives_way());
        if !has_room(batch.len()) {
            break;
        }
        if !bring_in(&mut batch) {
            return;
        }
    }
    if !has_room(batch.len()) {
        batch.clear();
    }
    if bring_in(&mut batch) {
        residency.upgrade().into_iter().for_each(|residency| residency.end_warm_up());
    }
}

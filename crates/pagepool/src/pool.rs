//! The pool: page memory, who may touch it, and where pages come from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::device::Device;
use crate::exmap::Exmap;
use crate::fence::pause;
use crate::metrics::PoolMetrics;
use crate::page::{Epoch, PageTable};
use crate::pagefile::{NeededPages, OpenOptions, PageFile, PageFileError, Recovered};
use crate::phase::is_looking;
use crate::residency::{
    Evictor, Keeper, Residency, Room, ScrubReport, ScrubStats, Scrubbing, StockOptions, Supply, Turns,
};
use crate::snapshot::{Core, NoSpill, SnapshotKind, Snapshotter, Spill};
use crate::space::{AnonMemory, Arena, ExmapMemory, Layout, Memory, PoolBackend};
use crate::{Barrier, BarrierTimes, Late, Member, PageId, PoolError, Unserved, PAGE_SIZE};

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub layout: Layout,
    /// Back tree nodes and slabs with huge pages, if the algorithm can do with them.
    pub huge_pages: bool,
    /// Have a thread give memory to free pages before they are wanted. Else the thread that uses one first waits for its 4 KB.
    pub populates_ahead: bool,
    pub snapshot_kind: SnapshotKind,
    pub backend: PoolBackend,
    /// Budget of snapshots: before-images, spare frames, freed pages that a cut needs.
    pub snapshot_memory_bytes: u64,
    /// Pages without which a checkpoint of the page file counts as damaged.
    pub needed_pages: NeededPages,
    /// Pages that may be in memory; others are in the page file alone. `None`: all of them. It says nothing without a page
    /// file, or with an algorithm that needs all in memory.
    pub memory_pages: Option<u64>,
    /// The checkpoint of this generation may be served although a later one was acknowledged.
    pub accept_loss_after: Option<u64>,
    /// How long a cut, and whatever else everybody stands still for, waits for a member of the barrier; `None`: without end.
    pub cut_patience: Option<Duration>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            layout: Layout::FULL,
            huge_pages: true,
            populates_ahead: true,
            snapshot_kind: SnapshotKind::Epoch,
            backend: PoolBackend::Vmcache,
            snapshot_memory_bytes: 64 << 20,
            needed_pages: |_| 0..0,
            memory_pages: None,
            accept_loss_after: None,
            cut_patience: None,
        }
    }
}

impl PoolOptions {
    /// Bytes of address space for the content of all pages, wherever their snapshots have them lie.
    pub fn memory_bytes(&self) -> usize {
        self.backend.memory_bytes(self.layout, 1 + u32::from(self.snapshot_kind.has_two_places()))
    }

    fn memory(&self) -> Result<Box<dyn Memory>, PoolError> {
        let byte_len = self.memory_bytes();
        Ok(match self.backend {
            PoolBackend::Vmcache | PoolBackend::Array => Box::new(AnonMemory::new(byte_len)?),
            PoolBackend::Exmap => {
                let map = Exmap::open(byte_len, self.most_pages())?;
                Box::new(ExmapMemory::new(map)?)
            }
        })
    }

    /// Pages that have memory at a time: those of the bound, those that are free and keep theirs, and what is read although
    /// there is no room. Without a bound, as many as the machine has memory for.
    fn most_pages(&self) -> u64 {
        let system = rustix::system::sysinfo();
        let of_machine = system.totalram as u64 * u64::from(system.mem_unit) / PAGE_SIZE as u64;
        let wanted = self.memory_pages.map_or(of_machine, |limit| limit + limit / SPARE_PART + SPARE_PAGES);
        wanted.min(u64::from(self.layout.page_count()))
    }
}

/// Pages that may have memory beyond the bound, where that is reserved in advance: a part of the bound, and some (64 MB).
const SPARE_PART: u64 = 16;
const SPARE_PAGES: u64 = 16_384;

/// Sizes, for `INFO`.
#[derive(Clone, Copy, Default, Debug)]
pub struct PoolStats {
    pub allocated_pages: u64,
    /// Pages in use that are in memory.
    pub resident_pages: u64,
    /// Bytes that snapshots hold beyond the data now: before-images in frames and freed pages that a cut needs.
    pub snapshot_held_bytes: u64,
    /// The most of them since the last checkpoint or view began.
    pub snapshot_peak_held_bytes: u64,
    /// Bytes of spare frames, in use or not.
    pub snapshot_resident_bytes: u64,
    /// Bytes of the memory that pages in frames have, and of those of them that nobody uses. 0 where pages have addresses.
    pub frame_bytes: u64,
    pub free_frame_bytes: u64,
}

/// A page pool. Share it by `Arc`.
pub struct Pool {
    core: Arc<Core>,
    snapshotter: Arc<dyn Snapshotter>,
    barrier: Arc<Barrier>,
    supply: Arc<Supply>,
    residency: Arc<Residency>,
    room: Arc<Room>,
    turns: Arc<Turns>,
    evictor: Option<Evictor>,
    /// Where pages lie in frames.
    keeper: Option<Keeper>,
    scrubbing: Arc<Scrubbing>,
    /// The bound of pages in memory goes no higher.
    most_memory_pages: u64,
    /// The cut of the last durable checkpoint; held while one is taken.
    durable: Mutex<Epoch>,
}

impl Pool {
    /// A pool over anonymous memory.
    ///
    /// # Errors
    /// [`PoolError::Map`] if the address space is limited.
    pub fn new(options: &PoolOptions, spill: Arc<dyn Spill>) -> Result<Pool, PoolError> {
        Pool::with_memory(options.memory()?, options, spill)
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
        let pool = build(options.memory()?, options, file.clone(), Some(file.clone()))?;
        adopt(&pool.supply, &file, options)?;
        pool.residency.start_loaders()?;
        if recovered.page_count > 0 {
            pool.residency.start_warm_up(recovered.page_count)?;
        }
        Ok((Arc::new(pool), recovered))
    }

    /// The page file, if the pool has one.
    pub fn file(&self) -> Option<&Arc<PageFile>> {
        self.residency.file()
    }

    /// Pages that are not in memory: which they are, and how they come there.
    #[inline]
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// Whose turn it is to keep what comes, of those that wait in vain for all their pages together.
    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// How much memory pages take, and may take.
    #[inline(always)]
    pub fn room(&self) -> &Room {
        &self.room
    }

    #[inline]
    pub(crate) fn supply(&self) -> &Supply {
        &self.supply
    }

    pub(crate) fn scrubbing(&self) -> &Scrubbing {
        &self.scrubbing
    }

    pub(crate) fn durable_epoch(&self) -> MutexGuard<'_, Epoch> {
        self.durable.lock()
    }

    /// A pool over any memory, of as many bytes as [`PoolOptions::memory_bytes`] says.
    ///
    /// # Errors
    /// [`PoolError::Map`].
    pub fn with_memory(
        memory: Box<dyn Memory>,
        options: &PoolOptions,
        spill: Arc<dyn Spill>,
    ) -> Result<Pool, PoolError> {
        build(memory, options, spill, None)
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn pages(&self) -> &PageTable {
        &self.core.pages
    }

    #[inline(always)]
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

    /// The same; the member rests, and waits for nobody.
    pub fn join_resting(&self) -> Member {
        self.barrier.join_resting()
    }

    /// How long things took.
    pub fn metrics(&self) -> &PoolMetrics {
        &self.core.metrics
    }

    /// Pages in use.
    #[inline]
    pub fn allocated_pages(&self) -> u64 {
        self.supply.allocated_pages()
    }

    /// Whether the page is in memory; one that is still being read is not, one that is latched is. This is an access: if it
    /// is, it stays there until this thread, a member of the barrier, has been between two commands (R3).
    pub fn is_resident(&self, page: PageId) -> bool {
        self.residency.ask_for(page).is_ok() && self.core.pages.touch(page)
    }

    /// How a page's number leads to its bytes.
    pub fn backend(&self) -> PoolBackend {
        self.core.pages.backend()
    }

    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }

    /// Changes the bound of what snapshots hold in memory; it rises no further than
    /// [`PoolOptions::snapshot_memory_bytes`] was at the start.
    pub fn set_snapshot_memory(&self, bytes: u64) {
        self.core.frames.set_budget(bytes);
    }

    /// The highest bound of pages in memory, if there is one: with pool backend `exmap`, that of the start.
    pub fn most_memory_pages(&self) -> Option<u64> {
        (self.most_memory_pages < u64::MAX).then_some(self.most_memory_pages)
    }

    /// Changes the bound of pages in memory; as of [`PoolOptions::memory_pages`]. It rises no further than
    /// [`Pool::most_memory_pages`].
    pub fn set_memory_pages(&self, page_count: Option<u64>) {
        let page_count = page_count.map(|count| count.min(self.most_memory_pages));
        self.room.set_limit(page_count.filter(|_| self.can_evict()));
        self.keeper.iter().for_each(Keeper::wake);
    }

    /// Whether a page in use may be missing from memory without having been asked for: warm-up, eviction, damage.
    #[inline]
    pub fn may_miss_pages(&self) -> bool {
        self.residency.is_warming_up() || self.room.evicts() || self.residency.has_damage()
    }

    /// Whether pages in memory have come so near their bound that commands which allocate should wait.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room.is_limited() && self.room.is_full()
    }

    /// Whether pages may be evicted from this pool: a checkpoint by `fork` would miss those.
    #[must_use]
    pub fn can_evict(&self) -> bool {
        self.evictor.is_some() && self.snapshotter.takes_evictions()
    }

    /// Calls `done` from another thread when memory is not full any more, or nothing in it can go.
    pub fn when_room(&self, done: Box<dyn FnOnce() + Send>) {
        self.residency.load_in_background(Vec::new(), done);
    }

    /// Waits until that is no more, or nothing in memory can go. Not to be called by a running member of the barrier, for
    /// which the evictor may be waiting.
    pub fn wait_for_room(&self) {
        if self.room.is_limited() {
            self.room.wait_for(0);
        }
    }

    /// Whether memory is full and what is dirty in it cannot be written: who stores is refused.
    pub fn is_stuck(&self) -> bool {
        self.room.is_limited() && self.room.refuses_writes()
    }

    /// A walk has been through the page and does not come back: as if the clock had just met it, so that it goes before what
    /// others use. A hint.
    #[inline]
    pub fn let_go(&self, page: PageId) {
        // A thread that looks comes back.
        if self.room.evicts() && !is_looking() {
            self.core.pages.try_descriptor(page).into_iter().for_each(|descriptor| {
                descriptor.state.meet();
            });
        }
    }

    /// Verifies the slots of some pages of the page file, [`SCRUB_STEP_PAGES`] of them, from `from` on. Waits for the
    /// disk; not to be called with a latch held.
    ///
    /// [`SCRUB_STEP_PAGES`]: crate::SCRUB_STEP_PAGES
    pub fn scrub(&self, from: PageId) -> ScrubReport {
        self.scrubbing.step(&self.residency, from)
    }

    pub fn scrub_stats(&self) -> ScrubStats {
        self.scrubbing.stats()
    }

    pub fn stats(&self) -> PoolStats {
        PoolStats {
            allocated_pages: self.allocated_pages(),
            resident_pages: self.room.resident_pages(),
            snapshot_held_bytes: self.snapshotter.held_bytes(&self.core),
            snapshot_peak_held_bytes: self.snapshotter.peak_held_bytes(&self.core),
            snapshot_resident_bytes: self.core.frames.resident_count() * PAGE_SIZE as u64,
            frame_bytes: self.pages().arena().map_or(0, Arena::backed_bytes),
            free_frame_bytes: self.pages().arena().map_or(0, Arena::free_bytes),
        }
    }

    /// Runs `action` while no member runs; returns its result and what the barrier cost. What it panics with is raised here.
    ///
    /// # Errors
    /// [`Late`]: a member has not come ([`PoolOptions::cut_patience`]), and the action has not run.
    pub fn at_barrier<R: Send + 'static>(
        self: &Arc<Self>,
        action: impl FnOnce(&Pool) -> R + Send + 'static,
    ) -> Result<(R, BarrierTimes), Late> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let pool = self.clone();
        let times = self.barrier.run(move || {
            let _ = sender.send(pool.core.cutting(|| action(&pool)));
        })?;
        let result = receiver.recv().expect("the barrier has run the action");
        Ok((result, times))
    }

    /// The listener is told, perhaps under a latch, that nodes have been freed whose memory waits for [`Pool::settle_nodes`]. One for
    /// the pool's life.
    pub fn set_nodes_listener(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.supply.set_nodes_listener(listener);
    }

    /// Whether freed nodes wait for that.
    pub fn has_freed_nodes(&self) -> bool {
        self.supply.has_lingering()
    }

    /// Bytes of freed nodes that a thread may still be reading.
    pub fn freed_node_bytes(&self) -> u64 {
        self.room.lingering_pages() * PAGE_SIZE as u64
    }

    /// Waits until nobody reads the nodes any more that have been freed before the call, and makes their memory available
    /// (P5); not longer than `limit`. Nobody stands still for it. Not to be called by a running member of the barrier.
    pub fn settle_nodes(&self, limit: Duration) {
        let freed = self.supply.lingering_end();
        let (mut grace, since, mut wait_count) = (self.barrier.begin_grace(), Instant::now(), 0);
        while !grace.is_over(&self.barrier) {
            if since.elapsed() > limit {
                return;
            }
            wait_count += 1;
            pause(wait_count);
        }
        self.supply.end_lingering(freed);
    }
}

fn build(
    memory: Box<dyn Memory>,
    options: &PoolOptions,
    spill: Arc<dyn Spill>,
    file: Option<Arc<PageFile>>,
) -> Result<Pool, PoolError> {
    let kind = options.snapshot_kind;
    kind.check(options.backend, file.is_some() && options.memory_pages.is_some())?;
    let pages = PageTable::new(memory, options.layout, options.backend, kind.has_two_places())?;
    let barrier: Arc<Barrier> = Arc::default();
    barrier.set_patience(options.cut_patience);
    let members = barrier.clone();
    let wait_for_turns = Box::new(move || members.wait_for_turns());
    let snapshotter = kind.build(options.layout.page_count(), spill, wait_for_turns)?;
    for (file, map) in file.iter().zip(pages.exmap()) {
        file.read_through(map).map_err(PageFileError::from)?;
    }
    let sees_each_write = snapshotter.sees_each_write();
    let core = Arc::new(Core::new(pages, options.snapshot_memory_bytes, sees_each_write)?);
    let is_huge = options.huge_pages && snapshotter.takes_huge_pages();
    is_huge.then(|| core.pages.prefer_huge_frames());
    let can_evict = file.is_some() && snapshotter.takes_evictions();
    let limit = options.memory_pages.filter(|_| can_evict);
    let room = Arc::new(Room::new(limit));
    let supply = Arc::new(Supply::start(
        core.clone(),
        snapshotter.clone(),
        options.layout,
        StockOptions { huge_pages: is_huge, is_ahead: options.populates_ahead },
        room.clone(),
        file.clone(),
    )?);
    let scrubbing: Arc<Scrubbing> = Arc::default();
    let turns = Arc::new(Turns::new(room.clone()));
    let evictor = file.clone().map(|file| {
        let members = barrier.clone();
        let wait_for_turns = Box::new(move || members.wait_for_turns());
        let (core, supply, room) = (core.clone(), supply.clone(), room.clone());
        let must_stay = (scrubbing.clone(), turns.clone());
        Evictor::start(core, supply, room, file, must_stay, wait_for_turns)
    });
    let keeper = core.pages.arena().map(|arena| {
        // What is pinned is copied by a `fork`.
        let lent_to = file.clone().filter(|_| can_evict);
        lent_to.iter().for_each(|file| file.lend(arena.memory()));
        let members = barrier.clone();
        let wait_for_turns = Box::new(move || members.wait_for_turns());
        let is_ahead = options.populates_ahead;
        Keeper::start(core.clone(), supply.clone(), room.clone(), wait_for_turns, lent_to, is_ahead)
    });
    let residency = Residency::new(core.clone(), supply.clone(), room.clone(), file);
    Ok(Pool {
        core,
        snapshotter,
        barrier,
        supply,
        residency: Arc::new(residency),
        room,
        turns,
        evictor: evictor.transpose()?,
        keeper: keeper.transpose()?,
        scrubbing,
        most_memory_pages: match options.backend {
            PoolBackend::Exmap => options.memory_pages.unwrap_or(u64::MAX),
            PoolBackend::Vmcache | PoolBackend::Array => u64::MAX,
        },
        durable: Mutex::new(Epoch(0)),
    })
}

/// Takes over the pages of a page file: what it maps is in use, everything else is free.
fn adopt(supply: &Supply, file: &PageFile, options: &PoolOptions) -> Result<(), PoolError> {
    let mut runs = Vec::new();
    file.for_each_mapped(|first, count| runs.push((first, count)));
    let end = runs.last().map_or(0, |(first, count)| first.0 + count);
    let limit = options.layout.page_count();
    if end > limit {
        return Err(PoolError::Layout { path: file.name().to_owned(), page: end - 1, limit });
    }
    let kind = options.snapshot_kind.name();
    let is_served = supply.adopt(runs);
    is_served.then_some(()).ok_or(PoolError::Unserved(Unserved::LargerThanMemory { kind }))
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.evictor.iter().for_each(Evictor::shut_down);
        self.keeper.iter().for_each(Keeper::shut_down);
        self.residency.shut_down();
        // Nobody reads or writes any more, and the memory goes with this.
        self.residency.file().filter(|_| self.keeper.is_some()).into_iter().for_each(|file| file.end_loan());
    }
}

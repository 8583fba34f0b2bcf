use std::io::Write;
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use stillframe_pagepool::device::{Device, DirLock, IoReport};
use stillframe_pagepool::pagefile::{
    CutHeader, LogPosition, PageFileError, Recovered, UserHeader, USER_HEADER_BYTES,
};
use stillframe_pagepool::snapshot::Progress;
use stillframe_pagepool::{
    sched, CheckpointError, Conditions, PageId, Pool, PoolError, PoolOptions, Reason, Turn, PAGE_SIZE,
};

use crate::error::{Missing, OpenError, Refusal, SaveError};
use crate::here::{check_away, Busy, StoreNumber};
use crate::keyspace::{collect, Keyspace, CATALOG_DB_MAX, CATALOG_PAGE_COUNT};
use crate::listener::Listener;
use crate::log::{position_of, JournalError, Log, LogHome, LogId, Offset, Place, Plan, SegmentNumber};
use crate::rdb::Cut;
use crate::shares::MemoryShares;
use crate::stop::Stop;
use crate::view::View;
use crate::walk::ViewEntry;
use crate::{Accesses, CollectionLimits, Damage, DbId, DbStats, Fault, Key, Options, Worker};

/// What a completed checkpoint did.
#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    pub pages_changed: u64,
    /// Pages that had been found damaged in the page file, which the checkpoint has elsewhere.
    pub pages_healed: u64,
    pub bytes_written: u64,
    pub duration: Duration,
    /// Time from the request of the barrier to the last worker's arrival.
    pub barrier_wait: Duration,
    /// How long the cut took, while no worker ran; with the snapshotter `fork` that is the fork.
    pub cut: Duration,
}

/// Progress of a running save, for `INFO`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveProgress {
    pub running: bool,
    pub pages_done: u64,
    pub pages_total: u64,
}

pub(crate) struct Shared {
    pub keyspace: Arc<Keyspace>,
    pub log: Log,
    dir: PathBuf,
    is_new: bool,
    /// The checkpoint that was opened, without a change since.
    opened: Option<Cut>,
    recovery_note: Option<String>,
    progress: Progress,
    /// Held while a checkpoint is taken.
    saving: Mutex<()>,
    /// [`Keyspace::change_count`] as of the cut of the last completed save, and the same of trees.
    saved_change_count: AtomicU64,
    saved_tree_change_count: AtomicU64,
    /// What has changed is saved when the last clone goes.
    saves_at_end: bool,
    collector: Mutex<Option<JoinHandle<()>>>,
    _lock: Option<DirLock>,
}

impl Shared {
    /// A number that no other store has as long as this one is there.
    fn number(&self) -> StoreNumber {
        Arc::as_ptr(&self.keyspace) as usize
    }

    /// Whether this thread may wait until everybody stands between two operations.
    fn check_may_wait(&self) -> Result<(), Busy> {
        // A thread that has stopped the others waits for none of them.
        match self.keyspace.pool.barrier().is_held_here() {
            true => Ok(()),
            false => check_away(self.number()),
        }
    }

    /// Takes a checkpoint; the caller holds the lock for that.
    fn checkpoint(
        &self,
        at_cut: impl FnOnce() + Send + 'static,
        after_cut: impl FnOnce(),
    ) -> Result<CheckpointReport, SaveError> {
        self.check_may_wait()?;
        if self.log.is_unread() {
            return Err(SaveError::Replaying);
        }
        if self.log.is_to_begin() && !self.has_checkpoint() {
            // A log beside a page file without a checkpoint is nobody's: a crash would leave what no start can tell from half of a store.
            self.checkpoint_with(self.log.plan_without(), || (), || ())?;
        }
        let plan = self.log.plan().map_err(log_failed)?;
        self.checkpoint_with(plan, at_cut, after_cut)
    }

    /// Whether a checkpoint is durable: then it has the catalog.
    fn has_checkpoint(&self) -> bool {
        self.keyspace.pool.file().is_some_and(|file| file.is_mapped(self.keyspace.catalog))
    }

    /// Calls `f` while no checkpoint is taken.
    ///
    /// # Errors
    /// [`SaveError::InProgress`].
    pub fn while_not_saving<R>(&self, f: impl FnOnce() -> R) -> Result<R, SaveError> {
        let _saving = self.saving.try_lock().ok_or(SaveError::InProgress)?;
        Ok(f())
    }

    fn checkpoint_with(
        &self,
        plan: Plan,
        at_cut: impl FnOnce() + Send + 'static,
        after_cut: impl FnOnce(),
    ) -> Result<CheckpointReport, SaveError> {
        let keyspace = self.keyspace.clone();
        let changes = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let changes_at_cut = changes.clone();
        let plan = Arc::new(plan);
        let place = Arc::new(Mutex::new(None));
        let (plan_at_cut, place_at_cut) = (plan.clone(), place.clone());
        let in_barrier = move || {
            keyspace.fold().map_err(cut_failed)?;
            at_cut();
            changes_at_cut.0.store(keyspace.change_count(), Ordering::Relaxed);
            changes_at_cut.1.store(keyspace.named.change_count(), Ordering::Relaxed);
            let place = plan_at_cut.cut();
            *place_at_cut.lock() = place;
            Ok(CutHeader { user: header_of(keyspace.catalog, place), log: position_of(place) })
        };
        let (pool, progress) = (&self.keyspace.pool, &self.progress);
        // Also after a panic of the caller's.
        let _end = EndOfProgress(progress);
        let log_first = |_: &CutHeader| plan.make_durable(*place.lock()).map_err(log_failed);
        let saved = pool.checkpoint_telling(in_barrier, after_cut, log_first, progress);
        let place = *place.lock();
        self.log.settle(&plan, place, saved.is_ok());
        let stats = saved?;
        self.saved_change_count.store(changes.0.load(Ordering::Relaxed), Ordering::Relaxed);
        self.saved_tree_change_count.store(changes.1.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(CheckpointReport {
            pages_changed: stats.commit.page_count,
            pages_healed: stats.healed_page_count,
            bytes_written: stats.commit.written_bytes,
            duration: stats.total,
            barrier_wait: stats.barrier.wait,
            cut: stats.barrier.action,
        })
    }

    /// There is nobody else to tell.
    fn complain(&self, text: &str, error: &dyn std::error::Error) {
        let _ = writeln!(std::io::stderr(), "stillframe: '{}': {text}: {error}", self.dir.display());
    }

    /// Whether anything has changed since the last checkpoint, but for what has expired.
    fn has_changed(&self) -> bool {
        self.keyspace.change_count() != self.saved_change_count.load(Ordering::Relaxed)
            || self.keyspace.named.change_count() != self.saved_tree_change_count.load(Ordering::Relaxed)
    }

    /// Takes a checkpoint if anything has changed since the last one, after one that is under way.
    fn save_changes(&self) -> Result<(), SaveError> {
        self.check_may_wait()?;
        let _saving = self.saving.lock();
        // What has not been replayed is on disk as it was.
        match self.has_changed() && !self.log.is_unread() {
            true => self.checkpoint(|| (), || ()).map(drop),
            false => Ok(()),
        }
    }

    /// Names the state of the store after so many changes.
    fn cut_at(&self, change_count: u64) -> Option<Cut> {
        let file = self.keyspace.pool.file()?;
        let saved = self.saved_change_count.load(Ordering::Relaxed);
        Some(Cut {
            file_id: file.id().0,
            checkpoint: file.newest_generation(),
            change_count: change_count.saturating_sub(saved),
        })
    }
}

/// Ends what is said of a save.
struct EndOfProgress<'p>(&'p Progress);

impl Drop for EndOfProgress<'_> {
    fn drop(&mut self) {
        self.0.reset();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.saves_at_end {
            if let Err(error) = self.save_changes() {
                let text = "what has changed since the last checkpoint could not be saved, and is lost unless it is in the log";
                self.complain(text, &error);
            }
        }
        self.keyspace.garbage.stop();
        if let Some(thread) = self.collector.lock().take() {
            // It holds no lock, and what it left over is listed.
            let _ = thread.join();
        }
        if let Err(error) = self.log.close() {
            self.complain("what the log has not made durable is lost", &error);
        }
    }
}

/// A set of databases, and of named trees, kept in a directory. Cheap to clone; clones share the store.
///
/// # Durability
///
/// A write is in memory when its call returns, and others see it. It is durable, and survives a crash of the process or of the machine,
/// once a [`Store::checkpoint`] that began later has returned; nothing takes checkpoints by itself while the store is open. All
/// that a checkpoint saves is as of one instant. When the last clone goes, with all handles and workers, what has changed
/// since the last checkpoint is saved ([`Options::checkpoint_on_drop`]); [`Store::close`] does the same and tells of errors. A process
/// that ends without that, by a signal, an abort or [`std::process::exit`], leaves what the last checkpoint saved.
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

impl Store {
    /// Opens or creates a store over a device. What goes with it in a log is to be replayed then, from the place that is returned on.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has been changed on disk.
    pub(crate) fn over(
        device: Arc<dyn Device>,
        options: Options,
        dir: PathBuf,
        lock: Option<DirLock>,
        log_home: LogHome,
    ) -> Result<(Store, Option<Place>), OpenError> {
        check_options(&options)?;
        let saves_at_end = options.checkpoint_on_drop;
        let (pool, recovered, mut recovery_note) = open_pool(device, &options, &log_home)?;
        let is_new = recovered.page_count == 0;
        let place = place_of(&recovered);
        if is_new {
            log_home.check_empty()?;
        }
        let log = Log::new(log_home, options.log, place.is_some());
        let checkpoint = recovered.generation;
        let opened = pool.file().map(|file| Cut { file_id: file.id().0, checkpoint, change_count: 0 });
        let keyspace = match is_new {
            true => Keyspace::create(pool, options)?,
            false => attach(pool, options, &recovered.user_header)?,
        };
        if recovery_note.is_none() {
            recovery_note = recovered.damage.map(|damage| note_of(&damage, recovered.fell_back));
        }
        let keyspace = Arc::new(keyspace);
        keyspace.steps.listen_first(log.listener());
        keyspace.pages.settle_bound();
        let collector = start_collector(&keyspace).map_err(PoolError::Thread)?;
        let shared = Shared {
            keyspace,
            log,
            dir,
            is_new,
            opened,
            recovery_note,
            progress: Progress::default(),
            saving: Mutex::new(()),
            saved_change_count: AtomicU64::new(0),
            saved_tree_change_count: AtomicU64::new(0),
            saves_at_end,
            collector: Mutex::new(Some(collector)),
            _lock: lock,
        };
        Ok((Store { shared: Arc::new(shared) }, place))
    }

    /// Lets `listeners` hear of every change from now on, each in this order. A store has one list of listeners for its life: returns
    /// false, and changes nothing, if there is one already, or there are more than 31. The store has them until the last clone
    /// goes: a listener that has a clone itself keeps the store open for the life of the process.
    pub fn listen(&self, listeners: Vec<Arc<dyn Listener>>) -> bool {
        self.keyspace().steps.listen(listeners)
    }

    /// Changes of the data since the store was opened, one for each effect but those of expiry, and one for each key that
    /// was there when its database was emptied.
    pub fn change_count(&self) -> u64 {
        self.keyspace().change_count()
    }

    /// Access to keys, which takes care of itself: see [`Worker`]. It costs a little memory, so a thread that needs it again keeps it.
    pub fn worker(&self) -> Worker {
        Worker::resting(self.clone(), true)
    }

    /// The same for a thread that serves others while pages are missing: an operation that meets one changes nothing and says
    /// so ([`OpError::Fault`](crate::OpError::Fault)), and the caller hands the fault to [`Store::load`] and runs it again. The
    /// worker's clock stands at 0 until [`Worker::set_now`].
    ///
    /// # Errors
    /// [`OpError::Busy`](crate::OpError::Busy): this thread has one already, or is in an operation.
    /// [`OpError::Late`](crate::OpError::Late): another thread that has one does not come between two operations.
    pub fn nonblocking_worker(&self) -> Result<Worker, crate::OpError> {
        Worker::seated(self.clone())
    }

    /// Whether no checkpoint has ever completed in the directory: the store was opened empty.
    pub fn is_new(&self) -> bool {
        self.shared.is_new
    }

    /// What opening found wrong in the page file, if anything: it serves what it could verify.
    pub fn recovery_note(&self) -> Option<&str> {
        self.shared.recovery_note.as_deref()
    }

    /// How the page file is read and written, and how that went, if its device counts.
    pub fn io_report(&self) -> Option<IoReport> {
        self.pool().file().and_then(|file| file.io_report())
    }

    /// The directory it was opened with.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    pub(crate) fn keyspace(&self) -> &Arc<Keyspace> {
        &self.shared.keyspace
    }

    /// A number that no other store has as long as this one is there.
    pub(crate) fn number(&self) -> StoreNumber {
        self.shared.number()
    }

    /// Takes a checkpoint into the page file and waits until it is durable. The cut waits until each operation that is under
    /// way has ended; between two of them nobody waits for a thread that has handles or a [`crate::Worker`].
    ///
    /// # Errors
    /// [`SaveError`]: the previous checkpoint stays as it was. [`SaveError::Busy`] in a closure that an operation calls.
    /// [`SaveError::Late`] names the thread whose operation has not ended ([`Options::cut_patience`]).
    pub fn checkpoint(&self) -> Result<CheckpointReport, SaveError> {
        self.checkpoint_telling(|| (), || ())
    }

    /// The same. `at_cut` runs at the cut, while every worker stands between two commands, and `after_cut` right after
    /// it: what is written from then on is not in the checkpoint.
    ///
    /// # Errors
    /// As of [`Store::checkpoint`]; if there was no cut, `after_cut` is not called.
    pub fn checkpoint_telling(
        &self,
        at_cut: impl FnOnce() + Send + 'static,
        after_cut: impl FnOnce(),
    ) -> Result<CheckpointReport, SaveError> {
        self.check_may_wait()?;
        match self.shared.saving.try_lock() {
            Some(_saving) => self.shared.checkpoint(at_cut, after_cut),
            None => Err(SaveError::InProgress),
        }
    }

    /// Closes this clone of the store: takes a checkpoint if anything has changed since the last one, after one that is under way.
    /// The directory is free once no other clone, handle or worker is left; what they change still is saved when the last of
    /// them goes. To drop the store does the same, but can tell of an error on standard error only, and does not save if
    /// [`Options::checkpoint_on_drop`] is off.
    ///
    /// # Errors
    /// [`SaveError`]: what has changed since the last checkpoint is not saved, and lost if this was the last clone. To try again,
    /// call [`Store::checkpoint`] before.
    pub fn close(self) -> Result<(), SaveError> {
        let saved = self.shared.save_changes();
        if let Some(mut last) = Arc::into_inner(self.shared) {
            // The caller knows of an error.
            last.saves_at_end &= saved.is_ok();
        }
        saved
    }

    /// Whether this thread may wait until everybody stands between two operations.
    ///
    /// # Errors
    /// [`Busy`].
    pub(crate) fn check_may_wait(&self) -> Result<(), Busy> {
        self.shared.check_may_wait()
    }

    /// A read-only picture of all databases as of now; it stays as it is while the store goes on. After a restart
    /// it waits until all pages are in memory.
    ///
    /// # Errors
    /// [`SaveError`], as of [`Store::checkpoint`].
    pub fn view(&self) -> Result<View, SaveError> {
        self.view_telling(|| ())
    }

    /// The same; `at_cut` runs at the cut, while every worker stands between two commands.
    ///
    /// # Errors
    /// As of [`Store::view`].
    pub fn view_telling(&self, at_cut: impl FnOnce() + Send + 'static) -> Result<View, SaveError> {
        self.check_may_wait()?;
        let keyspace = self.keyspace().clone();
        keyspace.pool.residency().wait_until_warm();
        let catalog = keyspace.catalog;
        let (pool, since) = (keyspace.pool.clone(), std::time::Instant::now());
        let waited = Arc::new(AtomicU64::new(0));
        let changes = Arc::new(AtomicU64::new(0));
        let folded = Arc::new(Mutex::new(Ok(())));
        let (waited_at_cut, changes_at_cut) = (waited.clone(), changes.clone());
        let folded_at_cut = folded.clone();
        let at_cut = move || {
            waited_at_cut.store(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
            *folded_at_cut.lock() = keyspace.fold();
            changes_at_cut.store(keyspace.change_count(), Ordering::Relaxed);
            at_cut();
        };
        let picture = pool.view_after(at_cut)?;
        std::mem::replace(&mut *folded.lock(), Ok(())).map_err(cut_failed)?;
        let cut = self.shared.cut_at(changes.load(Ordering::Relaxed));
        let barrier_wait = Duration::from_nanos(waited.load(Ordering::Relaxed));
        Ok(View::new(self.number(), picture, catalog, barrier_wait, cut))
    }

    /// Whether a dump that was cut there holds later data than the checkpoint that was opened; `None` if it comes from
    /// another page file, so that nobody can tell.
    pub fn is_older_than(&self, dump: Cut) -> Option<bool> {
        let opened = self.shared.opened.filter(|opened| opened.file_id == dump.file_id)?;
        // Whatever checkpoint had been begun when the dump was cut has older data.
        Some(dump.checkpoint >= opened.checkpoint && dump.change_count > 0)
    }

    pub fn save_progress(&self) -> SaveProgress {
        let progress = &self.shared.progress;
        SaveProgress {
            running: self.shared.saving.is_locked(),
            pages_done: progress.pages_scanned.load(Ordering::Relaxed),
            pages_total: progress.pages_total.load(Ordering::Relaxed),
        }
    }

    /// Whether pages are still to be read from the page file after a restart.
    pub fn is_warming_up(&self) -> bool {
        self.keyspace().pool.residency().is_warming_up()
    }

    /// Whether some values are being read in parts.
    pub fn is_any_sent(&self) -> bool {
        !self.keyspace().blobs.none_is_sent()
    }

    /// What of it cannot be read.
    pub fn damage(&self) -> Damage<'_> {
        Damage(self.keyspace())
    }

    /// What is known of accesses to its keys.
    pub fn accesses(&self) -> Accesses<'_> {
        Accesses(self.keyspace())
    }

    /// The error after which the page file takes no more checkpoints, if there was one.
    pub fn page_file_failure(&self) -> Option<&str> {
        self.keyspace().pool.file().and_then(|file| file.failure())
    }

    /// Pages that may be in memory at a time, if that is bounded.
    pub fn memory_page_count(&self) -> Option<u64> {
        self.keyspace().pool.room().limit_pages()
    }

    /// How the bound of memory is divided now, if there is one ([`Options::memory_bytes`]).
    pub fn memory_shares(&self) -> Option<MemoryShares> {
        self.keyspace().pages.shares()
    }

    /// One word of conditions that commands look at before they begin, the store's and the caller's: [`Conditions`].
    pub fn conditions(&self) -> &Arc<Conditions> {
        self.keyspace().pool.room().conditions()
    }

    /// Whether an operation may meet a page that is not in memory: while the store warms up, and as long as a page could
    /// not be read. One load.
    pub fn may_miss_pages(&self) -> bool {
        !self.keyspace().pages.all_resident()
    }

    /// Loads the pages of a fault in the background and calls `done` from another thread.
    pub fn load(&self, fault: Fault, done: Box<dyn FnOnce() + Send>) {
        // The thread that loads is everybody's: a panic of the caller's ends the call alone.
        let done: Box<dyn FnOnce() + Send> = Box::new(move || drop(catch_unwind(AssertUnwindSafe(done))));
        match fault.missing {
            Missing::Pages(pages) => self.keyspace().pool.residency().load_in_background(pages, done),
            Missing::Room => self.keyspace().pool.when_room(done),
            Missing::Nothing => done(),
            Missing::Turn(number) => self.keyspace().pool.turns().when_come(number, done),
            Missing::All => self.keyspace().pool.residency().when_warm(done),
        }
    }

    /// Waits for what a fault says; not to be called by a running member of the barrier.
    #[cold]
    pub(crate) fn wait(&self, fault: Fault) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = move || {
            // The receiver is here until it has been told.
            let _ = sender.send(());
        };
        self.load(fault, Box::new(done));
        // The loader tells so in any case.
        let _ = receiver.recv();
    }

    /// Databases that there are: those asked for, and more if more were saved.
    pub fn database_count(&self) -> u32 {
        self.keyspace().database_count() as u32
    }

    /// Counters of one database; none of one that there is not.
    pub fn db_stats(&self, db: DbId) -> DbStats {
        self.keyspace().db_stats(db)
    }

    /// Bytes of memory that count against `maxmemory`.
    pub fn used_memory_bytes(&self) -> u64 {
        self.keyspace().pages.used_bytes()
    }

    /// Those of them that are about to be freed: values that nothing refers to any more.
    pub fn unused_memory_bytes(&self) -> u64 {
        self.keyspace().garbage.listed_pages() * PAGE_SIZE as u64 + self.pool().freed_node_bytes()
    }

    /// Whether emptied databases are still being freed.
    pub fn is_freeing_databases(&self) -> bool {
        self.keyspace().garbage.has_trees()
    }

    /// Gives `f` the entry of one key as a view has it; `None` if there is none. What has expired is there still.
    ///
    /// # Errors
    /// A page that cannot be read, before `f` is called. The view is one of another store.
    pub fn with_viewed<R>(
        &self,
        view: &View,
        db: DbId,
        key: &[u8],
        f: impl FnOnce(Option<ViewEntry<'_>>) -> R,
    ) -> Result<R, SaveError> {
        let key = Key::new(key, self.keyspace().trees.order.hash(key));
        view.with_entry(self.number(), db, &key, f)
    }

    /// Changes the limits of small collections.
    pub fn set_collection_limits(&self, limits: &CollectionLimits) {
        self.keyspace().limits.set(limits);
    }

    /// Changes the bound of memory beyond which data is in the page file alone, at run time; 0 is none. As of
    /// [`Options::memory_bytes`].
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.keyspace().pages.set_memory_bytes(bytes);
    }

    /// Bytes up to which that bound may be raised at run time, if not to any; none is higher than all.
    pub fn most_memory_bytes(&self) -> Option<u64> {
        self.keyspace().pages.most_memory_bytes()
    }

    /// Leaves pages in memory what the bound leaves them, now that there is so much data. To be called now and then.
    pub fn settle_memory(&self) {
        self.keyspace().pages.settle_bound();
    }

    /// Whether memory is so full that commands which store something should wait for [`Fault::room`].
    #[inline]
    pub fn is_full(&self) -> bool {
        self.keyspace().pool.is_full()
    }

    /// Whether memory is full and nothing can be evicted: what is there cannot be written to the page file.
    pub fn is_stuck(&self) -> bool {
        self.keyspace().pool.is_stuck()
    }

    /// Changes the bound at run time; 0 is none.
    pub fn set_maxmemory_bytes(&self, bytes: u64) {
        self.keyspace().pages.set_limit_bytes(bytes);
    }

    /// Changes since the last completed save, in keys written.
    pub fn changes_since_save(&self) -> u64 {
        let saved = self.shared.saved_change_count.load(Ordering::Relaxed);
        self.keyspace().change_count().saturating_sub(saved)
    }

    /// A number that is another one when pages have been evicted, or the data has changed, since it was read.
    pub fn residence_stamp(&self) -> (u64, u64) {
        let evicted = self.pool().metrics().evicted_page_count.load(Ordering::Relaxed);
        (evicted, self.keyspace().change_count())
    }

    /// A place in the queue of commands that wait in vain for all their pages together ([`Fault::turn`]).
    pub fn ask_turn(&self) -> Turn {
        self.pool().turns().ask()
    }

    /// The pool below, for its metrics.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.keyspace().pool
    }

    /// Whether everything that was removed has been freed.
    pub fn is_tidy(&self) -> bool {
        collect::is_tidy(self.keyspace())
    }
}

fn check_options(options: &Options) -> Result<(), OpenError> {
    let count = options.database_count;
    if count as usize > CATALOG_DB_MAX {
        return Err(Refusal::Databases { count, most: CATALOG_DB_MAX }.into());
    }
    match options.memory_shares() {
        Some(shares) if options.memory_bytes != 0 && !shares.fit() => Err(OpenError::from(Refusal::Memory {
            memory_bytes: shares.all_bytes,
            needed_bytes: shares.page_bytes + shares.snapshot_bytes + shares.staging_bytes,
        })),
        _ => Ok(()),
    }
}

fn pool_options(options: &Options) -> PoolOptions {
    PoolOptions {
        layout: options.layout,
        huge_pages: options.huge_pages,
        populates_ahead: true,
        snapshot_kind: options.snapshot_kind,
        backend: options.pool_backend,
        snapshot_memory_bytes: options.snapshot_memory_bytes,
        needed_pages,
        memory_pages: options.memory_shares().map(|shares| shares.page_count()),
        accept_loss_after: options.accept_loss_after_checkpoint,
        cut_patience: options.cut_patience,
    }
}

/// The pages of the catalog: without them nothing is found.
pub(crate) fn needed_pages(header: &UserHeader) -> Range<u32> {
    let catalog = catalog_of(header).0;
    catalog..catalog.saturating_add(CATALOG_PAGE_COUNT)
}

pub(crate) fn catalog_of(header: &UserHeader) -> PageId {
    let [a, b, c, d, ..] = *header;
    PageId(u32::from_le_bytes([a, b, c, d]))
}

fn cut_failed(stop: Stop) -> CheckpointError {
    CheckpointError::Io(format!("the catalog cannot be written: {stop:?}").into())
}

fn log_failed(error: JournalError) -> CheckpointError {
    CheckpointError::Io(Reason::of(&error))
}

/// Where the number of the log is in the store's part of the superblock.
const LOG_ID: Range<usize> = 8..16;

/// The store's part of the superblock: the catalog's page id, and the number of the log.
fn header_of(catalog: PageId, place: Option<Place>) -> UserHeader {
    let mut header = [0; USER_HEADER_BYTES];
    header[..4].copy_from_slice(&catalog.0.to_le_bytes());
    header[LOG_ID].copy_from_slice(&place.map_or(0, |place| place.log.0).to_le_bytes());
    header
}

/// Where a checkpoint stands in its log.
pub(crate) fn place_of(recovered: &Recovered) -> Option<Place> {
    let mut log = [0; 8];
    log.copy_from_slice(&recovered.user_header[LOG_ID]);
    let LogPosition { segment, offset } = recovered.log;
    let segment = SegmentNumber(u32::try_from(segment).ok()?);
    let place = Place { log: LogId(u64::from_le_bytes(log)), segment, offset: Offset(offset) };
    (recovered.log != LogPosition::NONE).then_some(place)
}

/// Opens the page file; an older checkpoint than the newest, if the log has all that came after it. Says so.
fn open_pool(
    device: Arc<dyn Device>,
    options: &Options,
    log_home: &LogHome,
) -> Result<(Arc<Pool>, Recovered, Option<String>), OpenError> {
    let error = match Pool::open(device.clone(), &pool_options(options)) {
        Ok((pool, recovered)) => return Ok((pool, recovered, None)),
        Err(error) => error,
    };
    let PoolError::PageFile(PageFileError::WouldLose { generation, ref cause, .. }) = error else {
        return Err(error.into());
    };
    let accepting = PoolOptions { accept_loss_after: Some(generation), ..pool_options(options) };
    if let Ok((pool, recovered)) = Pool::open(device, &accepting) {
        if place_of(&recovered).is_some_and(|place| log_home.reaches(place)) {
            let note = format!(
                "{cause}. Checkpoint {generation} is served instead, and the log has all that came after it: nothing is lost"
            );
            return Ok((pool, recovered, Some(note)));
        }
    }
    Err(error.into())
}

fn note_of(damage: &PageFileError, fell_back: bool) -> String {
    let meaning = match fell_back {
        true => "An older checkpoint is served, as 'accept-loss-after-checkpoint' says: what was saved after it is lost",
        false => "What was saved last is served: nothing is lost",
    };
    format!("{damage}. {meaning}")
}

fn attach(pool: Arc<Pool>, options: Options, header: &UserHeader) -> Result<Keyspace, OpenError> {
    let catalog = catalog_of(header);
    let pages: Vec<PageId> = needed_pages(header).map(PageId).collect();
    pool.residency().load(&pages);
    Keyspace::attach(pool, options, catalog).map_err(|stop| match stop {
        Stop::Damaged(reason) => OpenError::Damaged(reason),
        other => {
            OpenError::Damaged(format!("the catalog at page {} cannot be read: {other:?}", catalog.0).into())
        }
    })
}

/// The thread that frees what nothing refers to any more.
fn start_collector(keyspace: &Arc<Keyspace>) -> std::io::Result<JoinHandle<()>> {
    let keyspace = keyspace.clone();
    std::thread::Builder::new().name("sf-collect".into()).spawn(move || {
        sched::enroll("sf-collect");
        let member = keyspace.pool.join();
        collect::collect(&keyspace, &member);
    })
}

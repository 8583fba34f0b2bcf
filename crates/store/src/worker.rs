use std::sync::Arc;
use std::time::Duration;

use stillframe_pagepool::Standstill;

use crate::blobs::{SlabNeeds, Taking};
use crate::here::Here;
use crate::key::unix_ms;
use crate::keyspace::{
    collections, random, read, resolve, scan, update, whole, write, Acting, BehindLocks, Keyspace, Local,
    Locks, Op,
};
use crate::operations::Operations;
use crate::pages::Waiting;
use crate::*;

/// So often a collection that is stored anew may be stored as a small one before it is a large one.
const SMALL_FORMS: usize = 2;

/// While it lives, its worker is the only thread that works on the store: what the worker does meanwhile is one step to
/// all others and to every cut.
#[must_use]
pub struct Alone {
    // Dropped in this order.
    _locks: Locks,
    _standstill: Standstill,
    /// The last one waits for a thread that does not run meanwhile.
    _store: Store,
}

/// So often a waiting worker brings pages in while others may evict some of them; then it keeps what it has met.
const LOADS_MAX: u32 = 8;

/// So long an operation that is refused memory waits for that of nodes that have just been freed.
pub(crate) const NODES_PATIENCE: Duration = Duration::from_secs(1);

/// Access to the store's keys. There may be any number, in any thread; within a closure that an operation calls every other operation
/// of the thread on the same store is [`OpError::Busy`].
///
/// There are two kinds. One of [`Store::worker`] rests between two operations: nobody waits for a thread that has one, and one that
/// is leaked is in nobody's way. It may go to another thread. Before an operation it waits until memory has room. It waits for pages, too: an operation brings in the pages that it misses, after a restart or
/// because data is larger than memory, and begins anew then. A closure that has been given something by then is given it
/// again; what has a `begin` is told so by that. Its clock is the system's, until [`Worker::set_now`]. One of
/// [`Store::nonblocking_worker`] is for a thread that has batches. It runs from one operation to the next, and a thread that waits for a cut
/// waits for it: so its thread calls [`Worker::quiesce`] between two batches and sleeps in [`Worker::idle`], where it may use
/// other handles, as nowhere else. It never waits for a page, and its clock stands until it is set. As long as it is alone it takes
/// no locks of keys; when another worker or handle comes it does. It stays in its thread.
///
/// What a worker writes is in memory, and durable once a later [`Store::checkpoint`] has returned, or the last clone of the store
/// has gone ([`Store::close`]).
pub struct Worker {
    // Dropped first: the last store waits for the thread that collects garbage, which may wait for this member.
    local: Local,
    store: Store,
    /// What the thread does with the store.
    here: Arc<Here>,
    /// It runs from one operation to the next, and its thread is at work.
    is_seated: bool,
    operations: Operations,
}

/// An operation of a worker that rests is under way until it is dropped.
pub(crate) struct Running<'w>(pub &'w mut Worker);

impl<'w> Running<'w> {
    pub fn begin(worker: &'w mut Worker) -> Running<'w> {
        worker.local.holder.member.resume();
        Running(worker)
    }

    /// Brings in what a fault says. If the worker `yields`, memory stays within its bound, and what was met before may go.
    fn wait_for(&self, fault: Fault, yields: bool) {
        let (member, mut pages) = (&self.0.local.holder.member, Vec::new());
        if !fault.names_pages() {
            return member.idle(|| self.0.store.wait(fault));
        }
        fault.add_to(&mut pages);
        let pool = &self.0.keyspace().pool;
        match yields {
            true => member.idle_for_turns(|| pool.residency().load(&pages)),
            false => pool.residency().load_at_once(&pages),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Also after a panic in the operation.
        self.0.local.taking = Taking::Bytes;
        self.0.local.holder.acting.end_operation();
        self.0.local.holder.member.rest();
    }
}

impl Worker {
    /// One that rests between two operations, which wait or do not.
    pub(crate) fn resting(store: Store, waits: bool) -> Worker {
        let keyspace = store.keyspace();
        let mut local = keyspace.local(keyspace.pool.join_resting());
        (local.waits, local.has_own_clock) = (waits, waits);
        let _ = keyspace.locks.come(false);
        let here = Here::of(store.number());
        Worker { local, store, here, is_seated: false, operations: Operations::default() }
    }

    /// One that runs on.
    ///
    /// # Errors
    /// [`OpError::Busy`], [`OpError::Late`].
    pub(crate) fn seated(store: Store) -> Result<Worker, OpError> {
        let here = Here::of(store.number());
        here.sit_down()?;
        let keyspace = store.keyspace();
        let local = keyspace.local(keyspace.pool.join_resting());
        let may_work = keyspace.locks.come(true);
        let worker = Worker { local, store, here, is_seated: true, operations: Operations::default() };
        if !may_work {
            worker.begin_sharing()?;
        }
        worker.local.holder.member.resume();
        Ok(worker)
    }

    /// The thread that calls this has the worker from now on; what it does with the store.
    pub(crate) fn come_here(&mut self) -> Arc<Here> {
        if !self.here.is_of_this_thread() {
            self.here = Here::of(self.store.number());
            self.local.holder.member.belongs_here();
        }
        self.here.clone()
    }

    /// Before an operation of one that rests: from now on everybody takes locks.
    ///
    /// # Errors
    /// [`OpError::Late`].
    #[inline(always)]
    pub(crate) fn begin_sharing(&self) -> Result<(), OpError> {
        if !self.keyspace().locks.is_shared() {
            self.store.keyspace().share()?;
        }
        Ok(())
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    #[inline(always)]
    pub(crate) fn op(&mut self) -> Op<'_> {
        Op { keyspace: &self.store.shared.keyspace, local: &mut self.local }
    }

    /// An operation begins, in debug builds.
    #[inline(always)]
    pub(crate) fn count_operation(&mut self) {
        if cfg!(debug_assertions) {
            self.operations.begin(self.local.change_count());
        }
    }

    /// Runs an operation; that of a waiting worker until it misses no page.
    #[inline(always)]
    pub(crate) fn run<R>(
        &mut self,
        mut operation: impl FnMut(&mut Op<'_>) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        self.count_operation();
        if self.local.waits {
            return self.run_waiting(operation);
        }
        operate(self.op(), &mut operation)
    }

    #[cold]
    #[inline(never)]
    fn run_waiting<R>(
        &mut self,
        mut operation: impl FnMut(&mut Op<'_>) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        let here = self.come_here();
        let _at_work = here.begin()?;
        self.begin_sharing()?;
        if self.store.is_full() && !self.store.is_stuck() {
            // Also one that has stopped the others lets pages go meanwhile.
            self.local.holder.member.idle_for_turns(|| self.store.wait(Fault::room()));
        }
        self.op().read_clock();
        let (mut load_count, mut may_settle) = (0, true);
        let running = Running::begin(self);
        let _waiting = Waiting::begin();
        loop {
            match operate(running.0.op(), &mut operation) {
                Err(OpError::Fault(fault)) => running.wait_for(fault, load_count < LOADS_MAX),
                // Once: there is no more to come.
                Err(OpError::OutOfMemory { .. })
                    if may_settle && running.0.store.pool().has_freed_nodes() =>
                {
                    let op = running.0.op();
                    op.local.holder.member.idle(|| op.keyspace.pool.settle_nodes(NODES_PATIENCE));
                    may_settle = false;
                }
                result => return result,
            }
            load_count += 1;
        }
    }

    /// Whether operations may begin anew after a closure has been called.
    pub(crate) fn waits(&self) -> bool {
        self.local.waits
    }

    /// Runs an operation on a collection with a buffer for packed elements.
    #[inline]
    pub(crate) fn with_run<R>(
        &mut self,
        mut operation: impl FnMut(&mut Op<'_>, &mut Vec<u8>) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        self.run(|op| op.with_run(Taking::Bytes, &mut operation))
    }

    /// The same for a caller that takes large elements by reference.
    #[inline]
    pub(crate) fn with_run_taking<R>(
        &mut self,
        mut operation: impl FnMut(&mut Op<'_>, &mut Vec<u8>) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        self.run(|op| op.with_run(Taking::Large, &mut operation))
    }

    #[inline(always)]
    pub(crate) fn keyspace(&self) -> &Keyspace {
        &self.store.shared.keyspace
    }

    /// Hashes a key with the store's secret seed (SipHash-1-3).
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let keyspace = self.keyspace();
        Key { origin: keyspace.key_origin, ..Key::new(bytes, keyspace.trees.order.hash(bytes)) }
    }

    /// Brings what a batch is going to look at into the cache.
    #[inline]
    pub fn prefetch(&self) -> Prefetch<'_> {
        Prefetch(self.keyspace())
    }

    /// What belongs together of what this worker changes.
    #[inline(always)]
    pub fn steps(&self) -> OwnSteps<'_> {
        OwnSteps(self)
    }

    /// What it has done, counted in debug builds.
    #[inline(always)]
    pub fn counting(&mut self) -> Counting<'_> {
        Counting { change_count: self.local.change_count(), operations: &mut self.operations }
    }

    /// A database as a whole.
    pub fn database(&mut self, db: DbId) -> Database<'_> {
        Database { worker: self, db }
    }

    /// Between two commands: takes part in a pending barrier. Cheap when there is none.
    #[inline]
    pub fn quiesce(&mut self) {
        debug_assert!(self.local.holder.acting.is_between(), "a step is open between two commands");
        self.local.holder.member.quiesce();
        if !self.keyspace().pages.all_resident() {
            self.keyspace().pages.note_residence();
        }
    }

    /// Runs `f` (a sleep in poll, a wait) as quiescent: cuts do not wait for this worker meanwhile.
    pub fn idle<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let member = &self.local.holder.member;
        match self.is_seated && !member.has_stopped_others() {
            true => member.idle(|| self.here.away(f)),
            false => member.idle(f),
        }
    }

    /// The same for who needs nothing of what it has found in memory before: while this worker is [`Alone`] nobody is let in, but
    /// pages are evicted, which otherwise stay until it ends.
    pub fn idle_for_turns<R>(&mut self, f: impl FnOnce() -> R) -> R {
        self.local.holder.member.idle_for_turns(f)
    }

    /// Sets the clock by which deadlines expire, once a batch, say: from now on it stands until it is set again. A waiting
    /// worker's is the system's otherwise.
    pub fn set_now(&mut self, now: UnixMillis) {
        self.local.has_own_clock = false;
        let op = self.op();
        op.keyspace.set_now(op.local, now);
    }

    /// What the clock says.
    pub fn now(&self) -> UnixMillis {
        match self.local.has_own_clock {
            true => unix_ms(),
            false => self.local.now,
        }
    }

    /// Whether expired entries stay where they are met, counting as absent, for as long as the data is not to change.
    pub fn keep_expired(&mut self, keeps: bool) {
        self.local.keeps_expired = keeps;
    }

    /// Changes that this worker has made, but for the emptying and exchanging of databases.
    pub fn change_count(&self) -> u64 {
        self.local.change_count()
    }

    /// Keys that this worker found expired (lazily or actively) and removed, and fields of hashes.
    pub fn expired_counts(&self) -> (u64, u64) {
        (self.local.expired_count, self.local.expired_field_count.get())
    }

    /// Locks keys, in an order of their own, for a command or transaction that touches several; `write` is
    /// exclusive. Single-key operations lock for themselves unless the caller holds a lock set; a further lock
    /// set within one is empty.
    pub fn lock(&mut self, keys: &[(DbId, Key<'_>)], write: bool) -> Locks {
        if self.local.waits {
            // A worker that rests has no key to itself without a lock. If sharing cannot begin, the operation says so.
            let here = self.come_here();
            let at_work = here.begin();
            if at_work.is_ok() {
                let _ = self.begin_sharing();
            }
        }
        self.keyspace().locks.lock_keys(&self.local.holder, keys, write)
    }

    /// Until the result is dropped, a read of one key that meets a change finds that its [`Listener`] has been told: the read waits
    /// for the lock under which that happens. To be called before the read, between two operations.
    pub fn read_behind_locks(&self) -> BehindLocks {
        self.keyspace().locks.read_behind_locks()
    }

    /// The resolve phase: makes sure that every page is in memory which an operation on these keys may touch, whatever it
    /// does with their values. Changes nothing.
    ///
    /// # Errors
    /// [`OpError::Fault`], of a worker that does not wait: pass it to [`Store::load`], serve others, and run the command again.
    /// [`OpError::LargerThanMemory`] if there is no room for the values together.
    pub fn resolve(&mut self, keys: &[(DbId, Key<'_>)]) -> Result<(), OpError> {
        let keys = keys.iter().map(|(db, key)| (*db, *key, Reach::WHOLE));
        self.resolve_reaching(keys, &SlabNeeds::any(0))
    }

    /// The same for operations that reach no further into the values than told, are to be one step, and store what is told: after
    /// it none of them meets a page that is missing, as long as the worker is [`Alone`].
    ///
    /// # Errors
    /// As of [`Worker::resolve`].
    pub fn resolve_reaching<'k>(
        &mut self,
        keys: impl Iterator<Item = (DbId, Key<'k>, Reach)> + Clone,
        stored: &SlabNeeds,
    ) -> Result<(), OpError> {
        self.run(|op| resolve::resolve(op.keyspace, keys.clone(), stored))
    }

    /// Waits until every other worker stands between two commands, and the background work, too. To be called between
    /// two commands, and without locks.
    ///
    /// # Errors
    /// [`OpError::Busy`]: this thread has stopped the others already.
    pub fn stop_others(&mut self) -> Result<Alone, OpError> {
        stop_others(self, None)
    }

    /// What is known of the entry; does not count as an access. An expired entry is removed and counts as absent.
    pub fn entry(&mut self, db: DbId, key: &Key<'_>) -> Result<Option<EntryInfo>, OpError> {
        self.run(|op| read::entry(op, db, key))
    }

    /// Marks the entry as accessed now (`TOUCH`).
    pub fn touch(&mut self, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        self.run(|op| read::touch(op, db, key))
    }

    /// Sets or clears the deadline; returns whether the key is there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    pub fn set_deadline(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        deadline: Option<UnixMillis>,
    ) -> Result<bool, OpError> {
        self.run(|op| update::set_deadline(op, db, key, deadline))
    }

    /// Removes an entry; returns whether it was there. Large values are freed in the background.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    pub fn remove(&mut self, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        self.run(|op| write::remove(op, db, key))
    }

    /// Before a collection is stored element by element in the place of whatever a key has, in one command: makes sure that
    /// things of these lengths can be stored without a page that is missing, and removes what is there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn make_way(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        lens_bytes: impl Iterator<Item = usize>,
    ) -> Result<(), OpError> {
        let mut stored = SlabNeeds::of(lens_bytes);
        // As long as it is small, the whole of it.
        (0..SMALL_FORMS).for_each(|_| stored.add_any());
        let made = self.run(|op| {
            resolve::resolve(op.keyspace, [(db, *key, Reach::WHOLE)].into_iter(), &stored)?;
            collections::make_way(op, db, key)
        });
        if cfg!(debug_assertions) && made.is_ok() {
            self.operations.note_silent_change();
        }
        made
    }

    /// Moves an entry, deadline included, over whatever is at `to` (`RENAME`, `MOVE`); large values are
    /// re-linked, not copied. Returns false if `from` is absent. The caller holds locks on both; a waiting worker takes them.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    pub fn rename(&mut self, from: (DbId, &Key<'_>), to: (DbId, &Key<'_>)) -> Result<bool, OpError> {
        let _locks = lock_if_waiting(self, [from, to]);
        self.run(|op| update::rename(op, from, to))
    }

    /// Brings pages in, now, in the midst of what must not be left before it ends. Others wait. If this worker is [`Alone`] and
    /// nothing that was found before has to stay, others are evicted in their place; with `exceeds`, and where nothing can
    /// go, memory is exceeded. How many were missing.
    pub fn load_in_place(&mut self, fault: Fault, exceeds: bool) -> usize {
        let mut pages = Vec::new();
        fault.add_to(&mut pages);
        let pool = &self.keyspace().pool;
        pages.retain(|page| pool.residency().is_missing(*page));
        if pages.is_empty() {
            return 0;
        }
        if !exceeds {
            self.local.holder.member.idle_for_turns(|| pool.residency().load(&pages));
        }
        collections::load_in_place(self.keyspace(), &pages);
        pages.len()
    }

    /// From now on random choices are those that belong to `seed`: made anew from there they are the same, as long as the data is.
    pub fn begin_choices(&mut self, seed: u64) {
        fastrand::seed(seed);
        self.local.forget_drawn();
    }

    /// Whether what this worker does does not count as an access, from now on; but for [`Worker::touch`].
    #[inline]
    pub fn keep_still(&mut self, is_still: bool) {
        self.local.tracked.is_still = is_still;
    }

    /// Takes over what is known of a key's accesses from elsewhere, if that is tracked.
    pub fn set_access(&mut self, db: DbId, key: &Key<'_>, access: Access) {
        let op = self.op();
        if let Some(tree) = op.keyspace.tree(db) {
            op.local.tracked.set(tree.tag, key.hash, access);
        }
    }
}

/// An operation is a step, unless one is open.
#[inline(always)]
fn operate<R>(mut op: Op<'_>, operation: &mut impl FnMut(&mut Op<'_>) -> R) -> R {
    let result = operation(&mut op);
    op.local.holder.acting.end_operation();
    result
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.local.holder.acting.close_left_open();
        let keyspace = &self.store.shared.keyspace;
        keyspace.retire(&self.local);
        keyspace.locks.go(self.is_seated);
        if self.is_seated {
            self.here.stand_up();
        }
    }
}

/// One of a store's databases, for operations of one worker.
pub struct Database<'w> {
    worker: &'w mut Worker,
    db: DbId,
}

impl Database<'_> {
    /// One step of an iteration: calls `f` with about `count` unexpired keys from `cursor` on and returns the
    /// next cursor, 0 at the end. A key that is there throughout is given exactly once. Cursors are the top 52
    /// bits of the hash plus one.
    ///
    /// # Errors
    /// What `f` was given by this call does not count then.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(&[u8], &EntryInfo),
    ) -> Result<u64, OpError> {
        let db = self.db;
        if !self.worker.waits() {
            return self.worker.run(|op| scan::scan(op, db, cursor, count, &mut f));
        }
        let mut found = Vec::new();
        let next = self.worker.run(|op| {
            found.clear();
            scan::scan(op, db, cursor, count, |key, info| found.push((key.to_vec(), *info)))
        })?;
        found.iter().for_each(|(key, info)| f(key, info));
        Ok(next)
    }

    /// A key chosen evenly among those that are not expired; `None` if there is none.
    pub fn random_key(&mut self) -> Result<Option<Vec<u8>>, OpError> {
        let db = self.db;
        self.worker.run(|op| random::random_key(op, db))
    }

    /// Removes an entry, also one whose deadline has passed; returns whether there was one.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    pub fn remove_in_any_case(&mut self, key: &Key<'_>) -> Result<bool, OpError> {
        let db = self.db;
        self.worker.run(|op| write::remove_in_any_case(op, db, key))
    }

    /// Empties one database. The pages are freed in the background.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError::NoDatabase`].
    pub fn flush(&mut self) -> Result<(), OpError> {
        let db = self.db;
        self.worker.keyspace().check_database(db)?;
        let (acting, now) = (self.worker.local.holder.acting.clone(), self.worker.now());
        self.stop_the_world(move |keyspace| whole::flush(keyspace, db, (&acting, now)))
    }

    /// Exchanges two databases.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError::NoDatabase`].
    pub fn swap_with(&mut self, other: DbId) -> Result<(), OpError> {
        let db = self.db;
        self.worker.keyspace().check_database(db)?;
        self.worker.keyspace().check_database(other)?;
        let (acting, now) = (self.worker.local.holder.acting.clone(), self.worker.now());
        self.stop_the_world(move |keyspace| whole::swap(keyspace, db, other, (&acting, now)))
    }

    /// Runs `action` between two commands of every worker; at once if this one is [`Alone`].
    fn stop_the_world(&mut self, action: impl FnOnce(&Keyspace) + Send + 'static) -> Result<(), OpError> {
        let here = self.worker.come_here();
        let _at_work = (!self.worker.is_seated).then(|| here.begin()).transpose()?;
        let keyspace = self.worker.store.shared.keyspace.clone();
        let pool = keyspace.pool.clone();
        self.worker.local.holder.member.idle(|| pool.at_barrier(move |_| action(&keyspace)))?;
        Ok(())
    }
}

/// The steps of a worker, as listeners hear of them.
#[derive(Clone, Copy)]
pub struct OwnSteps<'w>(&'w Worker);

impl OwnSteps<'_> {
    /// This worker, in the steps that it makes.
    pub fn worker(&self) -> WorkerId {
        self.acting().worker()
    }

    /// Whether it is [`Alone`].
    pub fn is_alone(&self) -> bool {
        self.0.local.holder.member.has_stopped_others()
    }

    /// From now on operations are one [`Step`] to listeners, until [`OwnSteps::end`] or the end of the worker. To be called once
    /// every key is locked that the step may change, or this worker is [`Alone`].
    #[inline(always)]
    pub fn begin(&self) {
        self.acting().open();
    }

    /// Ends the step, before the locks are given up.
    #[inline(always)]
    pub fn end(&self) {
        self.acting().close();
    }

    /// The caller's next call begins, whose changes listeners hear under this name.
    pub fn name_call(&self, name: Option<&'static str>) {
        self.acting().name_call(name);
    }

    /// What this worker changes from now on has this cause. Returns the one before.
    pub fn set_cause(&self, cause: Cause) -> Cause {
        self.acting().set_cause(cause)
    }

    /// Waits for the end of each step of another worker that changes this key at present, as long as that takes a command, and returns at once if
    /// there is none. What a read before has met has been told to the end then. To be called between two commands: a cut may come meanwhile.
    pub fn await_writer(&self, db: DbId, key: &Key<'_>) {
        self.0.keyspace().locks.await_writer(&self.0.local.holder, db, key.hash);
    }

    #[inline(always)]
    fn acting(&self) -> &Acting {
        &self.0.local.holder.acting
    }
}

/// Locks the keys of one operation, for a worker whose caller has the library see to what it needs.
#[inline]
pub(crate) fn lock_if_waiting(worker: &mut Worker, keys: [(DbId, &Key<'_>); 2]) -> Option<Locks> {
    let waits = worker.local.waits;
    waits.then(|| worker.lock(&keys.map(|(db, key)| (db, *key)), true))
}

/// A worker that, while it has to wait for others for long, calls `meanwhile` every now and then, which may touch nothing of the
/// store (B6).
pub struct Patient<'w> {
    pub worker: &'w mut Worker,
    pub meanwhile: &'w mut dyn FnMut(),
}

impl Patient<'_> {
    /// As [`Worker::quiesce`] where that takes no wait: no barrier is pending. Else it has not happened, and the result is false.
    #[inline]
    pub fn is_not_needed_by(worker: &mut Worker) -> bool {
        debug_assert!(worker.local.holder.acting.is_between(), "a step is open between two commands");
        let is_free = worker.local.holder.member.try_quiesce();
        if is_free && !worker.keyspace().pages.all_resident() {
            worker.keyspace().pages.note_residence();
        }
        is_free
    }

    /// As [`Worker::quiesce`].
    #[cold]
    pub fn quiesce(self) {
        let Patient { worker, meanwhile } = self;
        worker.local.holder.member.quiesce_meanwhile(meanwhile);
        if !worker.keyspace().pages.all_resident() {
            worker.keyspace().pages.note_residence();
        }
    }

    /// As [`Worker::idle`]; it may have to wait after `f`.
    pub fn idle<R>(self, f: impl FnOnce() -> R) -> R {
        let Patient { worker, meanwhile } = self;
        let member = &worker.local.holder.member;
        match worker.is_seated && !member.has_stopped_others() {
            true => member.idle_meanwhile(|| worker.here.away(f), meanwhile),
            false => member.idle_meanwhile(f, meanwhile),
        }
    }

    /// As [`Worker::stop_others`].
    ///
    /// # Errors
    /// The same.
    pub fn stop_others(self) -> Result<Alone, OpError> {
        stop_others(self.worker, Some(self.meanwhile))
    }

    /// The same for what may take long. A worker that waits for a key's lock is in the middle of a command, where there may be nothing
    /// that it can do `meanwhile`: it goes on first, unless some worker always waits.
    ///
    /// # Errors
    /// The same.
    pub fn stop_others_for_long(self) -> Result<Alone, OpError> {
        let Patient { worker, meanwhile } = self;
        for number in 0..TRIES_BETWEEN_COMMANDS {
            let alone = stop_others(worker, Some(&mut *meanwhile))?;
            if !worker.keyspace().locks.has_waiting() {
                return Ok(alone);
            }
            drop(alone);
            Patient { worker: &mut *worker, meanwhile: &mut *meanwhile }
                .idle(|| std::thread::sleep(TIME_TO_GO_ON * (1 << number)));
        }
        stop_others(worker, Some(meanwhile))
    }
}

/// How often a worker tries to stop others while none of them waits for a lock. Each try stops everybody: with many, scripts would hold up
/// workers that all write one key.
const TRIES_BETWEEN_COMMANDS: u32 = 9;
/// What such a worker is given to go on, twice as long with each try: where processors are scarce a worker that has got its lock
/// does not run at once. 51 ms in all.
const TIME_TO_GO_ON: Duration = Duration::from_micros(100);

fn stop_others(worker: &mut Worker, meanwhile: Option<&mut dyn FnMut()>) -> Result<Alone, OpError> {
    if !worker.is_seated {
        worker.come_here().begin()?;
        worker.begin_sharing()?;
    }
    let holder = &worker.local.holder;
    let stopped = holder.member.stop_others_meanwhile(meanwhile)?;
    let Some(standstill) = stopped else { return Err(OpError::Busy) };
    let locks = worker.keyspace().locks.need_no_locks(holder);
    Ok(Alone { _locks: locks, _standstill: standstill, _store: worker.store.clone() })
}

//! The key space: databases as B+trees of hashes over the pages of a pool.
//!
//! ```text
//! catalog ─▶ root (inner) ─▶ … ─▶ inner, level 1 ─▶ leaf ─▶ slab slot, or an object of pages
//! ```
//! A root keeps its page for the life of its tree. Inner nodes are read optimistically, leaves under a shared
//! latch; a writer latches the leaf exclusively and, to divide or join leaves, first the node above it. Latches are
//! waited for downwards only; neighbours are tried. Errors come before the first change of an operation.

mod blob;
mod bounds;
mod catalog;
mod check;
mod descend;
mod discards;
mod expire;
mod garbage;
#[cfg(test)]
mod garbage_tests;
mod locks;
mod merge;
mod read;
mod resolve;
mod room;
mod scan;
mod side;
mod update;
mod write;

use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use stillframe_pagepool::{Member, PageId, Pool, PoolError, Restart, PAGE_SIZE};

use crate::page::record::{Record, RecordKey};
use crate::page::slab::CLASS_COUNT;
use crate::page::spread::TARGETS_MAX;
use crate::page::Page;
use crate::{DbId, DbStats, Fault, OpError, Options, UnixMillis};

pub(crate) use catalog::{Catalog, CATALOG_DB_MAX, CATALOG_PAGE_COUNT};
pub use check::CheckReport;
pub(crate) use garbage::Garbage;
pub use locks::Locks;
pub(crate) use locks::{HeldLocks, StripeLocks};
use side::Side;

/// Why a step of an operation stopped. Nothing has been changed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Run the operation again.
    Contended,
    Fault(PageId),
    Damaged(String),
    OutOfMemory {
        limit_bytes: u64,
    },
    TooLarge,
}

impl From<Restart> for Stop {
    fn from(restart: Restart) -> Stop {
        match restart {
            Restart::Contended => Stop::Contended,
            Restart::Fault(pid) => Stop::Fault(pid),
            Restart::Damaged(text) => Stop::Damaged(text.to_string()),
        }
    }
}

impl From<PoolError> for Stop {
    fn from(error: PoolError) -> Stop {
        Stop::Damaged(error.to_string())
    }
}

/// A database's tree: its root page and the tag that all its pages carry. A tag is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    pub db: DbId,
    pub root: PageId,
    pub tag: u32,
}

/// What a worker has added to the counters; only its own thread writes, others read.
#[derive(Default)]
pub(crate) struct Deltas {
    keys: Box<[AtomicI64]>,
    deadlines: Box<[AtomicI64]>,
    changes: AtomicU64,
}

impl Deltas {
    fn new(database_count: usize) -> Deltas {
        let zeros = || (0..database_count).map(|_| AtomicI64::new(0)).collect();
        Deltas { keys: zeros(), deadlines: zeros(), changes: AtomicU64::new(0) }
    }
}

fn add(counter: &AtomicI64, delta: i64) {
    counter.store(counter.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
}

/// A worker's own state.
pub(crate) struct Local {
    pub member: Member,
    deltas: Arc<Deltas>,
    pub held: Arc<HeldLocks>,
    pub now: UnixMillis,
    /// `now` in the unit of access times.
    tick: u32,
    pub expired_count: u64,
    /// Expired entries count as absent and stay.
    pub keeps_expired: bool,
    /// Expired entries that were met under a shared lock set, to be removed after it.
    left_expired: Vec<(DbId, Vec<u8>)>,
    /// Copies of the leaves that are being divided anew.
    copies: Box<[Page; TARGETS_MAX]>,
    /// A value that is on its way from one place to another.
    bytes: Vec<u8>,
}

impl Local {
    pub fn set_now(&mut self, now: UnixMillis) {
        self.now = now;
        self.tick = side::tick_of(now);
    }

    fn count_key(&self, db: DbId, delta: i64) {
        add(&self.deltas.keys[db.0 as usize], delta);
    }

    fn count_deadline(&self, db: DbId, delta: i64) {
        if delta != 0 {
            add(&self.deltas.deadlines[db.0 as usize], delta);
        }
    }

    fn count_change(&self) {
        let changes = &self.deltas.changes;
        changes.store(changes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Totals of workers that are gone, and of the run before this one.
#[derive(Default)]
struct Totals {
    keys: Vec<i64>,
    deadlines: Vec<i64>,
    changes: u64,
    workers: Vec<Arc<Deltas>>,
}

/// All databases of a store.
pub(crate) struct Keyspace {
    pub pool: Arc<Pool>,
    pub catalog: PageId,
    hash_seed: (u64, u64),
    /// Bits of a hash that are kept.
    hash_mask: u64,
    maxmemory_bytes: AtomicU64,
    /// Root page and, in the high half, tag of each database; 0 while it has no tree.
    trees: Box<[AtomicU64]>,
    next_tag: AtomicU32,
    tree_creation: Mutex<()>,
    totals: Mutex<Totals>,
    /// Head of the list of slabs with free slots, for each class.
    slab_heads: Box<[Mutex<u32>]>,
    side: Side,
    pub locks: StripeLocks,
    garbage: Garbage,
    /// Where the active expiry looks next, as a page id.
    expire_at: AtomicU32,
    /// Leaves that the side array does not know yet after a restart: database and hash to go on from.
    unregistered: Mutex<Option<(DbId, u64)>>,
    /// Whether every page is in memory, so that nothing needs to be asked for.
    pub all_resident: AtomicBool,
    stopping: AtomicBool,
}

impl Keyspace {
    /// A key space without keys in an empty pool; its first object is the catalog.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn create(pool: Arc<Pool>, options: Options) -> Result<Keyspace, PoolError> {
        let catalog = catalog::allocate(&pool)?;
        let content = Catalog::empty(options.database_count as usize);
        Ok(Keyspace::with_catalog(pool, &options, catalog, &content))
    }

    /// The key space that a catalog describes; its pages are in memory.
    pub fn attach(pool: Arc<Pool>, options: Options, catalog: PageId) -> Result<Keyspace, Stop> {
        let content = Catalog::read(&pool, catalog, options.database_count as usize)?;
        let keyspace = Keyspace::with_catalog(pool, &options, catalog, &content);
        keyspace.all_resident.store(false, Ordering::Relaxed);
        *keyspace.unregistered.lock() = Some((DbId(0), 0));
        Ok(keyspace)
    }

    fn with_catalog(pool: Arc<Pool>, options: &Options, catalog: PageId, content: &Catalog) -> Keyspace {
        let keeping = options.hash_bits.clamp(1, 64);
        let totals = Totals {
            keys: content.databases.iter().map(|d| d.key_count as i64).collect(),
            deadlines: content.databases.iter().map(|d| d.deadline_count as i64).collect(),
            ..Totals::default()
        };
        Keyspace {
            catalog,
            hash_seed: content.hash_seed,
            hash_mask: !(u64::MAX.checked_shr(keeping).unwrap_or(0)),
            maxmemory_bytes: AtomicU64::new(options.maxmemory_bytes),
            trees: content.databases.iter().map(|d| AtomicU64::new(pack(d.root, d.tag))).collect(),
            next_tag: AtomicU32::new(content.next_tag),
            tree_creation: Mutex::new(()),
            totals: Mutex::new(totals),
            slab_heads: (0..CLASS_COUNT).map(|c| Mutex::new(content.slab_heads[c])).collect(),
            side: Side::new(),
            locks: StripeLocks::new(options.worker_count),
            garbage: Garbage::new(content.garbage.clone()),
            expire_at: AtomicU32::new(0),
            unregistered: Mutex::new(None),
            all_resident: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            pool,
        }
    }

    /// A new worker's state; its thread is a running member of the barrier from now on.
    pub fn local(&self) -> Local {
        let deltas = Arc::new(Deltas::new(self.trees.len()));
        self.totals.lock().workers.push(deltas.clone());
        Local {
            member: self.pool.join(),
            deltas,
            held: Arc::default(),
            now: 0,
            tick: 0,
            expired_count: 0,
            keeps_expired: false,
            left_expired: Vec::new(),
            copies: Box::new([[0; PAGE_SIZE]; TARGETS_MAX]),
            bytes: Vec::new(),
        }
    }

    /// A worker's counters outlive it.
    pub fn retire(&self, local: &Local) {
        let mut totals = self.totals.lock();
        for db in 0..self.trees.len() {
            totals.keys[db] += local.deltas.keys[db].load(Ordering::Relaxed);
            totals.deadlines[db] += local.deltas.deadlines[db].load(Ordering::Relaxed);
        }
        totals.changes += local.deltas.changes.load(Ordering::Relaxed);
        totals.workers.retain(|deltas| !Arc::ptr_eq(deltas, &local.deltas));
    }

    /// Notes, after a restart, that no page is missing any more.
    #[cold]
    pub fn note_residence(&self) {
        if !self.pool.is_warming_up() && !self.pool.has_damage() {
            self.all_resident.store(true, Ordering::Relaxed);
        }
    }

    /// Hashes a key with the secret seed.
    #[inline(always)]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.hash_seed.0, self.hash_seed.1);
        hasher.write(bytes);
        hasher.finish() & self.hash_mask
    }

    fn hash_of(&self, record: &Record<'_>) -> u64 {
        match record.key {
            RecordKey::Inline(key) => self.hash(key),
            RecordKey::Out { hash, .. } => hash,
        }
    }

    /// The tree of a database; `None` while it is empty from the start.
    #[inline(always)]
    pub fn tree(&self, db: DbId) -> Option<Tree> {
        let word = self.trees[db.0 as usize].load(Ordering::Acquire);
        (word != 0).then_some(Tree { db, root: PageId(word as u32), tag: (word >> 32) as u32 })
    }

    pub fn database_count(&self) -> usize {
        self.trees.len()
    }

    pub fn db_stats(&self, db: DbId) -> DbStats {
        let totals = self.totals.lock();
        let db = db.0 as usize;
        let load = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let keys = totals.keys[db] + totals.workers.iter().map(|w| load(&w.keys[db])).sum::<i64>();
        let deadlines =
            totals.deadlines[db] + totals.workers.iter().map(|w| load(&w.deadlines[db])).sum::<i64>();
        DbStats { key_count: keys.max(0) as u64, deadline_count: deadlines.max(0) as u64 }
    }

    /// Keys written since the process started.
    pub fn change_count(&self) -> u64 {
        let totals = self.totals.lock();
        let load = |deltas: &Arc<Deltas>| deltas.changes.load(Ordering::Relaxed);
        totals.changes + totals.workers.iter().map(load).sum::<u64>()
    }

    pub fn used_memory_bytes(&self) -> u64 {
        self.pool.allocated_pages() * (PAGE_SIZE as u64 + DESCRIPTOR_BYTES) + self.side.memory_bytes()
    }

    pub fn set_maxmemory_bytes(&self, bytes: u64) {
        self.maxmemory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether `page_count` more pages may be allocated.
    fn admit(&self, page_count: u32) -> Result<(), Stop> {
        let limit_bytes = self.maxmemory_bytes.load(Ordering::Relaxed);
        let more = u64::from(page_count) * PAGE_SIZE as u64;
        if limit_bytes != 0 && self.used_memory_bytes() + more > limit_bytes {
            return Err(Stop::OutOfMemory { limit_bytes });
        }
        Ok(())
    }

    /// Exchanges two databases. Runs in the barrier.
    pub fn swap(&self, a: DbId, b: DbId) {
        let (a, b) = (a.0 as usize, b.0 as usize);
        if a == b {
            return;
        }
        let swap = |list: &[AtomicI64]| {
            let was = list[a].load(Ordering::Relaxed);
            list[a].store(list[b].load(Ordering::Relaxed), Ordering::Relaxed);
            list[b].store(was, Ordering::Relaxed);
        };
        let mut totals = self.totals.lock();
        totals.changes += 1;
        totals.keys.swap(a, b);
        totals.deadlines.swap(a, b);
        for worker in &totals.workers {
            swap(&worker.keys);
            swap(&worker.deadlines);
        }
        let was = self.trees[a].load(Ordering::Relaxed);
        self.trees[a].store(self.trees[b].load(Ordering::Relaxed), Ordering::Release);
        self.trees[b].store(was, Ordering::Release);
    }

    /// Empties a database: its tree is garbage from now on. Runs in the barrier.
    pub fn flush(&self, db: DbId) {
        let index = db.0 as usize;
        let word = self.trees[index].swap(0, Ordering::AcqRel);
        if word != 0 {
            self.garbage.push_tree(&self.pool, PageId(word as u32));
        }
        let removed = self.db_stats(db).key_count;
        let mut totals = self.totals.lock();
        totals.changes += removed;
        totals.keys[index] = 0;
        totals.deadlines[index] = 0;
        for worker in &totals.workers {
            worker.keys[index].store(0, Ordering::Relaxed);
            worker.deadlines[index].store(0, Ordering::Relaxed);
        }
    }

    /// Writes roots, counters, slab lists and garbage to the catalog. Runs in the barrier, just before a cut.
    pub fn fold(&self) -> Result<(), Stop> {
        let databases = (0..self.trees.len())
            .map(|db| {
                let word = self.trees[db].load(Ordering::Acquire);
                let stats = self.db_stats(DbId(db as u32));
                catalog::Database {
                    root: word as u32,
                    tag: (word >> 32) as u32,
                    key_count: stats.key_count,
                    deadline_count: stats.deadline_count,
                }
            })
            .collect();
        let content = Catalog {
            hash_seed: self.hash_seed,
            next_tag: self.next_tag.load(Ordering::Relaxed),
            slab_heads: self.slab_heads.iter().map(|head| *head.lock()).collect(),
            databases,
            garbage: self.garbage.to_lists(&self.pool)?,
        };
        content.write(&self.pool, self.catalog)
    }

    /// Runs a step until nobody gets in its way.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    #[inline(always)]
    fn retry<R>(&self, mut step: impl FnMut() -> Result<R, Stop>) -> Result<R, OpError> {
        match step() {
            Ok(result) => Ok(result),
            Err(stop) => self.retry_on(stop, step),
        }
    }

    #[cold]
    #[inline(never)]
    fn retry_on<R>(&self, mut stop: Stop, mut step: impl FnMut() -> Result<R, Stop>) -> Result<R, OpError> {
        for attempt in 0..RESTARTS_MAX {
            match stop {
                Stop::Contended if attempt < 32 => std::hint::spin_loop(),
                Stop::Contended => std::thread::yield_now(),
                other => return Err(other.into()),
            }
            match step() {
                Ok(result) => return Ok(result),
                Err(next) => stop = next,
            }
        }
        Err(OpError::Damaged("an operation never got through; the tree's pages contradict each other".into()))
    }
}

/// Restarts after which a tree is taken for damaged; contention ends long before.
const RESTARTS_MAX: u32 = 50_000_000;
/// Memory of a page beside its content: its descriptor and its place in the snapshot's tables.
const DESCRIPTOR_BYTES: u64 = 24;

fn pack(root: u32, tag: u32) -> u64 {
    u64::from(root) | u64::from(tag) << 32
}

impl From<Stop> for OpError {
    fn from(stop: Stop) -> OpError {
        match stop {
            Stop::Contended => OpError::Damaged("an operation was not retried".into()),
            Stop::Fault(pid) => OpError::Fault(Fault::of(vec![pid])),
            Stop::Damaged(text) => OpError::Damaged(text),
            Stop::OutOfMemory { limit_bytes } => OpError::OutOfMemory { limit_bytes },
            Stop::TooLarge => OpError::TooLarge,
        }
    }
}

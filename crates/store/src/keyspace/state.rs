//! The state of a key space and of a worker in it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use stillframe_pagepool::{Late, Member, PageId, Pool, PoolError};

use super::catalog::{self, Catalog, Database, CATALOG_PAGE_COUNT};
use super::choice::Choice;
use super::counters::{Counters, Deltas};
use super::databases::Databases;
use super::expiry::Expiry;
use super::limits::Limits;
use super::locks::{Holder, StripeLocks};
use super::skips::Skips;
use super::stamps::{StampClock, StampKey, Tracked, Tracker};
use super::steps::{Acting, Steps};
use crate::blobs::{Blobs, Garbage, Taking};
use crate::key::MADE_HERE;
use crate::named::Named;
use crate::pages::Pages;
use crate::stop::Stop;
use crate::tree::hash::{tick_of, Hashed, Side};
use crate::tree::list::Lists;
use crate::tree::ordered::Ordered;
use crate::tree::sorted_set::SortedTrees;
use crate::tree::{Scratch, Tree, Trees};
use crate::{Access, DbId, DbStats, Key, Options, Tracking, UnixMillis};

/// A buffer that has grown beyond this is given back.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// For so many keys there is room for what is tracked from the start.
const TRACKED_KEYS_MIN: u64 = 2048;

/// A hash that has been drawn for a random choice, in any tree.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    pub hash: u64,
    /// Its leaf in the tree that it was drawn for.
    pub leaf_hint: Option<PageId>,
}

/// A worker's own state.
pub(crate) struct Local {
    pub holder: Holder,
    pub(super) deltas: Arc<Deltas>,
    pub now: UnixMillis,
    /// The clock is the system's: nobody has set it.
    pub has_own_clock: bool,
    /// Operations wait for the pages that they miss.
    pub waits: bool,
    pub expired_count: u64,
    /// Fields of hashes that were found expired and removed.
    pub expired_field_count: Cell<u64>,
    /// Expired entries count as absent and stay.
    pub keeps_expired: bool,
    /// Expired entries that were met under a shared lock set, to be removed after it.
    pub left_expired: Vec<(DbId, Vec<u8>)>,
    pub scratch: Scratch,
    /// When keys were accessed, if that is tracked.
    pub tracked: Tracked,
    /// Keys that may be evicted next.
    pub(super) choice: Choice,
    /// Where the next random choice begins: where the last one met a page that was missing, or what was drawn ahead.
    pub(super) drawn: Option<Drawn>,
    /// Whether the running operation gives large elements by reference.
    pub taking: Taking,
    /// A value that is on its way from one place to another.
    pub bytes: Vec<u8>,
    /// The body of a record that is being written.
    pub(super) body: Vec<u8>,
    /// Packed elements that an operation works on.
    pub run: Vec<u8>,
    /// An element that the running command looks for, known ahead: where its bytes lie, and how many they are.
    pub ahead: Option<(usize, usize, Key<'static>)>,
}

impl Local {
    pub fn set_now(&mut self, now: UnixMillis) {
        self.now = now;
        self.scratch.tick = tick_of(now);
    }

    pub fn change_count(&self) -> u64 {
        self.deltas.changes()
    }

    /// The next random choice begins where the random numbers say.
    pub fn forget_drawn(&mut self) {
        self.drawn = None;
    }

    /// Gives the memory of buffers back that have held a large element.
    #[inline]
    pub fn drop_large_buffers(&mut self) {
        if self.run.capacity().max(self.bytes.capacity()) > BUFFER_BYTES_MAX {
            (self.run, self.bytes) = (Vec::new(), Vec::new());
        }
    }
}

/// Of a seed, and not the origin of a key that the store has made.
fn origin_of(seed: (u64, u64)) -> u32 {
    ((seed.0 ^ seed.1) >> 32) as u32 | 1
}

/// All databases of a store.
pub(crate) struct Keyspace {
    pub pages: Arc<Pages>,
    pub pool: Arc<Pool>,
    pub catalog: PageId,
    pub trees: Trees<Hashed>,
    /// What tells callers' keys of this store from those of others ([`Key::origin`]).
    pub key_origin: u32,
    /// Lists that are trees by position.
    pub lists: Lists,
    /// The orders of sorted sets.
    pub orders: Trees<Ordered>,
    /// The records of streams, which have no ranks.
    pub streams: Trees<Ordered>,
    pub(super) databases: Databases,
    pub(super) counters: Counters,
    pub blobs: Blobs,
    pub named: Named,
    pub locks: StripeLocks,
    pub garbage: Arc<Garbage>,
    pub skips: Skips,
    /// A stream has been stored since there was no key.
    has_streams: AtomicBool,
    pub limits: Limits,
    pub expiry: Expiry,
    pub(super) tracker: Tracker,
    pub steps: Arc<Steps>,
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
        keyspace.pages.note_missing();
        keyspace.expiry.forget_leaves();
        Ok(keyspace)
    }

    fn with_catalog(pool: Arc<Pool>, options: &Options, catalog: PageId, content: &Catalog) -> Keyspace {
        let pages = Arc::new(Pages::new(pool.clone(), options, content.may_leak));
        let garbage = Arc::new(Garbage::new(content.garbage.clone()));
        let side = Side::new(pages.beside_bytes.clone());
        let collector = garbage.clone();
        pool.set_nodes_listener(Box::new(move || collector.wake()));
        pool.room().keep(catalog, CATALOG_PAGE_COUNT);
        Keyspace {
            catalog,
            lists: Lists::new(&pages),
            key_origin: origin_of(content.hash_seed),
            trees: Trees::new(&pages, Hashed::new(content.hash_seed, options.hash_bits, side)),
            orders: Trees::new(&pages, Ordered { counts: true }),
            streams: Trees::new(&pages, Ordered { counts: false }),
            databases: Databases::new(content.databases.iter().map(|d| (d.root, d.tag)), content.next_tag),
            counters: Counters::new(content.databases.iter().map(|d| d.stats())),
            blobs: Blobs::new(&pages, &garbage, &content.slab_heads),
            named: Named::new(&pages, content.names, content.has_libraries),
            locks: StripeLocks::new(options.worker_count > 1),
            garbage,
            skips: Skips::default(),
            has_streams: AtomicBool::new(content.has_streams),
            limits: Limits::default(),
            expiry: Expiry::default(),
            tracker: Tracker::default(),
            steps: Arc::default(),
            pages,
            pool,
        }
    }

    /// A stream is about to be stored.
    pub fn note_stream(&self) {
        if !self.has_streams.load(Ordering::Relaxed) {
            self.has_streams.store(true, Ordering::Relaxed);
        }
    }

    /// What is done with the trees of sorted sets.
    pub fn sorted(&self) -> SortedTrees<'_> {
        SortedTrees { index: &self.trees, order: &self.orders, blobs: &self.blobs, taking: Taking::Bytes }
    }

    /// The same for a caller that takes large members by reference, or does not.
    pub fn sorted_taking(&self, taking: Taking) -> SortedTrees<'_> {
        SortedTrees { taking, ..self.sorted() }
    }

    /// A new worker's state, and its part in the barrier.
    pub fn local(&self, member: Member) -> Local {
        Local {
            holder: self.locks.holder(member, Acting::new(&self.steps)),
            deltas: self.counters.join(),
            now: 0,
            has_own_clock: false,
            waits: false,
            expired_count: 0,
            expired_field_count: Cell::new(0),
            keeps_expired: false,
            left_expired: Vec::new(),
            scratch: Scratch::new(),
            tracked: Tracked::default(),
            choice: Choice::default(),
            drawn: None,
            taking: Taking::default(),
            bytes: Vec::new(),
            body: Vec::new(),
            run: Vec::new(),
            ahead: None,
        }
    }

    /// Sees to it that everybody takes locks from now on: for a worker that is not alone. Its thread is not at work.
    ///
    /// # Errors
    /// [`Late`]: the worker that has the store to itself does not come between two commands.
    #[cold]
    pub fn share(self: &Arc<Self>) -> Result<(), Late> {
        if !self.locks.try_share() {
            let keyspace = self.clone();
            self.pool.at_barrier(move |_| keyspace.locks.share())?;
        }
        Ok(())
    }

    /// Sets a worker's clock, and lets it see what is tracked.
    pub fn set_now(&self, local: &mut Local, now: UnixMillis) {
        local.set_now(now);
        self.tracker.refresh(&mut local.tracked, now);
    }

    /// Tracks accesses to keys in this way from now on, or no more.
    pub fn track(&self, tracking: Option<Tracking>, now: UnixMillis) {
        self.tracker.track(tracking, now, &self.pages.beside_bytes);
        self.settle_stamps();
    }

    /// Makes room for the stamps of all keys that there are.
    pub fn settle_stamps(&self) {
        if let Some(stamps) = self.tracker.stamps() {
            let dbs = (0..self.database_count()).map(|db| self.db_stats(DbId(db as u32)).key_count);
            stamps.grow_for(dbs.sum::<u64>().max(TRACKED_KEYS_MIN));
        }
    }

    /// Memory of what is known of accesses, in bytes.
    pub fn stamps_bytes(&self) -> u64 {
        self.tracker.stamps().map_or(0, |stamps| stamps.bytes())
    }

    /// What is known of the accesses to a key, if they are tracked.
    pub fn access(&self, now: UnixMillis, db: DbId, bytes: &[u8]) -> Option<Access> {
        let (stamps, tree) = (self.tracker.stamps()?, self.tree(db)?);
        let key = StampKey::new(tree.tag, self.trees.order.hash(bytes));
        Some(stamps.access(key, StampClock::at(now)))
    }

    pub fn retire(&self, local: &Local) {
        self.counters.retire(&local.deltas);
    }

    /// The tree of a database, made if there is none.
    pub(crate) fn tree_or_create(&self, db: DbId) -> Result<Tree, Stop> {
        self.databases.tree_or_create(db, |tag| self.trees.create(tag))
    }

    /// The tree of a database; `None` while it is empty from the start, and if there is no such database.
    #[inline(always)]
    pub fn tree(&self, db: DbId) -> Option<Tree> {
        self.databases.tree(db)
    }

    /// Whether a key that is about to be stored was hashed for this store.
    ///
    /// # Errors
    /// [`Stop::OtherStore`].
    #[inline(always)]
    pub fn check_origin(&self, key: &Key<'_>) -> Result<(), Stop> {
        match key.origin == self.key_origin || key.origin == MADE_HERE {
            true => Ok(()),
            false => Err(Stop::OtherStore),
        }
    }

    /// Whether a database without a tree is one.
    ///
    /// # Errors
    /// [`Stop::NoDatabase`].
    #[cold]
    pub fn check_database(&self, db: DbId) -> Result<(), Stop> {
        self.databases.check(db)
    }

    pub fn database_count(&self) -> usize {
        self.databases.count()
    }

    pub fn db_stats(&self, db: DbId) -> DbStats {
        self.counters.db_stats(db)
    }

    /// Keys written since the process started.
    pub fn change_count(&self) -> u64 {
        self.counters.change_count()
    }

    /// A tag for a new tree.
    pub fn take_tag(&self) -> u32 {
        self.databases.take_tag()
    }

    /// Writes roots, counters, slab lists and garbage to the catalog, and the list of named trees. Runs in the barrier, just
    /// before a cut.
    pub fn fold(&self) -> Result<(), Stop> {
        self.named.write()?;
        self.content()?.write(&self.pool, self.catalog)
    }

    /// What the catalog is to say. Runs in the barrier.
    pub(super) fn content(&self) -> Result<Catalog, Stop> {
        let database = |db| {
            let (tree, stats) = (self.tree(db), self.db_stats(db));
            Database {
                root: tree.map_or(0, |tree| tree.root.0),
                tag: tree.map_or(0, |tree| tree.tag),
                key_count: stats.key_count,
                deadline_count: stats.deadline_count,
            }
        };
        let databases: Vec<Database> =
            (0..self.database_count()).map(|db| database(DbId(db as u32))).collect();
        if databases.iter().all(|database| database.key_count == 0) {
            // Nobody stores one meanwhile: this is part of a cut.
            self.has_streams.store(false, Ordering::Relaxed);
        }
        Ok(Catalog {
            hash_seed: self.trees.order.seed,
            next_tag: self.databases.next_tag(),
            slab_heads: self.blobs.slabs.heads(),
            databases,
            garbage: self.garbage.to_lists(&self.pool)?,
            may_leak: self.pages.leaks.may_leak(),
            names: self.named.place(),
            has_libraries: self.named.has_libraries(),
            has_streams: self.has_streams.load(Ordering::Relaxed),
        })
    }
}

//! What nothing refers to any more but is not yet free: trees of flushed databases, large values. It is in two lists
//! that a cut makes durable, so that nothing leaks if the process ends before they are worked off.
//!
//! ```text
//! entry:  pushed ─▶ ARRIVED ── taken ──▶ being worked off ─┬─ all free ──────────────▶ gone
//!            ▲        ▲                                    ├─ a part of a tree free ─▶ ARRIVED
//!            │        └────── pause over (exchange) ───────┤
//!            │                                             └─ pages missing ─────────▶ PUT OFF
//!         a write or a flush
//! ```
//! A step takes an entry and puts it back, or frees it, between two looks at the barrier: a cut finds it listed or gone.
//!
//! Latch order: leaf, then the lists' mutex, then a page of a list. Whoever holds such a page without the mutex waits
//! for nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use stillframe_pagepool::{PageId, Pool};

use super::blob::BlobPlace;
use super::discards::{Discarded, Discards};
use crate::stop::Stop;

/// How long what has been put off waits for its pages; doubled as long as nothing can be freed.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(5);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Both lists, as a cut writes them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct GarbageLists {
    pub arrived: Discards,
    /// What could not be freed, because pages were not in memory.
    pub put_off: Discards,
    /// Objects that no key refers to and that are in use all the same, with their pages ([`super::incoming`],
    /// [`super::sending`]): a cut writes them as garbage. And a tree that is being built, by its root.
    held: BTreeMap<PageId, Held>,
}

impl GarbageLists {
    pub fn new(arrived: Discards, put_off: Discards) -> GarbageLists {
        GarbageLists { arrived, put_off, held: BTreeMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.put_off.is_empty()
    }
}

/// What is held at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Object { page_count: u32 },
    Tree,
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collected {
    /// Something has been freed, or will be by the next step.
    Freed,
    PutOff,
    /// Nothing is left but what has been put off, if anything.
    Nothing,
}

pub(crate) struct Garbage {
    lists: Mutex<GarbageLists>,
    /// Something has been pushed, or the store closes.
    changed: Condvar,
    /// Held for a step.
    step: Mutex<()>,
    /// Pages of the objects that are listed, since the store was opened.
    page_count: AtomicU64,
    /// Trees likewise.
    tree_count: AtomicU64,
    stopping: AtomicBool,
}

/// What else there is to do for who works off the lists.
pub(crate) enum OtherWork {
    None,
    Later,
    Now,
}

impl Garbage {
    pub fn new(lists: GarbageLists) -> Garbage {
        Garbage {
            lists: Mutex::new(lists),
            changed: Condvar::new(),
            step: Mutex::new(()),
            page_count: AtomicU64::new(0),
            tree_count: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    fn push(&self, pool: &Pool, entry: Discarded) {
        self.count(entry);
        self.lists.lock().arrived.push(pool, entry);
        self.changed.notify_one();
    }

    pub fn push_tree(&self, pool: &Pool, root: PageId) {
        self.push(pool, Discarded::Tree { root });
    }

    pub fn push_blob(&self, pool: &Pool, pid: PageId, place: BlobPlace) {
        self.push(pool, Discarded::Blob { pid, place });
    }

    /// The same as [`Garbage::hold`], unless so many are held already.
    pub fn try_hold(&self, pid: PageId, page_count: u32, most: usize) -> bool {
        let held = &mut self.lists.lock().held;
        let has_room = held.len() < most;
        if has_room {
            held.insert(pid, Held::Object { page_count });
        }
        has_room
    }

    /// No key refers to the object, which has so many pages now, and it is not to be freed. All together hold no more than
    /// a page has entries.
    pub fn hold(&self, pid: PageId, page_count: u32) {
        self.lists.lock().held.insert(pid, Held::Object { page_count });
    }

    /// The object belongs to the data from now on, or, if its place is given, is garbage. That may be the work of a thread
    /// that is no member: no page is taken for the list.
    pub fn release(&self, pid: PageId, unused: Option<BlobPlace>) {
        let mut lists = self.lists.lock();
        let was_there = lists.held.remove(&pid);
        debug_assert!(was_there.is_some());
        if let Some(place) = unused {
            self.count(Discarded::Blob { pid, place });
            lists.arrived.newest.push(Discarded::Blob { pid, place });
            self.changed.notify_one();
        }
    }

    /// A tree is being built that is not part of the data yet: to a cut it is garbage. One at a time.
    pub fn hold_tree(&self, root: PageId) {
        self.lists.lock().held.insert(root, Held::Tree);
    }

    /// The tree belongs to the data from now on, or, unless it is used, is garbage.
    pub fn release_tree(&self, root: PageId, is_used: bool) {
        let mut lists = self.lists.lock();
        let was_there = lists.held.remove(&root);
        debug_assert_eq!(was_there, Some(Held::Tree));
        if !is_used {
            self.count(Discarded::Tree { root });
            lists.arrived.newest.push(Discarded::Tree { root });
            self.changed.notify_one();
        }
    }

    /// Forgets what is listed: it is found another way.
    pub fn forget(&self) {
        let mut lists = self.lists.lock();
        (lists.arrived, lists.put_off) = Default::default();
        self.page_count.store(0, Ordering::Relaxed);
        self.tree_count.store(0, Ordering::Relaxed);
    }

    /// Lets the background thread look what there is to do.
    pub fn wake(&self) {
        let _lists = self.lists.lock();
        self.changed.notify_one();
    }

    /// What a cut writes: at most a page of each list, however long they are.
    ///
    /// # Errors
    /// There is no page for what does not fit there.
    pub fn to_lists(&self, pool: &Pool) -> Result<GarbageLists, Stop> {
        let mut lists = self.lists.lock();
        let GarbageLists { arrived, put_off, held } = &mut *lists;
        arrived.fit_a_page(pool, held.len())?;
        put_off.fit_a_page(pool, 0)?;
        let mut written = GarbageLists::new(arrived.clone(), put_off.clone());
        let entry = |(&pid, &held)| match held {
            Held::Object { page_count } => Discarded::Blob { pid, place: BlobPlace::Object { page_count } },
            Held::Tree => Discarded::Tree { root: pid },
        };
        written.arrived.newest.extend(held.iter().map(entry));
        Ok(written)
    }

    /// Keeps the lists as they are meanwhile, but for what is pushed.
    pub fn stand_still(&self) -> MutexGuard<'_, ()> {
        self.step.lock()
    }

    /// The counter that an entry belongs to, and by how much.
    fn counter(&self, entry: Discarded) -> (&AtomicU64, u64) {
        match entry {
            Discarded::Tree { .. } => (&self.tree_count, 1),
            Discarded::Blob { place: BlobPlace::Object { page_count }, .. } => {
                (&self.page_count, u64::from(page_count))
            }
            Discarded::Blob { .. } => (&self.page_count, 0),
        }
    }

    fn count(&self, entry: Discarded) {
        let (counter, more) = self.counter(entry);
        counter.fetch_add(more, Ordering::Relaxed);
    }

    fn uncount(&self, entry: Discarded) {
        let (counter, less) = self.counter(entry);
        // What was listed when the store was opened has not been counted. This does not fail.
        let _ =
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| Some(all.saturating_sub(less)));
    }

    /// Pages of objects that are about to be freed.
    pub fn listed_pages(&self) -> u64 {
        self.page_count.load(Ordering::Relaxed)
    }

    /// Whether trees are about to be freed, whose pages nobody has counted.
    pub fn has_trees(&self) -> bool {
        self.tree_count.load(Ordering::Relaxed) > 0
    }

    /// Whether memory is about to come back: something is listed whose pages are not missing, or is being worked off.
    pub fn is_being_freed(&self) -> bool {
        self.step.try_lock().is_none_or(|_between_steps| !self.lists.lock().arrived.is_empty())
    }

    /// Whether nothing is listed, nor being worked off.
    pub fn is_empty(&self) -> bool {
        self.step.try_lock().is_some_and(|_between_steps| self.lists.lock().is_empty())
    }

    /// The store closes: wakes the background thread so that it sees that.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _lists = self.lists.lock();
        self.changed.notify_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits until there is garbage, or other work, or the store closes. True if there is work.
    pub fn await_work(&self, other: impl Fn() -> OtherWork) -> bool {
        let mut lists = self.lists.lock();
        while lists.is_empty() && !self.is_stopping() {
            match other() {
                OtherWork::None => self.changed.wait(&mut lists),
                OtherWork::Later => drop(self.changed.wait_for(&mut lists, PAUSE_MAX)),
                OtherWork::Now => break,
            }
        }
        !self.is_stopping()
    }

    /// Waits for so long, unless something comes or the store closes.
    pub fn rest(&self, pause: Duration) {
        let mut lists = self.lists.lock();
        if !self.is_stopping() {
            self.changed.wait_for(&mut lists, pause);
        }
    }

    /// Waits until there is new garbage or the store closes; or for so long, then it is the turn of what was put off.
    pub fn pause(&self, pause: Duration) {
        let mut lists = self.lists.lock();
        if lists.is_empty() || self.is_stopping() {
            return;
        }
        if self.changed.wait_for(&mut lists, pause).timed_out() {
            let lists = &mut *lists;
            std::mem::swap(&mut lists.arrived, &mut lists.put_off);
        }
    }

    /// One step: gives the newest entry to `free`, which says whether all of it is free.
    pub fn work_off(&self, pool: &Pool, free: impl FnOnce(Discarded) -> Result<bool, Stop>) -> Collected {
        let _step = self.step.lock();
        // A page of the list that is not in memory is as good as the list's end.
        let taken = self.lists.lock().arrived.pop(pool);
        let Ok(Some(entry)) = taken else { return Collected::Nothing };
        let freed = free(entry);
        let mut lists = self.lists.lock();
        match freed {
            Ok(true) => {
                self.uncount(entry);
                Collected::Freed
            }
            Ok(false) | Err(Stop::Contended) => {
                lists.arrived.push(pool, entry);
                Collected::Freed
            }
            Err(_) => {
                lists.put_off.push(pool, entry);
                Collected::PutOff
            }
        }
    }
}

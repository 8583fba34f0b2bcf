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

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use stillframe_pagepool::{ExclusiveGuard, Member, PageId, Pool, Restart};

use super::discards::{Discarded, Discards};
use super::{Keyspace, Stop};
use crate::page::inner::{Words, WordsMut};
use crate::page::leaf::Leaf;
use crate::page::record::{Place, RecordKey, RecordValue};
use crate::page::KIND_INNER;

/// Leaves, slots of slabs and objects freed between two looks at the barrier: a few dozen microseconds.
const STEP_UNITS: usize = 128;

/// How long what has been put off waits for its pages; doubled as long as nothing can be freed.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Both lists, as a cut writes them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct GarbageLists {
    pub arrived: Discards,
    /// What could not be freed, because pages were not in memory.
    pub put_off: Discards,
}

impl GarbageLists {
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.put_off.is_empty()
    }
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
}

impl Garbage {
    pub fn new(lists: GarbageLists) -> Garbage {
        Garbage { lists: Mutex::new(lists), changed: Condvar::new(), step: Mutex::new(()) }
    }

    fn push(&self, pool: &Pool, entry: Discarded) {
        self.lists.lock().arrived.push(pool, entry);
        self.changed.notify_one();
    }

    pub fn push_tree(&self, pool: &Pool, root: PageId) {
        self.push(pool, Discarded::Tree { root });
    }

    pub fn push_blob(&self, pool: &Pool, pid: PageId, place: Place) {
        self.push(pool, Discarded::Blob { pid, place });
    }

    /// What a cut writes: at most a page of each list, however long they are.
    ///
    /// # Errors
    /// There is no page for what does not fit there.
    pub fn to_lists(&self, pool: &Pool) -> Result<GarbageLists, Stop> {
        let mut lists = self.lists.lock();
        let GarbageLists { arrived, put_off } = &mut *lists;
        arrived.fit_a_page(pool)?;
        put_off.fit_a_page(pool)?;
        Ok(lists.clone())
    }

    /// Keeps the lists as they are meanwhile, but for what is pushed.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.step.lock()
    }
}

impl Keyspace {
    /// Whether there is no garbage, nor any that is being freed.
    pub fn is_tidy(&self) -> bool {
        self.garbage.step.try_lock().is_some_and(|_between_steps| self.garbage.lists.lock().is_empty())
    }

    /// Frees garbage until the store closes. For a thread of its own, a member of the barrier.
    pub fn collect(&self, member: &Member) {
        let mut pause = PAUSE_MIN;
        while member.idle(|| self.await_garbage()) {
            let mut has_freed = false;
            while !self.is_stopping() {
                match self.collect_garbage() {
                    Collected::Nothing => break,
                    collected => has_freed |= collected == Collected::Freed,
                }
                member.quiesce();
            }
            pause = if has_freed { PAUSE_MIN } else { (2 * pause).min(PAUSE_MAX) };
            member.idle(|| self.pause_collecting(pause));
        }
    }

    /// Waits until there is garbage or the store closes. True if there is work.
    fn await_garbage(&self) -> bool {
        let mut lists = self.garbage.lists.lock();
        while lists.is_empty() && !self.is_stopping() {
            self.garbage.changed.wait(&mut lists);
        }
        !self.is_stopping()
    }

    /// Waits until there is new garbage or the store closes; or for so long, then it is the turn of what was put off.
    fn pause_collecting(&self, pause: Duration) {
        let mut lists = self.garbage.lists.lock();
        if lists.is_empty() || self.is_stopping() {
            return;
        }
        if self.garbage.changed.wait_for(&mut lists, pause).timed_out() {
            let lists = &mut *lists;
            std::mem::swap(&mut lists.arrived, &mut lists.put_off);
        }
    }

    /// Wakes the background thread so that it sees the store close.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _lists = self.garbage.lists.lock();
        self.garbage.changed.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Frees a bounded part of the garbage. Between two calls the pages that remain are consistent, so that a cut
    /// may come.
    pub(super) fn collect_garbage(&self) -> Collected {
        let _step = self.garbage.step.lock();
        // A page of the list that is not in memory is as good as the list's end.
        let taken = self.garbage.lists.lock().arrived.pop(&self.pool);
        let Ok(Some(entry)) = taken else { return Collected::Nothing };
        let step = match entry {
            Discarded::Blob { pid, place } => self.free_blob(pid, place).map(|()| true),
            Discarded::Tree { root } => self.free_part_of_tree(root),
        };
        let mut lists = self.garbage.lists.lock();
        match step {
            Ok(true) => Collected::Freed,
            Ok(false) | Err(Stop::Contended) => {
                lists.arrived.push(&self.pool, entry);
                Collected::Freed
            }
            Err(_) => {
                lists.put_off.push(&self.pool, entry);
                Collected::PutOff
            }
        }
    }

    /// Frees some leaves at the right end of a tree that nobody can reach. True when the tree is gone.
    ///
    /// A page that is damaged is freed as it is. What it referred to outside the tree's other pages is lost.
    fn free_part_of_tree(&self, root: PageId) -> Result<bool, Stop> {
        let Some(root) = self.latch_or_free(root)? else { return Ok(true) };
        let mut path = vec![root];
        let mut freed = 0;
        loop {
            let Some(node) = path.last_mut() else { return Ok(true) };
            if node.word(0) as u8 != KIND_INNER {
                return Err(super::descend::not_inner(node.id()));
            }
            let last = node.child_count() - 1;
            let is_above_leaves = node.level() == 1;
            match self.latch_or_free(PageId(node.child(last)))? {
                Some(leaf) if is_above_leaves => freed += self.free_leaf(leaf)?,
                Some(inner) => {
                    path.push(inner);
                    continue;
                }
                None => freed += 1,
            }
            // Take the freed child out of the node, and empty nodes out of theirs.
            while let Some(mut node) = path.pop() {
                if node.child_count() > 1 {
                    node.truncate();
                    path.push(node);
                    break;
                }
                self.pool.free(node, 1);
            }
            if freed >= STEP_UNITS && !path.is_empty() {
                return Ok(false);
            }
        }
    }

    /// A page of the tree, latched; or freed, if it cannot be read.
    fn latch_or_free(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>, Stop> {
        match self.pool.exclusive(pid) {
            Err(Restart::Damaged(_)) if self.pool.free_unread(pid, 1) => {
                self.side.forget(pid);
                Ok(None)
            }
            other => Ok(Some(other?)),
        }
    }

    /// Frees a leaf with its chain and everything that its records refer to; returns how many things.
    fn free_leaf(&self, head: ExclusiveGuard<'_>) -> Result<usize, Stop> {
        let pid = head.id();
        let leaf = self.with_chain(head)?;
        // Errors come before the first change.
        let pages = (0..leaf.page_count()).map(|page| leaf.leaf(page)).collect::<Result<Vec<_>, _>>()?;
        let freed = pages.iter().map(|page| 1 + page.outside_count()).sum();
        pages.into_iter().for_each(|page| self.discard_blobs(page));
        self.side.forget(pid);
        for guard in leaf.chain {
            self.pool.free(guard, 1);
        }
        self.pool.free(leaf.head, 1);
        Ok(freed)
    }

    fn discard_blobs(&self, leaf: Leaf<'_>) {
        if leaf.outside_count() == 0 {
            return;
        }
        for record in (0..leaf.count()).filter_map(|slot| leaf.record(slot)) {
            if let RecordKey::Out { blob, .. } = record.key {
                self.discard_blob(&blob);
            }
            if let RecordValue::Blob(blob) = record.value {
                self.discard_blob(&blob);
            }
        }
    }
}

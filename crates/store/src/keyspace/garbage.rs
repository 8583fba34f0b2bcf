//! What nothing refers to any more but is not yet free: trees of flushed databases, large values. A cut writes the
//! list to the catalog, so that nothing leaks if the process ends before it is worked off.

use parking_lot::{Condvar, Mutex};
use stillframe_pagepool::PageId;

use super::{Keyspace, Stop};
use crate::page::inner::{Words, WordsMut};
use crate::page::leaf::Leaf;
use crate::page::record::{Place, RecordKey, RecordValue};
use crate::page::KIND_INNER;

/// Leaves, slots of slabs and objects freed between two looks at the barrier: a few dozen microseconds.
const STEP_UNITS: usize = 128;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discarded {
    Tree { root: PageId },
    Blob { pid: PageId, place: Place },
}

pub(crate) struct Garbage {
    entries: Mutex<Vec<Discarded>>,
    arrived: Condvar,
}

impl Garbage {
    pub fn new(entries: &[Discarded]) -> Garbage {
        Garbage { entries: Mutex::new(entries.to_vec()), arrived: Condvar::new() }
    }

    fn push(&self, entry: Discarded) {
        self.entries.lock().push(entry);
        self.arrived.notify_one();
    }

    pub fn push_tree(&self, root: PageId) {
        self.push(Discarded::Tree { root });
    }

    pub fn push_blob(&self, pid: PageId, place: Place) {
        self.push(Discarded::Blob { pid, place });
    }

    pub fn to_vec(&self) -> Vec<Discarded> {
        self.entries.lock().clone()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.lock().is_empty()
    }
}

impl Keyspace {
    /// Whether there is no garbage.
    pub fn is_tidy(&self) -> bool {
        self.garbage.is_empty()
    }

    /// Waits until there is garbage or the store closes; the caller is idle meanwhile. True if there is work.
    pub fn await_garbage(&self) -> bool {
        let mut entries = self.garbage.entries.lock();
        while entries.is_empty() && !self.is_stopping() {
            self.garbage.arrived.wait(&mut entries);
        }
        !self.is_stopping()
    }

    /// Wakes the background thread so that it sees the store close.
    pub fn stop(&self) {
        self.stopping.store(true, std::sync::atomic::Ordering::Release);
        let _entries = self.garbage.entries.lock();
        self.garbage.arrived.notify_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Frees a bounded part of the garbage. Between two calls the pages that remain are consistent, so that a cut
    /// may come. False if there is none, or none that is in memory.
    pub fn collect_garbage(&self) -> bool {
        let Some(entry) = self.garbage.entries.lock().last().copied() else { return false };
        let step = match entry {
            Discarded::Blob { pid, place } => self.free_blob(pid, place).map(|()| true),
            Discarded::Tree { root } => self.free_part_of_tree(root),
        };
        let mut entries = self.garbage.entries.lock();
        let position = entries.iter().rposition(|e| *e == entry);
        match (step, position) {
            (Ok(true), Some(position)) => {
                entries.remove(position);
                true
            }
            (Ok(_), _) | (Err(Stop::Contended), _) => true,
            (Err(_), Some(position)) => {
                // Its pages are not in memory (yet): others first.
                entries.remove(position);
                entries.insert(0, entry);
                false
            }
            (Err(_), None) => false,
        }
    }

    /// Frees some leaves at the right end of a tree that nobody can reach. True when the tree is gone.
    fn free_part_of_tree(&self, root: PageId) -> Result<bool, Stop> {
        let mut path = vec![self.pool.exclusive(root)?];
        let mut freed = 0;
        loop {
            let Some(node) = path.last_mut() else { return Ok(true) };
            if node.word(0) as u8 != KIND_INNER {
                return Err(super::descend::not_inner(node.id()));
            }
            let last = node.child_count() - 1;
            let child = PageId(node.child(last));
            if node.level() > 1 {
                path.push(self.pool.exclusive(child)?);
                continue;
            }
            freed += self.free_leaf(child)?;
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

    /// Frees a leaf with its chain and everything that its records refer to; returns how many things.
    fn free_leaf(&self, pid: PageId) -> Result<usize, Stop> {
        let head = self.pool.exclusive(pid)?;
        let leaf = self.with_chain(head)?;
        let mut freed = 0;
        for page in 0..leaf.page_count() {
            let page = leaf.leaf(page)?;
            freed += 1 + page.outside_count();
            self.discard_blobs(page);
        }
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

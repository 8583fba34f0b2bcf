//! Before a command is applied, while pages are missing: which of them it may need (invariant C1).
//!
//! An operation on a key needs the nodes above its leaf, the leaf with its chain, and the whole places of the key and the
//! value that are there. What it stores anew goes to leaves that have room, to new pages, and to slabs with free slots:
//! of the list of its class it takes the first, and looks at the one behind it when the first becomes full. Neighbours
//! that are not in memory take no part when leaves are divided or joined, and what cannot be freed at once is left to the
//! background. So this is all.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::state::Keyspace;
use crate::blobs::Blob;
use crate::stop::{retry, Stop};
use crate::tree::bad_record;
use crate::tree::hash::{as_leaf, Leaf, RecordKey, RecordValue};
use crate::{DbId, Fault, Key, OpError};

impl Keyspace {
    /// Whether every page that operations on these keys may touch is in memory. With `change_count` values or keys that
    /// are stored or discarded, the slabs that these may take are looked at, too: as long as nobody else runs, no
    /// operation of a command then meets a page that is missing.
    ///
    /// # Errors
    /// [`Fault`] with the pages that are missing, as far as they are known. A damaged page is left to the operation.
    pub fn resolve(&self, keys: &[(DbId, Key<'_>)], change_count: usize) -> Result<(), Fault> {
        if self.pages.all_resident() {
            return Ok(());
        }
        let mut pages = Vec::new();
        for (db, key) in keys {
            let resolved = retry(|| self.resolve_key(*db, key, &mut pages));
            if let Err(OpError::Fault(fault)) = resolved {
                fault.add_to(&mut pages);
            }
        }
        if change_count > 0 {
            self.blobs.slabs.resolve(change_count, &mut pages);
        }
        pages.sort_unstable();
        pages.dedup();
        if pages.is_empty() {
            Ok(())
        } else {
            Err(Fault::of(pages))
        }
    }

    fn resolve_key(&self, db: DbId, key: &Key<'_>, missing: &mut Vec<PageId>) -> Result<(), Stop> {
        let Some(tree) = self.tree(db) else { return Ok(()) };
        let mut guard = self.trees.leaf_shared(tree, key.hash, key.leaf_hint)?;
        loop {
            let leaf = as_leaf(guard.id(), guard.page())?;
            self.resolve_in(guard.id(), leaf, key, missing)?;
            match leaf.chain() {
                0 => return Ok(()),
                next => guard = self.pool.shared(PageId(next))?,
            }
        }
    }

    fn resolve_in(
        &self,
        pid: PageId,
        leaf: Leaf<'_>,
        key: &Key<'_>,
        missing: &mut Vec<PageId>,
    ) -> Result<(), Stop> {
        let Some(slot) = self.find_slot(leaf, key)? else { return Ok(()) };
        let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        if let RecordKey::Out { blob, .. } = record.key {
            self.resolve_blob(&blob, missing);
        }
        if let RecordValue::Blob(blob) = record.value {
            self.resolve_blob(&blob, missing);
        }
        Ok(())
    }

    /// The head page and all of the place that the blob may grow into or leave to others.
    /// Of one that memory has no room for the operation is told when it comes to it.
    pub(crate) fn resolve_blob(&self, blob: &Blob, missing: &mut Vec<PageId>) {
        if self.pages.is_too_large(blob.memory_bytes()) {
            return self.add_missing(std::iter::once(blob.pid), missing);
        }
        let start = blob.start();
        let end = start + blob.memory_bytes();
        let indices = start / PAGE_SIZE as u64..end.div_ceil(PAGE_SIZE as u64);
        let pages = indices.map(|index| PageId(blob.pid.0.saturating_add(index as u32)));
        self.add_missing([blob.pid].into_iter().chain(pages), missing);
    }

    pub(crate) fn add_missing(&self, pages: impl Iterator<Item = PageId>, missing: &mut Vec<PageId>) {
        missing.extend(pages.filter(|pid| self.pool.is_missing(*pid)));
    }
}

//! Bringing the keys of a batch into the cache, in stages: each for all keys before the next.

use stillframe_pagepool::{PageId, SharedGuard};

use super::collection::{Content, Grown};
use super::inner::Inner;
use super::leaf::{Leaf, PeekedLeaf};
use super::order::Hashed;
use super::record::RecordValue;
use crate::blobs::Blob;
use crate::key::Key;
use crate::tree::trees::{Tree, Trees};
use crate::tree::words::Words;

/// Bytes of a cache line, and how many of them a prefetch asks for at most beyond the first.
const LINE_BYTES: usize = 64;
const PREFETCH_LINES_MAX: usize = 7;
/// Lines of a value outside its leaf that a prefetch asks for at most; the processor follows from there.
const VALUE_LINES_MAX: usize = 18;

impl Trees<Hashed> {
    /// First stage of a batch: finds the node above the key's leaf and starts to bring its header into the cache.
    #[inline(always)]
    pub fn prefetch_node(&self, tree: Tree, key: &mut Key<'_>) {
        let Ok((node, child)) = self.descend(tree, key.hash, 2) else { return };
        let pid = if node.level() == 2 { child } else { node.id() };
        self.pool.hints().version(pid);
        self.pool.hints().read(pid, 0);
        key.leaf_hint = Some(pid);
    }

    /// Second stage: starts to bring in the separator and the child that the node's header makes likely.
    #[inline(always)]
    pub fn prefetch_child(&self, key: &Key<'_>) {
        let Some(pid) = key.leaf_hint else { return };
        let Ok(node) = self.pool.optimistic(pid) else { return };
        for offset in node.likely_offsets(key.hash) {
            self.pool.hints().read(pid, offset);
        }
    }

    /// Third stage: finds the page that should be the key's leaf and starts to bring in its header, and what the
    /// side array knows of it.
    #[inline(always)]
    pub fn prefetch_leaf(&self, tree: Tree, key: &mut Key<'_>) {
        let found = key.leaf_hint.and_then(|node| self.leaf_below(tree, node, key.hash));
        let found = found.or_else(|| self.descend(tree, key.hash, 1).ok().map(|(_, pid)| pid));
        key.leaf_hint = found;
        let Some(pid) = found else { return };
        self.order.side.prefetch(pid);
        self.pool.hints().latch(pid);
        self.pool.hints().read(pid, 0);
    }

    /// The child of a node above the leaves that is responsible for `hash`, if the node is.
    #[inline(always)]
    fn leaf_below(&self, tree: Tree, node: PageId, hash: u64) -> Option<PageId> {
        let node = self.pool.optimistic(node).ok()?;
        let is_it = node.is_inner(tree.tag) && node.level() == 1 && node.lo() <= hash && hash <= node.hi();
        let child = PageId(node.child(node.find_child(hash)));
        (is_it && node.validate().is_ok()).then_some(child)
    }

    /// Fourth stage: starts to bring in the leaf's slots around the expected place of the key's.
    #[inline(always)]
    pub fn prefetch_slots(&self, key: &mut Key<'_>) {
        let Some(pid) = key.leaf_hint.take() else { return };
        let Some(leaf) = PeekedLeaf::new(&self.pool, pid) else { return };
        let window = leaf.shape.window_bytes(key.hash);
        for line in window.start / LINE_BYTES..=(window.end - 1) / LINE_BYTES {
            self.pool.hints().read(pid, line * LINE_BYTES);
        }
        key.leaf_hint = Some(pid);
    }

    /// Fifth stage: finds the slot with the key's fingerprint and starts to bring in its record.
    #[inline(always)]
    pub fn prefetch_record(&self, key: &mut Key<'_>) {
        let Some(pid) = key.leaf_hint else { return };
        let Some(leaf) = PeekedLeaf::new(&self.pool, pid) else { return };
        let Some((slot, start)) = leaf.candidate(&self.pool, pid, key.hash) else {
            if key.will_write {
                self.prefetch_room(pid, &leaf, key.hash);
            }
            return;
        };
        key.slot_hint = slot as u16;
        key.outside_hint = leaf.has_outside();
        let end = start + leaf.mean_record_bytes();
        for line in start / LINE_BYTES..=(end / LINE_BYTES).min(start / LINE_BYTES + PREFETCH_LINES_MAX) {
            match key.will_write {
                true => self.pool.hints().write(pid, line * LINE_BYTES),
                false => self.pool.hints().read(pid, line * LINE_BYTES),
            }
        }
    }
}

impl Trees<Hashed> {
    /// In the place of a record that is not there: what a new one is written to, and the slots that make way for its own.
    #[inline(always)]
    fn prefetch_room(&self, pid: PageId, leaf: &PeekedLeaf, hash: u64) {
        for bytes in [leaf.room_bytes(), leaf.slots_behind(hash)] {
            for line in bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES) {
                self.pool.hints().write(pid, line * LINE_BYTES);
            }
        }
    }

    /// Latches a page, shared, that a stage before took for a leaf. It may have been freed and be in the middle of
    /// somebody's value by now: so the side array is asked before the latch, to keep off that value, and under it, for an
    /// answer that lasts.
    #[inline(always)]
    fn hinted_leaf(&self, pid: PageId) -> Option<SharedGuard<'_>> {
        if !self.order.side.is_leaf(pid) {
            return None;
        }
        self.pool.shared(pid).ok().filter(|_| self.order.side.is_leaf(pid))
    }

    /// Last stage: starts to bring in a value that lies outside its leaf. If that is a large hash, set or sorted set, its trees.
    pub fn prefetch_value(&self, key: &Key<'_>) -> Option<Grown> {
        let guard = self.hinted_leaf(key.leaf_hint?)?;
        let leaf = Leaf::new(guard.page())?;
        let slot = usize::from(key.slot_hint);
        let record = (slot < leaf.count()).then(|| leaf.record(slot)).flatten()?;
        let RecordValue::Other { value_type, .. } = record.value else {
            if let RecordValue::Blob(blob) = record.value {
                self.prefetch_blob(&blob);
            }
            return None;
        };
        match record.collection()?.content {
            Content::Outside(blob) => self.prefetch_blob(&blob),
            Content::Trees(grown) => return value_type.has_hashed_elements().then_some(grown),
            Content::Packed(_) => {}
        }
        None
    }

    /// The value that an index seems to have for a hash, of which a stage before has found the leaf.
    #[inline(always)]
    pub fn peek_indexed(&self, key: &Key<'_>) -> Option<u64> {
        let guard = self.hinted_leaf(key.leaf_hint?)?;
        let (leaf, slot) = (Leaf::new(guard.page())?, usize::from(key.slot_hint));
        (slot < leaf.count()).then(|| leaf.indexed(slot, key.hash)).flatten()
    }

    fn prefetch_blob(&self, blob: &Blob) {
        self.pool.hints().latch(blob.pid);
        let start = blob.start() as usize / LINE_BYTES;
        let line_count = (blob.len_bytes as usize / LINE_BYTES + 1).min(VALUE_LINES_MAX);
        for line in start..start + line_count {
            self.pool.hints().read(blob.pid, line * LINE_BYTES);
        }
    }
}

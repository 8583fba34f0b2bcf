//! From a hash to its latched leaf, and from there to a key's record.

use stillframe_pagepool::{ExclusiveGuard, OptimisticGuard, PageId, Restart, SharedGuard};

use super::{Keyspace, Stop, Tree};
use crate::page::inner::{Words, WordsMut};
use crate::page::leaf::{Leaf, LeafMut, SLOT_BYTES};
use crate::page::record::{Record, RecordKey, RecordValue, KEY_INLINE_MAX_BYTES};
use crate::page::Page;
use crate::Key;

impl Words for OptimisticGuard<'_> {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        OptimisticGuard::word(self, index)
    }
}

impl Words for ExclusiveGuard<'_> {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        ExclusiveGuard::word(self, index)
    }
}

impl WordsMut for ExclusiveGuard<'_> {
    #[inline(always)]
    fn set_word(&mut self, index: usize, value: u64) {
        ExclusiveGuard::set_word(self, index, value);
    }
}

/// Bytes of a cache line, and how many of them a prefetch asks for at most beyond the first.
const LINE_BYTES: usize = 64;
const PREFETCH_LINES_MAX: usize = 7;
/// Lines of a value outside its leaf that a prefetch asks for at most; the processor follows from there.
const VALUE_LINES_MAX: usize = 18;

/// Where a record is: the leaf's page in its chain, and the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub page: usize,
    pub slot: usize,
}

/// A leaf latched exclusively, with all leaves of its chain (usually none).
pub(super) struct LeafGuard<'p> {
    pub head: ExclusiveGuard<'p>,
    pub chain: Vec<ExclusiveGuard<'p>>,
}

impl<'p> LeafGuard<'p> {
    fn guard(&self, page: usize) -> &ExclusiveGuard<'p> {
        if page == 0 {
            &self.head
        } else {
            &self.chain[page - 1]
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        if page == 0 {
            self.head.page_mut()
        } else {
            self.chain[page - 1].page_mut()
        }
    }

    #[inline(always)]
    pub fn leaf(&self, page: usize) -> Result<Leaf<'_>, Stop> {
        let guard = self.guard(page);
        as_leaf(guard.id(), guard.page())
    }

    pub fn leaf_mut(&mut self, page: usize) -> Result<LeafMut<'_>, Stop> {
        let pid = self.guard(page).id();
        LeafMut::new(self.page_mut(page)).ok_or_else(|| not_a_leaf(pid))
    }

    pub fn page_count(&self) -> usize {
        1 + self.chain.len()
    }

    pub fn record(&self, at: At) -> Result<Record<'_>, Stop> {
        self.leaf(at.page)?.record(at.slot).ok_or_else(|| bad_record(self.guard(at.page).id()))
    }

    /// First page of the chain with room for a record of `record_bytes` and its slot.
    pub fn page_with_room(&self, record_bytes: usize) -> Result<Option<usize>, Stop> {
        for page in 0..self.page_count() {
            if self.leaf(page)?.free_bytes() >= record_bytes + SLOT_BYTES {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// The hash of all keys of a chain; `None` for a leaf without one, or for one without keys.
    pub fn chain_hash(&self, keyspace: &Keyspace) -> Result<Option<u64>, Stop> {
        if self.chain.is_empty() {
            return Ok(None);
        }
        // The head may be empty, and so may a leaf that has just been added.
        for page in 0..self.page_count() {
            let leaf = self.leaf(page)?;
            if leaf.count() > 0 {
                let record = leaf.record(0).ok_or_else(|| bad_record(self.head.id()))?;
                return Ok(Some(keyspace.hash_of(&record)));
            }
        }
        Ok(None)
    }
}

#[cold]
pub(super) fn not_a_leaf(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a leaf was expected", pid.0))
}

#[cold]
pub(super) fn bad_record(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a record is malformed", pid.0))
}

#[cold]
pub(super) fn not_inner(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: an inner node was expected", pid.0))
}

#[inline(always)]
pub(super) fn as_leaf(pid: PageId, page: &Page) -> Result<Leaf<'_>, Stop> {
    Leaf::new(page).ok_or_else(|| not_a_leaf(pid))
}

impl Keyspace {
    /// The node of `level` that is responsible for `hash`, and the child that is.
    #[inline(always)]
    pub(super) fn descend(
        &self,
        tree: Tree,
        hash: u64,
        level: u8,
    ) -> Result<(OptimisticGuard<'_>, PageId), Stop> {
        let mut node = self.pool.optimistic(tree.root)?;
        loop {
            if !node.is_inner(tree.tag) {
                node.validate()?;
                return Err(not_inner(node.id()));
            }
            let node_level = node.level();
            let child = PageId(node.child(node.find_child(hash)));
            node.validate()?;
            if node_level <= level {
                return Ok((node, child));
            }
            let next = match self.pool.optimistic(child) {
                Ok(next) => next,
                Err(restart) => return Err(stop_below(&node, restart)),
            };
            // The child was this node's when its version was read.
            node.validate()?;
            node = next;
        }
    }

    /// Latches the leaf of a hash, shared.
    #[inline(always)]
    pub(super) fn leaf_shared(
        &self,
        tree: Tree,
        hash: u64,
        hint: Option<PageId>,
    ) -> Result<SharedGuard<'_>, Stop> {
        if let Some(pid) = hint.filter(|&pid| self.side.is_leaf(pid)) {
            if let Ok(guard) = self.pool.shared(pid) {
                if self.is_leaf_of(pid, guard.page(), tree, hash) {
                    return Ok(guard);
                }
            }
        }
        let (parent, pid) = self.descend(tree, hash, 1)?;
        let guard = self.pool.shared(pid).map_err(|restart| stop_below(&parent, restart))?;
        if !self.is_leaf_of(pid, guard.page(), tree, hash) {
            self.meet(&parent, pid, guard.page(), tree, hash)?;
        }
        Ok(guard)
    }

    /// Latches the leaf of a hash and its chain, exclusive.
    #[inline(always)]
    pub(super) fn leaf_exclusive(
        &self,
        tree: Tree,
        hash: u64,
        hint: Option<PageId>,
    ) -> Result<LeafGuard<'_>, Stop> {
        if let Some(pid) = hint.filter(|&pid| self.side.is_leaf(pid)) {
            if let Ok(guard) = self.pool.exclusive(pid) {
                if self.is_leaf_of(pid, guard.page(), tree, hash) {
                    return self.with_chain(guard);
                }
            }
        }
        let (parent, pid) = self.descend(tree, hash, 1)?;
        let guard = self.pool.exclusive(pid).map_err(|restart| stop_below(&parent, restart))?;
        if !self.is_leaf_of(pid, guard.page(), tree, hash) {
            self.meet(&parent, pid, guard.page(), tree, hash)?;
        }
        self.with_chain(guard)
    }

    /// The same for a thread that holds another leaf's latch: does not wait.
    pub(super) fn try_leaf_exclusive(&self, tree: Tree, hash: u64) -> Result<LeafGuard<'_>, Stop> {
        let (parent, pid) = self.descend(tree, hash, 1)?;
        let guard = self.pool.try_exclusive(pid).map_err(|restart| stop_below(&parent, restart))?;
        if !self.is_leaf_of(pid, guard.page(), tree, hash) {
            self.meet(&parent, pid, guard.page(), tree, hash)?;
        }
        self.with_chain(guard)
    }

    /// Whether a latched page is known to be the leaf that is responsible for `hash`.
    #[inline(always)]
    fn is_leaf_of(&self, pid: PageId, page: &Page, tree: Tree, hash: u64) -> bool {
        self.side.is_leaf(pid) && Leaf::new(page).is_some_and(|leaf| leaf.covers(tree.tag, hash))
    }

    /// A latched page below `parent` that the side array does not know, or that is not the right one.
    #[cold]
    fn meet(
        &self,
        parent: &OptimisticGuard<'_>,
        pid: PageId,
        page: &Page,
        tree: Tree,
        hash: u64,
    ) -> Result<(), Stop> {
        parent.validate()?;
        let leaf = as_leaf(pid, page)?;
        if !leaf.covers(tree.tag, hash) {
            return Err(not_a_leaf(pid));
        }
        if !self.side.is_leaf(pid) {
            let deadline = self.chain_deadline(leaf)?;
            self.side.set(pid, deadline);
        }
        Ok(())
    }

    /// Earliest deadline in a latched leaf and its chain.
    pub(super) fn chain_deadline(&self, head: Leaf<'_>) -> Result<Option<crate::UnixMillis>, Stop> {
        let mut earliest = head.earliest_deadline();
        let mut next = head.chain();
        while next != 0 {
            let guard = self.pool.shared(PageId(next))?;
            let leaf = as_leaf(guard.id(), guard.page())?;
            earliest = earliest.into_iter().chain(leaf.earliest_deadline()).min();
            next = leaf.chain();
        }
        Ok(earliest)
    }

    #[inline(always)]
    pub(super) fn with_chain<'p>(&'p self, head: ExclusiveGuard<'p>) -> Result<LeafGuard<'p>, Stop> {
        let mut next = as_leaf(head.id(), head.page())?.chain();
        let mut chain = Vec::new();
        while next != 0 {
            let guard = self.pool.exclusive(PageId(next))?;
            next = as_leaf(guard.id(), guard.page())?.chain();
            chain.push(guard);
        }
        Ok(LeafGuard { head, chain })
    }

    /// Slot of a key in one leaf.
    #[inline(always)]
    pub(super) fn find_slot(&self, leaf: Leaf<'_>, key: &Key<'_>) -> Result<Option<usize>, Stop> {
        if key.bytes.len() <= KEY_INLINE_MAX_BYTES {
            let hint = usize::from(key.slot_hint);
            if hint < leaf.count() && leaf.key_is(hint, key.bytes) {
                return Ok(Some(hint));
            }
            Ok(leaf.find(key.hash, key.bytes))
        } else {
            self.find_long(leaf, key)
        }
    }

    #[cold]
    fn find_long(&self, leaf: Leaf<'_>, key: &Key<'_>) -> Result<Option<usize>, Stop> {
        let mut stopped = None;
        let found = leaf.find_candidate(key.hash, |slot| match leaf.record(slot).map(|r| r.key) {
            Some(RecordKey::Out { hash, blob }) if hash == key.hash => {
                match self.blob_equals(&blob, key.bytes) {
                    Ok(equal) => equal,
                    Err(stop) => {
                        stopped = Some(stop);
                        false
                    }
                }
            }
            _ => false,
        });
        match stopped {
            Some(stop) => Err(stop),
            None => Ok(found),
        }
    }

    /// Latches, shared, the leaf that holds a key's record.
    #[inline(always)]
    pub(super) fn find_shared(
        &self,
        tree: Tree,
        key: &Key<'_>,
    ) -> Result<Option<(PageId, SharedGuard<'_>, usize)>, Stop> {
        let mut guard = self.leaf_shared(tree, key.hash, key.leaf_hint)?;
        let head = guard.id();
        loop {
            let leaf = as_leaf(guard.id(), guard.page())?;
            if let Some(slot) = self.find_slot(leaf, key)? {
                return Ok(Some((head, guard, slot)));
            }
            match leaf.chain() {
                0 => return Ok(None),
                next => guard = self.pool.shared(PageId(next))?,
            }
        }
    }

    /// First page of a leaf and its chain where a new key of this hash may go.
    #[inline(always)]
    pub(super) fn page_for(
        &self,
        leaf: &LeafGuard<'_>,
        hash: u64,
        record_bytes: usize,
    ) -> Result<Option<usize>, Stop> {
        if !leaf.chain.is_empty() && leaf.chain_hash(self)?.is_some_and(|of_chain| of_chain != hash) {
            return Ok(None);
        }
        leaf.page_with_room(record_bytes)
    }

    /// Where a key's record is in a leaf and its chain.
    #[inline(always)]
    pub(super) fn find_exclusive(&self, leaf: &LeafGuard<'_>, key: &Key<'_>) -> Result<Option<At>, Stop> {
        for page in 0..leaf.page_count() {
            if let Some(slot) = self.find_slot(leaf.leaf(page)?, key)? {
                return Ok(Some(At { page, slot }));
            }
        }
        Ok(None)
    }

    /// First stage of a batch: finds the node above the key's leaf and starts to bring its header into the cache.
    #[inline(always)]
    pub fn prefetch_node(&self, tree: Tree, key: &mut Key<'_>) {
        let Ok((node, child)) = self.descend(tree, key.hash, 2) else { return };
        let pid = if node.level() == 2 { child } else { node.id() };
        self.pool.prefetch_latch(pid);
        self.pool.prefetch(pid, 0);
        key.leaf_hint = Some(pid);
    }

    /// Second stage: starts to bring in the separator and the child that the node's header makes likely.
    #[inline(always)]
    pub fn prefetch_child(&self, key: &Key<'_>) {
        let Some(pid) = key.leaf_hint else { return };
        let Ok(node) = self.pool.optimistic(pid) else { return };
        for offset in node.likely_offsets(key.hash) {
            self.pool.prefetch(pid, offset);
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
        self.side.prefetch(pid);
        self.pool.prefetch_latch(pid);
        self.pool.prefetch(pid, 0);
    }

    /// The child of a node above the leaves that is responsible for `hash`, if the node is.
    #[inline(always)]
    fn leaf_below(&self, tree: Tree, node: PageId, hash: u64) -> Option<PageId> {
        let node = self.pool.optimistic(node).ok()?;
        let is_it = node.is_inner(tree.tag) && node.level() == 1 && node.lo() <= hash && hash <= node.hi();
        let child = PageId(node.child(node.find_child(hash)));
        (is_it && node.validate().is_ok()).then_some(child)
    }

    /// Latches a page, shared, that a stage before took for a leaf. It may have been freed and be in the middle of
    /// somebody's value by now: so the side array is asked before the latch, to keep off that value, and under it, for an
    /// answer that lasts.
    #[inline(always)]
    fn hinted_leaf(&self, pid: PageId) -> Option<SharedGuard<'_>> {
        if !self.side.is_leaf(pid) {
            return None;
        }
        self.pool.shared(pid).ok().filter(|_| self.side.is_leaf(pid))
    }

    /// Fourth stage: starts to bring in the leaf's slots around the expected place of the key's.
    #[inline(always)]
    pub fn prefetch_slots(&self, key: &mut Key<'_>) {
        let Some(pid) = key.leaf_hint.take() else { return };
        let Some(guard) = self.hinted_leaf(pid) else { return };
        let Some(leaf) = Leaf::new(guard.page()) else { return };
        let window = leaf.window_bytes(key.hash);
        for line in window.start / LINE_BYTES..=(window.end - 1) / LINE_BYTES {
            self.pool.prefetch(pid, line * LINE_BYTES);
        }
        key.leaf_hint = Some(pid);
    }

    /// Fifth stage: finds the slot with the key's fingerprint and starts to bring in its record.
    #[inline(always)]
    pub fn prefetch_record(&self, key: &mut Key<'_>) {
        let Some(pid) = key.leaf_hint else { return };
        let Some(guard) = self.hinted_leaf(pid) else { return };
        let Some(leaf) = Leaf::new(guard.page()) else { return };
        // The first with the fingerprint: it is the right one but for a few in a thousand.
        let Some(slot) = leaf.find_candidate(key.hash, |_| true) else { return };
        key.slot_hint = slot as u16;
        key.outside_hint = leaf.outside_count() > 0;
        let start = leaf.record_offset(slot);
        let end = start + leaf.mean_record_bytes();
        for line in start / LINE_BYTES..=(end / LINE_BYTES).min(start / LINE_BYTES + PREFETCH_LINES_MAX) {
            self.pool.prefetch(pid, line * LINE_BYTES);
        }
    }
}

impl Keyspace {
    /// Last stage: starts to bring in a value that lies outside its leaf.
    pub fn prefetch_value(&self, key: &Key<'_>) {
        let Some(pid) = key.leaf_hint else { return };
        let Some(guard) = self.hinted_leaf(pid) else { return };
        let Some(leaf) = Leaf::new(guard.page()) else { return };
        let slot = usize::from(key.slot_hint);
        let record = (slot < leaf.count()).then(|| leaf.record(slot)).flatten();
        let Some(Record { value: RecordValue::Blob(blob), .. }) = record else { return };
        self.pool.prefetch_latch(blob.pid);
        let start = Self::blob_offset(&blob) as usize / LINE_BYTES;
        let line_count = (blob.len_bytes as usize / LINE_BYTES + 1).min(VALUE_LINES_MAX);
        for line in start..start + line_count {
            self.pool.prefetch(blob.pid, line * LINE_BYTES);
        }
    }
}

/// Why a child could not be had: stale if the parent has changed.
#[cold]
pub(super) fn stop_below(parent: &OptimisticGuard<'_>, restart: Restart) -> Stop {
    match parent.validate() {
        Ok(()) => restart.into(),
        Err(_) => Stop::Contended,
    }
}

//! Bringing the keys of a group into the cache, in stages: each for all keys before the next, so that the waits for memory
//! overlap.

use stillframe_pagepool::PageId;

use super::access::Hint;
use super::leaf::{OrderedLeaf, HEADER_BYTES, SLOT_BYTES};
use super::node::OrderedNode;
use super::order::{Ordered, Seek};
use crate::page::PAGE_SIZE;
use crate::stop::Stop;
use crate::tree::order::{LeafView, Order};
use crate::tree::trees::{Tree, Trees};
use crate::tree::words::Words;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Slots of a leaf that are asked for before it is known how many there are.
const SLOTS_GUESSED: usize = 32;
/// Lines of a record that are asked for at most.
const RECORD_LINES_MAX: usize = 8;

impl Trees<Ordered> {
    /// First stage: finds the node above the key's leaf and starts to bring in where its search begins.
    ///
    /// # Errors
    /// [`Stop::Fault`] if a page on the way is missing.
    #[inline(always)]
    pub fn prefetch_node(&self, tree: Tree, key: &[u8], hint: &mut Hint) -> Result<(), Stop> {
        let (node, child) = self.descend(tree, Seek::Key(key), 2)?;
        let is_above = node.level() == 2;
        let pid = if is_above { child } else { node.id() };
        if is_above {
            self.pool.prefetch_version(pid);
            self.pool.prefetch(pid, 0);
        }
        hint.leaf = Some(pid);
        Ok(())
    }

    /// Second stage: starts to bring in the words that the first steps of the node's search look at.
    #[inline(always)]
    pub fn prefetch_separators(&self, hint: &Hint) {
        let Some(pid) = hint.leaf else { return };
        let Ok(node) = self.pool.optimistic(pid) else { return };
        node.first_probes().for_each(|offset| self.pool.prefetch(pid, offset));
    }

    /// Third stage: finds the key's leaf and starts to bring in its slots and bounds.
    ///
    /// # Errors
    /// [`Stop::Fault`] if a page on the way is missing, the leaf included.
    #[inline(always)]
    pub fn prefetch_leaf(&self, tree: Tree, key: &[u8], hint: &mut Hint) -> Result<(), Stop> {
        let below = hint.leaf.take().and_then(|node| self.leaf_below(tree, node, key));
        let pid = match below {
            Some(pid) => pid,
            None => self.descend(tree, Seek::Key(key), 1)?.1,
        };
        hint.leaf = Some(pid);
        self.pool.prefetch_latch(pid);
        (0..HEADER_BYTES + SLOTS_GUESSED * SLOT_BYTES)
            .step_by(LINE_BYTES)
            .for_each(|offset| self.pool.prefetch(pid, offset));
        self.pool.prefetch(pid, PAGE_SIZE - LINE_BYTES);
        Ok(())
    }

    /// The child of a node above the leaves that a key belongs to, if the node is still that.
    #[inline(always)]
    fn leaf_below(&self, tree: Tree, node: PageId, key: &[u8]) -> Option<PageId> {
        let node = self.pool.optimistic(node).ok()?;
        // Whether the key belongs there the leaf says: this is a hint.
        let is_it = Ordered::is_inner(&node, tree.tag) && node.level() == 1;
        let child = Ordered::child(&node, Ordered::find_child(&node, Seek::Key(key)));
        (is_it && node.validate().is_ok()).then_some(child)
    }

    /// Fourth stage: finds the key's slot and starts to bring in its record.
    ///
    /// # Errors
    /// [`Stop::Fault`] if the leaf is missing.
    #[inline(always)]
    pub fn prefetch_record(&self, key: &[u8], hint: &mut Hint) -> Result<(), Stop> {
        let Some(pid) = hint.leaf.take() else { return Ok(()) };
        let guard = self.pool.shared(pid)?;
        // Whether it is the right one the lookup finds out.
        let Some(leaf) = OrderedLeaf::new(guard.page()) else { return Ok(()) };
        let (Ok(slot) | Err(slot)) = leaf.find(key);
        hint.leaf = Some(pid);
        if slot < leaf.count() {
            hint.slot = slot as u16;
            let lines = leaf.record_range(slot).step_by(LINE_BYTES).take(RECORD_LINES_MAX);
            lines.for_each(|offset| self.pool.prefetch(pid, offset));
        }
        Ok(())
    }
}

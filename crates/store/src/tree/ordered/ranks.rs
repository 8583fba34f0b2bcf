//! Ranks in a tree that counts: how many records are below a key, and which is the n-th.
//!
//! Nodes are read optimistically on the way down, and once more compared with their versions when the leaf is latched.
//! Every write latches the root, so what was read belongs together (invariant T1).

use stillframe_pagepool::{OptimisticGuard, PageId, SharedGuard};

use super::node::OrderedNode;
use super::order::{Ordered, Seek};
use crate::stop::Stop;
use crate::tree::order::{as_leaf, bad_record, not_inner, LeafView, Order};
use crate::tree::trees::{stop_below, Tree, Trees};
use crate::tree::words::Words;

/// A record that has been copied.
type KeyAndValue = (Vec<u8>, Vec<u8>);

/// A latched leaf, and how many records are in the leaves before it.
struct Ranked<'p> {
    leaf: SharedGuard<'p>,
    before: u64,
}

impl Trees<Ordered> {
    /// Descends where `choose` says: from a node and the count of records before it, the child.
    fn descend_counting(
        &self,
        tree: Tree,
        mut choose: impl FnMut(&OptimisticGuard<'_>, u64) -> usize,
    ) -> Result<Ranked<'_>, Stop> {
        debug_assert!(self.order.counts);
        let mut way: Vec<OptimisticGuard<'_>> = Vec::new();
        let (mut pid, mut before) = (tree.root, 0);
        loop {
            let node = match (self.pool.optimistic(pid), way.last()) {
                (Ok(node), _) => node,
                (Err(restart), Some(parent)) => return Err(stop_below(parent, restart)),
                (Err(restart), None) => return Err(restart.into()),
            };
            if !Ordered::is_inner(&node, tree.tag) {
                node.validate()?;
                way.iter().try_for_each(OptimisticGuard::validate)?;
                return Err(not_inner(pid));
            }
            let index = choose(&node, before).min(node.count() - 1);
            before += (0..index).map(|child| u64::from(node.records_at(child))).sum::<u64>();
            pid = Ordered::child(&node, index);
            let is_above_leaves = node.level() <= 1;
            node.validate()?;
            way.push(node);
            if is_above_leaves {
                break;
            }
        }
        let Some(parent) = way.last() else { return Err(not_inner(tree.root)) };
        let leaf = self.pool.shared(pid).map_err(|restart| stop_below(parent, restart))?;
        way.iter().try_for_each(OptimisticGuard::validate)?;
        Ok(Ranked { leaf, before })
    }

    /// Records in the tree.
    pub fn len(&self, tree: Tree) -> Result<u64, Stop> {
        let root = self.pool.optimistic(tree.root)?;
        let records = (0..root.count()).map(|child| u64::from(root.records_at(child))).sum();
        root.validate()?;
        Ok(records)
    }

    /// Records with a key below this one.
    pub fn rank(&self, tree: Tree, key: &[u8]) -> Result<u64, Stop> {
        let found = self.descend_counting(tree, |node, _| Ordered::find_child(node, Seek::Key(key)))?;
        let leaf = as_leaf::<Ordered>(found.leaf.id(), found.leaf.page())?;
        let (Ok(slot) | Err(slot)) = leaf.find(key);
        Ok(found.before + slot as u64)
    }

    /// The record that has so many below it, if there is one.
    pub fn nth(&self, tree: Tree, rank: u64) -> Result<Option<KeyAndValue>, Stop> {
        let found =
            self.descend_counting(tree, |node, before| child_of_rank(node, rank - before.min(rank)))?;
        let pid: PageId = found.leaf.id();
        let leaf = as_leaf::<Ordered>(pid, found.leaf.page())?;
        let slot = usize::try_from(rank - found.before.min(rank)).unwrap_or(usize::MAX);
        if slot >= leaf.count() {
            return Ok(None);
        }
        let (_, value) = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        Ok(Some((leaf.key(slot), value.bytes.to_vec())))
    }
}

/// The child with the record that has so many before it in the node; the last if there are not so many.
fn child_of_rank(node: &impl Words, mut rank: u64) -> usize {
    for index in 0..node.count() {
        let records = u64::from(node.records_at(index));
        if rank < records {
            return index;
        }
        rank -= records;
    }
    node.count() - 1
}

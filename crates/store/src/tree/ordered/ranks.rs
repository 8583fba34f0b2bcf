//! Ranks in a tree that counts: how many records are below a key, and which is the n-th.
//!
//! Nodes are read optimistically on the way down, and once more compared with their versions when the leaf is latched.
//! Every write latches the root, so what was read belongs together (invariant T1).

use smallvec::SmallVec;
use stillframe_pagepool::{OptimisticGuard, SharedGuard};

use super::access::{give, Next, WAY_NODES};
use super::leaf::Stored;
use super::node::OrderedNode;
use super::order::{Ordered, Seek};
use crate::stop::Stop;
use crate::tree::order::{as_leaf, not_inner, LeafView, Order};
use crate::tree::trees::{stop_below, Tree, Trees};
use crate::tree::words::Words;

/// A latched leaf, and how many records are in the leaves before it.
struct Ranked<'p> {
    leaf: SharedGuard<'p>,
    before: u64,
}

impl Trees<Ordered> {
    /// Descends where `choose` says: from a node and the count of records before it, the child, and the records before that
    /// child in the node.
    fn descend_counting(
        &self,
        tree: Tree,
        mut choose: impl FnMut(&OptimisticGuard<'_>, u64) -> (usize, u64),
    ) -> Result<Ranked<'_>, Stop> {
        debug_assert!(self.order.counts);
        let mut way: SmallVec<[OptimisticGuard<'_>; WAY_NODES]> = SmallVec::new();
        let (mut pid, mut before) = (tree.root, 0);
        loop {
            let node = match (self.pool.optimistic(pid), way.last()) {
                (Ok(node), _) => node,
                (Err(restart), Some(parent)) => return Err(stop_below(&self.pool, parent, restart)),
                (Err(restart), None) => return Err(self.stop_at_root(tree, restart)),
            };
            // Damaged pages may lead back to themselves.
            let is_below = way.last().is_none_or(|above| node.level() == above.level().wrapping_sub(1));
            if !Ordered::is_inner(&node, tree.tag) || !is_below {
                node.validate()?;
                way.iter().try_for_each(OptimisticGuard::validate)?;
                return Err(not_inner(pid));
            }
            let (index, before_child) = choose(&node, before);
            before += before_child;
            pid = Ordered::child(&node, index.min(node.count() - 1));
            let is_above_leaves = node.level() <= 1;
            node.validate()?;
            way.push(node);
            if is_above_leaves {
                break;
            }
        }
        let Some(parent) = way.last() else { return Err(not_inner(tree.root)) };
        self.prefetch_slots(pid);
        let leaf = self.pool.shared(pid).map_err(|restart| stop_below(&self.pool, parent, restart))?;
        way.iter().try_for_each(OptimisticGuard::validate)?;
        Ok(Ranked { leaf, before })
    }

    /// The leaf with the record that has so many below it, and that record's slot; the last leaf if there are not so many.
    fn leaf_of_rank(&self, tree: Tree, rank: u64) -> Result<(SharedGuard<'_>, usize), Stop> {
        let found =
            self.descend_counting(tree, |node, before| node.child_of_rank(rank - before.min(rank)))?;
        let slot = usize::try_from(rank - found.before.min(rank)).unwrap_or(usize::MAX);
        Ok((found.leaf, slot))
    }

    /// Records in the tree.
    #[cfg(test)]
    pub fn len(&self, tree: Tree) -> Result<u64, Stop> {
        let root = self.pool.optimistic(tree.root)?;
        let records = root.records_before(root.count());
        root.validate()?;
        Ok(records)
    }

    /// Records with a key below this one, and whether there is one with this key.
    pub fn rank(&self, tree: Tree, key: &[u8]) -> Result<(u64, bool), Stop> {
        let found = self.descend_counting(tree, |node, _| {
            let index = Ordered::find_child(node, Seek::Key(key));
            (index, node.records_before(index))
        })?;
        let leaf = as_leaf::<Ordered>(found.leaf.id(), found.leaf.page())?;
        let slot = leaf.find(key);
        let (Ok(below) | Err(below)) = slot;
        Ok((found.before + below as u64, slot.is_ok()))
    }

    /// As of [`Trees::walk_up`], from the record on that has so many below it.
    pub fn walk_up_from(
        &self,
        tree: Tree,
        rank: u64,
        mut f: impl FnMut(&[u8], Stored<'_>) -> Result<bool, Stop>,
    ) -> Result<Next, Stop> {
        let (guard, slot) = self.leaf_of_rank(tree, rank)?;
        let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
        if !give(guard.id(), leaf, slot..leaf.count(), &mut f)? {
            return Ok(Next::End);
        }
        let next = leaf.hi().map_or(Next::End, |hi| Next::From(hi.to_vec()));
        self.let_go(guard, slot == 0);
        Ok(next)
    }

    /// As of [`Trees::walk_down`], from the record on that has so many below it, or from the greatest of all.
    pub fn walk_down_from(
        &self,
        tree: Tree,
        rank: u64,
        mut f: impl FnMut(&[u8], Stored<'_>) -> Result<bool, Stop>,
    ) -> Result<Next, Stop> {
        let (guard, slot) = self.leaf_of_rank(tree, rank)?;
        let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
        let end = leaf.count().min(slot.saturating_add(1));
        if !give(guard.id(), leaf, (0..end).rev(), &mut f)? {
            return Ok(Next::End);
        }
        let next = if leaf.lo().is_empty() { Next::End } else { Next::From(leaf.lo().to_vec()) };
        let is_whole = end == leaf.count();
        self.let_go(guard, is_whole);
        Ok(next)
    }
}

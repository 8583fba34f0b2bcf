//! Joining leaves and nodes that have become sparse, so that memory shrinks with the data.

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::descend::as_leaf;
use super::room::{copy_leaves, Window};
use super::{Keyspace, Local, Stop, Tree};
use crate::page::inner::{Words, WordsMut, FANOUT};
use crate::page::leaf::{Leaf, CAPACITY_BYTES};
use crate::page::spread::Plan;

/// A leaf with less than this is joined with neighbours.
const SPARSE_BYTES: usize = CAPACITY_BYTES / 2;
/// How full a join may make a leaf: some room is left, or the next insert would split it again.
const JOINED_MAX_BYTES: usize = CAPACITY_BYTES - CAPACITY_BYTES / 16;
/// A node with fewer children is joined with a neighbour.
const SPARSE_CHILDREN: usize = FANOUT / 4;
const JOINED_MAX_CHILDREN: usize = FANOUT - FANOUT / 4;

/// Whether a leaf that has just lost a record should be joined. Not asked after every removal: when the
/// neighbours are full, there is nothing to do for a while.
pub(super) fn is_sparse(leaf: Leaf<'_>) -> bool {
    leaf.count() % 4 == 0 && leaf.live_bytes() < SPARSE_BYTES && leaf.chain() == 0
}

impl Keyspace {
    /// Joins the leaf of a hash with neighbours if they fit. Best effort: what gets in the way ends it.
    pub(super) fn join_leaves(&self, local: &mut Local, tree: Tree, hash: u64) -> Result<(), Stop> {
        let mut parent = self.inner_exclusive(tree, hash, 1)?;
        let index = parent.find_child(hash);
        let sparse = self.pool.exclusive(PageId(parent.child(index)))?;
        let leaf = as_leaf(sparse.id(), sparse.page())?;
        if leaf.live_bytes() >= SPARSE_BYTES || leaf.chain() != 0 {
            return Ok(());
        }
        let mut window = self.window(&parent, index, sparse);
        let mut plan = plan_fewer(local, &window)?;
        if plan.is_none() {
            keep_pair(&mut window, index)?;
            plan = plan_fewer(local, &window)?;
        }
        if let Some(plan) = plan {
            self.join_window(local, &mut parent, window, &plan)?;
        }
        if parent.child_count() < SPARSE_CHILDREN {
            drop(parent);
            return self.join_inner(tree, hash, 1);
        }
        Ok(())
    }

    fn join_window(
        &self,
        local: &mut Local,
        parent: &mut ExclusiveGuard<'_>,
        mut window: Window<'_>,
        plan: &Plan,
    ) -> Result<(), Stop> {
        let source_count = window.leaves.len();
        self.spread(local, &mut window.leaves, source_count, plan)?;
        for i in 1..plan.target_count {
            parent.set_separator(window.first + i, plan.lo(i));
        }
        for left_over in window.leaves.drain(plan.target_count..) {
            parent.remove_child(window.first + plan.target_count);
            self.side.forget(left_over.id());
            self.pool.free(left_over, 1);
        }
        Ok(())
    }

    /// Joins the sparse node of `level` on the way to `hash` with a neighbour; a root with one child takes
    /// over its content.
    fn join_inner(&self, tree: Tree, hash: u64, level: u8) -> Result<(), Stop> {
        let root = self.pool.optimistic(tree.root)?;
        let root_level = root.level();
        root.validate()?;
        if root_level <= level {
            return Ok(());
        }
        let mut parent = self.inner_exclusive(tree, hash, level + 1)?;
        let index = parent.find_child(hash);
        let node = self.pool.exclusive(PageId(parent.child(index)))?;
        if parent.child_count() == 1 {
            if parent.id() == tree.root {
                parent.copy_from(&node);
                self.pool.free_node(node);
                return Ok(());
            }
        } else if node.child_count() < SPARSE_CHILDREN {
            let (left, right, right_index) = if index > 0 {
                (self.pool.try_exclusive(PageId(parent.child(index - 1)))?, node, index)
            } else {
                let right = self.pool.try_exclusive(PageId(parent.child(1)))?;
                (node, right, 1)
            };
            let mut left = left;
            if left.child_count() + right.child_count() <= JOINED_MAX_CHILDREN {
                left.absorb(&right);
                parent.remove_child(right_index);
                self.pool.free_node(right);
            }
        }
        if parent.child_count() < SPARSE_CHILDREN {
            let at_root = parent.id() == tree.root;
            if !at_root || parent.child_count() == 1 {
                drop(parent);
                return self.join_inner(tree, hash, if at_root { level } else { level + 1 });
            }
        }
        Ok(())
    }
}

/// How the records of a window go into fewer leaves, if they fit well; the leaves are copied then.
fn plan_fewer(local: &mut Local, window: &Window<'_>) -> Result<Option<Plan>, Stop> {
    let mut total_bytes = 0;
    for i in 0..window.leaves.len() {
        total_bytes += window.leaf(i)?.live_bytes();
    }
    let target_count = total_bytes.div_ceil(JOINED_MAX_BYTES).max(1);
    if target_count >= window.leaves.len() {
        return Ok(None);
    }
    let sources = copy_leaves(&mut local.copies, &window.leaves);
    Ok(Plan::even(&sources[..window.leaves.len()], target_count))
}

/// Narrows a window to the sparse leaf and its emptier neighbour.
fn keep_pair(window: &mut Window<'_>, index: usize) -> Result<(), Stop> {
    if window.leaves.len() == 3 && index == window.first + 1 {
        if window.leaf(0)?.live_bytes() <= window.leaf(2)?.live_bytes() {
            window.leaves.pop();
        } else {
            window.leaves.remove(0);
            window.first += 1;
        }
    }
    Ok(())
}

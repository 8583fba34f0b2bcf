//! Joining leaves and nodes that have become sparse, so that memory shrinks with the data.

use stillframe_pagepool::ExclusiveGuard;

use super::order::{as_leaf, not_a_leaf, LeafView, Order};
use super::room::{copy_leaves, Window};
use super::trees::{Scratch, Tree, Trees};
use super::words::{Words, WordsMut};
use crate::stop::Stop;

/// Which leaves are joined with neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joining {
    /// Those that are half empty.
    Sparse,
    /// Those of which three may fit into two: records were removed for the memory.
    Tight,
}

impl Joining {
    /// A leaf with less than this is joined with neighbours.
    const fn below_bytes<O: Order>(self) -> usize {
        match self {
            Joining::Sparse => O::CAPACITY_BYTES / 2,
            Joining::Tight => O::CAPACITY_BYTES * 5 / 8,
        }
    }

    /// Whether a leaf that has just lost a record should be joined. Not asked after every removal: when the
    /// neighbours are full, there is nothing to do for a while.
    pub fn is_due<O: Order>(self, leaf: O::Leaf<'_>) -> bool {
        let period = if self == Joining::Sparse { 4 } else { 2 };
        leaf.count() % period == 0 && leaf.live_bytes() < self.below_bytes::<O>() && leaf.is_alone()
    }
}

impl<O: Order> Trees<O> {
    /// Joins the leaf of a key with neighbours if they fit. Best effort: what gets in the way ends it.
    pub fn join_leaves(
        &self,
        scratch: &mut Scratch,
        tree: Tree,
        key: O::Key<'_>,
        joining: Joining,
    ) -> Result<(), Stop> {
        let mut parent = self.inner_exclusive(tree, key, 1)?;
        let index = O::find_child(&parent, key);
        let sparse = self.child_exclusive(&parent, index)?;
        let leaf = as_leaf::<O>(sparse.id(), sparse.page())?;
        if !O::covers(leaf, tree.tag, key) {
            return Err(not_a_leaf(sparse.id()));
        }
        if leaf.live_bytes() >= joining.below_bytes::<O>() || !leaf.is_alone() {
            return Ok(());
        }
        let mut window = self.window(&parent, index, sparse);
        let mut plan = self.plan_fewer(scratch, &parent, &window)?;
        if plan.is_none() {
            keep_pair::<O>(&mut window, index)?;
            plan = self.plan_fewer(scratch, &parent, &window)?;
        }
        match plan {
            Some(plan) => self.join_window(scratch, &mut parent, window, &plan)?,
            None => drop(window),
        }
        if O::is_sparse(&parent) {
            drop(parent);
            return self.join_inner(tree, key, 1);
        }
        Ok(())
    }

    /// How the records of a window go into fewer leaves, if they fit well; the leaves are copied then.
    fn plan_fewer(
        &self,
        scratch: &mut Scratch,
        parent: &ExclusiveGuard<'_>,
        window: &Window<'_>,
    ) -> Result<Option<O::Plan>, Stop> {
        let source_count = window.leaves.len();
        let mut total_bytes = 0;
        for i in 0..source_count {
            total_bytes += window.leaf::<O>(i)?.live_bytes();
        }
        // Some room is left, or the next insert would split it again.
        let joined_max_bytes = O::CAPACITY_BYTES - O::CAPACITY_BYTES / 16;
        let target_count = total_bytes.div_ceil(joined_max_bytes).max(1);
        if target_count >= source_count {
            return Ok(None);
        }
        let sources = copy_leaves::<O>(&mut scratch.copies, &window.leaves)?;
        let plan = self.order.plan(&sources, target_count);
        Ok(plan.filter(|plan| O::has_room(parent, window.first, source_count, plan)))
    }

    fn join_window(
        &self,
        scratch: &mut Scratch,
        parent: &mut ExclusiveGuard<'_>,
        mut window: Window<'_>,
        plan: &O::Plan,
    ) -> Result<(), Stop> {
        let (source_count, target_count) = (window.leaves.len(), O::target_count(plan));
        let leaves = &mut window.leaves[..target_count];
        self.spread(scratch, parent, window.first, source_count, leaves, plan)?;
        for left_over in window.leaves.drain(target_count..) {
            self.order.forget(left_over.id());
            match O::LEAVES_LINGER {
                true => self.pool.free_node(left_over),
                false => self.pool.free(left_over, 1),
            }
        }
        Ok(())
    }

    /// Joins the sparse node of `level` on the way to `key` with a neighbour; a root with one child takes
    /// over its content.
    fn join_inner(&self, tree: Tree, key: O::Key<'_>, level: u8) -> Result<(), Stop> {
        let root = self.pool.optimistic(tree.root)?;
        let root_level = root.level();
        root.validate()?;
        if root_level <= level {
            return Ok(());
        }
        let mut parent = self.inner_exclusive(tree, key, level + 1)?;
        let index = O::find_child(&parent, key);
        let node = self.child_exclusive(&parent, index)?;
        self.check_child(tree, &parent, &node)?;
        if O::child_count(&parent) == 1 {
            if parent.id() == tree.root {
                parent.copy_from(&node);
                self.pool.free_node(node);
                return Ok(());
            }
        } else if O::is_sparse(&node) {
            let (mut left, right, left_index) = if index > 0 {
                (self.pool.try_exclusive(O::child(&parent, index - 1))?, node, index - 1)
            } else {
                let right = self.pool.try_exclusive(O::child(&parent, 1))?;
                (node, right, 0)
            };
            self.check_child(tree, &parent, &left)?;
            self.check_child(tree, &parent, &right)?;
            if self.order.absorb(&mut parent, left_index, &mut left, &right) {
                self.pool.free_node(right);
            }
        }
        if O::is_sparse(&parent) {
            let at_root = parent.id() == tree.root;
            if !at_root || O::child_count(&parent) == 1 {
                drop(parent);
                return self.join_inner(tree, key, if at_root { level } else { level + 1 });
            }
        }
        Ok(())
    }
}

/// Narrows a window to the sparse leaf and its emptier neighbour.
fn keep_pair<O: Order>(window: &mut Window<'_>, index: usize) -> Result<(), Stop> {
    if window.leaves.len() == 3 && index == window.first + 1 {
        if window.leaf::<O>(0)?.live_bytes() <= window.leaf::<O>(2)?.live_bytes() {
            window.leaves.pop();
        } else {
            window.leaves.remove(0);
            window.first += 1;
        }
    }
    Ok(())
}

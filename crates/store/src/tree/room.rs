//! Making room: sharing with a neighbour, splitting two or three leaves into one more, splitting inner nodes.
//!
//! Leaves that only split would be two thirds full. A full leaf first shares with a neighbour that has room; if none has,
//! up to three leaves become one more (0.86 full, 0.78 after churn). Where keys come in order one leaf becomes two, of which
//! one stays as full as it is.

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::order::{as_leaf, not_a_leaf, not_inner, LeafView, Order, TARGETS_MAX};
use super::trees::{Scratch, Tree, Trees};
use super::words::{Words, WordsMut};
use crate::page::Page;
use crate::stop::Stop;

/// Leaves that one split or merge takes part in at most.
pub(super) const WINDOW: usize = 3;

/// Neighbouring leaves below one node, latched exclusively, in order.
pub(super) struct Window<'p> {
    /// Index of the first among the node's children.
    pub first: usize,
    pub leaves: Vec<ExclusiveGuard<'p>>,
}

impl<'p> Window<'p> {
    pub fn leaf<O: Order>(&self, i: usize) -> Result<O::Leaf<'_>, Stop> {
        as_leaf::<O>(self.leaves[i].id(), self.leaves[i].page())
    }
}

/// The full leaf that is in the way, and where it is.
pub(crate) struct Full<'p> {
    pub parent: ExclusiveGuard<'p>,
    /// Index of the leaf among the children of `parent`.
    pub index: usize,
    pub leaf: ExclusiveGuard<'p>,
}

/// What an order does with a leaf that no even plan makes room in, or none should.
pub(crate) trait Divide: Order {
    /// Whether more keys are expected beside this one, so that a full leaf is to be divided there and at once.
    fn is_in_run(_leaf: Self::Leaf<'_>, _key: Self::Key<'_>) -> bool {
        false
    }

    /// Divides the leaf, or does something before that.
    fn divide(
        trees: &Trees<Self>,
        tree: Tree,
        full: Full<'_>,
        key: Self::Key<'_>,
        need_bytes: usize,
    ) -> Result<(), Stop>;
}

/// Copies leaves: a copy streams through the cache, where a plan would wait for one record after another.
pub(super) fn copy_leaves<'c, O: Order>(
    copies: &'c mut [Page; TARGETS_MAX],
    leaves: &[ExclusiveGuard<'_>],
) -> Result<Vec<O::Leaf<'c>>, Stop> {
    for (copy, leaf) in copies.iter_mut().zip(leaves) {
        *copy = *leaf.page();
    }
    copied::<O>(copies, leaves.len())
}

/// The first copies as leaves.
fn copied<O: Order>(copies: &[Page; TARGETS_MAX], count: usize) -> Result<Vec<O::Leaf<'_>>, Stop> {
    copies.iter().take(count).map(|page| as_leaf::<O>(PageId(0), page)).collect()
}

impl<O: Order> Trees<O> {
    /// The leaf at `index` with its neighbours, as far as they can be had at once and are alone.
    pub(super) fn window<'p>(
        &'p self,
        parent: &ExclusiveGuard<'p>,
        index: usize,
        leaf: ExclusiveGuard<'p>,
    ) -> Window<'p> {
        let neighbour = |i: usize| {
            let guard = self.pool.try_exclusive(O::child(parent, i)).ok()?;
            O::leaf(guard.page()).is_some_and(|leaf| leaf.is_alone()).then_some(guard)
        };
        let left = index.checked_sub(1).and_then(neighbour);
        let right = (index + 1 < O::child_count(parent)).then(|| neighbour(index + 1)).flatten();
        let first = index - usize::from(left.is_some());
        let mut leaves = Vec::with_capacity(WINDOW + 1);
        leaves.extend(left);
        leaves.push(leaf);
        leaves.extend(right);
        Window { first, leaves }
    }

    /// Makes of the first `source_count` leaves of `leaves`, of which there are copies, and which are the children of
    /// `parent` from `first` on, all of `leaves` as planned.
    pub(super) fn spread(
        &self,
        scratch: &Scratch,
        parent: &mut ExclusiveGuard<'_>,
        first: usize,
        source_count: usize,
        leaves: &mut [ExclusiveGuard<'_>],
        plan: &O::Plan,
    ) -> Result<(), Stop> {
        let sources = copied::<O>(&scratch.copies, source_count)?;
        for (target, leaf) in leaves.iter_mut().enumerate() {
            self.order.fill(plan, target, leaf.page_mut(), &sources);
            self.order.register(leaf.id(), as_leaf::<O>(leaf.id(), leaf.page())?, Some(scratch.tick));
        }
        self.order.respread(parent, first, source_count, plan, leaves);
        Ok(())
    }

    /// Divides the records of the full leaf and a neighbour with room evenly. False if that would not help.
    fn share(
        &self,
        scratch: &mut Scratch,
        parent: &mut ExclusiveGuard<'_>,
        window: &mut Window<'_>,
        index: usize,
        key: O::Key<'_>,
        need_bytes: usize,
    ) -> Result<bool, Stop> {
        // About four records of 100 bytes.
        let share_min_free_bytes = O::CAPACITY_BYTES / 8;
        let at = index - window.first;
        let mut best = None;
        for i in (0..window.leaves.len()).filter(|i| *i != at) {
            let free = window.leaf::<O>(i)?.free_bytes();
            if free >= share_min_free_bytes.max(need_bytes) && best.is_none_or(|(most, _)| free > most) {
                best = Some((free, i));
            }
        }
        let Some((_, neighbour)) = best else { return Ok(false) };
        let low = at.min(neighbour);
        let pair = &mut window.leaves[low..low + 2];
        let first = window.first + low;
        let plan = self.order.plan(&copy_leaves::<O>(&mut scratch.copies, pair)?, 2);
        let fits = |plan: &O::Plan| {
            O::free_bytes_for(plan, key) >= need_bytes && O::has_room(parent, first, 2, plan)
        };
        let Some(plan) = plan.filter(fits) else { return Ok(false) };
        self.spread(scratch, parent, first, 2, pair, &plan)?;
        Ok(true)
    }

    /// Makes one leaf more of the window's.
    fn split_leaves<'p>(
        &'p self,
        scratch: &mut Scratch,
        parent: &mut ExclusiveGuard<'_>,
        mut window: Window<'p>,
        plan: &O::Plan,
    ) -> Result<(), Stop> {
        self.pages.admit(1)?;
        let new = self.pool.allocate()?;
        let source_count = window.leaves.len();
        // A new page may hold an old leaf: nobody reads it before `spread` has filled it.
        window.leaves.push(new);
        self.spread(scratch, parent, window.first, source_count, &mut window.leaves, plan)
    }

    /// Splits the full node of `level` on the way to `key`; the root gives its content to a child instead.
    pub(super) fn split_inner(&self, tree: Tree, key: O::Key<'_>, level: u8) -> Result<(), Stop> {
        let root = self.pool.optimistic(tree.root)?;
        let root_level = root.level();
        root.validate()?;
        if root_level == level {
            return self.grow_root(tree, level);
        }
        let mut parent = self.inner_exclusive(tree, key, level + 1)?;
        if !O::can_grow(&parent) {
            drop(parent);
            return self.split_inner(tree, key, level + 1);
        }
        let index = O::find_child(&parent, key);
        let mut node = self.child_exclusive(&parent, index)?;
        self.check_child(tree, &parent, &node)?;
        if O::can_grow(&node) {
            return Ok(());
        }
        if O::child_count(&node) < 2 {
            // No separator takes so much that one child would fill a node.
            return Err(not_inner(node.id()));
        }
        self.pages.admit(1)?;
        let mut right = self.pool.allocate()?;
        self.order.split(&mut parent, index, &mut node, &mut right);
        Ok(())
    }

    fn grow_root(&self, tree: Tree, level: u8) -> Result<(), Stop> {
        let mut root = self.pool.exclusive(tree.root)?;
        if root.level() != level || O::can_grow(&root) {
            return Ok(());
        }
        if !O::is_inner(&root, tree.tag) || !O::is_whole(&root) {
            return Err(not_inner(tree.root));
        }
        self.pages.admit(1)?;
        let mut child = self.pool.allocate()?;
        child.copy_from(&root);
        self.order.init_root(&mut root, tree.tag, level + 1, &child);
        Ok(())
    }
}

impl<O: Divide> Trees<O> {
    /// Makes room for a record of `record_bytes` with this key. The caller tries again afterwards.
    pub fn make_room(
        &self,
        scratch: &mut Scratch,
        tree: Tree,
        key: O::Key<'_>,
        record_bytes: usize,
    ) -> Result<(), Stop> {
        let need_bytes = record_bytes + O::SLOT_BYTES;
        let mut parent = self.inner_exclusive(tree, key, 1)?;
        let index = O::find_child(&parent, key);
        let full = self.child_exclusive(&parent, index)?;
        let leaf = as_leaf::<O>(full.id(), full.page())?;
        if !O::covers(leaf, tree.tag, key) {
            return Err(not_a_leaf(full.id()));
        }
        if !leaf.is_alone() {
            return O::divide(self, tree, Full { parent, index, leaf: full }, key, need_bytes);
        }
        if leaf.free_bytes() >= need_bytes {
            return Ok(());
        }
        if O::is_in_run(leaf, key) {
            return O::divide(self, tree, Full { parent, index, leaf: full }, key, need_bytes);
        }
        let mut window = self.window(&parent, index, full);
        if self.share(scratch, &mut parent, &mut window, index, key, need_bytes)? {
            return Ok(());
        }
        let source_count = window.leaves.len();
        let plan = self.order.plan(&copy_leaves::<O>(&mut scratch.copies, &window.leaves)?, source_count + 1);
        let plan = plan.filter(|plan| O::free_bytes_for(plan, key) >= need_bytes);
        match plan {
            Some(plan) if !O::has_room(&parent, window.first, source_count, &plan) => {
                drop((window, parent));
                self.split_inner(tree, key, 1)
            }
            Some(plan) => self.split_leaves(scratch, &mut parent, window, &plan),
            None => {
                let leaf = window.leaves.swap_remove(index - window.first);
                drop(window);
                O::divide(self, tree, Full { parent, index, leaf }, key, need_bytes)
            }
        }
    }
}

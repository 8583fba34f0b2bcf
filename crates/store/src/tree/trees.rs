//! From a key to its latched leaf.
//!
//! Inner nodes are read optimistically, leaves under a latch. A root keeps its page for the life of its tree.

use std::sync::Arc;

use stillframe_pagepool::{ExclusiveGuard, OptimisticGuard, PageId, Pool, Restart, SharedGuard};

use super::order::{as_leaf, not_a_leaf, not_inner, Order, TARGETS_MAX};
use super::words::Words;
use crate::db::DbId;
use crate::page::{Page, PAGE_SIZE};
use crate::pages::Pages;
use crate::stop::{stop_at, Follow, Stop};

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// Deepest tree that is believed: five levels hold 10^14 records.
const LEVEL_MAX: u8 = 16;

/// What stands for the database of a tree that belongs to none.
pub(crate) const NO_DATABASE: DbId = DbId(u32::MAX);

/// A tree: its root page and the tag that all its pages carry. A tag is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    /// The database that it belongs to.
    pub db: DbId,
    pub root: PageId,
    pub tag: u32,
}

impl Tree {
    /// Whether its records are keys of a database: those of other trees are neither counted nor remembered.
    #[inline(always)]
    pub fn has_keys(&self) -> bool {
        self.db != NO_DATABASE
    }
}

/// What a worker needs to divide leaves.
pub(crate) struct Scratch {
    /// Copies of the leaves that are being divided anew.
    pub copies: Box<[Page; TARGETS_MAX]>,
    /// Now, in the unit of access times.
    pub tick: u32,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch { copies: Box::new([[0; PAGE_SIZE]; TARGETS_MAX]), tick: 0 }
    }
}

/// The trees of one order.
pub(crate) struct Trees<O> {
    pub pages: Arc<Pages>,
    pub pool: Arc<Pool>,
    pub order: O,
}

impl<O: Order> Trees<O> {
    pub fn new(pages: &Arc<Pages>, order: O) -> Trees<O> {
        Trees { pages: pages.clone(), pool: pages.pool.clone(), order }
    }

    /// An empty tree; its root.
    pub fn create(&self, tag: u32) -> Result<PageId, Stop> {
        self.pages.admit(2)?;
        let mut root = self.pool.allocate()?;
        let mut leaf = match self.pool.allocate() {
            Ok(leaf) => leaf,
            Err(error) => {
                self.pool.free(root, 1);
                return Err(error.into());
            }
        };
        self.order.init_leaf(leaf.page_mut(), tag);
        self.order.register(leaf.id(), as_leaf::<O>(leaf.id(), leaf.page())?, None);
        self.order.init_root(&mut root, tag, 1, &leaf);
        Ok(root.id())
    }

    /// The node of `level` that is responsible for `key`, and the child that is. For a thread that holds no latch.
    #[inline(always)]
    pub fn descend(
        &self,
        tree: Tree,
        key: O::Key<'_>,
        level: u8,
    ) -> Result<(OptimisticGuard<'_>, PageId), Stop> {
        self.descend_by::<true>(tree, key, level)
    }

    #[inline(always)]
    fn descend_by<const MAY_WAIT: bool>(
        &self,
        tree: Tree,
        key: O::Key<'_>,
        level: u8,
    ) -> Result<(OptimisticGuard<'_>, PageId), Stop> {
        let mut node =
            self.read_node::<MAY_WAIT>(tree.root).map_err(|restart| self.stop_at_root(tree, restart))?;
        let mut level_above = None;
        loop {
            let node_level = node.level();
            // Damaged pages may lead back to themselves.
            let is_placed = (1..=LEVEL_MAX).contains(&node_level)
                && level_above.is_none_or(|above: u8| node_level == above - 1);
            if !O::is_inner(&node, tree.tag) || !is_placed {
                node.validate()?;
                return Err(not_inner(node.id()));
            }
            let child = O::child(&node, O::find_child(&node, key));
            node.validate()?;
            if node_level <= level {
                return Ok((node, child));
            }
            (LINE_BYTES..O::SEARCH_BYTES)
                .step_by(LINE_BYTES)
                .for_each(|at| self.pool.hints().read(child, at));
            let next = match self.read_node::<MAY_WAIT>(child) {
                Ok(next) => next,
                Err(restart) => return Err(stop_below(&self.pool, &node, restart)),
            };
            // The child was this node's when its version was read.
            node.validate()?;
            (node, level_above) = (next, Some(node_level));
        }
    }

    /// Why a root could not be had. That of a collection belongs to it as long as somebody works with it; `FLUSHDB` takes
    /// that of a database away beside others.
    #[cold]
    pub(super) fn stop_at_root(&self, tree: Tree, restart: Restart) -> Stop {
        match tree.has_keys() {
            true => restart.into(),
            false => stop_at(&self.pool, restart),
        }
    }

    #[inline(always)]
    fn read_node<const MAY_WAIT: bool>(&self, pid: PageId) -> Result<OptimisticGuard<'_>, Restart> {
        match MAY_WAIT {
            true => self.pool.optimistic(pid),
            false => self.pool.try_optimistic(pid),
        }
    }

    /// Latches the leaf of a key, shared.
    #[inline(always)]
    pub fn leaf_shared(
        &self,
        tree: Tree,
        key: O::Key<'_>,
        hint: Option<PageId>,
    ) -> Result<SharedGuard<'_>, Stop> {
        if let Some(pid) = hint.filter(|&pid| self.order.is_known(pid)) {
            if let Ok(guard) = self.pool.shared(pid) {
                if self.is_leaf_of(pid, guard.page(), tree, key) {
                    return Ok(guard);
                }
            }
        }
        let (parent, pid) = self.descend(tree, key, 1)?;
        let guard = self.pool.shared(pid).map_err(|restart| stop_below(&self.pool, &parent, restart))?;
        if !self.is_leaf_of(pid, guard.page(), tree, key) {
            self.meet(&parent, pid, guard.page(), tree, key)?;
        }
        Ok(guard)
    }

    /// Latches the leaf of a key, exclusive.
    #[inline(always)]
    pub fn leaf_exclusive(
        &self,
        tree: Tree,
        key: O::Key<'_>,
        hint: Option<PageId>,
    ) -> Result<ExclusiveGuard<'_>, Stop> {
        if let Some(pid) = hint.filter(|&pid| self.order.is_known(pid)) {
            if let Ok(guard) = self.pool.exclusive(pid) {
                if self.is_leaf_of(pid, guard.page(), tree, key) {
                    return Ok(guard);
                }
            }
        }
        let (parent, pid) = self.descend(tree, key, 1)?;
        let guard = self.pool.exclusive(pid).map_err(|restart| stop_below(&self.pool, &parent, restart))?;
        if !self.is_leaf_of(pid, guard.page(), tree, key) {
            self.meet(&parent, pid, guard.page(), tree, key)?;
        }
        Ok(guard)
    }

    /// The same for a thread that holds another leaf's latch: does not wait.
    pub fn try_leaf_exclusive(&self, tree: Tree, key: O::Key<'_>) -> Result<ExclusiveGuard<'_>, Stop> {
        let (parent, pid) = self.descend_by::<false>(tree, key, 1)?;
        let guard =
            self.pool.try_exclusive(pid).map_err(|restart| stop_below(&self.pool, &parent, restart))?;
        if !self.is_leaf_of(pid, guard.page(), tree, key) {
            self.meet(&parent, pid, guard.page(), tree, key)?;
        }
        Ok(guard)
    }

    /// Whether a latched page is known to be the leaf that is responsible for `key`.
    #[inline(always)]
    fn is_leaf_of(&self, pid: PageId, page: &Page, tree: Tree, key: O::Key<'_>) -> bool {
        self.order.is_known(pid) && O::leaf(page).is_some_and(|leaf| O::covers(leaf, tree.tag, key))
    }

    /// A latched page below `parent` that the side array does not know, or that is not the right one.
    #[cold]
    fn meet(
        &self,
        parent: &OptimisticGuard<'_>,
        pid: PageId,
        page: &Page,
        tree: Tree,
        key: O::Key<'_>,
    ) -> Result<(), Stop> {
        // A damaged node may lead back to itself; its latch is what has changed its version then.
        if pid == parent.id() {
            return Err(not_inner(pid));
        }
        parent.validate()?;
        let leaf = as_leaf::<O>(pid, page)?;
        if !O::covers(leaf, tree.tag, key) {
            return Err(not_a_leaf(pid));
        }
        if !self.order.is_known(pid) {
            self.order.meet(&self.pool, pid, leaf)?;
        }
        Ok(())
    }

    /// Leaves that a walk which has got to a key, or below which it goes on, comes to next, as far as they have the same
    /// parent: up to `count` of them, in the walk's order.
    pub fn leaves_ahead(
        &self,
        tree: Tree,
        key: O::Key<'_>,
        is_upwards: bool,
        count: usize,
    ) -> Result<Vec<PageId>, Stop> {
        let (parent, _) = self.descend(tree, key, 1)?;
        let at = O::find_child(&parent, key);
        let indices = match is_upwards {
            true => at..O::child_count(&parent).min(at.saturating_add(count)),
            false => (at + 1).saturating_sub(count)..at + 1,
        };
        let mut leaves: Vec<PageId> = indices.map(|index| O::child(&parent, index)).collect();
        parent.validate()?;
        if !is_upwards {
            leaves.reverse();
        }
        Ok(leaves)
    }

    /// Latches the node of `level` that is responsible for `key`, without waiting.
    pub fn inner_exclusive(
        &self,
        tree: Tree,
        key: O::Key<'_>,
        level: u8,
    ) -> Result<ExclusiveGuard<'_>, Stop> {
        let (node, _) = self.descend(tree, key, level)?;
        let found_level = node.level();
        let guard = node.upgrade()?;
        // The root may have grown or shrunk since the caller looked.
        if found_level != level {
            return Err(Stop::Contended);
        }
        match O::is_whole(&guard) {
            true => Ok(guard),
            false => Err(not_inner(guard.id())),
        }
    }

    /// Latches a child of a node that the caller has latched.
    pub fn child_exclusive(
        &self,
        parent: &ExclusiveGuard<'_>,
        index: usize,
    ) -> Result<ExclusiveGuard<'_>, Stop> {
        let child = O::child(parent, index);
        match child == parent.id() {
            true => Err(not_inner(child)),
            false => self.pool.follow_exclusive(child),
        }
    }

    /// Looks at a latched child of a node, before it is changed as a node.
    pub fn check_child(
        &self,
        tree: Tree,
        parent: &ExclusiveGuard<'_>,
        child: &ExclusiveGuard<'_>,
    ) -> Result<(), Stop> {
        let is_below = child.level().checked_add(1) == Some(parent.level());
        match is_below && O::is_inner(child, tree.tag) && O::is_whole(child) {
            true => Ok(()),
            false => Err(not_inner(child.id())),
        }
    }
}

/// Why a child could not be had: stale if the parent has changed.
#[cold]
pub(crate) fn stop_below(pool: &Pool, parent: &OptimisticGuard<'_>, restart: Restart) -> Stop {
    let stop = stop_at(pool, restart);
    match parent.validate() {
        Ok(()) => stop,
        Err(_) => Stop::Contended,
    }
}

//! Freeing a tree that nobody can reach, part by part.

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::order::{not_inner, Order};
use super::trees::Trees;
use super::words::Words;
use crate::pages::Pages;
use crate::stop::{Follow, Stop};

/// Trees that can be freed so: what is to be known of their nodes.
pub(super) trait Shrinking {
    /// First byte of an inner node.
    const KIND_INNER: u8;

    fn pages(&self) -> &Pages;
    /// Children of a node; at least one is believed.
    fn child_count(node: &ExclusiveGuard<'_>) -> usize;
    fn child(node: &ExclusiveGuard<'_>, index: usize) -> PageId;
    /// Drops the last child of several.
    fn truncate(node: &mut ExclusiveGuard<'_>);
    /// The page is about to be freed without having been read.
    fn forget(&self, _pid: PageId) {}

    /// As of [`Trees::free_part`].
    fn free_rest<'p>(
        &'p self,
        root: PageId,
        unit_count: usize,
        mut free_leaf: impl FnMut(ExclusiveGuard<'p>, &[ExclusiveGuard<'p>]) -> Result<usize, Stop>,
    ) -> Result<bool, Stop> {
        let pool = &self.pages().pool;
        let Some(root) = self.latch_or_free(root)? else { return Ok(true) };
        let mut path = vec![root];
        let mut freed = 0;
        loop {
            let Some(node) = path.last() else { return Ok(true) };
            // Damaged pages may lead back to themselves.
            let is_below = |above: &ExclusiveGuard<'_>| above.level().checked_sub(1) == Some(node.level());
            let is_placed = path.iter().nth_back(1).is_none_or(is_below);
            if node.word(0) as u8 != Self::KIND_INNER || !is_placed {
                return Err(not_inner(node.id()));
            }
            let last = Self::child_count(node) - 1;
            let (child, is_above_leaves) = (Self::child(node, last), node.level() == 1);
            if path.iter().any(|above| above.id() == child) {
                return Err(not_inner(child));
            }
            match self.latch_or_free(child)? {
                Some(leaf) if is_above_leaves => freed += free_leaf(leaf, &path)?,
                Some(inner) => {
                    path.push(inner);
                    continue;
                }
                None => freed += 1,
            }
            // Take the freed child out of the node, and empty nodes out of theirs.
            while let Some(mut node) = path.pop() {
                if Self::child_count(&node) > 1 {
                    Self::truncate(&mut node);
                    path.push(node);
                    break;
                }
                pool.free(node, 1);
            }
            if freed >= unit_count && !path.is_empty() {
                return Ok(false);
            }
        }
    }

    /// A page of the tree, latched; or freed, if it cannot be read.
    fn latch_or_free(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>, Stop> {
        let pages = self.pages();
        match pages.pool.follow_exclusive(pid) {
            Err(Stop::Damaged(_)) if pages.pool.free_unread(pid, 1) => {
                self.forget(pid);
                pages.leaks.ask();
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

impl<O: Order> Shrinking for Trees<O> {
    const KIND_INNER: u8 = O::KIND_INNER;

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn child_count(node: &ExclusiveGuard<'_>) -> usize {
        O::child_count(node)
    }

    fn child(node: &ExclusiveGuard<'_>, index: usize) -> PageId {
        O::child(node, index)
    }

    fn truncate(node: &mut ExclusiveGuard<'_>) {
        O::truncate(node);
    }

    fn forget(&self, pid: PageId) {
        self.order.forget(pid);
    }
}

impl<O: Order> Trees<O> {
    /// Frees leaves at the right end of a tree, and the nodes that this empties, until `unit_count` things are free. True
    /// when the tree is gone. `free_leaf` frees a leaf, below the nodes that it is told, with what it refers to, and says how
    /// many things that were; until it has, nothing may be changed.
    ///
    /// A page that is damaged is freed as it is. What it referred to is out of reach then: [`crate::leaks`] is asked.
    pub fn free_part<'p>(
        &'p self,
        root: PageId,
        unit_count: usize,
        free_leaf: impl FnMut(ExclusiveGuard<'p>, &[ExclusiveGuard<'p>]) -> Result<usize, Stop>,
    ) -> Result<bool, Stop> {
        self.free_rest(root, unit_count, free_leaf)
    }
}

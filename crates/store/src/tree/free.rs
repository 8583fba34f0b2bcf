//! Freeing a tree that nobody can reach, part by part.

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::order::{not_inner, Order};
use super::trees::Trees;
use super::words::Words;
use crate::pages::Pages;
use crate::stop::{Follow, Stop};

/// From the root to where the tree is being freed.
#[derive(Default)]
pub(super) struct Path<'p> {
    nodes: Vec<ExclusiveGuard<'p>>,
    /// Of each: the first children, so many, are not freed yet. At least one is not.
    left: Vec<usize>,
}

impl<'p> Path<'p> {
    fn last(&self) -> Option<(&ExclusiveGuard<'p>, usize)> {
        self.nodes.last().zip(self.left.last().copied())
    }

    /// The last child has been freed. So are the nodes that have none any more.
    fn leave_child(&mut self, mut free: impl FnMut(ExclusiveGuard<'p>)) {
        while let Some(left) = self.left.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.left.pop();
            self.nodes.pop().into_iter().for_each(&mut free);
        }
    }
}

/// Trees that can be freed so: what is to be known of their nodes.
pub(super) trait Shrinking {
    /// First byte of an inner node.
    const KIND_INNER: u8;

    fn pages(&self) -> &Pages;
    /// Children of a node; at least one is believed.
    fn child_count(node: &ExclusiveGuard<'_>) -> usize;
    fn child(node: &ExclusiveGuard<'_>, index: usize) -> PageId;
    /// Drops the last children until so many are left, at least one.
    fn truncate(node: &mut ExclusiveGuard<'_>, child_count: usize);
    /// The page is about to be freed without having been read.
    fn forget(&self, _pid: PageId) {}

    /// As of [`Trees::free_part`].
    fn free_rest<'p>(
        &'p self,
        root: PageId,
        unit_count: usize,
        free_leaf: impl FnMut(ExclusiveGuard<'p>, &[ExclusiveGuard<'p>]) -> Result<usize, Stop>,
    ) -> Result<bool, Stop> {
        let Some(root) = self.latch_or_free(root)? else { return Ok(true) };
        let mut path = Path::default();
        self.enter(&mut path, root)?;
        let is_gone = self.free_below(&mut path, unit_count, free_leaf);
        // What is gone is taken out of a node once, however many children that were: some nodes have to be written anew.
        for (node, left) in path.nodes.iter_mut().zip(path.left) {
            if left < Self::child_count(node) {
                Self::truncate(node, left);
            }
        }
        is_gone
    }

    /// Frees below the last node of the path, and the nodes that this empties. What is left of the others the path tells.
    fn free_below<'p>(
        &'p self,
        path: &mut Path<'p>,
        unit_count: usize,
        mut free_leaf: impl FnMut(ExclusiveGuard<'p>, &[ExclusiveGuard<'p>]) -> Result<usize, Stop>,
    ) -> Result<bool, Stop> {
        let mut freed = 0;
        while freed < unit_count {
            let Some((node, left)) = path.last() else { return Ok(true) };
            let (child, is_above_leaves) = (Self::child(node, left - 1), node.level() == 1);
            // Damaged pages may lead back to themselves.
            if path.nodes.iter().any(|above| above.id() == child) {
                return Err(not_inner(child));
            }
            match self.latch_or_free(child)? {
                Some(leaf) if is_above_leaves => freed += free_leaf(leaf, &path.nodes)?,
                Some(inner) => {
                    self.enter(path, inner)?;
                    continue;
                }
                None => freed += 1,
            }
            path.leave_child(|emptied| self.pages().pool.free(emptied, 1));
        }
        Ok(path.nodes.is_empty())
    }

    /// Goes on below a node.
    fn enter<'p>(&'p self, path: &mut Path<'p>, node: ExclusiveGuard<'p>) -> Result<(), Stop> {
        let is_below = |above: &ExclusiveGuard<'_>| above.level().checked_sub(1) == Some(node.level());
        if node.word(0) as u8 != Self::KIND_INNER || !path.nodes.last().is_none_or(is_below) {
            return Err(not_inner(node.id()));
        }
        path.left.push(Self::child_count(&node));
        path.nodes.push(node);
        Ok(())
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

    fn truncate(node: &mut ExclusiveGuard<'_>, child_count: usize) {
        O::truncate(node, child_count);
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

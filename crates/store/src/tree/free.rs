//! Freeing a tree that nobody can reach, part by part.

use stillframe_pagepool::{ExclusiveGuard, PageId, Restart};

use super::order::{not_inner, Order};
use super::trees::Trees;
use super::words::Words;
use crate::stop::Stop;

impl<O: Order> Trees<O> {
    /// Frees leaves at the right end of a tree, and the nodes that this empties, until `unit_count` things are free. True
    /// when the tree is gone. `free_leaf` frees a leaf with what it refers to, and says how many things that were; until it
    /// has, nothing may be changed.
    ///
    /// A page that is damaged is freed as it is. What it referred to is out of reach then: [`crate::leaks`] is asked.
    pub fn free_part<'p>(
        &'p self,
        root: PageId,
        unit_count: usize,
        mut free_leaf: impl FnMut(ExclusiveGuard<'p>) -> Result<usize, Stop>,
    ) -> Result<bool, Stop> {
        let Some(root) = self.latch_or_free(root)? else { return Ok(true) };
        let mut path = vec![root];
        let mut freed = 0;
        loop {
            let Some(node) = path.last_mut() else { return Ok(true) };
            if node.word(0) as u8 != O::KIND_INNER {
                return Err(not_inner(node.id()));
            }
            let last = O::child_count(node) - 1;
            let is_above_leaves = node.level() == 1;
            match self.latch_or_free(O::child(node, last))? {
                Some(leaf) if is_above_leaves => freed += free_leaf(leaf)?,
                Some(inner) => {
                    path.push(inner);
                    continue;
                }
                None => freed += 1,
            }
            // Take the freed child out of the node, and empty nodes out of theirs.
            while let Some(mut node) = path.pop() {
                if O::child_count(&node) > 1 {
                    O::truncate(&mut node);
                    path.push(node);
                    break;
                }
                self.pool.free(node, 1);
            }
            if freed >= unit_count && !path.is_empty() {
                return Ok(false);
            }
        }
    }

    /// A page of the tree, latched; or freed, if it cannot be read.
    fn latch_or_free(&self, pid: PageId) -> Result<Option<ExclusiveGuard<'_>>, Stop> {
        match self.pool.exclusive(pid) {
            Err(Restart::Damaged(_)) if self.pool.free_unread(pid, 1) => {
                self.order.forget(pid);
                self.pages.leaks.ask();
                Ok(None)
            }
            other => Ok(Some(other?)),
        }
    }
}

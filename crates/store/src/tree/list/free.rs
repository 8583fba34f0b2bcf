//! Freeing a list that nobody can reach, part by part.

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::block::Block;
use super::node::CHILDREN_MAX;
use super::path::Lists;
use crate::blobs::Blob;
use crate::page::{put_u16, KIND_LIST_INNER};
use crate::pages::Pages;
use crate::stop::Stop;
use crate::tree::free::Shrinking;
use crate::tree::order::{bad_record, not_a_leaf};

/// Whatever a node says, one child is believed.
fn counted(node: &ExclusiveGuard<'_>) -> usize {
    usize::from((node.word(0) >> 16) as u16).clamp(1, CHILDREN_MAX)
}

impl Shrinking for Lists {
    const KIND_INNER: u8 = KIND_LIST_INNER;

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn child_count(node: &ExclusiveGuard<'_>) -> usize {
        counted(node)
    }

    fn child(node: &ExclusiveGuard<'_>, index: usize) -> PageId {
        PageId(node.word(1 + index) as u32)
    }

    fn truncate(node: &mut ExclusiveGuard<'_>, child_count: usize) {
        put_u16(node.page_mut(), 2, child_count as u16);
    }
}

impl Lists {
    /// Frees blocks at the right end of a list, and the nodes that this empties, until `unit_count` things are free. True when
    /// the list is gone. `discard` is given what its elements referred to.
    ///
    /// # Errors
    /// A page is missing, or is not what was expected. One that cannot be read is freed as it is, and [`crate::leaks`] is
    /// asked.
    pub fn free_part(
        &self,
        root: PageId,
        unit_count: usize,
        mut discard: impl FnMut(Blob),
    ) -> Result<bool, Stop> {
        self.free_rest(root, unit_count, |guard, _| {
            let pid = guard.id();
            let block = Block::new(guard.page()).ok_or_else(|| not_a_leaf(pid))?;
            let blobs = block.blobs(0..block.count()).ok_or_else(|| bad_record(pid))?;
            let freed = 1 + blobs.len();
            blobs.into_iter().for_each(&mut discard);
            self.pool.free(guard, 1);
            Ok(freed)
        })
    }
}

//! Items of lists as a view gives them.

use std::ops::Range;

use stillframe_pagepool::PageId;

use crate::error::SaveError;
use crate::page::Page;
use crate::rdb::Element;
use crate::tree::hash::Content;
use crate::tree::list::{self, Block};
use crate::tree::{blank, LeafWalk, Pages};
use crate::types::kind::Each;
use crate::types::viewed::{damaged, read_blob};
use crate::walk::CollectionView;

/// Gives the items of a block to `f`.
pub(super) fn for_each_in_block(
    pages: &dyn Pages,
    pid: PageId,
    block: &Page,
    f: Each<'_>,
) -> Result<(), SaveError> {
    let block = Block::new(block).ok_or_else(|| damaged("a block"))?;
    block.elements(0).try_for_each(|item| {
        let item = item.ok_or_else(|| bad_item(pid))?;
        give_item(pages, item, |item| f(Element::Item(item)))
    })
}

fn bad_item(pid: PageId) -> SaveError {
    damaged(&format!("an item of page {}", pid.0))
}

#[inline]
fn give_item(
    pages: &dyn Pages,
    item: list::Element<'_>,
    mut f: impl FnMut(&[u8]) -> Result<(), SaveError>,
) -> Result<(), SaveError> {
    match item {
        list::Element::Inline(item) => f(item),
        list::Element::Outside(blob) => {
            let mut item = Vec::new();
            read_blob(pages, &blob, &mut item)?;
            f(&item)
        }
    }
}

impl CollectionView<'_> {
    /// Gives those items of a list to `f` that have the indices of a range, in their order.
    ///
    /// # Errors
    /// A page that cannot be read, a list that has fewer, or what `f` says.
    pub fn for_each_item(
        &self,
        range: Range<u64>,
        f: &mut dyn FnMut(&[u8]) -> Result<(), SaveError>,
    ) -> Result<(), SaveError> {
        let Content::Trees(grown) = self.content else {
            let mut indices = 0..;
            return self.for_each(&mut |element| match (indices.next(), element) {
                (Some(index), Element::Item(item)) if range.contains(&index) => f(item),
                _ => Ok(()),
            });
        };
        let (mut walk, mut page) = (LeafWalk::new(grown.first), blank());
        let (mut passed, mut left) = (walk.begin_at(self.pages, range.start)?, range.end - range.start);
        walk.expect(self.pages);
        while left > 0 {
            let Some(pid) = walk.next_leaf(self.pages, &mut page)? else { return Err(damaged("a list")) };
            let from = usize::try_from(std::mem::take(&mut passed)).unwrap_or(usize::MAX);
            let block = Block::new(&page).filter(|block| from < block.count());
            let block = block.ok_or_else(|| damaged("a block"))?;
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            for item in block.elements(from).take(most) {
                give_item(self.pages, item.ok_or_else(|| bad_item(pid))?, &mut *f)?;
                left -= 1;
            }
        }
        Ok(())
    }
}

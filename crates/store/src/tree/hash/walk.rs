//! Going through all pages of a tree by hash, to know which there are.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::inner::Inner;
use super::links::Links;
use super::order::as_leaf;
use crate::page::KIND_INNER;
use crate::stop::Stop;
use crate::tree::order::not_inner;
use crate::tree::ordered::Visitor;
use crate::tree::words::Words;

/// Deepest tree that is believed.
const LEVEL_MAX: u8 = 16;

/// Goes through a tree, or through what is left of one that is being freed: some of its right end may be gone.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`].
pub(crate) fn visit_rest(root: PageId, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visit_below(root, LEVEL_MAX, visitor)
}

fn visit_below(pid: PageId, level_max: u8, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visitor.page(pid)?;
    let mut page = Box::new([0; PAGE_SIZE]);
    visitor.read(pid, &mut page)?;
    let level = page.level();
    if page[0] != KIND_INNER || !(1..=level_max).contains(&level) {
        return Err(not_inner(pid));
    }
    for child in (0..page.child_count()).map(|index| PageId(page.child(index))) {
        match level {
            1 => visit_leaves(child, visitor)?,
            _ => visit_below(child, level - 1, visitor)?,
        }
    }
    Ok(())
}

/// A leaf and its chain.
fn visit_leaves(head: PageId, visitor: &mut impl Visitor) -> Result<(), Stop> {
    let (mut page, mut links, mut next) = ([0; PAGE_SIZE], Links::default(), Some(head));
    while let Some(pid) = next {
        visitor.page(pid)?;
        visitor.read(pid, &mut page)?;
        visitor.hashed_leaf(pid, &page)?;
        next = links.after(pid, as_leaf(pid, &page)?)?;
    }
    Ok(())
}

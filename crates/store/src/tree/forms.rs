//! The forms of trees: by hash, by byte strings, by position. The first byte of an inner node says which it is. This is for
//! walks that know a page and not the type of the value that it is of.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::hash::{self, Inner};
use super::list;
use super::ordered::{self, Visitor};
use crate::page::{Page, KIND_INNER, KIND_LIST_INNER, KIND_ORDERED_INNER};
use crate::stop::Stop;

/// The children of a node; `None` if the page is no node of the tree.
pub(super) fn children_of(page: &Page, tag: u32) -> Option<Vec<u32>> {
    match page[0] {
        KIND_INNER if page.is_inner(tag) => {
            Some((0..page.child_count()).map(|index| page.child(index)).collect())
        }
        KIND_ORDERED_INNER => ordered::children_of(page, tag),
        KIND_LIST_INNER => list::children_of(page, tag),
        _ => None,
    }
}

/// The child of a node of a tree that counts below which there is what has an index, and its index there; `None` if the page is
/// no such node.
pub(super) fn find_child(page: &Page, tag: u32, index: u64) -> Option<(usize, u64)> {
    match page[0] {
        KIND_ORDERED_INNER => ordered::find_rank(page, tag, index),
        KIND_LIST_INNER => list::find_child(page, tag, index),
        _ => None,
    }
}

/// Goes through a tree, or through what is left of one that is being freed.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`].
pub(crate) fn visit_rest(root: PageId, visitor: &mut impl Visitor) -> Result<(), Stop> {
    let mut page = Box::new([0; PAGE_SIZE]);
    visitor.read(root, &mut page)?;
    match page[0] {
        KIND_ORDERED_INNER => ordered::visit_rest(root, visitor),
        KIND_LIST_INNER => list::visit_rest(root, visitor),
        _ => hash::visit_rest(root, visitor),
    }
}

//! An inner node of a list: children, and how many elements are below each.
//!
//! ```text
//! word 0       kind 12 | level u8 | count u16 | tag u32, as in every tree
//! words 1..512 children: page u32 (low half), elements below u32 (high half)
//! ```
//! Whoever uses a list has its key's lock, so nodes are read under latches alone, as bytes.

use std::ops::Range;

use stillframe_pagepool::{ExclusiveGuard, PageId};

use crate::page::{get_u64, put_u32, put_u64, Page, KIND_LIST_INNER, PAGE_SIZE};

pub(super) const CHILDREN_MAX: usize = PAGE_SIZE / 8 - 1;
/// Nodes with fewer are joined with a neighbour, and may have so many then.
pub(super) const CHILDREN_SPARSE: usize = CHILDREN_MAX / 4;
pub(super) const CHILDREN_JOINED_MAX: usize = CHILDREN_MAX * 3 / 4;
/// Deepest tree that is believed: five levels have 10^13 blocks.
pub(super) const LEVEL_MAX: u8 = 16;

/// Children whose elements are added up at a time.
const GROUP: usize = 16;

/// A child of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub pid: PageId,
    pub elements: u32,
}

impl Child {
    fn to_word(self) -> u64 {
        u64::from(self.pid.0) | u64::from(self.elements) << 32
    }

    fn from_word(word: u64) -> Child {
        Child { pid: PageId(word as u32), elements: (word >> 32) as u32 }
    }
}

pub(super) fn elements_of(children: &[Child]) -> u64 {
    children.iter().map(|child| u64::from(child.elements)).sum()
}

/// A node whose header has been checked.
#[derive(Clone, Copy)]
pub(super) struct Node<'p> {
    page: &'p Page,
}

impl<'p> Node<'p> {
    pub fn new(page: &'p Page) -> Option<Node<'p>> {
        let node = Node { page };
        let is_sane = page[0] == KIND_LIST_INNER
            && (1..=LEVEL_MAX).contains(&node.level())
            && (1..=CHILDREN_MAX).contains(&node.count());
        is_sane.then_some(node)
    }

    pub fn level(&self) -> u8 {
        self.page[1]
    }

    pub fn count(&self) -> usize {
        (get_u64(self.page, 0) >> 16) as u16 as usize
    }

    pub fn tag(&self) -> u32 {
        (get_u64(self.page, 0) >> 32) as u32
    }

    /// A child, of which there are more.
    #[inline(always)]
    pub fn child(&self, index: usize) -> Child {
        Child::from_word(get_u64(self.page, 8 * (1 + index)))
    }

    pub fn children(&self) -> Vec<Child> {
        (0..self.count()).map(|index| self.child(index)).collect()
    }

    pub fn elements(&self) -> u64 {
        self.elements_below(0..self.count())
    }

    /// Elements below these children. Their bounds are looked at once, so that several are added up in one instruction.
    #[inline(always)]
    fn elements_below(&self, children: Range<usize>) -> u64 {
        let words = &self.page[8 * (1 + children.start)..8 * (1 + children.end)];
        let elements = |word: &[u8]| u32::from_le_bytes([word[4], word[5], word[6], word[7]]);
        words.chunks_exact(8).map(|word| u64::from(elements(word))).sum()
    }

    /// The child with the element at `index`, and the element's index below it; the last child, and what is left of the
    /// index, if there are not so many.
    pub fn find(&self, mut index: u64) -> (usize, u64) {
        let last = self.count() - 1;
        let mut at = 0;
        while at + GROUP <= last {
            let elements = self.elements_below(at..at + GROUP);
            if index < elements {
                break;
            }
            index -= elements;
            at += GROUP;
        }
        while at < last {
            let elements = u64::from(self.child(at).elements);
            if index < elements {
                break;
            }
            index -= elements;
            at += 1;
        }
        (at, index)
    }
}

/// The children of a node of a tree; `None` if the page is none.
pub(crate) fn children_of(page: &Page, tag: u32) -> Option<Vec<u32>> {
    let node = Node::new(page).filter(|node| node.tag() == tag)?;
    Some(node.children().iter().map(|child| child.pid.0).collect())
}

/// Which child of a node of a tree has the element at `index` below it, and the element's index there; the last child, and
/// what is left of the index, if there are not so many. `None` if the page is none.
pub(crate) fn find_child(page: &Page, tag: u32, index: u64) -> Option<(usize, u64)> {
    Node::new(page).filter(|node| node.tag() == tag).map(|node| node.find(index))
}

/// Writes a node: at most [`CHILDREN_MAX`] children.
pub(super) fn write_node(node: &mut ExclusiveGuard<'_>, tag: u32, level: u8, children: &[Child]) {
    debug_assert!((1..=CHILDREN_MAX).contains(&children.len()));
    let page = node.page_mut();
    let head = u64::from(KIND_LIST_INNER)
        | u64::from(level) << 8
        | (children.len() as u64) << 16
        | u64::from(tag) << 32;
    put_u64(page, 0, head);
    for (index, child) in children.iter().enumerate() {
        put_u64(page, 8 * (1 + index), child.to_word());
    }
}

/// Says how many elements are below a child now.
pub(super) fn set_elements(node: &mut ExclusiveGuard<'_>, index: usize, elements: u32) {
    put_u32(node.page_mut(), 8 * (1 + index) + 4, elements);
}

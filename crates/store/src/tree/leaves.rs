//! All leaves of a tree from the left to the right, from copies of its pages, whatever it is ordered by. A walk may be left
//! and taken up again.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::hash::{Inner, Leaf, Links};
use super::list;
use super::ordered;
use super::trees::Tree;
use super::words::Words;
use crate::error::SaveError;
use crate::page::{Page, KIND_INNER, KIND_LEAF, KIND_LIST_INNER, KIND_ORDERED_INNER};

/// Deepest tree that is believed: five levels hold 10^14 records.
const LEVEL_MAX: u8 = 16;

/// Where copies of pages come from.
pub(crate) trait Pages {
    /// Copies a page.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError>;

    /// These will be asked for next, in their order.
    fn expect(&self, pages: &mut dyn Iterator<Item = PageId>);
}

fn damaged(pid: PageId, expected: &str) -> SaveError {
    SaveError::Io(format!("page {}: {expected} was expected", pid.0))
}

/// Children of a node that are still to be visited, those to come first at the end.
struct Way {
    level: u8,
    children: Vec<u32>,
}

/// See the module.
pub(crate) struct LeafWalk {
    tag: u32,
    ways: Vec<Way>,
    /// The next leaf of the same hash, and the way to it.
    next_link: Option<PageId>,
    links: Links,
}

impl LeafWalk {
    pub fn new(tree: Tree) -> LeafWalk {
        let root = Way { level: LEVEL_MAX, children: vec![tree.root.0] };
        LeafWalk { tag: tree.tag, ways: vec![root], next_link: None, links: Links::default() }
    }

    /// Copies the next leaf to `page`; `None` after the last.
    ///
    /// # Errors
    /// A page that cannot be read, or is none of the tree. The walk goes on behind it.
    pub fn next_leaf(&mut self, pages: &dyn Pages, page: &mut Page) -> Result<Option<PageId>, SaveError> {
        if let Some(pid) = self.next_link.take() {
            pages.read(pid, page)?;
            return self.note_chain(pid, page).map(Some);
        }
        while let Some(way) = self.ways.last_mut() {
            let level = way.level;
            let Some(pid) = way.children.pop().map(PageId) else {
                self.ways.pop();
                continue;
            };
            pages.read(pid, page)?;
            if level == 0 {
                self.links = Links::default();
                return self.note_chain(pid, page).map(Some);
            }
            self.enter(pages, pid, page, level, 0)?;
        }
        Ok(None)
    }

    /// Begins a walk through a list at the element with an index: its index in the leaf that is next.
    ///
    /// # Errors
    /// A page that cannot be read, or is none of a list.
    pub fn begin_at(&mut self, pages: &dyn Pages, index: u64) -> Result<u64, SaveError> {
        let (mut page, mut left) = (blank(), index);
        while let Some(way) = self.ways.last_mut().filter(|way| way.level > 0) {
            let (level, Some(pid)) = (way.level, way.children.pop().map(PageId)) else { break };
            pages.read(pid, &mut page)?;
            let found = list::find_child(&page, self.tag, left);
            let (child, below) = found.ok_or_else(|| damaged(pid, "an inner node of a list"))?;
            self.enter(pages, pid, &page, level, child)?;
            left = below;
        }
        Ok(left)
    }

    /// Goes on with the children of a node, but for so many of the first.
    fn enter(
        &mut self,
        pages: &dyn Pages,
        pid: PageId,
        page: &Page,
        level_above: u8,
        passed: usize,
    ) -> Result<(), SaveError> {
        let node = children_of(page, self.tag).filter(|way| way.level < level_above);
        let mut node = node.ok_or_else(|| damaged(pid, "an inner node"))?;
        node.children.truncate(node.children.len().saturating_sub(passed));
        if node.level == 0 {
            pages.expect(&mut node.children.iter().rev().map(|pid| PageId(*pid)));
        }
        self.ways.push(node);
        Ok(())
    }

    fn note_chain(&mut self, pid: PageId, page: &Page) -> Result<PageId, SaveError> {
        if page[0] == KIND_LEAF {
            let leaf = Leaf::new(page).filter(|leaf| leaf.tag() == self.tag);
            let leaf = leaf.ok_or_else(|| damaged(pid, "a leaf"))?;
            // A circle ends where it is found.
            self.next_link = self.links.after(pid, leaf).unwrap_or_default();
        }
        Ok(pid)
    }
}

/// The children of a node, the last first, and their level; `None` if the page is no node of the tree.
fn children_of(page: &Page, tag: u32) -> Option<Way> {
    let level = page.level().checked_sub(1)?;
    let mut children: Vec<u32> = match page[0] {
        KIND_INNER if page.is_inner(tag) => (0..page.child_count()).map(|index| page.child(index)).collect(),
        KIND_ORDERED_INNER => ordered::children_of(page, tag)?,
        KIND_LIST_INNER => list::children_of(page, tag)?,
        _ => return None,
    };
    children.reverse();
    Some(Way { level, children })
}

/// A page to walk with.
pub(crate) fn blank() -> Box<Page> {
    Box::new([0; PAGE_SIZE])
}

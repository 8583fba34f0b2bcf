//! All leaves of a tree from the left to the right, or those of an ordered one from the right to the left, from copies of its
//! pages, whatever it is ordered by. A walk may be left and taken up again.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::forms::{children_of, find_child};
use super::hash::{Leaf, Links};
use super::ordered;
use super::trees::Tree;
use super::words::Words;
use crate::error::SaveError;
use crate::page::{Page, KIND_LEAF};

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

pub(super) fn damaged(pid: PageId, expected: &str) -> SaveError {
    SaveError::Damaged(format!("page {}: {expected} was expected", pid.0).into())
}

/// Children of a node that are still to be visited, those to come first at the end.
struct Way {
    level: u8,
    children: Vec<u32>,
}

/// See the module.
pub(crate) struct LeafWalk {
    tag: u32,
    is_downwards: bool,
    ways: Vec<Way>,
    /// The next leaf of the same hash, and the way to it.
    next_link: Option<PageId>,
    links: Links,
}

impl LeafWalk {
    pub fn new(tree: Tree) -> LeafWalk {
        let root = Way { level: LEVEL_MAX, children: vec![tree.root.0] };
        LeafWalk {
            tag: tree.tag,
            is_downwards: false,
            ways: vec![root],
            next_link: None,
            links: Links::default(),
        }
    }

    /// A walk from the right to the left.
    pub fn downwards(tree: Tree) -> LeafWalk {
        LeafWalk { is_downwards: true, ..LeafWalk::new(tree) }
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
            self.enter(pid, page, level, None)?;
            self.expect(pages);
        }
        Ok(None)
    }

    /// Begins a walk through a list at the element with an index, or through a tree that counts at the record with so many
    /// before it: the index in the leaf that is next.
    ///
    /// # Errors
    /// A page that cannot be read, or is none of such a tree.
    pub fn begin_at(&mut self, pages: &dyn Pages, index: u64) -> Result<u64, SaveError> {
        let (tag, mut left) = (self.tag, index);
        self.descend(pages, |page| {
            let (child, below) = find_child(page, tag, left)?;
            left = below;
            Some(child)
        })?;
        Ok(left)
    }

    /// Begins a walk through a tree that counts at the leaf that a key belongs to: the records in the leaves before.
    ///
    /// # Errors
    /// A page that cannot be read, or is none of such a tree.
    pub fn begin_at_key(&mut self, pages: &dyn Pages, key: &[u8]) -> Result<u64, SaveError> {
        let (tag, mut before) = (self.tag, 0);
        self.descend(pages, |page| {
            let (child, records) = ordered::find_key(page, tag, key)?;
            before += records;
            Some(child)
        })?;
        Ok(before)
    }

    /// Goes down to the leaf that `choose` leads to, by the child that it names of each node.
    fn descend(
        &mut self,
        pages: &dyn Pages,
        mut choose: impl FnMut(&Page) -> Option<usize>,
    ) -> Result<(), SaveError> {
        let mut page = blank();
        while let Some(way) = self.ways.last_mut().filter(|way| way.level > 0) {
            let (level, Some(pid)) = (way.level, way.children.pop().map(PageId)) else { break };
            pages.read(pid, &mut page)?;
            let child = choose(&page).ok_or_else(|| damaged(pid, "an inner node that counts"))?;
            self.enter(pid, &page, level, Some(child))?;
        }
        Ok(())
    }

    /// Goes on with the children of a node, from one of them on.
    fn enter(
        &mut self,
        pid: PageId,
        page: &Page,
        level_above: u8,
        from: Option<usize>,
    ) -> Result<(), SaveError> {
        let level = page.level().checked_sub(1).filter(|level| *level < level_above);
        let found = level.and_then(|level| Some(Way { level, children: children_of(page, self.tag)? }));
        let mut node = found.ok_or_else(|| damaged(pid, "an inner node"))?;
        let count = node.children.len();
        if self.is_downwards {
            node.children.truncate(from.map_or(count, |child| child + 1));
        } else {
            node.children.drain(..from.unwrap_or(0).min(count));
            node.children.reverse();
        }
        self.ways.push(node);
        Ok(())
    }

    /// Says that the leaves of the node that the walk has come to will be asked for.
    pub fn expect(&self, pages: &dyn Pages) {
        if let Some(node) = self.ways.last().filter(|way| way.level == 0) {
            pages.expect(&mut node.children.iter().rev().map(|pid| PageId(*pid)));
        }
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

/// A page to walk with.
pub(crate) fn blank() -> Box<Page> {
    Box::new([0; PAGE_SIZE])
}

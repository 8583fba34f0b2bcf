//! Building a list from elements that come in order: blocks are filled one after the other, and nodes above them.
//!
//! What is unfinished is the right edge: a block and a node of each level, in memory, whose pages are there already. So it can be
//! written at any time without a new page ([`Bulk::seal`]): then the pages are a whole list, which can be freed as one.

use stillframe_pagepool::{ExclusiveGuard, PageId, Restart};

use super::block::{Block, BlockMut, Element};
use super::node::{elements_of, write_node, Child, Node, CHILDREN_MAX};
use super::path::Lists;
use crate::effect::End;
use crate::page::{Page, PAGE_SIZE};
use crate::stop::Stop;
use crate::tree::order::{not_a_leaf, not_inner};
use crate::tree::trees::Tree;

/// An unfinished node.
struct Edge {
    pid: PageId,
    children: Vec<Child>,
}

/// A list that is being built. Nobody else knows its pages.
pub(crate) struct Bulk<'t> {
    lists: &'t Lists,
    tree: Tree,
    /// The unfinished block: the last child of the first node of the edge.
    block: Box<Page>,
    /// Unfinished nodes, the one above the blocks first, the root last.
    edge: Vec<Edge>,
}

impl<'t> Bulk<'t> {
    /// Begins with an empty list ([`Lists::create`]).
    ///
    /// # Errors
    /// It is missing or damaged.
    pub fn begin(lists: &'t Lists, tree: Tree) -> Result<Bulk<'t>, Stop> {
        let root = lists.pool.shared(tree.root)?;
        let node = Node::new(root.page()).ok_or_else(|| not_inner(tree.root))?;
        let mut block = Box::new([0; PAGE_SIZE]);
        BlockMut::fill(&mut block, tree.tag, &[], End::Right);
        Ok(Bulk { lists, tree, block, edge: vec![Edge { pid: tree.root, children: vec![node.child(0)] }] })
    }

    /// Adds an element behind all others.
    ///
    /// # Errors
    /// As of [`Lists::push`]. The element has not been added; what has been before is still there.
    pub fn add(&mut self, element: Element<'_>) -> Result<(), Stop> {
        if !element.fits_a_block() {
            return Err(Stop::TooLarge);
        }
        if self.push(element)? {
            return Ok(());
        }
        let block_pid = self.block_pid()?;
        self.settle_counts()?;
        let next = self.allocate()?;
        if let Err(stop) = self.add_child(0, Child { pid: next, elements: 0 }) {
            self.free(next);
            return Err(stop);
        }
        *self.latched(block_pid)?.page_mut() = *self.block;
        BlockMut::fill(&mut self.block, self.tree.tag, &[], End::Right);
        self.push(element).map(|_| ())
    }

    /// Writes the right edge, so that the pages are a whole list with all elements so far. How many they are.
    ///
    /// # Errors
    /// A page is damaged.
    pub fn seal(&mut self) -> Result<u64, Stop> {
        self.settle_counts()?;
        *self.latched(self.block_pid()?)?.page_mut() = *self.block;
        for (level, edge) in (1..).zip(&self.edge) {
            write_node(&mut self.latched(edge.pid)?, self.tree.tag, level, &edge.children);
        }
        Ok(self.edge.last().map_or(0, |root| elements_of(&root.children)))
    }

    fn push(&mut self, element: Element<'_>) -> Result<bool, Stop> {
        let block = BlockMut::new(&mut self.block).ok_or_else(|| not_a_leaf(self.tree.root));
        Ok(block?.push(End::Right, element))
    }

    fn block_pid(&self) -> Result<PageId, Stop> {
        let last = self.edge.first().and_then(|edge| edge.children.last());
        Ok(last.ok_or_else(|| not_inner(self.tree.root))?.pid)
    }

    /// Counts the elements of the edge in the nodes above.
    fn settle_counts(&mut self) -> Result<(), Stop> {
        let block = Block::new(&self.block).ok_or_else(|| not_a_leaf(self.tree.root))?;
        let mut elements = block.count() as u64;
        for edge in &mut self.edge {
            if let Some(last) = edge.children.last_mut() {
                last.elements = u32::try_from(elements).map_err(|_| Stop::TooLarge)?;
            }
            elements = elements_of(&edge.children);
        }
        match elements > u64::from(u32::MAX) {
            true => Err(Stop::TooLarge),
            false => Ok(()),
        }
    }

    fn allocate(&self) -> Result<PageId, Stop> {
        self.lists.pages.admit(1)?;
        Ok(self.lists.pool.allocate()?.id())
    }

    fn free(&self, pid: PageId) {
        if let Ok(page) = self.lists.pool.exclusive(pid) {
            self.lists.pool.free(page, 1);
        }
    }

    /// A page of the edge. One that is not in memory is waited for: nobody else can bring the list into order.
    fn latched(&self, pid: PageId) -> Result<ExclusiveGuard<'t>, Stop> {
        loop {
            match self.lists.pool.exclusive(pid) {
                Err(Restart::Fault(pid)) => self.lists.pool.residency().load_at_once(&[pid]),
                guard => return Ok(guard?),
            }
        }
    }

    /// Adds a child to the unfinished node of a level, which is finished if it is full.
    fn add_child(&mut self, at: usize, child: Child) -> Result<(), Stop> {
        if self.edge[at].children.len() < CHILDREN_MAX {
            self.edge[at].children.push(child);
            return Ok(());
        }
        if at + 1 == self.edge.len() {
            self.grow(at)?;
        }
        let next = self.allocate()?;
        if let Err(stop) = self.add_child(at + 1, Child { pid: next, elements: 0 }) {
            self.free(next);
            return Err(stop);
        }
        let full = std::mem::replace(&mut self.edge[at], Edge { pid: next, children: vec![child] });
        let level = at as u8 + 1;
        write_node(&mut self.latched(full.pid)?, self.tree.tag, level, &full.children);
        Ok(())
    }

    /// The root gives its content to a node of its own; it keeps its page.
    fn grow(&mut self, at: usize) -> Result<(), Stop> {
        let pid = self.allocate()?;
        self.edge[at].pid = pid;
        let elements = elements_of(&self.edge[at].children) as u32;
        self.edge.push(Edge { pid: self.tree.root, children: vec![Child { pid, elements }] });
        Ok(())
    }
}

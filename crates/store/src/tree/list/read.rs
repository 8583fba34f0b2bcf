//! Reading a list: one element, or block by block from a position on, both ways.

use stillframe_pagepool::{PageId, SharedGuard};

use super::block::Element;
use super::node::{Child, Node};
use super::path::{is_expected, Lists, Spot};
use crate::page::Page;
use crate::stop::{Follow, Stop};
use crate::tree::order::{bad_record, not_inner};
use crate::tree::trees::Tree;

/// Blocks with the same parent, in a walk's order.
pub(super) struct Siblings {
    pub blocks: Vec<Child>,
    /// Index of the first element of the first of them.
    pub first: u64,
}

impl Lists {
    /// Gives `f` the element with an index, if there is one, under its block's latch.
    ///
    /// # Errors
    /// A page is missing or damaged; that of `f`.
    pub fn get<R>(
        &self,
        tree: Tree,
        index: u64,
        f: impl FnOnce(Option<Element<'_>>) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let found = self.find(tree, Spot::At(index))?;
        let block = found.block(tree)?;
        if found.at >= block.count() {
            return f(None);
        }
        f(Some(block.element(found.at).ok_or_else(|| bad_record(found.block.id()))?))
    }

    /// Copies the block of the element with an index; the element's index in it.
    ///
    /// # Errors
    /// A page is missing or damaged.
    pub fn copy_block(&self, tree: Tree, index: u64, into: &mut Page) -> Result<usize, Stop> {
        let found = self.find(tree, Spot::At(index))?;
        found.block(tree)?;
        *into = *found.block.page();
        Ok(found.at)
    }

    /// Gives the elements of one block from index `from` on, in order, until `f` says no. The index behind the last one that
    /// was given, to go on with: `from` itself if there is none.
    ///
    /// # Errors
    /// A page is missing or damaged; that of `f`.
    pub fn walk_up(
        &self,
        tree: Tree,
        from: u64,
        mut f: impl FnMut(Element<'_>) -> Result<bool, Stop>,
    ) -> Result<u64, Stop> {
        let found = self.find(tree, Spot::At(from))?;
        let block = found.block(tree)?;
        let mut next = from;
        for element in block.elements(found.at) {
            next += 1;
            if !f(element.ok_or_else(|| bad_record(found.block.id()))?)? {
                return Ok(next);
            }
        }
        let is_whole = found.at == 0;
        self.let_go(found.block, is_whole);
        Ok(next)
    }

    /// The same downwards: the elements of one block that are below index `below`, from the last on. The index of the last
    /// that was given; `below` itself if there is none.
    ///
    /// # Errors
    /// A page is missing or damaged; that of `f`.
    pub fn walk_down(
        &self,
        tree: Tree,
        below: u64,
        mut f: impl FnMut(Element<'_>) -> Result<bool, Stop>,
    ) -> Result<u64, Stop> {
        let Some(last) = below.checked_sub(1) else { return Ok(0) };
        let found = self.find(tree, Spot::At(last))?;
        let block = found.block(tree)?;
        if found.at >= block.count() {
            return Ok(below);
        }
        let elements = block.elements_down(found.at + 1).ok_or_else(|| bad_record(found.block.id()))?;
        let mut next = below;
        for element in elements {
            // A damaged count may say that there are more.
            next = next.saturating_sub(1);
            if !f(element)? {
                return Ok(next);
            }
        }
        let is_whole = found.at + 1 == block.count();
        self.let_go(found.block, is_whole);
        Ok(next)
    }

    /// A walk leaves a block behind. One that it has been through whole goes before what others use.
    pub(super) fn let_go(&self, block: SharedGuard<'_>, is_whole: bool) {
        let pid = block.id();
        drop(block);
        if is_whole {
            self.pool.let_go(pid);
        }
    }

    /// Blocks that a walk comes to next, as far as they have the same parent: that of the element with index `from` and those
    /// after it, or before it, up to `count` of them, in the walk's order.
    ///
    /// # Errors
    /// A node is missing or damaged.
    pub fn blocks_ahead(
        &self,
        tree: Tree,
        from: u64,
        is_upwards: bool,
        count: usize,
    ) -> Result<Vec<PageId>, Stop> {
        let Siblings { mut blocks, .. } = self.siblings(tree, from, is_upwards)?;
        blocks.truncate(count);
        Ok(blocks.into_iter().map(|block| block.pid).collect())
    }

    /// The block of the element with an index, and those after it, or before it, that have the same parent.
    ///
    /// # Errors
    /// A node is missing or damaged.
    pub(super) fn siblings(&self, tree: Tree, from: u64, is_upwards: bool) -> Result<Siblings, Stop> {
        let mut guard = self.pool.follow_shared(tree.root)?;
        let (mut level_above, mut left) = (None, from);
        loop {
            let node = Node::new(guard.page()).filter(|node| is_expected(*node, tree.tag, level_above));
            let node = node.ok_or_else(|| not_inner(guard.id()))?;
            let (index, below) = node.find(left);
            if node.level() == 1 {
                let child = |index| node.child(index);
                let blocks = match is_upwards {
                    true => (index..node.count()).map(child).collect(),
                    false => (0..=index).rev().map(child).collect(),
                };
                return Ok(Siblings { blocks, first: from - below });
            }
            (level_above, left) = (Some(node.level()), below);
            let child = node.child(index).pid;
            if child == guard.id() {
                return Err(not_inner(child));
            }
            guard = self.pool.follow_shared(child)?;
        }
    }
}

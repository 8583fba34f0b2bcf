//! From a position to its block, latched on the whole way.
//!
//! Whoever changes a list has its key's lock, exclusive, and whoever reads it has it shared. So latches are for those alone
//! who take pages one at a time and know no keys: evictor, collector, sweep. A path to be changed is latched whole before the
//! first change, so that nothing can be missing in the middle of one.

use std::sync::Arc;

use stillframe_pagepool::{is_looking, ExclusiveGuard, PageId, Pool, SharedGuard};

use super::block::{Block, BlockMut};
use super::node::{set_elements, write_node, Child, Node};
use crate::effect::End;
use crate::pages::Pages;
use crate::stop::{Follow, Stop};
use crate::tree::order::{not_a_leaf, not_inner};
use crate::tree::trees::Tree;

/// Lists that are trees of pages.
pub(crate) struct Lists {
    pub pages: Arc<Pages>,
    pub pool: Arc<Pool>,
}

/// Where an element is, or is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spot {
    Front,
    Back,
    /// The element with this index, or before it.
    At(u64),
}

impl From<End> for Spot {
    fn from(end: End) -> Spot {
        match end {
            End::Left => Spot::Front,
            End::Right => Spot::Back,
        }
    }
}

/// A node of a path, and the child that the path goes on with.
pub(super) struct Step<'p> {
    pub node: ExclusiveGuard<'p>,
    pub index: usize,
}

impl Step<'_> {
    /// # Errors
    /// [`Stop::Damaged`]: it has been one when it was latched.
    pub fn node(&self) -> Result<Node<'_>, Stop> {
        Node::new(self.node.page()).ok_or_else(|| not_inner(self.node.id()))
    }

    pub fn child(&self) -> Result<Child, Stop> {
        Ok(self.node()?.child(self.index))
    }
}

/// The way from the root to a block, latched exclusively.
pub(super) struct Path<'p> {
    /// From the root on.
    pub steps: Vec<Step<'p>>,
    pub block: ExclusiveGuard<'p>,
    /// Index of the element in the block; the count of its elements for what comes behind the last.
    pub at: usize,
    /// The end of the list that this is, if an element were put here.
    pub end: Option<End>,
}

impl Path<'_> {
    pub fn block(&self) -> Result<Block<'_>, Stop> {
        as_block(self.block.id(), &self.block)
    }

    pub fn block_mut(&mut self) -> Result<BlockMut<'_>, Stop> {
        let pid = self.block.id();
        BlockMut::new(self.block.page_mut()).ok_or_else(|| not_a_leaf(pid))
    }
}

fn as_block<'g>(pid: PageId, guard: &'g ExclusiveGuard<'_>) -> Result<Block<'g>, Stop> {
    Block::new(guard.page()).ok_or_else(|| not_a_leaf(pid))
}

/// Adds to the elements below the children that steps go on with. That none of them leaves its bounds has been looked at.
pub(super) fn count(steps: &mut [Step<'_>], delta: i32) -> Result<(), Stop> {
    for step in steps {
        let elements = step.child()?.elements.saturating_add_signed(delta);
        set_elements(&mut step.node, step.index, elements);
    }
    Ok(())
}

/// The block of an element, latched shared.
pub(super) struct Found<'p> {
    pub block: SharedGuard<'p>,
    /// Index of the element in the block; not below the count of its elements if the list has not so many.
    pub at: usize,
}

impl Found<'_> {
    pub fn block(&self, tree: Tree) -> Result<Block<'_>, Stop> {
        let block = Block::new(self.block.page()).filter(|block| block.tag() == tree.tag);
        block.ok_or_else(|| not_a_leaf(self.block.id()))
    }
}

/// Whether a latched page is the node that is expected. `level_above` is the level of its parent, if it has one.
pub(super) fn is_expected(node: Node<'_>, tag: u32, level_above: Option<u8>) -> bool {
    node.tag() == tag && level_above.is_none_or(|above| node.level() + 1 == above)
}

impl Lists {
    pub fn new(pages: &Arc<Pages>) -> Lists {
        Lists { pages: pages.clone(), pool: pages.pool.clone() }
    }

    /// An empty list; its root, which keeps its page as long as the list lives.
    ///
    /// # Errors
    /// There are no two pages for it.
    pub fn create(&self, tag: u32) -> Result<PageId, Stop> {
        self.pages.admit(2)?;
        let mut pages = self.reserve(2)?;
        let (Some(mut root), Some(block)) = (pages.pop(), pages.pop()) else { return Err(Stop::Contended) };
        self.empty(&mut root, block, tag);
        Ok(root.id())
    }

    /// Makes a root and a block an empty list.
    pub(super) fn empty(&self, root: &mut ExclusiveGuard<'_>, mut block: ExclusiveGuard<'_>, tag: u32) {
        BlockMut::fill(block.page_mut(), tag, &[], End::Right);
        write_node(root, tag, 1, &[Child { pid: block.id(), elements: 0 }]);
    }

    /// New pages, all or none.
    pub(super) fn reserve(&self, page_count: usize) -> Result<Vec<ExclusiveGuard<'_>>, Stop> {
        let mut pages = Vec::with_capacity(page_count);
        for _ in 0..page_count {
            match self.pool.allocate() {
                Ok(page) => pages.push(page),
                Err(error) => {
                    self.give_back(pages);
                    return Err(error.into());
                }
            }
        }
        Ok(pages)
    }

    pub(super) fn give_back(&self, pages: Vec<ExclusiveGuard<'_>>) {
        pages.into_iter().for_each(|page| self.pool.free(page, 1));
    }

    /// Latches the way to a spot for a change. For a thread that holds no latch.
    pub(super) fn path(&self, tree: Tree, spot: Spot) -> Result<Path<'_>, Stop> {
        if is_looking() {
            return self.find(tree, spot).and(Err(Stop::Looking));
        }
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(4);
        let (mut pid, mut level_above) = (tree.root, None);
        let mut left = if let Spot::At(index) = spot { index } else { 0 };
        let (mut is_first, mut is_last) = (true, true);
        loop {
            if steps.iter().any(|step| step.node.id() == pid) {
                return Err(not_inner(pid));
            }
            let guard = self.pool.follow_exclusive(pid)?;
            let node = Node::new(guard.page()).filter(|node| is_expected(*node, tree.tag, level_above));
            let node = node.ok_or_else(|| not_inner(pid))?;
            let (index, below) = match spot {
                Spot::Front => (0, 0),
                Spot::Back => (node.count() - 1, 0),
                Spot::At(_) => node.find(left),
            };
            (is_first, is_last) = (is_first && index == 0, is_last && index + 1 == node.count());
            (pid, level_above, left) = (node.child(index).pid, Some(node.level()), below);
            let is_above_blocks = node.level() == 1;
            steps.push(Step { node: guard, index });
            if is_above_blocks {
                break;
            }
        }
        if steps.iter().any(|step| step.node.id() == pid) {
            return Err(not_a_leaf(pid));
        }
        let guard = self.pool.follow_exclusive(pid)?;
        let block = as_block(pid, &guard)?;
        let expected = steps.last().map(Step::child).transpose()?.map(|child| child.elements as usize);
        if block.tag() != tree.tag || Some(block.count()) != expected {
            return Err(not_a_leaf(pid));
        }
        let at = match spot {
            Spot::Front => 0,
            Spot::Back => block.count(),
            Spot::At(_) => usize::try_from(left).unwrap_or(usize::MAX),
        };
        let end = match at {
            at if is_last && at == block.count() => Some(End::Right),
            0 if is_first => Some(End::Left),
            _ => None,
        };
        Ok(Path { steps, block: guard, at, end })
    }

    /// The block of an element, latched shared.
    pub(super) fn find(&self, tree: Tree, spot: Spot) -> Result<Found<'_>, Stop> {
        let mut guard = self.pool.follow_shared(tree.root)?;
        let mut level_above = None;
        let mut left = if let Spot::At(index) = spot { index } else { 0 };
        loop {
            let node = Node::new(guard.page()).filter(|node| is_expected(*node, tree.tag, level_above));
            let node = node.ok_or_else(|| not_inner(guard.id()))?;
            let (index, below) = match spot {
                Spot::Front => (0, 0),
                Spot::Back => (node.count() - 1, 0),
                Spot::At(_) => node.find(left),
            };
            let child = node.child(index);
            if child.pid == guard.id() {
                return Err(not_inner(child.pid));
            }
            let is_above_blocks = node.level() == 1;
            (level_above, left) = (Some(node.level()), below);
            guard = self.pool.follow_shared(child.pid)?;
            if is_above_blocks {
                let at = match spot {
                    Spot::Back => (child.elements as usize).saturating_sub(1),
                    _ => usize::try_from(left).unwrap_or(usize::MAX),
                };
                return Ok(Found { block: guard, at });
            }
        }
    }
}

//! Taking elements out of a list one by one, and joining what has become sparse.

use stillframe_pagepool::ExclusiveGuard;

use super::block::{Block, BlockMut, Element, CAPACITY_BYTES};
use super::node::{elements_of, write_node, Child, Node, CHILDREN_JOINED_MAX, CHILDREN_SPARSE};
use super::path::{count, Lists, Path, Spot, Step};
use crate::effect::End;
use crate::stop::Stop;
use crate::tree::order::{bad_record, not_a_leaf, not_inner};
use crate::tree::trees::Tree;

/// Blocks with less are joined with a neighbour, and may have so much then: some room is left, or the next insertion would
/// divide them again.
const SPARSE_BYTES: usize = CAPACITY_BYTES / 2;
const JOINED_MAX_BYTES: usize = CAPACITY_BYTES - CAPACITY_BYTES / 16;
/// After so many removals from a sparse block its neighbours are looked at, and at each when it has only so many left.
const JOIN_PERIOD: usize = 4;

/// What may be joined with a neighbour after a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sparse {
    Nothing,
    Block,
    /// The node of a block that is gone.
    Node,
}

impl Lists {
    /// Takes out the first or the last element, which `old` is given as soon as it is sure that it goes. False if there is
    /// none.
    ///
    /// # Errors
    /// A page is missing or damaged; that of `old`. Nothing has changed.
    pub fn pop(
        &self,
        tree: Tree,
        end: End,
        old: impl FnOnce(Element<'_>) -> Result<(), Stop>,
    ) -> Result<bool, Stop> {
        let mut path = self.path(tree, end.into())?;
        if end == End::Right {
            let Some(last) = path.at.checked_sub(1) else { return Ok(false) };
            path.at = last;
        }
        let taken = self.take_out(tree, path, old)?;
        // A block at an end is about to be emptied, or to be filled.
        if taken == Some(Sparse::Node) {
            let _ = self.join(tree, end.into());
        }
        Ok(taken.is_some())
    }

    /// The same of the element with an index.
    ///
    /// # Errors
    /// As of [`Lists::pop`].
    pub fn remove(
        &self,
        tree: Tree,
        index: u64,
        old: impl FnOnce(Element<'_>) -> Result<(), Stop>,
    ) -> Result<bool, Stop> {
        let path = self.path(tree, Spot::At(index))?;
        let is_first_of_block = path.at == 0;
        let Some(sparse) = self.take_out(tree, path, old)? else { return Ok(false) };
        if sparse != Sparse::Nothing {
            // An element that is left in the block. What gets in the way ends it.
            let _ = self.join(tree, Spot::At(if is_first_of_block { index } else { index - 1 }));
        }
        Ok(true)
    }

    /// Takes out the element that a path leads to. If there was one, what may be joined now.
    fn take_out(
        &self,
        tree: Tree,
        mut path: Path<'_>,
        old: impl FnOnce(Element<'_>) -> Result<(), Stop>,
    ) -> Result<Option<Sparse>, Stop> {
        let (at, block) = (path.at, path.block()?);
        if at >= block.count() {
            return Ok(None);
        }
        let pid = path.block.id();
        let element = block.element(at).ok_or_else(|| bad_record(pid))?;
        block.span(&(at..at + 1)).ok_or_else(|| bad_record(pid))?;
        for step in &path.steps {
            step.child()?.elements.checked_sub(1).ok_or_else(|| not_inner(step.node.id()))?;
        }
        old(element)?;
        let is_done = path.block_mut()?.remove(at..at + 1);
        is_done.then_some(()).ok_or_else(|| bad_record(pid))?;
        count(&mut path.steps, -1)?;
        let (left_count, left_bytes) = (path.block()?.count(), path.block()?.live_bytes());
        if left_count == 0 {
            return self.drop_block(tree, path).map(Some);
        }
        let is_due = left_count % JOIN_PERIOD == 0 || left_count < JOIN_PERIOD;
        Ok(Some(if is_due && left_bytes < SPARSE_BYTES { Sparse::Block } else { Sparse::Nothing }))
    }

    /// Frees a block without elements, and the nodes that this empties; the last one of the list stays.
    fn drop_block(&self, tree: Tree, path: Path<'_>) -> Result<Sparse, Stop> {
        let Path { mut steps, block, .. } = path;
        let mut emptied = Vec::new();
        while let Some(mut step) = steps.pop() {
            let node = step.node()?;
            let (level, mut children) = (node.level(), node.children());
            if children.len() > 1 {
                children.remove(step.index);
                write_node(&mut step.node, tree.tag, level, &children);
                self.give_back(emptied);
                self.pool.free(block, 1);
                let is_root = steps.is_empty();
                drop((step, steps));
                if is_root && children.len() == 1 && level > 1 {
                    self.lower_root(tree);
                }
                let is_sparse = !is_root && children.len() < CHILDREN_SPARSE;
                return Ok(if is_sparse { Sparse::Node } else { Sparse::Nothing });
            }
            if steps.is_empty() {
                self.empty(&mut step.node, block, tree.tag);
                self.give_back(emptied);
                return Ok(Sparse::Nothing);
            }
            emptied.push(step.node);
        }
        Ok(Sparse::Nothing)
    }

    /// A root with one child takes over its content. Best effort, for a thread that holds no latch.
    pub(super) fn lower_root(&self, tree: Tree) {
        let Ok(mut root) = self.pool.exclusive(tree.root) else { return };
        loop {
            let Some(node) = Node::new(root.page()) else { return };
            if node.level() == 1 || node.count() > 1 {
                return;
            }
            let Ok(child) = self.pool.try_exclusive(node.child(0).pid) else { return };
            let below = Node::new(child.page());
            let is_below =
                below.is_some_and(|below| below.tag() == tree.tag && below.level() + 1 == node.level());
            if !is_below {
                return;
            }
            *root.page_mut() = *child.page();
            self.pool.free(child, 1);
        }
    }

    /// Joins the block at a spot with a neighbour, if it is sparse and that makes one that is not too full; the nodes above it
    /// likewise.
    ///
    /// # Errors
    /// A page is missing or damaged, or somebody is at one: so much for this time.
    pub(super) fn join(&self, tree: Tree, spot: Spot) -> Result<(), Stop> {
        let Path { mut steps, block, .. } = self.path(tree, spot)?;
        let Some(mut step) = steps.pop() else { return Ok(()) };
        match as_block(&block)?.live_bytes() {
            live_bytes if live_bytes < SPARSE_BYTES => self.join_blocks(tree, &mut step, block)?,
            _ => drop(block),
        }
        while let Some(mut above) = steps.pop() {
            if step.node()?.count() < CHILDREN_SPARSE {
                self.join_nodes(tree, &mut above, step)?;
            }
            step = above;
        }
        let root = step.node()?;
        let is_alone = root.count() == 1 && root.level() > 1;
        drop(step);
        if is_alone {
            self.lower_root(tree);
        }
        Ok(())
    }

    /// A neighbour of the child that a step goes on with, if there is one and it can be had at once.
    fn neighbour(&self, step: &Step<'_>, is_right: bool) -> Option<ExclusiveGuard<'_>> {
        let node = step.node().ok()?;
        let index = if is_right { step.index + 1 } else { step.index.checked_sub(1)? };
        let child = (index < node.count()).then(|| node.child(index))?;
        self.pool.try_exclusive(child.pid).ok()
    }

    /// Joins a sparse block with a neighbour, if both together are not too full.
    fn join_blocks(&self, tree: Tree, step: &mut Step<'_>, block: ExclusiveGuard<'_>) -> Result<(), Stop> {
        let own_bytes = as_block(&block)?.live_bytes();
        for is_right in [true, false] {
            let Some(other) = self.neighbour(step, is_right) else { continue };
            let found = Block::new(other.page()).filter(|found| found.tag() == tree.tag);
            let found = found.ok_or_else(|| not_a_leaf(other.id()))?;
            if found.live_bytes() + own_bytes > JOINED_MAX_BYTES {
                continue;
            }
            let (mut left, right) = if is_right { (block, other) } else { (other, block) };
            let (left_copy, right_copy) = (*left.page(), *right.page());
            let (Some(first), Some(second)) = (Block::new(&left_copy), Block::new(&right_copy)) else {
                return Err(not_a_leaf(left.id()));
            };
            let parts = [first.run(), second.run()];
            BlockMut::fill(left.page_mut(), tree.tag, &parts, End::Right);
            let joined = Child { pid: left.id(), elements: (parts[0].count + parts[1].count) as u32 };
            drop(left);
            self.replace_pair(step, step.index - usize::from(!is_right), joined)?;
            self.pool.free(right, 1);
            return Ok(());
        }
        Ok(())
    }

    /// Joins a sparse node with a neighbour, if both together have few enough children.
    fn join_nodes(&self, tree: Tree, above: &mut Step<'_>, step: Step<'_>) -> Result<(), Stop> {
        let own_count = step.node()?.count();
        for is_right in [true, false] {
            let Some(other) = self.neighbour(above, is_right) else { continue };
            let level = step.node()?.level();
            let found = Node::new(other.page());
            let found = found.filter(|found| found.tag() == tree.tag && found.level() == level);
            let found = found.ok_or_else(|| not_inner(other.id()))?;
            if found.count() + own_count > CHILDREN_JOINED_MAX {
                continue;
            }
            let (mut left, right) = if is_right { (step.node, other) } else { (other, step.node) };
            let both = [&left, &right].map(|guard| Node::new(guard.page()).map(|node| node.children()));
            let [Some(mut children), Some(more)] = both else { return Err(not_inner(left.id())) };
            children.extend(more);
            write_node(&mut left, tree.tag, level, &children);
            let joined = Child { pid: left.id(), elements: elements_of(&children) as u32 };
            drop(left);
            self.replace_pair(above, above.index - usize::from(!is_right), joined)?;
            self.pool.free(right, 1);
            return Ok(());
        }
        Ok(())
    }

    /// The children at `first` and after it have become one.
    fn replace_pair(&self, step: &mut Step<'_>, first: usize, joined: Child) -> Result<(), Stop> {
        let node = step.node()?;
        let (tag, level, mut children) = (node.tag(), node.level(), node.children());
        children.splice(first..first + 2, [joined]);
        write_node(&mut step.node, tag, level, &children);
        Ok(())
    }
}

fn as_block<'g>(guard: &'g ExclusiveGuard<'_>) -> Result<Block<'g>, Stop> {
    Block::new(guard.page()).ok_or_else(|| not_a_leaf(guard.id()))
}

//! Cutting a range of elements out of a list, however many they are, in O(log n) steps.
//!
//! ```text
//!            node of the way                    the same, and a new one with the children that are whole in the range
//!   ┌───┬───┬───┬───┬───┬───┐                  ┌───┬───┬───┐        ┌───┬───┬───┐
//!   │ a │ b │ c │ d │ e │ f │       ──▶        │ a │ b │ f │   and  │ c │ d │ e │  for the garbage
//!   └───┴─┬─┴───┴───┴───┴─┬─┘                  └───┴───┴───┘        └───┴───┴───┘
//!      begins in b     ends in f: below them likewise
//! ```
//! Nodes and blocks on the two ways to the ends of the range are changed; everything between goes as it is, in trees whose roots
//! are the new nodes.

use std::ops::Range;

use stillframe_pagepool::{is_looking, ExclusiveGuard, PageId};

use super::block::{Block, BlockMut};
use super::node::{write_node, Child, Node};
use super::path::{is_expected, Lists, Spot};
use crate::blobs::Blob;
use crate::stop::{Follow, Stop};
use crate::tree::order::{bad_record, not_a_leaf, not_inner};
use crate::tree::trees::Tree;

/// What has been cut off, for the caller to discard.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CutOff {
    /// Roots of trees that nothing refers to any more.
    pub trees: Vec<PageId>,
    /// What elements of the blocks at the ends of the range referred to.
    pub blobs: Vec<Blob>,
}

/// A node at an end of the range, or above one.
struct NodeCut<'p> {
    node: ExclusiveGuard<'p>,
    /// Children all of whose elements go.
    whole: Range<usize>,
    /// Children, at most two, of whose elements so many go.
    parts: Vec<(usize, u32)>,
}

impl NodeCut<'_> {
    fn leaves_nothing(&self) -> bool {
        Node::new(self.node.page()).is_some_and(|node| self.whole == (0..node.count()))
    }
}

/// A block at an end of the range.
struct BlockCut<'p> {
    block: ExclusiveGuard<'p>,
    range: Range<usize>,
}

/// Everything that is to be changed, latched.
#[derive(Default)]
struct Plan<'p> {
    nodes: Vec<NodeCut<'p>>,
    blocks: Vec<BlockCut<'p>>,
    blobs: Vec<Blob>,
}

impl Plan<'_> {
    fn has(&self, pid: PageId) -> bool {
        let nodes = self.nodes.iter().map(|cut| cut.node.id());
        nodes.chain(self.blocks.iter().map(|cut| cut.block.id())).any(|held| held == pid)
    }

    /// Nodes for what is cut off.
    fn page_count(&self) -> usize {
        self.nodes.iter().filter(|cut| !cut.whole.is_empty()).count()
    }
}

/// How a range of the elements below a node lies in its children.
fn divide(node: Node<'_>, range: Range<u64>) -> (Range<usize>, Vec<(usize, Range<u64>)>) {
    let (mut whole, mut parts) = (0..0, Vec::new());
    let mut start = 0;
    for index in 0..node.count() {
        let end = start + u64::from(node.child(index).elements);
        if start >= range.end {
            break;
        }
        if end > range.start && end > start {
            let part = range.start.max(start) - start..range.end.min(end) - start;
            if part.end - part.start < end - start {
                parts.push((index, part));
            } else if whole.is_empty() {
                whole = index..index + 1;
            } else {
                whole.end = index + 1;
            }
        }
        start = end;
    }
    (whole, parts)
}

impl Lists {
    /// Removes the elements of a range, which the list has. What it needs for that it takes whatever the bound of memory is:
    /// more becomes free.
    ///
    /// # Errors
    /// A page is missing or damaged, or there is none. Nothing has changed.
    pub fn remove_range(&self, tree: Tree, range: Range<u64>) -> Result<CutOff, Stop> {
        if range.is_empty() {
            return Ok(CutOff::default());
        }
        if is_looking() {
            for index in [range.start, range.end - 1] {
                self.find(tree, Spot::At(index))?;
            }
            return Err(Stop::Looking);
        }
        let mut plan = Plan::default();
        self.plan_node(tree, tree.root, None, range.clone(), &mut plan)?;
        let leaves_nothing = plan.nodes.first().is_some_and(NodeCut::leaves_nothing);
        let mut spare = self.reserve(plan.page_count() + usize::from(leaves_nothing))?;
        let first_block = if leaves_nothing { spare.pop() } else { None };
        let mut cut_off = CutOff { trees: Vec::new(), blobs: plan.blobs };
        for BlockCut { mut block, range } in plan.blocks {
            let pid = block.id();
            let is_done = BlockMut::new(block.page_mut()).is_some_and(|mut block| block.remove(range));
            is_done.then_some(()).ok_or_else(|| not_a_leaf(pid))?;
        }
        for cut in plan.nodes.into_iter().rev() {
            cut_off.trees.extend(cut_node(tree, cut, &mut spare)?);
        }
        if let Some(block) = first_block {
            let mut root = self.pool.exclusive(tree.root)?;
            self.empty(&mut root, block, tree.tag);
        }
        self.give_back(spare);
        self.lower_root(tree);
        // The blocks on both sides of the cut. What gets in the way ends it.
        let _ = self.join(tree, Spot::At(range.start.saturating_sub(1)));
        let _ = self.join(tree, Spot::At(range.start));
        Ok(cut_off)
    }

    fn plan_node<'p>(
        &'p self,
        tree: Tree,
        pid: PageId,
        above: Option<(u8, Child)>,
        range: Range<u64>,
        plan: &mut Plan<'p>,
    ) -> Result<(), Stop> {
        let guard = self.latch_for(pid, plan)?;
        let level_above = above.map(|(level, _)| level);
        let node = Node::new(guard.page()).filter(|node| is_expected(*node, tree.tag, level_above));
        let counted = above.map(|(_, child)| u64::from(child.elements));
        let node = node.filter(|node| counted.is_none_or(|counted| counted == node.elements()));
        let node = node.ok_or_else(|| not_inner(pid))?;
        let (level, (whole, parts)) = (node.level(), divide(node, range));
        let below: Vec<(Child, Range<u64>)> =
            parts.iter().map(|(index, range)| (node.child(*index), range.clone())).collect();
        let parts =
            parts.into_iter().map(|(index, range)| (index, (range.end - range.start) as u32)).collect();
        plan.nodes.push(NodeCut { node: guard, whole, parts });
        for (child, range) in below {
            match level {
                1 => self.plan_block(tree, child, range, plan)?,
                _ => self.plan_node(tree, child.pid, Some((level, child)), range, plan)?,
            }
        }
        Ok(())
    }

    fn plan_block<'p>(
        &'p self,
        tree: Tree,
        child: Child,
        range: Range<u64>,
        plan: &mut Plan<'p>,
    ) -> Result<(), Stop> {
        let guard = self.latch_for(child.pid, plan)?;
        let block = Block::new(guard.page()).filter(|block| block.tag() == tree.tag);
        let block = block.filter(|block| block.count() == child.elements as usize);
        let block = block.ok_or_else(|| not_a_leaf(child.pid))?;
        // The range is within the child's elements.
        let range = range.start as usize..range.end as usize;
        let blobs = block.blobs(range.clone()).filter(|_| block.span(&range).is_some());
        plan.blobs.extend(blobs.ok_or_else(|| bad_record(child.pid))?);
        plan.blocks.push(BlockCut { block: guard, range });
        Ok(())
    }

    /// Latches a page more. Only the first may be waited for: the others are not all below each other.
    fn latch_for<'p>(&'p self, pid: PageId, plan: &Plan<'p>) -> Result<ExclusiveGuard<'p>, Stop> {
        if plan.has(pid) {
            return Err(not_inner(pid));
        }
        match plan.nodes.is_empty() {
            true => self.pool.follow_exclusive(pid),
            false => Ok(self.pool.try_exclusive(pid)?),
        }
    }
}

/// Takes the children that go out of a node; the root of the tree that they are then, if there are any.
fn cut_node(
    tree: Tree,
    cut: NodeCut<'_>,
    spare: &mut Vec<ExclusiveGuard<'_>>,
) -> Result<Option<PageId>, Stop> {
    let NodeCut { node: mut guard, whole, parts } = cut;
    let node = Node::new(guard.page()).ok_or_else(|| not_inner(guard.id()))?;
    let (level, mut children) = (node.level(), node.children());
    for (index, elements) in parts {
        children[index].elements -= elements;
    }
    let cut_off: Vec<Child> = children.drain(whole).collect();
    if !children.is_empty() {
        write_node(&mut guard, tree.tag, level, &children);
    }
    if cut_off.is_empty() {
        return Ok(None);
    }
    let Some(mut root) = spare.pop() else { return Err(not_inner(guard.id())) };
    write_node(&mut root, tree.tag, level, &cut_off);
    Ok(Some(root.id()))
}

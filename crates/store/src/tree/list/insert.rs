//! Putting elements into a list, and others in their place.
//!
//! At an end of the list a full block stays as it is and a new one begins; a full node likewise. So what is filled from its
//! ends is full. Elsewhere blocks and nodes are divided in the middle.

use stillframe_pagepool::ExclusiveGuard;

use super::block::{BlockMut, Element, Overfull, Room, CAPACITY_BYTES};
use super::node::{elements_of, write_node, Child, CHILDREN_MAX};
use super::path::{count, Lists, Path, Spot, Step};
use crate::effect::End;
use crate::stop::Stop;
use crate::tree::order::{bad_record, not_inner};
use crate::tree::trees::Tree;

/// Pages that are needed for so many blocks beside the one that steps lead to: any number at an end of the list, one
/// elsewhere.
fn pages_for(steps: &[Step<'_>], block_count: usize) -> Result<usize, Stop> {
    let (mut needed, mut page_count) = (block_count, block_count);
    for step in steps.iter().rev() {
        let room = CHILDREN_MAX - step.node()?.count();
        if needed <= room {
            return Ok(page_count);
        }
        needed = (needed - room).div_ceil(CHILDREN_MAX);
        page_count += needed;
    }
    // The root's content moves to a page of its own, which is the first of its children then.
    while needed > 0 {
        page_count += 1;
        needed = (needed + 1).saturating_sub(CHILDREN_MAX).div_ceil(CHILDREN_MAX);
        page_count += needed;
    }
    Ok(page_count)
}

/// Blocks that elements take beside the one at the end.
fn blocks_for(mut room: Room, elements: &[Element<'_>]) -> usize {
    let mut block_count = 0;
    for bytes in elements.iter().map(Element::encoded_bytes) {
        if !room.take(bytes) {
            room = Room::WHOLE;
            // Each fits a block.
            room.take(bytes);
            block_count += 1;
        }
    }
    block_count
}

/// Puts elements into the block until it is full. How many.
fn fill_up(block: &mut BlockMut<'_>, end: End, elements: &[Element<'_>]) -> usize {
    elements.iter().take_while(|element| block.push(end, **element)).count()
}

/// Most elements of a list, so that each node can count those below it. The blocks at both ends may take some more: they are
/// not asked about each element.
const ELEMENTS_MAX: u64 = u32::MAX as u64 - 2 * CAPACITY_BYTES as u64;

/// Whether `added` elements more can be counted.
fn check_counts(steps: &[Step<'_>], added: usize) -> Result<(), Stop> {
    let Some(root) = steps.first() else { return Ok(()) };
    match root.node()?.elements() + added as u64 {
        elements if elements > ELEMENTS_MAX => Err(Stop::TooLarge),
        _ => Ok(()),
    }
}

impl Lists {
    /// Puts elements to an end of the list, one after the other: all or none.
    ///
    /// # Errors
    /// A page is missing or damaged, or there is none for more; [`Stop::TooLarge`]: an element should lie outside, or the list
    /// would have more than can be counted.
    pub fn push(&self, tree: Tree, end: End, elements: &[Element<'_>]) -> Result<(), Stop> {
        if !elements.iter().all(Element::fits_a_block) {
            return Err(Stop::TooLarge);
        }
        let mut path = self.path(tree, end.into())?;
        let block_count = blocks_for(path.block()?.room(end), elements);
        if block_count > 0 {
            check_counts(&path.steps, elements.len())?;
        }
        let mut spare = self.spare(&path.steps, block_count)?;
        let mut left = elements;
        loop {
            let put_count = fill_up(&mut path.block_mut()?, end, left);
            count(&mut path.steps, put_count as i32)?;
            left = &left[put_count..];
            if left.is_empty() {
                break;
            }
            let Some(mut block) = spare.pop() else { return Err(not_inner(tree.root)) };
            let mut filled = BlockMut::fill(block.page_mut(), tree.tag, &[], end);
            let put_count = fill_up(&mut filled, end, left);
            left = &left[put_count..];
            let sibling = Child { pid: block.id(), elements: put_count as u32 };
            drop(block);
            self.add_child(path.steps, &mut spare, sibling, None, Some(end))?;
            if left.is_empty() {
                break;
            }
            // What has been in memory a moment ago is still (R3).
            path = self.path(tree, end.into())?;
        }
        debug_assert!(spare.is_empty(), "as many pages as were needed");
        self.give_back(spare);
        Ok(())
    }

    /// Inserts an element before the one with an index, or behind the last. False if the list is shorter.
    ///
    /// # Errors
    /// As of [`Lists::push`].
    pub fn insert(&self, tree: Tree, index: u64, element: Element<'_>) -> Result<bool, Stop> {
        if !element.fits_a_block() {
            return Err(Stop::TooLarge);
        }
        let mut path = self.path(tree, Spot::At(index))?;
        if path.at > path.block()?.count() {
            return Ok(false);
        }
        if let Some(end) = path.end {
            drop(path);
            return self.push(tree, end, &[element]).map(|()| true);
        }
        check_counts(&path.steps, 1)?;
        let at = path.at;
        if path.block()?.free_bytes() >= element.encoded_bytes() {
            let is_done = path.block_mut()?.insert(at, element);
            is_done.then_some(()).ok_or_else(|| bad_record(path.block.id()))?;
            count(&mut path.steps, 1)?;
            return Ok(true);
        }
        self.divide(path, element, false)?;
        Ok(true)
    }

    /// Puts an element in the place of the one with an index, which `old` is given as soon as it is sure that it goes. False
    /// if the list is shorter.
    ///
    /// # Errors
    /// As of [`Lists::push`].
    pub fn set(
        &self,
        tree: Tree,
        index: u64,
        element: Element<'_>,
        old: impl FnOnce(Element<'_>),
    ) -> Result<bool, Stop> {
        if !element.fits_a_block() {
            return Err(Stop::TooLarge);
        }
        let mut path = self.path(tree, Spot::At(index))?;
        let (at, block) = (path.at, path.block()?);
        if at >= block.count() {
            return Ok(false);
        }
        let before = block.element(at).ok_or_else(|| bad_record(path.block.id()))?;
        if block.free_bytes() + before.encoded_bytes() >= element.encoded_bytes() {
            old(before);
            let is_done = path.block_mut()?.replace(at, element);
            return is_done.then_some(true).ok_or_else(|| bad_record(path.block.id()));
        }
        // The block is copied, so what was there before is known until then.
        let copy = *path.block.page();
        self.divide(path, element, true)?;
        if let Some(before) = super::block::Block::new(&copy).and_then(|block| block.element(at)) {
            old(before);
        }
        Ok(true)
    }

    /// Makes two blocks of a full one, with one element more or with another in the place of one.
    fn divide(&self, mut path: Path<'_>, element: Element<'_>, replaces: bool) -> Result<(), Stop> {
        let overfull = Overfull::plan(path.block()?, path.at, element, replaces);
        let overfull = overfull.ok_or_else(|| bad_record(path.block.id()))?;
        let tag = path.block()?.tag();
        let mut spare = self.spare(&path.steps, 1)?;
        let Some(mut block) = spare.pop() else { return Err(Stop::Contended) };
        BlockMut::fill(path.block.page_mut(), tag, &[overfull.left()], End::Right);
        BlockMut::fill(block.page_mut(), tag, &[overfull.right()], End::Right);
        let sibling = Child { pid: block.id(), elements: overfull.right().count as u32 };
        let left_count = overfull.left().count as u32;
        self.add_child(path.steps, &mut spare, sibling, Some(left_count), None)?;
        debug_assert!(spare.is_empty(), "as many pages as were needed");
        self.give_back(spare);
        Ok(())
    }

    /// Pages for so many new blocks and the nodes above them, the first to be taken last.
    fn spare(&self, steps: &[Step<'_>], block_count: usize) -> Result<Vec<ExclusiveGuard<'_>>, Stop> {
        if block_count == 0 {
            return Ok(Vec::new());
        }
        let page_count = pages_for(steps, block_count)?;
        self.pages.admit(page_count as u32)?;
        self.reserve(page_count)
    }

    /// Adds a child beside the one that steps lead to: before it at the front of the list, else behind it. `own` is how many
    /// elements that one has now, if others than before. Full nodes are divided on the way up.
    fn add_child(
        &self,
        mut steps: Vec<Step<'_>>,
        spare: &mut Vec<ExclusiveGuard<'_>>,
        sibling: Child,
        own: Option<u32>,
        end: Option<End>,
    ) -> Result<(), Stop> {
        let (mut sibling, mut own) = (sibling, own);
        while let Some(mut step) = steps.pop() {
            let node = step.node()?;
            let (tag, level, before) = (node.tag(), node.level(), node.elements());
            let mut children = node.children();
            if let Some(elements) = own {
                children[step.index].elements = elements;
            }
            children.insert(step.index + usize::from(end != Some(End::Left)), sibling);
            if children.len() <= CHILDREN_MAX {
                write_node(&mut step.node, tag, level, &children);
                let delta = elements_of(&children) as i64 - before as i64;
                return count(&mut steps, delta as i32);
            }
            let middle = match end {
                Some(End::Left) => 1,
                Some(End::Right) => CHILDREN_MAX,
                None => children.len() / 2,
            };
            let (left, right) = children.split_at(middle);
            // At the front the new node is the left one.
            let (kept, moved) = if end == Some(End::Left) { (right, left) } else { (left, right) };
            let Some(mut other) = spare.pop() else { return Err(not_inner(step.node.id())) };
            write_node(&mut other, tag, level, moved);
            let moved = Child { pid: other.id(), elements: elements_of(moved) as u32 };
            if steps.is_empty() {
                let Some(mut lower) = spare.pop() else { return Err(not_inner(step.node.id())) };
                write_node(&mut lower, tag, level, kept);
                let kept = Child { pid: lower.id(), elements: elements_of(kept) as u32 };
                let children = if end == Some(End::Left) { [moved, kept] } else { [kept, moved] };
                write_node(&mut step.node, tag, level + 1, &children);
                return Ok(());
            }
            write_node(&mut step.node, tag, level, kept);
            (sibling, own) = (moved, Some(elements_of(kept) as u32));
        }
        Ok(())
    }
}

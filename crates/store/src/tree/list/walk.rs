//! Going through all pages of a list, to check them or to know which there are.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::block::{Block, Element};
use super::node::{Child, Node};
use crate::page::Page;
use crate::stop::Stop;
use crate::tree::order::{bad_record, not_a_leaf, not_inner};
use crate::tree::ordered::Visitor;

fn wrong(pid: PageId, what: &str) -> Stop {
    Stop::Damaged(format!("page {}: {what}", pid.0).into())
}

/// A page as a node of a list, below one of `level_above` if it is no root.
fn node_of(pid: PageId, page: &Page, tag: Option<u32>, level_above: Option<u8>) -> Result<Node<'_>, Stop> {
    let node = Node::new(page).filter(|node| {
        tag.is_none_or(|tag| node.tag() == tag) && level_above.is_none_or(|above| node.level() + 1 == above)
    });
    node.ok_or_else(|| not_inner(pid))
}

fn block_of(pid: PageId, page: &Page, tag: Option<u32>) -> Result<Block<'_>, Stop> {
    let block = Block::new(page).filter(|block| tag.is_none_or(|tag| block.tag() == tag));
    block.ok_or_else(|| not_a_leaf(pid))
}

/// Whether a node may have a child without elements: the root of an empty list has its one block.
fn may_be_empty(node: Node<'_>, level_above: Option<u8>) -> bool {
    level_above.is_none() && node.level() == 1 && node.count() == 1
}

fn visit_blobs(pid: PageId, block: Block<'_>, visitor: &mut impl Visitor) -> Result<(), Stop> {
    for element in block.elements(0) {
        if let Element::Outside(blob) = element.ok_or_else(|| bad_record(pid))? {
            visitor.blob(blob)?;
        }
    }
    Ok(())
}

/// Goes through a whole list and checks it; returns its elements.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`] says what is wrong and where.
pub(crate) fn check_tree(root: PageId, tag: u32, visitor: &mut impl Visitor) -> Result<u64, Stop> {
    let elements = check_node(root, tag, None, visitor)?;
    match elements > u64::from(u32::MAX) {
        true => Err(wrong(root, "more elements than can be counted")),
        false => Ok(elements),
    }
}

fn check_node(
    pid: PageId,
    tag: u32,
    level_above: Option<u8>,
    visitor: &mut impl Visitor,
) -> Result<u64, Stop> {
    visitor.page(pid)?;
    let mut page = Box::new([0; PAGE_SIZE]);
    visitor.read(pid, &mut page)?;
    let node = node_of(pid, &page, Some(tag), level_above)?;
    for index in 0..node.count() {
        let Child { pid: below, elements } = node.child(index);
        if elements == 0 && !may_be_empty(node, level_above) {
            return Err(wrong(below, "no elements"));
        }
        let found = match node.level() {
            1 => check_block(below, tag, visitor)?,
            level => check_node(below, tag, Some(level), visitor)?,
        };
        if found != u64::from(elements) {
            return Err(wrong(pid, "a node counts other elements than are below it"));
        }
    }
    Ok(node.elements())
}

fn check_block(pid: PageId, tag: u32, visitor: &mut impl Visitor) -> Result<u64, Stop> {
    visitor.page(pid)?;
    let mut page = [0; PAGE_SIZE];
    visitor.read(pid, &mut page)?;
    let block = block_of(pid, &page, Some(tag))?;
    if !block.is_whole() {
        return Err(wrong(pid, "its header miscounts"));
    }
    visit_blobs(pid, block, visitor)?;
    Ok(block.count() as u64)
}

/// Goes through what is left of a list that is being freed: some of its right end may be gone.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`].
pub(crate) fn visit_rest(pid: PageId, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visit_rest_below(pid, None, visitor)
}

fn visit_rest_below(pid: PageId, level_above: Option<u8>, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visitor.page(pid)?;
    let mut page = Box::new([0; PAGE_SIZE]);
    visitor.read(pid, &mut page)?;
    let node = node_of(pid, &page, None, level_above)?;
    for child in node.children() {
        if node.level() > 1 {
            visit_rest_below(child.pid, Some(node.level()), visitor)?;
            continue;
        }
        visitor.page(child.pid)?;
        let mut page = [0; PAGE_SIZE];
        visitor.read(child.pid, &mut page)?;
        visit_blobs(child.pid, block_of(child.pid, &page, None)?, visitor)?;
    }
    Ok(())
}

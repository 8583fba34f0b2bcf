//! A list that is a tree by position, and what is done with either form alike.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use super::packed;
use crate::blobs::{Blob, Bytes, Given, Made, Part, Taking};
use crate::effect::{Change, Effect, End};
use crate::keyspace::{collections, CollectionKey, Keyspace, Op, Opened, Rest};
use crate::stop::{retry, Stop};
use crate::tree::hash::Grown;
use crate::tree::list::{Block, Bulk, Element, ELEMENT_INLINE_MAX_BYTES};
use crate::tree::{blank, Tree, NO_DATABASE};
use crate::types::packed::elements;
use crate::value::Encoding;
use crate::{Deadline, Fault, OpError};

/// What becomes of items that are read where they lie ([`Bytes::Stored`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Linking {
    Copied,
    /// Their pages go over to the list: the caller has taken them out of the list that they were in.
    Moved,
}

/// Items of a block, at least, as a rule.
const ITEMS_A_BLOCK: u64 = 32;
/// Blocks that are brought in together ahead of a walk.
const AHEAD_BLOCKS_MAX: usize = 512;

/// Puts items into a list as `put` does with what the list has for them: those that are long are stored outside first, unless
/// they lie in pages, and dropped if it fails.
pub(super) fn with_elements<R>(
    keyspace: &Keyspace,
    items: &[Bytes<'_>],
    linking: Linking,
    mut put: impl FnMut(&[Element<'_>]) -> Result<R, Stop>,
) -> Result<R, OpError> {
    let is_long = |item: &Bytes<'_>| item.here().is_none_or(|item| item.len() > ELEMENT_INLINE_MAX_BYTES);
    if let [Bytes::Here(item)] = items {
        if item.len() <= ELEMENT_INLINE_MAX_BYTES {
            return retry(|| put(&[Element::Inline(item)]));
        }
    }
    collections::resolve_stored(
        keyspace,
        items.iter().filter(|item| is_long(item)).map(Bytes::unstored_bytes),
    )?;
    let mut made: Vec<Blob> = Vec::new();
    let stored = items.iter().map(|item| {
        let bytes = match item {
            Bytes::Here(item) if item.len() <= ELEMENT_INLINE_MAX_BYTES => return Ok(Element::Inline(item)),
            Bytes::Here(item) => Cow::Borrowed(*item),
            Bytes::Incoming(incoming) => return Ok(Element::Outside(keyspace.blobs.unused(incoming)?)),
            Bytes::Stored(item) if linking == Linking::Moved => return Ok(Element::Outside(item.blob())),
            Bytes::Stored(_) => Cow::Owned(item.to_vec()?),
        };
        let blob = retry(|| keyspace.blobs.make(&[Part::Bytes(&bytes)], false))?;
        made.push(blob);
        Ok(Element::Outside(blob))
    });
    let stored: Result<Vec<Element<'_>>, OpError> = stored.collect();
    let done = stored.and_then(|elements| retry(|| put(&elements)));
    let done = done.inspect_err(|_| made.iter().for_each(|blob| keyspace.blobs.discard(blob)))?;
    for item in items {
        if let Bytes::Incoming(incoming) = item {
            incoming.note_used();
        }
    }
    Ok(done)
}

pub(super) fn grown_push(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    mut grown: Grown,
    end: End,
    items: &[Bytes<'_>],
    linking: Linking,
) -> Result<u64, OpError> {
    with_elements(op.keyspace, items, linking, |elements| {
        op.keyspace.lists.push(grown.first, end, elements)
    })?;
    grown.element_count += items.len() as u64;
    replace(op, at, grown)?;
    Ok(grown.element_count)
}

/// Takes one item, which is not the last, in one descent and without a page for it; `tell` announces it.
pub(super) fn grown_pop(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    mut grown: Grown,
    end: End,
    mut f: impl FnMut(Given<'_>),
    tell: impl FnOnce(&Op<'_>),
) -> Result<(), OpError> {
    let (mut outside, taking) = (None, op.local.taking);
    let is_popped = retry(|| {
        op.keyspace.lists.pop(grown.first, end, |item| {
            if let Element::Outside(blob) = item {
                outside = Some(blob);
            }
            give_item(op.keyspace, item, taking, &mut op.local.bytes, &mut f)
        })
    })?;
    if !is_popped {
        return Err(shorter());
    }
    outside.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
    grown.element_count -= 1;
    collections::put_rest(op, at, Rest::Grown(list_of(grown)), tell)
}

pub(super) fn replace(op: &mut Op<'_>, at: &CollectionKey<'_>, grown: Grown) -> Result<(), OpError> {
    collections::set_grown(op, at, &list_of(grown))
}

/// Makes a tree of a packed list, or of none, and puts items to its end.
fn create(keyspace: &Keyspace) -> Result<Tree, OpError> {
    let tag = keyspace.take_tag();
    let root = retry(|| keyspace.lists.create(tag))?;
    Ok(Tree { db: NO_DATABASE, root, tag })
}

/// A copy of a list in a tree of its own.
pub(in crate::types) fn copy(op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Grown, OpError> {
    let opened = list_of(*from);
    if !op.keyspace.pages.all_resident() {
        // Everything is there before anything is made, but for what is long.
        op.local.taking = Taking::Large;
        let all = 0..from.element_count;
        let walked = give(op, &opened, all, &[], |_| ControlFlow::Continue(()));
        op.local.taking = Taking::Bytes;
        walked?;
    }
    let copy = Grown { first: create(op.keyspace)?, ..*from };
    copy_items(op.keyspace, from, &copy, made)
        .inspect_err(|_| collections::drop_trees(op.keyspace, &copy))?;
    Ok(copy)
}

fn copy_items(keyspace: &Keyspace, from: &Grown, to: &Grown, made: Made<'_>) -> Result<(), OpError> {
    let mut bulk = retry(|| Bulk::begin(&keyspace.lists, to.first))?;
    let added = add_copies(keyspace, from, &mut bulk, made);
    // Whatever has been added: the pages are a whole list, which can be dropped.
    let count = bulk.seal()?;
    added?;
    match count == from.element_count {
        true => Ok(()),
        false => Err(shorter()),
    }
}

fn add_copies(keyspace: &Keyspace, from: &Grown, bulk: &mut Bulk<'_>, made: Made<'_>) -> Result<(), OpError> {
    let (mut page, mut bytes, mut next) = (blank(), Vec::new(), 0);
    while next < from.element_count {
        // Nothing is added under the latch of a block.
        let at = retry(|| keyspace.lists.copy_block(from.first, next, &mut page))?;
        let items = Block::new(&page).into_iter().flat_map(|block| block.elements(at));
        let before = next;
        for item in items {
            let item = item.ok_or_else(shorter)?;
            let ready = match item {
                Element::Outside(blob) => made.copy_of(&blob),
                Element::Inline(_) => None,
            };
            let copy = match (item, ready) {
                (Element::Inline(item), _) => Element::Inline(item),
                (Element::Outside(_), Some(ready)) => Element::Outside(ready.blob()),
                (Element::Outside(blob), None) => {
                    bytes.clear();
                    retry(|| keyspace.blobs.read(&blob, &mut bytes))?;
                    Element::Outside(retry(|| keyspace.blobs.make(&[Part::Bytes(&bytes)], false))?)
                }
            };
            let added = retry(|| bulk.add(copy));
            match (&added, copy, ready) {
                (Ok(()), _, Some(ready)) => ready.note_used(),
                (Err(_), Element::Outside(blob), None) => keyspace.blobs.discard(&blob),
                _ => {}
            }
            added?;
            next += 1;
        }
        if next == before {
            return Err(shorter());
        }
    }
    Ok(())
}

pub(super) fn grow(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    end: End,
    items: &[Bytes<'_>],
    linking: Linking,
    run: &[u8],
) -> Result<Grown, OpError> {
    let tree = create(op.keyspace)?;
    let before: Vec<Bytes<'_>> = elements(run).map(|item| item.bytes.into()).collect();
    let element_count = (before.len() + items.len()) as u64;
    let grown = Grown { element_count, first: tree, second: None };
    let filled = with_elements(op.keyspace, &before, Linking::Copied, |elements| {
        op.keyspace.lists.push(tree, End::Right, elements)
    })
    .and_then(|()| {
        with_elements(op.keyspace, items, linking, |elements| op.keyspace.lists.push(tree, end, elements))
    });
    filled.inspect_err(|_| collections::drop_trees(op.keyspace, &grown))?;
    collections::put_grown(op, at, Encoding::QuickList, None, grown, Deadline::Keep)?;
    Ok(grown)
}

/// Gives an item to `f`, a large one by reference if that is wanted.
fn give_item<R>(
    keyspace: &Keyspace,
    element: Element<'_>,
    taking: Taking,
    buffer: &mut Vec<u8>,
    f: impl FnOnce(Given<'_>) -> R,
) -> Result<R, Stop> {
    match element {
        Element::Inline(bytes) => Ok(f(Given::Here(bytes))),
        Element::Outside(blob) => keyspace.blobs.give(&blob, taking, buffer, f),
    }
}

/// Why a walk stopped at an item: if a page is missing, with the blocks of up to `left_count` items that it comes to next, as
/// far as they have one parent.
#[cold]
pub(super) fn ahead(
    keyspace: &Keyspace,
    error: OpError,
    tree: Tree,
    from: u64,
    is_upwards: bool,
    left_count: u64,
) -> OpError {
    let OpError::Fault(fault) = error else { return error };
    let count = usize::try_from(left_count / ITEMS_A_BLOCK).unwrap_or(usize::MAX).min(AHEAD_BLOCKS_MAX);
    let count = keyspace.pages.ahead_pages(count + 1);
    // What stands in the way is met again.
    let mut blocks = keyspace.lists.blocks_ahead(tree, from, is_upwards, count).unwrap_or_default();
    blocks.retain(|block| !keyspace.pool.is_resident(*block));
    // And the long items of the block that it has got to.
    let mut note = |element: Element<'_>| {
        if let Element::Outside(blob) = element {
            keyspace.blobs.resolve_element(&blob, &mut blocks);
        }
        Ok(true)
    };
    let _ = match is_upwards {
        true => keyspace.lists.walk_up(tree, from, &mut note),
        false => keyspace.lists.walk_down(tree, from.saturating_add(1), &mut note),
    };
    OpError::Fault(fault.and(Fault::of(blocks)))
}

/// Gives the items of a range to `f`, in order, until it breaks.
pub(super) fn give(
    op: &mut Op<'_>,
    opened: &Opened,
    range: Range<u64>,
    run: &[u8],
    mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
) -> Result<(), OpError> {
    let Some(grown) = opened.grown else {
        let items = elements(&run[packed::bytes_of(run, &range)]);
        let _ = items.map(|item| Given::Here(item.bytes)).try_for_each(f);
        return Ok(());
    };
    let (mut next, mut flow, taking) = (range.start, ControlFlow::Continue(()), op.local.taking);
    while next < range.end && flow.is_continue() {
        let from = next;
        let walked = retry(|| {
            // What has been given is not given again.
            op.keyspace.lists.walk_up(grown.first, next, |element| {
                flow = give_item(op.keyspace, element, taking, &mut op.local.bytes, &mut f)?;
                next += 1;
                Ok(flow.is_continue() && next < range.end)
            })
        });
        walked.map_err(|error| ahead(op.keyspace, error, grown.first, next, true, range.end - next))?;
        if next == from {
            return Err(shorter());
        }
    }
    Ok(())
}

/// Gives the items of a range to `f`, the last first.
pub(super) fn give_down(
    op: &mut Op<'_>,
    opened: &Opened,
    range: Range<u64>,
    run: &[u8],
    mut f: impl FnMut(Given<'_>),
) -> Result<(), OpError> {
    let Some(grown) = opened.grown else {
        let items: Vec<&[u8]> =
            elements(&run[packed::bytes_of(run, &range)]).map(|item| item.bytes).collect();
        items.into_iter().rev().for_each(|item| f(Given::Here(item)));
        return Ok(());
    };
    let (mut next, taking) = (range.end, op.local.taking);
    while next > range.start {
        let from = next;
        let walked = retry(|| {
            op.keyspace.lists.walk_down(grown.first, next, |element| {
                give_item(op.keyspace, element, taking, &mut op.local.bytes, &mut f)?;
                next -= 1;
                Ok(next > range.start)
            })
        });
        walked.map_err(|error| {
            ahead(op.keyspace, error, grown.first, next.saturating_sub(1), false, next - range.start)
        })?;
        if next == from {
            return Err(shorter());
        }
    }
    Ok(())
}

/// Takes the items of a range out of a list, and the key if it has no others; `tell` announces them. What is left of it.
pub(super) fn take(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    range: Range<u64>,
    run: &mut Vec<u8>,
    tell: impl FnOnce(&Op<'_>),
) -> Result<Opened, OpError> {
    let item_count = range.end - range.start;
    let Some(mut grown) = opened.grown else {
        run.drain(packed::bytes_of(run, &range));
        let rest = match run.is_empty() {
            true => Rest::Nothing,
            false => Rest::Packed { encoding: Encoding::QuickList, earliest: None, run },
        };
        return collections::put_rest(op, at, rest, tell).map(|()| *opened);
    };
    // The trees of one that goes are dropped with its key.
    if item_count >= grown.element_count {
        return collections::put_rest(op, at, Rest::Nothing, tell).map(|()| *opened);
    }
    let cut_off = retry(|| op.keyspace.lists.remove_range(grown.first, range.clone()))?;
    cut_off.trees.iter().for_each(|root| op.keyspace.garbage.push_tree(&op.keyspace.pool, *root));
    cut_off.blobs.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
    grown.element_count -= item_count;
    collections::put_rest(op, at, Rest::Grown(list_of(grown)), tell)?;
    Ok(Opened { grown: Some(grown), ..*opened })
}

/// Leaves a list the items of a range alone, which may be empty: then the key goes.
pub(super) fn keep(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    kept: Range<u64>,
    len: u64,
    run: &mut Vec<u8>,
) -> Result<(), OpError> {
    let tell = |op: &Op<'_>, cut: &Range<u64>| {
        let end = if cut.start == 0 { End::Left } else { End::Right };
        let change = Change::Popped { end, item_count: cut.end - cut.start };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
    };
    // From the right first, so that indices stay what they are.
    let cuts = match kept.is_empty() {
        true => [len..len, 0..len],
        false => [kept.end..len, 0..kept.start],
    };
    let cuts: Vec<Range<u64>> = cuts.into_iter().filter(|cut| !cut.is_empty()).collect();
    match (opened.grown, &cuts[..]) {
        // One that takes nothing is told as well, as in Redis.
        (_, []) => tell(op, &(0..0)),
        (_, [cut]) => {
            take(op, at, opened, cut.clone(), run, |op| tell(op, cut))?;
        }
        (None, cuts) => {
            cuts.iter().for_each(|cut| drop(run.drain(packed::bytes_of(run, cut))));
            let rest = Rest::Packed { encoding: Encoding::QuickList, earliest: None, run };
            collections::put_rest(op, at, rest, |op| cuts.iter().for_each(|cut| tell(op, cut)))?;
        }
        (Some(grown), cuts) => {
            // Nothing that is missing is met after the first change (C1).
            for index in [kept.start - 1, kept.start, kept.end - 1, kept.end] {
                retry(|| op.keyspace.lists.get(grown.first, index, |_| Ok(())))?;
            }
            let mut left = *opened;
            for cut in cuts {
                left = take(op, at, &left, cut.clone(), run, |op| tell(op, cut))?;
            }
        }
    }
    Ok(())
}

/// A list of a tree, as its key has it.
fn list_of(grown: Grown) -> Opened {
    Opened { encoding: Encoding::QuickList, earliest: None, grown: Some(grown) }
}

#[cold]
fn shorter() -> OpError {
    OpError::Damaged("a list has fewer items than its key says".into())
}

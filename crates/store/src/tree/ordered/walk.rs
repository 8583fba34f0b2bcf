//! Going through all pages of a tree, to check them or to know which there are.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::leaf::{OrderedLeaf, Stored, CAPACITY_BYTES, SLOT_BYTES};
use super::node::{Node, OrderedNode};
use super::order::Ordered;
use crate::blobs::Blob;
use crate::page::Page;
use crate::stop::Stop;
use crate::tree::order::{as_leaf, bad_record, not_a_leaf, not_inner, LeafView};
use crate::tree::words::Words;

/// Deepest tree that is believed.
const LEVEL_MAX: u8 = 16;

/// Who goes through a tree.
pub(crate) trait Visitor {
    /// Copies a page.
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop>;
    /// The tree has this page.
    fn page(&mut self, pid: PageId) -> Result<(), Stop>;
    /// A record refers to this.
    fn blob(&mut self, blob: Blob) -> Result<(), Stop>;
    /// The tree, which is one by hash, has this leaf.
    fn hashed_leaf(&mut self, _pid: PageId, _page: &Page) -> Result<(), Stop> {
        Ok(())
    }
    /// The tree, which is one by byte strings, has this record.
    fn record(&mut self, _key: &[u8], _value: Stored<'_>) -> Result<(), Stop> {
        Ok(())
    }
}

/// What is to hold for a node or a leaf.
struct Expected {
    tag: u32,
    /// The tree counts records.
    counts: bool,
    level: u8,
    lo: Vec<u8>,
    hi: Option<Vec<u8>>,
}

fn ensure(holds: bool, stop: impl FnOnce() -> Stop) -> Result<(), Stop> {
    if holds {
        Ok(())
    } else {
        Err(stop())
    }
}

fn wrong(pid: PageId, what: &str) -> Stop {
    Stop::Damaged(format!("page {}: {what}", pid.0).into())
}

/// Goes through a whole tree and checks it; returns its records. What a node counts holds only in a tree that `counts`: in others it may
/// be of a program before this one.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`] says what is wrong and where.
pub(crate) fn check_tree(
    root: PageId,
    tag: u32,
    counts: bool,
    visitor: &mut impl Visitor,
) -> Result<u64, Stop> {
    let mut page = [0; PAGE_SIZE];
    visitor.read(root, &mut page)?;
    let expected = Expected { tag, counts, level: page.level(), lo: Vec::new(), hi: None };
    check_node(root, &expected, visitor)
}

fn check_node(pid: PageId, expected: &Expected, visitor: &mut impl Visitor) -> Result<u64, Stop> {
    visitor.page(pid)?;
    let mut page = Box::new([0; PAGE_SIZE]);
    visitor.read(pid, &mut page)?;
    let level_is_sane = (1..=LEVEL_MAX).contains(&expected.level) && page.level() == expected.level;
    ensure(page.is_ordered_inner(expected.tag) && level_is_sane, || not_inner(pid))?;
    let Node { lo, hi, children, counts: has_counts, .. } = page.decode();
    ensure(lo == expected.lo && hi == expected.hi, || wrong(pid, "other bounds than its parent's"))?;
    let are_sorted = children.windows(2).all(|pair| pair[0].separator < pair[1].separator);
    ensure(are_sorted, || wrong(pid, "separators are out of order"))?;
    let mut records = 0;
    for (index, child) in children.iter().enumerate() {
        let hi = children.get(index + 1).map_or(hi.clone(), |next| Some(next.separator.to_vec()));
        let level = expected.level - 1;
        let below =
            Expected { tag: expected.tag, counts: expected.counts, level, lo: child.separator.to_vec(), hi };
        let records_below = match level {
            0 => check_leaf(PageId(child.pid), &below, visitor)?,
            _ => check_node(PageId(child.pid), &below, visitor)?,
        };
        let is_counted = !(has_counts && expected.counts) || u64::from(child.records) == records_below;
        ensure(is_counted, || wrong(pid, "it miscounts the records below a child"))?;
        records += records_below;
    }
    Ok(records)
}

fn check_leaf(pid: PageId, expected: &Expected, visitor: &mut impl Visitor) -> Result<u64, Stop> {
    visitor.page(pid)?;
    let mut page = [0; PAGE_SIZE];
    visitor.read(pid, &mut page)?;
    let leaf = as_leaf::<Ordered>(pid, &page)?;
    let has_bounds = leaf.lo() == expected.lo && leaf.hi() == expected.hi.as_deref();
    ensure(leaf.tag() == expected.tag && has_bounds, || wrong(pid, "other bounds than its parent's"))?;
    let (mut last, mut extents) = (None, Vec::new());
    for slot in 0..leaf.count() {
        let (_, value) = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        let key = leaf.key(slot);
        let is_inside = leaf.lo() <= &key[..] && leaf.hi().is_none_or(|hi| &key[..] < hi);
        ensure(is_inside && last < Some(key.clone()), || wrong(pid, "keys are out of order"))?;
        ensure(leaf.find(&key) == Ok(slot), || wrong(pid, "a key is not found"))?;
        visitor.record(&key, value)?;
        last = Some(key);
        extents.push(leaf.record_range(slot));
        if value.is_outside {
            visitor.blob(value.blob().ok_or_else(|| bad_record(pid))?)?;
        }
    }
    extents.sort_unstable_by_key(|extent| extent.start);
    let are_apart = extents.windows(2).all(|pair| pair[0].end <= pair[1].start);
    let bytes: usize = extents.iter().map(|extent| extent.len() + SLOT_BYTES).sum();
    let bounds_bytes = leaf.lo().len() + leaf.hi().map_or(0, <[u8]>::len);
    let adds_up = leaf.live_bytes() == bytes && bytes + bounds_bytes + leaf.free_bytes() == CAPACITY_BYTES;
    ensure(are_apart && adds_up, || wrong(pid, "its header miscounts"))?;
    Ok(leaf.count() as u64)
}

/// Goes through what is left of a tree that is being freed: some of its right end may be gone.
///
/// # Errors
/// Those of the visitor; [`Stop::Damaged`].
pub(crate) fn visit_rest(pid: PageId, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visit_rest_below(pid, LEVEL_MAX, visitor)
}

fn visit_rest_below(pid: PageId, level_max: u8, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visitor.page(pid)?;
    let mut page = Box::new([0; PAGE_SIZE]);
    visitor.read(pid, &mut page)?;
    let tag = (page.word(0) >> 32) as u32;
    let level = page.level();
    ensure(page.is_ordered_inner(tag) && (1..=level_max).contains(&level), || not_inner(pid))?;
    for child in (0..page.count()).map(|index| PageId(page.child_at(index))) {
        match level {
            1 => visit_rest_leaf(child, visitor)?,
            _ => visit_rest_below(child, level - 1, visitor)?,
        }
    }
    Ok(())
}

fn visit_rest_leaf(pid: PageId, visitor: &mut impl Visitor) -> Result<(), Stop> {
    visitor.page(pid)?;
    let mut page = [0; PAGE_SIZE];
    visitor.read(pid, &mut page)?;
    let leaf = OrderedLeaf::new(&page).ok_or_else(|| not_a_leaf(pid))?;
    for slot in 0..leaf.count() {
        let (_, value) = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        if value.is_outside {
            visitor.blob(value.blob().ok_or_else(|| bad_record(pid))?)?;
        }
    }
    Ok(())
}

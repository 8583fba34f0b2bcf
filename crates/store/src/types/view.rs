//! The elements of a collection as a view gives them: from copies of pages, a leaf at a time.

use std::borrow::Cow;
use std::ops::Range;

use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::blobs::Blob;
use crate::error::SaveError;
use crate::page::Page;
use crate::tree::hash::{Content, Grown, Leaf, Record, RecordKey, RecordValue};
use crate::tree::list;
use crate::tree::ordered::OrderedLeaf;
use crate::tree::sorted_set::{parse, Member, Scored, ViewedOrder};
use crate::tree::{blank, LeafView, LeafWalk, Pages, Tree};
use crate::types::sorted_set::{RangeLimit, ScoredRange};
use crate::types::{hash, packed, sorted_set};
use crate::value::{ValueType, MAX_STRING_BYTES};
use crate::walk::CollectionView;
use crate::{Encoding, UnixMillis};

/// An element of a collection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Element<'a> {
    /// Of a hash.
    Field { field: &'a [u8], value: &'a [u8], deadline: Option<UnixMillis> },
    /// Of a set.
    Member(&'a [u8]),
    /// Of a sorted set.
    Scored { member: &'a [u8], score: f64 },
    /// Of a list.
    Item(&'a [u8]),
}

type Each<'f> = &'f mut dyn FnMut(Element<'_>) -> Result<(), SaveError>;

fn damaged(what: &str) -> SaveError {
    SaveError::Io(format!("{what} is malformed"))
}

impl CollectionView<'_> {
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether elements have deadlines.
    pub fn is_timed(&self) -> bool {
        self.earliest.is_some()
    }

    /// Elements that there are, expired ones included.
    ///
    /// # Errors
    /// Packed elements that cannot be read.
    pub fn element_count(&self) -> Result<u64, SaveError> {
        match self.content {
            Content::Trees(grown) => Ok(grown.element_count),
            _ => {
                let mut count = 0;
                self.for_each(&mut |_| {
                    count += 1;
                    Ok(())
                })?;
                Ok(count)
            }
        }
    }

    /// Gives all elements to `f`: those of a list in their order, those of a sorted set by score, others in any.
    ///
    /// # Errors
    /// A page that cannot be read, or what `f` says.
    pub fn for_each(&self, f: Each<'_>) -> Result<(), SaveError> {
        let Content::Trees(grown) = self.content else { return self.packed(&self.run()?, f) };
        let tree = match self.value_type {
            ValueType::SortedSet => order_of(&grown)?,
            _ => grown.first,
        };
        let (mut walk, mut page) = (LeafWalk::new(tree), blank());
        while let Some(pid) = walk.next_leaf(self.pages, &mut page)? {
            self.leaf(pid, &page, f)?;
        }
        Ok(())
    }

    /// Gives those items of a list to `f` that have the indices of a range, in their order.
    ///
    /// # Errors
    /// A page that cannot be read, a list that has fewer, or what `f` says.
    pub fn for_each_item(
        &self,
        range: Range<u64>,
        f: &mut dyn FnMut(&[u8]) -> Result<(), SaveError>,
    ) -> Result<(), SaveError> {
        let Content::Trees(grown) = self.content else {
            let mut indices = 0..;
            return self.for_each(&mut |element| match (indices.next(), element) {
                (Some(index), Element::Item(item)) if range.contains(&index) => f(item),
                _ => Ok(()),
            });
        };
        let (mut walk, mut page) = (LeafWalk::new(grown.first), blank());
        let (mut passed, mut left) = (walk.begin_at(self.pages, range.start)?, range.end - range.start);
        walk.expect(self.pages);
        while left > 0 {
            let Some(pid) = walk.next_leaf(self.pages, &mut page)? else { return Err(damaged("a list")) };
            let from = usize::try_from(std::mem::take(&mut passed)).unwrap_or(usize::MAX);
            let block = list::Block::new(&page).filter(|block| from < block.count());
            let block = block.ok_or_else(|| damaged("a block"))?;
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            for item in block.elements(from).take(most) {
                let item = item.ok_or_else(|| damaged(&format!("an item of page {}", pid.0)))?;
                self.item(item, &mut |element| match element {
                    Element::Item(item) => f(item),
                    _ => Ok(()),
                })?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// The ranks that the members of a range have in a sorted set.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn scored_ranks(
        &self,
        range: &ScoredRange<'_>,
        is_downwards: bool,
        limit: RangeLimit,
    ) -> Result<Range<u64>, SaveError> {
        let Content::Trees(grown) = self.content else {
            return Ok(range.ranks_in_run(&self.run()?, is_downwards, limit));
        };
        let order = ViewedOrder { pages: self.pages, tree: order_of(&grown)? };
        range.ranks_of(&order, grown.element_count, is_downwards, limit)
    }

    /// Gives those members of a sorted set to `f` that have the ranks of a range, the greatest first if `is_downwards`.
    ///
    /// # Errors
    /// A page that cannot be read, a sorted set that has fewer, or what `f` says.
    pub fn for_each_scored(
        &self,
        ranks: Range<u64>,
        is_downwards: bool,
        f: Each<'_>,
    ) -> Result<(), SaveError> {
        let too_few = || damaged("a sorted set");
        let Content::Trees(grown) = self.content else {
            let run = self.run()?;
            let members: Vec<_> = sorted_set::packed_members(&run).collect();
            let wanted = members.get(ranks.start as usize..ranks.end as usize).ok_or_else(too_few)?;
            return each(wanted.iter(), is_downwards, |&(member, score)| {
                f(Element::Scored { member, score })
            });
        };
        let mut left = ranks.end.saturating_sub(ranks.start);
        if left == 0 {
            return Ok(());
        }
        let (order, mut page) = (order_of(&grown)?, blank());
        let (mut walk, first) = match is_downwards {
            false => (LeafWalk::new(order), ranks.start),
            true => (LeafWalk::downwards(order), ranks.end - 1),
        };
        let mut from = Some(walk.begin_at(self.pages, first)?);
        walk.expect(self.pages);
        while left > 0 {
            let pid = walk.next_leaf(self.pages, &mut page)?.ok_or_else(too_few)?;
            let leaf = OrderedLeaf::new(&page).ok_or_else(|| damaged("a leaf"))?;
            let slots = slots_from(from.take(), leaf.count(), is_downwards).ok_or_else(too_few)?;
            let wanted = |_: &usize| {
                let is_wanted = left > 0;
                left = left.saturating_sub(1);
                is_wanted
            };
            each(slots.filter(wanted), is_downwards, |slot| self.scored(pid, leaf, slot, f))?;
        }
        Ok(())
    }

    /// The elements of a packed one.
    fn run(&self) -> Result<Cow<'_, [u8]>, SaveError> {
        match self.content {
            Content::Packed(run) => Ok(Cow::Borrowed(run)),
            Content::Outside(blob) => {
                let mut run = Vec::new();
                read_blob(self.pages, &blob, &mut run)?;
                Ok(Cow::Owned(run))
            }
            Content::Trees(_) => Err(damaged("a collection")),
        }
    }

    fn packed(&self, run: &[u8], f: Each<'_>) -> Result<(), SaveError> {
        match self.value_type {
            ValueType::Hash => hash::packed_fields(run, self.is_timed())
                .try_for_each(|(field, value, deadline)| f(Element::Field { field, value, deadline })),
            ValueType::Set => packed::elements(run).try_for_each(|member| f(Element::Member(member.bytes))),
            ValueType::List => packed::elements(run).try_for_each(|item| f(Element::Item(item.bytes))),
            ValueType::SortedSet => sorted_set::packed_members(run)
                .try_for_each(|(member, score)| f(Element::Scored { member, score })),
            ValueType::String | ValueType::Stream => Err(damaged("a collection")),
        }
    }

    fn leaf(&self, pid: PageId, page: &Page, f: Each<'_>) -> Result<(), SaveError> {
        match self.value_type {
            ValueType::Hash | ValueType::Set => {
                let leaf = Leaf::new(page).ok_or_else(|| damaged("a leaf"))?;
                (0..leaf.count()).try_for_each(|slot| {
                    let record =
                        leaf.record(slot).ok_or_else(|| damaged(&format!("a record of page {}", pid.0)))?;
                    self.record(&record, f)
                })
            }
            ValueType::SortedSet => {
                let leaf = OrderedLeaf::new(page).ok_or_else(|| damaged("a leaf"))?;
                (0..leaf.count()).try_for_each(|slot| self.scored(pid, leaf, slot, f))
            }
            ValueType::List => {
                let block = list::Block::new(page).ok_or_else(|| damaged("a block"))?;
                block.elements(0).try_for_each(|item| {
                    let item = item.ok_or_else(|| damaged(&format!("an item of page {}", pid.0)))?;
                    self.item(item, f)
                })
            }
            ValueType::String | ValueType::Stream => Err(damaged("a collection")),
        }
    }

    fn item(&self, item: list::Element<'_>, f: Each<'_>) -> Result<(), SaveError> {
        match item {
            list::Element::Inline(item) => f(Element::Item(item)),
            list::Element::Outside(blob) => {
                let mut item = Vec::new();
                read_blob(self.pages, &blob, &mut item)?;
                f(Element::Item(&item))
            }
        }
    }

    fn scored(&self, pid: PageId, leaf: OrderedLeaf<'_>, slot: usize, f: Each<'_>) -> Result<(), SaveError> {
        let (key, record) = (leaf.key(slot), leaf.record(slot));
        let scored = record.and_then(|(_, value)| parse(&key, value));
        let Scored { score, member } =
            scored.ok_or_else(|| damaged(&format!("a record of page {}", pid.0)))?;
        match member {
            Member::Whole(member) => f(Element::Scored { member, score }),
            Member::Long(blob) => {
                let mut member = Vec::new();
                read_blob(self.pages, &blob, &mut member)?;
                f(Element::Scored { member: &member, score })
            }
        }
    }

    fn record(&self, record: &Record<'_>, f: Each<'_>) -> Result<(), SaveError> {
        let (mut long_key, mut long_value) = (Vec::new(), Vec::new());
        let key = match record.key {
            RecordKey::Inline(key) => key,
            RecordKey::Hash(_) => return Err(damaged("an element")),
            RecordKey::Out { blob, .. } => {
                read_blob(self.pages, &blob, &mut long_key)?;
                &long_key
            }
        };
        let value = match record.value {
            RecordValue::Bytes(value) => value,
            RecordValue::Blob(blob) => {
                read_blob(self.pages, &blob, &mut long_value)?;
                &long_value
            }
            RecordValue::Int(_) | RecordValue::Other { .. } => return Err(damaged("an element")),
        };
        match self.value_type {
            ValueType::Set => f(Element::Member(key)),
            _ => f(Element::Field { field: key, value, deadline: record.deadline }),
        }
    }
}

/// The tree of a sorted set that its members are in.
fn order_of(grown: &Grown) -> Result<Tree, SaveError> {
    grown.second.ok_or_else(|| damaged("a sorted set"))
}

/// Gives these to `f`, the last first if `is_downwards`, until it fails.
fn each<T>(
    mut all: impl DoubleEndedIterator<Item = T>,
    is_downwards: bool,
    f: impl FnMut(T) -> Result<(), SaveError>,
) -> Result<(), SaveError> {
    match is_downwards {
        false => all.try_for_each(f),
        true => all.rev().try_for_each(f),
    }
}

/// The slots of a leaf with so many that a walk goes through, which begins at one of them or comes from another leaf; `None`
/// if there is no such slot.
fn slots_from(first: Option<u64>, count: usize, is_downwards: bool) -> Option<Range<usize>> {
    let first = match first {
        Some(first) => Some(usize::try_from(first).ok().filter(|first| *first < count)?),
        None => None,
    };
    Some(match is_downwards {
        false => first.unwrap_or(0)..count,
        true => 0..first.map_or(count, |first| first + 1),
    })
}

/// Appends the bytes of a blob.
fn read_blob(pages: &dyn Pages, blob: &Blob, out: &mut Vec<u8>) -> Result<(), SaveError> {
    let (mut at, end) = (blob.start(), blob.start() + u64::from(blob.len_bytes));
    out.reserve_exact(u64::from(blob.len_bytes).min(MAX_STRING_BYTES) as usize);
    let mut page = blank();
    while at < end {
        let in_page = (at % PAGE_SIZE as u64) as usize;
        let len = (PAGE_SIZE - in_page).min((end - at) as usize);
        pages.read(PageId(blob.pid.0.saturating_add((at / PAGE_SIZE as u64) as u32)), &mut page)?;
        out.extend_from_slice(&page[in_page..in_page + len]);
        at += len as u64;
    }
    Ok(())
}

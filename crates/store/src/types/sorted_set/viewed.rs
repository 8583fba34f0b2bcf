//! Members of sorted sets as a view gives them.

use std::ops::Range;

use stillframe_pagepool::PageId;

use super::packed::members;
use super::range::{RangeLimit, ScoredRange};
use crate::error::SaveError;
use crate::page::Page;
use crate::rdb::Element;
use crate::tree::hash::{Content, Grown};
use crate::tree::ordered::OrderedLeaf;
use crate::tree::sorted_set::{parse, Member, Scored, ViewedOrder};
use crate::tree::{blank, LeafView, LeafWalk, Pages, Tree};
use crate::types::kind::Each;
use crate::types::viewed::{bad_record, damaged, read_blob};
use crate::walk::CollectionView;

/// The tree that the members are in.
pub(super) fn order_of(grown: &Grown) -> Result<Tree, SaveError> {
    grown.second.ok_or_else(|| damaged("a sorted set"))
}

/// Gives the members of a leaf of the order to `f`.
pub(super) fn for_each_in_order(
    pages: &dyn Pages,
    pid: PageId,
    leaf: &Page,
    f: Each<'_>,
) -> Result<(), SaveError> {
    let leaf = OrderedLeaf::new(leaf).ok_or_else(|| damaged("a leaf"))?;
    (0..leaf.count()).try_for_each(|slot| give_member(pages, pid, (leaf, slot), f))
}

fn give_member(
    pages: &dyn Pages,
    pid: PageId,
    (leaf, slot): (OrderedLeaf<'_>, usize),
    f: Each<'_>,
) -> Result<(), SaveError> {
    let (key, record) = (leaf.key(slot), leaf.record(slot));
    let scored = record.and_then(|(_, value)| parse(&key, value));
    let Scored { score, member } = scored.ok_or_else(|| bad_record(pid))?;
    match member {
        Member::Whole(member) => f(Element::Scored { member, score }),
        Member::Long(blob) => {
            let mut member = Vec::new();
            read_blob(pages, &blob, &mut member)?;
            f(Element::Scored { member: &member, score })
        }
    }
}

impl CollectionView<'_> {
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
            let members: Vec<_> = members(&run).collect();
            let wanted = members.get(ranks.start as usize..ranks.end as usize).ok_or_else(too_few)?;
            return each(wanted.iter(), is_downwards, |one| {
                f(Element::Scored { member: one.member, score: one.score })
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
            each(slots.filter(wanted), is_downwards, |slot| give_member(self.pages, pid, (leaf, slot), f))?;
        }
        Ok(())
    }
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

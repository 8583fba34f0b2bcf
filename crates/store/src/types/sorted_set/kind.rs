//! What the store knows of sorted sets beside their commands.

use stillframe_pagepool::{PageId, Reason};

use super::change::{NegativeZero, ScoreRule};
use super::packed::members;
use super::place::{at, roots};
use super::range::{RangeLimit, ScoredRange};
use super::viewed::{for_each_in_order, order_of};
use super::{read, replace};
use crate::blobs::{Bytes, Given, Made};
use crate::error::SaveError;
use crate::keyspace::{elements, Keyspace, Op, PageCheck};
use crate::page::Page;
use crate::rdb::{CollectionKind, Element};
use crate::stop::{retry, Stop};
use crate::tree::hash::Grown;
use crate::tree::ordered::{as_leaf, Seek};
use crate::tree::sorted_set::{check_sorted_set, Roots};
use crate::tree::{LeafView, Pages, Tree};
use crate::types::kind::{pages_for, Each, GivenElement, Kind, NewElement, Taker};
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// See the module.
pub(in crate::types) struct SortedSets;

impl Kind for SortedSets {
    fn dumped_as(&self) -> CollectionKind {
        CollectionKind::SortedSet
    }

    fn tree_of_elements(&self, grown: &Grown) -> Result<Tree, SaveError> {
        order_of(grown)
    }

    fn for_each_packed(&self, run: &[u8], _: bool, f: Each<'_>) -> Result<(), SaveError> {
        members(run).try_for_each(|one| f(Element::Scored { member: one.member, score: one.score }))
    }

    fn for_each_in_leaf(
        &self,
        pages: &dyn Pages,
        pid: PageId,
        leaf: &Page,
        f: Each<'_>,
    ) -> Result<(), SaveError> {
        for_each_in_order(pages, pid, leaf, f)
    }

    fn give(
        &self,
        op: &mut Op<'_>,
        (db, key): (DbId, &Key<'_>),
        to: Taker<'_>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Taker { begin, give } = to;
        let (all, limit) = (ScoredRange::ALL, RangeLimit::NONE);
        let mut give_member =
            |member: Given<'_>, score| give(GivenElement { score, ..GivenElement::named(member) });
        read::range(op, &at(db, key), &all, false, limit, (begin, &mut give_member), run)
    }

    fn put(
        &self,
        worker: &mut Worker,
        (db, key): (DbId, &Key<'_>),
        elements: &[NewElement<'_>],
        were_packed: bool,
    ) -> Result<u64, OpError> {
        let scored: Vec<(f64, Bytes<'_>)> =
            elements.iter().map(|element| (element.score, element.name)).collect();
        // A container may have the negative zero.
        let negative_zero = if were_packed { NegativeZero::Kept } else { NegativeZero::AsLoaded };
        let rule = ScoreRule { negative_zero, ..ScoreRule::default() };
        Ok(worker.sorted_set_at(db, key).put(&scored, &rule)?.added)
    }

    fn copy(&self, op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Grown, OpError> {
        replace::copy(op, from, made)
    }

    fn page_count(&self, keyspace: &Keyspace, grown: &Grown) -> Result<u64, OpError> {
        let Roots { index, order } = roots(grown)?;
        let members_a_leaf = retry(|| {
            let guard = keyspace.orders.leaf_shared(order, Seek::Last, None)?;
            Ok(as_leaf(guard.id(), guard.page())?.count() as u64)
        })?;
        Ok(pages_for(grown, elements::elements_of_a_leaf(keyspace, index)?)
            + pages_for(grown, members_a_leaf))
    }

    fn check(&self, grown: &Grown, pages: &mut PageCheck<'_>) -> Result<u64, Stop> {
        let roots = roots(grown).map_err(|error| Stop::Damaged(Reason::of(&error)))?;
        check_sorted_set(roots, pages.hashes(), pages)
    }
}

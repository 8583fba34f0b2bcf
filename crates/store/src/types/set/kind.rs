//! What the store knows of sets beside their commands.

use stillframe_pagepool::PageId;

use super::place::at;
use super::read;
use crate::blobs::{Bytes, Given, Made};
use crate::error::SaveError;
use crate::keyspace::{elements, Keyspace, Op, PageCheck};
use crate::page::Page;
use crate::rdb::{CollectionKind, Element};
use crate::stop::Stop;
use crate::tree::hash::Grown;
use crate::tree::{Pages, Tree};
use crate::types::kind::{pages_for, Each, GivenElement, Kind, NewElement, Taker};
use crate::types::packed::elements;
use crate::types::viewed::for_each_record;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// See the module.
pub(in crate::types) struct Sets;

impl Kind for Sets {
    fn dumped_as(&self) -> CollectionKind {
        CollectionKind::Set
    }

    fn tree_of_elements(&self, grown: &Grown) -> Result<Tree, SaveError> {
        Ok(grown.first)
    }

    fn for_each_packed(&self, run: &[u8], _: bool, f: Each<'_>) -> Result<(), SaveError> {
        elements(run).try_for_each(|member| f(Element::Member(member.bytes)))
    }

    fn for_each_in_leaf(
        &self,
        pages: &dyn Pages,
        pid: PageId,
        leaf: &Page,
        f: Each<'_>,
    ) -> Result<(), SaveError> {
        for_each_record(pages, pid, leaf, |member, _, _| f(Element::Member(member)))
    }

    fn give(
        &self,
        op: &mut Op<'_>,
        (db, key): (DbId, &Key<'_>),
        to: Taker<'_>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Taker { begin, give } = to;
        let mut give_member = |member: Given<'_>| give(GivenElement::named(member));
        read::for_each(op, &at(db, key), begin, &mut give_member, run)
    }

    fn put(
        &self,
        worker: &mut Worker,
        (db, key): (DbId, &Key<'_>),
        elements: &[NewElement<'_>],
        _: bool,
    ) -> Result<u64, OpError> {
        let members: Vec<Bytes<'_>> = elements.iter().map(|element| element.name).collect();
        worker.set_at(db, key).add(&members)
    }

    fn copy(&self, op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Grown, OpError> {
        Ok(Grown { first: elements::copy_elements(op, from, made)?, ..*from })
    }

    fn page_count(&self, keyspace: &Keyspace, grown: &Grown) -> Result<u64, OpError> {
        Ok(pages_for(grown, elements::elements_of_a_leaf(keyspace, grown.first)?))
    }

    fn check(&self, grown: &Grown, pages: &mut PageCheck<'_>) -> Result<u64, Stop> {
        pages.elements(grown.first)
    }
}

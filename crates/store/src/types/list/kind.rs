//! What the store knows of lists beside their commands.

use stillframe_pagepool::PageId;

use super::grown;
use super::place::at;
use super::read;
use super::viewed::for_each_in_block;
use crate::blobs::{Bytes, Given, Made};
use crate::effect::End;
use crate::error::SaveError;
use crate::keyspace::{Keyspace, Op, PageCheck};
use crate::page::Page;
use crate::rdb::{CollectionKind, Element};
use crate::stop::{retry, Stop};
use crate::tree::hash::Grown;
use crate::tree::{list, Pages, Tree};
use crate::types::kind::{pages_for, Each, GivenElement, Kind, NewElement, Taker};
use crate::types::packed::elements;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// See the module.
pub(in crate::types) struct Lists;

impl Kind for Lists {
    fn dumped_as(&self) -> CollectionKind {
        CollectionKind::List
    }

    fn tree_of_elements(&self, grown: &Grown) -> Result<Tree, SaveError> {
        Ok(grown.first)
    }

    fn for_each_packed(&self, run: &[u8], _: bool, f: Each<'_>) -> Result<(), SaveError> {
        elements(run).try_for_each(|item| f(Element::Item(item.bytes)))
    }

    fn for_each_in_leaf(
        &self,
        pages: &dyn Pages,
        pid: PageId,
        leaf: &Page,
        f: Each<'_>,
    ) -> Result<(), SaveError> {
        for_each_in_block(pages, pid, leaf, f)
    }

    fn give(
        &self,
        op: &mut Op<'_>,
        (db, key): (DbId, &Key<'_>),
        to: Taker<'_>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Taker { begin, give } = to;
        let mut give_item = |item: Given<'_>| give(GivenElement::named(item));
        read::range(op, &at(db, key), (0, -1), begin, &mut give_item, run)
    }

    fn put(
        &self,
        worker: &mut Worker,
        (db, key): (DbId, &Key<'_>),
        elements: &[NewElement<'_>],
        _: bool,
    ) -> Result<u64, OpError> {
        let items: Vec<Bytes<'_>> = elements.iter().map(|element| element.name).collect();
        worker.list_at(db, key).push(End::Right, &items, false)?;
        Ok(items.len() as u64)
    }

    fn copy(&self, op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Grown, OpError> {
        grown::copy(op, from, made)
    }

    fn page_count(&self, keyspace: &Keyspace, grown: &Grown) -> Result<u64, OpError> {
        let mut items_a_block = 0;
        retry(|| {
            items_a_block = 0;
            keyspace.lists.walk_up(grown.first, 0, |_| {
                items_a_block += 1;
                Ok(true)
            })
        })?;
        Ok(pages_for(grown, items_a_block))
    }

    fn check(&self, grown: &Grown, pages: &mut PageCheck<'_>) -> Result<u64, Stop> {
        list::check_tree(grown.first.root, grown.first.tag, pages)
    }
}

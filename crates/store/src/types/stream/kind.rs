//! What the store knows of streams beside their commands.

use std::ops::ControlFlow;

use stillframe_pagepool::PageId;

use super::place::at;
use super::records::{self, packed_records, Records};
use super::{check, load};
use crate::blobs::{Given, Made};
use crate::error::SaveError;
use crate::keyspace::{collections, Keyspace, Op, PageCheck};
use crate::page::Page;
use crate::rdb::{CollectionKind, Element};
use crate::stop::{retry, Stop};
use crate::tree::hash::Grown;
use crate::tree::ordered::{as_leaf, OrderedLeaf, Seek};
use crate::tree::{LeafView, Pages, Tree};
use crate::types::kind::{pages_for, Each, GivenElement, Kind, NewElement, Taker};
use crate::types::viewed::{bad_record, damaged, read_blob};
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// See the module.
pub(in crate::types) struct Streams;

impl Kind for Streams {
    fn dumped_as(&self) -> CollectionKind {
        CollectionKind::Stream
    }

    fn tree_of_elements(&self, grown: &Grown) -> Result<Tree, SaveError> {
        Ok(grown.first)
    }

    fn for_each_packed(&self, run: &[u8], _: bool, f: Each<'_>) -> Result<(), SaveError> {
        packed_records(run).try_for_each(|(key, value)| f(Element::Record { key, value }))
    }

    fn for_each_in_leaf(
        &self,
        pages: &dyn Pages,
        pid: PageId,
        leaf: &Page,
        f: Each<'_>,
    ) -> Result<(), SaveError> {
        let leaf = OrderedLeaf::new(leaf).ok_or_else(|| damaged("a leaf"))?;
        (0..leaf.count()).try_for_each(|slot| {
            let (_, value) = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
            let key = leaf.key(slot);
            if !value.is_outside {
                return f(Element::Record { key: &key, value: value.bytes });
            }
            let (blob, mut bytes) = (value.blob().ok_or_else(|| bad_record(pid))?, Vec::new());
            read_blob(pages, &blob, &mut bytes)?;
            f(Element::Record { key: &key, value: &bytes })
        })
    }

    fn give(
        &self,
        op: &mut Op<'_>,
        (db, key): (DbId, &Key<'_>),
        to: Taker<'_>,
        run: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let Taker { begin, give } = to;
        let at = at(db, key);
        let found = records::open_to_read(op, &at, run, |op, records| {
            begin(records.count());
            records.walk_up(op, &[], |key, value| {
                let element =
                    GivenElement { value: Given::Here(value), ..GivenElement::named(Given::Here(key)) };
                Ok(matches!(give(element), ControlFlow::Continue(())))
            })
        })?;
        Ok(found.is_some())
    }

    fn put(
        &self,
        worker: &mut Worker,
        (db, key): (DbId, &Key<'_>),
        elements: &[NewElement<'_>],
        _: bool,
    ) -> Result<u64, OpError> {
        let at = at(db, key);
        worker.with_run(|op, run| load::put(op, &at, elements, run))
    }

    fn copy(&self, op: &mut Op<'_>, from: &Grown, _: Made<'_>) -> Result<Grown, OpError> {
        let source = Records::of_tree(*from);
        if !op.keyspace.pages.all_resident() {
            // Everything is there before anything is made.
            source.walk_up(op, &[], |_, _| Ok(true))?;
        }
        let mut copy = Grown { element_count: 0, first: records::create(op)?, second: None };
        let copied = source.copy_to(op, &mut copy);
        copied.inspect_err(|_| collections::drop_trees(op.keyspace, &copy))?;
        Ok(copy)
    }

    fn page_count(&self, keyspace: &Keyspace, grown: &Grown) -> Result<u64, OpError> {
        let records_a_leaf = retry(|| {
            let guard = keyspace.streams.leaf_shared(grown.first, Seek::Last, None)?;
            Ok(as_leaf(guard.id(), guard.page())?.count() as u64)
        })?;
        Ok(pages_for(grown, records_a_leaf))
    }

    fn check(&self, grown: &Grown, pages: &mut PageCheck<'_>) -> Result<u64, Stop> {
        check::check_tree(grown.first, pages)
    }
}

//! What the store knows of hashes beside their commands.

use std::ops::ControlFlow;

use stillframe_pagepool::PageId;

use super::deadlines::expire_fields;
use super::field::{at, FieldMode};
use super::packed::packed_fields;
use super::read;
use crate::blobs::{Bytes, Made};
use crate::error::SaveError;
use crate::keyspace::{elements, Keyspace, Op, PageCheck};
use crate::page::Page;
use crate::rdb::{CollectionKind, Element};
use crate::stop::Stop;
use crate::tree::hash::Grown;
use crate::tree::{Pages, Tree};
use crate::types::kind::{pages_for, Each, GivenElement, Kind, NewElement, Taker};
use crate::types::viewed::for_each_record;
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError};

/// See the module.
pub(in crate::types) struct Hashes;

impl Kind for Hashes {
    fn dumped_as(&self) -> CollectionKind {
        CollectionKind::Hash
    }

    fn tree_of_elements(&self, grown: &Grown) -> Result<Tree, SaveError> {
        Ok(grown.first)
    }

    fn for_each_packed(&self, run: &[u8], is_timed: bool, f: Each<'_>) -> Result<(), SaveError> {
        packed_fields(run, is_timed)
            .try_for_each(|(field, value, deadline)| f(Element::Field { field, value, deadline }))
    }

    fn for_each_in_leaf(
        &self,
        pages: &dyn Pages,
        pid: PageId,
        leaf: &Page,
        f: Each<'_>,
    ) -> Result<(), SaveError> {
        for_each_record(pages, pid, leaf, |field, value, deadline| {
            f(Element::Field { field, value, deadline })
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
        read::for_each_timed(
            op,
            &at(db, key),
            begin,
            |name, value, deadline| -> ControlFlow<()> {
                give(GivenElement { name, value, score: 0.0, deadline })
            },
            run,
        )
    }

    /// Fields with one deadline are put together.
    fn put(
        &self,
        worker: &mut Worker,
        (db, key): (DbId, &Key<'_>),
        elements: &[NewElement<'_>],
        _: bool,
    ) -> Result<u64, OpError> {
        let mut added = 0;
        for same in elements.chunk_by(|a, b| a.deadline == b.deadline) {
            let pairs: Vec<(Bytes<'_>, Bytes<'_>)> =
                same.iter().map(|element| (element.name, element.value)).collect();
            let deadline = same.first().and_then(|element| element.deadline);
            let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
            added += worker.hash_at(db, key).set(&pairs, FieldMode::All, deadline)?;
        }
        Ok(added)
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

    fn expire(&self, op: &mut Op<'_>, (db, key): (DbId, &Key<'_>)) -> Result<bool, OpError> {
        expire_fields(op, db, key)
    }
}

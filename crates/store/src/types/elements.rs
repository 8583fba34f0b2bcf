//! The elements of a collection, whatever its type: counted, given and put.

use std::ops::ControlFlow;

use stillframe_pagepool::Reason;

use crate::error::SaveError;
use crate::keyspace::{collections, read, CollectionKey};
use crate::rdb::{CollectionKind, Element};
use crate::types::kind::{GivenElement, Kind, NewElement, Taker};
use crate::types::kinds;
use crate::value::ValueType;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

fn of(value_type: ValueType) -> Result<&'static dyn Kind, OpError> {
    kinds::of(value_type).ok_or(OpError::WrongType)
}

fn damaged(error: SaveError) -> OpError {
    OpError::Damaged(Reason::of(&error))
}

/// The collection at a key, whatever its type, for operations of one worker: each is an operation of its own.
pub struct CollectionAt<'w, 'k> {
    pub(super) worker: &'w mut Worker,
    pub(super) db: DbId,
    pub(super) key: Key<'k>,
}

impl Worker {
    /// The collection at a key, whether there is one or not.
    pub fn collection_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> CollectionAt<'_, 'k> {
        CollectionAt { worker: self, db, key: *key }
    }
}

#[allow(clippy::len_without_is_empty, reason = "a length is an operation, which may miss pages")]
impl CollectionAt<'_, '_> {
    /// How many elements the collection at a key has, those included whose time is over and which have not been removed yet; 0
    /// if there is none.
    ///
    /// # Errors
    /// [`OpError`], [`OpError::WrongType`] among them: a string.
    pub fn len(&mut self) -> Result<u64, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.with_run(|op, run| {
            let Some(entry) = read::entry(op, db, key)? else { return Ok(0) };
            let (kind, value_type) = (of(entry.value_type)?, entry.value_type);
            let at = CollectionKey { db, key: *key, value_type };
            let Some((opened, _lock)) = collections::open_to_read(op, &at, run)? else { return Ok(0) };
            if let Some(grown) = opened.grown {
                return Ok(grown.element_count);
            }
            let mut count = 0;
            let mut add = |_: Element<'_>| {
                count += 1;
                Ok(())
            };
            kind.for_each_packed(run, opened.earliest.is_some(), &mut add).map_err(damaged)?;
            Ok(count)
        })
    }

    /// Gives the elements of a collection whose time is not over to `f`, after how many there are to `begin`, until `f` breaks:
    /// those of a list in their order, those of a sorted set by score, others in any. What kind of collection it is; `None` if
    /// it is not there.
    ///
    /// # Errors
    /// [`OpError`], [`OpError::WrongType`] among them: a string. What was given does not count then.
    pub fn for_each(
        &mut self,
        mut begin: impl FnMut(CollectionKind, u64),
        mut f: impl FnMut(Element<'_>) -> ControlFlow<()>,
    ) -> Result<Option<CollectionKind>, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.with_run(|op, run| {
            let Some(entry) = read::entry(op, db, key)? else { return Ok(None) };
            let kind = of(entry.value_type)?;
            let dumped_as = kind.dumped_as();
            let mut give = |given: GivenElement<'_>| f(dumped_as.element(given.held()));
            let to = Taker { begin: &mut |count| begin(dumped_as, count), give: &mut give };
            let is_there = kind.give(op, (db, key), to, run)?;
            Ok(is_there.then_some(dumped_as))
        })
    }

    /// Puts elements into a collection of this kind, behind those that it has; it is made if there is none. Returns how many
    /// were not there before. `were_packed`: they come from a container that Redis takes over as it is, in which a score may be the
    /// negative zero.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; it may be tried again after a fault.
    pub fn put(
        &mut self,
        kind: CollectionKind,
        elements: &[NewElement<'_>],
        were_packed: bool,
    ) -> Result<u64, OpError> {
        let (db, key) = (self.db, &self.key);
        let kind = kinds::of_dumped(kind).ok_or(OpError::WrongType)?;
        kind.put(self.worker, (db, key), elements, were_packed)
    }
}

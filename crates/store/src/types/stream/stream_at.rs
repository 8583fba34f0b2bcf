//! A stream, for operations of one worker.

use super::change::{self, AddRule, Added, Marks, NewId};
use super::place::{at, StreamInfo};
use super::read::{self, EntryRange};
use super::trim::{self, Trim};
use crate::keyspace::CollectionKey;
use crate::worker::Worker;
use crate::{DbId, Key, OpError, StreamId};

/// The stream at a key, for operations of one worker: each is an operation of its own.
pub struct StreamAt<'w, 'k> {
    pub(super) worker: &'w mut Worker,
    pub(super) at: CollectionKey<'k>,
}

impl Worker {
    /// The stream at a key, whether there is one or not.
    #[inline]
    pub fn stream_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> StreamAt<'_, 'k> {
        StreamAt { worker: self, at: at(db, key) }
    }
}

#[allow(clippy::len_without_is_empty, reason = "a length is an operation, which may miss pages")]
impl StreamAt<'_, '_> {
    /// Adds an entry of these parts, a field, its value, a field, ..., to a stream that is made if there is none, unless the rule
    /// says otherwise.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn add(&mut self, id: NewId, parts: &[&[u8]], rule: &AddRule) -> Result<Added, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| change::add(op, &at, id, parts, rule, run))
    }

    /// Removes entries from the front; how many.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn trim(&mut self, trim: &Trim) -> Result<u64, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| trim::trim(op, &at, trim, run))
    }

    /// Removes entries; how many were there. A stream without entries stays.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove(&mut self, ids: &[StreamId]) -> Result<u64, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| change::remove(op, &at, ids, run))
    }

    /// What the stream says of itself; `None` if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn info(&mut self) -> Result<Option<StreamInfo>, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| read::info(op, &at, run))
    }

    /// Gives the entries of a range to `f`, with their parts, until that wants no more, after a call of `begin`: an operation that begins anew calls that again. Whether the
    /// stream is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn range(
        &mut self,
        range: &EntryRange,
        mut begin: impl FnMut(),
        mut f: impl FnMut(StreamId, &[&[u8]]) -> bool,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| {
            begin();
            read::range(op, &at, range, &mut f, run)
        })
    }

    /// Sets what `choose` makes of what the stream says of itself, and of the greatest ID of its entries (`0-0`: there are none);
    /// `None`: nothing. Whether the stream is there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn set_marks(
        &mut self,
        mut choose: impl FnMut(StreamInfo, StreamId) -> Option<Marks>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| change::set_marks(op, &at, &mut choose, run))
    }
}

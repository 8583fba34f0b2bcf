//! Hashes: fields with values. A small one is a run of fields and values in turn; a large one is a tree of fields in the
//! order of their hashes. A field may have a deadline; when it has passed the field counts as absent, but in the number of
//! fields, until the active expiry or a write removes it.

mod deadlines;
mod field;
mod kind;
mod packed;
mod random;
mod read;
mod renew;
mod write;

pub use field::{FieldMode, FieldRef, GivenField};
pub(in crate::types) use kind::Hashes;
pub use random::Draw;

use std::ops::ControlFlow;

use field::at;
use smallvec::SmallVec;

use crate::blobs::{Bytes, Given};
use crate::keyspace::{elements, CollectionKey};
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError, UnixMillis};

/// The hash at a key, for operations of one worker: each is an operation of its own.
pub struct HashAt<'w, 'k> {
    worker: &'w mut Worker,
    at: CollectionKey<'k>,
}

impl Worker {
    /// The hash at a key, whether there is one or not.
    #[inline]
    pub fn hash_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> HashAt<'_, 'k> {
        HashAt { worker: self, at: at(db, key) }
    }
}

#[allow(clippy::len_without_is_empty, reason = "a length is an operation, which may miss pages")]
impl HashAt<'_, '_> {
    /// Sets fields of a hash, which is made if there is none; `deadline` is what becomes of the deadline of each. Returns how
    /// many of them were not there before.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed. Whether there is memory for several together is decided before the first.
    pub fn set<'b>(
        &mut self,
        pairs: &[(impl Into<Bytes<'b>> + Copy, impl Into<Bytes<'b>> + Copy)],
        mode: FieldMode,
        deadline: Deadline,
    ) -> Result<u64, OpError> {
        let at = self.at;
        if pairs.is_empty() {
            return self.len().map(|_| 0);
        }
        let pairs: SmallVec<[(Bytes<'_>, Bytes<'_>); 1]> =
            pairs.iter().map(|pair| (pair.0.into(), pair.1.into())).collect();
        elements::check_given(
            self.worker.keyspace(),
            pairs.iter().flat_map(|(field, value)| [field, value]),
        )?;
        self.worker.with_run(|op, run| {
            write::set(op, &at, &write::FieldWrite { pairs: &pairs, mode, deadline }, run)
        })
    }

    /// Sets a field to what `renew` makes of its value, or of `None` if it is not there; the deadline stays. What `renew` refuses is
    /// returned, and nothing is changed. It is called under a latch, so it must not use the store, and perhaps more than once.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn renew<T: AsRef<[u8]>, E>(
        &mut self,
        field: &[u8],
        mut renew: impl FnMut(Option<&[u8]>) -> Result<T, E>,
    ) -> Result<Result<(), E>, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| renew::renew(op, &at, field, &mut renew, run))
    }

    /// Removes fields; with the last one the key goes. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove<'b>(&mut self, fields: &[impl Into<Bytes<'b>> + Copy]) -> Result<u64, OpError> {
        let at = self.at;
        let fields: SmallVec<[_; 2]> = fields.iter().map(|field| (*field).into()).collect();
        self.worker.with_run(|op, run| write::remove(op, &at, &fields, run))
    }

    /// Gives fields a deadline, or takes it away. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`HashAt::set`].
    pub fn set_deadline(&mut self, fields: &[&[u8]], deadline: Option<UnixMillis>) -> Result<u64, OpError> {
        let at = self.at;
        let fields: SmallVec<[_; 2]> = fields.iter().map(|field| Bytes::from(*field)).collect();
        self.worker.with_run(|op, run| deadlines::set_deadline(op, &at, &fields, deadline, run))
    }

    /// Gives `f` the value of each field, by the field's index, or `None`. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what `f` was given does not count then.
    pub fn get<'f>(
        &mut self,
        fields: impl Iterator<Item = impl Into<Bytes<'f>>> + Clone,
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |index, value: Option<Given<'_>>| f(index, value.map(Given::held));
        self.worker.with_run(|op, run| read::get(op, &at, fields.clone(), &mut give, run))
    }

    /// The same for a caller that takes large values where they lie.
    ///
    /// # Errors
    /// As of [`HashAt::get`].
    pub fn send<'f>(
        &mut self,
        fields: impl Iterator<Item = impl Into<Bytes<'f>>> + Clone,
        mut f: impl FnMut(usize, Option<Given<'_>>),
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::get(op, &at, fields.clone(), &mut f, run))
    }

    /// How many bytes the value of a field has, if it is there; and whether the hash is. No value is looked at.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn value_len<'f>(&mut self, field: impl Into<Bytes<'f>>) -> Result<(Option<u64>, bool), OpError> {
        let at = self.at;
        let field = field.into();
        self.worker.with_run(|op, run| read::value_len(op, &at, &field, run))
    }

    /// Gives `f` the deadline of each field that is there, by the field's index, or `None`.
    ///
    /// # Errors
    /// As of [`HashAt::get`].
    pub fn deadlines<'f>(
        &mut self,
        fields: impl Iterator<Item = &'f [u8]> + Clone,
        mut f: impl FnMut(usize, Option<Option<UnixMillis>>),
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| read::deadlines(op, &at, fields.clone(), &mut f, run))
    }

    /// Fields of a hash, those included whose time is over and which have not been removed yet; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn len(&mut self) -> Result<u64, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| read::len(op, &at, run))
    }

    /// Gives all fields and values to `f`, after how many there are to `begin`, until `f` breaks. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn for_each(
        &mut self,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(FieldRef<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |found: GivenField<'_>| f(found.held());
        self.worker.with_run(|op, run| read::for_each(op, &at, &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large ones where they lie.
    ///
    /// # Errors
    /// As of [`HashAt::for_each`].
    pub fn send_all(
        &mut self,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::for_each(op, &at, &mut begin, &mut f, run))
    }

    /// One step of an iteration, as [`Database::scan`](crate::Database::scan): gives about `count` fields from `cursor` on, and returns the next cursor, 0
    /// at the end; a hash that is called small comes as a whole. `None` if there is none.
    ///
    /// # Errors
    /// What `f` was given by this call does not count then.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(FieldRef<'_>),
    ) -> Result<Option<u64>, OpError> {
        let at = self.at;
        if !self.worker.waits() {
            let mut give = |found: GivenField<'_>| f(found.held());
            return self.worker.with_run(|op, run| read::scan(op, &at, (cursor, count), &mut give, run));
        }
        let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let next = self.worker.with_run(|op, run| {
            kept.clear();
            let keep = |found: GivenField<'_>| {
                let found = found.held();
                kept.push((found.field.to_vec(), found.value.to_vec()));
            };
            read::scan(op, &at, (cursor, count), keep, run)
        })?;
        kept.iter().for_each(|(field, value)| f(FieldRef { field, value }));
        Ok(next)
    }

    /// Gives random fields to `f`, after how many it will be to `begin`, until `f` breaks. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn random(
        &mut self,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(FieldRef<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |found: GivenField<'_>| f(found.held());
        self.worker.with_run(|op, run| random::random(op, &at, draw, &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large ones where they lie.
    ///
    /// # Errors
    /// As of [`HashAt::random`].
    pub fn send_random(
        &mut self,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| random::random(op, &at, draw, &mut begin, &mut f, run))
    }
}

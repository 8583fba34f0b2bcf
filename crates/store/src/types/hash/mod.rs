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
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, OpError, UnixMillis};

impl Worker {
    /// Sets fields of a hash, which is made if there is none; `deadline` is what becomes of the deadline of each. Returns how
    /// many of them were not there before.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed. Whether there is memory for several together is decided before the first.
    pub fn hash_set<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        pairs: &[(impl Into<Bytes<'b>> + Copy, impl Into<Bytes<'b>> + Copy)],
        mode: FieldMode,
        deadline: Deadline,
    ) -> Result<u64, OpError> {
        if pairs.is_empty() {
            return self.hash_len(db, key).map(|_| 0);
        }
        let pairs: SmallVec<[(Bytes<'_>, Bytes<'_>); 1]> =
            pairs.iter().map(|pair| (pair.0.into(), pair.1.into())).collect();
        self.keyspace().check_given(pairs.iter().flat_map(|(field, value)| [field, value]))?;
        self.with_run(|keyspace, local, run| {
            keyspace.hash_set(local, &at(db, key), &write::FieldWrite { pairs: &pairs, mode, deadline }, run)
        })
    }

    /// Sets a field to what `renew` makes of its value, or of `None` if it is not there; the deadline stays. What `renew` refuses is
    /// returned, and nothing is changed. It is called under a latch, so it must not use the store, and perhaps more than once.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn hash_renew<T: AsRef<[u8]>, E>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        field: &[u8],
        mut renew: impl FnMut(Option<&[u8]>) -> Result<T, E>,
    ) -> Result<Result<(), E>, OpError> {
        self.with_run(|keyspace, local, run| keyspace.hash_renew(local, &at(db, key), field, &mut renew, run))
    }

    /// Removes fields; with the last one the key goes. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn hash_remove<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        fields: &[impl Into<Bytes<'b>> + Copy],
    ) -> Result<u64, OpError> {
        let fields: SmallVec<[_; 2]> = fields.iter().map(|field| (*field).into()).collect();
        self.with_run(|keyspace, local, run| keyspace.hash_remove(local, &at(db, key), &fields, run))
    }

    /// Gives fields a deadline, or takes it away. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::hash_set`].
    pub fn hash_set_deadline(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        fields: &[&[u8]],
        deadline: Option<UnixMillis>,
    ) -> Result<u64, OpError> {
        let fields: SmallVec<[_; 2]> = fields.iter().map(|field| Bytes::from(*field)).collect();
        self.with_run(|keyspace, local, run| {
            keyspace.hash_set_deadline(local, &at(db, key), &fields, deadline, run)
        })
    }

    /// Gives `f` the value of each field, by the field's index, or `None`. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what `f` was given does not count then.
    pub fn hash_get<'f>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        fields: impl Iterator<Item = impl Into<Bytes<'f>>> + Clone,
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<bool, OpError> {
        let mut give = |index, value: Option<Given<'_>>| f(index, value.map(Given::held));
        self.with_run(|keyspace, local, run| {
            keyspace.hash_get(local, &at(db, key), fields.clone(), &mut give, run)
        })
    }

    /// The same for a caller that takes large values where they lie.
    ///
    /// # Errors
    /// As of [`Worker::hash_get`].
    pub fn hash_send<'f>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        fields: impl Iterator<Item = impl Into<Bytes<'f>>> + Clone,
        mut f: impl FnMut(usize, Option<Given<'_>>),
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.hash_get(local, &at(db, key), fields.clone(), &mut f, run)
        })
    }

    /// How many bytes the value of a field has, if it is there; and whether the hash is. No value is looked at.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn hash_value_len<'f>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        field: impl Into<Bytes<'f>>,
    ) -> Result<(Option<u64>, bool), OpError> {
        let field = field.into();
        self.with_run(|keyspace, local, run| keyspace.hash_value_len(local, &at(db, key), &field, run))
    }

    /// Gives `f` the deadline of each field that is there, by the field's index, or `None`.
    ///
    /// # Errors
    /// As of [`Worker::hash_get`].
    pub fn hash_deadlines<'f>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'f [u8]> + Clone,
        mut f: impl FnMut(usize, Option<Option<UnixMillis>>),
    ) -> Result<bool, OpError> {
        self.with_run(|keyspace, local, run| {
            keyspace.hash_deadlines(local, &at(db, key), fields.clone(), &mut f, run)
        })
    }

    /// Fields of a hash, those included whose time is over and which have not been removed yet; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn hash_len(&mut self, db: DbId, key: &Key<'_>) -> Result<u64, OpError> {
        self.with_run(|keyspace, local, run| keyspace.hash_len(local, &at(db, key), run))
    }

    /// Gives all fields and values to `f`, after how many there are to `begin`, until `f` breaks. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn hash_for_each(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(FieldRef<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let mut give = |found: GivenField<'_>| f(found.held());
        self.with_run(|keyspace, local, run| {
            keyspace.hash_for_each(local, &at(db, key), &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large ones where they lie.
    ///
    /// # Errors
    /// As of [`Worker::hash_for_each`].
    pub fn hash_send_all(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.hash_for_each(local, &at(db, key), &mut begin, &mut f, run)
        })
    }

    /// One step of an iteration, as [`Worker::scan`]: gives about `count` fields from `cursor` on, and returns the next cursor, 0
    /// at the end; a hash that is called small comes as a whole. `None` if there is none.
    ///
    /// # Errors
    /// What `f` was given by this call does not count then.
    pub fn hash_scan(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(FieldRef<'_>),
    ) -> Result<Option<u64>, OpError> {
        if !self.waits() {
            let mut give = |found: GivenField<'_>| f(found.held());
            return self.with_run(|keyspace, local, run| {
                keyspace.hash_scan(local, &at(db, key), (cursor, count), &mut give, run)
            });
        }
        let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let next = self.with_run(|keyspace, local, run| {
            kept.clear();
            let keep = |found: GivenField<'_>| {
                let found = found.held();
                kept.push((found.field.to_vec(), found.value.to_vec()));
            };
            keyspace.hash_scan(local, &at(db, key), (cursor, count), keep, run)
        })?;
        kept.iter().for_each(|(field, value)| f(FieldRef { field, value }));
        Ok(next)
    }

    /// Gives random fields to `f`, after how many it will be to `begin`, until `f` breaks. Whether the hash is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn hash_random(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(FieldRef<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let mut give = |found: GivenField<'_>| f(found.held());
        self.with_run(|keyspace, local, run| {
            keyspace.hash_random(local, &at(db, key), draw, &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large ones where they lie.
    ///
    /// # Errors
    /// As of [`Worker::hash_random`].
    pub fn hash_send_random(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.hash_random(local, &at(db, key), draw, &mut begin, &mut f, run)
        })
    }
}

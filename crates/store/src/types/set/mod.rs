//! Sets: members. A small one is a run of members, in ascending order if all are integers; a large one is a tree of members in
//! the order of their hashes.

mod change;
mod kind;
mod packed;
mod place;
mod pop;
mod read;
mod replace;

pub(in crate::types) use kind::Sets;

use std::ops::ControlFlow;

use smallvec::SmallVec;

use self::place::at;
use crate::blobs::{Bytes, Given};
use crate::types::hash::Draw;
use crate::value::Encoding;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

impl Worker {
    /// Adds members to a set, which is made if there is none. Returns how many were not there before.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed. Whether there is memory for several together is decided before the first.
    pub fn set_add<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        members: &[impl Into<Bytes<'b>> + Copy],
    ) -> Result<u64, OpError> {
        let members: SmallVec<[_; 2]> = members.iter().map(|member| (*member).into()).collect();
        self.keyspace().check_given(members.iter())?;
        self.with_run(|keyspace, local, run| keyspace.set_add(local, &at(db, key), &members, run))
    }

    /// Removes members; with the last one the key goes. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn set_remove<'b>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        members: &[impl Into<Bytes<'b>> + Copy],
    ) -> Result<u64, OpError> {
        let members: SmallVec<[_; 2]> = members.iter().map(|member| (*member).into()).collect();
        self.with_run(|keyspace, local, run| keyspace.set_remove(local, &at(db, key), &members, run))
    }

    /// Tells `f` of each member, by its index, whether it is there. Whether the set is there.
    ///
    /// # Errors
    /// [`OpError`]; what `f` was told does not count then.
    pub fn set_contains<'m>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        members: impl Iterator<Item = impl Into<Bytes<'m>>> + Clone,
        mut f: impl FnMut(usize, bool),
    ) -> Result<bool, OpError> {
        self.with_run(|keyspace, local, run| {
            keyspace.set_contains(local, &at(db, key), members.clone(), &mut f, run)
        })
    }

    /// Members of a set; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn set_len(&mut self, db: DbId, key: &Key<'_>) -> Result<u64, OpError> {
        self.with_run(|keyspace, local, run| keyspace.set_len(local, &at(db, key), run))
    }

    /// Gives all members to `f`, after how many there are to `begin`, until `f` breaks. Whether the set is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn set_for_each(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let mut give = |member: Given<'_>| f(member.held());
        self.with_run(|keyspace, local, run| {
            keyspace.set_for_each(local, &at(db, key), &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large members where they lie.
    ///
    /// # Errors
    /// As of [`Worker::set_for_each`].
    pub fn set_send_all(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.set_for_each(local, &at(db, key), &mut begin, &mut f, run)
        })
    }

    /// One step of an iteration: gives about `count` members to `f`; the next cursor, 0 at the end, or `None` if there is no
    /// such set. A member that is there throughout is given once. A small set comes as a whole.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn set_scan(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(&[u8]),
    ) -> Result<Option<u64>, OpError> {
        let step = (cursor, count);
        if !self.waits() {
            return self
                .with_run(|keyspace, local, run| keyspace.set_scan(local, &at(db, key), step, &mut f, run));
        }
        let mut kept: Vec<Vec<u8>> = Vec::new();
        let next = self.with_run(|keyspace, local, run| {
            kept.clear();
            keyspace.set_scan(local, &at(db, key), step, |member| kept.push(member.to_vec()), run)
        })?;
        kept.iter().for_each(|member| f(member));
        Ok(next)
    }

    /// Gives members that are drawn evenly to `f`, after how many they are to `begin`. Whether the set is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn set_random(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let mut give = |member: Given<'_>| f(member.held());
        self.with_run(|keyspace, local, run| {
            keyspace.set_random(local, &at(db, key), draw, &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large members where they lie; of several different ones none is given so.
    ///
    /// # Errors
    /// As of [`Worker::set_random`].
    pub fn set_send_random(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.set_random(local, &at(db, key), draw, &mut begin, &mut f, run)
        })
    }

    /// Removes up to `count` members that are drawn evenly, and gives them to `f`, after how many they are to `begin`. With the
    /// last one the key goes. Whether the set was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn set_pop(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]),
    ) -> Result<bool, OpError> {
        let mut give = |member: Given<'_>| f(member.held());
        self.with_run(|keyspace, local, run| {
            keyspace.set_pop(local, &at(db, key), count, &mut begin, &mut give, run)
        })
    }

    /// The same for a caller that takes large members where they lie: their pages are freed once the last byte has been read.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::set_pop`].
    pub fn set_send_popped(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>),
    ) -> Result<bool, OpError> {
        self.with_run_taking(|keyspace, local, run| {
            keyspace.set_pop(local, &at(db, key), count, &mut begin, &mut f, run)
        })
    }

    /// Moves a member from one set to another; the caller holds locks on both; a waiting worker takes them. Whether
    /// it was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn set_move<'b>(
        &mut self,
        db: DbId,
        from: &Key<'_>,
        to: &Key<'_>,
        member: impl Into<Bytes<'b>>,
    ) -> Result<bool, OpError> {
        let (member, is_same) = (member.into(), from.bytes == to.bytes);
        self.keyspace().check_given([member].iter())?;
        let _locks = self.lock_if_waiting([(db, from), (db, to)]);
        self.with_run(|keyspace, local, run| {
            keyspace.set_move(local, &at(db, from), &at(db, to), is_same, member, run)
        })
    }

    /// Stores a set of these members, no two of them alike, over whatever is there, without a deadline. Without members the key
    /// goes. `begun_as`: how the set was encoded before others were taken out of it, if they were.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`], [`OpError::Twice`] among them; nothing has been changed.
    pub fn set_replace(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        members: &[&[u8]],
        begun_as: Option<Encoding>,
    ) -> Result<(), OpError> {
        if members.is_empty() {
            return self.remove(db, key).map(drop);
        }
        self.run(|keyspace, local| keyspace.set_replace(local, &at(db, key), members, begun_as))
    }
}

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
use crate::keyspace::{elements, CollectionKey};
use crate::types::hash::Draw;
use crate::value::Encoding;
use crate::worker::{lock_if_waiting, Worker};
use crate::{DbId, Key, OpError};

/// The set at a key, for operations of one worker: each is an operation of its own.
pub struct SetAt<'w, 'k> {
    worker: &'w mut Worker,
    at: CollectionKey<'k>,
}

impl Worker {
    /// The set at a key, whether there is one or not.
    #[inline]
    pub fn set_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> SetAt<'_, 'k> {
        SetAt { worker: self, at: at(db, key) }
    }
}

#[allow(clippy::len_without_is_empty, reason = "a length is an operation, which may miss pages")]
impl SetAt<'_, '_> {
    /// Adds members to a set, which is made if there is none. Returns how many were not there before.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed. Whether there is memory for several together is decided before the first.
    pub fn add<'b>(&mut self, members: &[impl Into<Bytes<'b>> + Copy]) -> Result<u64, OpError> {
        let at = self.at;
        let members: SmallVec<[_; 2]> = members.iter().map(|member| (*member).into()).collect();
        elements::check_given(self.worker.keyspace(), members.iter())?;
        self.worker.with_run(|op, run| change::add(op, &at, &members, run))
    }

    /// Removes members; with the last one the key goes. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove<'b>(&mut self, members: &[impl Into<Bytes<'b>> + Copy]) -> Result<u64, OpError> {
        let at = self.at;
        let members: SmallVec<[_; 2]> = members.iter().map(|member| (*member).into()).collect();
        self.worker.with_run(|op, run| change::remove(op, &at, &members, run))
    }

    /// Tells `f` of each member, by its index, whether it is there. Whether the set is there.
    ///
    /// # Errors
    /// [`OpError`]; what `f` was told does not count then.
    pub fn contains<'m>(
        &mut self,
        members: impl Iterator<Item = impl Into<Bytes<'m>>> + Clone,
        mut f: impl FnMut(usize, bool),
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| read::contains(op, &at, members.clone(), &mut f, run))
    }

    /// Members of a set; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn len(&mut self) -> Result<u64, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| read::len(op, &at, run))
    }

    /// Gives all members to `f`, after how many there are to `begin`, until `f` breaks. Whether the set is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn for_each(
        &mut self,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |member: Given<'_>| f(member.held());
        self.worker.with_run(|op, run| read::for_each(op, &at, &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large members where they lie.
    ///
    /// # Errors
    /// As of [`SetAt::for_each`].
    pub fn send_all(
        &mut self,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::for_each(op, &at, &mut begin, &mut f, run))
    }

    /// One step of an iteration: gives about `count` members to `f`; the next cursor, 0 at the end, or `None` if there is no
    /// such set. A member that is there throughout is given once. A small set comes as a whole.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(&[u8]),
    ) -> Result<Option<u64>, OpError> {
        let at = self.at;
        let step = (cursor, count);
        if !self.worker.waits() {
            return self.worker.with_run(|op, run| read::scan(op, &at, step, &mut f, run));
        }
        let mut kept: Vec<Vec<u8>> = Vec::new();
        let next = self.worker.with_run(|op, run| {
            kept.clear();
            read::scan(op, &at, step, |member| kept.push(member.to_vec()), run)
        })?;
        kept.iter().for_each(|member| f(member));
        Ok(next)
    }

    /// Gives members that are drawn evenly to `f`, after how many they are to `begin`. Whether the set is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn random(
        &mut self,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |member: Given<'_>| f(member.held());
        self.worker.with_run(|op, run| read::random(op, &at, draw, &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large members where they lie; of several different ones none is given so.
    ///
    /// # Errors
    /// As of [`SetAt::random`].
    pub fn send_random(
        &mut self,
        draw: Draw,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::random(op, &at, draw, &mut begin, &mut f, run))
    }

    /// Removes up to `count` members that are drawn evenly, and gives them to `f`, after how many they are to `begin`. With the
    /// last one the key goes. Whether the set was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn pop(
        &mut self,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8]),
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |member: Given<'_>| f(member.held());
        self.worker.with_run(|op, run| pop::pop(op, &at, count, &mut begin, &mut give, run))
    }

    /// The same for a caller that takes large members where they lie: their pages are freed once the last byte has been read.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`SetAt::pop`].
    pub fn send_popped(
        &mut self,
        count: u64,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>),
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| pop::pop(op, &at, count, &mut begin, &mut f, run))
    }

    /// Stores a set of these members, no two of them alike, over whatever is there, without a deadline. Without members the key
    /// goes. `begun_as`: how the set was encoded before others were taken out of it, if they were.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`], [`OpError::Twice`] among them; nothing has been changed.
    pub fn replace(&mut self, members: &[&[u8]], begun_as: Option<Encoding>) -> Result<(), OpError> {
        let at = self.at;
        if members.is_empty() {
            return self.worker.remove(at.db, &at.key).map(drop);
        }
        self.worker.run(|op| replace::replace(op, &at, members, begun_as))
    }

    /// Moves a member to another set of the same database; the caller holds locks on both; a waiting worker takes them. Whether
    /// it was there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn move_to<'b>(&mut self, to: &Key<'_>, member: impl Into<Bytes<'b>>) -> Result<bool, OpError> {
        let at = self.at;
        let (member, is_same) = (member.into(), at.key.bytes == to.bytes);
        elements::check_given(self.worker.keyspace(), [member].iter())?;
        let _locks = lock_if_waiting(self.worker, [(at.db, &at.key), (at.db, to)]);
        self.worker.with_run(|op, run| {
            change::move_member(op, &at, &CollectionKey { key: *to, ..at }, is_same, member, run)
        })
    }
}

//! A group of a stream, for operations of one worker.

use super::claim::{self, AutoClaimed, ClaimRule};
use super::groups::{self, ConsumerInfo, GroupInfo, GroupMade, GroupStart, NoGroup, OpenGroup};
use super::pending::{self, GroupRead, GroupReadDone};
use super::records::{open_to_read, Records};
use super::show::{self, PendingInfo, PendingRange, PendingSummary};
use super::stream_at::StreamAt;
use crate::keyspace::{CollectionKey, Op};
use crate::worker::Worker;
use crate::{OpError, StreamId};

/// A group of the stream at a key, whether there is one or not: each is an operation of its own.
pub struct GroupAt<'w, 'k> {
    worker: &'w mut Worker,
    at: CollectionKey<'k>,
    name: &'k [u8],
}

impl<'w, 'k> StreamAt<'w, 'k> {
    /// A group of consumers, by its name.
    pub fn group(self, name: &'k [u8]) -> GroupAt<'w, 'k> {
        GroupAt { worker: self.worker, at: self.at, name }
    }
}

impl StreamAt<'_, '_> {
    /// What all groups say of themselves, by name; `None`: there is no stream.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn groups(&mut self) -> Result<Option<Vec<GroupInfo>>, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| open_to_read(op, &at, run, groups::list))
    }
}

/// What is found by reading a group, or that there is none.
type Found<R> = Result<Result<R, NoGroup>, OpError>;

fn look<R>(
    op: &mut Op<'_>,
    (at, name): (&CollectionKey<'_>, &[u8]),
    run: &mut Vec<u8>,
    f: impl FnOnce(&mut Op<'_>, &Records<'_>, &OpenGroup) -> Result<R, OpError>,
) -> Found<R> {
    let found = open_to_read(op, at, run, |op, stream| match OpenGroup::find(op, stream, name)? {
        None => Ok(None),
        Some(open) => f(op, stream, &open).map(Some),
    })?;
    Ok(found.ok_or(NoGroup::NoStream).and_then(|found| found.ok_or(NoGroup::NoGroup)))
}

impl GroupAt<'_, '_> {
    /// What the group says of itself.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn info(&mut self) -> Found<GroupInfo> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| {
            look(op, (&at, name), run, |_, stream, open| Ok(groups::info_of(&open.group, stream)))
        })
    }

    /// Makes the group, and the stream if that is asked for and there is none.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)), as all changes here are.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn create(&mut self, start: &GroupStart, makes_stream: bool) -> Result<GroupMade, OpError> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| groups::create(op, &at, name, start, makes_stream, run))
    }

    /// Has the group go on elsewhere.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn set(&mut self, start: &GroupStart) -> Found<()> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| groups::set(op, &at, name, start, run))
    }

    /// Removes the group with all that is pending.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove(&mut self) -> Found<()> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| groups::remove(op, &at, name, run))
    }

    /// Makes a consumer; whether there was none.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn add_consumer(&mut self, consumer: &[u8]) -> Found<bool> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| groups::add_consumer(op, &at, (name, consumer), run))
    }

    /// Removes a consumer with what it owns; how much that was, `None` if there was no such consumer.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove_consumer(&mut self, consumer: &[u8]) -> Found<Option<u64>> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| groups::remove_consumer(op, &at, (name, consumer), run))
    }

    /// Gives a consumer entries, after a call of `begin`: an operation that begins anew calls that again. An entry without parts has
    /// gone from the stream.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn read(
        &mut self,
        consumer: &[u8],
        asked: &GroupRead,
        mut begin: impl FnMut(),
        mut f: impl FnMut(StreamId, Option<&[&[u8]]>),
    ) -> Found<GroupReadDone> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| {
            begin();
            pending::read(op, &at, (name, consumer), asked, &mut f, run)
        })
    }

    /// Entries are pending no longer; how many were.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn acknowledge(&mut self, ids: &[StreamId]) -> Found<u64> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| pending::acknowledge(op, &at, name, ids, run))
    }

    /// Entries change their owner, and are given to `f`, as of [`GroupAt::read`].
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    pub fn claim(
        &mut self,
        consumer: &[u8],
        ids: &[StreamId],
        rule: &ClaimRule,
        mut begin: impl FnMut(),
        mut f: impl FnMut(StreamId, Option<&[&[u8]]>),
    ) -> Found<()> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| {
            begin();
            claim::claim(op, &at, (name, consumer), ids, rule, &mut f, run)
        })
    }

    /// The same of those that are pending from an ID on, so many at most.
    ///
    /// # Errors
    /// As of [`GroupAt::claim`].
    pub fn auto_claim(
        &mut self,
        consumer: &[u8],
        (from, most): (StreamId, u64),
        rule: &ClaimRule,
        mut begin: impl FnMut(),
        mut f: impl FnMut(StreamId, Option<&[&[u8]]>),
    ) -> Found<AutoClaimed> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| {
            begin();
            claim::auto_claim(op, &at, (name, consumer), (from, most), rule, &mut f, run)
        })
    }

    /// What is pending, in short.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn pending_summary(&mut self) -> Found<PendingSummary> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| look(op, (&at, name), run, show::summary))
    }

    /// What is pending.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn pending(&mut self, wanted: &PendingRange<'_>) -> Found<Vec<PendingInfo>> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| {
            look(op, (&at, name), run, |op, stream, open| show::range(op, stream, open, wanted))
        })
    }

    /// The group's consumers, by name.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn consumers(&mut self) -> Found<Vec<ConsumerInfo>> {
        let (at, name) = (self.at, self.name);
        self.worker.with_run(|op, run| look(op, (&at, name), run, show::consumers))
    }
}

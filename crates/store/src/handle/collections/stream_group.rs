//! A handle on a group of consumers of a stream.

use std::cell::RefCell;
use std::time::Duration;

use super::place::HandleKey;
use super::stream_entry::{OwnedEntries, StreamEntry};
use super::stream_error::StreamError;
use crate::{
    AutoClaimed, ClaimRule, ConsumerInfo, GroupAt, GroupInfo, GroupRead, GroupReadDone, GroupStart, NoGroup,
    OpError, PendingInfo, PendingRange, PendingSummary, StreamId,
};

/// A thread's access to a group of consumers of a stream: the group gives each entry to one of them, which owns it, as pending, until
/// it is acknowledged or another consumer claims it.
///
/// A consumer is a name, and is made when it first gets something. Times are in milliseconds.
///
/// ```
/// # use std::time::Duration;
/// # use stillframe_store::{GroupStart, Options, Store, StreamId};
/// # let dir = std::env::temp_dir().join(format!("stillframe-doc-group-{}", std::process::id()));
/// let store = Store::open(&dir, Options::default())?;
/// let jobs = store.stream("jobs");
/// jobs.create_group("workers", &GroupStart::FIRST)?;
/// let (first, second) = (jobs.append(&[("job", "1")])?, jobs.append(&[("job", "2")])?);
/// let workers = jobs.group("workers");
/// assert_eq!(workers.read("ada", 1)?[0].id, first);
/// assert_eq!(workers.read("bob", 1)?[0].id, second);
/// assert_eq!(workers.ack(&[first])?, 1);
/// // Bob has gone: Ada takes over what he owns.
/// let (claimed, _) = workers.auto_claim("ada", StreamId::MIN, 10, Duration::ZERO)?;
/// assert_eq!(claimed[0].id, second);
/// # drop((workers, jobs, store));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StreamGroup {
    key: HandleKey,
    name: Vec<u8>,
}

/// As of operations on a group: an error of the store, or there is no group.
type Found<R> = Result<Result<R, NoGroup>, OpError>;

/// Milliseconds; what is longer than they can say is for ever.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl StreamGroup {
    pub(super) fn new(key: HandleKey, name: &[u8]) -> StreamGroup {
        StreamGroup { key, name: name.to_vec() }
    }

    /// The key of the stream.
    pub fn key(&self) -> &[u8] {
        self.key.key()
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn look<R>(&self, mut operation: impl FnMut(GroupAt<'_, '_>) -> Found<R>) -> Result<R, StreamError> {
        let found =
            self.key.read(|worker, db, key| operation(worker.stream_at(db, key).group(&self.name)))?;
        Ok(found?)
    }

    fn change<R>(&self, mut operation: impl FnMut(GroupAt<'_, '_>) -> Found<R>) -> Result<R, StreamError> {
        let found =
            self.key.write(|worker, db, key| operation(worker.stream_at(db, key).group(&self.name)))?;
        Ok(found?)
    }

    /// What the group says of itself.
    ///
    /// # Errors
    /// [`StreamError::NoGroup`], [`StreamError::NoStream`]: there is none; [`StreamError::Op`], with [`OpError::WrongType`] if the key has
    /// a value of another type.
    pub fn info(&self) -> Result<GroupInfo, StreamError> {
        self.look(|mut group| group.info())
    }

    /// Has the group go on elsewhere: entries that it gave out before are given out again. What is pending stays so.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn set_start(&self, start: &GroupStart) -> Result<(), StreamError> {
        self.change(|mut group| group.set(start))
    }

    /// Gives a consumer entries that no consumer has got, so many at most, as one step to every cut and view. It owns them from now on.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn read(&self, consumer: impl AsRef<[u8]>, most: u64) -> Result<Vec<StreamEntry>, StreamError> {
        let asked = GroupRead { history_after: None, most, no_ack: false };
        Ok(self.taken(consumer.as_ref(), &asked)?.entries)
    }

    /// Gives a consumer again what it owns already, behind an ID, so many at most; their deliveries are counted. One that begins anew gets
    /// with [`StreamId::MIN`] what it had when it ended. A consumer that is not there is made.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn read_again(
        &self,
        consumer: impl AsRef<[u8]>,
        after: StreamId,
        most: u64,
    ) -> Result<OwnedEntries, StreamError> {
        let asked = GroupRead { history_after: Some(after), most, no_ack: false };
        self.taken(consumer.as_ref(), &asked)
    }

    fn taken(&self, consumer: &[u8], asked: &GroupRead) -> Result<OwnedEntries, StreamError> {
        let taken = RefCell::new(OwnedEntries::default());
        let take = |id, parts: Option<&[&[u8]]>| taken.borrow_mut().take(id, parts);
        self.read_with(consumer, asked, || taken.borrow_mut().clear(), take)?;
        Ok(taken.into_inner())
    }

    /// Gives a consumer what it asks for, as of [`StreamGroup::read`] and [`StreamGroup::read_again`], or without coming to own it: `f` gets an
    /// ID, and a field, its value, a field, ..., where they lie, or nothing if the entry has gone. `f` is called under a latch: every use of
    /// the store in it is [`OpError::Busy`]. Where pages are missing it begins anew: `begin` is called then, and what was given before
    /// does not count.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`]; then what `f` has been given does not count.
    pub fn read_with(
        &self,
        consumer: impl AsRef<[u8]>,
        asked: &GroupRead,
        mut begin: impl FnMut(),
        mut f: impl FnMut(StreamId, Option<&[&[u8]]>),
    ) -> Result<GroupReadDone, StreamError> {
        self.change(|mut group| group.read(consumer.as_ref(), asked, &mut begin, &mut f))
    }

    /// Ends that entries are pending, whoever owns them, as one step to every cut and view; how many were.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn ack(&self, ids: &[StreamId]) -> Result<u64, StreamError> {
        self.change(|mut group| group.acknowledge(ids))
    }

    /// What is pending, in short.
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn pending(&self) -> Result<PendingSummary, StreamError> {
        self.look(|mut group| group.pending_summary())
    }

    /// What is pending, entry by entry, the least ID first; see [`PendingRange::of`].
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn pending_entries(&self, wanted: &PendingRange<'_>) -> Result<Vec<PendingInfo>, StreamError> {
        self.look(|mut group| group.pending(wanted))
    }

    /// Has a consumer own entries that are pending and were delivered at least so long ago, whoever owns them now, as one step to every
    /// cut and view: those that it has got so. An entry that has gone from the stream is pending no longer.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn claim(
        &self,
        consumer: impl AsRef<[u8]>,
        ids: &[StreamId],
        min_idle: Duration,
    ) -> Result<Vec<StreamEntry>, StreamError> {
        self.claim_with(consumer, ids, &ClaimRule::new(millis(min_idle), false))
    }

    /// The same as a rule says.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn claim_with(
        &self,
        consumer: impl AsRef<[u8]>,
        ids: &[StreamId],
        rule: &ClaimRule,
    ) -> Result<Vec<StreamEntry>, StreamError> {
        let taken = RefCell::new(OwnedEntries::default());
        // Entries come between two changes: no code of a caller runs there.
        let take = |id, parts: Option<&[&[u8]]>| taken.borrow_mut().take(id, parts);
        let clear = || taken.borrow_mut().clear();
        self.change(|mut group| group.claim(consumer.as_ref(), ids, rule, clear, take))?;
        Ok(taken.into_inner().entries)
    }

    /// Has a consumer own what is pending from an ID on and was delivered at least so long ago, so many at most, as one step to every cut
    /// and view; ten times as many are looked at. Where the next call goes on says [`AutoClaimed::next`]: `0-0` is the end.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn auto_claim(
        &self,
        consumer: impl AsRef<[u8]>,
        from: StreamId,
        most: u64,
        min_idle: Duration,
    ) -> Result<(Vec<StreamEntry>, AutoClaimed), StreamError> {
        let (rule, taken) = (ClaimRule::new(millis(min_idle), false), RefCell::new(OwnedEntries::default()));
        let take = |id, parts: Option<&[&[u8]]>| taken.borrow_mut().take(id, parts);
        let clear = || taken.borrow_mut().clear();
        let claimed =
            self.change(|mut group| group.auto_claim(consumer.as_ref(), (from, most), &rule, clear, take))?;
        Ok((taken.into_inner().entries, claimed))
    }

    /// The group's consumers, by name.
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn consumers(&self) -> Result<Vec<ConsumerInfo>, StreamError> {
        self.look(|mut group| group.consumers())
    }

    /// Makes a consumer that owns nothing; whether it is new.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn add_consumer(&self, consumer: impl AsRef<[u8]>) -> Result<bool, StreamError> {
        self.change(|mut group| group.add_consumer(consumer.as_ref()))
    }

    /// Removes a consumer; how many entries it owned, which no other gets then unless [`StreamGroup::set_start`] goes back. `None`: it was
    /// not there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`StreamGroup::info`].
    pub fn remove_consumer(&self, consumer: impl AsRef<[u8]>) -> Result<Option<u64>, StreamError> {
        self.change(|mut group| group.remove_consumer(consumer.as_ref()))
    }
}

impl std::fmt::Debug for StreamGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, name) = (String::from_utf8_lossy(self.key()), String::from_utf8_lossy(&self.name));
        write!(f, "StreamGroup({key}, {name})")
    }
}

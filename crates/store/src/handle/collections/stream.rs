//! A handle on a stream.

use std::cell::RefCell;
use std::ops::{ControlFlow, RangeBounds};

use super::place::HandleKey;
use super::stream_entry::StreamEntry;
use super::stream_error::StreamError;
use super::stream_group::StreamGroup;
use crate::{
    AddRule, Added, EntryRange, GroupInfo, GroupMade, GroupStart, NewId, NoGroup, OpError, Store, StreamId,
    StreamInfo, Trim,
};

/// A thread's access to the stream at a key of database 0: entries of fields with values, with IDs that ascend, and groups of
/// consumers ([`Stream::group`]). Unlike other collections it stays when its last entry has gone, with its groups and its last ID.
///
/// An ID is a time in milliseconds since the Unix epoch, and a number among the entries of that time. Appending takes O(log n), and
/// so does finding an entry. Nothing here waits for entries to come. For the rest see [`crate::Hash`].
///
/// ```
/// # use stillframe_store::{Options, Store, Trim};
/// # let dir = std::env::temp_dir().join(format!("stillframe-doc-stream-{}", std::process::id()));
/// let store = Store::open(&dir, Options::default())?;
/// let events = store.stream("events");
/// let first = events.append(&[("user", "ada"), ("what", "login")])?;
/// let second = events.append(&[("user", "bob"), ("what", "login")])?;
/// assert!(second > first && events.last_id()? == second);
/// assert_eq!(events.get(first)?.unwrap().get("user"), Some(&b"ada"[..]));
/// assert_eq!(events.range(first.., 10)?.len(), 2);
/// assert_eq!(events.trim(&Trim::max_len(1))?, 1);
/// # drop((events, store));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stream(HandleKey);

impl Store {
    /// A handle on the stream at a key, for this thread. Nothing is made before the first entry is appended, or the first group made.
    pub fn stream(&self, key: impl AsRef<[u8]>) -> Stream {
        Stream(HandleKey::new(self, key.as_ref()))
    }
}

/// An entry that has been appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    pub id: StreamId,
    /// How many entries the rule has taken from the front.
    pub trimmed_count: u64,
}

impl Stream {
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Appends an entry of these fields; its ID, which is of now, or the next after the last if that is later.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`StreamError::Op`], with [`OpError::WrongType`] if the key has a value of another type; [`StreamError::NoFields`],
    /// [`StreamError::IdsExhausted`].
    pub fn append(&self, fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<StreamId, StreamError> {
        self.append_at(NewId::Any, fields)
    }

    /// The same with an ID: a [`StreamId`], or [`NewId::OfMillis`], the next of a millisecond.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Stream::append`]; [`StreamError::IdNotAbove`], [`StreamError::IdIsZero`].
    pub fn append_at(
        &self,
        id: impl Into<NewId>,
        fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
    ) -> Result<StreamId, StreamError> {
        Ok(self.append_with(id, fields, &AddRule::default())?.id)
    }

    /// The same as the rule says: only to a stream that is there, and with entries taken from the front afterwards, as one step to every
    /// cut and view.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Stream::append_at`]; [`StreamError::NoStream`].
    ///
    /// ```
    /// # use stillframe_store::{AddRule, NewId, Options, Store, StreamId, Trim};
    /// # let dir = std::env::temp_dir().join(format!("stillframe-doc-append-{}", std::process::id()));
    /// let store = Store::open(&dir, Options::default())?;
    /// let last_two = AddRule::trimmed(Trim::max_len(2));
    /// for second in 1..=5 {
    ///     store.stream("ticks").append_with(NewId::OfMillis(second * 1000), &[("n", "1")], &last_two)?;
    /// }
    /// let ids = store.stream("ticks").range(.., 10)?.into_iter().map(|entry| entry.id);
    /// assert!(ids.eq([StreamId::new(4000, 0), StreamId::new(5000, 0)]));
    /// # drop(store);
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn append_with(
        &self,
        id: impl Into<NewId>,
        fields: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
        rule: &AddRule,
    ) -> Result<Appended, StreamError> {
        if fields.is_empty() {
            // The log has an entry as a command, which must have one.
            return Err(StreamError::NoFields);
        }
        let id = id.into();
        let parts: Vec<&[u8]> =
            fields.iter().flat_map(|(field, value)| [field.as_ref(), value.as_ref()]).collect();
        match self.0.write(|worker, db, key| worker.stream_at(db, key).add(id, &parts, rule))? {
            Added::Done { id, trimmed_count } => Ok(Appended { id, trimmed_count }),
            Added::NoStream => Err(StreamError::NoStream),
            Added::IsZero => Err(StreamError::IdIsZero),
            Added::NotAbove => Err(StreamError::IdNotAbove),
            Added::Exhausted => Err(StreamError::IdsExhausted),
        }
    }

    /// What the stream says of itself; `None` if there is none.
    ///
    /// # Errors
    /// [`OpError`]; [`OpError::WrongType`]: the key has a value of another type.
    pub fn info(&self) -> Result<Option<StreamInfo>, OpError> {
        self.0.read(|worker, db, key| worker.stream_at(db, key).info())
    }

    /// Entries that there are.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn len(&self) -> Result<u64, OpError> {
        Ok(self.info()?.map_or(0, |info| info.len))
    }

    /// Whether there is no entry; the stream may be there.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn is_empty(&self) -> Result<bool, OpError> {
        Ok(self.len()? == 0)
    }

    /// The greatest ID that there has been; `0-0` if there has been none. Entries behind it are `(Excluded(last), Unbounded)`.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn last_id(&self) -> Result<StreamId, OpError> {
        Ok(self.info()?.map_or(StreamId::MIN, |info| info.last))
    }

    /// The entry of an ID.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn get(&self, id: StreamId) -> Result<Option<StreamEntry>, OpError> {
        Ok(self.range(id..=id, 1)?.pop())
    }

    /// Gives the entries of a range to `f`, with a field, its value, a field, ..., where they lie, until it breaks. `f` is called under a
    /// latch: every use of the store in it is [`OpError::Busy`]. Where pages are missing it may begin anew: `begin` is called then, and
    /// what was given before does not count.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn for_each(
        &self,
        range: &EntryRange,
        mut begin: impl FnMut(),
        mut f: impl FnMut(StreamId, &[&[u8]]) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        self.0.read(|worker, db, key| {
            let give = |id, parts: &[&[u8]]| f(id, parts).is_continue();
            worker.stream_at(db, key).range(range, &mut begin, give).map(drop)
        })
    }

    fn entries(&self, range: &EntryRange) -> Result<Vec<StreamEntry>, OpError> {
        let entries = RefCell::new(Vec::new());
        self.for_each(
            range,
            || entries.borrow_mut().clear(),
            |id, parts| {
                entries.borrow_mut().push(StreamEntry::new(id, parts));
                ControlFlow::Continue(())
            },
        )?;
        Ok(entries.into_inner())
    }

    /// The entries with these IDs, the first one first, so many at most.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn range(&self, ids: impl RangeBounds<StreamId>, most: u64) -> Result<Vec<StreamEntry>, OpError> {
        self.entries(&EntryRange::of(ids).at_most(most))
    }

    /// The entries with these IDs, the last one first, so many at most. The range is as of [`Stream::range`]: from the least ID to the
    /// greatest.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn rev(&self, ids: impl RangeBounds<StreamId>, most: u64) -> Result<Vec<StreamEntry>, OpError> {
        self.entries(&EntryRange::of(ids).downwards().at_most(most))
    }

    /// Removes entries as one step to every cut and view; how many were there. What is pending of them in groups stays so.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn remove(&self, ids: &[StreamId]) -> Result<u64, OpError> {
        self.0.write(|worker, db, key| worker.stream_at(db, key).remove(ids))
    }

    /// Removes entries from the front; how many. What is pending of them in groups stays so.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn trim(&self, trim: &Trim) -> Result<u64, OpError> {
        self.0.write(|worker, db, key| worker.stream_at(db, key).trim(trim))
    }

    /// Makes a group of consumers, and the stream if there is none; whether it is new. One that is there stays as it is.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn create_group(&self, name: impl AsRef<[u8]>, start: &GroupStart) -> Result<bool, OpError> {
        let name = name.as_ref();
        let made =
            self.0.write(|worker, db, key| worker.stream_at(db, key).group(name).create(start, true))?;
        Ok(made == GroupMade::Done)
    }

    /// Removes a group with its consumers and all that is pending; whether it was there. The entries stay.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn destroy_group(&self, name: impl AsRef<[u8]>) -> Result<bool, OpError> {
        let name = name.as_ref();
        match self.0.write(|worker, db, key| worker.stream_at(db, key).group(name).remove())? {
            Ok(()) => Ok(true),
            Err(NoGroup::NoStream | NoGroup::NoGroup) => Ok(false),
        }
    }

    /// What all groups say of themselves, by name.
    ///
    /// # Errors
    /// As of [`Stream::info`].
    pub fn groups(&self) -> Result<Vec<GroupInfo>, OpError> {
        let groups = self.0.read(|worker, db, key| worker.stream_at(db, key).groups())?;
        Ok(groups.unwrap_or_default())
    }

    /// A handle on a group of consumers, for this thread. [`Stream::create_group`] makes the group.
    pub fn group(&self, name: impl AsRef<[u8]>) -> StreamGroup {
        StreamGroup::new(self.0.clone(), name.as_ref())
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", String::from_utf8_lossy(self.key()))
    }
}

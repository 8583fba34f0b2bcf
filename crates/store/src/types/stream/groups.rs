//! Groups and their consumers.

use super::distance;
use super::records::{malformed, Records};
use crate::effect::{Change, Effect};
use crate::entries::group::{self, Consumer, ConsumerNumber, Group, GroupKeys, Part, Pending};
use crate::key::unix_ms;
use crate::keyspace::{CollectionKey, Op};
use crate::{OpError, StreamId};

/// Records that are removed after one walk.
const RECORDS_TOGETHER: usize = 256;

/// What an operation on a group came to where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoGroup {
    NoStream,
    NoGroup,
}

/// Where a group begins, or goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupStart {
    /// Behind this ID; `None`: behind the last.
    pub after: Option<StreamId>,
    /// Entries up to there, if that is known.
    pub read_count: Option<u64>,
}

impl GroupStart {
    /// All entries that there are, and those to come.
    pub const FIRST: GroupStart = GroupStart { after: Some(StreamId::MIN), read_count: None };
    /// Only entries to come.
    pub const LAST: GroupStart = GroupStart { after: None, read_count: None };

    /// Entries behind this ID.
    pub fn after(id: StreamId) -> GroupStart {
        GroupStart { after: Some(id), read_count: None }
    }
}

/// What making a group came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupMade {
    Done,
    NoStream,
    Exists,
}

/// A group as it says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    pub name: Vec<u8>,
    pub consumer_count: u64,
    pub pending_count: u64,
    /// The greatest ID that it has given out.
    pub last: StreamId,
    /// Entries that it has given out, with those before its start; `None`: nobody knows.
    pub read_count: Option<u64>,
    /// Entries that it has not given out; `None`: nobody knows.
    pub lag: Option<u64>,
}

/// A consumer as it says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerInfo {
    pub name: Vec<u8>,
    pub pending_count: u64,
    /// When it last asked for something, in milliseconds since the Unix epoch.
    pub seen_ms: i64,
    /// When it last got something; below 0: never.
    pub active_ms: i64,
}

/// A group that an operation works on.
pub(super) struct OpenGroup {
    pub keys: GroupKeys,
    pub group: Group,
}

impl OpenGroup {
    /// # Errors
    /// [`OpError`].
    pub fn find(op: &mut Op<'_>, stream: &Records<'_>, name: &[u8]) -> Result<Option<OpenGroup>, OpError> {
        let keys = GroupKeys::new(name);
        let found = stream.get(op, &keys.group(), |value| value.map(Group::parse))?;
        let Some(group) = found else { return Ok(None) };
        Ok(Some(OpenGroup { keys, group: group.ok_or_else(malformed)? }))
    }

    /// # Errors
    /// [`OpError`].
    pub fn store(&self, op: &mut Op<'_>, stream: &mut Records<'_>) -> Result<(), OpError> {
        stream.put(op, &self.keys.group(), &self.group.encode())
    }

    /// A consumer by its name.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn find_consumer(
        &self,
        op: &mut Op<'_>,
        stream: &Records<'_>,
        name: &[u8],
    ) -> Result<Option<OpenConsumer>, OpError> {
        let number = stream.get(op, &self.keys.named(name), |value| {
            value.map(|number| number.try_into().map(u32::from_be_bytes))
        })?;
        let Some(number) = number else { return Ok(None) };
        let number = ConsumerNumber(number.map_err(|_| malformed())?);
        self.consumer(op, stream, number).map(Some)
    }

    /// A consumer by its number.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn consumer(
        &self,
        op: &mut Op<'_>,
        stream: &Records<'_>,
        number: ConsumerNumber,
    ) -> Result<OpenConsumer, OpError> {
        let consumer =
            stream.get(op, &self.keys.consumer(number), |value| value.and_then(Consumer::parse))?;
        Ok(OpenConsumer { number, consumer: consumer.ok_or_else(malformed)?, is_new: false })
    }

    /// The consumer of this name, which is new if there is none; it is stored later.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn consumer_for(
        &mut self,
        op: &mut Op<'_>,
        stream: &Records<'_>,
        name: &[u8],
    ) -> Result<OpenConsumer, OpError> {
        if let Some(found) = self.find_consumer(op, stream, name)? {
            return Ok(found);
        }
        let number = ConsumerNumber(self.group.next_number);
        self.group.next_number = number.0.checked_add(1).ok_or(OpError::NoRoom)?;
        self.group.consumer_count += 1;
        // A replay has no clock: it sees the consumer now.
        let seen_ms = if op.local.now > 0 { op.local.now } else { unix_ms() };
        let consumer = Consumer { name: name.to_vec(), seen_ms, active_ms: -1, pending_count: 0 };
        Ok(OpenConsumer { number, consumer, is_new: true })
    }

    /// # Errors
    /// [`OpError`].
    pub fn pending(
        &self,
        op: &mut Op<'_>,
        stream: &Records<'_>,
        id: StreamId,
    ) -> Result<Option<Pending>, OpError> {
        let found = stream.get(op, &self.keys.pending(id), |value| value.map(Pending::parse))?;
        found.map(|pending| pending.ok_or_else(malformed)).transpose()
    }

    /// Whether an entry of this ID or a greater one is pending.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn has_pending_from(
        &self,
        op: &mut Op<'_>,
        stream: &Records<'_>,
        id: StreamId,
    ) -> Result<bool, OpError> {
        let mut is_pending = false;
        stream.walk_up_together(
            op,
            &self.keys.pending(id),
            |_, _| true,
            |key, _| {
                is_pending = matches!(self.keys.part(key), Some(Part::Pending(_)));
                Ok(false)
            },
        )?;
        Ok(is_pending)
    }

    /// Gives the consumers to `f`, in the order of their numbers.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn for_each_consumer(
        &self,
        op: &mut Op<'_>,
        stream: &Records<'_>,
        mut f: impl FnMut(ConsumerNumber, Consumer),
    ) -> Result<(), OpError> {
        let mut from = Some(ConsumerNumber(0));
        while let Some(number) = from {
            from = None;
            // The walk goes past what a consumer owns: a seek for the next one costs less than that.
            stream.walk_up(op, &self.keys.consumer(number), |key, value| match self.keys.part(key) {
                Some(Part::Consumer(number)) => {
                    let consumer = Consumer::parse(value).ok_or_else(malformed)?;
                    let owns_much = consumer.pending_count > RECORDS_TOGETHER as u64;
                    f(number, consumer);
                    if owns_much {
                        from = number.0.checked_add(1).map(ConsumerNumber);
                        return Ok(false);
                    }
                    Ok(true)
                }
                Some(Part::Owned(..)) => Ok(true),
                _ => Ok(false),
            })?;
        }
        Ok(())
    }
}

/// A consumer that an operation works on.
pub(super) struct OpenConsumer {
    pub number: ConsumerNumber,
    pub consumer: Consumer,
    pub is_new: bool,
}

impl OpenConsumer {
    /// # Errors
    /// [`OpError`].
    pub fn store(&self, op: &mut Op<'_>, stream: &mut Records<'_>, keys: &GroupKeys) -> Result<(), OpError> {
        if self.is_new {
            stream.put(op, &keys.named(&self.consumer.name), &self.number.0.to_be_bytes())?;
        }
        stream.put(op, &keys.consumer(self.number), &self.consumer.encode())
    }
}

pub(super) fn tell(op: &Op<'_>, at: &CollectionKey<'_>, change: Change<'_>, is_new: bool) {
    op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
}

pub(super) fn create(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    name: &[u8],
    start: &GroupStart,
    makes_stream: bool,
    run: &mut Vec<u8>,
) -> Result<GroupMade, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let mut stream = Records::open_to_change(op, at, run)?;
    let is_new = !stream.is_there();
    if is_new && !makes_stream {
        return Ok(GroupMade::NoStream);
    }
    if OpenGroup::find(op, &stream, name)?.is_some() {
        return Ok(GroupMade::Exists);
    }
    let last = start.after.unwrap_or(stream.head.last);
    let group = Group { name: name.to_vec(), last, read_count: start.read_count, ..Group::default() };
    OpenGroup { keys: GroupKeys::new(name), group }.store(op, &mut stream)?;
    stream.head.group_count += 1;
    stream.store(op)?;
    let change = Change::GroupSet { group: name, last, read_count: start.read_count, is_new_group: true };
    tell(op, at, change, is_new);
    Ok(GroupMade::Done)
}

/// Gives the group that an operation is about to `f`, with the stream, which `f` stores.
pub(super) fn with_group<'r, R>(
    op: &mut Op<'_>,
    at: &CollectionKey<'r>,
    name: &[u8],
    run: &'r mut Vec<u8>,
    f: impl FnOnce(&mut Op<'_>, Records<'r>, OpenGroup) -> Result<R, OpError>,
) -> Result<Result<R, NoGroup>, OpError> {
    let keyspace = op.keyspace;
    let _lock = keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let mut op = Op { keyspace, local: &mut *op.local };
    let stream = Records::open_to_change(&mut op, at, run)?;
    if !stream.is_there() {
        return Ok(Err(NoGroup::NoStream));
    }
    match OpenGroup::find(&mut op, &stream, name)? {
        None => Ok(Err(NoGroup::NoGroup)),
        Some(group) => f(&mut op, stream, group).map(Ok),
    }
}

pub(super) fn set(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    name: &[u8],
    start: &GroupStart,
    run: &mut Vec<u8>,
) -> Result<Result<(), NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, mut open| {
        let (last, read_count) = (start.after.unwrap_or(stream.head.last), start.read_count);
        (open.group.last, open.group.read_count) = (last, read_count);
        open.store(op, &mut stream)?;
        stream.store(op)?;
        tell(op, at, Change::GroupSet { group: name, last, read_count, is_new_group: false }, false);
        Ok(())
    })
}

pub(super) fn remove(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    name: &[u8],
    run: &mut Vec<u8>,
) -> Result<Result<(), NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, open| {
        stream.remove_range(op, &open.keys.group(), &open.keys.after(), |_| 0)?;
        stream.head.group_count -= 1;
        stream.store(op)?;
        tell(op, at, Change::GroupRemoved { group: name }, false);
        Ok(())
    })
}

pub(super) fn add_consumer(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (name, consumer): (&[u8], &[u8]),
    run: &mut Vec<u8>,
) -> Result<Result<bool, NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, mut open| {
        let added = open.consumer_for(op, &stream, consumer)?;
        if !added.is_new {
            return Ok(false);
        }
        stream.resolve_keys(op, [open.keys.consumer(added.number)].into_iter())?;
        let _admitted = stream.admit(op, [2 * consumer.len(); 3].into_iter())?;
        added.store(op, &mut stream, &open.keys)?;
        open.store(op, &mut stream)?;
        stream.store(op)?;
        tell(op, at, Change::ConsumerAdded { group: name, consumer }, false);
        Ok(true)
    })
}

/// How many entries were pending; `None`: there is no such consumer.
pub(super) fn remove_consumer(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (name, consumer): (&[u8], &[u8]),
    run: &mut Vec<u8>,
) -> Result<Result<Option<u64>, NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, mut open| {
        let Some(gone) = open.find_consumer(op, &stream, consumer)? else { return Ok(None) };
        let pending_count = gone.consumer.pending_count;
        loop {
            let mut owned = Vec::new();
            stream.walk_up(op, &open.keys.owned(gone.number, StreamId::MIN), |key, _| {
                match open.keys.part(key) {
                    Some(Part::Owned(number, id)) if number == gone.number => owned.push(id),
                    _ => return Ok(false),
                }
                Ok(owned.len() < RECORDS_TOGETHER)
            })?;
            for id in &owned {
                stream.remove(op, &open.keys.pending(*id))?;
                stream.remove(op, &open.keys.owned(gone.number, *id))?;
            }
            if owned.len() < RECORDS_TOGETHER {
                break;
            }
        }
        stream.remove(op, &open.keys.named(consumer))?;
        stream.remove(op, &open.keys.consumer(gone.number))?;
        open.group.pending_count -= pending_count.min(open.group.pending_count);
        open.group.consumer_count -= 1;
        open.store(op, &mut stream)?;
        stream.store(op)?;
        tell(op, at, Change::ConsumerRemoved { group: name, consumer }, false);
        Ok(Some(pending_count))
    })
}

/// What all groups say of themselves, in the order of their names.
pub(super) fn list(op: &mut Op<'_>, stream: &Records<'_>) -> Result<Vec<GroupInfo>, OpError> {
    let (mut all, mut from) = (Vec::new(), Some(group::FIRST_GROUP.to_vec()));
    while let Some(bound) = from.take() {
        stream.walk_up(op, &bound, |key, value| {
            let Some((keys, Part::Group)) = group::of_key(key) else { return Ok(false) };
            let group = Group::parse(value).ok_or_else(malformed)?;
            all.push(info_of(&group, stream));
            // The other records of a group are behind it.
            from = Some(keys.after().to_vec());
            Ok(false)
        })?;
    }
    all.sort_by(|one: &GroupInfo, other| one.name.cmp(&other.name));
    Ok(all)
}

pub(super) fn info_of(group: &Group, stream: &Records<'_>) -> GroupInfo {
    GroupInfo {
        name: group.name.clone(),
        consumer_count: u64::from(group.consumer_count),
        pending_count: group.pending_count,
        last: group.last,
        read_count: group.read_count,
        lag: distance::lag(&stream.head, group),
    }
}

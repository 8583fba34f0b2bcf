//! Entries that consumers get, own and acknowledge.

use smallvec::SmallVec;

use super::distance;
use super::groups::{tell, with_group, NoGroup, OpenConsumer, OpenGroup};
use super::read::{self, EntryRange};
use super::records::{malformed, Records};
use crate::effect::Change;
use crate::entries::group::{ConsumerNumber, Part, Pending};
use crate::keyspace::{CollectionKey, Op};
use crate::{OpError, StreamId};

/// What a consumer asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupRead {
    /// What it owns already, behind this ID; `None`: what nobody has got.
    pub history_after: Option<StreamId>,
    pub most: u64,
    /// It does not come to own what it gets.
    pub no_ack: bool,
}

/// What a read by a consumer came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupReadDone {
    /// The consumer is new.
    pub is_new_consumer: bool,
    /// There is nothing that nobody has got: nothing has been changed.
    pub has_nothing: bool,
}

/// An entry that is given to a consumer; without parts it has gone from the stream.
pub(super) type Give<'f> = &'f mut dyn FnMut(StreamId, Option<&[&[u8]]>);

/// What was there of an entry that a group gives out: its owner before.
type Owned = (StreamId, Option<Pending>);

pub(super) fn read(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (name, consumer): (&[u8], &[u8]),
    asked: &GroupRead,
    give: Give<'_>,
    run: &mut Vec<u8>,
) -> Result<Result<GroupReadDone, NoGroup>, OpError> {
    with_group(op, at, name, run, |op, stream, open| match asked.history_after {
        Some(after) => read_history(op, at, stream, open, consumer, (after, asked.most), give),
        None => read_new(op, at, stream, open, consumer, asked, give),
    })
}

fn read_new(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    mut stream: Records<'_>,
    mut open: OpenGroup,
    name: &[u8],
    asked: &GroupRead,
    give: Give<'_>,
) -> Result<GroupReadDone, OpError> {
    let nothing = GroupReadDone { is_new_consumer: false, has_nothing: true };
    let Some(from) = open.group.last.next() else { return Ok(nothing) };
    let range = EntryRange { from, to: StreamId::MAX, is_downwards: false, most: asked.most };
    let mut ids = Vec::new();
    read::up(op, &stream, &range, &mut |id, parts| {
        ids.push(id);
        give(id, Some(parts));
        true
    })?;
    if ids.is_empty() {
        return Ok(nothing);
    }
    let mut consumer = open.consumer_for(op, &stream, name)?;
    let mut owned: Vec<Owned> = Vec::new();
    if !asked.no_ack {
        let is_clear = op.keyspace.pages.all_resident() && !open.has_pending_from(op, &stream, from)?;
        for id in &ids {
            owned.push((*id, if is_clear { None } else { open.pending(op, &stream, *id)? }));
        }
        resolve(op, &stream, &open, consumer.number, &owned)?;
    }
    let _admitted = stream.admit(op, small_records(2 * owned.len()))?;
    (consumer.consumer.seen_ms, consumer.consumer.active_ms) = (op.local.now, op.local.now);
    for (id, before) in &owned {
        let pending = Pending { consumer: consumer.number, time_ms: op.local.now, count: 1 };
        own(op, &mut stream, &mut open, &mut consumer, (*id, *before), pending)?;
    }
    for id in &ids {
        open.group.read_count = distance::after_reading(&stream.head, &open.group, *id);
        open.group.last = *id;
    }
    store(op, &mut stream, &open, &consumer)?;
    stream.store(op)?;
    announce_new(op, at, &open, &consumer, &owned);
    Ok(GroupReadDone { is_new_consumer: consumer.is_new, has_nothing: false })
}

fn announce_new(
    op: &Op<'_>,
    at: &CollectionKey<'_>,
    open: &OpenGroup,
    consumer: &OpenConsumer,
    owned: &[Owned],
) {
    let (group, name) = (&open.group.name[..], &consumer.consumer.name[..]);
    if consumer.is_new {
        tell(op, at, Change::ConsumerAdded { group, consumer: name }, false);
    }
    for (id, _) in owned {
        let change = Change::PendingSet { group, consumer: name, id: *id, time: op.local.now, count: 1 };
        tell(op, at, change, false);
    }
    let (last, read_count) = (open.group.last, open.group.read_count);
    tell(op, at, Change::GroupSet { group, last, read_count, is_new_group: false }, false);
}

/// Bytes of a record of a group with its key, about.
const SMALL_RECORD_BYTES: usize = 64;
/// Those of a consumer, the group and a name beside them.
const RECORDS_BESIDE: usize = 4;

/// The lengths of so many records of pending entries, with those that go along.
pub(super) fn small_records(count: usize) -> impl ExactSizeIterator<Item = usize> {
    std::iter::repeat_n(SMALL_RECORD_BYTES, count + RECORDS_BESIDE)
}

/// Has what owning entries changes in memory, before the first is owned (C1).
pub(super) fn resolve(
    op: &mut Op<'_>,
    stream: &Records<'_>,
    open: &OpenGroup,
    number: ConsumerNumber,
    owned: &[Owned],
) -> Result<(), OpError> {
    let before = |(id, before): &Owned| before.map(|before| open.keys.owned(before.consumer, *id));
    let keys = owned
        .iter()
        .flat_map(|owned| [Some(open.keys.owned(number, owned.0)), before(owned)])
        .flatten()
        .chain([open.keys.consumer(number)]);
    stream.resolve_keys(op, keys)
}

/// A consumer comes to own an entry, which another may have owned.
pub(super) fn own(
    op: &mut Op<'_>,
    stream: &mut Records<'_>,
    open: &mut OpenGroup,
    consumer: &mut OpenConsumer,
    (id, before): Owned,
    pending: Pending,
) -> Result<(), OpError> {
    let number = consumer.number;
    match before {
        Some(before) if before.consumer == number => {}
        Some(before) => {
            stream.remove(op, &open.keys.owned(before.consumer, id))?;
            owns_less(op, stream, open, before.consumer, 1)?;
            stream.put(op, &open.keys.owned(number, id), &[])?;
            consumer.consumer.pending_count += 1;
        }
        None => {
            stream.put(op, &open.keys.owned(number, id), &[])?;
            consumer.consumer.pending_count += 1;
            open.group.pending_count += 1;
        }
    }
    stream.put(op, &open.keys.pending(id), &pending.encode())
}

/// Stores the group, and a consumer of it.
fn store(
    op: &mut Op<'_>,
    stream: &mut Records<'_>,
    open: &OpenGroup,
    consumer: &OpenConsumer,
) -> Result<(), OpError> {
    consumer.store(op, stream, &open.keys)?;
    open.store(op, stream)
}

/// The entry of an ID, if it is there.
pub(super) fn give_one(
    op: &mut Op<'_>,
    stream: &Records<'_>,
    id: StreamId,
    f: &mut dyn FnMut(StreamId, &[&[u8]]),
) -> Result<bool, OpError> {
    let mut is_there = false;
    let range = EntryRange { from: id, to: id, is_downwards: false, most: 1 };
    read::up(op, stream, &range, &mut |id, parts| {
        is_there = true;
        f(id, parts);
        true
    })?;
    Ok(is_there)
}

fn read_history(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    mut stream: Records<'_>,
    mut open: OpenGroup,
    name: &[u8],
    (after, most): (StreamId, u64),
    give: Give<'_>,
) -> Result<GroupReadDone, OpError> {
    let mut consumer = open.consumer_for(op, &stream, name)?;
    let number = consumer.number;
    let mut ids = Vec::new();
    if let Some(from) = after.next().filter(|_| most > 0) {
        stream.walk_up(op, &open.keys.owned(number, from), |key, _| {
            match open.keys.part(key) {
                Some(Part::Owned(of, id)) if of == number => ids.push(id),
                _ => return Ok(false),
            }
            Ok((ids.len() as u64) < most)
        })?;
    }
    let mut again: Vec<(StreamId, Pending)> = Vec::new();
    for id in &ids {
        let pending = open.pending(op, &stream, *id)?.ok_or_else(malformed)?;
        match give_one(op, &stream, *id, &mut |id, parts| give(id, Some(parts)))? {
            true => {
                let pending =
                    Pending { time_ms: op.local.now, count: pending.count.saturating_add(1), ..pending };
                again.push((*id, pending));
            }
            false => give(*id, None),
        }
    }
    let _admitted = stream.admit(op, small_records(again.len()))?;
    consumer.consumer.seen_ms = op.local.now;
    for (id, pending) in &again {
        stream.put(op, &open.keys.pending(*id), &pending.encode())?;
    }
    let is_new = consumer.is_new;
    store(op, &mut stream, &open, &consumer)?;
    stream.store(op)?;
    let group = &open.group.name[..];
    if is_new {
        tell(op, at, Change::ConsumerAdded { group, consumer: name }, false);
    }
    for (id, Pending { time_ms, count, .. }) in again {
        tell(op, at, Change::PendingSet { group, consumer: name, id, time: time_ms, count }, false);
    }
    Ok(GroupReadDone { is_new_consumer: is_new, has_nothing: false })
}

/// Removes pending entries; how many there were.
pub(super) fn acknowledge(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    name: &[u8],
    ids: &[StreamId],
    run: &mut Vec<u8>,
) -> Result<Result<u64, NoGroup>, OpError> {
    with_group(op, at, name, run, |op, mut stream, mut open| {
        let (mut ids, mut found) = (ids.to_vec(), Vec::new());
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            found.extend(open.pending(op, &stream, id)?.map(|was| (id, was.consumer)));
        }
        if found.is_empty() {
            return Ok(0);
        }
        let keys =
            found.iter().flat_map(|(id, owner)| [open.keys.owned(*owner, *id), open.keys.consumer(*owner)]);
        stream.resolve_keys(op, keys)?;
        forget(op, &mut stream, &mut open, &found)?;
        open.store(op, &mut stream)?;
        stream.store(op)?;
        for (id, _) in &found {
            tell(op, at, Change::PendingRemoved { group: name, id: *id }, false);
        }
        Ok(found.len() as u64)
    })
}

/// Entries are pending no longer; with each the consumer that has owned it.
pub(super) fn forget(
    op: &mut Op<'_>,
    stream: &mut Records<'_>,
    open: &mut OpenGroup,
    entries: &[(StreamId, ConsumerNumber)],
) -> Result<(), OpError> {
    let mut owners: SmallVec<[(ConsumerNumber, u64); 4]> = SmallVec::new();
    for (id, number) in entries {
        stream.remove(op, &open.keys.pending(*id))?;
        stream.remove(op, &open.keys.owned(*number, *id))?;
        match owners.iter_mut().find(|(owner, _)| owner == number) {
            Some((_, count)) => *count += 1,
            None => owners.push((*number, 1)),
        }
    }
    open.group.pending_count = open.group.pending_count.saturating_sub(entries.len() as u64);
    owners.into_iter().try_for_each(|(number, count)| owns_less(op, stream, open, number, count))
}

/// A consumer owns so many entries less.
fn owns_less(
    op: &mut Op<'_>,
    stream: &mut Records<'_>,
    open: &OpenGroup,
    number: ConsumerNumber,
    count: u64,
) -> Result<(), OpError> {
    let mut owner = open.consumer(op, stream, number)?;
    owner.consumer.pending_count = owner.consumer.pending_count.saturating_sub(count);
    owner.store(op, stream, &open.keys)
}

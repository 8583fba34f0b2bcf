//! Records that come from elsewhere: from a dump, in its order, the head last.

use std::collections::BTreeMap;

use super::groups::{self, tell, GroupInfo, OpenGroup};
use super::records::{malformed, Records};
use crate::blobs::Bytes;
use crate::effect::Change;
use crate::entries::block::Block;
use crate::entries::group::{self, Part, Pending};
use crate::entries::{base_of, Head, HEAD_KEY};
use crate::keyspace::{CollectionKey, Op};
use crate::types::kind::NewElement;
use crate::{OpError, StreamId};

/// What a record of a dump is, with its bytes.
type New = (Vec<u8>, Vec<u8>);

fn copied(bytes: &Bytes<'_>) -> Result<Vec<u8>, OpError> {
    match bytes.here() {
        Some(here) => Ok(here.to_vec()),
        None => bytes.to_vec(),
    }
}

/// Puts records behind those that the stream has. How many they were.
pub(super) fn put(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    elements: &[NewElement<'_>],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let new: Vec<New> = elements
        .iter()
        .map(|element| Ok((copied(&element.name)?, copied(&element.value)?)))
        .collect::<Result<_, OpError>>()?;
    let mut stream = Records::open_to_change(op, at, run)?;
    let mut is_new = !stream.is_there();
    let _admitted = stream.admit(op, new.iter().map(|(key, value)| key.len() + value.len()))?;
    for (key, value) in &new {
        if key == HEAD_KEY {
            take_head(&mut stream, Head::parse(value).ok_or_else(malformed)?)?;
        } else {
            take_other(op, &mut stream, key, value)?;
        }
    }
    stream.store(op)?;
    for (key, value) in &new {
        announce(op, at, (key, value), &mut is_new)?;
    }
    if new.iter().any(|(key, _)| key == HEAD_KEY) {
        // Nothing more of it comes.
        let stream = Records::open_to_change(op, at, run)?;
        announce_groups(op, at, &stream)?;
    }
    Ok(new.len() as u64)
}

/// The last of a stream's records: what it says beside what its entries say.
fn take_head(stream: &mut Records<'_>, new: Head) -> Result<(), OpError> {
    let head = &mut stream.head;
    if new.last < head.last {
        return Err(malformed());
    }
    (head.last, head.max_deleted, head.added_count) = (new.last, new.max_deleted, new.added_count);
    if head.len > 0 {
        head.last_node = new.last_node;
    }
    Ok(())
}

fn take_other(op: &mut Op<'_>, stream: &mut Records<'_>, key: &[u8], value: &[u8]) -> Result<(), OpError> {
    let Some(base) = base_of(key) else {
        let (_, part) = group::of_key(key).ok_or_else(malformed)?;
        stream.head.group_count += u64::from(part == Part::Group);
        return stream.put(op, key, value);
    };
    let block = Block::new(base, value);
    let (mut first, mut last) = (None, stream.head.last);
    for entry in block.entries() {
        let entry = entry.ok_or_else(malformed)?;
        if entry.id <= last {
            return Err(malformed());
        }
        first = first.or(Some(entry.id));
        last = entry.id;
    }
    let first = first.ok_or_else(malformed)?;
    stream.put(op, key, value)?;
    let head = &mut stream.head;
    if head.len == 0 {
        head.first = first;
    }
    head.len += block.count();
    head.added_count += block.count();
    head.node_count += block.node_count();
    (head.last, head.last_block) = (last, base);
    Ok(())
}

fn announce(
    op: &Op<'_>,
    at: &CollectionKey<'_>,
    (key, value): (&[u8], &[u8]),
    is_new: &mut bool,
) -> Result<(), OpError> {
    if key == HEAD_KEY {
        let head = Head::parse(value).ok_or_else(malformed)?;
        let Head { last, added_count, max_deleted, .. } = head;
        tell(op, at, Change::StreamMarked { last, added_count, max_deleted }, std::mem::take(is_new));
    } else if let Some(base) = base_of(key) {
        for entry in Block::new(base, value).entries() {
            let entry = entry.ok_or_else(malformed)?;
            let change = Change::EntryAdded { id: entry.id, parts: &entry.parts };
            tell(op, at, change, std::mem::take(is_new));
        }
    }
    Ok(())
}

/// Tells of all groups of a stream, as if they were made now.
fn announce_groups(op: &mut Op<'_>, at: &CollectionKey<'_>, stream: &Records<'_>) -> Result<(), OpError> {
    for GroupInfo { name, .. } in groups::list(op, stream)? {
        let open = OpenGroup::find(op, stream, &name)?.ok_or_else(malformed)?;
        let (last, read_count, group) = (open.group.last, open.group.read_count, &name[..]);
        tell(op, at, Change::GroupSet { group, last, read_count, is_new_group: true }, false);
        let mut names = BTreeMap::new();
        open.for_each_consumer(op, stream, |number, consumer| {
            names.insert(number, consumer.name);
        })?;
        for consumer in names.values() {
            tell(op, at, Change::ConsumerAdded { group, consumer }, false);
        }
        let mut pending = Vec::new();
        stream.walk_up(op, &open.keys.pending(StreamId::MIN), |key, value| {
            let Some(Part::Pending(id)) = open.keys.part(key) else { return Ok(false) };
            pending.push((id, Pending::parse(value).ok_or_else(malformed)?));
            Ok(true)
        })?;
        for (id, Pending { consumer, time_ms, count }) in pending {
            let consumer = names.get(&consumer).ok_or_else(malformed)?;
            tell(op, at, Change::PendingSet { group, consumer, id, time: time_ms, count }, false);
        }
    }
    Ok(())
}

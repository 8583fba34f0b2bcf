//! Records that come from elsewhere: from a dump, in its order, the head last.

use super::records::{malformed, Records};
use crate::blobs::Bytes;
use crate::effect::{Change, Effect};
use crate::entries::block::Block;
use crate::entries::{base_of, Head, HEAD_KEY};
use crate::keyspace::{CollectionKey, Op};
use crate::types::kind::NewElement;
use crate::OpError;

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
    for (key, value) in &new {
        if key == HEAD_KEY {
            take_head(&mut stream, Head::parse(value).ok_or_else(malformed)?)?;
        } else {
            take_block(op, &mut stream, key, value)?;
        }
    }
    stream.store(op)?;
    for (key, value) in &new {
        announce(op, at, (key, value), &mut is_new)?;
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

fn take_block(op: &mut Op<'_>, stream: &mut Records<'_>, key: &[u8], value: &[u8]) -> Result<(), OpError> {
    let base = base_of(key).ok_or_else(malformed)?;
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
    stream.put(op, key, value, false)?;
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
    let Some(base) = base_of(key) else {
        let head = Head::parse(value).ok_or_else(malformed)?;
        let Head { last, added_count, max_deleted, .. } = head;
        tell(op, at, Change::StreamMarked { last, added_count, max_deleted }, is_new);
        return Ok(());
    };
    for entry in Block::new(base, value).entries() {
        let entry = entry.ok_or_else(malformed)?;
        tell(op, at, Change::EntryAdded { id: entry.id, parts: &entry.parts }, is_new);
    }
    Ok(())
}

fn tell(op: &Op<'_>, at: &CollectionKey<'_>, change: Change<'_>, is_new: &mut bool) {
    let is_new = std::mem::take(is_new);
    op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
}

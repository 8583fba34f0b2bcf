//! Entries that are added and removed, one by one.

use super::node::{self, NodeLimits};
use super::place::StreamInfo;
use super::records::{malformed, Records};
use super::trim::{self, Trim};
use crate::effect::{Change, Effect};
use crate::entries::block::{self, Block};
use crate::entries::{base_of, block_key, LastNode, AFTER_BLOCKS};
use crate::keyspace::{CollectionKey, Op};
use crate::{OpError, StreamId};

/// Which ID a new entry is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewId {
    /// The time of the command, or the next after the last.
    Any,
    /// Of this millisecond the next.
    OfMillis(u64),
    Exact(StreamId),
}

impl From<StreamId> for NewId {
    fn from(id: StreamId) -> NewId {
        NewId::Exact(id)
    }
}

/// How an entry is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddRule {
    /// Only to a stream that is there.
    pub only_present: bool,
    /// What is taken from the stream's front afterwards.
    pub trim: Option<Trim>,
}

impl AddRule {
    /// To a stream that is made if there is none, and trimmed afterwards.
    pub fn trimmed(trim: Trim) -> AddRule {
        AddRule { only_present: false, trim: Some(trim) }
    }
}

/// What adding an entry came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// With how many others have been trimmed.
    Done {
        id: StreamId,
        trimmed_count: u64,
    },
    NoStream,
    /// The ID is `0-0`.
    IsZero,
    /// The stream has, or has had, an entry of this ID or a greater one.
    NotAbove,
    /// There is no ID above the last.
    Exhausted,
}

/// The ID of a new entry behind `last`.
fn new_id(wanted: NewId, last: StreamId, now_ms: u64) -> Result<StreamId, Added> {
    if last == StreamId::MAX {
        return Err(Added::Exhausted);
    }
    let id = match wanted {
        NewId::Any if now_ms > last.ms => StreamId::new(now_ms, 0),
        NewId::Any => last.next().ok_or(Added::Exhausted)?,
        NewId::OfMillis(ms) if ms == last.ms => {
            StreamId::new(ms, last.seq.checked_add(1).ok_or(Added::NotAbove)?)
        }
        NewId::OfMillis(ms) => StreamId::new(ms, 0),
        NewId::Exact(id) if id == StreamId::MIN => return Err(Added::IsZero),
        NewId::Exact(id) => id,
    };
    if id <= last {
        return Err(Added::NotAbove);
    }
    Ok(id)
}

pub(super) fn add(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    wanted: NewId,
    parts: &[&[u8]],
    rule: &AddRule,
    run: &mut Vec<u8>,
) -> Result<Added, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let mut stream = Records::open_to_change(op, at, run)?;
    let is_new = !stream.is_there();
    if is_new && rule.only_present {
        return Ok(Added::NoStream);
    }
    let now_ms = u64::try_from(op.local.now).unwrap_or(0);
    let id = match new_id(wanted, stream.head.last, now_ms) {
        Ok(id) => id,
        Err(refused) => return Ok(refused),
    };
    if let Some(trim) = &rule.trim {
        // The pages at the front are there from now on.
        trim::plan(op, &stream, trim)?;
    }
    append(op, &mut stream, id, parts)?;
    let cut = match &rule.trim {
        Some(trim) => trim::plan(op, &stream, trim)?,
        None => None,
    };
    if let Some(cut) = &cut {
        trim::apply(op, &mut stream, cut)?;
    }
    stream.store(op)?;
    let tell = |op: &Op<'_>, change, is_new| {
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
    };
    tell(op, Change::EntryAdded { id, parts }, is_new);
    if let Some(cut) = &cut {
        tell(op, cut.change(), false);
    }
    Ok(Added::Done { id, trimmed_count: cut.map_or(0, |cut| cut.count) })
}

/// Puts an entry behind all others.
pub(super) fn append(
    op: &mut Op<'_>,
    stream: &mut Records<'_>,
    id: StreamId,
    parts: &[&[u8]],
) -> Result<(), OpError> {
    let limits = NodeLimits::of(op.keyspace);
    let last_node = limits.with_entry(&stream.head.last_node, id, parts);
    let begins_node = last_node.id == id;
    let base = stream.head.last_block;
    let has_gone_to_last = stream.head.len > 0
        && stream.extend(op, &block_key(base), |block, more| {
            block::longer(block, base, (id, parts, begins_node), more)
        })?;
    if !has_gone_to_last {
        let mut block = Vec::new();
        block::begin(&mut block, id, parts, begins_node);
        stream.put(op, &block_key(id), &block)?;
        stream.head.last_block = id;
    }
    let head = &mut stream.head;
    if head.len == 0 {
        head.first = id;
    }
    (head.len, head.added_count, head.last) = (head.len + 1, head.added_count + 1, id);
    head.node_count += u64::from(begins_node);
    head.last_node = last_node;
    Ok(())
}

pub(super) fn remove(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    ids: &[StreamId],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let mut stream = Records::open_to_change(op, at, run)?;
    if !stream.is_there() {
        return Ok(0);
    }
    resolve(op, &stream, ids)?;
    let mut removed = Vec::new();
    for id in ids {
        if remove_one(op, &mut stream, *id)? {
            removed.push(*id);
        }
    }
    if removed.is_empty() {
        return Ok(0);
    }
    stream.store(op)?;
    for id in &removed {
        let change = Change::EntryRemoved { id: *id };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
    }
    Ok(removed.len() as u64)
}

/// Has the pages in memory that removing these entries changes, before the first is (C1).
fn resolve(op: &mut Op<'_>, stream: &Records<'_>, ids: &[StreamId]) -> Result<(), OpError> {
    if op.keyspace.pages.all_resident() {
        return Ok(());
    }
    let (mut missed, mut block) = (crate::keyspace::Missed::default(), Vec::new());
    for id in ids {
        missed.look(stream.block_of(op, *id, &mut block))?;
    }
    missed.end()
}

/// Whether the entry was there.
fn remove_one(op: &mut Op<'_>, stream: &mut Records<'_>, id: StreamId) -> Result<bool, OpError> {
    let mut bytes = Vec::new();
    let Some(base) = stream.block_of(op, id, &mut bytes)? else { return Ok(false) };
    let (mut found, mut follows) = (None, None);
    for entry in Block::new(base, &bytes).entries() {
        let entry = entry.ok_or_else(malformed)?;
        if entry.id == id {
            found = Some(entry.to_remove());
        } else if found.is_some() {
            follows = Some(entry.id);
            break;
        }
    }
    let Some(entry) = found else { return Ok(false) };
    block::remove(&mut bytes, &entry);
    // Its node goes on with the entry behind it, if that is of the same.
    let mut node_goes_on = !entry.begins_node;
    if entry.begins_node && follows.is_some() {
        node_goes_on = block::hand_node_to(&mut bytes, entry.start());
    }
    let key = block_key(base);
    match Block::new(base, &bytes).count() {
        0 => stream.remove(op, &key)?,
        _ => stream.put(op, &key, &bytes)?,
    }
    if entry.begins_node && follows.is_none() {
        node_goes_on = hand_to_next_block(op, stream, id)?;
    }
    let was_first = stream.head.first == id;
    let head = &mut stream.head;
    head.len -= 1;
    head.node_count -= u64::from(!node_goes_on);
    head.max_deleted = head.max_deleted.max(id);
    let last_node_has_gone = !node_goes_on && id >= head.last_node.id;
    if was_first {
        find_first(op, stream)?;
    }
    if stream.head.last_block == base {
        find_last_block(op, stream)?;
    }
    if last_node_has_gone {
        find_last_node(op, stream)?;
    }
    Ok(true)
}

/// The node before the last goes on, as in Redis, but without what it has lost before.
fn find_last_node(op: &mut Op<'_>, stream: &mut Records<'_>) -> Result<(), OpError> {
    let mut entries: Vec<(StreamId, Vec<Vec<u8>>)> = Vec::new();
    if stream.head.len > 0 {
        stream.walk_down(op, AFTER_BLOCKS, |key, bytes| {
            let base = base_of(key).ok_or_else(malformed)?;
            let of_block: Option<Vec<_>> = Block::new(base, bytes).entries().collect();
            for entry in of_block.ok_or_else(malformed)?.into_iter().rev() {
                entries.push((entry.id, entry.parts.iter().map(|part| part.to_vec()).collect()));
                if entry.begins_node {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
    }
    let mut last_node = LastNode::default();
    for (id, parts) in entries.iter().rev() {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        last_node = match last_node.entry_count {
            0 => node::begun(*id, &parts),
            _ => node::longer(&last_node, *id, &parts),
        };
    }
    stream.head.last_node = last_node;
    Ok(())
}

/// The first entry behind an ID, of another block, begins a node from now on. False if it did before, or there is none.
fn hand_to_next_block(op: &mut Op<'_>, stream: &mut Records<'_>, id: StreamId) -> Result<bool, OpError> {
    let Some(from) = id.next() else { return Ok(false) };
    let mut next = None;
    stream.walk_up(op, &block_key(from), |key, block| {
        next = base_of(key).map(|base| (base, block.to_vec()));
        Ok(false)
    })?;
    let Some((base, mut block)) = next else { return Ok(false) };
    let is_handed = block::hand_node_to_first(&mut block);
    if is_handed {
        stream.put(op, &block_key(base), &block)?;
    }
    Ok(is_handed)
}

/// Looks for the first entry, for the head.
pub(super) fn find_first(op: &mut Op<'_>, stream: &mut Records<'_>) -> Result<(), OpError> {
    let mut first = StreamId::MIN;
    if stream.head.len > 0 {
        stream.walk_up(op, &block_key(StreamId::MIN), |key, block| {
            let base = base_of(key).ok_or_else(malformed)?;
            let entry = Block::new(base, block).entries().next().flatten();
            first = entry.ok_or_else(malformed)?.id;
            Ok(false)
        })?;
    }
    stream.head.first = first;
    Ok(())
}

/// Looks for the last block, for the head.
pub(super) fn find_last_block(op: &mut Op<'_>, stream: &mut Records<'_>) -> Result<(), OpError> {
    let mut block = Vec::new();
    let last = stream.block_of(op, StreamId::MAX, &mut block)?;
    stream.head.last_block = last.unwrap_or_default();
    Ok(())
}

/// What the stream says of itself, as `XSETID` sets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Not below any entry's ID.
    pub last: StreamId,
    pub added_count: u64,
    pub max_deleted: StreamId,
}

/// The greatest ID of an entry; `0-0` if there is none.
fn last_entry(op: &mut Op<'_>, stream: &Records<'_>) -> Result<StreamId, OpError> {
    let mut block = Vec::new();
    match stream.block_of(op, StreamId::MAX, &mut block)? {
        None => Ok(StreamId::MIN),
        Some(base) => {
            let last = Block::new(base, &block).entries().last().flatten();
            Ok(last.ok_or_else(malformed)?.id)
        }
    }
}

pub(super) fn set_marks(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    choose: &mut dyn FnMut(StreamInfo, StreamId) -> Option<Marks>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let mut stream = Records::open_to_change(op, at, run)?;
    if !stream.is_there() {
        return Ok(false);
    }
    let last_entry = last_entry(op, &stream)?;
    let Some(marks) = choose(StreamInfo::of(&stream.head), last_entry) else { return Ok(true) };
    let Marks { last, added_count, max_deleted } = marks;
    let head = &mut stream.head;
    (head.last, head.added_count, head.max_deleted) = (last, added_count, max_deleted);
    stream.store(op)?;
    let change = Change::StreamMarked { last, added_count, max_deleted };
    op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
    Ok(true)
}

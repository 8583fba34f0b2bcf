//! Operations that change nothing.

use stillframe_pagepool::{is_looking, PageId, PAGE_SIZE};

use super::op::Op;
use super::state::Keyspace;
use super::{find, write};
use crate::stop::{retry, Stop};
use crate::tree::bad_record;
use crate::tree::hash::{as_leaf, Record, RecordKey, RecordValue, Reference, SLOT_BYTES};
use crate::value::{NoPages, Repr};
use crate::{Access, DbId, EntryInfo, Key, OpError, StrRef, UnixMillis};

/// What a look at a key came to.
pub(crate) enum Looked<R> {
    Absent,
    /// It is there, but its deadline has passed.
    Expired,
    Found(R),
}

/// A record in its latched leaf.
pub(crate) struct Met<'a> {
    pub record: Record<'a>,
    /// Head of the leaf's chain.
    pub leaf: PageId,
    pub tree_tag: u32,
}

/// Looks a key up and gives its record to `f`, under the leaf's shared latch.
#[inline(always)]
pub(super) fn look<R>(
    keyspace: &Keyspace,
    now: UnixMillis,
    db: DbId,
    key: &Key<'_>,
    f: impl FnOnce(Met<'_>) -> Result<R, Stop>,
) -> Result<Looked<R>, Stop> {
    let Some(tree) = keyspace.tree(db) else {
        keyspace.check_database(db)?;
        return Ok(Looked::Absent);
    };
    let Some((leaf, guard, slot)) = find::find_shared(keyspace, tree, key)? else {
        return Ok(Looked::Absent);
    };
    let record = as_leaf(guard.id(), guard.page())?.record(slot).ok_or_else(|| bad_record(guard.id()))?;
    if record.deadline.is_some_and(|deadline| deadline <= now) {
        return Ok(Looked::Expired);
    }
    f(Met { record, leaf, tree_tag: tree.tag }).map(Looked::Found)
}

/// Reads an entry: gives its record to `f`, under the leaf's shared latch, perhaps again after `f` has failed. An
/// expired one is removed.
#[inline(always)]
pub(crate) fn read<R>(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    mut f: impl FnMut(&Op<'_>, Met<'_>) -> Result<R, Stop>,
) -> Result<Option<R>, OpError> {
    let lock = op.keyspace.locks.lock_key_to_read(&op.local.holder, db, key.hash);
    let looked = retry(|| look(op.keyspace, op.local.now, db, key, |met| f(op, met)))?;
    drop(lock);
    settle(op, db, key, looked)
}

/// Turns what was found into a result; removes an entry that has expired, or notes it for
/// [`remove_left_expired`](super::expire::remove_left_expired).
#[inline(always)]
pub(super) fn settle<R>(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    looked: Looked<R>,
) -> Result<Option<R>, OpError> {
    match looked {
        Looked::Found(result) => Ok(Some(result)),
        Looked::Absent => Ok(None),
        Looked::Expired if op.local.keeps_expired || is_looking() => Ok(None),
        Looked::Expired => {
            if op.keyspace.locks.may_remove(&op.local.holder) {
                let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
                write::expire(op, db, key)?;
            } else {
                op.local.left_expired.push((db, key.bytes.to_vec()));
            }
            Ok(None)
        }
    }
}

/// Looks at a key that the caller has locked; an expired one counts as absent and stays.
pub(super) fn peek<R>(
    op: &Op<'_>,
    db: DbId,
    key: &Key<'_>,
    mut f: impl FnMut(&Record<'_>) -> Result<R, Stop>,
) -> Result<Option<R>, OpError> {
    match retry(|| look(op.keyspace, op.local.now, db, key, |met| f(&met.record)))? {
        Looked::Found(result) => Ok(Some(result)),
        Looked::Absent | Looked::Expired => Ok(None),
    }
}

/// Whether a key is there and has not expired; changes nothing.
pub fn has(keyspace: &Keyspace, now: UnixMillis, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    let looked = retry(|| look(keyspace, now, db, key, |_| Ok(())))?;
    Ok(matches!(looked, Looked::Found(())))
}

/// What is known of an entry; an expired one is removed.
pub fn entry(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<Option<EntryInfo>, OpError> {
    read(op, db, key, |op, met| {
        let info = entry_info(op, &met.record, met.leaf);
        Ok(match op.local.tracked.access(met.tree_tag, key.hash) {
            None => info,
            Some(Access::Idle { seconds }) => EntryInfo { idle_ms: seconds * 1000, ..info },
            Some(Access::Frequency { count }) => EntryInfo { frequency: Some(count), ..info },
        })
    })
}

/// Marks an entry as accessed.
pub fn touch(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    let touched = read(op, db, key, |op, met| {
        op.keyspace.trees.order.side.touch(met.leaf, op.local.scratch.tick);
        op.local.tracked.touch_always(met.tree_tag, key.hash);
        Ok(())
    })?;
    Ok(touched.is_some())
}

pub(super) fn entry_info(op: &Op<'_>, record: &Record<'_>, leaf: PageId) -> EntryInfo {
    let mut memory_bytes = (SLOT_BYTES + record.encoded_bytes()) as u64;
    if let RecordKey::Out { blob, .. } = &record.key {
        memory_bytes += blob.memory_bytes();
    }
    // A StrRef without its pages tells length and encoding all the same.
    let string = |repr| Some(StrRef { repr, raw: record.raw });
    let string = match record.value {
        RecordValue::Int(value) => string(Repr::Int(value)),
        RecordValue::Bytes(bytes) => string(Repr::Bytes(bytes)),
        RecordValue::Blob(blob) => {
            memory_bytes += blob.memory_bytes();
            string(Repr::Pages { run: &NoPages, offset: 0, len_bytes: u64::from(blob.len_bytes) })
        }
        RecordValue::Other { .. } => {
            memory_bytes += outside_bytes(record);
            None
        }
    };
    let collection = record.collection().map(|collection| collection.encoding);
    EntryInfo {
        value_type: record.value_type(),
        encoding: string.as_ref().map(StrRef::encoding).or(collection),
        value_bytes: string.map_or(0, |string| string.len()),
        deadline: record.deadline,
        memory_bytes,
        idle_ms: op.keyspace.trees.order.side.idle_ms(leaf, op.local.scratch.tick),
        frequency: None,
    }
}

/// Memory of what a value refers to, of a tree as if it had one page: who wants to know better looks at its leaves.
pub(super) fn outside_bytes(record: &Record<'_>) -> u64 {
    let bytes = record.value_references().map(|reference| match reference {
        Reference::Blob(blob) => blob.memory_bytes(),
        Reference::Tree(_) => PAGE_SIZE as u64,
    });
    bytes.sum()
}

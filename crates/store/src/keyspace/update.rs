//! Changing entries: deadlines, copies, names.

use super::op::Op;
use super::state::Keyspace;
use super::write::{self, copy_record, Attempt, Put, Remains, Was};
use super::{find, read};
use crate::blobs::{Blob, BlobPlace, Duplicate, Part};
use crate::effect::Effect;
use crate::stop::{retry, Stop};
use crate::tree::hash::{
    Hashed, LeafGuard, Record, RecordKey, RecordValue, KEY_INLINE_MAX_BYTES, RECORD_MAX_BYTES,
};
use crate::tree::{bad_record, no_key, Joining, Tree};
use crate::{DbId, Deadline, Key, OpError, UnixMillis};

/// How a rename went.
enum Renamed {
    Absent,
    Moved { from: Remains, to: Option<Remains>, sparse: bool },
}

/// Sets or clears a deadline; returns whether the key is there.
pub fn set_deadline(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    deadline: Option<UnixMillis>,
) -> Result<bool, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
    let Some(tree) = op.keyspace.tree(db) else {
        op.keyspace.check_database(db)?;
        return Ok(false);
    };
    loop {
        match retry(|| set_deadline_step(op, tree, key, deadline))? {
            Attempt::Done(Was::There) => {
                op.announce(Effect::Deadline { db, key: *key, deadline });
                return Ok(true);
            }
            Attempt::Done(Was::Absent) => return Ok(false),
            Attempt::Done(Was::Expired) => {
                write::remove_expired(op, db, key)?;
                return Ok(false);
            }
            Attempt::NoRoom(bytes) => {
                retry(|| op.keyspace.trees.make_room(&mut op.local.scratch, tree, key.hash, bytes))?
            }
        }
    }
}

/// Of a key or of an element.
pub(super) fn set_deadline_step(
    op: &Op<'_>,
    tree: Tree,
    key: &Key<'_>,
    deadline: Option<UnixMillis>,
) -> Result<Attempt<Was>, Stop> {
    let mut leaf = op.keyspace.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
    let Some(at) = find::find_exclusive(op.keyspace, &leaf, key)? else {
        return Ok(Attempt::Done(Was::Absent));
    };
    let old = leaf.record(at)?;
    let before = old.deadline;
    if before.is_some_and(|deadline| deadline <= op.local.now) {
        return Ok(Attempt::Done(Was::Expired));
    }
    if before == deadline {
        return Ok(Attempt::Done(Was::There));
    }
    let mut copy = [0; RECORD_MAX_BYTES];
    let old_bytes = old.encoded_bytes();
    let record = Record { deadline, ..copy_record(old, &mut copy)? };
    let record_bytes = record.encoded_bytes();
    let Some(at) = write::place_for(op.keyspace, &mut leaf, at, old_bytes, record_bytes)? else {
        return Ok(Attempt::NoRoom(record_bytes));
    };
    leaf.replace(at, &record)?;
    write::note_written(op, tree, &leaf, before, &record);
    if tree.has_keys() {
        op.local.tracked.touch(tree.tag, key.hash);
    }
    Ok(Attempt::Done(Was::There))
}

/// Copies an entry over whatever is at `to`, its value by a copy that has been made of it already if there is one.
pub fn copy(
    op: &mut Op<'_>,
    from: (DbId, &Key<'_>),
    to: (DbId, &Key<'_>),
    duplicate: Option<&Duplicate>,
) -> Result<bool, OpError> {
    let mut bytes = std::mem::take(&mut op.local.bytes);
    let copied = copy_with(op, from, to, duplicate, &mut bytes);
    bytes.clear();
    op.local.bytes = bytes;
    copied
}

fn copy_with(
    op: &mut Op<'_>,
    from: (DbId, &Key<'_>),
    to: (DbId, &Key<'_>),
    duplicate: Option<&Duplicate>,
    bytes: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let found = read::peek(op, from.0, from.1, |record| {
        bytes.clear();
        let copy = match record.value {
            RecordValue::Int(value) => Copied::Int(value),
            RecordValue::Bytes(inline) => {
                bytes.extend_from_slice(inline);
                Copied::Bytes
            }
            RecordValue::Blob(blob) if duplicate.is_some_and(|copy| copy.is_of(&blob)) => Copied::Made,
            RecordValue::Blob(blob) => match blob.place {
                BlobPlace::Object { .. } => Copied::Object(op.keyspace.blobs.copy_object(&blob)?),
                BlobPlace::Slab { .. } => {
                    op.keyspace.blobs.read(&blob, bytes)?;
                    Copied::Bytes
                }
            },
            // Collections are copied by their types.
            RecordValue::Other { .. } => return Err(Stop::WrongType),
        };
        Ok((copy, record.raw, record.deadline))
    })?;
    let Some((copy, raw, deadline)) = found else { return Ok(false) };
    let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
    let put = match copy {
        Copied::Int(value) => Put::Int(value),
        Copied::Bytes => Put::Bytes { bytes, raw },
        Copied::Object(blob) => Put::Ready { blob, raw },
        Copied::Made => match duplicate {
            Some(made) => Put::Ready { blob: made.copy().blob(), raw },
            None => return Ok(false),
        },
    };
    let stored = write::put(op, to.0, to.1, put, deadline);
    match (&stored, copy, duplicate) {
        (Err(_), Copied::Object(blob), _) => op.keyspace.blobs.discard(&blob),
        (Ok(_), Copied::Made, Some(made)) => made.copy().note_used(),
        _ => {}
    }
    stored?;
    op.announce(Effect::Copy { from: (from.0, *from.1), to: (to.0, *to.1) });
    Ok(true)
}

/// Moves an entry over whatever is at `to`; the caller holds locks on both.
pub fn rename(op: &mut Op<'_>, from: (DbId, &Key<'_>), to: (DbId, &Key<'_>)) -> Result<bool, OpError> {
    let there = read::peek(op, from.0, from.1, |_| Ok(()))?.is_some();
    if !there || (from.0 == to.0 && from.1.bytes == to.1.bytes) {
        return Ok(there);
    }
    let Some(from_tree) = op.keyspace.tree(from.0) else { return Ok(false) };
    let to_tree = retry(|| op.keyspace.tree_or_create(to.0))?;
    loop {
        let step = retry(|| rename_step(op, (from_tree, from.1), (to_tree, to.1)))?;
        match step {
            Attempt::NoRoom(bytes) => {
                retry(|| op.keyspace.trees.make_room(&mut op.local.scratch, to_tree, to.1.hash, bytes))?
            }
            Attempt::Done(Renamed::Absent) => return Ok(false),
            Attempt::Done(Renamed::Moved { from: left, to: replaced, sparse }) => {
                settle_rename(op, from, to, left, replaced);
                if sparse {
                    // Joining only saves memory: what stands in its way may stay there.
                    let _ = op.keyspace.trees.join_leaves(
                        &mut op.local.scratch,
                        from_tree,
                        from.1.hash,
                        Joining::Sparse,
                    );
                }
                return Ok(true);
            }
        }
    }
}

fn settle_rename(
    op: &mut Op<'_>,
    from: (DbId, &Key<'_>),
    to: (DbId, &Key<'_>),
    left: Remains,
    replaced: Option<Remains>,
) {
    let moved_deadline = i64::from(left.deadline.is_some());
    op.local.deltas.count_key(from.0, -1);
    op.local.deltas.count_deadline(from.0, -moved_deadline);
    let replaced_deadline = replaced.is_some_and(|remains| remains.deadline.is_some());
    op.local.deltas.count_key(to.0, i64::from(replaced.is_none()));
    if let (Some(from_tree), Some(to_tree)) = (op.keyspace.tree(from.0), op.keyspace.tree(to.0)) {
        op.local.tracked.rename((from_tree.tag, from.1.hash), (to_tree.tag, to.1.hash));
    }
    op.local.deltas.count_deadline(to.0, moved_deadline - i64::from(replaced_deadline));
    let has_expired = replaced.is_some_and(|remains| remains.has_expired(op.local.now));
    if has_expired {
        op.local.expired_count += 1;
        op.announce(Effect::Expire { db: to.0, key: *to.1 });
    }
    let replaces = replaced.is_some() && !has_expired;
    op.announce(Effect::Move { from: (from.0, *from.1), to: (to.0, *to.1), replaces });
    // The value lives on under its new name; the old name and what it replaced do not.
    write::discard(op.keyspace, &Remains { value: None, roots: [None; 2], ..left });
    write::discard(op.keyspace, &Remains { key: None, ..replaced.unwrap_or_default() });
}

fn rename_step(
    op: &Op<'_>,
    (from_tree, from): (Tree, &Key<'_>),
    (to_tree, to): (Tree, &Key<'_>),
) -> Result<Attempt<Renamed>, Stop> {
    let mut leaf = op.keyspace.trees.chain_exclusive(from_tree, from.hash, None)?;
    let Some(at) = find::find_exclusive(op.keyspace, &leaf, from)? else {
        return Ok(Attempt::Done(Renamed::Absent));
    };
    let mut copy = [0; RECORD_MAX_BYTES];
    let old = copy_record(leaf.record(at)?, &mut copy)?;
    let mut other = match leaf.leaf(0)?.covers(to_tree.tag, to.hash) {
        true => None,
        false => {
            let head = op.keyspace.trees.try_leaf_exclusive(to_tree, to.hash)?;
            Some(op.keyspace.trees.with_chain(head, std::slice::from_ref(&leaf.head))?)
        }
    };
    let target = other.as_mut().unwrap_or(&mut leaf);
    let replaced = match move_in(op.keyspace, target, to, &old)? {
        Attempt::NoRoom(bytes) => return Ok(Attempt::NoRoom(bytes)),
        Attempt::Done(replaced) => replaced,
    };
    if let Some(deadline) = old.earliest_deadline() {
        op.keyspace.trees.order.side.add_deadline(target.head.id(), deadline);
    }
    op.keyspace.trees.order.side.touch(target.head.id(), op.local.scratch.tick);
    // In one leaf, slots may have moved.
    let Some(at) = find::find_exclusive(op.keyspace, &leaf, from)? else {
        return Err(bad_record(leaf.head.id()));
    };
    write::remove_from_chain(op.keyspace, &mut leaf, at)?;
    let sparse = Joining::Sparse.is_due::<Hashed>(leaf.leaf(0)?);
    Ok(Attempt::Done(Renamed::Moved { from: Remains::of(&old), to: replaced, sparse }))
}

/// Puts a record under another key into its latched leaf. Returns what it replaced.
fn move_in(
    keyspace: &Keyspace,
    target: &mut LeafGuard<'_>,
    to: &Key<'_>,
    old: &Record<'_>,
) -> Result<Attempt<Option<Remains>>, Stop> {
    if let Some(at) = find::find_exclusive(keyspace, target, to)? {
        let replaced = target.record(at)?;
        let remains = Remains::of(&replaced);
        let key = match replaced.key {
            RecordKey::Inline(_) | RecordKey::Hash(_) => RecordKey::Inline(to.bytes),
            RecordKey::Out { hash, blob } => RecordKey::Out { hash, blob },
        };
        let record = Record { key, ..*old };
        let (old_bytes, record_bytes) = (replaced.encoded_bytes(), record.encoded_bytes());
        write::check_discardable(keyspace, &remains)?;
        let Some(at) = write::place_for(keyspace, target, at, old_bytes, record_bytes)? else {
            return Ok(Attempt::NoRoom(record_bytes));
        };
        target.replace(at, &record)?;
        return Ok(Attempt::Done(Some(remains)));
    }
    keyspace.check_origin(to)?;
    let long_key = to.bytes.len() > KEY_INLINE_MAX_BYTES;
    let key_bytes = if long_key { 20 } else { to.bytes.len() };
    let old_key_bytes = match old.key {
        RecordKey::Inline(key) => key.len(),
        RecordKey::Out { .. } => 20,
        RecordKey::Hash(_) => return Err(no_key()),
    };
    let record_bytes = old.encoded_bytes() - old_key_bytes + key_bytes;
    let Some(page) = keyspace.trees.page_for(target, to.hash, record_bytes)? else {
        return Ok(Attempt::NoRoom(record_bytes));
    };
    let key = match long_key {
        true => RecordKey::Out { hash: to.hash, blob: keyspace.blobs.make(&[Part::Bytes(to.bytes)], false)? },
        false => RecordKey::Inline(to.bytes),
    };
    target.insert(page, to.hash, &Record { key, ..*old })?;
    Ok(Attempt::Done(None))
}

/// A copied value: the bytes of the second and the third are in a buffer.
#[derive(Clone, Copy)]
enum Copied {
    Int(i64),
    Bytes,
    Object(Blob),
    /// Before the operation.
    Made,
}

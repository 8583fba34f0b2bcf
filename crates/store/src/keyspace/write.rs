//! Storing and removing single entries.

use stillframe_pagepool::PageId;

use super::op::Op;
use super::state::Keyspace;
use super::steps::Because;
use super::{damage, find};
use crate::blobs::{Blob, BlobPlace, Bytes, Part, SlabNeeds, BLOB_BYTES};
use crate::effect::Effect;
use crate::stop::{retry, Follow, Stop};
use crate::tree::hash::{
    At, Hashed, LeafGuard, Record, RecordKey, RecordValue, Reference, KEY_INLINE_MAX_BYTES, RECORD_MAX_BYTES,
    VALUE_INLINE_MAX_BYTES,
};
use crate::tree::{Joining, Tree};
use crate::value::ValueType;
use crate::{Cause, DbId, Deadline, Key, OpError, UnixMillis};

/// Stands for a blob that is still to be made: all blobs take the same bytes in a record.
const SOME_BLOB: Blob = Blob {
    pid: stillframe_pagepool::PageId(0),
    len_bytes: 0,
    place: crate::blobs::BlobPlace::Object { page_count: 0 },
};

/// The body of a collection that refers to a blob: head, deadline and reference.
const REFERRING_BODY_MAX_BYTES: usize = 1 + 8 + BLOB_BYTES;

/// What is to be stored.
#[derive(Clone, Copy)]
pub(crate) enum Put<'a> {
    Int(i64),
    Bytes {
        bytes: &'a [u8],
        raw: bool,
    },
    /// A collection, by its body.
    Other {
        value_type: ValueType,
        body: &'a [u8],
    },
    /// A collection whose packed elements go out of line; the body ends with the place of the reference.
    Run {
        value_type: ValueType,
        body: &'a [u8],
        run: &'a [u8],
    },
    /// A blob that nothing refers to yet.
    Ready {
        blob: Blob,
        raw: bool,
    },
}

impl<'a> Put<'a> {
    fn raw(&self) -> bool {
        match self {
            Put::Int(_) | Put::Other { .. } | Put::Run { .. } => false,
            Put::Bytes { raw, .. } | Put::Ready { raw, .. } => *raw,
        }
    }

    /// The value as its record will have it; [`SOME_BLOB`] if it goes out of line.
    fn in_record(&self) -> RecordValue<'a> {
        match *self {
            Put::Int(value) => RecordValue::Int(value),
            Put::Bytes { bytes, .. } if bytes.len() <= VALUE_INLINE_MAX_BYTES => RecordValue::Bytes(bytes),
            Put::Bytes { .. } => RecordValue::Blob(SOME_BLOB),
            Put::Other { value_type, body } | Put::Run { value_type, body, .. } => {
                RecordValue::Other { value_type, body }
            }
            Put::Ready { blob, .. } => RecordValue::Blob(blob),
        }
    }

    /// Bytes that go out of line.
    fn out_of_line(&self) -> Option<&'a [u8]> {
        match *self {
            Put::Bytes { bytes, .. } if bytes.len() > VALUE_INLINE_MAX_BYTES => Some(bytes),
            Put::Run { run, .. } => Some(run),
            _ => None,
        }
    }

    /// The value as its record has it, now that what goes out of line is there. `buffer` is for a body.
    fn refer_to<'b>(&self, blob: Blob, buffer: &'b mut [u8; REFERRING_BODY_MAX_BYTES]) -> RecordValue<'b> {
        match *self {
            Put::Run { value_type, body, .. } => {
                let body_out = &mut buffer[..body.len().min(REFERRING_BODY_MAX_BYTES)];
                body_out.copy_from_slice(&body[..body_out.len()]);
                let at = body_out.len().saturating_sub(BLOB_BYTES);
                blob.encode(&mut body_out[at..]);
                RecordValue::Other { value_type, body: body_out }
            }
            _ => RecordValue::Blob(blob),
        }
    }
}

/// What is left of a record that has been replaced or removed.
#[derive(Clone, Copy, Default)]
pub(super) struct Remains {
    pub key: Option<Blob>,
    pub value: Option<Blob>,
    /// The trees of a collection, by their roots.
    pub roots: [Option<PageId>; 2],
    pub deadline: Option<UnixMillis>,
}

impl Remains {
    pub fn of(record: &Record<'_>) -> Remains {
        let key = match record.key {
            RecordKey::Out { blob, .. } => Some(blob),
            RecordKey::Inline(_) | RecordKey::Hash(_) => None,
        };
        let (mut value, mut roots) = (None, [None; 2]);
        for reference in record.value_references() {
            match reference {
                Reference::Blob(blob) => value = Some(blob),
                Reference::Tree(root) => roots = [Some(root), roots[0]],
            }
        }
        Remains { key, value, roots, deadline: record.deadline }
    }

    /// What lies outside of the leaf, but for trees.
    pub fn blobs(self) -> impl Iterator<Item = Blob> {
        [self.key, self.value].into_iter().flatten()
    }

    pub fn has_expired(&self, now: UnixMillis) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// How far a step got.
pub(crate) enum Attempt<R> {
    Done(R),
    /// The leaf has no room for a record of so many bytes.
    NoRoom(usize),
}

/// What was there before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Was {
    Absent,
    Expired,
    There,
}

/// Runs an operation that does not depend on what was there: if that is lost and may be given up, once more.
#[inline(always)]
pub(crate) fn beside_damage<R>(
    keyspace: &Keyspace,
    db: DbId,
    key: &Key<'_>,
    mut operation: impl FnMut() -> Result<R, OpError>,
) -> Result<R, OpError> {
    match operation() {
        Err(error @ OpError::Damaged(_)) => match keyspace.tree(db) {
            Some(tree) if damage::give_up_lost(keyspace, tree, key.hash)? => operation(),
            _ => Err(error),
        },
        result => result,
    }
}

/// Stores a value; the key is locked. What it means is announced by the caller.
#[inline(always)]
pub(crate) fn put(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    put: Put<'_>,
    deadline: Deadline,
) -> Result<Was, OpError> {
    let tree = match op.keyspace.tree(db) {
        Some(tree) => tree,
        None => retry(|| op.keyspace.tree_or_create(db))?,
    };
    let was = put_in(op, tree, key, put, deadline)?;
    if was == Was::Expired {
        op.local.expired_count += 1;
        op.announce(Effect::Expire { db, key: *key });
    }
    Ok(was)
}

/// Stores a value in a tree of keys or of elements.
#[inline(always)]
pub(super) fn put_in(
    op: &mut Op<'_>,
    tree: Tree,
    key: &Key<'_>,
    put: Put<'_>,
    deadline: Deadline,
) -> Result<Was, OpError> {
    loop {
        match retry(|| put_step(op, tree, key, put, deadline))? {
            Attempt::Done(was) => return Ok(was),
            Attempt::NoRoom(bytes) => {
                retry(|| op.keyspace.trees.make_room(&mut op.local.scratch, tree, key.hash, bytes))?
            }
        }
    }
}

#[inline(always)]
fn put_step(
    op: &Op<'_>,
    tree: Tree,
    key: &Key<'_>,
    put: Put<'_>,
    deadline: Deadline,
) -> Result<Attempt<Was>, Stop> {
    let leaf = match op.keyspace.trees.chain_exclusive(tree, key.hash, key.leaf_hint) {
        Err(Stop::Looking) => return look_at_put(op.keyspace, key, put),
        leaf => leaf?,
    };
    match find::find_exclusive(op.keyspace, &leaf, key)? {
        Some(at) => replace_step(op, tree, leaf, at, key, put, deadline),
        None => insert_step(op, tree, leaf, key, put, deadline),
    }
}

/// A look has found the leaf of a key: what goes outside of it needs slabs.
#[cold]
fn look_at_put<R>(keyspace: &Keyspace, key: &Key<'_>, put: Put<'_>) -> Result<R, Stop> {
    let long_key = Some(key.bytes.len()).filter(|len_bytes| *len_bytes > KEY_INLINE_MAX_BYTES);
    let outside = put.out_of_line().map(<[u8]>::len);
    let mut missing = Vec::new();
    keyspace.blobs.slabs.resolve(&SlabNeeds::of(long_key.into_iter().chain(outside)), &mut missing)?;
    match missing.is_empty() {
        true => Err(Stop::Looking),
        false => Err(Stop::Missing(missing)),
    }
}

fn insert_step(
    op: &Op<'_>,
    tree: Tree,
    mut leaf: LeafGuard<'_>,
    key: &Key<'_>,
    put: Put<'_>,
    deadline: Deadline,
) -> Result<Attempt<Was>, Stop> {
    op.keyspace.check_origin(key)?;
    let deadline = match deadline {
        Deadline::At(at) => Some(at),
        Deadline::Keep | Deadline::Clear => None,
    };
    let long_key = key.bytes.len() > KEY_INLINE_MAX_BYTES;
    let mut record = Record {
        key: if long_key {
            RecordKey::Out { hash: key.hash, blob: SOME_BLOB }
        } else {
            RecordKey::Inline(key.bytes)
        },
        value: put.in_record(),
        raw: put.raw(),
        deadline,
    };
    let record_bytes = record.encoded_bytes();
    let Some(page) = op.keyspace.trees.page_for(&leaf, key.hash, record_bytes)? else {
        return Ok(Attempt::NoRoom(record_bytes));
    };
    let (mut body, mut made) = ([0; REFERRING_BODY_MAX_BYTES], None);
    if let Some(bytes) = put.out_of_line() {
        let blob = op.keyspace.blobs.make(&[Part::Bytes(bytes)], false)?;
        made = Some(blob);
        record.value = put.refer_to(blob, &mut body);
    }
    if long_key {
        match key.outside(&op.keyspace.blobs) {
            Ok(blob) => record.key = RecordKey::Out { hash: key.hash, blob },
            Err(stop) => {
                made.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
                return Err(stop);
            }
        }
    }
    leaf.insert(page, key.hash, &record)?;
    if let Some(Bytes::Incoming(name)) = key.large {
        name.note_used();
    }
    if tree.has_keys() {
        op.local.deltas.count_key(tree.db, 1);
        op.local.tracked.begin(tree.tag, key.hash);
    }
    note_written(op, tree, &leaf, None, &record);
    Ok(Attempt::Done(Was::Absent))
}

#[allow(clippy::too_many_arguments)]
#[inline(always)]
pub(super) fn replace_step(
    op: &Op<'_>,
    tree: Tree,
    mut leaf: LeafGuard<'_>,
    at: At,
    key: &Key<'_>,
    put: Put<'_>,
    deadline: Deadline,
) -> Result<Attempt<Was>, Stop> {
    let old = leaf.record(at)?;
    let (old_bytes, remains) = (old.encoded_bytes(), Remains::of(&old));
    let was = if remains.has_expired(op.local.now) { Was::Expired } else { Was::There };
    let deadline = match deadline {
        Deadline::At(at) => Some(at),
        Deadline::Keep if was == Was::There => remains.deadline,
        Deadline::Keep | Deadline::Clear => None,
    };
    let record_key = match old.key {
        RecordKey::Inline(_) | RecordKey::Hash(_) => RecordKey::Inline(key.bytes),
        RecordKey::Out { hash, blob } => RecordKey::Out { hash, blob },
    };
    let mut record = Record { key: record_key, value: put.in_record(), raw: put.raw(), deadline };
    let record_bytes = record.encoded_bytes();
    check_discardable(op.keyspace, &remains)?;
    let Some(at) = place_for(op.keyspace, &mut leaf, at, old_bytes, record_bytes)? else {
        return Ok(Attempt::NoRoom(record_bytes));
    };
    let (mut discarded, mut body) = (remains.value, [0; REFERRING_BODY_MAX_BYTES]);
    if let Some(bytes) = put.out_of_line() {
        let rewritten = match &remains.value {
            Some(blob) => op.keyspace.blobs.rewrite(blob, bytes)?,
            None => None,
        };
        let blob = match rewritten {
            Some(blob) => {
                discarded = None;
                blob
            }
            None => op.keyspace.blobs.make(&[Part::Bytes(bytes)], false)?,
        };
        record.value = put.refer_to(blob, &mut body);
    }
    // A blob rewritten in place, or an element that is there, may leave the record as it was: then the leaf stays clean.
    let may_stay = !tree.has_keys() || (remains.value.is_some() && discarded.is_none());
    if !may_stay || leaf.record(at)? != record {
        leaf.replace(at, &record)?;
    }
    note_written(op, tree, &leaf, remains.deadline, &record);
    match was {
        _ if !tree.has_keys() => {}
        Was::Expired => op.local.tracked.begin(tree.tag, key.hash),
        _ => op.local.tracked.touch(tree.tag, key.hash),
    }
    drop(leaf);
    discard(op.keyspace, &Remains { key: None, value: discarded, ..remains });
    Ok(Attempt::Done(was))
}

/// For a record that grows beyond the room of its leaf: `at`, or, in a chain, a place in another leaf of it
/// to which the record has been moved. `None` if none has room for `record_bytes`.
pub(crate) fn place_for(
    keyspace: &Keyspace,
    leaf: &mut LeafGuard<'_>,
    at: At,
    old_bytes: usize,
    record_bytes: usize,
) -> Result<Option<At>, Stop> {
    if record_bytes <= old_bytes + leaf.leaf(at.page)?.free_bytes() {
        return Ok(Some(at));
    }
    if leaf.chain.is_empty() {
        return Ok(None);
    }
    move_in_chain(keyspace, leaf, at, record_bytes)
}

#[cold]
fn move_in_chain(
    keyspace: &Keyspace,
    leaf: &mut LeafGuard<'_>,
    at: At,
    record_bytes: usize,
) -> Result<Option<At>, Stop> {
    let Some(page) = leaf.page_with_room(record_bytes)? else { return Ok(None) };
    let mut copy = [0; RECORD_MAX_BYTES];
    let record = copy_record(leaf.record(at)?, &mut copy)?;
    let hash = keyspace.trees.order.hash_of(&record);
    leaf.insert(page, hash, &record)?;
    let to = leaf.leaf(page)?;
    let slot = (0..to.count()).find(|slot| to.record(*slot) == Some(record));
    let freed = remove_from_chain(keyspace, leaf, at)?;
    let page = if freed && page > at.page { page - 1 } else { page };
    Ok(slot.map(|slot| At { page, slot }))
}

/// Removes a record and frees a chain's leaf that this empties; whether it did.
pub(super) fn remove_from_chain(keyspace: &Keyspace, leaf: &mut LeafGuard<'_>, at: At) -> Result<bool, Stop> {
    let Some(emptied) = leaf.remove(at)? else { return Ok(false) };
    let guard = leaf.chain.remove(emptied);
    keyspace.pool.free(guard, 1);
    Ok(true)
}

/// Counts and registers what a write to a latched leaf means for deadlines and access times.
#[inline(always)]
pub(crate) fn note_written(
    op: &Op<'_>,
    tree: Tree,
    leaf: &LeafGuard<'_>,
    before: Option<UnixMillis>,
    record: &Record<'_>,
) {
    if tree.has_keys() {
        let after = record.deadline.is_some();
        op.local.deltas.count_deadline(tree.db, i64::from(after) - i64::from(before.is_some()));
    }
    op.keyspace.trees.order.side.touch(leaf.head.id(), op.local.scratch.tick);
    if let Some(deadline) = record.earliest_deadline() {
        op.keyspace.trees.order.side.add_deadline(leaf.head.id(), deadline);
    }
}

/// Removes an entry; returns whether it was there.
pub fn remove(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    remove_by(op, db, key, op.local.now)
}

/// The same whether its deadline has passed or not.
pub fn remove_in_any_case(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    remove_by(op, db, key, 0)
}

/// Removes an entry; returns whether it was there by a clock that says `now`.
fn remove_by(op: &mut Op<'_>, db: DbId, key: &Key<'_>, now: UnixMillis) -> Result<bool, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
    let clock = std::mem::replace(&mut op.local.now, now);
    let was = beside_damage(op.keyspace, db, key, || remove_if(op, db, key, Joining::Sparse, |_| true));
    op.local.now = clock;
    let was = was?;
    if was == Was::There {
        op.announce(Effect::Delete { db, key: *key });
    }
    Ok(was == Was::There)
}

/// Removes an entry if its deadline has passed; the key is locked. Returns whether it was removed.
pub(super) fn remove_expired(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    let now = op.local.now;
    Ok(remove_if(op, db, key, Joining::Sparse, |remains| remains.has_expired(now))? == Was::Expired)
}

/// The same, as a step of its own unless one is open.
pub(super) fn expire(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    let _because = Because::of(&op.local.holder.acting, Cause::Expiry);
    let is_removed = remove_expired(op, db, key)?;
    op.local.holder.acting.end_operation();
    Ok(is_removed)
}

/// Removes an entry that `wanted` agrees to; the key is locked. [`Was::Absent`] if nothing was removed.
pub(super) fn remove_if(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    joining: Joining,
    wanted: impl Fn(&Remains) -> bool,
) -> Result<Was, OpError> {
    remove_if_then(op, db, key, joining, wanted, |_| ())
}

/// The same; when the entry has gone, and before what it referred to goes, `then` is called.
pub(super) fn remove_if_then(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    joining: Joining,
    wanted: impl Fn(&Remains) -> bool,
    then: impl FnOnce(&Op<'_>),
) -> Result<Was, OpError> {
    let Some(tree) = op.keyspace.tree(db) else {
        op.keyspace.check_database(db)?;
        return Ok(Was::Absent);
    };
    // Under the leaf's latch: who finds the key gone finds it gone from the count, too.
    let count = |op: &Op<'_>, remains: &Remains| {
        op.local.deltas.count_key(db, -1);
        op.local.deltas.count_deadline(db, -i64::from(remains.deadline.is_some()));
    };
    let taken = lift_record(op, tree, key, joining, wanted, count)?;
    let Some((remains, is_sparse)) = taken else { return Ok(Was::Absent) };
    op.local.tracked.forget(tree.tag, key.hash);
    let expired = remains.has_expired(op.local.now);
    if expired {
        op.local.expired_count += 1;
        op.announce(Effect::Expire { db, key: *key });
    }
    then(op);
    after_removal(op, tree, key.hash, &remains, is_sparse, joining);
    Ok(if expired { Was::Expired } else { Was::There })
}

/// Removes a record that `wanted` agrees to from a tree of keys or of elements, and what it refers to. `count` is called when it
/// is gone, under the latch of its leaf.
pub(super) fn remove_in(
    op: &mut Op<'_>,
    tree: Tree,
    key: &Key<'_>,
    joining: Joining,
    wanted: impl Fn(&Remains) -> bool,
    count: impl Fn(&Op<'_>, &Remains),
) -> Result<Option<Remains>, OpError> {
    let taken = lift_record(op, tree, key, joining, wanted, count)?;
    let Some((remains, is_sparse)) = taken else { return Ok(None) };
    after_removal(op, tree, key.hash, &remains, is_sparse, joining);
    Ok(Some(remains))
}

/// The same without what the record refers to; and whether its leaf has become sparse.
fn lift_record(
    op: &Op<'_>,
    tree: Tree,
    key: &Key<'_>,
    joining: Joining,
    wanted: impl Fn(&Remains) -> bool,
    count: impl Fn(&Op<'_>, &Remains),
) -> Result<Option<(Remains, bool)>, OpError> {
    retry(|| {
        let mut leaf = op.keyspace.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
        let Some(at) = find::find_exclusive(op.keyspace, &leaf, key)? else { return Ok(None) };
        let remains = Remains::of(&leaf.record(at)?);
        if !wanted(&remains) {
            return Ok(None);
        }
        check_discardable(op.keyspace, &remains)?;
        remove_from_chain(op.keyspace, &mut leaf, at)?;
        let is_sparse = joining.is_due::<Hashed>(leaf.leaf(0)?);
        count(op, &remains);
        Ok(Some((remains, is_sparse)))
    })
}

/// What is to be done once a record has gone from its leaf.
pub(super) fn after_removal(
    op: &mut Op<'_>,
    tree: Tree,
    hash: u64,
    remains: &Remains,
    is_sparse: bool,
    joining: Joining,
) {
    discard(op.keyspace, remains);
    if is_sparse {
        // Joining only saves memory: what stands in its way may stay there.
        let _ = op.keyspace.trees.join_leaves(&mut op.local.scratch, tree, hash, joining);
    }
}

/// Whether what a record refers to can be freed without loading pages first. Objects can, and what is damaged.
pub(super) fn check_discardable(keyspace: &Keyspace, remains: &Remains) -> Result<(), Stop> {
    if keyspace.pages.all_resident() {
        return Ok(());
    }
    let in_slabs = |blob: &Blob| matches!(blob.place, BlobPlace::Slab { .. });
    for blob in [remains.key, remains.value].into_iter().flatten().filter(in_slabs) {
        if !keyspace.pool.is_resident(blob.pid) {
            // Tells a page that is damaged from one that is not there yet.
            match keyspace.pool.follow_shared(blob.pid) {
                Err(Stop::Damaged(_)) => {}
                guard => drop(guard?),
            }
        }
    }
    Ok(())
}

pub(super) fn discard(keyspace: &Keyspace, remains: &Remains) {
    for blob in [remains.key, remains.value].into_iter().flatten() {
        keyspace.blobs.discard(&blob);
    }
    for root in remains.roots.into_iter().flatten() {
        keyspace.garbage.push_tree(&keyspace.pool, root);
    }
}

/// Drops what a record refers to, as far as it says.
pub(super) fn discard_references(keyspace: &Keyspace, references: impl Iterator<Item = Reference>) {
    for reference in references {
        match reference {
            Reference::Blob(blob) => keyspace.blobs.discard(&blob),
            Reference::Tree(root) => keyspace.garbage.push_tree(&keyspace.pool, root),
        }
    }
}

/// Copies a record out of its page.
pub(crate) fn copy_record<'a>(
    record: Record<'_>,
    buffer: &'a mut [u8; RECORD_MAX_BYTES],
) -> Result<Record<'a>, Stop> {
    let bytes = record.encoded_bytes();
    let Some(out) = buffer.get_mut(..bytes) else {
        return Err(Stop::Damaged("a record is longer than any can be".into()));
    };
    record.encode(out);
    Record::parse(out).ok_or_else(|| Stop::Damaged("a record is malformed".into()))
}

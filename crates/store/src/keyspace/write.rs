//! Storing and removing single entries.

use stillframe_pagepool::PageId;

use super::state::{Keyspace, Local};
use super::steps::Because;
use crate::blobs::{Blob, Bytes, Part, Place, SlabNeeds, BLOB_BYTES};
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
    place: crate::blobs::Place::Object { page_count: 0 },
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
pub(crate) enum Step<R> {
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

impl Keyspace {
    /// Runs an operation that does not depend on what was there: if that is lost and may be given up, once more.
    #[inline(always)]
    pub(crate) fn beside_damage<R>(
        &self,
        db: DbId,
        key: &Key<'_>,
        mut operation: impl FnMut() -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        match operation() {
            Err(error @ OpError::Damaged(_)) => match self.tree(db) {
                Some(tree) if self.give_up_lost(tree, key.hash)? => operation(),
                _ => Err(error),
            },
            result => result,
        }
    }

    /// Stores a value; the key is locked. What it means is announced by the caller.
    #[inline(always)]
    pub(crate) fn put(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        put: Put<'_>,
        deadline: Deadline,
    ) -> Result<Was, OpError> {
        let tree = match self.tree(db) {
            Some(tree) => tree,
            None => retry(|| self.tree_or_create(db))?,
        };
        let was = self.put_in(local, tree, key, put, deadline)?;
        if was == Was::Expired {
            local.expired_count += 1;
            self.announce(local, Effect::Expire { db, key: *key });
        }
        Ok(was)
    }

    /// Stores a value in a tree of keys or of elements.
    #[inline(always)]
    pub(super) fn put_in(
        &self,
        local: &mut Local,
        tree: Tree,
        key: &Key<'_>,
        put: Put<'_>,
        deadline: Deadline,
    ) -> Result<Was, OpError> {
        loop {
            match retry(|| self.put_step(local, tree, key, put, deadline))? {
                Step::Done(was) => return Ok(was),
                Step::NoRoom(bytes) => {
                    retry(|| self.trees.make_room(&mut local.scratch, tree, key.hash, bytes))?
                }
            }
        }
    }

    #[inline(always)]
    fn put_step(
        &self,
        local: &Local,
        tree: Tree,
        key: &Key<'_>,
        put: Put<'_>,
        deadline: Deadline,
    ) -> Result<Step<Was>, Stop> {
        let leaf = match self.trees.chain_exclusive(tree, key.hash, key.leaf_hint) {
            Err(Stop::Looking) => return self.look_at_put(key, put),
            leaf => leaf?,
        };
        match self.find_exclusive(&leaf, key)? {
            Some(at) => self.replace_step(local, tree, leaf, at, key, put, deadline),
            None => self.insert_step(local, tree, leaf, key, put, deadline),
        }
    }

    /// A look has found the leaf of a key: what goes outside of it needs slabs.
    #[cold]
    fn look_at_put<R>(&self, key: &Key<'_>, put: Put<'_>) -> Result<R, Stop> {
        let long_key = Some(key.bytes.len()).filter(|len_bytes| *len_bytes > KEY_INLINE_MAX_BYTES);
        let outside = put.out_of_line().map(<[u8]>::len);
        let mut missing = Vec::new();
        self.blobs.slabs.resolve(&SlabNeeds::of(long_key.into_iter().chain(outside)), &mut missing)?;
        match missing.is_empty() {
            true => Err(Stop::Looking),
            false => Err(Stop::Missing(missing)),
        }
    }

    fn insert_step(
        &self,
        local: &Local,
        tree: Tree,
        mut leaf: LeafGuard<'_>,
        key: &Key<'_>,
        put: Put<'_>,
        deadline: Deadline,
    ) -> Result<Step<Was>, Stop> {
        self.check_origin(key)?;
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
        let Some(page) = self.trees.page_for(&leaf, key.hash, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        let (mut body, mut made) = ([0; REFERRING_BODY_MAX_BYTES], None);
        if let Some(bytes) = put.out_of_line() {
            let blob = self.blobs.make(&[Part::Bytes(bytes)], false)?;
            made = Some(blob);
            record.value = put.refer_to(blob, &mut body);
        }
        if long_key {
            match key.outside(&self.blobs) {
                Ok(blob) => record.key = RecordKey::Out { hash: key.hash, blob },
                Err(stop) => {
                    made.iter().for_each(|blob| self.blobs.discard(blob));
                    return Err(stop);
                }
            }
        }
        leaf.insert(page, key.hash, &record)?;
        if let Some(Bytes::Incoming(name)) = key.large {
            name.note_used();
        }
        if tree.has_keys() {
            local.deltas.count_key(tree.db, 1);
            local.tracked.begin(tree.tag, key.hash);
        }
        self.note_written(local, tree, &leaf, None, &record);
        Ok(Step::Done(Was::Absent))
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub(super) fn replace_step(
        &self,
        local: &Local,
        tree: Tree,
        mut leaf: LeafGuard<'_>,
        at: At,
        key: &Key<'_>,
        put: Put<'_>,
        deadline: Deadline,
    ) -> Result<Step<Was>, Stop> {
        let old = leaf.record(at)?;
        let (old_bytes, remains) = (old.encoded_bytes(), Remains::of(&old));
        let was = if remains.has_expired(local.now) { Was::Expired } else { Was::There };
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
        self.check_discardable(&remains)?;
        let Some(at) = self.place_for(&mut leaf, at, old_bytes, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        let (mut discarded, mut body) = (remains.value, [0; REFERRING_BODY_MAX_BYTES]);
        if let Some(bytes) = put.out_of_line() {
            let rewritten = match &remains.value {
                Some(blob) => self.blobs.rewrite(blob, bytes)?,
                None => None,
            };
            let blob = match rewritten {
                Some(blob) => {
                    discarded = None;
                    blob
                }
                None => self.blobs.make(&[Part::Bytes(bytes)], false)?,
            };
            record.value = put.refer_to(blob, &mut body);
        }
        // A blob rewritten in place, or an element that is there, may leave the record as it was: then the leaf stays clean.
        let may_stay = !tree.has_keys() || (remains.value.is_some() && discarded.is_none());
        if !may_stay || leaf.record(at)? != record {
            leaf.replace(at, &record)?;
        }
        self.note_written(local, tree, &leaf, remains.deadline, &record);
        match was {
            _ if !tree.has_keys() => {}
            Was::Expired => local.tracked.begin(tree.tag, key.hash),
            _ => local.tracked.touch(tree.tag, key.hash),
        }
        drop(leaf);
        self.discard(&Remains { key: None, value: discarded, ..remains });
        Ok(Step::Done(was))
    }

    /// For a record that grows beyond the room of its leaf: `at`, or, in a chain, a place in another leaf of it
    /// to which the record has been moved. `None` if none has room for `record_bytes`.
    pub(crate) fn place_for(
        &self,
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
        self.move_in_chain(leaf, at, record_bytes)
    }

    #[cold]
    fn move_in_chain(
        &self,
        leaf: &mut LeafGuard<'_>,
        at: At,
        record_bytes: usize,
    ) -> Result<Option<At>, Stop> {
        let Some(page) = leaf.page_with_room(record_bytes)? else { return Ok(None) };
        let mut copy = [0; RECORD_MAX_BYTES];
        let record = copy_record(leaf.record(at)?, &mut copy)?;
        let hash = self.trees.order.hash_of(&record);
        leaf.insert(page, hash, &record)?;
        let to = leaf.leaf(page)?;
        let slot = (0..to.count()).find(|slot| to.record(*slot) == Some(record));
        let freed = self.remove_from_chain(leaf, at)?;
        let page = if freed && page > at.page { page - 1 } else { page };
        Ok(slot.map(|slot| At { page, slot }))
    }

    /// Removes a record and frees a chain's leaf that this empties; whether it did.
    pub(super) fn remove_from_chain(&self, leaf: &mut LeafGuard<'_>, at: At) -> Result<bool, Stop> {
        let Some(emptied) = leaf.remove(at)? else { return Ok(false) };
        let guard = leaf.chain.remove(emptied);
        self.pool.free(guard, 1);
        Ok(true)
    }

    /// Counts and registers what a write to a latched leaf means for deadlines and access times.
    #[inline(always)]
    pub(crate) fn note_written(
        &self,
        local: &Local,
        tree: Tree,
        leaf: &LeafGuard<'_>,
        before: Option<UnixMillis>,
        record: &Record<'_>,
    ) {
        if tree.has_keys() {
            let after = record.deadline.is_some();
            local.deltas.count_deadline(tree.db, i64::from(after) - i64::from(before.is_some()));
        }
        self.trees.order.side.touch(leaf.head.id(), local.scratch.tick);
        if let Some(deadline) = record.earliest_deadline() {
            self.trees.order.side.add_deadline(leaf.head.id(), deadline);
        }
    }

    /// Removes an entry; returns whether it was there.
    pub fn remove(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let _lock = self.locks.lock_key(&local.holder, db, key.hash);
        let was =
            self.beside_damage(db, key, || self.remove_if(local, db, key, Joining::Sparse, |_| true))?;
        if was == Was::There {
            self.announce(local, Effect::Delete { db, key: *key });
        }
        Ok(was == Was::There)
    }

    /// Removes an entry if its deadline has passed; the key is locked. Returns whether it was removed.
    pub(super) fn remove_expired(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let now = local.now;
        Ok(self.remove_if(local, db, key, Joining::Sparse, |remains| remains.has_expired(now))?
            == Was::Expired)
    }

    /// The same, as a step of its own unless one is open.
    pub(super) fn expire(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let _because = Because::of(&local.holder.acting, Cause::Expiry);
        let is_removed = self.remove_expired(local, db, key)?;
        local.holder.acting.end_operation();
        Ok(is_removed)
    }

    /// Removes an entry that `wanted` agrees to; the key is locked. [`Was::Absent`] if nothing was removed.
    pub(super) fn remove_if(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        joining: Joining,
        wanted: impl Fn(&Remains) -> bool,
    ) -> Result<Was, OpError> {
        self.remove_if_then(local, db, key, joining, wanted, |_| ())
    }

    /// The same; when the entry has gone, and before what it referred to goes, `then` is called.
    pub(super) fn remove_if_then(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        joining: Joining,
        wanted: impl Fn(&Remains) -> bool,
        then: impl FnOnce(&Local),
    ) -> Result<Was, OpError> {
        let Some(tree) = self.tree(db) else {
            self.check_database(db)?;
            return Ok(Was::Absent);
        };
        // Under the leaf's latch: who finds the key gone finds it gone from the count, too.
        let count = |local: &Local, remains: &Remains| {
            local.deltas.count_key(db, -1);
            local.deltas.count_deadline(db, -i64::from(remains.deadline.is_some()));
        };
        let taken = self.lift_record(local, tree, key, joining, wanted, count)?;
        let Some((remains, is_sparse)) = taken else { return Ok(Was::Absent) };
        local.tracked.forget(tree.tag, key.hash);
        let expired = remains.has_expired(local.now);
        if expired {
            local.expired_count += 1;
            self.announce(local, Effect::Expire { db, key: *key });
        }
        then(local);
        self.after_removal(local, tree, key.hash, &remains, is_sparse, joining);
        Ok(if expired { Was::Expired } else { Was::There })
    }

    /// Removes a record that `wanted` agrees to from a tree of keys or of elements, and what it refers to. `count` is called when it
    /// is gone, under the latch of its leaf.
    pub(super) fn remove_in(
        &self,
        local: &mut Local,
        tree: Tree,
        key: &Key<'_>,
        joining: Joining,
        wanted: impl Fn(&Remains) -> bool,
        count: impl Fn(&Local, &Remains),
    ) -> Result<Option<Remains>, OpError> {
        let taken = self.lift_record(local, tree, key, joining, wanted, count)?;
        let Some((remains, is_sparse)) = taken else { return Ok(None) };
        self.after_removal(local, tree, key.hash, &remains, is_sparse, joining);
        Ok(Some(remains))
    }

    /// The same without what the record refers to; and whether its leaf has become sparse.
    fn lift_record(
        &self,
        local: &Local,
        tree: Tree,
        key: &Key<'_>,
        joining: Joining,
        wanted: impl Fn(&Remains) -> bool,
        count: impl Fn(&Local, &Remains),
    ) -> Result<Option<(Remains, bool)>, OpError> {
        retry(|| {
            let mut leaf = self.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
            let Some(at) = self.find_exclusive(&leaf, key)? else { return Ok(None) };
            let remains = Remains::of(&leaf.record(at)?);
            if !wanted(&remains) {
                return Ok(None);
            }
            self.check_discardable(&remains)?;
            self.remove_from_chain(&mut leaf, at)?;
            let is_sparse = joining.is_due::<Hashed>(leaf.leaf(0)?);
            count(local, &remains);
            Ok(Some((remains, is_sparse)))
        })
    }

    /// What is to be done once a record has gone from its leaf.
    pub(super) fn after_removal(
        &self,
        local: &mut Local,
        tree: Tree,
        hash: u64,
        remains: &Remains,
        is_sparse: bool,
        joining: Joining,
    ) {
        self.discard(remains);
        if is_sparse {
            // Joining only saves memory: what stands in its way may stay there.
            let _ = self.trees.join_leaves(&mut local.scratch, tree, hash, joining);
        }
    }

    /// Whether what a record refers to can be freed without loading pages first. Objects can, and what is damaged.
    pub(super) fn check_discardable(&self, remains: &Remains) -> Result<(), Stop> {
        if self.pages.all_resident() {
            return Ok(());
        }
        let in_slabs = |blob: &Blob| matches!(blob.place, Place::Slab { .. });
        for blob in [remains.key, remains.value].into_iter().flatten().filter(in_slabs) {
            if !self.pool.is_resident(blob.pid) {
                // Tells a page that is damaged from one that is not there yet.
                match self.pool.follow_shared(blob.pid) {
                    Err(Stop::Damaged(_)) => {}
                    guard => drop(guard?),
                }
            }
        }
        Ok(())
    }

    pub(super) fn discard(&self, remains: &Remains) {
        for blob in [remains.key, remains.value].into_iter().flatten() {
            self.blobs.discard(&blob);
        }
        for root in remains.roots.into_iter().flatten() {
            self.garbage.push_tree(&self.pool, root);
        }
    }

    /// Drops what a record refers to, as far as it says.
    pub(super) fn discard_references(&self, references: impl Iterator<Item = Reference>) {
        for reference in references {
            match reference {
                Reference::Blob(blob) => self.blobs.discard(&blob),
                Reference::Tree(root) => self.garbage.push_tree(&self.pool, root),
            }
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

//! Storing and removing single entries.

use std::sync::atomic::Ordering;

use super::blob::Part;
use super::descend::{bad_record, At, LeafGuard};
use super::merge::is_sparse;
use super::{Keyspace, Local, Stop, Tree};
use crate::page::record::{
    Blob, Record, RecordKey, RecordValue, KEY_INLINE_MAX_BYTES, RECORD_MAX_BYTES, VALUE_INLINE_MAX_BYTES,
};
use crate::{DbId, Deadline, Key, NewValue, OpError, UnixMillis};

/// Stands for a blob that is still to be made: all blobs take the same bytes in a record.
const SOME_BLOB: Blob = Blob {
    pid: stillframe_pagepool::PageId(0),
    len_bytes: 0,
    place: crate::page::record::Place::Object { page_count: 0 },
};

/// What is to be stored.
#[derive(Clone, Copy)]
pub(super) enum Put<'a> {
    Int(i64),
    Bytes {
        bytes: &'a [u8],
        raw: bool,
    },
    /// A blob that nothing refers to yet.
    Ready {
        blob: Blob,
        raw: bool,
    },
}

impl<'a> From<NewValue<'a>> for Put<'a> {
    fn from(value: NewValue<'a>) -> Put<'a> {
        match value {
            NewValue::Int(value) => Put::Int(value),
            NewValue::Bytes { bytes, raw } => Put::Bytes { bytes, raw },
        }
    }
}

impl<'a> Put<'a> {
    fn raw(&self) -> bool {
        match self {
            Put::Int(_) => false,
            Put::Bytes { raw, .. } | Put::Ready { raw, .. } => *raw,
        }
    }

    /// The value as its record will have it; [`SOME_BLOB`] if it goes out of line.
    fn in_record(&self) -> RecordValue<'a> {
        match *self {
            Put::Int(value) => RecordValue::Int(value),
            Put::Bytes { bytes, .. } if bytes.len() <= VALUE_INLINE_MAX_BYTES => RecordValue::Bytes(bytes),
            Put::Bytes { .. } => RecordValue::Blob(SOME_BLOB),
            Put::Ready { blob, .. } => RecordValue::Blob(blob),
        }
    }

    /// Bytes that go out of line.
    fn out_of_line(&self) -> Option<&'a [u8]> {
        match *self {
            Put::Bytes { bytes, .. } if bytes.len() > VALUE_INLINE_MAX_BYTES => Some(bytes),
            _ => None,
        }
    }
}

/// What is left of a record that has been replaced or removed.
#[derive(Clone, Copy, Default)]
pub(super) struct Remains {
    pub key: Option<Blob>,
    pub value: Option<Blob>,
    pub deadline: Option<UnixMillis>,
}

impl Remains {
    pub fn of(record: &Record<'_>) -> Remains {
        let key = match record.key {
            RecordKey::Out { blob, .. } => Some(blob),
            RecordKey::Inline(_) => None,
        };
        let value = match record.value {
            RecordValue::Blob(blob) => Some(blob),
            _ => None,
        };
        Remains { key, value, deadline: record.deadline }
    }

    fn has_expired(&self, now: UnixMillis) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// How far a step got.
pub(super) enum Step<R> {
    Done(R),
    /// The leaf has no room for a record of so many bytes.
    NoRoom(usize),
}

/// What was there before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Was {
    Absent,
    Expired,
    There,
}

impl LeafGuard<'_> {
    /// Inserts a record where the leaf has told that it has room.
    #[inline(always)]
    pub(super) fn insert(&mut self, page: usize, hash: u64, record: &Record<'_>) -> Result<(), Stop> {
        match self.leaf_mut(page)?.insert(hash, record) {
            true => Ok(()),
            false => Err(bad_record(self.head.id())),
        }
    }

    /// Replaces a record where the leaf has told that it has room.
    #[inline(always)]
    pub(super) fn replace(&mut self, at: At, record: &Record<'_>) -> Result<(), Stop> {
        match self.leaf_mut(at.page)?.replace(at.slot, record) {
            true => Ok(()),
            false => Err(bad_record(self.head.id())),
        }
    }

    /// Removes a record; an emptied leaf of a chain is unlinked and returned, to be freed.
    pub(super) fn remove(&mut self, at: At) -> Result<Option<usize>, Stop> {
        let mut leaf = self.leaf_mut(at.page)?;
        leaf.remove(at.slot);
        if at.page == 0 || leaf.leaf().count() > 0 {
            return Ok(None);
        }
        let next = leaf.leaf().chain();
        self.leaf_mut(at.page - 1)?.set_chain(next);
        Ok(Some(at.page - 1))
    }
}

impl Keyspace {
    /// Stores a value; returns whether the key was there before.
    pub fn set(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        value: NewValue<'_>,
        deadline: Deadline,
    ) -> Result<bool, OpError> {
        if let NewValue::Bytes { bytes, .. } = value {
            if bytes.len() as u64 > crate::MAX_STRING_BYTES {
                return Err(OpError::TooLarge);
            }
        }
        if matches!(deadline, Deadline::At(at) if at <= local.now) {
            return self.remove(local, db, key);
        }
        let _lock = self.lock_key(local, db, key.hash, true);
        self.put(local, db, key, value.into(), deadline)
    }

    /// Stores a value; the key is locked.
    #[inline(always)]
    pub(super) fn put(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        put: Put<'_>,
        deadline: Deadline,
    ) -> Result<bool, OpError> {
        let tree = match self.tree(db) {
            Some(tree) => tree,
            None => self.retry(|| self.tree_or_create(db))?,
        };
        loop {
            match self.retry(|| self.put_step(local, tree, key, put, deadline))? {
                Step::Done(was) => {
                    local.count_change();
                    local.expired_count += u64::from(was == Was::Expired);
                    return Ok(was == Was::There);
                }
                Step::NoRoom(bytes) => self.retry(|| self.make_room(local, tree, key.hash, bytes))?,
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
        let leaf = self.leaf_exclusive(tree, key.hash, key.leaf_hint)?;
        match self.find_exclusive(&leaf, key)? {
            Some(at) => self.replace_step(local, tree, leaf, at, key, put, deadline),
            None => self.insert_step(local, tree, leaf, key, put, deadline),
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
        let Some(page) = self.page_for(&leaf, key.hash, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        if let Some(bytes) = put.out_of_line() {
            record.value = RecordValue::Blob(self.new_blob(&[Part::Bytes(bytes)], false)?);
        }
        if long_key {
            match self.new_blob(&[Part::Bytes(key.bytes)], false) {
                Ok(blob) => record.key = RecordKey::Out { hash: key.hash, blob },
                Err(stop) => {
                    if let (RecordValue::Blob(blob), true) = (record.value, put.out_of_line().is_some()) {
                        self.discard_blob(&blob);
                    }
                    return Err(stop);
                }
            }
        }
        leaf.insert(page, key.hash, &record)?;
        local.count_key(tree.db, 1);
        self.note_written(local, tree, &leaf, None, deadline);
        Ok(Step::Done(Was::Absent))
    }

    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn replace_step(
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
            RecordKey::Inline(_) => RecordKey::Inline(key.bytes),
            RecordKey::Out { hash, blob } => RecordKey::Out { hash, blob },
        };
        let mut record = Record { key: record_key, value: put.in_record(), raw: put.raw(), deadline };
        let record_bytes = record.encoded_bytes();
        self.check_discardable(&remains)?;
        let Some(at) = self.place_for(&mut leaf, at, old_bytes, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        let mut discarded = remains.value;
        if let Some(bytes) = put.out_of_line() {
            let rewritten = match &remains.value {
                Some(blob) => self.rewrite_blob(blob, bytes)?,
                None => None,
            };
            match rewritten {
                Some(blob) => {
                    discarded = None;
                    record.value = RecordValue::Blob(blob);
                }
                None => record.value = RecordValue::Blob(self.new_blob(&[Part::Bytes(bytes)], false)?),
            }
        }
        // A blob rewritten in place may leave the record as it was: then the leaf stays clean.
        let rewritten = remains.value.is_some() && discarded.is_none();
        if !rewritten || leaf.record(at)? != record {
            leaf.replace(at, &record)?;
        }
        self.note_written(local, tree, &leaf, remains.deadline, deadline);
        drop(leaf);
        if let Some(blob) = discarded {
            self.discard_blob(&blob);
        }
        Ok(Step::Done(was))
    }

    /// For a record that grows beyond the room of its leaf: `at`, or, in a chain, a place in another leaf of it
    /// to which the record has been moved. `None` if none has room for `record_bytes`.
    pub(super) fn place_for(
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
        let hash = self.hash_of(&record);
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
    pub(super) fn note_written(
        &self,
        local: &Local,
        tree: Tree,
        leaf: &LeafGuard<'_>,
        before: Option<UnixMillis>,
        after: Option<UnixMillis>,
    ) {
        local.count_deadline(tree.db, i64::from(after.is_some()) - i64::from(before.is_some()));
        self.side.touch(leaf.head.id(), local.tick);
        if let Some(deadline) = after {
            self.side.add_deadline(leaf.head.id(), deadline);
        }
    }

    /// Removes an entry; returns whether it was there.
    pub fn remove(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let _lock = self.lock_key(local, db, key.hash, true);
        let was = self.remove_if(local, db, key, |_| true)?;
        if was == Was::There {
            local.count_change();
        }
        Ok(was == Was::There)
    }

    /// Removes an entry if its deadline has passed; the key is locked. Returns whether it was removed.
    pub(super) fn remove_expired(&self, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        let now = local.now;
        Ok(self.remove_if(local, db, key, |remains| remains.has_expired(now))? == Was::Expired)
    }

    /// Removes an entry that `wanted` agrees to; the key is locked. [`Was::Absent`] if nothing was removed.
    fn remove_if(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        wanted: impl Fn(&Remains) -> bool,
    ) -> Result<Was, OpError> {
        let Some(tree) = self.tree(db) else { return Ok(Was::Absent) };
        let removed = self.retry(|| {
            let mut leaf = self.leaf_exclusive(tree, key.hash, key.leaf_hint)?;
            let Some(at) = self.find_exclusive(&leaf, key)? else { return Ok(None) };
            let remains = Remains::of(&leaf.record(at)?);
            if !wanted(&remains) {
                return Ok(None);
            }
            self.check_discardable(&remains)?;
            self.remove_from_chain(&mut leaf, at)?;
            Ok(Some((remains, is_sparse(leaf.leaf(0)?))))
        })?;
        let Some((remains, sparse)) = removed else { return Ok(Was::Absent) };
        local.count_key(db, -1);
        local.count_deadline(db, -i64::from(remains.deadline.is_some()));
        let expired = remains.has_expired(local.now);
        local.expired_count += u64::from(expired);
        self.discard(&remains);
        if sparse {
            // Joining only saves memory: what stands in its way may stay there.
            let _ = self.join_leaves(local, tree, key.hash);
        }
        Ok(if expired { Was::Expired } else { Was::There })
    }

    /// Whether what a record refers to can be freed without loading pages first.
    pub(super) fn check_discardable(&self, remains: &Remains) -> Result<(), Stop> {
        if self.all_resident.load(Ordering::Relaxed) {
            return Ok(());
        }
        for blob in [remains.key, remains.value].into_iter().flatten() {
            if !self.pool.is_resident(blob.pid) {
                // Tells a page that is damaged from one that is not there yet.
                self.pool.shared(blob.pid)?;
            }
        }
        Ok(())
    }

    pub(super) fn discard(&self, remains: &Remains) {
        for blob in [remains.key, remains.value].into_iter().flatten() {
            self.discard_blob(&blob);
        }
    }
}

/// Copies a record out of its page.
pub(super) fn copy_record<'a>(
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

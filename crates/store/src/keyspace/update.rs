//! Changing entries: parts of values, deadlines, names.

use super::blob::Part;
use super::descend::{bad_record, At, LeafGuard};
use super::merge::is_sparse;
use super::write::{copy_record, Put, Remains, Step, Was};
use super::{Keyspace, Local, Stop, Tree};
use crate::page::record::{
    Blob, Place, Record, RecordKey, RecordValue, KEY_INLINE_MAX_BYTES, RECORD_MAX_BYTES,
    VALUE_INLINE_MAX_BYTES,
};
use crate::{DbId, Deadline, Key, OpError, UnixMillis, MAX_STRING_BYTES};

/// What a range write found.
enum Range {
    /// Written in place; the value's new length.
    Written(u64),
    /// The whole value has to be stored anew: it is in the worker's buffer. With growth to come, or not.
    Rewrite { growing: bool },
}

/// How a rename went.
enum Renamed {
    Absent,
    Moved { from: Remains, to: Option<Remains>, sparse: bool },
}

impl Keyspace {
    /// Writes `bytes` at `offset` of a string; see [`crate::Worker::write_range`].
    pub fn write_range(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, OpError> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= MAX_STRING_BYTES);
        let end = end.ok_or(OpError::TooLarge)?;
        let _lock = self.lock_key(local, db, key.hash, true);
        let tree = self.retry(|| self.tree_or_create(db))?;
        let found = self.retry(|| self.write_range_step(local, tree, key, offset, bytes))?;
        let growing = match found {
            Some(Range::Written(len_bytes)) => {
                local.count_change();
                return Ok(len_bytes);
            }
            Some(Range::Rewrite { growing }) => growing,
            None => {
                local.bytes.clear();
                false
            }
        };
        self.store_range(local, db, key, offset, bytes, end, growing)
    }

    /// Stores a value made of the worker's buffer, a gap of zeros, and `bytes` at `offset`.
    #[allow(clippy::too_many_arguments)]
    fn store_range(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
        end: u64,
        growing: bool,
    ) -> Result<u64, OpError> {
        let mut old = std::mem::take(&mut local.bytes);
        let len_bytes = end.max(old.len() as u64);
        let overlap = (old.len() as u64).min(end).saturating_sub(offset) as usize;
        if overlap > 0 {
            old[offset as usize..offset as usize + overlap].copy_from_slice(&bytes[..overlap]);
        }
        let gap = offset.saturating_sub(old.len() as u64);
        let result = if len_bytes <= VALUE_INLINE_MAX_BYTES as u64 {
            old.resize(old.len() + gap as usize, 0);
            old.extend_from_slice(&bytes[overlap..]);
            self.put(local, db, key, Put::Bytes { bytes: &old, raw: true }, Deadline::Keep)
        } else {
            let parts = [Part::Bytes(&old), Part::Zeros(gap), Part::Bytes(&bytes[overlap..])];
            self.retry(|| self.new_blob(&parts, growing))
                .and_then(|blob| self.put_ready(local, db, key, blob))
        };
        old.clear();
        local.bytes = old;
        result.map(|_| len_bytes)
    }

    /// Stores a blob that nothing refers to yet; frees it if that fails.
    fn put_ready(&self, local: &mut Local, db: DbId, key: &Key<'_>, blob: Blob) -> Result<bool, OpError> {
        let put = Put::Ready { blob, raw: true };
        self.put(local, db, key, put, Deadline::Keep).inspect_err(|_| self.discard_blob(&blob))
    }

    /// Writes in place if the value's place allows; else copies the old value to the worker's buffer. `None` if
    /// the key is absent.
    fn write_range_step(
        &self,
        local: &mut Local,
        tree: Tree,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<Range>, Stop> {
        let mut leaf = self.leaf_exclusive(tree, key.hash, key.leaf_hint)?;
        let Some(at) = self.find_exclusive(&leaf, key)? else { return Ok(None) };
        let record = leaf.record(at)?;
        if record.deadline.is_some_and(|deadline| deadline <= local.now) {
            return Ok(None);
        }
        local.bytes.clear();
        let blob = match record.value {
            RecordValue::Int(value) => {
                local.bytes.extend_from_slice(value.to_string().as_bytes());
                return Ok(Some(Range::Rewrite { growing: false }));
            }
            RecordValue::Bytes(old) => {
                let end = offset as usize + bytes.len();
                if end > old.len() || !record.raw {
                    local.bytes.extend_from_slice(old);
                    return Ok(Some(Range::Rewrite { growing: false }));
                }
                let len_bytes = old.len() as u64;
                leaf.leaf_mut(at.page)?.value_mut(at.slot)[offset as usize..end].copy_from_slice(bytes);
                self.side.touch(leaf.head.id(), local.tick);
                return Ok(Some(Range::Written(len_bytes)));
            }
            RecordValue::Blob(blob) => blob,
        };
        let Some(new_blob) = self.write_in_blob(&blob, offset, bytes)? else {
            self.read_blob(&blob, &mut local.bytes)?;
            return Ok(Some(Range::Rewrite { growing: true }));
        };
        self.refer_to(&mut leaf, at, new_blob)?;
        self.side.touch(leaf.head.id(), local.tick);
        drop(leaf);
        if new_blob.pid != blob.pid {
            self.discard_blob(&blob);
        }
        Ok(Some(Range::Written(u64::from(new_blob.len_bytes))))
    }

    /// Lets a record refer to a blob that has changed; it takes the same bytes as before.
    fn refer_to(&self, leaf: &mut LeafGuard<'_>, at: At, blob: Blob) -> Result<(), Stop> {
        let mut copy = [0; RECORD_MAX_BYTES];
        let old = copy_record(leaf.record(at)?, &mut copy)?;
        let record = Record { value: RecordValue::Blob(blob), raw: true, ..old };
        if old != record {
            leaf.replace(at, &record)?;
        }
        Ok(())
    }

    /// Writes into a blob's place or grows it. `None` if it is in a slab and does not fit in its slot.
    fn write_in_blob(&self, blob: &Blob, offset: u64, bytes: &[u8]) -> Result<Option<Blob>, Stop> {
        let (old_len, end) = (u64::from(blob.len_bytes), offset + bytes.len() as u64);
        if end <= Self::blob_memory_bytes(blob) {
            let gap_start = old_len.min(offset);
            let parts = [Part::Zeros(offset - gap_start), Part::Bytes(bytes)];
            self.overwrite(blob, gap_start, &parts)?;
            return Ok(Some(Blob { len_bytes: end.max(old_len) as u32, ..*blob }));
        }
        match blob.place {
            Place::Slab { .. } => Ok(None),
            Place::Object { .. } => self.grow_object(blob, offset, bytes).map(Some),
        }
    }

    /// Sets or clears a deadline; returns whether the key is there.
    pub fn set_deadline(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        deadline: Option<UnixMillis>,
    ) -> Result<bool, OpError> {
        let _lock = self.lock_key(local, db, key.hash, true);
        let Some(tree) = self.tree(db) else { return Ok(false) };
        loop {
            match self.retry(|| self.set_deadline_step(local, tree, key, deadline))? {
                Step::Done(Was::There) => {
                    local.count_change();
                    return Ok(true);
                }
                Step::Done(Was::Absent) => return Ok(false),
                Step::Done(Was::Expired) => {
                    self.remove_expired(local, db, key)?;
                    return Ok(false);
                }
                Step::NoRoom(bytes) => self.retry(|| self.make_room(local, tree, key.hash, bytes))?,
            }
        }
    }

    fn set_deadline_step(
        &self,
        local: &Local,
        tree: Tree,
        key: &Key<'_>,
        deadline: Option<UnixMillis>,
    ) -> Result<Step<Was>, Stop> {
        let mut leaf = self.leaf_exclusive(tree, key.hash, key.leaf_hint)?;
        let Some(at) = self.find_exclusive(&leaf, key)? else { return Ok(Step::Done(Was::Absent)) };
        let old = leaf.record(at)?;
        let before = old.deadline;
        if before.is_some_and(|deadline| deadline <= local.now) {
            return Ok(Step::Done(Was::Expired));
        }
        if before == deadline {
            return Ok(Step::Done(Was::There));
        }
        let mut copy = [0; RECORD_MAX_BYTES];
        let old_bytes = old.encoded_bytes();
        let record = Record { deadline, ..copy_record(old, &mut copy)? };
        let record_bytes = record.encoded_bytes();
        let Some(at) = self.place_for(&mut leaf, at, old_bytes, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        leaf.replace(at, &record)?;
        self.note_written(local, tree, &leaf, before, deadline);
        Ok(Step::Done(Was::There))
    }

    /// Copies an entry over whatever is at `to`.
    pub fn copy(
        &self,
        local: &mut Local,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
    ) -> Result<bool, OpError> {
        let mut bytes = std::mem::take(&mut local.bytes);
        let copied = self.copy_with(local, from, to, &mut bytes);
        bytes.clear();
        local.bytes = bytes;
        copied
    }

    fn copy_with(
        &self,
        local: &mut Local,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        bytes: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let found = self.peek(local, from.0, from.1, |record| {
            bytes.clear();
            let copy = match record.value {
                RecordValue::Int(value) => Copied::Int(value),
                RecordValue::Bytes(inline) => {
                    bytes.extend_from_slice(inline);
                    Copied::Bytes
                }
                RecordValue::Blob(blob) => match blob.place {
                    Place::Object { .. } => Copied::Object(self.copy_object(&blob)?),
                    Place::Slab { .. } => {
                        self.read_blob(&blob, bytes)?;
                        Copied::Bytes
                    }
                },
            };
            Ok((copy, record.raw, record.deadline))
        })?;
        let Some((copy, raw, deadline)) = found else { return Ok(false) };
        let deadline = deadline.map_or(Deadline::Clear, Deadline::At);
        let put = match copy {
            Copied::Int(value) => Put::Int(value),
            Copied::Bytes => Put::Bytes { bytes, raw },
            Copied::Object(blob) => Put::Ready { blob, raw },
        };
        let stored = self.put(local, to.0, to.1, put, deadline);
        if let (Err(_), Put::Ready { blob, .. }) = (&stored, put) {
            self.discard_blob(&blob);
        }
        stored.map(|_| true)
    }

    /// Moves an entry over whatever is at `to`; the caller holds locks on both.
    pub fn rename(
        &self,
        local: &mut Local,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
    ) -> Result<bool, OpError> {
        let there = self.peek(local, from.0, from.1, |_| Ok(()))?.is_some();
        if !there || (from.0 == to.0 && from.1.bytes == to.1.bytes) {
            return Ok(there);
        }
        let Some(from_tree) = self.tree(from.0) else { return Ok(false) };
        let to_tree = self.retry(|| self.tree_or_create(to.0))?;
        loop {
            let step = self.retry(|| self.rename_step(local, (from_tree, from.1), (to_tree, to.1)))?;
            match step {
                Step::NoRoom(bytes) => self.retry(|| self.make_room(local, to_tree, to.1.hash, bytes))?,
                Step::Done(Renamed::Absent) => return Ok(false),
                Step::Done(Renamed::Moved { from: left, to: replaced, sparse }) => {
                    self.settle_rename(local, from.0, to.0, left, replaced);
                    if sparse {
                        // Joining only saves memory: what stands in its way may stay there.
                        let _ = self.join_leaves(local, from_tree, from.1.hash);
                    }
                    return Ok(true);
                }
            }
        }
    }

    fn settle_rename(
        &self,
        local: &mut Local,
        from: DbId,
        to: DbId,
        left: Remains,
        replaced: Option<Remains>,
    ) {
        let moved_deadline = i64::from(left.deadline.is_some());
        local.count_key(from, -1);
        local.count_deadline(from, -moved_deadline);
        let replaced_deadline = replaced.is_some_and(|remains| remains.deadline.is_some());
        local.count_key(to, i64::from(replaced.is_none()));
        local.count_deadline(to, moved_deadline - i64::from(replaced_deadline));
        local.count_change();
        // The value lives on under its new name; the old name and what it replaced do not.
        self.discard(&Remains { value: None, ..left });
        self.discard(&Remains { key: None, ..replaced.unwrap_or_default() });
    }

    fn rename_step(
        &self,
        local: &Local,
        (from_tree, from): (Tree, &Key<'_>),
        (to_tree, to): (Tree, &Key<'_>),
    ) -> Result<Step<Renamed>, Stop> {
        let mut leaf = self.leaf_exclusive(from_tree, from.hash, None)?;
        let Some(at) = self.find_exclusive(&leaf, from)? else { return Ok(Step::Done(Renamed::Absent)) };
        let mut copy = [0; RECORD_MAX_BYTES];
        let old = copy_record(leaf.record(at)?, &mut copy)?;
        let mut other = match leaf.leaf(0)?.covers(to_tree.tag, to.hash) {
            true => None,
            false => Some(self.try_leaf_exclusive(to_tree, to.hash)?),
        };
        let target = other.as_mut().unwrap_or(&mut leaf);
        let replaced = match self.move_in(target, to, &old)? {
            Step::NoRoom(bytes) => return Ok(Step::NoRoom(bytes)),
            Step::Done(replaced) => replaced,
        };
        if let Some(deadline) = old.deadline {
            self.side.add_deadline(target.head.id(), deadline);
        }
        self.side.touch(target.head.id(), local.tick);
        // In one leaf, slots may have moved.
        let Some(at) = self.find_exclusive(&leaf, from)? else { return Err(bad_record(leaf.head.id())) };
        self.remove_from_chain(&mut leaf, at)?;
        let sparse = is_sparse(leaf.leaf(0)?);
        Ok(Step::Done(Renamed::Moved { from: Remains::of(&old), to: replaced, sparse }))
    }

    /// Puts a record under another key into its latched leaf. Returns what it replaced.
    fn move_in(
        &self,
        target: &mut LeafGuard<'_>,
        to: &Key<'_>,
        old: &Record<'_>,
    ) -> Result<Step<Option<Remains>>, Stop> {
        if let Some(at) = self.find_exclusive(target, to)? {
            let replaced = target.record(at)?;
            let remains = Remains::of(&replaced);
            let key = match replaced.key {
                RecordKey::Inline(_) => RecordKey::Inline(to.bytes),
                RecordKey::Out { hash, blob } => RecordKey::Out { hash, blob },
            };
            let record = Record { key, ..*old };
            let (old_bytes, record_bytes) = (replaced.encoded_bytes(), record.encoded_bytes());
            self.check_discardable(&remains)?;
            let Some(at) = self.place_for(target, at, old_bytes, record_bytes)? else {
                return Ok(Step::NoRoom(record_bytes));
            };
            target.replace(at, &record)?;
            return Ok(Step::Done(Some(remains)));
        }
        let long_key = to.bytes.len() > KEY_INLINE_MAX_BYTES;
        let key_bytes = if long_key { 20 } else { to.bytes.len() };
        let old_key_bytes = match old.key {
            RecordKey::Inline(key) => key.len(),
            RecordKey::Out { .. } => 20,
        };
        let record_bytes = old.encoded_bytes() - old_key_bytes + key_bytes;
        let Some(page) = self.page_for(target, to.hash, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        let key = match long_key {
            true => RecordKey::Out { hash: to.hash, blob: self.new_blob(&[Part::Bytes(to.bytes)], false)? },
            false => RecordKey::Inline(to.bytes),
        };
        target.insert(page, to.hash, &Record { key, ..*old })?;
        Ok(Step::Done(None))
    }
}

/// A copied value: the bytes of the second are in a buffer.
enum Copied {
    Int(i64),
    Bytes,
    Object(Blob),
}

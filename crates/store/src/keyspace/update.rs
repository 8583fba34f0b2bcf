//! Changing entries: deadlines, copies, names.

use super::state::{Keyspace, Local};
use super::write::{copy_record, Put, Remains, Step, Was};
use crate::blobs::{Blob, Duplicate, Part, Place};
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

impl Keyspace {
    /// Sets or clears a deadline; returns whether the key is there.
    pub fn set_deadline(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        deadline: Option<UnixMillis>,
    ) -> Result<bool, OpError> {
        let _lock = self.locks.lock_key(&local.holder, db, key.hash);
        let Some(tree) = self.tree(db) else {
            self.check_database(db)?;
            return Ok(false);
        };
        loop {
            match retry(|| self.set_deadline_step(local, tree, key, deadline))? {
                Step::Done(Was::There) => {
                    self.announce(local, Effect::Deadline { db, key: *key, deadline });
                    return Ok(true);
                }
                Step::Done(Was::Absent) => return Ok(false),
                Step::Done(Was::Expired) => {
                    self.remove_expired(local, db, key)?;
                    return Ok(false);
                }
                Step::NoRoom(bytes) => {
                    retry(|| self.trees.make_room(&mut local.scratch, tree, key.hash, bytes))?
                }
            }
        }
    }

    /// Of a key or of an element.
    pub(super) fn set_deadline_step(
        &self,
        local: &Local,
        tree: Tree,
        key: &Key<'_>,
        deadline: Option<UnixMillis>,
    ) -> Result<Step<Was>, Stop> {
        let mut leaf = self.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
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
        self.note_written(local, tree, &leaf, before, &record);
        if tree.has_keys() {
            local.tracked.touch(tree.tag, key.hash);
        }
        Ok(Step::Done(Was::There))
    }

    /// Copies an entry over whatever is at `to`, its value by a copy that has been made of it already if there is one.
    pub fn copy(
        &self,
        local: &mut Local,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        duplicate: Option<&Duplicate>,
    ) -> Result<bool, OpError> {
        let mut bytes = std::mem::take(&mut local.bytes);
        let copied = self.copy_with(local, from, to, duplicate, &mut bytes);
        bytes.clear();
        local.bytes = bytes;
        copied
    }

    fn copy_with(
        &self,
        local: &mut Local,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        duplicate: Option<&Duplicate>,
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
                RecordValue::Blob(blob) if duplicate.is_some_and(|copy| copy.is_of(&blob)) => Copied::Made,
                RecordValue::Blob(blob) => match blob.place {
                    Place::Object { .. } => Copied::Object(self.blobs.copy_object(&blob)?),
                    Place::Slab { .. } => {
                        self.blobs.read(&blob, bytes)?;
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
        let stored = self.put(local, to.0, to.1, put, deadline);
        match (&stored, copy, duplicate) {
            (Err(_), Copied::Object(blob), _) => self.blobs.discard(&blob),
            (Ok(_), Copied::Made, Some(made)) => made.copy().note_used(),
            _ => {}
        }
        stored?;
        self.announce(local, Effect::Copy { from: (from.0, *from.1), to: (to.0, *to.1) });
        Ok(true)
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
        let to_tree = retry(|| self.tree_or_create(to.0))?;
        loop {
            let step = retry(|| self.rename_step(local, (from_tree, from.1), (to_tree, to.1)))?;
            match step {
                Step::NoRoom(bytes) => {
                    retry(|| self.trees.make_room(&mut local.scratch, to_tree, to.1.hash, bytes))?
                }
                Step::Done(Renamed::Absent) => return Ok(false),
                Step::Done(Renamed::Moved { from: left, to: replaced, sparse }) => {
                    self.settle_rename(local, from, to, left, replaced);
                    if sparse {
                        // Joining only saves memory: what stands in its way may stay there.
                        let _ = self.trees.join_leaves(
                            &mut local.scratch,
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
        &self,
        local: &mut Local,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        left: Remains,
        replaced: Option<Remains>,
    ) {
        let moved_deadline = i64::from(left.deadline.is_some());
        local.deltas.count_key(from.0, -1);
        local.deltas.count_deadline(from.0, -moved_deadline);
        let replaced_deadline = replaced.is_some_and(|remains| remains.deadline.is_some());
        local.deltas.count_key(to.0, i64::from(replaced.is_none()));
        if let (Some(from_tree), Some(to_tree)) = (self.tree(from.0), self.tree(to.0)) {
            local.tracked.rename((from_tree.tag, from.1.hash), (to_tree.tag, to.1.hash));
        }
        local.deltas.count_deadline(to.0, moved_deadline - i64::from(replaced_deadline));
        if replaced.is_some_and(|remains| remains.has_expired(local.now)) {
            local.expired_count += 1;
            self.announce(local, Effect::Expire { db: to.0, key: *to.1 });
        }
        self.announce(local, Effect::Move { from: (from.0, *from.1), to: (to.0, *to.1) });
        // The value lives on under its new name; the old name and what it replaced do not.
        self.discard(&Remains { value: None, roots: [None; 2], ..left });
        self.discard(&Remains { key: None, ..replaced.unwrap_or_default() });
    }

    fn rename_step(
        &self,
        local: &Local,
        (from_tree, from): (Tree, &Key<'_>),
        (to_tree, to): (Tree, &Key<'_>),
    ) -> Result<Step<Renamed>, Stop> {
        let mut leaf = self.trees.chain_exclusive(from_tree, from.hash, None)?;
        let Some(at) = self.find_exclusive(&leaf, from)? else { return Ok(Step::Done(Renamed::Absent)) };
        let mut copy = [0; RECORD_MAX_BYTES];
        let old = copy_record(leaf.record(at)?, &mut copy)?;
        let mut other = match leaf.leaf(0)?.covers(to_tree.tag, to.hash) {
            true => None,
            false => {
                let head = self.trees.try_leaf_exclusive(to_tree, to.hash)?;
                Some(self.trees.with_chain(head, std::slice::from_ref(&leaf.head))?)
            }
        };
        let target = other.as_mut().unwrap_or(&mut leaf);
        let replaced = match self.move_in(target, to, &old)? {
            Step::NoRoom(bytes) => return Ok(Step::NoRoom(bytes)),
            Step::Done(replaced) => replaced,
        };
        if let Some(deadline) = old.earliest_deadline() {
            self.trees.order.side.add_deadline(target.head.id(), deadline);
        }
        self.trees.order.side.touch(target.head.id(), local.scratch.tick);
        // In one leaf, slots may have moved.
        let Some(at) = self.find_exclusive(&leaf, from)? else { return Err(bad_record(leaf.head.id())) };
        self.remove_from_chain(&mut leaf, at)?;
        let sparse = Joining::Sparse.is_due::<Hashed>(leaf.leaf(0)?);
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
                RecordKey::Inline(_) | RecordKey::Hash(_) => RecordKey::Inline(to.bytes),
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
        self.check_origin(to)?;
        let long_key = to.bytes.len() > KEY_INLINE_MAX_BYTES;
        let key_bytes = if long_key { 20 } else { to.bytes.len() };
        let old_key_bytes = match old.key {
            RecordKey::Inline(key) => key.len(),
            RecordKey::Out { .. } => 20,
            RecordKey::Hash(_) => return Err(no_key()),
        };
        let record_bytes = old.encoded_bytes() - old_key_bytes + key_bytes;
        let Some(page) = self.trees.page_for(target, to.hash, record_bytes)? else {
            return Ok(Step::NoRoom(record_bytes));
        };
        let key = match long_key {
            true => RecordKey::Out { hash: to.hash, blob: self.blobs.make(&[Part::Bytes(to.bytes)], false)? },
            false => RecordKey::Inline(to.bytes),
        };
        target.insert(page, to.hash, &Record { key, ..*old })?;
        Ok(Step::Done(None))
    }
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

//! Strings: what is particular to them at the level of the store.

use std::ops::Range;

use crate::blobs::{Blob, Duplicate, Incoming, LatchedRun, Part, Sending, UNSEEN_MIN_BYTES};
use crate::effect::Effect;
use crate::keyspace::{copy_record, Keyspace, Local, Put, Was};
use crate::stop::{retry, Stop};
use crate::tree::hash::{At, LeafGuard, Record, RecordValue, RECORD_MAX_BYTES, VALUE_INLINE_MAX_BYTES};
use crate::tree::Tree;
use crate::value::{NoPages, Repr};
use crate::worker::Worker;
use crate::{DbId, Deadline, Key, NewValue, OpError, StrRef, UnixMillis, MAX_STRING_BYTES};

impl Worker {
    /// Reads a value in place. `f` runs under the latch: it may copy, not block. An expired entry is removed
    /// and counts as absent.
    #[inline]
    pub fn get<R>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        self.get_part(db, key, |len| 0..len, f)
    }

    /// The same with only those of its bytes in memory that `wanted` chooses by the value's length: `f` must not look at
    /// others. A part of a value may be read that memory does not hold as a whole.
    ///
    /// # Errors
    /// [`OpError::LargerThanMemory`]: also if memory does not hold what is wanted.
    #[inline]
    pub fn get_part<R>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        wanted: impl Fn(u64) -> Range<u64>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        if !self.waits() {
            self.count_operation();
            let (keyspace, local) = self.split();
            return keyspace.get_string(local, db, key, wanted, f);
        }
        let mut f = Some(f);
        let found = self.run(|keyspace, local| {
            keyspace.get_string(local, db, key, &wanted, |value| f.take().map(|f| f(value)))
        });
        found?.map(|result| result.ok_or_else(|| looked_beyond().into())).transpose()
    }

    /// Begins to read 256 KB or more of a value in parts, the bytes that `wanted` chooses by its length: they stay as they
    /// are until the [`Sending`] is dropped, whatever happens to the key. They need not be in memory. `None` if the key
    /// is absent, if the bytes are fewer, or if too many values are being read so.
    ///
    /// # Errors
    /// As [`Worker::get`].
    pub fn begin_sending(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        wanted: impl Fn(u64) -> Range<u64>,
    ) -> Result<Option<Sending>, OpError> {
        self.run(|keyspace, local| keyspace.send_string(local, db, key, &wanted))
    }

    /// Begins to copy a value of 1 MB or more part by part, unless it is absent or shorter; with `only_if_sent`, unless nobody
    /// reads it in parts: then it can be changed where it is.
    ///
    /// # Errors
    /// As of [`Worker::begin_incoming`].
    pub fn begin_duplicate(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        only_if_sent: bool,
    ) -> Result<Option<Duplicate>, OpError> {
        let from = self.run(|keyspace, local| keyspace.send_large(local, db, key, only_if_sent))?;
        let Some(from) = from else { return Ok(None) };
        let to = self.begin_incoming(from.len_bytes())?;
        Ok(Some(Duplicate::new(from, to)))
    }

    /// Whether a key still has the value of which a copy is being made.
    ///
    /// # Errors
    /// As of [`Worker::get`].
    pub fn is_source(&mut self, db: DbId, key: &Key<'_>, copy: &Duplicate) -> Result<bool, OpError> {
        self.run(|keyspace, local| keyspace.has_blob(local, db, key, copy.source()))
    }

    /// Whether a key still has the value that is being read in parts.
    ///
    /// # Errors
    /// As of [`Worker::get`].
    pub fn has_value(&mut self, db: DbId, key: &Key<'_>, value: &Sending) -> Result<bool, OpError> {
        self.run(|keyspace, local| keyspace.has_blob(local, db, key, value.blob()))
    }

    /// Begins to read, in parts, what has come of a value that no key refers to. It is nothing once that is dropped. `None`
    /// as of [`Worker::begin_sending`].
    ///
    /// # Errors
    /// As of [`Worker::get`]; [`OpError::OtherStore`].
    pub fn begin_reading(&mut self, value: &Incoming) -> Result<Option<Sending>, OpError> {
        self.run(|keyspace, _| keyspace.blobs.begin_reading(value))
    }

    /// Lets a key refer to a whole copy of its value in place of the value, which changes nothing for anybody. False if the
    /// value is another one by now.
    ///
    /// # Errors
    /// As of [`Worker::write_range`]; [`OpError::Incomplete`], [`OpError::Used`], [`OpError::OtherStore`].
    pub fn replace_by_duplicate(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        copy: &Duplicate,
    ) -> Result<bool, OpError> {
        self.run(|keyspace, local| keyspace.replace_by_duplicate(local, db, key, copy))
    }

    /// The same as [`Worker::copy`] with the copy made already: `from` must be its source, which the caller's locks keep. If it is
    /// not, or the copy is not whole, or has been used, another one is made.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::copy`]; [`OpError::OtherStore`].
    pub fn copy_duplicate(
        &mut self,
        from: (DbId, &Key<'_>),
        to: (DbId, &Key<'_>),
        copy: &Duplicate,
    ) -> Result<bool, OpError> {
        self.keyspace().blobs.check_own_copy(copy)?;
        let _locks = self.lock_if_waiting([from, to]);
        self.run(|keyspace, local| keyspace.copy(local, from, to, Some(copy)))
    }

    /// Begins a value whose bytes are still to come ([`NewValue::Incoming`]). Lengths of 64 KB to [`MAX_STRING_BYTES`].
    ///
    /// # Errors
    /// [`OpError::TooLarge`], [`OpError::TooSmall`] for other lengths. [`OpError::OutOfMemory`]: also if too many are on their way in at a time.
    pub fn begin_incoming(&mut self, len_bytes: u64) -> Result<Incoming, OpError> {
        self.run(|keyspace, _| keyspace.blobs.begin_incoming(len_bytes))
    }

    /// The same of the name of an element, which is looked for by its hash.
    ///
    /// # Errors
    /// As of [`Worker::begin_incoming`].
    pub fn begin_incoming_name(&mut self, len_bytes: u64) -> Result<Incoming, OpError> {
        let keyspace = self.keyspace();
        let mut incoming = keyspace.blobs.begin_incoming(len_bytes)?;
        incoming.hash_with(keyspace.trees.order.hasher());
        Ok(incoming)
    }

    /// Stores a value; returns whether the key was there before. A deadline in the past stores nothing and
    /// removes the key.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    #[inline]
    pub fn set(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        value: NewValue<'_>,
        deadline: Deadline,
    ) -> Result<bool, OpError> {
        if !self.waits() {
            // Not by `run`, which would have what it takes in memory: the hottest of all writes.
            self.count_operation();
            let (keyspace, local) = self.split();
            let was_there = keyspace.set_string(local, db, key, value, deadline);
            local.holder.acting.end_operation();
            return was_there;
        }
        self.run(|keyspace, local| keyspace.set_string(local, db, key, value, deadline))
    }

    /// The same with a deadline that may lie in the past: as in Redis the key is there then until something looks at it, or the
    /// active expiry comes to it.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    pub fn set_until(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        value: NewValue<'_>,
        deadline: UnixMillis,
    ) -> Result<bool, OpError> {
        self.run(|keyspace, local| keyspace.store_string(local, db, key, value, Deadline::At(deadline)))
    }

    /// Writes `bytes` at `offset` of the string, in place where it can; a missing key or a gap is filled with
    /// zero bytes; the deadline stays; the encoding becomes raw, which is all that no bytes at the start of a string do.
    /// Returns the new length in bytes.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError::TooLarge`] over [`MAX_STRING_BYTES`].
    pub fn write_range(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, OpError> {
        self.run(|keyspace, local| keyspace.write_string_range(local, db, key, offset, bytes))
    }
}

/// The reader of a value was called again, because what it looked at was missing.
#[cold]
fn looked_beyond() -> Stop {
    Stop::Damaged("a value was looked at beyond the bytes that were asked for".into())
}

/// What a range write found.
enum Wrote {
    /// Written in place; the value's new length.
    InPlace(u64),
    /// The whole value has to be stored anew: it is in the worker's buffer. With growth to come, or not.
    Rewrite { growing: bool },
}

impl Keyspace {
    /// Reads a value in place; an expired entry is removed.
    #[inline(always)]
    fn get_string<R>(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        wanted: impl Fn(u64) -> Range<u64>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        let mut f = Some(f);
        self.read(local, db, key, |local, met| {
            let result = self.with_value(&met.record, &wanted, |value| f.take().map(|f| f(value)))?;
            self.trees.order.side.touch(met.leaf, local.scratch.tick);
            local.tracked.touch(met.tree_tag, key.hash);
            result.ok_or_else(looked_beyond)
        })
    }

    /// Keeps a large value as it is while it is read in parts; an expired entry is removed.
    fn send_string(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        wanted: impl Fn(u64) -> Range<u64>,
    ) -> Result<Option<Sending>, OpError> {
        let sending = self.read(local, db, key, |local, met| {
            let RecordValue::Blob(blob) = met.record.value else { return Ok(None) };
            self.trees.order.side.touch(met.leaf, local.scratch.tick);
            self.blobs.begin_sending(&blob, wanted(u64::from(blob.len_bytes)))
        });
        sending.map(Option::flatten)
    }

    /// Keeps a value of 1 MB or more as it is while it is copied.
    fn send_large(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        only_if_sent: bool,
    ) -> Result<Option<Sending>, OpError> {
        let sending = self.read(local, db, key, |_, met| {
            let RecordValue::Blob(blob) = met.record.value else { return Ok(None) };
            let is_large = u64::from(blob.len_bytes) >= UNSEEN_MIN_BYTES;
            match is_large && (!only_if_sent || self.blobs.is_sent(&blob)) {
                true => self.blobs.begin_sending(&blob, 0..u64::from(blob.len_bytes)),
                false => Ok(None),
            }
        });
        sending.map(Option::flatten)
    }

    fn has_blob(&self, local: &mut Local, db: DbId, key: &Key<'_>, blob: Blob) -> Result<bool, OpError> {
        let found = self.read(local, db, key, |_, met| Ok(met.record.value == RecordValue::Blob(blob)))?;
        Ok(found == Some(true))
    }

    /// See [`Worker::replace_by_duplicate`].
    fn replace_by_duplicate(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        copy: &Duplicate,
    ) -> Result<bool, OpError> {
        let _lock = self.locks.lock_key(&local.holder, db, key.hash);
        let Some(tree) = self.tree(db) else {
            self.check_database(db)?;
            return Ok(false);
        };
        let mut refused = None;
        let is_replaced = retry(|| {
            let mut leaf = self.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
            let Some(at) = self.find_exclusive(&leaf, key)? else { return Ok(false) };
            if leaf.record(at)?.value != RecordValue::Blob(copy.source()) {
                return Ok(false);
            }
            match self.blobs.unused(copy.copy()) {
                Ok(whole) => self.refer_to(&mut leaf, at, whole)?,
                Err(error) => refused = Some(error),
            }
            Ok(refused.is_none())
        })?;
        if let Some(error) = refused {
            return Err(error);
        }
        if is_replaced {
            copy.copy().note_used();
            self.blobs.discard(&copy.source());
        }
        Ok(is_replaced)
    }

    /// Gives a record's value to `f`; fails before that if a page of what is wanted is missing, and after it if one could not
    /// be read all the same.
    #[inline(always)]
    fn with_value<R>(
        &self,
        record: &Record<'_>,
        wanted: impl Fn(u64) -> Range<u64>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<R, Stop> {
        let repr = match record.value {
            RecordValue::Int(value) => Repr::Int(value),
            RecordValue::Bytes(bytes) => Repr::Bytes(bytes),
            RecordValue::Blob(blob) => {
                let (offset, len_bytes) = (blob.start(), u64::from(blob.len_bytes));
                let bytes = wanted(len_bytes);
                let bytes = bytes.start..bytes.end.min(len_bytes);
                if bytes.is_empty() {
                    let repr = Repr::Pages { run: &NoPages, offset, len_bytes };
                    return Ok(f(StrRef { repr, raw: record.raw }));
                }
                let run = LatchedRun::new(self.blobs.latch_with(&blob, bytes)?);
                let repr = Repr::Pages { run: &run, offset, len_bytes };
                let result = f(StrRef { repr, raw: record.raw });
                return run.check().map(|()| result);
            }
            RecordValue::Other { .. } => return Err(Stop::WrongType),
        };
        Ok(f(StrRef { repr, raw: record.raw }))
    }

    /// Stores a value; returns whether the key was there before.
    pub fn set_string(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        value: NewValue<'_>,
        deadline: Deadline,
    ) -> Result<bool, OpError> {
        if matches!(deadline, Deadline::At(at) if at <= local.now) {
            return self.remove(local, db, key);
        }
        self.store_string(local, db, key, value, deadline)
    }

    /// The same, whatever the deadline.
    #[inline]
    fn store_string(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        value: NewValue<'_>,
        deadline: Deadline,
    ) -> Result<bool, OpError> {
        let put = match value {
            NewValue::Int(value) => Put::Int(value),
            NewValue::Bytes { bytes, .. } if bytes.len() as u64 > MAX_STRING_BYTES => {
                return Err(OpError::TooLarge)
            }
            NewValue::Bytes { bytes, raw } => Put::Bytes { bytes, raw },
            NewValue::Incoming(incoming) => Put::Ready { blob: self.blobs.unused(incoming)?, raw: false },
        };
        let _lock = self.locks.lock_key(&local.holder, db, key.hash);
        let was = self.beside_damage(db, key, || self.put(local, db, key, put, deadline))?;
        if let NewValue::Incoming(incoming) = value {
            incoming.note_used();
        }
        self.announce(local, Effect::Set { db, key: *key, value, deadline, is_new: was != Was::There });
        Ok(was == Was::There)
    }

    /// Writes `bytes` at `offset` of a string; see [`crate::Worker::write_range`].
    fn write_string_range(
        &self,
        local: &mut Local,
        db: DbId,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, OpError> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= MAX_STRING_BYTES);
        let end = end.ok_or(OpError::TooLarge)?;
        let _lock = self.locks.lock_key(&local.holder, db, key.hash);
        let tree = retry(|| self.tree_or_create(db))?;
        let found = retry(|| self.write_range_step(local, tree, key, offset, bytes))?;
        if let Some(Wrote::InPlace(_)) = found {
            local.tracked.touch(tree.tag, key.hash);
        }
        // No bytes at the start of what is there: at most the encoding changes.
        let is_change = found.is_none() || offset > 0 || !bytes.is_empty();
        let is_new = found.is_none();
        let len_bytes = match found {
            Some(Wrote::InPlace(len_bytes)) => len_bytes,
            Some(Wrote::Rewrite { growing }) => {
                self.store_range(local, db, key, offset, bytes, end, growing)?
            }
            None => {
                local.bytes.clear();
                self.store_range(local, db, key, offset, bytes, end, false)?
            }
        };
        if is_change {
            self.announce(local, Effect::Write { db, key: *key, offset, bytes, is_new });
        }
        Ok(len_bytes)
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
            retry(|| self.blobs.make(&parts, growing)).and_then(|blob| self.put_ready(local, db, key, blob))
        };
        old.clear();
        local.bytes = old;
        result.map(|_| len_bytes)
    }

    /// Stores a blob that nothing refers to yet; frees it if that fails.
    fn put_ready(&self, local: &mut Local, db: DbId, key: &Key<'_>, blob: Blob) -> Result<Was, OpError> {
        let put = Put::Ready { blob, raw: true };
        self.put(local, db, key, put, Deadline::Keep).inspect_err(|_| self.blobs.discard(&blob))
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
    ) -> Result<Option<Wrote>, Stop> {
        let mut leaf = self.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
        let Some(at) = self.find_exclusive(&leaf, key)? else { return Ok(None) };
        let record = leaf.record(at)?;
        if record.deadline.is_some_and(|deadline| deadline <= local.now) {
            return Ok(None);
        }
        local.bytes.clear();
        let blob = match record.value {
            RecordValue::Int(value) => {
                local.bytes.extend_from_slice(value.to_string().as_bytes());
                return Ok(Some(Wrote::Rewrite { growing: false }));
            }
            RecordValue::Bytes(old) => {
                let end = offset as usize + bytes.len();
                if end > old.len() || !record.raw {
                    local.bytes.extend_from_slice(old);
                    return Ok(Some(Wrote::Rewrite { growing: false }));
                }
                let len_bytes = old.len() as u64;
                leaf.leaf_mut(at.page)?.value_mut(at.slot)[offset as usize..end].copy_from_slice(bytes);
                self.trees.order.side.touch(leaf.head.id(), local.scratch.tick);
                return Ok(Some(Wrote::InPlace(len_bytes)));
            }
            RecordValue::Blob(blob) => blob,
            RecordValue::Other { .. } => return Err(Stop::WrongType),
        };
        let Some(new_blob) = self.blobs.write_at(&blob, offset, bytes)? else {
            self.blobs.read(&blob, &mut local.bytes)?;
            return Ok(Some(Wrote::Rewrite { growing: true }));
        };
        self.refer_to(&mut leaf, at, new_blob)?;
        self.trees.order.side.touch(leaf.head.id(), local.scratch.tick);
        drop(leaf);
        if new_blob.pid != blob.pid {
            self.blobs.discard(&blob);
        }
        Ok(Some(Wrote::InPlace(u64::from(new_blob.len_bytes))))
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
}

//! Strings: what is particular to them at the level of the store.

use std::ops::Range;

use crate::blobs::{Blob, Duplicate, Incoming, LatchedRun, Part, Sending, UNSEEN_MIN_BYTES};
use crate::effect::Effect;
use crate::keyspace::{copy_record, find, read, update, write, Keyspace, Op, Put, Was};
use crate::stop::{retry, Stop};
use crate::tree::hash::{At, LeafGuard, Record, RecordValue, RECORD_MAX_BYTES, VALUE_INLINE_MAX_BYTES};
use crate::tree::Tree;
use crate::value::{NoPages, Repr};
use crate::worker::{lock_if_waiting, Worker};
use crate::{DbId, Deadline, Key, NewValue, OpError, StrRef, UnixMillis, MAX_STRING_BYTES};

impl Worker {
    /// The string at a key, for what is done with a part of it.
    #[inline]
    pub fn string_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> StringAt<'_, 'k> {
        StringAt { worker: self, db, key: *key }
    }

    /// Reads a value in place. `f` runs under the latch: it may copy, not block. An expired entry is removed
    /// and counts as absent.
    #[inline]
    pub fn get<R>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        self.string_at(db, key).get_part(|len| 0..len, f)
    }

    /// Begins to read, in parts, what has come of a value that no key refers to. It is nothing once that is dropped. `None`
    /// as of [`StringAt::begin_sending`].
    ///
    /// # Errors
    /// As of [`Worker::get`]; [`OpError::OtherStore`].
    pub fn begin_reading(&mut self, value: &Incoming) -> Result<Option<Sending>, OpError> {
        self.run(|op| op.keyspace.blobs.begin_reading(value))
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
        let _locks = lock_if_waiting(self, [from, to]);
        self.run(|op| update::copy(op, from, to, Some(copy)))
    }

    /// Begins a value whose bytes are still to come ([`NewValue::Incoming`]). Lengths of 64 KB to [`MAX_STRING_BYTES`].
    ///
    /// # Errors
    /// [`OpError::TooLarge`], [`OpError::TooSmall`] for other lengths. [`OpError::OutOfMemory`]: also if too many are on their way in at a time.
    pub fn begin_incoming(&mut self, len_bytes: u64) -> Result<Incoming, OpError> {
        self.run(|op| op.keyspace.blobs.begin_incoming(len_bytes))
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
            let mut op = self.op();
            let was_there = set(&mut op, db, key, value, deadline);
            op.local.holder.acting.end_operation();
            return was_there;
        }
        self.run(|op| set(op, db, key, value, deadline))
    }
}

/// The string at a key, for operations of one worker: each is an operation of its own.
pub struct StringAt<'w, 'k> {
    worker: &'w mut Worker,
    db: DbId,
    key: Key<'k>,
}

impl StringAt<'_, '_> {
    /// As of [`Worker::set`], with a deadline that may lie in the past: as in Redis the key is there then until something looks at it,
    /// or the active expiry comes to it.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`Worker::set`].
    pub fn set_until(&mut self, value: NewValue<'_>, deadline: UnixMillis) -> Result<bool, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.run(|op| store(op, db, key, value, Deadline::At(deadline)))
    }

    /// The same with only those of its bytes in memory that `wanted` chooses by the value's length: `f` must not look at
    /// others. A part of a value may be read that memory does not hold as a whole.
    ///
    /// # Errors
    /// [`OpError::LargerThanMemory`]: also if memory does not hold what is wanted.
    #[inline]
    pub fn get_part<R>(
        &mut self,
        wanted: impl Fn(u64) -> Range<u64>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        let (db, key) = (self.db, &self.key);
        if !self.worker.waits() {
            self.worker.count_operation();
            return get(&mut self.worker.op(), db, key, wanted, f);
        }
        let mut f = Some(f);
        let found = self.worker.run(|op| get(op, db, key, &wanted, |value| f.take().map(|f| f(value))));
        found?.map(|result| result.ok_or_else(|| looked_beyond().into())).transpose()
    }

    /// Begins to read 256 KB or more of a value in parts, the bytes that `wanted` chooses by its length: they stay as they
    /// are until the [`Sending`] is dropped, whatever happens to the key. They need not be in memory. `None` if the key
    /// is absent, if the bytes are fewer, or if too many values are being read so.
    ///
    /// # Errors
    /// As [`Worker::get`].
    pub fn begin_sending(&mut self, wanted: impl Fn(u64) -> Range<u64>) -> Result<Option<Sending>, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.run(|op| send(op, db, key, &wanted))
    }

    /// Begins to copy a value of 1 MB or more part by part, unless it is absent or shorter; with `only_if_sent`, unless nobody
    /// reads it in parts: then it can be changed where it is.
    ///
    /// # Errors
    /// As of [`Worker::begin_incoming`].
    pub fn begin_duplicate(&mut self, only_if_sent: bool) -> Result<Option<Duplicate>, OpError> {
        let (db, key) = (self.db, &self.key);
        let from = self.worker.run(|op| send_large(op, db, key, only_if_sent))?;
        let Some(from) = from else { return Ok(None) };
        let to = self.worker.begin_incoming(from.len_bytes())?;
        Ok(Some(Duplicate::new(from, to)))
    }

    /// Whether a key still has the value of which a copy is being made.
    ///
    /// # Errors
    /// As of [`Worker::get`].
    pub fn is_source(&mut self, copy: &Duplicate) -> Result<bool, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.run(|op| has_blob(op, db, key, copy.source()))
    }

    /// Whether a key still has the value that is being read in parts.
    ///
    /// # Errors
    /// As of [`Worker::get`].
    pub fn has_value(&mut self, value: &Sending) -> Result<bool, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.run(|op| has_blob(op, db, key, value.blob()))
    }

    /// Lets a key refer to a whole copy of its value in place of the value, which changes nothing for anybody. False if the
    /// value is another one by now.
    ///
    /// # Errors
    /// As of [`StringAt::write_range`]; [`OpError::Incomplete`], [`OpError::Used`], [`OpError::OtherStore`].
    pub fn replace_by_duplicate(&mut self, copy: &Duplicate) -> Result<bool, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.run(|op| replace_by_duplicate(op, db, key, copy))
    }

    /// Writes `bytes` at `offset` of the string, in place where it can; a missing key or a gap is filled with
    /// zero bytes; the deadline stays; the encoding becomes raw, which is all that no bytes at the start of a string do.
    /// Returns the new length in bytes.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError::TooLarge`] over [`MAX_STRING_BYTES`].
    pub fn write_range(&mut self, offset: u64, bytes: &[u8]) -> Result<u64, OpError> {
        let (db, key) = (self.db, &self.key);
        self.worker.run(|op| write_range(op, db, key, offset, bytes))
    }
}

/// The reader of a value was called again, because what it looked at was missing.
#[cold]
fn looked_beyond() -> Stop {
    Stop::Damaged("a value was looked at beyond the bytes that were asked for".into())
}

/// What a range write found.
enum Wrote {
    /// Written in place; the value's length before and now.
    InPlace { before: u64, len_bytes: u64 },
    /// The whole value has to be stored anew: it is in the worker's buffer. With growth to come, or not.
    Rewrite { growing: bool },
}

/// Reads a value in place; an expired entry is removed.
#[inline(always)]
fn get<R>(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    wanted: impl Fn(u64) -> Range<u64>,
    f: impl FnOnce(StrRef<'_>) -> R,
) -> Result<Option<R>, OpError> {
    let mut f = Some(f);
    read::read(op, db, key, |op, met| {
        let result = with_value(op.keyspace, &met.record, &wanted, |value| f.take().map(|f| f(value)))?;
        op.keyspace.trees.order.side.touch(met.leaf, op.local.scratch.tick);
        op.local.tracked.touch(met.tree_tag, key.hash);
        result.ok_or_else(looked_beyond)
    })
}

/// Keeps a large value as it is while it is read in parts; an expired entry is removed.
fn send(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    wanted: impl Fn(u64) -> Range<u64>,
) -> Result<Option<Sending>, OpError> {
    let sending = read::read(op, db, key, |op, met| {
        let RecordValue::Blob(blob) = met.record.value else { return Ok(None) };
        op.keyspace.trees.order.side.touch(met.leaf, op.local.scratch.tick);
        op.keyspace.blobs.begin_sending(&blob, wanted(u64::from(blob.len_bytes)))
    });
    sending.map(Option::flatten)
}

/// Keeps a value of 1 MB or more as it is while it is copied.
fn send_large(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    only_if_sent: bool,
) -> Result<Option<Sending>, OpError> {
    let sending = read::read(op, db, key, |_, met| {
        let RecordValue::Blob(blob) = met.record.value else { return Ok(None) };
        let is_large = u64::from(blob.len_bytes) >= UNSEEN_MIN_BYTES;
        match is_large && (!only_if_sent || op.keyspace.blobs.is_sent(&blob)) {
            true => op.keyspace.blobs.begin_sending(&blob, 0..u64::from(blob.len_bytes)),
            false => Ok(None),
        }
    });
    sending.map(Option::flatten)
}

fn has_blob(op: &mut Op<'_>, db: DbId, key: &Key<'_>, blob: Blob) -> Result<bool, OpError> {
    let found = read::read(op, db, key, |_, met| Ok(met.record.value == RecordValue::Blob(blob)))?;
    Ok(found == Some(true))
}

/// See [`StringAt::replace_by_duplicate`].
fn replace_by_duplicate(op: &mut Op<'_>, db: DbId, key: &Key<'_>, copy: &Duplicate) -> Result<bool, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
    let Some(tree) = op.keyspace.tree(db) else {
        op.keyspace.check_database(db)?;
        return Ok(false);
    };
    let mut refused = None;
    let is_replaced = retry(|| {
        let mut leaf = op.keyspace.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
        let Some(at) = find::find_exclusive(op.keyspace, &leaf, key)? else { return Ok(false) };
        if leaf.record(at)?.value != RecordValue::Blob(copy.source()) {
            return Ok(false);
        }
        match op.keyspace.blobs.unused(copy.copy()) {
            Ok(whole) => refer_to(&mut leaf, at, whole)?,
            Err(error) => refused = Some(error),
        }
        Ok(refused.is_none())
    })?;
    if let Some(error) = refused {
        return Err(error);
    }
    if is_replaced {
        copy.copy().note_used();
        op.keyspace.blobs.discard(&copy.source());
    }
    Ok(is_replaced)
}

/// Gives a record's value to `f`; fails before that if a page of what is wanted is missing, and after it if one could not
/// be read all the same.
#[inline(always)]
fn with_value<R>(
    keyspace: &Keyspace,
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
            let run = LatchedRun::new(keyspace.blobs.latch_with(&blob, bytes)?);
            let repr = Repr::Pages { run: &run, offset, len_bytes };
            let result = f(StrRef { repr, raw: record.raw });
            return run.check().map(|()| result);
        }
        RecordValue::Other { .. } => return Err(Stop::WrongType),
    };
    Ok(f(StrRef { repr, raw: record.raw }))
}

/// Stores a value; returns whether the key was there before.
pub fn set(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    value: NewValue<'_>,
    deadline: Deadline,
) -> Result<bool, OpError> {
    if matches!(deadline, Deadline::At(at) if at <= op.local.now) {
        return write::remove(op, db, key);
    }
    store(op, db, key, value, deadline)
}

/// The same, whatever the deadline.
#[inline]
fn store(
    op: &mut Op<'_>,
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
        NewValue::Incoming(incoming) => Put::Ready { blob: op.keyspace.blobs.unused(incoming)?, raw: false },
    };
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
    let was = write::beside_damage(op.keyspace, db, key, || write::put(op, db, key, put, deadline))?;
    if let NewValue::Incoming(incoming) = value {
        incoming.note_used();
    }
    let is_new = was != Was::There;
    let deadline = if is_new && deadline == Deadline::Keep { Deadline::Clear } else { deadline };
    op.announce(Effect::Set { db, key: *key, value, deadline, is_new });
    Ok(was == Was::There)
}

/// Writes `bytes` at `offset` of a string; see [`crate::StringAt::write_range`].
fn write_range(op: &mut Op<'_>, db: DbId, key: &Key<'_>, offset: u64, bytes: &[u8]) -> Result<u64, OpError> {
    let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= MAX_STRING_BYTES);
    let end = end.ok_or(OpError::TooLarge)?;
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
    let tree = retry(|| op.keyspace.tree_or_create(db))?;
    let found = retry(|| write_range_step(op, tree, key, offset, bytes))?;
    let before = match found {
        Some(Wrote::InPlace { before, .. }) => {
            op.local.tracked.touch(tree.tag, key.hash);
            before
        }
        Some(Wrote::Rewrite { .. }) => op.local.bytes.len() as u64,
        None => 0,
    };
    // No bytes at the start of what is there: at most the encoding changes.
    let is_change = found.is_none() || offset > 0 || !bytes.is_empty();
    let is_new = found.is_none();
    let len_bytes = match found {
        Some(Wrote::InPlace { len_bytes, .. }) => len_bytes,
        Some(Wrote::Rewrite { growing }) => store_range(op, db, key, offset, bytes, end, growing)?,
        None => {
            op.local.bytes.clear();
            store_range(op, db, key, offset, bytes, end, false)?
        }
    };
    if is_change {
        // Of zeros that were filled in before no bytes the last one says all.
        let is_filled = bytes.is_empty() && offset > before;
        let (offset, bytes) = if is_filled { (offset - 1, &[0][..]) } else { (offset, bytes) };
        op.announce(Effect::Write { db, key: *key, offset, bytes, is_new });
    }
    Ok(len_bytes)
}

/// Stores a value made of the worker's buffer, a gap of zeros, and `bytes` at `offset`.
#[allow(clippy::too_many_arguments)]
fn store_range(
    op: &mut Op<'_>,
    db: DbId,
    key: &Key<'_>,
    offset: u64,
    bytes: &[u8],
    end: u64,
    growing: bool,
) -> Result<u64, OpError> {
    let mut old = std::mem::take(&mut op.local.bytes);
    let len_bytes = end.max(old.len() as u64);
    let overlap = (old.len() as u64).min(end).saturating_sub(offset) as usize;
    if overlap > 0 {
        old[offset as usize..offset as usize + overlap].copy_from_slice(&bytes[..overlap]);
    }
    let gap = offset.saturating_sub(old.len() as u64);
    let result = if len_bytes <= VALUE_INLINE_MAX_BYTES as u64 {
        old.resize(old.len() + gap as usize, 0);
        old.extend_from_slice(&bytes[overlap..]);
        write::put(op, db, key, Put::Bytes { bytes: &old, raw: true }, Deadline::Keep)
    } else {
        let parts = [Part::Bytes(&old), Part::Zeros(gap), Part::Bytes(&bytes[overlap..])];
        retry(|| op.keyspace.blobs.make(&parts, growing)).and_then(|blob| put_ready(op, db, key, blob))
    };
    old.clear();
    op.local.bytes = old;
    result.map(|_| len_bytes)
}

/// Stores a blob that nothing refers to yet; frees it if that fails.
fn put_ready(op: &mut Op<'_>, db: DbId, key: &Key<'_>, blob: Blob) -> Result<Was, OpError> {
    let put = Put::Ready { blob, raw: true };
    write::put(op, db, key, put, Deadline::Keep).inspect_err(|_| op.keyspace.blobs.discard(&blob))
}

/// Writes in place if the value's place allows; else copies the old value to the worker's buffer. `None` if
/// the key is absent.
fn write_range_step(
    op: &mut Op<'_>,
    tree: Tree,
    key: &Key<'_>,
    offset: u64,
    bytes: &[u8],
) -> Result<Option<Wrote>, Stop> {
    let mut leaf = op.keyspace.trees.chain_exclusive(tree, key.hash, key.leaf_hint)?;
    let Some(at) = find::find_exclusive(op.keyspace, &leaf, key)? else { return Ok(None) };
    let record = leaf.record(at)?;
    if record.deadline.is_some_and(|deadline| deadline <= op.local.now) {
        return Ok(None);
    }
    op.local.bytes.clear();
    let blob = match record.value {
        RecordValue::Int(value) => {
            op.local.bytes.extend_from_slice(value.to_string().as_bytes());
            return Ok(Some(Wrote::Rewrite { growing: false }));
        }
        RecordValue::Bytes(old) => {
            let end = offset as usize + bytes.len();
            if end > old.len() || !record.raw {
                op.local.bytes.extend_from_slice(old);
                return Ok(Some(Wrote::Rewrite { growing: false }));
            }
            let len_bytes = old.len() as u64;
            leaf.leaf_mut(at.page)?.value_mut(at.slot)[offset as usize..end].copy_from_slice(bytes);
            op.keyspace.trees.order.side.touch(leaf.head.id(), op.local.scratch.tick);
            return Ok(Some(Wrote::InPlace { before: len_bytes, len_bytes }));
        }
        RecordValue::Blob(blob) => blob,
        RecordValue::Other { .. } => return Err(Stop::WrongType),
    };
    let Some(new_blob) = op.keyspace.blobs.write_at(&blob, offset, bytes)? else {
        op.keyspace.blobs.read(&blob, &mut op.local.bytes)?;
        return Ok(Some(Wrote::Rewrite { growing: true }));
    };
    refer_to(&mut leaf, at, new_blob)?;
    op.keyspace.trees.order.side.touch(leaf.head.id(), op.local.scratch.tick);
    drop(leaf);
    if new_blob.pid != blob.pid {
        op.keyspace.blobs.discard(&blob);
    }
    let (before, len_bytes) = (u64::from(blob.len_bytes), u64::from(new_blob.len_bytes));
    Ok(Some(Wrote::InPlace { before, len_bytes }))
}

/// Lets a record refer to a blob that has changed; it takes the same bytes as before.
fn refer_to(leaf: &mut LeafGuard<'_>, at: At, blob: Blob) -> Result<(), Stop> {
    let mut copy = [0; RECORD_MAX_BYTES];
    let old = copy_record(leaf.record(at)?, &mut copy)?;
    let record = Record { value: RecordValue::Blob(blob), raw: true, ..old };
    if old != record {
        leaf.replace(at, &record)?;
    }
    Ok(())
}

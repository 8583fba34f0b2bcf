//! A stream's records, in either form: a run of keys and values, or a tree ordered by keys.
//!
//! One block more is begun when the newest is full, or its leaf has no room for more of it.

use std::cell::Cell;

use smallvec::SmallVec;
use stillframe_pagepool::PageId;

use crate::blobs::{Blob, Part, BLOB_BYTES};
use crate::entries::group::RecordKey;
use crate::entries::{base_of, block_key, Head, AFTER_BLOCKS, HEAD_KEY};
use crate::keyspace::{collections, CollectionKey, Missed, Op, Opened};
use crate::pages::Admitted;
use crate::stop::{retry, Stop};
use crate::tree::hash::Grown;
use crate::tree::ordered::{fits_leaf, record_bytes, Next, Removal, RunRemoval, Seek, Stored};
use crate::tree::{Joining, Tree, NO_DATABASE};
use crate::types::packed::{elements, packed_bytes, splice, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError, StreamId};

#[cold]
pub(super) fn malformed() -> OpError {
    OpError::Damaged("a stream is malformed".into())
}

#[cold]
pub(super) fn bad_stream() -> Stop {
    Stop::Damaged("a stream is malformed".into())
}

/// A stream that an operation works on; its key is locked.
pub(super) struct Records<'r> {
    at: CollectionKey<'r>,
    /// What the key has of it; `None` if there is none yet.
    opened: Option<Opened>,
    /// The records of one that is packed.
    run: &'r mut Vec<u8>,
    grown: Option<Grown>,
    /// The leaves that were looked into last, by [`near_of`].
    near: Near,
    pub head: Head,
    /// Something has been changed: what is missing from now on is read in place (C1).
    has_begun: bool,
}

/// Leaves of a tree, for records of different kinds.
type Near = [Cell<Option<PageId>>; NEAR_COUNT];
const NEAR_COUNT: usize = 8;

/// Records of one kind have keys of about one length, and those that an operation needs one after the other are close together. A leaf
/// that has been joined with another is not had any more: the record is looked for from the root.
fn near_of<'n>(near: &'n Near, key: &[u8]) -> &'n Cell<Option<PageId>> {
    &near[key.len() / 4 % NEAR_COUNT]
}

/// A record of a run, and where it is.
fn pairs(run: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], std::ops::Range<usize>)> {
    let mut all = elements(run);
    std::iter::from_fn(move || {
        let (key, value) = (all.next()?, all.next()?);
        Some((key.bytes, value.bytes, key.range.start..value.range.end))
    })
}

/// The records of a packed stream.
pub(super) fn packed_records(run: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    pairs(run).map(|(key, value, _)| (key, value))
}

impl<'r> Records<'r> {
    /// Opens the stream at a key, or begins one.
    ///
    /// # Errors
    /// [`OpError::WrongType`], pages that are missing.
    pub fn open_to_change(
        op: &mut Op<'_>,
        at: &CollectionKey<'r>,
        run: &'r mut Vec<u8>,
    ) -> Result<Records<'r>, OpError> {
        let opened = collections::open_to_change(op, at, run)?;
        Records::of(op, at, opened, run)
    }

    /// One that has been opened, or that begins.
    ///
    /// # Errors
    /// Pages that are missing.
    pub fn of(
        op: &mut Op<'_>,
        at: &CollectionKey<'r>,
        opened: Option<Opened>,
        run: &'r mut Vec<u8>,
    ) -> Result<Records<'r>, OpError> {
        let grown = opened.and_then(|opened| opened.grown);
        let near = Near::default();
        let mut records =
            Records { at: *at, opened, run, grown, near, head: Head::default(), has_begun: false };
        if opened.is_some() {
            let mut head = None;
            records.get(op, HEAD_KEY, |value| head = value.and_then(Head::parse))?;
            records.head = head.ok_or_else(malformed)?;
        }
        Ok(records)
    }

    /// One whose records are a tree, to be read.
    pub fn of_tree(grown: Grown) -> TreeRecords {
        TreeRecords { grown, has_begun: false }
    }

    /// Records.
    pub fn count(&self) -> u64 {
        self.grown.map_or_else(|| pairs(self.run).count() as u64, |grown| grown.element_count)
    }

    /// Whether the key has had it before.
    pub fn is_there(&self) -> bool {
        self.opened.is_some()
    }

    /// Gives `f` the value of a record, if there is one.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn get<R>(
        &self,
        op: &mut Op<'_>,
        key: &[u8],
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, OpError> {
        let Some(grown) = self.grown else {
            let found = pairs(self.run).find(|(found, ..)| *found == key);
            return Ok(f(found.map(|(_, value, _)| value)));
        };
        let (mut f, hint) = (Some(f), near_of(&self.near, key));
        let mut near = hint.get();
        let found = collections::step_of_many(op, self.has_begun, |op| {
            retry(|| {
                let trees = &op.keyspace.streams;
                trees.look_near(grown.first, key, &mut near, |value| {
                    with_value(op, value, |value| f.take().map(|f| f(value)))
                })
            })
        })?;
        hint.set(near);
        found.ok_or_else(malformed)
    }

    /// Gives records from `from` on to `f`, upwards, until it says no.
    ///
    /// # Errors
    /// [`OpError`], also of `f`: what it has got before does not count.
    pub fn walk_up(
        &self,
        op: &mut Op<'_>,
        from: &[u8],
        mut f: impl FnMut(&[u8], &[u8]) -> Result<bool, OpError>,
    ) -> Result<(), OpError> {
        let Some(grown) = self.grown else {
            for (key, value, _) in pairs(self.run).filter(|(key, ..)| *key >= from) {
                if !f(key, value)? {
                    break;
                }
            }
            return Ok(());
        };
        TreeRecords { grown, has_begun: self.has_begun }.walk_up(op, from, f)
    }

    /// The same, for a caller that needs records up to one that `is_enough`: those behind it are looked at only if there is more to be
    /// given.
    ///
    /// # Errors
    /// As of [`Records::walk_up`].
    pub fn walk_up_together(
        &self,
        op: &mut Op<'_>,
        from: &[u8],
        is_enough: impl FnMut(&[u8], &[u8]) -> bool,
        f: impl FnMut(&[u8], &[u8]) -> Result<bool, OpError>,
    ) -> Result<(), OpError> {
        match self.grown {
            Some(grown) => {
                let records = TreeRecords { grown, has_begun: self.has_begun };
                records.walk_up_together(op, from, is_enough, f)
            }
            None => self.walk_up(op, from, f),
        }
    }

    /// The same downwards, from the greatest key below `below` on.
    ///
    /// # Errors
    /// As of [`Records::walk_up`].
    pub fn walk_down(
        &self,
        op: &mut Op<'_>,
        below: &[u8],
        mut f: impl FnMut(&[u8], &[u8]) -> Result<bool, OpError>,
    ) -> Result<(), OpError> {
        let Some(grown) = self.grown else {
            let all: Vec<_> = pairs(self.run).filter(|(key, ..)| *key < below).collect();
            for (key, value, _) in all.into_iter().rev() {
                if !f(key, value)? {
                    break;
                }
            }
            return Ok(());
        };
        let mut next = Next::From(below.to_vec());
        while let Next::From(bound) = next {
            let mut copied = Copied::default();
            next = collections::step_of_many(op, self.has_begun, |op| {
                retry(|| {
                    copied.clear();
                    op.keyspace.streams.walk_down(grown.first, Some(&bound), |key, value| {
                        with_value(op, Some(value), |value| copied.push(key, value.unwrap_or_default()))?;
                        Ok(true)
                    })
                })
            })?;
            if !copied.give(&mut f)? {
                break;
            }
        }
        Ok(())
    }

    /// The base of the block that an entry of this ID would be in, and the block's bytes in `block`; `None` if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn block_of(
        &self,
        op: &mut Op<'_>,
        id: StreamId,
        block: &mut Vec<u8>,
    ) -> Result<Option<StreamId>, OpError> {
        block.clear();
        let bound = id.next().map(block_key);
        let bound = bound.as_ref().map_or(AFTER_BLOCKS, |key| &key[..]);
        let Some(grown) = self.grown else {
            let last = pairs(self.run).take_while(|(key, ..)| *key < bound).last();
            let found = last.and_then(|(key, value, _)| Some((base_of(key)?, value)));
            return Ok(found.map(|(base, value)| {
                block.extend_from_slice(value);
                base
            }));
        };
        let (mut found, mut below) = (None, Next::From(bound.to_vec()));
        while let (None, Next::From(bound)) = (found, &below) {
            let bound = bound.clone();
            below = collections::step_of_many(op, self.has_begun, |op| {
                retry(|| {
                    block.clear();
                    op.keyspace.streams.walk_down(grown.first, Some(&bound), |key, value| {
                        found = Some(base_of(key));
                        with_value(op, Some(value), |value| {
                            block.extend_from_slice(value.unwrap_or_default())
                        })?;
                        Ok(false)
                    })
                })
            })?;
        }
        Ok(found.flatten())
    }

    /// The base of the block that an entry of this ID would be in; `None` if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn base_of_block(&self, op: &mut Op<'_>, id: StreamId) -> Result<Option<StreamId>, OpError> {
        let bound = id.next().map(block_key);
        let bound = bound.as_ref().map_or(AFTER_BLOCKS, |key| &key[..]);
        let Some(grown) = self.grown else {
            let last = pairs(self.run).take_while(|(key, ..)| *key < bound).last();
            return Ok(last.and_then(|(key, ..)| base_of(key)));
        };
        let (mut found, mut below) = (None, Next::From(bound.to_vec()));
        while let (None, Next::From(bound)) = (found, &below) {
            let bound = bound.clone();
            below = collections::step_of_many(op, self.has_begun, |op| {
                retry(|| {
                    op.keyspace.streams.walk_down(grown.first, Some(&bound), |key, _| {
                        found = Some(base_of(key));
                        Ok(false)
                    })
                })
            })?;
        }
        Ok(found.flatten())
    }

    /// Has the leaves of these records in memory, whether they are there or not, before the first of them is changed (C1).
    ///
    /// # Errors
    /// Pages that are missing.
    pub fn resolve_keys(
        &self,
        op: &mut Op<'_>,
        keys: impl Iterator<Item = RecordKey>,
    ) -> Result<(), OpError> {
        if op.keyspace.pages.all_resident() || self.grown.is_none() {
            return Ok(());
        }
        let mut missed = Missed::default();
        for key in keys {
            missed.look(self.get(op, &key, |_| ()))?;
        }
        missed.end()
    }

    /// Decides on an operation that stores so many records of these lengths before the first of them.
    ///
    /// # Errors
    /// [`OpError::OutOfMemory`].
    pub fn admit(
        &self,
        op: &Op<'_>,
        lens_bytes: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Option<Admitted>, OpError> {
        match self.grown {
            Some(_) => collections::admit_elements(op.keyspace, lens_bytes.len(), lens_bytes),
            None => Ok(None),
        }
    }

    /// Stores a record in place of the one with its key, or as a new one.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn put(&mut self, op: &mut Op<'_>, key: &[u8], value: &[u8]) -> Result<(), OpError> {
        let Some(grown) = &mut self.grown else {
            put_packed(self.run, key, value);
            self.has_begun = true;
            return Ok(());
        };
        let (tree, has_begun, hint) = (grown.first, self.has_begun, near_of(&self.near, key));
        let mut near = hint.get();
        let was_there = with_stored(op, key, value, has_begun, |op, stored| {
            collections::step_of_many(op, has_begun, |op| put_in_tree(op, tree, key, stored, &mut near))
        })?;
        hint.set(near);
        grown.element_count += u64::from(!was_there);
        self.has_begun = true;
        Ok(())
    }

    /// Appends to the value of a record, of which `f` is given the bytes, and where what comes behind them goes; it says what their first
    /// ones are from then on, or that nothing is to be done. Whether it has been: there may be no room.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn extend<const FRONT: usize>(
        &mut self,
        op: &mut Op<'_>,
        key: &[u8],
        mut f: impl FnMut(&[u8], &mut Vec<u8>) -> Option<[u8; FRONT]>,
    ) -> Result<bool, OpError> {
        let Some(grown) = self.grown else {
            let found = pairs(self.run).find(|(found, ..)| *found == key);
            let Some(mut value) = found.map(|(_, value, _)| value.to_vec()) else { return Ok(false) };
            let mut more = Vec::new();
            let Some(front) = f(&value, &mut more) else { return Ok(false) };
            value[..FRONT].copy_from_slice(&front);
            value.extend_from_slice(&more);
            put_packed(self.run, key, &value);
            self.has_begun = true;
            return Ok(true);
        };
        let (has_begun, hint) = (self.has_begun, near_of(&self.near, key));
        let (mut near, mut more) = (hint.get(), Vec::new());
        let done = collections::step_of_many(op, has_begun, |op| {
            retry(|| op.keyspace.streams.extend(grown.first, key, &mut near, &mut more, &mut f))
        })?;
        hint.set(near);
        self.has_begun |= done;
        Ok(done)
    }

    /// Removes a record.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove(&mut self, op: &mut Op<'_>, key: &[u8]) -> Result<(), OpError> {
        let Some(grown) = &mut self.grown else {
            let found = pairs(self.run).find(|(found, ..)| *found == key).map(|(.., range)| range);
            found.into_iter().for_each(|range| drop(self.run.drain(range)));
            self.has_begun = true;
            return Ok(());
        };
        let (tree, has_begun, hint) = (grown.first, self.has_begun, near_of(&self.near, key));
        let mut near = hint.get();
        let removed =
            collections::step_of_many(op, has_begun, |op| remove_from_tree(op, tree, key, &mut near))?;
        hint.set(near);
        grown.element_count -= u64::from(removed);
        self.has_begun = true;
        Ok(())
    }

    /// Removes the records from one key on that are below another, leaf by leaf; the sum of what `weigh` says of their values.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed if no record had been before.
    pub fn remove_range(
        &mut self,
        op: &mut Op<'_>,
        from: &[u8],
        until: &[u8],
        mut weigh: impl FnMut(&[u8]) -> u64,
    ) -> Result<u64, OpError> {
        let mut sum = 0;
        let Some(grown) = &mut self.grown else {
            let mut gone: Option<std::ops::Range<usize>> = None;
            for (_, value, range) in pairs(self.run).filter(|(key, ..)| (from..until).contains(key)) {
                sum += weigh(value);
                gone = Some(gone.map_or(range.start, |gone| gone.start)..range.end);
            }
            gone.into_iter().for_each(|range| drop(self.run.drain(range)));
            self.has_begun = true;
            return Ok(sum);
        };
        let mut next = Next::From(from.to_vec());
        while let Next::From(bound) = next {
            let (removed, weight) = collections::step_of_many(op, self.has_begun, |op| {
                remove_run(op, grown.first, (&bound, until), &mut weigh)
            })?;
            grown.element_count -= removed.count as u64;
            self.has_begun |= removed.count > 0;
            sum += weight;
            next = removed.next;
        }
        Ok(sum)
    }

    /// Stores the head, and what the key has of the stream.
    ///
    /// # Errors
    /// [`OpError`]; of a stream that is packed, or has been until now, nothing has been changed.
    pub fn store(mut self, op: &mut Op<'_>) -> Result<(), OpError> {
        op.keyspace.note_stream();
        let head = self.head.encode();
        self.put(op, HEAD_KEY, &head)?;
        let at = self.at;
        let Some(grown) = self.grown else {
            if self.run.len() <= PACKED_MAX_BYTES {
                return collections::put_packed(op, &at, Encoding::Stream, None, self.run, Deadline::Keep)
                    .map(drop);
            }
            let grown = grow(op, self.run)?;
            return collections::put_grown(op, &at, Encoding::Stream, None, grown, Deadline::Keep).map(drop);
        };
        match self.opened {
            Some(opened) if opened.grown == Some(grown) => Ok(()),
            Some(opened) => collections::set_grown(op, &at, &Opened { grown: Some(grown), ..opened }),
            None => Err(malformed()),
        }
    }
}

/// The records of a tree.
#[derive(Clone, Copy)]
pub(super) struct TreeRecords {
    grown: Grown,
    /// As of [`Records`].
    has_begun: bool,
}

impl TreeRecords {
    /// As of [`Records::walk_up`].
    ///
    /// # Errors
    /// The same.
    pub fn walk_up(
        &self,
        op: &mut Op<'_>,
        from: &[u8],
        f: impl FnMut(&[u8], &[u8]) -> Result<bool, OpError>,
    ) -> Result<(), OpError> {
        self.walk_up_together(op, from, |_, _| false, f)
    }

    /// As of [`Records::walk_up_together`].
    fn walk_up_together(
        &self,
        op: &mut Op<'_>,
        from: &[u8],
        mut is_enough: impl FnMut(&[u8], &[u8]) -> bool,
        mut f: impl FnMut(&[u8], &[u8]) -> Result<bool, OpError>,
    ) -> Result<(), OpError> {
        let mut next = Next::From(from.to_vec());
        while let Next::From(bound) = next {
            let mut copied = Copied::default();
            next = self.copy_leaf(op, &bound, &mut copied, &mut is_enough)?;
            if !copied.give(&mut f)? {
                break;
            }
        }
        Ok(())
    }

    /// The records of one leaf are copied out before they are given: `f` may look for others, and a page that is missed among them
    /// does not give the first ones twice.
    fn copy_leaf(
        &self,
        op: &mut Op<'_>,
        from: &[u8],
        copied: &mut Copied,
        is_enough: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Next, OpError> {
        let tree = self.grown.first;
        collections::step_of_many(op, self.has_begun, |op| {
            retry(|| {
                copied.clear();
                let mut last_key = None;
                let next = op.keyspace.streams.walk_up(tree, from, |key, value| {
                    with_value(op, Some(value), |value| {
                        let value = value.unwrap_or_default();
                        copied.push(key, value);
                        let goes_on = !is_enough(key, value);
                        last_key = (!goes_on).then(|| key.to_vec());
                        goes_on
                    })
                })?;
                // The next key is the last with a zero behind it, at least.
                Ok(last_key.map_or(next, |mut key| {
                    key.push(0);
                    Next::From(key)
                }))
            })
        })
    }

    /// Copies the records to a tree that no key refers to.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn copy_to(&self, op: &mut Op<'_>, to: &mut Grown) -> Result<(), OpError> {
        let mut next = Next::From(Vec::new());
        while let Next::From(bound) = next {
            let mut copied = Copied::default();
            next = self.copy_leaf(op, &bound, &mut copied, &mut |_, _| false)?;
            copied.give(&mut |key, value| add(op, to, key, value).map(|()| true))?;
        }
        Ok(())
    }
}

/// Records of a leaf, one after the other.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    /// Where each one's key and value end.
    ends: SmallVec<[(usize, usize); 16]>,
}

impl Copied {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Whether `f` has never said no.
    fn give(&self, f: &mut impl FnMut(&[u8], &[u8]) -> Result<bool, OpError>) -> Result<bool, OpError> {
        let mut start = 0;
        for (key_end, end) in &self.ends {
            if !f(&self.bytes[start..*key_end], &self.bytes[*key_end..*end])? {
                return Ok(false);
            }
            start = *end;
        }
        Ok(true)
    }
}

/// Gives `f` the bytes of a value, wherever they lie; the caller holds the leaf.
fn with_value<R>(
    op: &Op<'_>,
    value: Option<Stored<'_>>,
    f: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R, Stop> {
    let Some(value) = value else { return Ok(f(None)) };
    if !value.is_outside {
        return Ok(f(Some(value.bytes)));
    }
    let blob = value.blob().ok_or_else(bad_stream)?;
    let mut bytes = Vec::new();
    op.keyspace.blobs.read(&blob, &mut bytes)?;
    Ok(f(Some(&bytes)))
}

/// Gives `f` the value as a leaf takes it: one that is too long lies outside.
fn with_stored<R>(
    op: &mut Op<'_>,
    key: &[u8],
    value: &[u8],
    has_begun: bool,
    f: impl FnOnce(&mut Op<'_>, Stored<'_>) -> Result<R, OpError>,
) -> Result<R, OpError> {
    if fits_leaf(key, value) {
        return f(op, Stored::inline(value));
    }
    let blob = collections::step_of_many(op, has_begun, |op| {
        collections::resolve_stored(op.keyspace, [value.len()].into_iter())?;
        retry(|| op.keyspace.blobs.make(&[Part::Bytes(value)], false))
    })?;
    let mut reference = [0; BLOB_BYTES];
    blob.encode(&mut reference);
    let done = f(op, Stored { bytes: &reference, is_outside: true });
    done.inspect_err(|_| op.keyspace.blobs.discard(&blob))
}

/// Whether there was a record of this key.
fn put_in_tree(
    op: &mut Op<'_>,
    tree: Tree,
    key: &[u8],
    value: Stored<'_>,
    near: &mut Option<PageId>,
) -> Result<bool, OpError> {
    let mut old: Option<Blob> = None;
    loop {
        let put = retry(|| op.keyspace.streams.put(tree, key, value, near, |was| old = was.blob()))?;
        if let Some(was_there) = put {
            old.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
            return Ok(was_there);
        }
        let bytes = record_bytes(key, value);
        retry(|| op.keyspace.streams.make_room(&mut op.local.scratch, tree, Seek::Key(key), bytes))?;
    }
}

fn remove_from_tree(
    op: &mut Op<'_>,
    tree: Tree,
    key: &[u8],
    near: &mut Option<PageId>,
) -> Result<bool, OpError> {
    let mut old: Option<Blob> = None;
    match retry(|| op.keyspace.streams.remove(tree, key, near, |was| old = was.blob()))? {
        Removal::WasAbsent => Ok(false),
        Removal::Done { is_sparse } => {
            old.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
            if is_sparse {
                // Joining only saves memory: what stands in its way may stay there.
                let scratch = &mut op.local.scratch;
                let _ = op.keyspace.streams.join_leaves(scratch, tree, Seek::Key(key), Joining::Sparse);
            }
            Ok(true)
        }
    }
}

/// As of [`Records::remove_range`], in one leaf.
fn remove_run(
    op: &mut Op<'_>,
    tree: Tree,
    (from, until): (&[u8], &[u8]),
    weigh: &mut impl FnMut(&[u8]) -> u64,
) -> Result<(RunRemoval, u64), OpError> {
    let (mut blobs, mut weight) = (Vec::new(), 0);
    let removed = retry(|| {
        blobs.clear();
        weight = 0;
        op.keyspace.streams.remove_run(tree, from, until, |value| {
            blobs.extend(value.blob());
            weight += with_value(op, Some(value), |value| weigh(value.unwrap_or_default()))?;
            Ok(())
        })
    })?;
    blobs.iter().for_each(|blob| op.keyspace.blobs.discard(blob));
    if removed.is_sparse {
        // As of a single record.
        let _ =
            op.keyspace.streams.join_leaves(&mut op.local.scratch, tree, Seek::Key(from), Joining::Sparse);
    }
    Ok((removed, weight))
}

fn put_packed(run: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let mut place = run.len()..run.len();
    for (found, _, range) in pairs(run) {
        if found >= key {
            place = if found == key { range } else { range.start..range.start };
            break;
        }
    }
    run.reserve(packed_bytes(key) + packed_bytes(value));
    splice(run, place, &[key, value]);
}

/// Opens a stream to read it, and gives it to `f`; `None` if it is not there.
///
/// # Errors
/// [`OpError::WrongType`], pages that are missing, and those of `f`.
pub(super) fn open_to_read<R>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    run: &mut Vec<u8>,
    f: impl FnOnce(&mut Op<'_>, &Records<'_>) -> Result<R, OpError>,
) -> Result<Option<R>, OpError> {
    let mut op = Op { keyspace: op.keyspace, local: &mut *op.local };
    // A thread that changes it waits for this lock.
    let Some((opened, _lock)) = collections::open_to_read(&mut op, at, run)? else { return Ok(None) };
    let records = Records::of(&mut op, at, Some(opened), run)?;
    f(&mut op, &records).map(Some)
}

/// An empty tree.
pub(super) fn create(op: &Op<'_>) -> Result<Tree, OpError> {
    let tag = op.keyspace.take_tag();
    let root = retry(|| op.keyspace.streams.create(tag))?;
    Ok(Tree { db: NO_DATABASE, root, tag })
}

/// A tree of packed records.
fn grow(op: &mut Op<'_>, run: &[u8]) -> Result<Grown, OpError> {
    collections::resolve_stored(op.keyspace, packed_records(run).map(|(_, value)| value.len()))?;
    let mut grown = Grown { element_count: 0, first: create(op)?, second: None };
    let filled = packed_records(run).try_for_each(|(key, value)| add(op, &mut grown, key, value));
    filled.inspect_err(|_| collections::drop_trees(op.keyspace, &grown))?;
    Ok(grown)
}

/// Adds a record to a tree that no key refers to.
pub(super) fn add(op: &mut Op<'_>, grown: &mut Grown, key: &[u8], value: &[u8]) -> Result<(), OpError> {
    let tree = grown.first;
    with_stored(op, key, value, false, |op, stored| put_in_tree(op, tree, key, stored, &mut None))?;
    grown.element_count += 1;
    Ok(())
}

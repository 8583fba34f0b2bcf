//! Values of trees: short ones lie in their leaves, longer ones in slabs and objects.

use std::io::IoSlice;

use stillframe_pagepool::PageId;

use super::tree::Tree;
use crate::blobs::{Blob, Incoming, Part, Sending, BLOB_BYTES, INCOMING_MIN_BYTES, SENDING_MIN_BYTES};
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::{resolve, Keyspace};
use crate::stop::{retry, Stop};
use crate::tree::ordered::{fits_leaf, record_bytes, Ordered, Seek, Stored, KEY_MAX_BYTES};
use crate::tree::{self, Scratch, Trees};
use crate::value::MAX_STRING_BYTES;

/// A value as a record will have it. What it refers to belongs to nobody until it is put.
pub(super) enum NewValue<'v> {
    Inline(&'v [u8]),
    Outside {
        blob: Blob,
        reference: [u8; BLOB_BYTES],
    },
    /// Its bytes are in their place already.
    Received {
        incoming: &'v Incoming,
        reference: [u8; BLOB_BYTES],
    },
}

fn reference_to(blob: &Blob) -> [u8; BLOB_BYTES] {
    let mut reference = [0; BLOB_BYTES];
    blob.encode(&mut reference);
    reference
}

impl<'v> NewValue<'v> {
    /// Takes what has been received of the value, or makes its blob if it is too long for a leaf.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been taken.
    pub fn make(
        keyspace: &Keyspace,
        key: &[u8],
        bytes: &'v [u8],
        received: Option<&'v Incoming>,
    ) -> Result<NewValue<'v>, OpError> {
        if let Some(incoming) = received {
            return Ok(NewValue::Received { incoming, reference: reference_to(&incoming.blob()) });
        }
        if fits_leaf(key, bytes) {
            return Ok(NewValue::Inline(bytes));
        }
        retry(|| keyspace.pages.check_together(bytes.len() as u64))?;
        let blob = retry(|| keyspace.blobs.make(&[Part::Bytes(bytes)], false))?;
        Ok(NewValue::Outside { blob, reference: reference_to(&blob) })
    }

    pub fn stored(&self) -> Stored<'_> {
        match self {
            NewValue::Inline(bytes) => Stored::inline(bytes),
            NewValue::Outside { reference, .. } | NewValue::Received { reference, .. } => {
                Stored { bytes: reference, is_outside: true }
            }
        }
    }

    /// A record refers to it. Before the next look at the barrier.
    pub fn note_used(&self) {
        if let NewValue::Received { incoming, .. } = self {
            incoming.note_used();
        }
    }

    /// Frees what nothing has come to refer to. What has been received may be used another time.
    pub fn discard(&self, keyspace: &Keyspace) {
        if let NewValue::Outside { blob, .. } = self {
            keyspace.blobs.discard(blob);
        }
    }
}

/// Bytes of a value that are put in their place, or taken from there, between two looks at the barrier.
const STEP_BYTES: usize = 256 * 1024;

impl Tree {
    /// Puts a long value into its place part by part, before any record refers to it, if memory is bounded: others' pages
    /// make room meanwhile. `None`: it can be made in one piece.
    ///
    /// # Errors
    /// [`TreeError`]. There is no room, and it cannot be made in one piece either.
    pub(super) fn receive(&self, bytes: &[u8]) -> Result<Option<Incoming>, TreeError> {
        let (keyspace, len) = (self.keyspace(), bytes.len() as u64);
        let has_length = (INCOMING_MIN_BYTES..=MAX_STRING_BYTES).contains(&len);
        if !has_length || keyspace.pool.room().limit_pages().is_none() {
            return Ok(None);
        }
        let busy = self.seat.begin()?;
        self.make_room()?;
        let begun = keyspace.blobs.begin_incoming(len);
        drop(busy);
        let mut incoming = match begun {
            Ok(incoming) => incoming,
            // Too many are on their way at a time: it is made in one piece, if it may be.
            Err(_) => return Ok(None),
        };
        while !incoming.is_complete() {
            let _busy = self.seat.begin()?;
            self.make_room()?;
            let rest = &bytes[incoming.filled_bytes() as usize..];
            match incoming.append(&rest[..rest.len().min(STEP_BYTES)]) {
                Ok(_) => {}
                Err(OpError::Fault(fault)) => self.load(fault),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(incoming))
    }

    /// Gives `f` a value that is read in parts, as a whole. During an operation, outside of the tree.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn with_parts<R>(&self, value: &Sending, f: impl FnOnce(&[u8]) -> R) -> Result<R, TreeError> {
        let mut bytes = Vec::new();
        self.read_parts(value, &mut bytes)?;
        Ok(f(&bytes))
    }

    /// Appends a value that is read in parts to `out`. During an operation, outside of the tree.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn read_parts(&self, value: &Sending, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let mut done = 0;
        out.reserve_exact(value.len_bytes() as usize);
        while done < value.len_bytes() {
            let take = |parts: &[IoSlice<'_>]| {
                parts.iter().for_each(|part| out.extend_from_slice(part));
                parts.iter().map(|part| part.len() as u64).sum::<u64>()
            };
            match value.with_parts(done, STEP_BYTES, take) {
                Ok(count) => done += count,
                Err(OpError::Fault(fault)) => self.load(fault),
                Err(error) => return Err(error.into()),
            }
            // Cuts do not wait for the whole of it.
            self.seat.idle(|| ());
        }
        Ok(())
    }
}

/// Whether a value is so long that it is read in parts where memory is bounded.
pub(super) fn is_long(blob: &Blob) -> bool {
    u64::from(blob.len_bytes) >= SENDING_MIN_BYTES
}

/// Begins to read a value in parts if it is so long that its pages may not stay until all of them are there. The caller holds
/// the leaf that refers to it.
///
/// # Errors
/// As of [`Blobs::begin_sending`](crate::blobs::Blobs::begin_sending); [`Stop::LargerThanMemory`] if too many are being read
/// so at a time.
pub(super) fn begin_parts(keyspace: &Keyspace, value: Stored<'_>) -> Result<Option<Sending>, Stop> {
    let Some(blob) = value.blob().filter(is_long) else { return Ok(None) };
    if keyspace.pages.all_resident() {
        return Ok(None);
    }
    let len = u64::from(blob.len_bytes);
    let begun = keyspace.blobs.begin_sending(&blob, 0..len)?;
    if begun.is_none() {
        keyspace.pages.check_together(len)?;
    }
    Ok(begun)
}

/// Whether a record of this key and value can be put.
///
/// # Errors
/// [`TreeError::KeyTooLong`], [`TreeError::ValueTooLong`].
pub(super) fn check_record(key: &[u8], value: &[u8]) -> Result<(), TreeError> {
    if key.len() > KEY_MAX_BYTES {
        return Err(TreeError::KeyTooLong);
    }
    match value.len() as u64 > MAX_STRING_BYTES {
        true => Err(TreeError::ValueTooLong),
        false => Ok(()),
    }
}

/// Puts a record and makes room for it if need be. `hint` is as of [`Trees::put`]. `old` is told what it replaces: the last it
/// is told counts. Whether there was something.
///
/// # Errors
/// [`OpError`]; the record has not been put.
pub(super) fn put_record(
    trees: &Trees<Ordered>,
    scratch: &mut Scratch,
    tree: tree::Tree,
    key: &[u8],
    value: Stored<'_>,
    hint: Option<PageId>,
    mut old: impl FnMut(Option<Stored<'_>>),
) -> Result<bool, OpError> {
    loop {
        let put = retry(|| {
            old(None);
            trees.put(tree, key, value, &mut hint.clone(), |was| old(Some(was)))
        })?;
        match put {
            Some(was_there) => return Ok(was_there),
            None => retry(|| trees.make_room(scratch, tree, Seek::Key(key), record_bytes(key, value)))?,
        }
    }
}

/// Appends a value to `out`.
///
/// # Errors
/// [`Stop::Missing`]: `missing` has all its pages that are missing.
pub(super) fn read_value(
    keyspace: &Keyspace,
    value: Stored<'_>,
    out: &mut Vec<u8>,
    missing: &mut Vec<PageId>,
) -> Result<(), Stop> {
    if !value.is_outside {
        out.extend_from_slice(value.bytes);
        return Ok(());
    }
    let blob = value.blob().ok_or_else(|| Stop::Damaged("the reference to a value is malformed".into()))?;
    let start = out.len();
    let read = keyspace.blobs.read(&blob, out);
    if let Err(stop) = &read {
        out.truncate(start);
        if let Stop::Missing(pages) = stop {
            missing.extend(pages);
            resolve::resolve_blob(keyspace, &blob, missing);
        }
    }
    read
}

/// The same error, with all pages that are known to be missing.
pub(super) fn with_missing(error: OpError, missing: &mut Vec<PageId>) -> OpError {
    match error {
        OpError::Fault(_) if !missing.is_empty() => Fault::of(std::mem::take(missing)).into(),
        error => error,
    }
}

/// Runs a step that must not wait for another time: what it misses is brought in meanwhile.
pub(super) fn settled<R>(
    keyspace: &Keyspace,
    mut step: impl FnMut() -> Result<R, OpError>,
) -> Result<R, OpError> {
    loop {
        match step() {
            Err(OpError::Fault(fault)) => {
                let mut pages = Vec::new();
                fault.add_to(&mut pages);
                keyspace.pool.residency().load_at_once(&pages);
            }
            result => return result,
        }
    }
}

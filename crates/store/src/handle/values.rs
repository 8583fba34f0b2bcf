//! Values of trees: short ones lie in their leaves, longer ones in slabs and objects.

use stillframe_pagepool::PageId;

use crate::blobs::{Blob, Part, BLOB_BYTES};
use crate::error::{Fault, OpError, TreeError};
use crate::keyspace::Keyspace;
use crate::stop::{retry, Stop};
use crate::tree::ordered::{record_bytes, Ordered, Seek, Stored, KEY_MAX_BYTES, VALUE_MAX_BYTES};
use crate::tree::{Scratch, Tree, Trees};
use crate::value::MAX_STRING_BYTES;

/// A value as a record will have it. What it refers to belongs to nobody until it is put.
pub(super) enum NewValue<'v> {
    Inline(&'v [u8]),
    Outside { blob: Blob, reference: [u8; BLOB_BYTES] },
}

impl<'v> NewValue<'v> {
    /// Makes the value's blob, if it is too long for a leaf.
    ///
    /// # Errors
    /// [`OpError`]; nothing has been taken.
    pub fn make(keyspace: &Keyspace, bytes: &'v [u8]) -> Result<NewValue<'v>, OpError> {
        if bytes.len() <= VALUE_MAX_BYTES {
            return Ok(NewValue::Inline(bytes));
        }
        let blob = retry(|| keyspace.blobs.make(&[Part::Bytes(bytes)], false))?;
        let mut reference = [0; BLOB_BYTES];
        blob.encode(&mut reference);
        Ok(NewValue::Outside { blob, reference })
    }

    pub fn stored(&self) -> Stored<'_> {
        match self {
            NewValue::Inline(bytes) => Stored::inline(bytes),
            NewValue::Outside { reference, .. } => Stored { bytes: reference, is_outside: true },
        }
    }

    /// Frees what nothing has come to refer to.
    pub fn discard(&self, keyspace: &Keyspace) {
        if let NewValue::Outside { blob, .. } = self {
            keyspace.blobs.discard(blob);
        }
    }
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
    tree: Tree,
    key: &[u8],
    value: Stored<'_>,
    hint: Option<PageId>,
    mut old: impl FnMut(Option<Stored<'_>>),
) -> Result<bool, OpError> {
    loop {
        let put = retry(|| {
            old(None);
            trees.put(tree, key, value, hint, |was| old(Some(was)))
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
/// [`Stop::Fault`]: `missing` has all its pages that are missing.
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
        if let Stop::Fault(pid) = stop {
            missing.push(*pid);
            keyspace.resolve_blob(&blob, missing);
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
                keyspace.pool.load_at_once(&pages);
            }
            result => return result,
        }
    }
}

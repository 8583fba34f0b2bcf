//! Keys, and the clock of their deadlines.

use std::time::{SystemTime, UNIX_EPOCH};

use stillframe_pagepool::{PageId, Reason};

use crate::blobs::{Blob, Blobs, Bytes, Part};
use crate::stop::Stop;

/// Milliseconds since the Unix epoch, as Redis counts deadlines.
pub type UnixMillis = i64;

/// What the system's clock says.
pub(crate) fn unix_ms() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().min(i64::MAX as u128) as UnixMillis
}

/// A key with its keyed 64-bit hash, computed once a command ([`crate::Worker::key`]). It is of use in the store that made it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
    /// Page found by the last stage of [`crate::Prefetch::all`]; a hint only, checked before it is believed.
    pub(crate) leaf_hint: Option<PageId>,
    /// Slot found by [`crate::Prefetch::record`]; a hint only, checked by comparing keys.
    pub(crate) slot_hint: u16,
    /// The leaf has records that refer to other pages.
    pub(crate) outside_hint: bool,
    /// By which store's seed a caller's key was hashed; [`MADE_HERE`]: the store itself has made the key.
    pub(crate) origin: u32,
    /// What the key is looked up for, so that its memory is asked for in the right way.
    pub(crate) will_write: bool,
    /// The name of an element that lies in pages; `bytes` are its first ones, more than a leaf takes.
    pub(crate) large: Option<&'a Bytes<'a>>,
}

/// The origin of a key that need not be looked at.
pub(crate) const MADE_HERE: u32 = 0;

/// A slot hint that no slot has.
pub(crate) const NO_SLOT: u16 = u16::MAX;

impl<'a> Key<'a> {
    pub(crate) fn new(bytes: &'a [u8], hash: u64) -> Key<'a> {
        Key {
            bytes,
            hash,
            leaf_hint: None,
            slot_hint: NO_SLOT,
            outside_hint: false,
            origin: MADE_HERE,
            will_write: false,
            large: None,
        }
    }

    /// Says that the stages of a batch prepare a write.
    pub fn to_be_written(self, will_write: bool) -> Key<'a> {
        Key { will_write, ..self }
    }

    /// Whether the stages of a batch prepare a write.
    pub fn will_write(&self) -> bool {
        self.will_write
    }

    /// Where a key lies that is too long for a leaf: in pages that it has come into, or in a copy that is made of it.
    ///
    /// # Errors
    /// There is no room for that.
    pub(crate) fn outside(&self, blobs: &Blobs) -> Result<Blob, Stop> {
        match self.large {
            None => blobs.make(&[Part::Bytes(self.bytes)], false),
            Some(Bytes::Incoming(name)) => {
                blobs.unused(name).map_err(|error| Stop::Damaged(Reason::of(&error)))
            }
            Some(bytes) => {
                let bytes = bytes.to_vec().map_err(|error| Stop::Damaged(Reason::of(&error)))?;
                blobs.make(&[Part::Bytes(&bytes)], false)
            }
        }
    }

    /// The hash and hint without the bytes, to be kept between the stages of a batch.
    pub fn detach(self) -> Key<'static> {
        Key { bytes: &[], large: None, ..self }
    }

    /// Gives a detached key its bytes back, which must be those that were hashed.
    pub fn attach(self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, large: None, ..self }
    }
}

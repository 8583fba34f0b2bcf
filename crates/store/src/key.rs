//! Keys and the databases they are in.

use stillframe_pagepool::PageId;

/// Milliseconds since the Unix epoch, as Redis counts deadlines.
pub type UnixMillis = i64;

/// Number of a logical database (`SELECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct DbId(pub u32);

/// A key with its keyed 64-bit hash, computed once a command ([`crate::Worker::key`]).
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
    /// Page found by the last stage of [`crate::Worker::prefetch`]; a hint only, checked before it is believed.
    pub(crate) leaf_hint: Option<PageId>,
    /// Slot found by [`crate::Worker::prefetch_record`]; a hint only, checked by comparing keys.
    pub(crate) slot_hint: u16,
    /// The leaf has records that refer to other pages.
    pub(crate) outside_hint: bool,
    /// What the key is looked up for, so that its memory is asked for in the right way.
    pub(crate) will_write: bool,
}

/// A slot hint that no slot has.
pub(crate) const NO_SLOT: u16 = u16::MAX;

impl<'a> Key<'a> {
    pub(crate) fn new(bytes: &'a [u8], hash: u64) -> Key<'a> {
        Key { bytes, hash, leaf_hint: None, slot_hint: NO_SLOT, outside_hint: false, will_write: false }
    }

    /// Says that the stages of a batch prepare a write.
    pub fn to_be_written(self, will_write: bool) -> Key<'a> {
        Key { will_write, ..self }
    }

    /// Whether the stages of a batch prepare a write.
    pub fn will_write(&self) -> bool {
        self.will_write
    }

    /// The hash and hint without the bytes, to be kept between the stages of a batch.
    pub fn detach(self) -> Key<'static> {
        Key { bytes: &[], ..self }
    }

    /// Gives a detached key its bytes back.
    pub fn attach(self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, ..self }
    }
}

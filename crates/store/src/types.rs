//! The words of the store's interface: keys, values, deadlines, errors.

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
}

/// A slot hint that no slot has.
pub(crate) const NO_SLOT: u16 = u16::MAX;

impl<'a> Key<'a> {
    pub(crate) fn new(bytes: &'a [u8], hash: u64) -> Key<'a> {
        Key { bytes, hash, leaf_hint: None, slot_hint: NO_SLOT, outside_hint: false }
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

/// The longest string value, in bytes (Redis's `proto-max-bulk-len` default).
pub const MAX_STRING_BYTES: u64 = 512 * 1024 * 1024;

/// `OBJECT ENCODING` of a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Int,
    Embstr,
    Raw,
}

/// A string to be stored.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// Kept as 8 bytes, so that `INCR` never resizes a record.
    Int(i64),
    /// Kept as they are. `raw` is Redis's raw/embstr distinction (values over 44 bytes are raw in any case).
    Bytes { bytes: &'a [u8], raw: bool },
}

/// What a write does to the key's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    Keep,
    Clear,
    At(UnixMillis),
}

/// What is known of an entry without touching its value.
#[derive(Clone, Copy, Debug)]
pub struct EntryInfo {
    pub encoding: Encoding,
    /// Bytes of the value as `STRLEN` counts them.
    pub value_bytes: u64,
    pub deadline: Option<UnixMillis>,
    /// Memory of key, value and record, without the leaf's free space.
    pub memory_bytes: u64,
    /// Time since the last access, kept per leaf (side array, never captured).
    pub idle_ms: u64,
}

/// Counters of one database.
#[derive(Clone, Copy, Default, Debug)]
pub struct DbStats {
    pub key_count: u64,
    pub deadline_count: u64,
}

/// Pages that must be read from the page file before a command can be applied. The command has changed
/// nothing; hand the fault to [`crate::Store::load`] and run it again.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(crate) missing: Missing,
}

#[derive(Clone, Debug)]
pub(crate) enum Missing {
    Pages(Vec<PageId>),
    /// Whatever is not in memory.
    All,
}

impl Fault {
    pub(crate) fn of(pages: Vec<PageId>) -> Fault {
        Fault { missing: Missing::Pages(pages) }
    }

    pub(crate) fn add_to(self, pages: &mut Vec<PageId>) {
        if let Missing::Pages(more) = self.missing {
            pages.extend(more);
        }
    }

    /// For a command that may touch any page: it waits for the end of the warm-up.
    pub fn all() -> Fault {
        Fault { missing: Missing::All }
    }
}

/// Why an operation did not happen. None of them leaves a partial change.
#[derive(thiserror::Error, Clone, Debug)]
pub enum OpError {
    #[error("pages are not in memory yet")]
    Fault(Fault),
    /// `maxmemory` is reached and nothing may be evicted.
    #[error("used memory is over maxmemory ({limit_bytes} bytes)")]
    OutOfMemory { limit_bytes: u64 },
    #[error("a string may have at most {MAX_STRING_BYTES} bytes")]
    TooLarge,
    /// A page failed its checksum or could not be read; the text names file, slot and page.
    #[error("{0}")]
    Damaged(String),
}

impl From<Fault> for OpError {
    fn from(fault: Fault) -> Self {
        OpError::Fault(fault)
    }
}

//! What callers give and get of entries: values to be stored, deadlines, what is known of them.

use crate::blobs::Incoming;
use crate::error::OpError;
use crate::key::UnixMillis;
use crate::value::{Encoding, ValueType};

/// A string to be stored.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'a> {
    /// All of it is in its place already ([`crate::Worker::begin_incoming`]): it becomes part of the data without a copy.
    Incoming(&'a Incoming),
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
    pub value_type: ValueType,
    pub encoding: Option<Encoding>,
    /// Bytes of a string as `STRLEN` counts them; 0 for other types.
    pub value_bytes: u64,
    pub deadline: Option<UnixMillis>,
    /// Memory of key, value and record, without the leaf's free space.
    pub memory_bytes: u64,
    /// Time since the last access: of the key, in seconds, if that is tracked ([`crate::Tracking::Recency`]), else of its
    /// leaf.
    pub idle_ms: u64,
    /// How often it is accessed, if that is tracked ([`crate::Tracking::Frequency`]), and of one entry by its key.
    pub frequency: Option<u8>,
}

impl EntryInfo {
    /// Whether an operation on values of this type may go on.
    ///
    /// # Errors
    /// [`OpError::WrongType`].
    pub fn must_be(&self, value_type: ValueType) -> Result<(), OpError> {
        match self.value_type == value_type {
            true => Ok(()),
            false => Err(OpError::WrongType),
        }
    }
}

/// Counters of one database.
#[derive(Clone, Copy, Default, Debug)]
pub struct DbStats {
    pub key_count: u64,
    pub deadline_count: u64,
}

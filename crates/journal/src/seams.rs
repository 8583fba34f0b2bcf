//! What the log asks of others: values by reference, and its watcher.

use std::sync::Arc;

use crate::error::{BodyError, JournalError};
use crate::names::Offset;

/// A large value that is appended by reference. The log holds it until its bytes are in a block.
pub trait Body: Send + Sync {
    /// Its length in bytes, which stays as it is.
    fn len_bytes(&self) -> u64;

    /// Fills `out` with the bytes from `offset` on. It may wait for a device; the log's writer calls it.
    ///
    /// # Errors
    /// The bytes cannot be had; the log ends there, for good.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), BodyError>;
}

/// A part of a unit.
pub enum Piece<'u> {
    /// Bytes, which are copied.
    Bytes(&'u [u8]),
    /// A value, which is read when it is written.
    Body(&'u Arc<dyn Body>),
}

impl Piece<'_> {
    /// Its length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Body(body) => body.len_bytes(),
        }
    }
}

/// Told what becomes of the log, by the log's threads and never under their locks, or by the journal's caller.
pub trait Watcher: Send + Sync {
    /// Everything before `to` is durable; rises only.
    fn durable(&self, to: Offset);
    /// Whether there is room for more units; see [`crate::Journal::has_room`].
    fn room(&self, is_there: bool);
    /// The log has failed, for good. Called once.
    fn failed(&self, error: &JournalError);
    /// Whether space lacks for the next segment; units are kept in memory meanwhile.
    fn no_space(&self, is_so: bool);
}

/// Nobody watches.
impl Watcher for () {
    fn durable(&self, _: Offset) {}
    fn room(&self, _: bool) {}
    fn failed(&self, _: &JournalError) {}
    fn no_space(&self, _: bool) {}
}

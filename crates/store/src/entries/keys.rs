//! The keys of a stream's records, in whose order they are.
//!
//! ```text
//! 00                  head
//! 01 ID               block of entries, none of which is below the ID
//! ```

use super::id::StreamId;

pub(crate) const HEAD_KEY: &[u8] = &[0];
const BLOCK: u8 = 1;
/// Above the keys of all blocks.
pub(crate) const AFTER_BLOCKS: &[u8] = &[BLOCK + 1];

pub(crate) type BlockKey = [u8; 1 + StreamId::BYTES];

/// The key of the block with this base.
pub(crate) fn block_key(base: StreamId) -> BlockKey {
    let mut key = [BLOCK; 1 + StreamId::BYTES];
    key[1..].copy_from_slice(&base.to_bytes());
    key
}

/// The base of a block; `None` if the key is another record's.
pub(crate) fn base_of(key: &[u8]) -> Option<StreamId> {
    let key: &BlockKey = key.try_into().ok()?;
    let id = key[1..].try_into().ok()?;
    (key[0] == BLOCK).then(|| StreamId::from_bytes(id))
}

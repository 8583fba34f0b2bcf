//! The records of a stream as bytes: a head, and blocks of entries.

pub(crate) mod block;
pub(crate) mod group;
mod head;
mod id;
mod keys;

pub(crate) use head::{names_hash, Head, LastNode};
pub use id::StreamId;
pub(crate) use keys::{base_of, block_key, AFTER_BLOCKS, HEAD_KEY};

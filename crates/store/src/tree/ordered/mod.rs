//! Trees ordered by byte-string keys: ranges both ways, ranks by choice.

mod access;
mod leaf;
mod node;
mod order;
mod plan;
mod ranks;

pub(crate) use access::{record_bytes, Next};
pub(crate) use leaf::{OrderedLeaf, KEY_MAX_BYTES};
pub(crate) use order::{Ordered, Seek};

//! Trees ordered by the keyed hash of their keys: the key space.

mod bounds;
mod chain;
mod collection;
mod inner;
mod leaf;
#[cfg(test)]
mod leaf_tests;
mod order;
mod prefetch;
mod record;
mod shape;
mod side;
mod spread;

pub(crate) use chain::{At, LeafGuard};
pub(crate) use collection::{Collection, Content, Grown, PACKED_INLINE_MAX_BYTES};
pub(crate) use inner::{Inner, InnerMut};
pub(crate) use leaf::{finest_shift, Leaf, LeafMut};
pub(crate) use order::{as_leaf, chain_deadline, Hashed};
pub(crate) use record::{
    Record, RecordKey, RecordValue, Reference, KEY_INLINE_MAX_BYTES, RECORD_MAX_BYTES, VALUE_INLINE_MAX_BYTES,
};
pub(crate) use shape::{HEADER_BYTES, SLOT_BYTES};
pub(crate) use side::{tick_of, Side};

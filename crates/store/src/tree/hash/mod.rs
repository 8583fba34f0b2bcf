//! Trees ordered by the keyed hash of their keys: the key space.

mod bounds;
mod chain;
mod collection;
mod index;
mod inner;
mod leaf;
#[cfg(test)]
mod leaf_tests;
mod links;
mod order;
mod prefetch;
mod record;
mod shape;
mod side;
mod spread;
mod walk;

pub(crate) use chain::{At, LeafGuard};
pub(crate) use collection::{Collection, Content, Grown};
pub(crate) use inner::{Inner, InnerMut, FANOUT};
pub(crate) use leaf::{finest_shift, Leaf, LeafMut};
pub(crate) use links::Links;
pub(crate) use order::{as_leaf, chain_deadline, Hashed};
pub(crate) use record::{
    index_hash, Record, RecordKey, RecordValue, Reference, INDEX_HASH_SHIFT, INDEX_RECORD_BYTES,
    KEY_INLINE_MAX_BYTES, PACKED_INLINE_MAX_BYTES, RECORD_MAX_BYTES, VALUE_INLINE_MAX_BYTES,
};
pub(crate) use shape::{HEADER_BYTES, SLOT_BYTES};
pub(crate) use side::{tick_of, Side};
pub(super) use walk::visit_rest;

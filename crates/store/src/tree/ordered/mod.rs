//! Trees ordered by byte-string keys: ranges both ways, ranks by choice.

mod access;
mod bulk;
mod group;
mod leaf;
mod node;
mod order;
mod plan;
// Sorted sets will ask for ranks; a tree of the library's does not count.
#[cfg_attr(not(test), allow(dead_code))]
mod ranks;
mod walk;

pub(crate) use access::{record_bytes, Next, Removal};
pub(crate) use bulk::Bulk;
pub(crate) use group::Way;
#[cfg(test)]
pub(crate) use leaf::OrderedLeaf;
pub(crate) use leaf::{fits_leaf, Stored, KEY_MAX_BYTES};
pub(crate) use node::children_of;
pub(crate) use order::{as_leaf, Ordered, Seek};
pub(crate) use walk::{check_tree, visit_rest, Visitor};

//! Trees ordered by byte-string keys: ranges both ways, ranks by choice.

mod access;
mod bulk;
mod group;
mod leaf;
mod node;
mod order;
mod plan;
mod ranks;
mod walk;

pub(crate) use access::{record_bytes, Next, Removal, RunRemoval};
pub(crate) use bulk::Bulk;
pub(crate) use group::Way;
pub(crate) use leaf::{fits_leaf, OrderedLeaf, Stored, KEY_MAX_BYTES};
pub(crate) use node::{children_of, find_key, find_rank};
pub(crate) use order::{as_leaf, Ordered, Seek};
pub(crate) use walk::{check_tree, visit_rest, Visitor};

//! Large lists: trees by position.
//!
//! Inner nodes say how many elements are below each child, blocks have the elements. So the element with an index is found from
//! the root down, and elements are put and taken anywhere in the same number of steps. A root keeps its page for the life of its
//! list, and a list has at least one node and one block.

mod block;
mod bulk;
mod cut;
mod free;
mod insert;
mod node;
mod path;
mod read;
mod remove;
mod search;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use block::{Block, Element, ELEMENT_INLINE_MAX_BYTES};
pub(crate) use bulk::Bulk;
pub(crate) use node::{children_of, find_child};
pub(crate) use path::Lists;
pub(crate) use search::Wanted;
pub(crate) use walk::{check_tree, visit_rest};

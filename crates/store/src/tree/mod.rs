//! Page trees: descent, room, joining, whatever the order is; and the orders.

#[cfg(test)]
mod contract_tests;
mod forms;
mod free;
pub(crate) mod hash;
mod leaves;
pub(crate) mod list;
mod merge;
mod order;
pub(crate) mod ordered;
mod room;
pub(crate) mod sorted_set;
mod trees;
mod words;

pub(crate) use forms::visit_rest;
pub(crate) use leaves::{blank, LeafWalk, Pages};
pub(crate) use merge::Joining;
pub(crate) use order::{bad_record, no_key, not_inner, LeafView};
pub(crate) use trees::{stop_below, Scratch, Tree, Trees, NO_DATABASE};
pub(crate) use words::Words;

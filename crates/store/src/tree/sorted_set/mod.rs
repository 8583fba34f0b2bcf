//! The two trees of a large sorted set: members by score, and scores by member.
//!
//! ```text
//!   index: hash of a member ──▶ score        tree::hash, records of an index
//!   order: score, member                     tree::ordered, which counts: so there are ranks
//! ```
//! A member is in the order alone. So to find one, its hash leads to the scores of all members that have the same, mostly
//! one or none, and whether it has that score is looked up in the order.

mod bounds;
mod check;
mod key;
mod range;
mod scan;
#[cfg(test)]
mod tests;
mod trees;
mod viewed;

pub(crate) use bounds::Ranking;
pub use bounds::{LexBound, ScoreBound};
pub(crate) use check::check_sorted_set;
pub(crate) use key::{parse, sortable, Member, Scored};
pub(crate) use trees::{PlaceAhead, Roots, SortedTrees};
pub(crate) use viewed::ViewedOrder;

//! Handles on collections, for programs that embed the store: [`crate::Store::hash`] and its kin.

mod desk;
mod hash;
mod list;
mod place;
mod set;
mod sorted_set;

pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use sorted_set::SortedSet;

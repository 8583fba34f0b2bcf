//! A thread's access to keys, to collections or to a named tree, which takes care of itself.

mod collections;
mod commit;
mod load;
mod many;
mod overlay;
mod point;
mod range;
mod transaction;
mod tree;
mod turn;
mod values;

pub use collections::{Hash, List, Set, SortedSet};
pub use range::{Record, TreeRange};
pub use transaction::Transaction;
pub use tree::Tree;

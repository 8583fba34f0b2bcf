//! A thread's access to keys, to collections, to a named tree or to function libraries, which takes care of itself.

mod collections;
mod commit;
mod libraries;
mod load;
mod many;
mod overlay;
mod point;
mod range;
mod transaction;
mod tree;
mod turn;
mod values;

pub use collections::{
    Appended, Hash, List, OwnedEntries, Set, SortedSet, Stream, StreamEntry, StreamError, StreamGroup,
};
pub use libraries::{libraries_version, Libraries};
pub use range::{Record, TreeRange};
pub use transaction::Transaction;
pub use tree::Tree;

//! Handles on collections, for programs that embed the store: [`crate::Store::hash`] and its kin.

mod desk;
mod hash;
mod list;
mod place;
mod set;
mod sorted_set;
mod stream;
mod stream_entry;
mod stream_error;
mod stream_group;

pub use hash::Hash;
pub use list::List;
pub use set::Set;
pub use sorted_set::SortedSet;
pub use stream::{Appended, Stream};
pub use stream_entry::{OwnedEntries, StreamEntry};
pub use stream_error::StreamError;
pub use stream_group::StreamGroup;

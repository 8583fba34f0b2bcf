//! Requests on lists, hashes, sets and sorted sets: what fills them, and commands on random elements of them.

mod data;
mod fill;
mod operation;

pub use data::{append_command, append_digits, append_length, append_word, Data, Kind};
pub use fill::Fill;
pub use operation::{Effect, Operation, Operations, ALL, LINDEX_MIDDLE, LINSERT_MIDDLE};

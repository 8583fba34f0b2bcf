//! WiredTiger, as far as the benchmark needs it: tables of byte strings, a session for each thread with a cursor for each
//! table, transactions.
//!
//! ```text
//!   Connection (of the process) ──▶ Session (of a thread) ──▶ a cursor for each table
//!                                     no transaction ⇄ in a transaction
//! ```

#[cfg(feature = "system")]
mod ffi;
#[cfg(feature = "system")]
mod handles;

#[cfg(feature = "system")]
pub use handles::{Bulk, Connection, Direction, Error, Session};

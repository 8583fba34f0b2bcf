//! The store: keys and values in the pages of `stillframe-pagepool`; an embeddable library.
//!
//! It is not a server: no sockets, no protocol, no command names.
#![forbid(unsafe_code)]

mod options;
mod store;
mod types;
mod value;
mod worker;

pub use options::{Options, SnapshotKind};
pub use store::{CheckpointReport, OpenError, SaveError, SaveProgress, Store, View, ViewEntry};
pub use types::*;
pub use value::StrRef;
pub use worker::{Locks, Worker};

pub mod rdb;

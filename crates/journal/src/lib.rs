//! The log of a server: a stream of bytes, counted by offsets, that is appended to in units and kept in checked blocks.
//!
//! The journal knows bytes, offsets and units; no keys, and no commands but what [`JournalOptions::select`] writes.
//! Byte by byte in docs/internals/format.md.
#![forbid(unsafe_code)]

mod block;
mod bytes;
mod chain;
mod chunk;
mod error;
mod files;
mod helpers;
mod journal;
mod names;
mod options;
mod output;
mod probe;
mod progress;
mod recover;
mod report;
mod scan;
mod seams;
mod shared;
mod tail;
mod units;
mod writer;

/// What protocols between threads are made of; the model checker puts its own in the place of these.
mod sync {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    pub use std::sync::{atomic, Arc};
}

pub use error::{BodyError, JournalError, RecoverError};
pub use journal::Journal;
pub use names::{LogId, Offset, Place, SegmentNumber};
pub use options::{JournalOptions, SyncMethod, SyncPolicy};
pub use report::{JournalReport, Recovery};
pub use seams::{Body, Piece, Watcher};
pub use units::Replay;

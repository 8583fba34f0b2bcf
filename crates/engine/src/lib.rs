//! What runs commands: protocol, command table, transactions, configuration, what all workers share. It knows no sockets: the
//! server has them ([`sockets::Sockets`]), and what else drives it has none.
//!
//! A program that is no server runs commands by an [`Engine`].
//!
//! It is not the store: keys, values and snapshots are in `stillframe-store`.
//!
//! Rooms from the ground up; each uses only those above it in this list:
//!
//! ```text
//!   clock, log, text      what time it is, the text log, numbers and patterns
//!   hyperloglog           about how many elements a set has
//!   geo                   places on the earth as scores
//!   protocol              RESP: requests in, replies out
//!   command               what a command is: row, registry, errors
//!   config                redis.conf, flags, CONFIG
//!   sockets               what is asked of the sockets that clients come in by
//!   state                 clients, sessions, counters, slow log, watches
//!   eviction              keys go, so that there is room
//!   persistence           the saver, dumps
//!   scrub                 reading the page file through
//!   server                what all workers share
//!   logging               what becomes of the log of changes
//!   data                  opening the data
//!   chores                what is done beside commands: expiry, figures, the threads of saver and scrubber
//!   dispatch              from arguments to a reply, transactions
//!   commands              the functions, each beside its row
//!   embedded              commands without a server
//! ```
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

pub mod chores;
pub mod clock;
pub mod command;
pub mod commands;
pub mod config;
pub mod data;
pub mod dispatch;
#[cfg(test)]
mod docs_tests;
pub mod embedded;
pub mod eviction;
mod geo;
pub mod harness;
mod hyperloglog;
pub mod log;
pub mod logging;
pub mod persistence;
pub mod protocol;
#[cfg(all(test, debug_assertions))]
mod reply_gate_tests;
pub mod scrub;
pub mod server;
pub mod sockets;
pub mod state;
#[cfg(test)]
mod steps_tests;
pub mod text;
#[cfg(all(test, debug_assertions))]
mod touch_tests;
#[cfg(test)]
mod waiting_tests;

pub use config::Config;
pub use embedded::{Client, Closed, Engine, EngineError};

/// Locks and atomic words: real ones, or those of the model checker in its tests.
mod sync {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic;
}

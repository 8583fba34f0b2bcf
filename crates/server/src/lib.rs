//! The Redis-protocol server: sockets, protocol, command table, transactions, configuration, metrics.
//!
//! It is not the store: keys, values and snapshots are in `stillframe-store`.
//!
//! Rooms from the ground up; each uses only those above it in this list:
//!
//! ```text
//!   clock, log, text      what time it is, the log, numbers and patterns
//!   hyperloglog           about how many elements a set has
//!   geo                   places on the earth as scores
//!   protocol              RESP: requests in, replies out
//!   command               what a command is: row, registry, errors
//!   config                redis.conf, flags, CONFIG
//!   state                 clients, sessions, counters, slow log, watches
//!   eviction              keys go, so that there is room
//!   persistence           the saver, dumps
//!   scrub                 reading the page file through
//!   net                   sockets, connections
//!   server                what all workers share
//!   dispatch              from arguments to a reply, transactions
//!   commands              the functions, each beside its row
//!   event_loop            a worker
//!   app, maintenance      starting and ending; --check, --salvage
//! ```
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

pub mod app;
mod clock;
mod command;
mod commands;
pub mod config;
mod dispatch;
#[cfg(test)]
mod docs_tests;
mod event_loop;
mod eviction;
mod geo;
pub mod harness;
mod hyperloglog;
pub mod log;
pub mod maintenance;
mod net;
mod persistence;
pub mod protocol;
mod scrub;
pub mod server;
mod state;
#[cfg(test)]
mod steps_tests;
pub mod text;
#[cfg(all(test, debug_assertions))]
mod touch_tests;
#[cfg(test)]
mod waiting_tests;

/// Locks and atomic words: real ones, or those of the model checker in its tests.
mod sync {
    pub use parking_lot::Mutex;
    pub use std::sync::atomic;
}

//! The Redis-protocol server: sockets, threads, and the process. It runs no command itself: what does is `stillframe-engine`, which
//! knows no socket.
//!
//! Rooms from the ground up; each uses only those above it in this list:
//!
//! ```text
//!   net                   sockets, connections
//!   desk                  connections while a script runs for long
//!   event_loop            a worker
//!   app, maintenance      starting and ending; --check, --salvage
//! ```
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

pub mod app;
mod desk;
mod event_loop;
pub mod maintenance;
mod net;

/// Locks: real ones, or those of the model checker in its tests.
mod sync {
    pub use parking_lot::{Condvar, Mutex};
}

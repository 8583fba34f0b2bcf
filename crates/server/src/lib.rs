//! The Redis-protocol server: sockets, protocol, command table, transactions, configuration, metrics.
//!
//! It is not the store: keys, values and snapshots are in `stillframe-store`.
#![forbid(unsafe_code)]

pub mod clients;
pub mod command;
pub mod commands;
pub mod config;
pub mod ctx;
pub mod dispatch;
pub mod errors;
pub mod glob;
pub mod harness;
pub mod long_double;
pub mod number;
pub mod protocol;
pub mod reply;
pub mod server;
pub mod session;
pub mod stats;
pub mod table;
pub mod watch;
pub mod words;

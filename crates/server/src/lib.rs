//! The Redis-protocol server: sockets, protocol, command table, transactions, configuration, metrics.
//!
//! It is not the store: keys, values and snapshots are in `stillframe-store`.
#![forbid(unsafe_code)]
// No client, file or configuration may bring the process down.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable))]

pub mod app;
pub mod clients;
pub mod command;
pub mod commands;
pub mod config;
pub mod conn;
pub mod ctx;
pub mod descriptors;
pub mod dispatch;
pub mod errors;
pub mod event_loop;
pub mod glob;
pub mod harness;
pub mod latency;
pub mod listen;
pub mod loading;
pub mod local;
pub mod log;
pub mod long_double;
pub mod mailbox;
pub mod maintenance;
pub mod monitor;
pub mod number;
pub mod pause;
pub mod persistence;
pub mod prepare;
pub mod protocol;
pub mod reply;
pub mod server;
pub mod session;
pub mod slots;
pub mod slowlog;
pub mod stats;
pub mod table;
pub mod watch;
pub mod words;

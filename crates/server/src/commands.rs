//! The command functions, by group.

pub mod bitfield;
pub mod bitmap;
pub mod counter;
pub mod database;
pub mod debug;
pub mod dump;
pub mod expire;
pub mod keys;
pub mod lcs;
pub mod memory;
pub mod object;
pub mod scan;
pub mod set;
pub mod sort;
pub mod string;

pub mod client;
pub mod configuration;
pub mod connection;
pub mod info;
pub mod introspection;
pub mod latency;
pub mod persistence;
pub mod server;
pub mod slowlog;
pub mod transaction;
pub mod users;

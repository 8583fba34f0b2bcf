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
pub mod connection;
pub mod transaction;

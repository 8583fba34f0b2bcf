//! The command functions, by group.

pub mod string;

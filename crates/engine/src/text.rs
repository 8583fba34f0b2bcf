//! Text as Redis reads and writes it: numbers, patterns.

pub mod double;
pub mod glob;
pub mod long_double;
pub mod number;

//! Text as Redis reads and writes it: numbers, quoted words, patterns.

pub mod double;
pub mod glob;
pub mod long_double;
pub mod number;
pub mod words;

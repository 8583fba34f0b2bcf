//! What is particular to each type of values.

mod copy;
mod hash;
mod packed;
mod string;
#[cfg(test)]
mod string_tests;

pub use hash::FieldMode;

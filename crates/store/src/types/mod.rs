//! What is particular to each type of values.

mod string;
#[cfg(test)]
mod string_tests;

//! What is particular to each type of values.

mod copy;
mod hash;
mod packed;
mod string;
#[cfg(test)]
mod string_tests;
mod upkeep;
mod view;

pub use hash::{Draw, FieldMode, FieldRef};
pub use view::Element;

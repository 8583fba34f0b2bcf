//! What is particular to each type of values.

mod copy;
mod hash;
mod list;
mod packed;
mod string;
#[cfg(test)]
mod string_tests;
mod view;

pub use hash::FieldMode;
pub use list::{Insertion, Setting};
pub use view::Element;

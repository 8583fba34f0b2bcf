//! What is particular to each type of values.

mod ahead;
mod copy;
mod elements;
mod hash;
mod kind;
mod kinds;
mod list;
mod packed;
mod set;
mod size;
mod sorted_set;
mod string;
#[cfg(test)]
mod string_tests;
mod upkeep;
mod view;
mod viewed;

pub use ahead::{ElementAhead, TreesAhead};
pub use copy::ElementCopies;
pub use hash::{Draw, FieldMode, FieldRef, GivenField};
pub use kind::NewElement;
pub use list::{Insertion, Setting};
pub use sorted_set::{NegativeZero, OwnedRange, RangeLimit, Rank, ScoreChanges, ScoreRule, ScoredRange};

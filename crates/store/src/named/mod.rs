//! Named trees: which there are, where, and who is at work on them. What is done with one is in `handle`.

mod gate;
mod names;
mod registry;
mod seat;
mod tree;

pub(crate) use gate::{KeptOut, Visit};
pub(crate) use names::{decode, NameEntry, NamesPlace, LIBRARIES_NAME};
pub(crate) use registry::Named;
pub(crate) use seat::Seat;
pub(crate) use tree::{NamedTree, Visitor};

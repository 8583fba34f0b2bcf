//! Handles on collections, for programs that embed the store: [`crate::Store::hash`] and its kin.

mod desk;
mod hash;

pub use hash::Hash;

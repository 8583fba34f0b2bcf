//! Images in files, such that a crash at any moment leaves the previous one, or the new one if it was about to finish.
//!
//! A *full* image is written beside the old one and takes its place when it is durable. A *merged* one gets the rows that
//! have changed: these are written to a journal and made durable, and only then is the image changed in place. Whoever
//! opens it after a crash goes through the journal once more: that is the same however often it is done.

pub mod blocks;
pub mod files;
pub mod full;
pub mod merged;

pub use files::{Directory, FileKind, Files, ImageFileError};
pub use full::{FullImages, FullWriter};
pub use merged::{MergedImages, MergedWriter};

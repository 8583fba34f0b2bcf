//! The physical snapshot algorithms of the comparative study (Li et al., TKDE 2019), each a state machine over rows.
//!
//! It is not a store: an algorithm keeps flags, and says which row is copied where and when. A row is
//! what an algorithm copies: 64 to 4096 bytes in the study, a page under the server. Where rows lie is behind [`Copies`],
//! where images go is behind [`Image`].
//!
//! From the ground up:
//!
//! - `sync`: the atomics, which the models replace by loom's. `backoff`: a short wait.
//! - [`rows`]: rows, copies of them and the seam to where they lie.
//! - `hooks`: where tests step in; nothing without the feature `mutations`.
//! - `bits`, `pairs`: flags of rows, packed in words. `frames`, `parts`: spare frames and what is in them.
//! - [`image`]: where the rows of a cut go.
//! - [`seam`]: what an algorithm is. [`row_array`]: rows on the heap.
//! - [`image_file`]: images in files, full or merged, that a crash cannot destroy.
//! - [`physical`]: the algorithms, one file each. [`kind`]: their names.
#![forbid(unsafe_code)]

pub mod hooks;
pub mod image;
pub mod image_file;
pub mod kind;
pub mod physical;
pub mod row_array;
pub mod rows;
pub mod seam;

mod backoff;
mod bits;
#[cfg(test)]
mod flags_tests;
mod frames;
mod pairs;
mod parts;
mod sync;

pub use image::{Help, Image, ImageError};
pub use kind::{KindOptions, PhysicalKind, UnknownPhysicalKind, WithAlgorithm};
pub use row_array::{RowArray, RowCopies};
pub use rows::{Change, Copies, CopyId, Place, RowId, WordCopies};
pub use seam::Algorithm;

//! When a transaction begins and ends, as a cut sees it.

mod place;
mod word;

pub use place::{fence_before_places, Place, SessionSeq};
pub use word::{CommitSeq, CommitWord, Phase, Stage};

//! Versions of pages, and where they are.

use std::sync::Arc;

use super::frames::Frame;
use super::spill::SpilledImage;
use crate::CheckpointError;

/// Where the version of a page is that a reader wants.
pub enum Version<'c> {
    /// In the page's place, unless a writer comes first: it is copied as of the cut, and if that fails there is another
    /// answer.
    InPlace,
    /// In a frame, for as long as this one is held.
    Frame(Frame<'c>),
    /// In the page file, at a slot that nobody else gets as long as this is held.
    Spilled(Arc<SpilledImage>),
    /// Nowhere: it could not be kept.
    Lost(Box<CheckpointError>),
}

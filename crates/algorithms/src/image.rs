//! Where the rows of a cut go.

use crate::rows::{Place, RowId};

/// Why an image could not be completed.
#[derive(thiserror::Error, Clone, Debug)]
#[error("the image of the snapshot is not complete: {reason}")]
pub struct ImageError {
    pub reason: std::sync::Arc<str>,
}

impl ImageError {
    pub fn new(reason: impl Into<std::sync::Arc<str>>) -> ImageError {
        ImageError { reason: reason.into() }
    }
}

/// Takes the rows of one cut, in any order and each once, from the access phase.
///
/// ```text
///   (has_room? ── no ── [is_busy?] ──▶ drain)* ──▶ put ──▶ take_back?   ... finish        who fails is not called again
/// ```
///
/// An incremental algorithm puts only rows that have changed since its last image that finished. The others are as they
/// are there.
pub trait Image<C> {
    /// Takes the bytes of a row now: they may change after the call. A writer of this row may be waiting meanwhile, so
    /// this does not wait for anything slow.
    ///
    /// # Errors
    /// The image cannot be completed.
    fn put(&mut self, copies: &C, row: RowId, place: Place) -> Result<(), ImageError>;

    /// The row that was put last was being written: as if it had not been put. It comes again, or from a writer: what
    /// [`Help::emit`] has been given of this row, by now or later, stays.
    fn take_back(&mut self);

    /// Whether a row can be put now. If not, `drain` comes next, or something else if the image is busy.
    fn has_room(&mut self) -> bool;

    /// Asked when there is no room: whether there will be some without a call of `drain`, because something else is writing.
    /// So `drain` would only wait, and the caller has time (`epoch` copies rows ahead).
    fn is_busy(&mut self) -> bool {
        false
    }

    /// Called between rows, when no writer can be waiting, if there is no room: writes, or waits, until there is.
    ///
    /// # Errors
    /// The image cannot be completed.
    fn drain(&mut self) -> Result<(), ImageError>;

    /// All rows have been put: makes the image the one that a crash leaves. On return it is.
    ///
    /// # Errors
    /// It may or may not be; the next image makes up for it.
    fn finish(&mut self) -> Result<(), ImageError>;
}

/// Puts a row that nobody changes until the image has it.
#[inline(always)]
pub fn put<C, I: Image<C>>(image: &mut I, copies: &C, row: RowId, place: Place) -> Result<(), ImageError> {
    if !image.has_room() {
        image.drain()?;
    }
    image.put(copies, row, place)
}

/// How a writer gives a row of the cut to the image itself, when there is nowhere to keep it (`epoch`).
pub trait Help<C>: Send + Sync {
    /// Takes a row of the running image, which does not change during the call. May wait for the disk. Writers call it at
    /// once, beside the access phase, but not after that has finished.
    ///
    /// # Errors
    /// The image cannot be completed: its access phase fails.
    fn emit(&self, copies: &C, row: RowId, place: Place) -> Result<(), ImageError>;
}

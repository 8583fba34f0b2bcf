//! What a snapshot algorithm is.

use crate::image::{Image, ImageError};
use crate::rows::{Change, Copies, CopyId, RowId};

/// A physical snapshot algorithm over the copies `C`. It has flags, and no bytes.
///
/// ```text
///   start ──▶ period ── cut ──▶ period, and beside it the access phase ── cut ──▶ ...
/// ```
///
/// Contract (H1 to H4):
/// - A row is written by one thread at a time, under a latch or by partition, and read while nobody writes it (or what
///   was read is validated). A write is `before_write`, the bytes into the copy that it names, `after_write`.
/// - `start` and `cut` run while no write and no read is in flight. Who stops them makes everything that they did
///   visible to the cut, and the cut to everything after it.
/// - One `access` at most follows a cut, on any thread, beside writes and reads. The next cut comes when it has returned.
///   If it failed, or there was none, the next cut is complete all the same.
pub trait Algorithm<C: Copies>: Sync {
    /// Copies of all rows that it needs beside [`CopyId::D`], which has the initial data.
    const SECOND_COPIES: &'static [CopyId];

    /// Slots that it needs in [`CopyId::SPARE`], if that is not a second copy.
    fn spare_frames(&self) -> u32 {
        0
    }

    /// Whether an image gets only rows that have changed since the last one that finished.
    const IS_INCREMENTAL: bool;

    /// Whether writes of a row after the first in a period need `before_write` and `after_write`, too. If not, they may go
    /// straight to the copy that the first one was given, whatever bytes they are of, once that one has ended.
    const SEES_EACH_WRITE: bool;

    /// The initial data is in [`CopyId::D`]: fills what the first period needs.
    fn start(&self, copies: &C);

    /// Returns the copy that is to be written. Before a write of a part the whole row is there as it was; before that of a
    /// whole row anything may be there, and each byte has to be written, or the row is lost.
    fn before_write(&self, copies: &C, row: RowId, change: Change) -> CopyId;

    /// This has been written.
    #[inline(always)]
    fn after_write(&self, copies: &C, row: RowId, change: Change) {
        let _ = (copies, row, change);
    }

    /// The copy that has the latest content of the row.
    fn live(&self, row: RowId) -> CopyId;

    /// Takes a cut: what has been written until now is what the next access phase puts.
    fn cut(&self, copies: &C);

    /// The access phase: puts each row of the cut once, as it was at the cut.
    ///
    /// # Errors
    /// The first one of the image. The phase ends with it.
    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError>;

    /// Whether the last access phase, which has succeeded, left no flag of its cut and holds no spare frame. Asked while
    /// nothing is in flight.
    fn is_idle(&self) -> bool;
}

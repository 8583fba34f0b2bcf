//! Naive snapshot (section 3.1.1): the cut copies everything, so it is as long as the data.
//!
//! ```text
//!   cut: D ── all rows ──▶ S        access phase: S ──▶ image        writes and reads: D
//! ```

use crate::image::{put, Image, ImageError};
use crate::rows::{Change, Copies, CopyId, Place, RowId};
use crate::seam::Algorithm;
use crate::sync::atomic::{AtomicU32, Ordering};

/// See the module.
#[derive(Debug)]
pub struct Naive {
    cut_row_count: AtomicU32,
}

impl Naive {
    /// It keeps nothing a row.
    #[must_use]
    pub fn new(_row_count: u32) -> Naive {
        Naive { cut_row_count: AtomicU32::new(0) }
    }
}

impl<C: Copies> Algorithm<C> for Naive {
    const SECOND_COPIES: &'static [CopyId] = &[CopyId::S];
    const IS_INCREMENTAL: bool = false;
    const SEES_EACH_WRITE: bool = false;

    fn start(&self, _: &C) {}

    #[inline(always)]
    fn before_write(&self, _: &C, _: RowId, _: Change) -> CopyId {
        CopyId::D
    }

    #[inline(always)]
    fn live(&self, _: RowId) -> CopyId {
        CopyId::D
    }

    fn cut(&self, copies: &C) {
        let row_count = copies.row_count();
        copies.copy_rows(0..row_count, CopyId::D, CopyId::S);
        self.cut_row_count.store(row_count, Ordering::Relaxed);
    }

    fn access<I: Image<C>>(&self, copies: &C, image: &mut I) -> Result<(), ImageError> {
        let row_count = self.cut_row_count.load(Ordering::Relaxed);
        for row in (0..row_count).map(RowId) {
            put(image, copies, row, Place::of(row, CopyId::S))?;
        }
        image.finish()?;
        copies.let_go(CopyId::S, 0..row_count);
        Ok(())
    }

    fn is_idle(&self) -> bool {
        true
    }
}

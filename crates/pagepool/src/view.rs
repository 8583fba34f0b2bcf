//! A read-only picture of all pages at a cut.

use std::sync::Arc;

use crate::core::Epoch;
use crate::{BarrierTimes, CheckpointError, PageBytes, PageId, Pool};

/// A picture of the pool at a cut; pages that change keep their before-images until it is dropped.
pub struct View {
    pool: Arc<Pool>,
    cut: Epoch,
    barrier: BarrierTimes,
}

impl View {
    pub(crate) fn new(pool: Arc<Pool>, cut: Epoch, barrier: BarrierTimes) -> View {
        View { pool, cut, barrier }
    }

    /// What the cut cost.
    pub fn barrier_times(&self) -> BarrierTimes {
        self.barrier
    }

    /// Copies a page as of the cut. It must have been in use then.
    ///
    /// # Errors
    /// If the page is damaged, or its before-image could not be spilled to the page file or cannot be read back.
    pub fn read_page(&self, page: PageId, into: &mut PageBytes) -> Result<(), CheckpointError> {
        if let Some(reason) = self.pool.damage_at_cut(page) {
            return Err(CheckpointError::Io(reason));
        }
        self.pool.snapshotter().read_view(self.pool.core(), self.cut, page, into)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.pool.snapshotter().end_view(self.pool.core(), self.cut);
    }
}

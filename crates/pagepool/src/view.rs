//! A read-only picture of all pages at a cut.

use std::sync::Arc;

use crate::page::Epoch;
use crate::pool::Pool;
use crate::snapshot::Version;
use crate::{BarrierTimes, CheckpointError, PageBytes, PageId};

/// A picture of the pool at a cut; pages that change keep their before-images until it is dropped.
pub struct View {
    pool: Arc<Pool>,
    cut: Epoch,
    barrier: BarrierTimes,
}

impl Pool {
    /// A read-only picture of all pages; `at_cut` runs in the barrier just before the cut, and what it writes belongs
    /// to the picture. Waits for the end of the warm-up first: pages that are not in memory cannot be kept for a cut.
    /// Not to be called by a running member of the barrier.
    ///
    /// # Errors
    /// [`CheckpointError::EpochsExhausted`].
    pub fn view_after(
        self: &Arc<Self>,
        at_cut: impl FnOnce() + Send + 'static,
    ) -> Result<View, CheckpointError> {
        self.wait_until_warm();
        let (cut, barrier) = self.at_barrier(|pool| {
            at_cut();
            pool.snapshotter().begin_view(pool.core())
        });
        Ok(View { pool: self.clone(), cut: cut?, barrier })
    }
}

impl View {
    /// What the cut cost.
    pub fn barrier_times(&self) -> BarrierTimes {
        self.barrier
    }

    /// Copies a page as of the cut. It must have been in use then.
    ///
    /// # Errors
    /// If the page is damaged, or its before-image could not be spilled to the page file or cannot be read back.
    pub fn read_page(&self, page: PageId, into: &mut PageBytes) -> Result<(), CheckpointError> {
        if let Some(reason) = self.pool.residency().damage_at_cut(page) {
            return Err(CheckpointError::Io(reason));
        }
        loop {
            match self.pool.snapshotter().locate(self.pool.core(), self.cut, page) {
                Version::InPlace if self.pool.pages().copy_as_of(page, self.cut, into) => return Ok(()),
                // A writer has come first: from now on there is an image.
                Version::InPlace => {}
                Version::Frame(frame) => {
                    into.copy_from_slice(frame.bytes());
                    return Ok(());
                }
                Version::Spilled(image) => return image.read(into),
                Version::Lost(error) => return Err(*error),
            }
        }
    }

    /// Pages that were in use at the cut, still are, and are none of those that `is_known` tells, as runs `[start, end)`.
    /// If nothing that is in use leads to any other page, nobody will ever come to these. Not to be called by a running
    /// member of the barrier.
    pub fn in_use_but(&self, is_known: impl Fn(PageId) -> bool) -> Vec<(u32, u32)> {
        let is_it = |page: &u32| !is_known(PageId(*page)) && self.is_in_use_since(PageId(*page));
        let found = runs_of(self.pool.supply().used_ranges(), is_it);
        // One that was being allocated just then, for the first time, had no epoch yet. Now it has.
        self.pool.at_barrier(|_| ());
        runs_of(found, is_it)
    }

    /// Whether a page was in use at the cut and has been neither freed nor written since.
    fn is_in_use_since(&self, page: PageId) -> bool {
        let descriptor = self.pool.pages().descriptor(page);
        let epochs = &descriptor.epochs;
        epochs.freed().is_none()
            && epochs.written() <= self.cut
            && (descriptor.state.is_resident() || self.pool.file().is_some_and(|file| file.is_mapped(page)))
    }
}

/// The pages of `ranges` that are wanted, as runs.
fn runs_of(ranges: Vec<(u32, u32)>, is_wanted: impl Fn(&u32) -> bool) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in ranges.into_iter().flat_map(|(start, end)| start..end).filter(is_wanted) {
        match runs.last_mut() {
            Some((_, end)) if *end == page => *end += 1,
            _ => runs.push((page, page + 1)),
        }
    }
    runs
}

impl Drop for View {
    fn drop(&mut self) {
        self.pool.snapshotter().end_view(self.pool.core(), self.cut);
    }
}

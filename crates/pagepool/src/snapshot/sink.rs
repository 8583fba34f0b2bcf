//! Where the pages of snapshots go, and how far they have come.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::pagefile::Spilled;
use crate::{CheckpointError, PageBytes, PageId};

/// Where a stream goes. Called by the saver thread in batches and by writers that ran out of spare frames.
pub trait Sink: Send + Sync {
    /// Takes the content of pages as of the cut.
    fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError>;
    /// Takes note that a page was free at the cut.
    fn free_page(&self, page: PageId) -> Result<(), CheckpointError>;
}

/// Somewhere to put before-images of views that outgrow the budget.
pub trait Spill: Send + Sync {
    fn spill(&self, bytes: &PageBytes) -> Result<Spilled, CheckpointError>;
    fn read_spill(&self, spilled: &Spilled, into: &mut PageBytes) -> Result<(), CheckpointError>;
    fn release_spill(&self, spilled: Spilled);
}

/// Nowhere: for pools without a page file.
pub struct NoSpill;

impl Spill for NoSpill {
    fn spill(&self, _bytes: &PageBytes) -> Result<Spilled, CheckpointError> {
        Err(CheckpointError::Io(
            "the snapshot memory is used up and there is no page file to spill to".into(),
        ))
    }

    fn read_spill(&self, _spilled: &Spilled, _into: &mut PageBytes) -> Result<(), CheckpointError> {
        Err(CheckpointError::Io("nothing was spilled".into()))
    }

    fn release_spill(&self, _spilled: Spilled) {}
}

/// Progress of a stream, for whoever wants to show it.
#[derive(Default, Debug)]
pub struct Progress {
    pub pages_scanned: AtomicU64,
    pub pages_total: AtomicU64,
    pub pages_written: AtomicU64,
}

impl Progress {
    /// Nothing is under way.
    pub fn reset(&self) {
        let counts = [&self.pages_scanned, &self.pages_total, &self.pages_written];
        counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

//! Where the pages of snapshots go, and how far they have come.

use std::sync::atomic::{AtomicU64, Ordering};

use super::spill::SpilledImage;
use crate::device::PageBuf;
use crate::{CheckpointError, PageBytes, PageId};

/// Where a stream goes. Called by the saver thread in batches and by writers that ran out of spare frames.
pub trait Sink: Send + Sync {
    /// Takes the content of pages as of the cut.
    fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError>;
    /// Takes the content of a page as of the cut that lies in the page file already. May wait for the disk.
    fn adopt_page(&self, page: PageId, image: &SpilledImage) -> Result<(), CheckpointError> {
        let mut content = PageBuf::boxed();
        image.read(&mut content.0)?;
        self.write_pages(&[(page, &content.0)])
    }
    /// Takes note that a page was free at the cut.
    fn free_page(&self, page: PageId) -> Result<(), CheckpointError>;
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

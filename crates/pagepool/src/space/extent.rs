//! Runs of pages.

use crate::PageId;

/// Consecutive pages that are freed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub start: PageId,
    pub page_count: u32,
}

impl Extent {
    pub fn pages(self) -> impl Iterator<Item = PageId> + Clone {
        (self.start.0..self.start.0 + self.page_count).map(PageId)
    }
}

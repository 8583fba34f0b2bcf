//! What of a store cannot be read: how it is looked for, and what is done about it.

use stillframe_pagepool::{DamagedPages, PageId, ScrubReport, ScrubStats};

use crate::keyspace::Keyspace;
use crate::keyspace::SkipStats;

/// Where scrubbing goes on; none: at the beginning of the page file.
pub type ScrubCursor = Option<PageId>;

/// What is known of damage, and what is done about it.
#[derive(Clone, Copy)]
pub struct Damage<'s>(pub(crate) &'s Keyspace);

impl Damage<'_> {
    /// What of the last checkpoint cannot be read, as far as it is known.
    pub fn pages(&self) -> DamagedPages {
        self.0.pool.residency().damaged_pages()
    }

    /// Verifies the next [`SCRUB_STEP_PAGES`] of the page file; what is bad there and whole in memory the next checkpoint
    /// writes anew. Waits for the disk.
    ///
    /// [`SCRUB_STEP_PAGES`]: stillframe_pagepool::SCRUB_STEP_PAGES
    pub fn scrub_step(&self, from: ScrubCursor) -> ScrubReport {
        self.0.pool.scrub(from.unwrap_or(PageId(0)))
    }

    /// What has been scrubbed since the store was opened.
    pub fn scrub_stats(&self) -> ScrubStats {
        self.0.pool.scrub_stats()
    }

    /// Whether walks over keys pass over what cannot be read instead of failing, and a write to a key whose leaf is lost
    /// puts an empty one in its place.
    pub fn set_skips(&self, skips: bool) {
        self.0.skips.set(skips);
    }

    /// What has been passed over or given up because of damage.
    pub fn skip_stats(&self) -> SkipStats {
        self.0.skips.stats()
    }

    /// What has been passed over or given up since the last call, in words; not more than a few.
    pub fn take_notes(&self) -> Vec<String> {
        self.0.skips.take_notes()
    }
}

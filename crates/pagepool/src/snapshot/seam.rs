//! What a snapshot algorithm is asked.

use std::sync::Arc;

use super::core::Core;
use super::frames::FrameWish;
use super::sink::{Progress, Sink};
use super::version::Version;
use crate::page::Epoch;
use crate::space::Extent;
use crate::{CheckpointError, PageId, Reason};

/// What a stream is to cover.
pub struct StreamPlan {
    /// Id ranges `[start, end)` that have ever been in use, taken at the cut.
    pub ranges: Vec<(u32, u32)>,
    /// The cut of the last durable checkpoint: content written at or before it need not be streamed.
    pub durable: Epoch,
    pub sink: Arc<dyn Sink>,
}

/// A snapshot algorithm over the frames of a [`Core`]. It takes the cuts, and it owns three questions: must this write
/// capture, where is the version that this reader wants, what memory does it wish for.
///
/// Contract (checked by `tests/snapshot_contract` for every implementation): the picture equals the content at
/// the cut; each changed page is streamed exactly once; a page born after the cut is absent and one freed after
/// it present; when stream and views have ended no frame is held and every freed extent has been released.
pub trait Snapshotter: Send + Sync {
    // Cuts.

    /// Told that a stream over the durable cut is about to begin, outside of the barrier, so that memory may be had before it.
    fn prepare_stream(&self, _core: &Core, _ranges: &[(u32, u32)], _durable: Epoch) {}

    /// Begins a stream. Runs in the barrier: nobody holds a guard.
    fn begin_stream(&self, core: &Core, plan: StreamPlan) -> Result<Epoch, CheckpointError>;

    /// Hands everything to the sink; returns when all of it has been taken.
    fn run_stream(&self, core: &Core, progress: &Progress) -> Result<(), CheckpointError>;

    /// Ends a stream, completed or not.
    fn end_stream(&self, core: &Core);

    /// Begins a view. Runs in the barrier.
    fn begin_view(&self, core: &Core) -> Result<Epoch, CheckpointError>;

    fn end_view(&self, core: &Core, cut: Epoch);

    // Must this write capture?

    /// Asked under the exclusive latch before the first modification of a page in an epoch. When it returns, whatever a cut
    /// needs of the page is kept; if the page has another place now, the page table says so.
    fn before_first_write(&self, core: &Core, page: PageId);

    /// Whether a modification of this page would have to keep its content first: who can write elsewhere does that. Changes
    /// nothing. The caller has the page's exclusive latch.
    fn would_capture(&self, core: &Core, page: PageId) -> bool;

    /// Asked when an extent has been freed: its descriptors say so. True if a cut needs its content: the extent
    /// comes back through [`Snapshotter::take_released`]. May write, if snapshots hold more than the budget.
    fn keep_freed(&self, core: &Core, extent: Extent) -> bool;

    /// Told before a page of the last checkpoint is marked as freed that nobody has been able to read: views that see it
    /// fail with `reason`, and there is nothing to keep.
    fn before_free_of_damaged(&self, core: &Core, page: PageId, reason: &Reason);

    /// Told before a page that was freed in epoch `freed` is used again.
    fn before_reuse(&self, core: &Core, page: PageId, freed: Epoch);

    /// Told of a page that is allocated, whose content is still to come, before anybody else can have it.
    fn begin_life(&self, _core: &Core, _page: PageId) {}

    /// Whether it wants to hear of the end of each modification, too ([`Snapshotter::after_write`]). It is asked before the first
    /// write under each guard then.
    fn sees_each_write(&self) -> bool {
        false
    }

    /// Told that a page has been modified, under the same latch.
    fn after_write(&self, _core: &Core, _page: PageId) {}

    /// Asked before pages are used, again or for the first time: false if the algorithm cannot serve as many.
    fn admit(&self, _pages: Extent) -> bool {
        true
    }

    // Where is the version that this reader wants?

    /// The version of a page that a view's cut sees. Views begin when everything is in memory, so no page needs loading.
    /// Who wants the live one needs no answer: it is where the page table says.
    fn locate<'c>(&self, core: &'c Core, cut: Epoch, page: PageId) -> Version<'c>;

    // What memory does it wish for?

    /// Whether huge pages may back the pages.
    fn takes_huge_pages(&self) -> bool;

    /// Whether pages that a cut needs may leave memory, and come back.
    fn takes_evictions(&self) -> bool;

    /// Frames that are to be populated, for `data_pages` pages.
    fn frame_wish(&self, data_pages: u64) -> FrameWish;

    /// Bytes that snapshots hold beyond the data: frames in use and extents kept.
    fn held_bytes(&self, core: &Core) -> u64;

    /// The most of them since the last stream or view began.
    fn peak_held_bytes(&self, core: &Core) -> u64;

    /// Called before `page_count` pages are allocated: if snapshots hold more than the budget, pays off as much by
    /// writing.
    fn relieve(&self, core: &Core, page_count: u32);

    /// Up to `limit` extents whose content is not needed any more.
    fn take_released(&self, core: &Core, limit: usize) -> Vec<Extent>;
}

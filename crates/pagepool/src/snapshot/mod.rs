//! Snapshots: one trait, one file an algorithm.
//!
//! Words: a *cut* is the instant of which a picture is taken; *capture* is saving a page's content as of the cut,
//! by the *sweep* in the background or by a writer that got there first; a *view* is a read-only picture at a cut;
//! a *stream* hands each page that changed since the last durable checkpoint to a [`Sink`], once.

mod budget;
mod epoch;
mod fork;
mod images;
mod quarantine;
mod running;
mod views;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::core::{Core, Epoch};
use crate::pagefile::Spilled;
use crate::{CheckpointError, PageBytes, PageId};

pub(crate) use budget::Budget;
pub use epoch::EpochSnapshotter;
pub(crate) use epoch::BATCH_PAGES;
pub use fork::ForkSnapshotter;

/// Which algorithm takes the cuts of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SnapshotKind {
    /// Write epochs, proactive capture by the writer, optimistic sweep.
    #[default]
    Epoch,
    /// `fork()`: the kernel copies the page table at the cut and pages at their first write. The baseline.
    Fork,
}

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

/// A run of freed pages whose content a cut may still need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub start: PageId,
    pub page_count: u32,
}

impl Extent {
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (self.start.0..self.start.0 + self.page_count).map(PageId)
    }
}

/// What a stream is to cover.
pub struct StreamPlan {
    /// Id ranges `[start, end)` that have ever been in use, taken at the cut.
    pub ranges: Vec<(u32, u32)>,
    /// The cut of the last durable checkpoint: content written at or before it need not be streamed.
    pub durable: Epoch,
    pub sink: Arc<dyn Sink>,
}

/// A snapshot algorithm over the frames of a [`Core`].
///
/// Contract (checked by `tests/snapshot_contract.rs` for every implementation): the picture equals the content at
/// the cut; each changed page is streamed exactly once; a page born after the cut is absent and one freed after
/// it present; when stream and views have ended no frame is held and every freed extent has been released.
pub trait Snapshotter: Send + Sync {
    fn name(&self) -> &'static str;

    /// Begins a stream. Runs in the barrier: nobody holds a guard.
    fn begin_stream(&self, core: &Core, plan: StreamPlan) -> Result<Epoch, CheckpointError>;

    /// Hands everything to the sink; returns when all of it has been taken.
    fn run_stream(&self, core: &Core, progress: &Progress) -> Result<(), CheckpointError>;

    /// Ends a stream, completed or not.
    fn end_stream(&self, core: &Core);

    /// Begins a view. Runs in the barrier.
    fn begin_view(&self, core: &Core) -> Result<Epoch, CheckpointError>;

    /// Copies a page as of a view's cut. Views begin when everything is in memory, so no page needs loading.
    fn read_view(
        &self,
        core: &Core,
        cut: Epoch,
        page: PageId,
        into: &mut PageBytes,
    ) -> Result<(), CheckpointError>;

    fn end_view(&self, core: &Core, cut: Epoch);

    /// Called under the exclusive latch before the first modification of a page in an epoch.
    fn before_first_write(&self, core: &Core, page: PageId);

    /// Called when an extent has been freed: its descriptors say so. True if a cut needs its content: the extent
    /// comes back through [`Snapshotter::take_released`]. May write, if snapshots hold more than the budget.
    fn keep_freed(&self, core: &Core, extent: Extent) -> bool;

    /// Called before a page that was freed in epoch `freed` is used again.
    fn before_reuse(&self, core: &Core, page: PageId, freed: Epoch);

    /// Up to `limit` extents whose content is not needed any more.
    fn take_released(&self, core: &Core, limit: usize) -> Vec<Extent>;

    /// Bytes that snapshots hold beyond the data: frames in use and extents kept.
    fn held_bytes(&self, core: &Core) -> u64;

    /// The most of them since the last stream or view began.
    fn peak_held_bytes(&self, core: &Core) -> u64;

    /// Called before `page_count` pages are allocated: if snapshots hold more than the budget, pays off as much by
    /// writing.
    fn relieve(&self, core: &Core, page_count: u32);
}

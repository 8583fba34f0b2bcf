//! Checkpoints: a stream of the changed pages into the page file, made durable.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::PageBuf;
use crate::page::Epoch;
use crate::pagefile::{CheckpointWriter, CommitStats, CutHeader, PageFile, Spilled, UserHeader};
use crate::pool::Pool;
use crate::snapshot::{FrameWish, Progress, Sink, Spill, SpilledImage, StreamPlan};
use crate::{BarrierTimes, CheckpointError, PageBytes, PageId};

/// What a completed checkpoint did, and how long each part took.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointStats {
    pub barrier: BarrierTimes,
    /// From the cut until every page had been handed over.
    pub sweep: Duration,
    pub commit: CommitStats,
    /// Pages that had been found bad in the page file, which this checkpoint has elsewhere.
    pub healed_page_count: u64,
    /// From the request to the durable superblock.
    pub total: Duration,
}

impl Sink for CheckpointWriter {
    fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), CheckpointError> {
        Ok(CheckpointWriter::write_pages(self, pages)?)
    }

    fn adopt_page(&self, page: PageId, image: &SpilledImage) -> Result<(), CheckpointError> {
        Ok(CheckpointWriter::adopt_page(self, page, image.spilled())?)
    }

    fn free_page(&self, page: PageId) -> Result<(), CheckpointError> {
        Ok(CheckpointWriter::free_page(self, page)?)
    }
}

impl Spill for PageFile {
    fn spill(&self, bytes: &PageBytes) -> Result<Spilled, CheckpointError> {
        Ok(PageFile::spill(self, bytes)?)
    }

    fn read_spill(&self, spilled: &Spilled, into: &mut PageBytes) -> Result<(), CheckpointError> {
        Ok(PageFile::read_spill(self, spilled, into)?)
    }

    fn read_spills(&self, wanted: &mut [(&Spilled, &mut PageBuf)]) -> Vec<Result<(), CheckpointError>> {
        let results = PageFile::read_spills(self, wanted);
        results.into_iter().map(|result| result.map_err(CheckpointError::from)).collect()
    }

    fn release_spill(&self, spilled: Spilled) {
        PageFile::release_spill(self, spilled);
    }

    fn keep(&self, page: PageId) -> Option<Spilled> {
        PageFile::keep_location(self, page)
    }
}

/// A stream that is to run, and the pages that there were at its cut.
struct Begun {
    cut: Epoch,
    page_count: u64,
}

impl Pool {
    /// Takes a checkpoint into the pool's page file and waits until it is durable. `at_cut` runs in the barrier
    /// just before the cut; what it writes belongs to the checkpoint, and what it returns goes into the superblock; if it
    /// fails there is no cut. Not to be called by a running member of the barrier.
    ///
    /// # Errors
    /// [`CheckpointError`]: the previous checkpoint stays as it was.
    pub fn checkpoint(
        self: &Arc<Self>,
        at_cut: impl FnOnce() -> Result<UserHeader, CheckpointError> + Send + 'static,
        progress: &Progress,
    ) -> Result<CheckpointStats, CheckpointError> {
        let at_cut = move || at_cut().map(CutHeader::from);
        self.checkpoint_telling(at_cut, || (), |_| Ok(()), progress)
    }

    /// The same; calls `after_cut` as soon as the cut has been taken, outside of the barrier, and `before_commit` when all pages
    /// have been handed over: until that has returned nothing names the checkpoint, and if it fails nothing ever does (J11).
    ///
    /// # Errors
    /// As of [`Pool::checkpoint`]; before the cut, `after_cut` is not called.
    pub fn checkpoint_telling(
        self: &Arc<Self>,
        at_cut: impl FnOnce() -> Result<CutHeader, CheckpointError> + Send + 'static,
        after_cut: impl FnOnce(),
        before_commit: impl FnOnce(&CutHeader) -> Result<(), CheckpointError>,
        progress: &Progress,
    ) -> Result<CheckpointStats, CheckpointError> {
        let since = Instant::now();
        let file = self.file().ok_or_else(|| CheckpointError::Io("the pool has no page file".into()))?;
        let writer = Arc::new(file.begin_checkpoint()?);
        let mut durable = self.durable_epoch();
        self.core().frames.prepare(&frame_wish(self));
        self.snapshotter().prepare_stream(self.core(), &self.supply().used_ranges(), *durable);
        let (sink, from) = (writer.clone(), *durable);
        let (begun, barrier) = self.at_barrier(move |pool| {
            let header = at_cut()?;
            begin_stream(pool, from, sink).map(|begun| (begun, header))
        })?;
        let (begun, header) = begun?;
        let cut = begun.cut;
        let cut_at = Instant::now();
        // Whatever becomes of the caller's part, the stream comes to its end.
        let told = catch_unwind(AssertUnwindSafe(after_cut));
        let streamed = run_stream(self, &begun, progress);
        let sweep = cut_at.elapsed();
        self.supply().settle_frees(cut);
        let healed = streamed.and_then(|()| self.scrubbing().heal(self.residency(), &writer, cut));
        let ready = healed.and_then(|healed| before_commit(&header).map(|()| healed));
        let committed = ready.and_then(|healed| Ok((writer.commit(header)?, healed)));
        self.core().frames.discard_if_idle(&frame_wish(self));
        let (commit, healed) = committed?;
        *durable = cut;
        self.core().set_durable(cut);
        self.scrubbing().note_healed(&healed);
        let metrics = self.metrics();
        metrics.sweep.record(sweep);
        metrics.fsync.record(commit.data_sync);
        metrics.fsync.record(commit.superblock_sync);
        metrics.checkpoint.record(since.elapsed());
        let healed_page_count = healed.len() as u64;
        told.unwrap_or_else(|panic| resume_unwind(panic));
        Ok(CheckpointStats { barrier, sweep, commit, healed_page_count, total: since.elapsed() })
    }

    /// Streams every page that changed since cut `durable` to `sink`, as of now; `at_cut` runs in the barrier just
    /// before the cut. Returns the cut. For consumers other than the page file.
    ///
    /// # Errors
    /// [`CheckpointError`]; the sink is then incomplete.
    pub fn stream(
        self: &Arc<Self>,
        at_cut: impl FnOnce() + Send + 'static,
        durable: Epoch,
        sink: Arc<dyn Sink>,
        progress: &Progress,
    ) -> Result<Epoch, CheckpointError> {
        self.snapshotter().prepare_stream(self.core(), &self.supply().used_ranges(), durable);
        let (begun, _) = self.at_barrier(move |pool| {
            at_cut();
            begin_stream(pool, durable, sink)
        })?;
        let begun = begun?;
        run_stream(self, &begun, progress).map(|()| begun.cut)
    }
}

fn frame_wish(pool: &Pool) -> FrameWish {
    pool.snapshotter().frame_wish(pool.allocated_pages())
}

/// In the barrier.
fn begin_stream(pool: &Pool, durable: Epoch, sink: Arc<dyn Sink>) -> Result<Begun, CheckpointError> {
    let ranges = pool.supply().used_ranges();
    let page_count = ranges.iter().map(|(start, end)| u64::from(end - start)).sum();
    let cut = pool.snapshotter().begin_stream(pool.core(), StreamPlan { ranges, durable, sink })?;
    Ok(Begun { cut, page_count })
}

fn run_stream(pool: &Pool, begun: &Begun, progress: &Progress) -> Result<(), CheckpointError> {
    progress.pages_total.store(begun.page_count, Ordering::Relaxed);
    let result = pool.snapshotter().run_stream(pool.core(), progress);
    pool.snapshotter().end_stream(pool.core());
    pool.supply().take_back_released();
    result
}

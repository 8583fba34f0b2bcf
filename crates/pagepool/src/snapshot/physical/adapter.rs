//! The [`Snapshotter`] around an algorithm of rows.
//!
//! The stream is the algorithm's: it hears of each first write of a page after a cut, takes the cuts, and puts the rows.
//! Views, and what they keep, are those of `epoch`. What is the pool's own stands here: which pages the stream needs, what is
//! free at the cut, and pages that are freed and used again meanwhile.
//!
//! ```text
//!   freed page that the stream needs:  in its place, KEPT ── the stream ends ──▶ a view sees it ? the view's : RELEASED
//! ```

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use stillframe_algorithms::{Algorithm, Change, CopyId, RowId};

use super::super::core::Core;
use super::super::epoch::EpochSnapshotter;
use super::super::frames::FrameWish;
use super::super::running::Running;
use super::super::seam::{Snapshotter, StreamPlan};
use super::super::sink::Progress;
use super::super::version::Version;
use super::ahead;
use super::copies::{Access, PageCopies, Who};
use super::image::PageImage;
use super::list::PoolAlgorithm;
use super::marks::{Mark, Marks};
use super::stream::Stream;
use super::wants::Places;
use crate::page::{touch_covered, Epoch, Side};
use crate::space::{Extent, MapError};
use crate::{CheckpointError, PageId, Reason, PAGE_SIZE};

/// Returns once each member of the barrier has been between two commands.
pub type WaitForTurns = Box<dyn Fn() + Send + Sync>;

/// What is said of a write: a guard does not know which bytes of its page will be written.
const ANY_BYTES: Change = Change::part(0..PAGE_SIZE);

/// Freed extents that the stream needed.
#[derive(Default)]
struct Freed {
    kept: Vec<Extent>,
    released: Vec<Extent>,
}

/// See the module.
pub struct Physical<A> {
    algorithm: A,
    copies: PageCopies,
    marks: Marks,
    views: EpochSnapshotter,
    stream: Running<Stream>,
    /// From the begin of a stream until everything of it has been cleared away.
    streaming: AtomicBool,
    /// The cut of the last stream that has begun, and of the last that has gone through.
    begun: AtomicU32,
    streamed: AtomicU32,
    freed: Mutex<Freed>,
    kept_pages: AtomicU64,
    peak_held_pages: AtomicU64,
    wait_for_turns: WaitForTurns,
}

impl<A: PoolAlgorithm> Physical<A> {
    /// For pages `0..page_count`, of which at most `row_limit` are ever used.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(
        page_count: u32,
        row_limit: u32,
        views: EpochSnapshotter,
        wait_for_turns: WaitForTurns,
    ) -> Result<Physical<A>, MapError> {
        Ok(Physical {
            algorithm: A::for_rows(row_limit),
            copies: PageCopies::new(page_count, row_limit, A::PLACES)?,
            marks: Marks::new(row_limit)?,
            views,
            stream: Running::default(),
            streaming: AtomicBool::new(false),
            begun: AtomicU32::new(0),
            streamed: AtomicU32::new(0),
            freed: Mutex::default(),
            kept_pages: AtomicU64::new(0),
            peak_held_pages: AtomicU64::new(0),
            wait_for_turns,
        })
    }

    fn access<'a>(&'a self, core: &'a Core, who: Who) -> Access<'a, A> {
        Access::new(&self.copies, core, who)
    }

    fn held_pages(&self, core: &Core) -> u64 {
        let views = core.frames.budget().held_pages();
        views + self.kept_pages.load(Ordering::Relaxed) + self.copies.held_pages(core)
    }

    fn note_peak(&self, core: &Core) {
        let held = self.held_pages(core);
        if held > self.peak_held_pages.load(Ordering::Relaxed) {
            self.peak_held_pages.fetch_max(held, Ordering::Relaxed);
        }
    }

    /// A page is going to be modified: on return its content is where the algorithm wants it to be.
    fn write(&self, core: &Core, page: PageId, row: RowId, who: Who) {
        let copy = self.algorithm.before_write(&self.access(core, who), row, ANY_BYTES);
        if A::PLACES.are_two() {
            let side = if copy == CopyId::D0 { Side::First } else { Side::Second };
            match who {
                Who::Newborn => core.pages.name(page, side),
                _ => core.pages.place(page, side),
            }
        }
    }

    const SEES_EACH_WRITE: bool = <A as Algorithm<Access<'_, A>>>::SEES_EACH_WRITE;

    /// A page has been modified.
    fn tell(&self, core: &Core, page: PageId, row: RowId, who: Who) {
        self.algorithm.after_write(&self.access(core, who), row, ANY_BYTES);
        core.pages.descriptor(page).epochs.set_told();
    }

    /// An image that the algorithm takes for complete is not the base of this stream: what has changed since that base is written
    /// as if it had just been modified. In the barrier.
    fn write_again(&self, core: &Core, plan: &StreamPlan) {
        for page in plan.ranges.iter().flat_map(|&(start, end)| (start..end).map(PageId)) {
            let descriptor = core.pages.descriptor(page);
            if descriptor.is_in_use() && descriptor.epochs.written() > plan.durable {
                // As its writer does, so that it moves nowhere meanwhile (R6).
                touch_covered(&descriptor.state);
                let (row, who) = (self.copies.rows.row(page), Who::Writer { is_needed: true });
                self.write(core, page, row, who);
                if Self::SEES_EACH_WRITE {
                    self.tell(core, page, row, who);
                }
            }
        }
    }

    /// Pages that were free at the cut, and may have been used again since.
    fn put_tombstones(&self, core: &Core, stream: &Stream) -> Result<(), CheckpointError> {
        for page in stream.ranges.iter().flat_map(|&(start, end)| (start..end).map(PageId)) {
            let freed = core.pages.descriptor(page).epochs.freed();
            let was_free = freed.is_some_and(|freed| stream.needs_tombstone(freed));
            let row = self.copies.rows.find(page);
            if was_free || row.is_some_and(|row| self.marks.get(row) == Mark::Tombstone) {
                stream.sink.free_page(page)?;
            }
        }
        Ok(())
    }

    /// Whether the stream has still to find the content of a page that has been freed, or the algorithm to copy it: what it copies
    /// beside writers has changed since the last stream began, so this one needs it.
    fn is_awaited(&self, core: &Core, stream: &Stream, page: PageId) -> bool {
        let row = self.copies.rows.find(page);
        row.is_some_and(|row| stream.needs_row(core.pages.descriptor(page), &self.marks, row))
    }
}

impl<A: PoolAlgorithm> Snapshotter for Physical<A> {
    fn prepare_stream(&self, core: &Core, ranges: &[(u32, u32)], durable: Epoch) {
        match A::PLACES {
            Places::Shadow => self.copies.populate_shadow(core, ranges, durable),
            Places::Two | Places::TwoKept => ahead::populate(core, A::PLACES, ranges, durable),
            Places::Updates => {}
        }
    }

    fn begin_stream(&self, core: &Core, plan: StreamPlan) -> Result<Epoch, CheckpointError> {
        if self.streaming.swap(true, Ordering::Acquire) {
            return Err(CheckpointError::InProgress);
        }
        let Some(cut) = core.cut() else {
            self.streaming.store(false, Ordering::Release);
            return Err(CheckpointError::EpochsExhausted);
        };
        self.peak_held_pages.store(self.held_pages(core), Ordering::Relaxed);
        // There is none later than the last that has begun.
        let last = Epoch(self.begun.swap(cut.0, Ordering::Relaxed));
        let plan = StreamPlan { durable: plan.durable.min(last), ..plan };
        self.copies.set_durable(plan.durable);
        let streamed = Epoch(self.streamed.load(Ordering::Relaxed));
        if <A as Algorithm<Access<'_, A>>>::IS_INCREMENTAL && plan.durable < streamed {
            self.write_again(core, &plan);
        }
        self.algorithm.cut(&self.access(core, Who::Saver));
        let StreamPlan { ranges, durable, sink } = plan;
        self.stream.begin(Stream { cut, durable, ranges, sink });
        self.note_peak(core);
        Ok(cut)
    }

    fn run_stream(&self, core: &Core, progress: &Progress) -> Result<(), CheckpointError> {
        let Some(stream) = self.stream.current() else { return Ok(()) };
        let row_count = self.copies.rows.row_count();
        let mut image = PageImage::new(core, &stream, &self.marks, progress, row_count);
        let result = self.algorithm.access(&self.access(core, Who::Saver), &mut image);
        self.note_peak(core);
        if let Err(error) = result {
            return Err(image.failure.unwrap_or(CheckpointError::Io((&*error.reason).into())));
        }
        self.streamed.store(stream.cut.0, Ordering::Relaxed);
        self.put_tombstones(core, &stream)?;
        let total = stream.ranges.iter().map(|(start, end)| u64::from(end - start)).sum();
        progress.pages_scanned.fetch_max(total, Ordering::Relaxed);
        Ok(())
    }

    fn end_stream(&self, core: &Core) {
        if self.stream.end().is_none() {
            return;
        }
        self.note_peak(core);
        self.marks.clear(self.copies.rows.row_count());
        self.copies.give_back(core, &self.wait_for_turns);
        let kept = std::mem::take(&mut self.freed.lock().kept);
        for extent in kept {
            self.kept_pages.fetch_sub(u64::from(extent.page_count), Ordering::Relaxed);
            if !self.views.keep_freed(core, extent) {
                self.freed.lock().released.push(extent);
            }
        }
        self.streaming.store(false, Ordering::Release);
    }

    fn begin_life(&self, core: &Core, page: PageId) {
        let row = self.copies.rows.row(page);
        self.write(core, page, row, Who::Newborn);
        if Self::SEES_EACH_WRITE {
            // It may never be written: what it has now is its content then.
            self.tell(core, page, row, Who::Newborn);
        }
    }

    fn sees_each_write(&self) -> bool {
        Self::SEES_EACH_WRITE
    }

    fn after_write(&self, core: &Core, page: PageId) {
        self.tell(core, page, self.copies.rows.row(page), Who::Writer { is_needed: true });
    }

    fn admit(&self, pages: Extent) -> bool {
        self.copies.rows.admit(pages)
    }

    fn before_first_write(&self, core: &Core, page: PageId) {
        self.views.before_first_write(core, page);
        let since = Instant::now();
        let row = self.copies.rows.row(page);
        // Until it has been written: what the stream alone needs is not cleared away meanwhile.
        let look = self.stream.look();
        let written = core.pages.descriptor(page).epochs.written();
        let is_needed = look.stream().is_some_and(|stream| stream.needs(written));
        if is_needed {
            self.marks.set(row, Mark::Needed);
        }
        self.write(core, page, row, Who::Writer { is_needed });
        if is_needed {
            core.metrics.capture.record(since.elapsed());
            self.note_peak(core);
        }
    }

    fn would_capture(&self, core: &Core, page: PageId) -> bool {
        let for_stream = || {
            let look = self.stream.look();
            let row = self.copies.rows.row(page);
            let is_unknown = self.marks.get(row) == Mark::Unknown;
            let written = core.pages.descriptor(page).epochs.written();
            is_unknown && look.stream().is_some_and(|stream| stream.needs(written))
        };
        self.views.would_capture(core, page) || for_stream()
    }

    fn keep_freed(&self, core: &Core, extent: Extent) -> bool {
        self.views.keep_absent(core, extent);
        // Until the extent is in its list: the end of the stream goes through the list after that.
        let look = self.stream.look();
        let is_awaited = |stream: &Stream| extent.pages().any(|page| self.is_awaited(core, stream, page));
        if look.stream().is_some_and(is_awaited) {
            self.kept_pages.fetch_add(u64::from(extent.page_count), Ordering::Relaxed);
            self.freed.lock().kept.push(extent);
            self.note_peak(core);
            return true;
        }
        drop(look);
        self.views.keep_freed(core, extent)
    }

    fn before_reuse(&self, core: &Core, page: PageId, freed: Epoch) {
        self.views.before_reuse(core, page, freed);
        let look = self.stream.look();
        if look.stream().is_some_and(|stream| stream.needs_tombstone(freed)) {
            self.marks.set(self.copies.rows.row(page), Mark::Tombstone);
        }
    }

    fn take_released(&self, core: &Core, limit: usize) -> Vec<Extent> {
        let mut released = {
            let released = &mut self.freed.lock().released;
            let keep = released.len().saturating_sub(limit);
            released.split_off(keep)
        };
        released.extend(self.views.take_released(core, limit - released.len()));
        released
    }

    fn takes_huge_pages(&self) -> bool {
        true
    }

    /// The algorithms know one kind of memory.
    fn takes_evictions(&self) -> bool {
        false
    }

    /// The copies have memory of their own; only views want frames.
    fn frame_wish(&self, data_pages: u64) -> FrameWish {
        FrameWish { stream: 0, ahead: 0, ..self.views.frame_wish(data_pages) }
    }

    fn held_bytes(&self, core: &Core) -> u64 {
        self.held_pages(core) * PAGE_SIZE as u64
    }

    fn peak_held_bytes(&self, core: &Core) -> u64 {
        let peak = self.peak_held_pages.load(Ordering::Relaxed) * PAGE_SIZE as u64;
        peak.max(self.views.peak_held_bytes(core))
    }

    fn begin_view(&self, core: &Core) -> Result<Epoch, CheckpointError> {
        self.views.begin_view(core)
    }

    fn end_view(&self, core: &Core, cut: Epoch) {
        self.views.end_view(core, cut);
    }

    fn locate<'c>(&self, core: &'c Core, cut: Epoch, page: PageId) -> Version<'c> {
        self.views.locate(core, cut, page)
    }

    fn before_free_of_damaged(&self, core: &Core, page: PageId, reason: &Reason) {
        self.views.before_free_of_damaged(core, page, reason);
    }

    fn relieve(&self, core: &Core, page_count: u32) {
        self.views.relieve(core, page_count);
    }
}

//! `epoch`, the default algorithm: the cut raises a number and copies nothing.
//!
//! A page version lives over `[w, f)`: `w` is the epoch of its first modification, `f` that of the modification or
//! the free that ended it. Cut *e* sees the versions with `w <= e < f`. A stream at cut *e* over the durable cut
//! *d* needs those with `d < w <= e`; sweep and writer claim the emission of a page by one bit.
//!
//! ```text
//!   page, seen by a stream:   UNCLAIMED ── writer captures: claim, copy, raise w, modify ──▶ CLAIMED (queued)
//!                                 └────── sweep: copy, check w, claim ─────────────────────▶ CLAIMED (emitted)
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use super::images::{Held, Images};
use super::{Extent, Progress, Sink, Snapshotter, Spill, StreamPlan};
use crate::core::{Core, Descriptor, Epoch};
use crate::frames::{Frame, FrameId};
use crate::memory::VirtualArray;
use crate::{CheckpointError, PageBytes, PageId, PoolError, PAGE_SIZE};

/// Pages written to the sink at once (1 MB).
pub(crate) const BATCH_PAGES: usize = 256;

/// A freed extent whose content a cut needs; whoever works on it takes it out of the list, so that nobody else
/// lets it go (invariant P3).
struct Kept {
    extent: Extent,
    /// Pages of the extent before this one need not be streamed any more.
    next: u32,
}

struct Stream {
    cut: Epoch,
    durable: Epoch,
    ranges: Vec<(u32, u32)>,
    sink: Arc<dyn Sink>,
    /// Before-images that wait to be written; they go ahead of the sweep.
    captured: Mutex<Vec<(PageId, FrameId)>>,
    /// Pages free at the cut that were used again before the sweep came to them.
    reused: Mutex<Vec<PageId>>,
    /// The first error of any thread: the checkpoint fails with it.
    failure: Mutex<Option<CheckpointError>>,
    failed: AtomicBool,
}

impl Stream {
    /// Whether content written in `written`, still in its place, is to be streamed.
    fn needs(&self, written: Epoch) -> bool {
        self.durable < written && written <= self.cut
    }

    /// The same for a page that may have been freed before the cut (then it is a tombstone).
    fn needs_content(&self, descriptor: &Descriptor) -> bool {
        self.needs(descriptor.written()) && descriptor.freed().is_none_or(|freed| freed > self.cut)
    }

    fn note(&self, result: Result<(), CheckpointError>) {
        if let Err(error) = result {
            self.failure.lock().get_or_insert(error);
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// See the module.
pub struct EpochSnapshotter {
    stream: RwLock<Option<Arc<Stream>>>,
    /// A bit a page: its emission to the running stream is claimed.
    claimed: VirtualArray<AtomicU64>,
    /// Cuts of the open views, ascending.
    views: RwLock<Vec<Epoch>>,
    view_count: AtomicU32,
    images: Images,
    spill: Arc<dyn Spill>,
    /// Freed extents that a cut still needs.
    quarantine: Mutex<VecDeque<Kept>>,
    quarantined_pages: AtomicU64,
    released: Mutex<Vec<Extent>>,
}

impl EpochSnapshotter {
    /// For pools of at most `page_count` pages.
    ///
    /// # Errors
    /// [`PoolError::Map`].
    pub fn new(page_count: u32, spill: Arc<dyn Spill>) -> Result<EpochSnapshotter, PoolError> {
        Ok(EpochSnapshotter {
            stream: RwLock::new(None),
            claimed: VirtualArray::new(page_count as usize / 64 + 1)?,
            views: RwLock::new(Vec::new()),
            view_count: AtomicU32::new(0),
            images: Images::new(),
            spill,
            quarantine: Mutex::default(),
            quarantined_pages: AtomicU64::new(0),
            released: Mutex::new(Vec::new()),
        })
    }

    /// UNCLAIMED → CLAIMED; false if somebody else has claimed the page.
    fn claim(&self, page: PageId) -> bool {
        let bit = 1u64 << (page.0 % 64);
        self.claimed.get(page.0 as usize / 64).fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    fn is_claimed(&self, page: PageId) -> bool {
        self.claimed.get(page.0 as usize / 64).load(Ordering::Acquire) & (1 << (page.0 % 64)) != 0
    }

    fn current_stream(&self) -> Option<Arc<Stream>> {
        self.stream.read().clone()
    }

    /// Whether a view sees the version that is still in the page's place.
    fn a_view_sees(&self, descriptor: &Descriptor) -> bool {
        let (written, freed) = (descriptor.written(), descriptor.freed());
        self.view_count.load(Ordering::Acquire) != 0
            && self.views.read().iter().any(|&cut| written <= cut && freed.is_none_or(|freed| cut < freed))
    }

    /// Whether a freed page's content must stay where it is.
    fn needs_in_place(&self, core: &Core, stream: Option<&Stream>, page: PageId) -> bool {
        let descriptor = core.descriptor(page);
        stream.is_some_and(|s| s.needs_content(descriptor) && !self.is_claimed(page))
            || self.a_view_sees(descriptor)
    }

    /// Saves the content of a page that its writer is about to change.
    fn capture(&self, core: &Core, page: PageId, stream: Option<&Stream>, for_view: bool) {
        let since = Instant::now();
        // SAFETY: P2: called under the page's exclusive latch.
        let content = unsafe { core.stable_bytes(page) };
        let written = core.descriptor(page).written();
        let superseded = core.epoch();
        let Some(mut frame) = core.frames.take() else {
            self.help(page, content, stream);
            if for_view {
                self.spill_image(page, content, written, superseded);
            }
            return core.metrics.help.record(since.elapsed());
        };
        frame.bytes_mut().copy_from_slice(content);
        let id = frame.into_id();
        match (stream, for_view) {
            (Some(stream), true) => {
                stream.captured.lock().push((page, core.frames.share(&id)));
                self.images.insert(page, written, superseded, Held::Frame(id));
            }
            (Some(stream), false) => stream.captured.lock().push((page, id)),
            (None, _) => self.images.insert(page, written, superseded, Held::Frame(id)),
        }
        core.metrics.capture.record(since.elapsed());
    }

    /// The budget is used up: the writer hands its page to the sink itself.
    fn help(&self, page: PageId, content: &PageBytes, stream: Option<&Stream>) {
        if let Some(stream) = stream {
            stream.note(stream.sink.write_pages(&[(page, content)]));
        }
    }

    /// The budget is used up: the before-image goes to the page file. If that fails the views that needed it do.
    fn spill_image(&self, page: PageId, content: &PageBytes, written: Epoch, superseded: Epoch) {
        let held = match self.spill.spill(content) {
            Ok(spilled) => Held::Spilled(spilled),
            Err(error) => Held::Lost(error),
        };
        self.images.insert(page, written, superseded, held);
    }

    /// Writes the before-images that wait, releasing their frames. Returns how many.
    fn write_captured(&self, core: &Core, stream: &Stream, progress: &Progress) -> usize {
        let mut total = 0;
        loop {
            let mut batch = {
                let mut captured = stream.captured.lock();
                let keep = captured.len().saturating_sub(BATCH_PAGES);
                captured.split_off(keep)
            };
            if batch.is_empty() {
                return total;
            }
            batch.sort_unstable_by_key(|(page, _)| *page);
            let frames: Vec<(PageId, Frame<'_>)> =
                batch.into_iter().map(|(page, id)| (page, core.frames.adopt(id))).collect();
            let pages: Vec<_> = frames.iter().map(|(page, frame)| (*page, frame.bytes())).collect();
            self.emit(stream, &pages, progress);
            total += pages.len();
        }
    }

    fn emit(&self, stream: &Stream, pages: &[(PageId, &PageBytes)], progress: &Progress) {
        if !pages.is_empty() && !stream.failed.load(Ordering::Acquire) {
            stream.note(stream.sink.write_pages(pages));
            progress.pages_written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        }
    }

    /// Streams freed extents straight from their place and lets go of what no cut needs any more.
    fn write_quarantined(&self, core: &Core, stream: Option<&Stream>, progress: &Progress) {
        let count = self.quarantine.lock().len();
        for _ in 0..count {
            let Some(mut kept) = self.quarantine.lock().pop_front() else { return };
            while let Some(stream) = stream.filter(|_| kept.next < kept.extent.page_count) {
                self.write_kept(core, stream, &mut kept, progress);
            }
            self.let_go_or_keep(core, stream, kept);
        }
    }

    /// Streams the next pages of an extent that the caller has taken out of the quarantine.
    fn write_kept(&self, core: &Core, stream: &Stream, kept: &mut Kept, progress: &Progress) {
        let end = (kept.next + BATCH_PAGES as u32).min(kept.extent.page_count);
        let pages: Vec<_> = (kept.next..end)
            .map(|index| PageId(kept.extent.start.0 + index))
            .filter(|&page| stream.needs_content(core.descriptor(page)) && self.claim(page))
            // SAFETY: P3: freed, and taken out of the quarantine by this thread alone.
            .map(|page| (page, unsafe { core.stable_bytes(page) }))
            .collect();
        self.emit(stream, &pages, progress);
        kept.next = end;
    }

    fn let_go_or_keep(&self, core: &Core, stream: Option<&Stream>, kept: Kept) {
        if kept.extent.pages().any(|page| self.needs_in_place(core, stream, page)) {
            self.quarantine.lock().push_back(kept);
        } else {
            self.quarantined_pages.fetch_sub(u64::from(kept.extent.page_count), Ordering::Relaxed);
            self.released.lock().push(kept.extent);
        }
    }

    /// One batch of the sweep over `[at, end)`; returns where it stopped.
    fn sweep(&self, core: &Core, stream: &Stream, mut at: u32, end: u32, progress: &Progress) -> u32 {
        let mut frames: Vec<(PageId, Frame<'_>)> = Vec::with_capacity(BATCH_PAGES);
        let mut spare: Option<Frame<'_>> = None;
        let staging = &core.staging;
        while at < end && frames.len() < BATCH_PAGES {
            let page = PageId(at);
            at += 1;
            let descriptor = core.descriptor(page);
            let freed = descriptor.freed();
            if let Some(freed) = freed.filter(|&freed| freed <= stream.cut) {
                if freed > stream.durable && self.claim(page) {
                    stream.note(stream.sink.free_page(page));
                }
                continue;
            }
            if !stream.needs(descriptor.written()) || self.is_claimed(page) {
                continue;
            }
            let Some(mut frame) = spare.take().or_else(|| staging.take()) else {
                unreachable!("F2: the one sweep finds its {BATCH_PAGES} staging frames free")
            };
            if core.copy_as_of(page, stream.cut, frame.bytes_mut()) && self.claim(page) {
                frames.push((page, frame));
            } else {
                spare = Some(frame);
            }
        }
        let pages: Vec<_> = frames.iter().map(|(page, frame)| (*page, frame.bytes())).collect();
        self.emit(stream, &pages, progress);
        at
    }

    fn write_reused(&self, stream: &Stream) {
        let reused = std::mem::take(&mut *stream.reused.lock());
        reused.into_iter().for_each(|page| stream.note(stream.sink.free_page(page)));
    }
}

impl Snapshotter for EpochSnapshotter {
    fn name(&self) -> &'static str {
        "epoch"
    }

    fn begin_stream(&self, core: &Core, plan: StreamPlan) -> Result<Epoch, CheckpointError> {
        let mut current = self.stream.write();
        if current.is_some() {
            return Err(CheckpointError::InProgress);
        }
        let cut = core.cut().ok_or(CheckpointError::EpochsExhausted)?;
        *current = Some(Arc::new(Stream {
            cut,
            durable: plan.durable,
            ranges: plan.ranges,
            sink: plan.sink,
            captured: Mutex::default(),
            reused: Mutex::default(),
            failure: Mutex::default(),
            failed: AtomicBool::new(false),
        }));
        Ok(cut)
    }

    fn run_stream(&self, core: &Core, progress: &Progress) -> Result<(), CheckpointError> {
        let Some(stream) = self.current_stream() else { return Ok(()) };
        for &(start, end) in &stream.ranges {
            let mut at = start;
            while at < end && !stream.failed.load(Ordering::Acquire) {
                self.write_captured(core, &stream, progress);
                self.write_quarantined(core, Some(&stream), progress);
                core.frames.top_up();
                let next = self.sweep(core, &stream, at, end, progress);
                progress.pages_scanned.fetch_add(u64::from(next - at), Ordering::Relaxed);
                at = next;
            }
        }
        // Every needed page is claimed now. A writer holds the read lock from its claim until its before-image is
        // queued: taking the write lock once waits for the last of them.
        drop(self.stream.write());
        self.write_captured(core, &stream, progress);
        self.write_quarantined(core, Some(&stream), progress);
        self.write_reused(&stream);
        let failure = stream.failure.lock().clone();
        failure.map_or(Ok(()), Err)
    }

    fn end_stream(&self, core: &Core) {
        let Some(stream) = self.stream.write().take() else { return };
        stream.captured.lock().drain(..).for_each(|(_, frame)| core.frames.release(frame));
        for &(start, end) in &stream.ranges {
            self.claimed.zero_range(start as usize / 64, end as usize / 64 + 1);
        }
        self.write_quarantined(core, None, &Progress::default());
    }

    fn begin_view(&self, core: &Core) -> Result<Epoch, CheckpointError> {
        let cut = core.cut().ok_or(CheckpointError::EpochsExhausted)?;
        self.views.write().push(cut);
        self.view_count.fetch_add(1, Ordering::Release);
        Ok(cut)
    }

    fn read_view(
        &self,
        core: &Core,
        cut: Epoch,
        page: PageId,
        into: &mut PageBytes,
    ) -> Result<(), CheckpointError> {
        loop {
            let descriptor = core.descriptor(page);
            if core.copy_as_of(page, cut, into) {
                return Ok(());
            }
            // The writer publishes its image before it raises the write epoch.
            if self.images.read(core, &*self.spill, page, cut, into)? {
                return Ok(());
            }
            assert!(descriptor.written() <= cut, "view {cut:?} reads {page:?}, which was born after it");
        }
    }

    fn end_view(&self, core: &Core, cut: Epoch) {
        let cuts = {
            let mut views = self.views.write();
            if let Some(at) = views.iter().position(|&c| c == cut) {
                views.remove(at);
                self.view_count.fetch_sub(1, Ordering::Release);
            }
            views.clone()
        };
        self.images.retain(core, &*self.spill, &cuts);
        let stream = self.current_stream();
        self.write_quarantined(core, stream.as_deref(), &Progress::default());
    }

    fn before_first_write(&self, core: &Core, page: PageId) {
        let descriptor = core.descriptor(page);
        let current = self.stream.read();
        let stream = current.as_deref().filter(|s| s.needs(descriptor.written()) && self.claim(page));
        let for_view = self.a_view_sees(descriptor);
        if stream.is_some() || for_view {
            self.capture(core, page, stream, for_view);
        }
    }

    fn keep_freed(&self, core: &Core, extent: Extent) -> bool {
        let stream = self.current_stream();
        if stream.is_none() && self.view_count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let needed = extent.pages().any(|page| self.needs_in_place(core, stream.as_deref(), page));
        if needed {
            self.quarantined_pages.fetch_add(u64::from(extent.page_count), Ordering::Relaxed);
            self.quarantine.lock().push_back(Kept { extent, next: 0 });
        }
        needed
    }

    fn before_reuse(&self, _core: &Core, page: PageId, freed: Epoch) {
        if let Some(stream) = self.stream.read().as_deref() {
            if stream.durable < freed && freed <= stream.cut && self.claim(page) {
                stream.reused.lock().push(page);
            }
        }
    }

    fn take_released(&self, _core: &Core) -> Vec<Extent> {
        std::mem::take(&mut *self.released.lock())
    }

    fn held_bytes(&self, core: &Core) -> u64 {
        let pages = core.frames.held_count() + self.quarantined_pages.load(Ordering::Relaxed);
        pages * PAGE_SIZE as u64
    }

    fn relieve(&self, core: &Core) {
        if self.held_bytes(core) < core.frames.frame_count() * PAGE_SIZE as u64 {
            return;
        }
        let since = Instant::now();
        let current = self.stream.read();
        let Some(stream) = current.as_deref() else { return };
        let Some(mut kept) = self.quarantine.lock().pop_front() else { return };
        if kept.next < kept.extent.page_count {
            self.write_kept(core, stream, &mut kept, &Progress::default());
            core.metrics.help.record(since.elapsed());
        }
        if kept.next < kept.extent.page_count {
            self.quarantine.lock().push_front(kept);
        } else {
            self.let_go_or_keep(core, Some(stream), kept);
        }
    }
}

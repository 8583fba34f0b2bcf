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
//!
//! The budget bounds before-images in frames and freed pages in quarantine together (S7). Where it is used up, a writer
//! hands its page to the sink or spills it itself, and whoever frees pages that a cut needs streams or spills as many.
//! Freeing takes no memory, though, so nobody writes more than 1 MB for that: what a huge object is above the budget is
//! paid off by the saver, and by those who allocate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::core::{Core, BATCH_PAGES};
use super::frames::{Frame, FrameId, FrameWish};
use super::images::{release, Held, Images};
use super::quarantine::{Kept, Quarantine};
use super::running::{Look, Running};
use super::seam::{Snapshotter, StreamPlan};
use super::sink::{Progress, Sink};
use super::spill::{Spill, SpilledImage};
use super::version::Version;
use super::views::Views;
use crate::page::{claim, is_claimed, wait_for_move, Descriptor, Epoch};
use crate::sched::{idly, set_urgent};
use crate::space::{Extent, MapError, VirtualArray};
use crate::{CheckpointError, PageBytes, PageId, Reason, PAGE_SIZE};

/// Where the budget is used up, the least that is paid off at once, and the most by one free.
const MIN_RELIEF_PAGES: u32 = 16;
const MAX_FREE_RELIEF_PAGES: u32 = 256;

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

/// What the sweep has of a page.
enum Swept<'c> {
    Copy(Frame<'c>),
    /// It lies in the page file as it is.
    Slot(SpilledImage),
}

fn lost(page: PageId) -> CheckpointError {
    CheckpointError::Io(format!("page {} is neither in memory nor in the page file", page.0).into())
}

impl Stream {
    /// Whether content written in `written`, still in its place, is to be streamed.
    fn needs(&self, written: Epoch) -> bool {
        self.durable < written && written <= self.cut
    }

    /// The same for a page that may have been freed before the cut (then it is a tombstone).
    fn needs_content(&self, descriptor: &Descriptor) -> bool {
        let epochs = &descriptor.epochs;
        self.needs(epochs.written()) && epochs.freed().is_none_or(|freed| freed > self.cut)
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
    stream: Running<Stream>,
    /// From the begin of a stream until everything of it has been cleared away.
    streaming: AtomicBool,
    /// A bit a page: its emission to the running stream is claimed.
    claimed: VirtualArray<AtomicU64>,
    views: Views,
    images: Images,
    spill: Arc<dyn Spill>,
    quarantine: Quarantine,
}

impl EpochSnapshotter {
    /// For pools of at most `page_count` pages.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(page_count: u32, spill: Arc<dyn Spill>) -> Result<EpochSnapshotter, MapError> {
        Ok(EpochSnapshotter {
            stream: Running::default(),
            streaming: AtomicBool::new(false),
            claimed: VirtualArray::new(page_count as usize / 64 + 1)?,
            views: Views::default(),
            images: Images::new(),
            spill,
            quarantine: Quarantine::default(),
        })
    }

    fn claim(&self, page: PageId) -> bool {
        claim(self.claimed.get(page.0 as usize / 64), page.0 % 64)
    }

    fn is_claimed(&self, page: PageId) -> bool {
        is_claimed(self.claimed.get(page.0 as usize / 64), page.0 % 64)
    }

    /// Saves the content of a page that its writer is about to change: for the stream if the writer has claimed it, and
    /// for views.
    fn capture(&self, core: &Core, page: PageId, look: Look<'_, Stream>, claimed: bool, for_view: bool) {
        let since = Instant::now();
        if let Some(image) = self.keep_clean(core, page) {
            self.capture_slot(core, page, image, look, claimed, for_view);
            return core.metrics.capture.record(since.elapsed());
        }
        // SAFETY: P2: called under the page's exclusive latch.
        let content = unsafe { core.pages.stable_bytes(page) };
        let interval = (core.pages.descriptor(page).epochs.written(), core.epoch());
        let Some(mut frame) = core.take_frame() else {
            let joined = if claimed { look.join() } else { None };
            drop(look);
            if let Some(stream) = joined {
                stream.note(stream.sink.write_pages(&[(page, content)]));
            }
            if for_view {
                let held = self.spill(content).unwrap_or_else(|error| Held::Lost(Box::new(error)));
                self.keep_image(core, page, interval, held);
            }
            return core.metrics.help.record(since.elapsed());
        };
        frame.bytes_mut().copy_from_slice(content);
        let id = frame.into_id();
        match (look.stream().filter(|_| claimed), for_view) {
            (Some(stream), true) => {
                stream.captured.lock().push((page, core.frames.share(&id)));
                self.keep_image(core, page, interval, Held::Frame(id));
            }
            (Some(stream), false) => stream.captured.lock().push((page, id)),
            (None, _) => self.keep_image(core, page, interval, Held::Frame(id)),
        }
        core.metrics.capture.record(since.elapsed());
    }

    /// Where the content of a page that nobody can modify now lies in the page file, if it is there as it is.
    fn keep_clean(&self, core: &Core, page: PageId) -> Option<SpilledImage> {
        core.is_clean(page).then(|| SpilledImage::keep(&self.spill, page)).flatten()
    }

    /// The same as a capture, of a page that lies in the page file as it is: nothing is copied.
    fn capture_slot(
        &self,
        core: &Core,
        page: PageId,
        image: SpilledImage,
        look: Look<'_, Stream>,
        claimed: bool,
        for_view: bool,
    ) {
        let joined = if claimed { look.join() } else { None };
        drop(look);
        if let Some(stream) = joined {
            stream.note(stream.sink.adopt_page(page, &image));
        }
        if for_view {
            let interval = (core.pages.descriptor(page).epochs.written(), core.epoch());
            self.keep_image(core, page, interval, Held::Spilled(Arc::new(image)));
        }
    }

    fn keep_image(&self, core: &Core, page: PageId, interval: (Epoch, Epoch), held: Held) {
        if let Err(unseen) = self.images.insert(&self.views, page, interval, held) {
            release(core, unseen);
        }
    }

    fn spill(&self, content: &PageBytes) -> Result<Held, CheckpointError> {
        SpilledImage::write(&self.spill, content).map(|image| Held::Spilled(Arc::new(image)))
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

    /// Hands a claimed page over that lies in the page file.
    fn emit_slot(&self, stream: &Stream, page: PageId, image: &SpilledImage, progress: &Progress) {
        if !stream.failed.load(Ordering::Acquire) {
            stream.note(stream.sink.adopt_page(page, image));
            progress.pages_written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what waits in frames and in quarantine, before-images first.
    fn write_waiting(&self, core: &Core, stream: &Stream, progress: &Progress) {
        loop {
            self.write_captured(core, stream, progress);
            if self.write_kept(core, stream, BATCH_PAGES as u32, progress) == 0 {
                return;
            }
        }
    }

    /// Streams up to `limit` pages of a freed extent straight from their place. Returns how many it has dealt with,
    /// 0 if no extent waits.
    fn write_kept(&self, core: &Core, stream: &Stream, limit: u32, progress: &Progress) -> u32 {
        let Some(mut kept) = self.quarantine.take_unswept() else { return 0 };
        let (extent, from) = (kept.extent, kept.next);
        kept.next = (from + limit).min(extent.page_count);
        let pages: Vec<_> = (from..kept.next)
            .map(|index| PageId(extent.start.0 + index))
            .filter(|&page| stream.needs_content(core.pages.descriptor(page)) && self.claim(page))
            // SAFETY: P3: freed, and taken out of the quarantine by this thread alone.
            .map(|page| (page, unsafe { core.pages.stable_bytes(page) }))
            .collect();
        self.emit(stream, &pages, progress);
        let done = kept.next;
        if done < extent.page_count {
            self.quarantine.put_back_unswept(kept);
        } else {
            self.quarantine.settle(core, &self.views, Kept { extent, next: 0 });
        }
        done - from
    }

    /// Spills up to `limit` pages of a freed extent that only views see. Returns how many it has dealt with, 0 if no
    /// extent waits or there is nowhere to spill to: then the pages stay where they are, budget or not.
    fn spill_kept(&self, core: &Core, limit: u32) -> u32 {
        let Some(mut kept) = self.quarantine.take_viewed() else { return 0 };
        let (extent, from) = (kept.extent, kept.next);
        let end = (from + limit).min(extent.page_count);
        while kept.next < end && self.spill_freed(core, PageId(extent.start.0 + kept.next)) {
            kept.next += 1;
        }
        let done = kept.next;
        self.quarantine.settle(core, &self.views, kept);
        done - from
    }

    /// Moves the content of a freed page that views see to the page file. False if that fails.
    fn spill_freed(&self, core: &Core, page: PageId) -> bool {
        let epochs = &core.pages.descriptor(page).epochs;
        let (written, Some(freed)) = (epochs.written(), epochs.freed()) else { return true };
        if !self.views.see(written, Some(freed)) {
            return true;
        }
        // SAFETY: P3: freed, and its extent taken out of the quarantine by this thread alone.
        let Ok(held) = self.spill(unsafe { core.pages.stable_bytes(page) }) else { return false };
        self.keep_image(core, page, (written, freed), held);
        // As a writer does (S2): from here on the views that saw the page find its image.
        epochs.set_written(freed);
        true
    }

    /// The budget is exceeded: deals with up to `page_count` freed pages (and a few more if that is little).
    fn pay(&self, core: &Core, stream: Option<&Stream>, page_count: u32) {
        let since = Instant::now();
        let wanted = page_count.max(MIN_RELIEF_PAGES);
        let mut left = wanted;
        while left > 0 && core.frames.budget().is_exceeded() {
            let limit = left.min(BATCH_PAGES as u32);
            let streamed = stream.map_or(0, |s| self.write_kept(core, s, limit, &Progress::default()));
            let done = if streamed == 0 { self.spill_kept(core, limit) } else { streamed };
            if done == 0 {
                break;
            }
            left = left.saturating_sub(done);
        }
        if left < wanted {
            core.metrics.help.record(since.elapsed());
        }
    }

    /// One batch of the sweep over `[at, end)`; returns where it stopped.
    fn sweep(&self, core: &Core, stream: &Stream, at: u32, end: u32, progress: &Progress) -> u32 {
        let mut frames: Vec<(PageId, Frame<'_>)> = Vec::with_capacity(BATCH_PAGES);
        let mut others: Vec<PageId> = Vec::with_capacity(BATCH_PAGES);
        let mut next = at;
        idly(|| self.copy_batch(core, stream, &mut next, end, &mut frames, &mut others));
        let mut spare: Option<Frame<'_>> = None;
        for page in others {
            let epochs = &core.pages.descriptor(page).epochs;
            if let Some(freed) = epochs.freed().filter(|&freed| freed <= stream.cut) {
                if freed > stream.durable && self.claim(page) {
                    stream.note(stream.sink.free_page(page));
                }
                continue;
            }
            match self.sweep_page(core, stream, page, &mut spare) {
                Some(Swept::Copy(frame)) => frames.push((page, frame)),
                Some(Swept::Slot(image)) => self.emit_slot(stream, page, &image, progress),
                None => {}
            }
        }
        frames.sort_unstable_by_key(|(page, _)| *page);
        let pages: Vec<_> = frames.iter().map(|(page, frame)| (*page, frame.bytes())).collect();
        self.emit(stream, &pages, progress);
        next
    }

    /// The part of a batch that locks nothing of which others have need (Y1): copies pages, and says which take more than that.
    fn copy_batch<'c>(
        &self,
        core: &'c Core,
        stream: &Stream,
        next: &mut u32,
        end: u32,
        frames: &mut Vec<(PageId, Frame<'c>)>,
        others: &mut Vec<PageId>,
    ) {
        let mut spare: Option<Frame<'c>> = None;
        while *next < end && frames.len() + others.len() < BATCH_PAGES {
            let page = PageId(*next);
            *next += 1;
            let epochs = &core.pages.descriptor(page).epochs;
            let is_freed = epochs.freed().is_some_and(|freed| freed <= stream.cut);
            if is_freed && epochs.freed() > Some(stream.durable) || !is_freed && core.is_clean(page) {
                others.push(page);
                continue;
            }
            if is_freed || !stream.needs(epochs.written()) || self.is_claimed(page) {
                continue;
            }
            let Some(mut frame) = spare.take().or_else(|| core.staging.take()) else {
                unreachable!("F2: the one sweep finds its {BATCH_PAGES} staging frames free")
            };
            if !core.copy_as_of(page, stream.cut, frame.bytes_mut()) {
                others.push(page);
                spare = Some(frame);
            } else if self.claim(page) {
                frames.push((page, frame));
            } else {
                spare = Some(frame);
            }
        }
    }

    /// Claims a page that the stream needs, with its content as of the cut.
    fn sweep_page<'c>(
        &self,
        core: &'c Core,
        stream: &Stream,
        page: PageId,
        spare: &mut Option<Frame<'c>>,
    ) -> Option<Swept<'c>> {
        let descriptor = core.pages.descriptor(page);
        while stream.needs(descriptor.epochs.written()) && !self.is_claimed(page) {
            if let Some(image) = self.keep_clean(core, page) {
                // Whoever has modified it meanwhile has claimed it before (S10).
                let is_as_of_cut = stream.needs(descriptor.epochs.written());
                return (is_as_of_cut && self.claim(page)).then_some(Swept::Slot(image));
            }
            let Some(mut frame) = spare.take().or_else(|| core.staging.take()) else {
                unreachable!("F2: the one sweep finds its {BATCH_PAGES} staging frames free")
            };
            if core.copy_as_of(page, stream.cut, frame.bytes_mut()) {
                if self.claim(page) {
                    return Some(Swept::Copy(frame));
                }
            } else {
                // It may be on its way out: what it leaves behind is clean.
                wait_for_move(&descriptor.state);
            }
            *spare = Some(frame);
        }
        None
    }

    /// Hands what cuts need of freed pages that were not in memory to the stream and to views, by their slots: so only
    /// content that is in memory is kept in its place, and the next checkpoint may take the pages off the map.
    pub(super) fn keep_absent(&self, core: &Core, extent: Extent) {
        let mut absent =
            extent.pages().filter(|&page| core.pages.descriptor(page).epochs.is_in_file()).peekable();
        if absent.peek().is_none() {
            return;
        }
        let joined = self.stream.look().join();
        if joined.is_none() && self.views.is_empty() {
            return;
        }
        for page in absent {
            let descriptor = core.pages.descriptor(page);
            let (written, Some(freed)) = (descriptor.epochs.written(), descriptor.epochs.freed()) else {
                continue;
            };
            let stream = joined.as_deref().filter(|s| s.needs_content(descriptor) && self.claim(page));
            let is_seen = self.views.see(written, Some(freed));
            if stream.is_none() && !is_seen {
                continue;
            }
            let image = SpilledImage::keep(&self.spill, page).ok_or_else(|| lost(page));
            if let Some(stream) = stream {
                let handed = image.as_ref().map_err(Clone::clone);
                stream.note(handed.and_then(|image| stream.sink.adopt_page(page, image)));
            }
            if is_seen {
                let held =
                    image.map_or_else(|error| Held::Lost(Box::new(error)), |i| Held::Spilled(Arc::new(i)));
                self.keep_image(core, page, (written, freed), held);
            }
            // As a writer does (S2): from here on the views that saw the page find its image.
            descriptor.epochs.set_written(freed);
        }
    }

    fn write_reused(&self, stream: &Stream) {
        let reused = std::mem::take(&mut *stream.reused.lock());
        reused.into_iter().for_each(|page| stream.note(stream.sink.free_page(page)));
    }
}

impl Snapshotter for EpochSnapshotter {
    fn begin_stream(&self, core: &Core, plan: StreamPlan) -> Result<Epoch, CheckpointError> {
        if self.streaming.swap(true, Ordering::Acquire) {
            return Err(CheckpointError::InProgress);
        }
        let Some(cut) = core.cut() else {
            self.streaming.store(false, Ordering::Release);
            return Err(CheckpointError::EpochsExhausted);
        };
        core.frames.budget().restart_peak();
        self.stream.begin(Stream {
            cut,
            durable: plan.durable,
            ranges: plan.ranges,
            sink: plan.sink,
            captured: Mutex::default(),
            reused: Mutex::default(),
            failure: Mutex::default(),
            failed: AtomicBool::new(false),
        });
        Ok(cut)
    }

    fn run_stream(&self, core: &Core, progress: &Progress) -> Result<(), CheckpointError> {
        let Some(stream) = self.stream.current() else { return Ok(()) };
        let data_pages = stream.ranges.iter().map(|(start, end)| u64::from(end - start)).sum();
        let wish = self.frame_wish(data_pages);
        for &(start, end) in &stream.ranges {
            let mut at = start;
            while at < end && !stream.failed.load(Ordering::Acquire) {
                // A writer that finds no room in the budget writes pages itself.
                set_urgent(core.frames.budget().is_short());
                self.write_waiting(core, &stream, progress);
                core.frames.top_up(&wish);
                let next = self.sweep(core, &stream, at, end, progress);
                progress.pages_scanned.fetch_add(u64::from(next - at), Ordering::Relaxed);
                at = next;
            }
        }
        set_urgent(false);
        // Every needed page is claimed now; whoever else has claimed one is about to queue or to write it.
        self.stream.close();
        self.write_waiting(core, &stream, progress);
        self.write_reused(&stream);
        let failure = stream.failure.lock().clone();
        failure.map_or(Ok(()), Err)
    }

    fn end_stream(&self, core: &Core) {
        let Some(stream) = self.stream.end() else { return };
        stream.captured.lock().drain(..).for_each(|(_, frame)| core.frames.release(frame));
        for &(start, end) in &stream.ranges {
            self.claimed.zero_range(start as usize / 64, end as usize / 64 + 1);
        }
        self.quarantine.settle_unswept(core, &self.views);
        self.streaming.store(false, Ordering::Release);
    }

    fn begin_view(&self, core: &Core) -> Result<Epoch, CheckpointError> {
        let cut = core.cut().ok_or(CheckpointError::EpochsExhausted)?;
        if self.views.is_empty() && !self.streaming.load(Ordering::Acquire) {
            core.frames.budget().restart_peak();
        }
        self.views.begin(cut);
        Ok(cut)
    }

    fn locate<'c>(&self, core: &'c Core, cut: Epoch, page: PageId) -> Version<'c> {
        if core.pages.descriptor(page).epochs.written() <= cut {
            return Version::InPlace;
        }
        // The writer published its image before it raised the write epoch.
        let image = self.images.find(core, page, cut);
        image.unwrap_or_else(|| {
            let text = format!("page {} was not in use at the cut: what refers to it is damaged", page.0);
            Version::Lost(Box::new(CheckpointError::Io(text.into())))
        })
    }

    fn takes_huge_pages(&self) -> bool {
        true
    }

    fn takes_evictions(&self) -> bool {
        true
    }

    fn frame_wish(&self, data_pages: u64) -> FrameWish {
        FrameWish::for_before_images(data_pages)
    }

    fn end_view(&self, core: &Core, cut: Epoch) {
        self.views.end(cut);
        self.images.retain_seen(core, &self.views);
        self.quarantine.settle_viewed(core, &self.views);
    }

    fn before_first_write(&self, core: &Core, page: PageId) {
        let descriptor = core.pages.descriptor(page);
        let look = self.stream.look();
        let claimed = look.stream().is_some_and(|s| s.needs(descriptor.epochs.written()) && self.claim(page));
        let for_view = self.views.see_in_place([descriptor].into_iter());
        if claimed || for_view {
            self.capture(core, page, look, claimed, for_view);
        }
    }

    fn would_capture(&self, core: &Core, page: PageId) -> bool {
        let descriptor = core.pages.descriptor(page);
        let look = self.stream.look();
        let for_stream =
            look.stream().is_some_and(|s| s.needs(descriptor.epochs.written()) && !self.is_claimed(page));
        for_stream || self.views.see_in_place([descriptor].into_iter())
    }

    fn before_free_of_damaged(&self, core: &Core, page: PageId, reason: &Reason) {
        let epochs = &core.pages.descriptor(page).epochs;
        let lost = Held::Lost(Box::new(CheckpointError::Io(reason.clone())));
        self.keep_image(core, page, (epochs.written(), core.epoch()), lost);
        // As a writer does (S2). Nobody else raises it: the page is absent (S9).
        epochs.set_written(core.epoch());
    }

    fn keep_freed(&self, core: &Core, extent: Extent) -> bool {
        self.keep_absent(core, extent);
        // Until the extent is in its list: the end of the stream goes through the list after that.
        let look = self.stream.look();
        let unclaimed = |stream: &Stream, page| {
            stream.needs_content(core.pages.descriptor(page)) && !self.is_claimed(page)
        };
        if look.stream().is_some_and(|stream| extent.pages().any(|page| unclaimed(stream, page))) {
            self.quarantine.keep_for_stream(core, extent);
        } else if !self.quarantine.keep_for_views(core, &self.views, extent) {
            return false;
        }
        drop(look);
        self.relieve(core, extent.page_count.min(MAX_FREE_RELIEF_PAGES));
        core.frames.budget().note_peak();
        true
    }

    fn before_reuse(&self, _core: &Core, page: PageId, freed: Epoch) {
        if let Some(stream) = self.stream.look().stream() {
            if stream.durable < freed && freed <= stream.cut && self.claim(page) {
                stream.reused.lock().push(page);
            }
        }
    }

    fn take_released(&self, _core: &Core, limit: usize) -> Vec<Extent> {
        self.quarantine.take_released(limit)
    }

    fn held_bytes(&self, core: &Core) -> u64 {
        core.frames.budget().held_pages() * PAGE_SIZE as u64
    }

    fn peak_held_bytes(&self, core: &Core) -> u64 {
        core.frames.budget().peak_pages() * PAGE_SIZE as u64
    }

    fn relieve(&self, core: &Core, page_count: u32) {
        if core.frames.budget().is_exceeded() {
            let joined = self.stream.look().join();
            self.pay(core, joined.as_deref(), page_count);
        }
    }
}

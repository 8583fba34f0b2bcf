//! What the pool and its snapshot algorithms share: the pages, the epoch, spare frames.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::frames::{Frame, FramePool};
use crate::metrics::PoolMetrics;
use crate::page::{Epoch, PageTable};
use crate::space::MapError;
use crate::{PageBytes, PageId, PAGE_SIZE};

/// Pages written to a sink at once (1 MB).
pub const BATCH_PAGES: usize = 256;

/// See the module.
pub struct Core {
    pub pages: PageTable,
    /// Whether guards tell what they have modified.
    pub tells_writes: bool,
    epoch: AtomicU32,
    /// The cut of the last durable checkpoint.
    durable: AtomicU32,
    /// Whether the barrier's action runs, and with it nobody else.
    is_cutting: AtomicBool,
    standstill_count: AtomicU64,
    pub frames: FramePool,
    /// Frames of the sweep, apart from the writers' (invariant F2: it always finds its batch).
    pub staging: FramePool,
    pub metrics: PoolMetrics,
}

/// Ends [`Core::cutting`].
struct EndOfCut<'c>(&'c Core);

impl Drop for EndOfCut<'_> {
    fn drop(&mut self) {
        self.0.is_cutting.store(false, Ordering::Relaxed);
        self.0.standstill_count.fetch_add(1, Ordering::Release);
    }
}

impl Core {
    /// # Errors
    /// [`MapError`].
    pub fn new(pages: PageTable, snapshot_bytes: u64, tells_writes: bool) -> Result<Core, MapError> {
        Ok(Core {
            pages,
            tells_writes,
            epoch: AtomicU32::new(1),
            durable: AtomicU32::new(0),
            is_cutting: AtomicBool::new(false),
            standstill_count: AtomicU64::new(0),
            frames: FramePool::new(snapshot_bytes)?,
            staging: FramePool::new(((BATCH_PAGES + 1) * PAGE_SIZE) as u64)?,
            metrics: PoolMetrics::default(),
        })
    }

    #[inline(always)]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// Begins the next epoch; runs in the barrier. Returns the cut, or `None` if epochs are used up.
    pub fn cut(&self) -> Option<Epoch> {
        let cut = self.epoch();
        let next = Epoch(cut.0 + 1);
        if next == Epoch::LAST {
            return None;
        }
        self.epoch.store(next.0, Ordering::SeqCst);
        Some(cut)
    }

    /// The cut of the last durable checkpoint.
    pub fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::Acquire))
    }

    /// Everything that was last written at or before `cut` is in the page file from now on.
    pub fn set_durable(&self, cut: Epoch) {
        self.durable.store(cut.0, Ordering::Release);
    }

    /// Whether the content of a page is in the page file as it is: in memory too, or not.
    pub fn is_clean(&self, page: PageId) -> bool {
        self.pages.descriptor(page).epochs.is_clean(self.durable())
    }

    /// Copies a page's content, wherever it lies in memory, if it was last written at or before `cut`. False if it has been
    /// written since, or is not in memory; then it is in the page file, or on its way there.
    pub fn copy_as_of(&self, page: PageId, cut: Epoch, into: &mut PageBytes) -> bool {
        let epochs = &self.pages.descriptor(page).epochs;
        // What is neither in the page file nor in use was in memory when it was freed, and stays there.
        let is_kept = || epochs.freed().is_some() && !epochs.is_in_file() && !self.is_clean(page);
        self.pages.copy_as_of(page, cut, into) || is_kept() && self.pages.copy_kept_as_of(page, cut, into)
    }

    /// Runs the barrier's action.
    pub fn cutting<R>(&self, action: impl FnOnce() -> R) -> R {
        self.is_cutting.store(true, Ordering::Relaxed);
        // Also where the action panics.
        let _end = EndOfCut(self);
        action()
    }

    /// How often the barrier's action has run. Whoever runs as a member and reads the number knows that the members have
    /// all been between two commands since, once it is higher.
    pub fn standstill_count(&self) -> u64 {
        self.standstill_count.load(Ordering::Acquire)
    }

    /// Takes a frame for a before-image; `None` when the budget is used up. In the barrier nobody waits for the disk:
    /// what is written there finds a frame beyond the budget.
    pub fn take_frame(&self) -> Option<Frame<'_>> {
        let beyond =
            || self.is_cutting.load(Ordering::Relaxed).then(|| self.frames.take_reserved()).flatten();
        self.frames.take().or_else(beyond)
    }
}

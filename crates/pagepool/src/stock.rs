//! The stock of populated pages: a thread that touches memory ahead of the allocator, so that no writer does, and that
//! gives the memory of huge objects back, so that no worker does (60 ms for 512 MB).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::core::Core;
use crate::memory::HUGE_PAGE_SIZE;
use crate::snapshot::Extent;
use crate::{PageId, PoolError, PAGE_SIZE};

/// Pages kept populated ahead of the small zone's end of use (8 MB).
const STOCK_PAGES: u32 = 2048;
const STEP_PAGES: u32 = (HUGE_PAGE_SIZE / PAGE_SIZE) as u32;

struct Shared {
    /// End of use of the small zone.
    used_end: AtomicU32,
    /// Pages before this one are populated (or were in use before the pool was opened).
    populated_end: AtomicU32,
    /// Extents whose memory is to be given back: they belong to the thread (M2).
    to_discard: Mutex<Vec<Extent>>,
    /// Those of which it has been.
    discarded: Mutex<Vec<Extent>>,
    /// Held while an extent is in neither list.
    discarding: Mutex<()>,
    stop: AtomicBool,
}

impl Shared {
    /// Gives the memory of one extent back; false if there is none to do.
    fn discard_one(&self, core: &Core) -> bool {
        let _in_neither = self.discarding.lock();
        let Some(extent) = self.to_discard.lock().pop() else { return false };
        core.give_back(extent);
        self.discarded.lock().push(extent);
        true
    }
}

/// The thread and what it is told.
pub struct Stock {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Stock {
    /// # Errors
    /// [`PoolError::Thread`].
    pub fn start(core: Arc<Core>) -> Result<Stock, PoolError> {
        let shared = Arc::new(Shared {
            used_end: AtomicU32::new(0),
            populated_end: AtomicU32::new(0),
            to_discard: Mutex::default(),
            discarded: Mutex::default(),
            discarding: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("sf-stock".into())
            .spawn(move || replenish(&core, &for_thread))
            .map_err(PoolError::Thread)?;
        Ok(Stock { shared, thread: Some(thread) })
    }

    /// Tells how far the ids are in use; wakes the thread when the stock runs low.
    pub fn note_used(&self, used_end: u32) {
        if self.shared.used_end.swap(used_end, Ordering::Relaxed) == used_end {
            return;
        }
        if used_end + STOCK_PAGES / 2 > self.shared.populated_end.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Takes over a freed extent; it comes back through [`Stock::take_discarded`].
    pub fn discard_later(&self, extent: Extent) {
        self.shared.to_discard.lock().push(extent);
        self.wake();
    }

    /// Extents whose memory has been given back.
    pub fn take_discarded(&self) -> Vec<Extent> {
        std::mem::take(&mut *self.shared.discarded.lock())
    }

    /// Gives everything back now, on this thread.
    pub fn discard_all(&self, core: &Core) {
        while self.shared.discard_one(core) {}
    }
}

fn replenish(core: &Core, shared: &Shared) {
    let page_limit = (core.memory().byte_len() / PAGE_SIZE) as u32;
    while !shared.stop.load(Ordering::Acquire) {
        if shared.discard_one(core) {
            continue;
        }
        let used_end = shared.used_end.load(Ordering::Relaxed);
        let populated = shared.populated_end.load(Ordering::Relaxed).max(used_end / STEP_PAGES * STEP_PAGES);
        let target = used_end.saturating_add(STOCK_PAGES).min(page_limit);
        if used_end == 0 || populated >= target {
            std::thread::park();
            continue;
        }
        let count = STEP_PAGES.min(page_limit - populated);
        core.populate(PageId(populated), count);
        shared.populated_end.store(populated + count, Ordering::Relaxed);
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // The thread holds no lock and cannot panic; a failed join leaves nothing to clean up.
            let _ = thread.join();
        }
    }
}

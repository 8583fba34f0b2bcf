//! A large value on its way out: its object stays as it is until the last byte has gone, whatever happens to its key.
//!
//! ```text
//!            pin                         no key refers to it any more
//!   (none) ───────▶ PINNED, count of readers ─────────────────────▶ PINNED, UNUSED
//!                     │ the last reader is done                        │ the last reader is done
//!                     └───────────▶ (none)                             └───────────▶ garbage
//! ```
//! A key is pinned under the shared latch of its leaf and written under the exclusive one: who writes sees every pin. It
//! leaves the object alone and makes another. To a cut, what is UNUSED is garbage.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::PageId;

use super::blob::{Blob, Place};
use super::discards::PAGE_ENTRIES;
use super::garbage::Garbage;
use crate::error::OpError;
use crate::pages::Pages;
use crate::stop::retry;

/// Objects that may be pinned at a time: with those on their way in they fit a page of a catalog.
const PINNED_MAX: usize = PAGE_ENTRIES / 2;
/// Shorter values are copied sooner than read in parts.
pub const SENDING_MIN_BYTES: u64 = 256 * 1024;

#[derive(Default)]
struct Pin {
    reader_count: u32,
    /// The object's pages, once no key refers to it.
    unused_pages: Option<u32>,
}

/// Which objects are pinned.
pub(crate) struct Pins {
    pinned: Mutex<BTreeMap<PageId, Pin>>,
    /// How many that are: writers need not ask while there is none.
    count: AtomicUsize,
    garbage: Arc<Garbage>,
}

impl Pins {
    pub fn new(garbage: Arc<Garbage>) -> Arc<Pins> {
        Arc::new(Pins { pinned: Mutex::default(), count: AtomicUsize::new(0), garbage })
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether an object must stay as it is. The caller holds the leaf that refers to it, exclusively.
    pub fn has(&self, blob: &Blob) -> bool {
        !self.is_empty() && self.pinned.lock().contains_key(&blob.pid)
    }

    /// (none) → PINNED. False if too many are.
    fn pin(&self, pid: PageId) -> bool {
        let mut pinned = self.pinned.lock();
        if pinned.len() >= PINNED_MAX && !pinned.contains_key(&pid) {
            return false;
        }
        pinned.entry(pid).or_default().reader_count += 1;
        self.count.store(pinned.len(), Ordering::Release);
        true
    }

    /// PINNED → PINNED, UNUSED. False if the object is not pinned: then it can be freed.
    pub fn keep_unused(&self, blob: &Blob) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut pinned = self.pinned.lock();
        let (Some(pin), Place::Object { page_count }) = (pinned.get_mut(&blob.pid), blob.place) else {
            return false;
        };
        pin.unused_pages = Some(page_count);
        self.garbage.hold(blob.pid, page_count);
        true
    }

    fn unpin(&self, pid: PageId) {
        let mut pinned = self.pinned.lock();
        let Some(pin) = pinned.get_mut(&pid) else { return };
        pin.reader_count -= 1;
        if pin.reader_count > 0 {
            return;
        }
        if let Some(page_count) = pin.unused_pages {
            self.garbage.release(pid, Some(Place::Object { page_count }));
        }
        pinned.remove(&pid);
        self.count.store(pinned.len(), Ordering::Release);
    }
}

/// A value that is being read in parts; see the module. It lets go of it when it is dropped.
pub struct Sending {
    pages: Arc<Pages>,
    pins: Arc<Pins>,
    pid: PageId,
    len_bytes: u32,
}

impl Sending {
    /// Pins the object of a value, if it has one of its own and that is worth it. The caller holds the leaf that refers
    /// to it, and all its pages are in memory.
    pub(super) fn begin(pages: &Arc<Pages>, pins: &Arc<Pins>, blob: &Blob) -> Option<Sending> {
        let is_object = matches!(blob.place, Place::Object { .. });
        if !is_object || u64::from(blob.len_bytes) < SENDING_MIN_BYTES || !pins.pin(blob.pid) {
            return None;
        }
        Some(Sending { pages: pages.clone(), pins: pins.clone(), pid: blob.pid, len_bytes: blob.len_bytes })
    }

    pub fn len_bytes(&self) -> u64 {
        u64::from(self.len_bytes)
    }

    /// Gives `f` up to `most_bytes` of the value from byte `start` on, in the parts that they have in memory: at most one a
    /// page. For a worker's thread, between two of its looks at the barrier.
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    pub fn with_parts<R>(
        &self,
        start: u64,
        most_bytes: usize,
        f: impl FnOnce(&[IoSlice<'_>]) -> R,
    ) -> Result<R, OpError> {
        let guard = retry(|| Ok(self.pages.pool.shared(self.pid)?))?;
        let len = self.len_bytes().saturating_sub(start).min(most_bytes as u64) as usize;
        let parts = retry(|| Ok(guard.object_parts(start, len)?))?;
        Ok(f(&parts))
    }
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sending({} bytes)", self.len_bytes)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.pins.unpin(self.pid);
    }
}

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
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::blob::{Blob, BlobPlace};
use super::bytes::{is_far, past_memory};
use super::discards::PAGE_ENTRIES;
use super::garbage::Garbage;
use super::reach::{
    add_missing, latch_with, page_at, pages_of, HEAD_BYTES, SENDING_MIN_BYTES, UNSEEN_MIN_BYTES,
};
use crate::error::{Fault, OpError};
use crate::pages::Pages;
use crate::stop::{retry, Follow, Stop};

/// Objects that may be pinned at a time: with those on their way in they fit a page of a catalog.
const PINNED_MAX: usize = PAGE_ENTRIES / 2;
/// Pages that a reader brings in at once (1 MB), and the part of memory that those of all readers take.
const WINDOW_PAGES_MAX: u64 = 256;
const WINDOWS_PART: u64 = 8;

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
    /// How many readers there are.
    reader_count: AtomicU64,
    garbage: Arc<Garbage>,
}

impl Pins {
    pub fn new(garbage: Arc<Garbage>) -> Arc<Pins> {
        Arc::new(Pins {
            pinned: Mutex::default(),
            count: AtomicUsize::new(0),
            reader_count: AtomicU64::new(0),
            garbage,
        })
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
        self.reader_count.fetch_add(1, Ordering::Relaxed);
        self.count.store(pinned.len(), Ordering::Release);
        true
    }

    /// PINNED → PINNED, UNUSED. False if the object is not pinned: then it can be freed.
    pub fn keep_unused(&self, blob: &Blob) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut pinned = self.pinned.lock();
        let (Some(pin), BlobPlace::Object { page_count }) = (pinned.get_mut(&blob.pid), blob.place) else {
            return false;
        };
        pin.unused_pages = Some(page_count);
        self.garbage.hold(blob.pid, page_count);
        true
    }

    /// At least 1.
    fn reader_count(&self) -> u64 {
        self.reader_count.load(Ordering::Relaxed).max(1)
    }

    fn unpin(&self, pid: PageId) {
        let mut pinned = self.pinned.lock();
        let Some(pin) = pinned.get_mut(&pid) else { return };
        pin.reader_count -= 1;
        self.reader_count.fetch_sub(1, Ordering::Relaxed);
        if pin.reader_count > 0 {
            return;
        }
        if let Some(page_count) = pin.unused_pages {
            self.garbage.release(pid, Some(BlobPlace::Object { page_count }));
        }
        pinned.remove(&pid);
        self.count.store(pinned.len(), Ordering::Release);
    }
}

/// A value, or a part of one, that is being read in parts; see the module. It lets go of it when it is dropped.
pub struct Sending {
    pages: Arc<Pages>,
    pins: Arc<Pins>,
    blob: Blob,
    /// The bytes of the value that are read.
    bytes: Range<u64>,
    /// The first of them, once somebody has asked.
    head: OnceLock<Vec<u8>>,
}

impl Sending {
    /// Pins the object of a value, if it has one of its own and that is worth it. The caller holds the leaf that refers
    /// to it.
    ///
    /// # Errors
    /// Pages are missing of so few bytes that it is not worth beginning without them, or one is known to be damaged.
    pub(super) fn begin(
        pages: &Arc<Pages>,
        pins: &Arc<Pins>,
        blob: &Blob,
        bytes: Range<u64>,
    ) -> Result<Option<Sending>, Stop> {
        let bytes = bytes.start..bytes.end.min(u64::from(blob.len_bytes));
        let is_object = matches!(blob.place, BlobPlace::Object { .. });
        if !is_object || bytes.start.saturating_add(SENDING_MIN_BYTES) > bytes.end {
            return Ok(None);
        }
        if !pages.all_resident() {
            let is_short = bytes.end - bytes.start < UNSEEN_MIN_BYTES;
            match latch_with(pages, blob, bytes.clone()) {
                Err(Stop::Missing(_) | Stop::LargerThanMemory { .. }) if !is_short => {}
                guard => drop(guard?),
            }
        }
        let sending = || Sending::of(pages, pins, blob, bytes.clone());
        Ok(pins.pin(blob.pid).then(sending))
    }

    /// The object is pinned.
    fn of(pages: &Arc<Pages>, pins: &Arc<Pins>, blob: &Blob, bytes: Range<u64>) -> Sending {
        Sending { pages: pages.clone(), pins: pins.clone(), blob: *blob, bytes, head: OnceLock::new() }
    }

    /// The same of a whole element, whatever is missing of it; `None` also if it is short.
    pub(super) fn begin_unseen(pages: &Arc<Pages>, pins: &Arc<Pins>, blob: &Blob) -> Option<Sending> {
        let sending = || Sending::of(pages, pins, blob, 0..u64::from(blob.len_bytes));
        (is_far(blob) && pins.pin(blob.pid)).then(sending)
    }

    pub(crate) fn blob(&self) -> Blob {
        self.blob
    }

    /// The same for one more reader, of the whole value; the key is locked. `None` as of [`Sending::begin_unseen`].
    pub(super) fn hold(&self) -> Option<Sending> {
        let is_whole = self.len_bytes() == self.value_bytes();
        is_whole.then(|| Sending::begin_unseen(&self.pages, &self.pins, &self.blob)).flatten()
    }

    pub(super) fn is_of(&self, pages: &Arc<Pages>) -> bool {
        Arc::ptr_eq(&self.pages, pages)
    }

    /// Of the bytes that are read, those from `start` on, `most_bytes` at most, by their places in the value.
    fn part(&self, start: u64, most_bytes: usize) -> Range<u64> {
        let start = start.min(self.len_bytes());
        let len = (self.len_bytes() - start).min(most_bytes as u64);
        self.bytes.start + start..self.bytes.start + start + len
    }

    /// Bytes of the whole value.
    pub fn value_bytes(&self) -> u64 {
        u64::from(self.blob.len_bytes)
    }

    /// Bytes that are read.
    pub fn len_bytes(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Gives `f` up to `most_bytes` from byte `start` on, as far as they are in memory, in the parts that they have there: at
    /// most one a page. For a worker's thread, between two of its looks at the barrier.
    ///
    /// # Errors
    /// [`OpError::Fault`] with pages from there on, if that byte is not in memory. [`OpError::Damaged`].
    pub fn with_parts<R>(
        &self,
        start: u64,
        most_bytes: usize,
        f: impl FnOnce(&[IoSlice<'_>]) -> R,
    ) -> Result<R, OpError> {
        let Range { start, end } = self.part(start, most_bytes);
        if start == end {
            return Ok(f(&[]));
        }
        let mut f = Some(f);
        let given = retry(|| {
            let there = self.end_of_present(start, end);
            if there == start {
                // This says why, unless it has come just now.
                drop(latch_with(&self.pages, &self.blob, self.window(start))?);
                return Err(Stop::Contended);
            }
            let guard = self.pages.pool.follow_shared(self.blob.pid)?;
            let parts = guard.object_parts(start, (there - start) as usize)?;
            Ok(f.take().map(|f| f(&parts)))
        });
        given?.ok_or_else(|| OpError::Damaged("what was read in parts was read twice".into()))
    }

    /// Gives `f` up to `most_bytes` from byte `start` on, page by page, whether they are in memory or not: nothing is brought in,
    /// and this waits for the device. For who goes over a value in one step that others must not come between. How many bytes.
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    pub fn with_copies(
        &self,
        start: u64,
        most_bytes: usize,
        mut f: impl FnMut(&[u8]),
    ) -> Result<u64, OpError> {
        let Range { start, end } = self.part(start, most_bytes);
        let mut given = 0;
        retry(|| {
            // What has been given is not given again.
            past_memory(&self.pages.pool, &self.blob, start + given..end, |bytes| {
                given += bytes.len() as u64;
                f(bytes);
                true
            })
        })?;
        Ok(end - start)
    }

    /// The first bytes that are read, up to [`HEAD_BYTES`].
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    pub(crate) fn head(&self) -> Result<&[u8], OpError> {
        if self.head.get().is_none() {
            let mut head = Vec::new();
            self.with_copies(0, HEAD_BYTES, |bytes| head.extend_from_slice(bytes))?;
            self.head.get_or_init(|| head);
        }
        Ok(self.head.get().map_or(&[], |head| &head[..]))
    }

    /// Gives all that is read to `f`, part by part, past memory.
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    pub fn for_each(&self, f: impl FnMut(&[u8])) -> Result<(), OpError> {
        let most = usize::try_from(self.len_bytes()).unwrap_or(usize::MAX);
        self.with_copies(0, most, f).map(drop)
    }

    /// Up to where the bytes from `start` on are in memory.
    fn end_of_present(&self, start: u64, end: u64) -> u64 {
        let is_there = |index: &u32| self.pages.pool.is_resident(page_at(&self.blob, *index));
        let mut indices = pages_of(&self.blob, start..end);
        match indices.find(|index| !is_there(index)) {
            Some(missing) => (u64::from(missing) * PAGE_SIZE as u64).max(start),
            None => end,
        }
    }

    /// The bytes from `start` on that are worth bringing in together. What is brought in for all readers together is a
    /// small part of memory, so that nobody's pages go before he has read them.
    fn window(&self, start: u64) -> Range<u64> {
        let share = self.pages.pool.room().limit_pages().map_or(u64::MAX, |pages| pages / WINDOWS_PART);
        let pages = (share / self.pins.reader_count()).clamp(1, WINDOW_PAGES_MAX);
        let page_bytes = PAGE_SIZE as u64;
        start..((start / page_bytes + pages) * page_bytes).min(self.bytes.end)
    }

    /// What is missing a little ahead of byte `start`, to be brought in while what is there is read.
    pub fn ahead(&self, start: u64) -> Option<Fault> {
        if self.pages.all_resident() {
            return None;
        }
        let first = self.window(self.part(start, 0).start);
        let next = first.start + (first.end - first.start) / 2;
        if next >= self.bytes.end
            || !self.pages.pool.residency().is_missing(page_at(&self.blob, (next / PAGE_SIZE as u64) as u32))
        {
            return None;
        }
        let mut missing = Vec::new();
        add_missing(&self.pages.pool, &self.blob, pages_of(&self.blob, self.window(next)), &mut missing);
        Some(Fault::of(missing))
    }
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sending({} bytes)", self.len_bytes())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.pins.unpin(self.blob.pid);
    }
}

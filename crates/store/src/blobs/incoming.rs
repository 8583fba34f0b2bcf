//! A large value on its way in: an object that is filled as its bytes come, page by page, before any key refers to it.
//!
//! ```text
//!            begin                       a SET refers to it
//!   (none) ─────────▶ ARRIVING ─────────────────────────────▶ part of the data
//!                        │  ▲ bytes come
//!                        └──┘
//!                        │ nobody wants it
//!                        └─────────────▶ garbage
//! ```
//! To a cut it is garbage in every state but the last: what restarts from that cut frees it. So a value of any size becomes
//! part of the data in one step that copies none of it, and a value that replaces another writes no page a cut may need.

use std::hash::Hasher;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use stillframe_pagepool::PageId;

use super::blob::{Blob, BlobPlace};
use super::bytes::{page_count_of, with_bytes};
use super::discards::PAGE_ENTRIES;
use super::garbage::Garbage;
use super::reach::HEAD_BYTES;
use super::sending::{Pins, Sending};
use crate::error::{Fault, OpError};
use crate::pages::Pages;
use crate::stop::{retry, Stop};
use crate::value::MAX_STRING_BYTES;

/// Pages that a value takes before it has shown that its bytes come.
const FIRST_PAGES: u32 = 16;
/// Objects that may be on their way in at a time: they fit a page of a catalog, with those that are being sent.
const ARRIVING_MAX: usize = PAGE_ENTRIES / 2;
/// Shorter values have no object.
pub(crate) const INCOMING_MIN_BYTES: u64 = 64 * 1024;

/// A value whose bytes are still coming; see the module. What nothing has come to refer to is freed when it is dropped.
pub struct Incoming {
    pages: Arc<Pages>,
    garbage: Arc<Garbage>,
    pins: Arc<Pins>,
    pid: PageId,
    page_count: u32,
    len_bytes: u64,
    filled_bytes: u64,
    /// The first bytes that have come, up to [`HEAD_BYTES`].
    head: Vec<u8>,
    /// Of the bytes that have come, if they are a name.
    hasher: Option<SipHasher13>,
    /// A key refers to it.
    is_used: AtomicBool,
}

impl Incoming {
    /// Begins a value of so many bytes, of which the first pages are taken now and the others as they come.
    ///
    /// # Errors
    /// [`OpError::TooLarge`], [`OpError::TooSmall`]: for an object. [`OpError::OutOfMemory`]: also if too many arrive
    /// at a time.
    pub(super) fn begin(
        pages: &Arc<Pages>,
        garbage: &Arc<Garbage>,
        pins: &Arc<Pins>,
        len_bytes: u64,
    ) -> Result<Incoming, OpError> {
        if len_bytes < INCOMING_MIN_BYTES {
            return Err(OpError::TooSmall);
        }
        if len_bytes > MAX_STRING_BYTES {
            return Err(OpError::TooLarge);
        }
        let all_pages = page_count_of(len_bytes);
        let page_count = FIRST_PAGES.min(all_pages);
        let pid = retry(|| {
            pages.admit(page_count)?;
            let guard = pages.pool.allocate_object(page_count, all_pages)?;
            let pid = guard.id();
            let has_room = pages.pool.capacity(pid, page_count) >= all_pages;
            if has_room && garbage.try_hold(pid, page_count, ARRIVING_MAX) {
                return Ok(pid);
            }
            pages.pool.free(guard, page_count);
            Err(Stop::OutOfMemory { limit_bytes: 0 })
        })?;
        let (pages, garbage, pins) = (pages.clone(), garbage.clone(), pins.clone());
        Ok(Incoming {
            pages,
            garbage,
            pins,
            pid,
            page_count,
            len_bytes,
            filled_bytes: 0,
            head: Vec::new(),
            hasher: None,
            is_used: AtomicBool::new(false),
        })
    }

    /// Before the first byte: it is a name, which is looked for by its hash.
    pub(crate) fn hash_with(&mut self, hasher: SipHasher13) {
        debug_assert_eq!(self.filled_bytes, 0);
        self.hasher = Some(hasher);
    }

    /// What the bytes that have come are hashed to, if they are.
    pub(crate) fn hash(&self) -> Option<u64> {
        self.hasher.as_ref().map(Hasher::finish)
    }

    /// The first bytes that have come, up to [`HEAD_BYTES`].
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    fn grow(&mut self, page_count: u32) -> Result<(), Stop> {
        if page_count <= self.page_count {
            return Ok(());
        }
        self.pages.admit(page_count - self.page_count)?;
        let mut guard = self.pages.pool.exclusive(self.pid)?;
        if !self.pages.pool.extend(&mut guard, self.page_count, page_count) {
            return Err(Stop::OutOfMemory { limit_bytes: 0 });
        }
        drop(guard);
        self.page_count = page_count;
        self.garbage.hold(self.pid, page_count);
        Ok(())
    }

    /// Bytes that the value will have.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes that have come.
    pub fn filled_bytes(&self) -> u64 {
        self.filled_bytes
    }

    pub fn is_complete(&self) -> bool {
        self.filled_bytes == self.len_bytes
    }

    /// What has to be waited for before more is filled in, because memory is full: others have to go first.
    pub fn awaited_room(&self) -> Option<Fault> {
        let pool = &self.pages.pool;
        (pool.is_full() && !pool.is_stuck()).then(Fault::room)
    }

    /// Gives `f` room for up to `most_bytes` of the bytes that come next, in the parts that it has in memory: at most one a
    /// page. It returns how many bytes it has written, from the start of the room. For a worker's thread, between two of its
    /// looks at the barrier.
    ///
    /// # Errors
    /// [`OpError::Fault`]: a page of it has been evicted meanwhile. Others: there is no room. What has come is still there.
    pub fn fill(
        &mut self,
        most_bytes: usize,
        f: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize,
    ) -> Result<(), OpError> {
        let len = (self.len_bytes - self.filled_bytes).min(most_bytes as u64);
        retry(|| self.grow(page_count_of(self.filled_bytes + len)))?;
        let mut f = Some(f);
        let written = retry(|| {
            let mut guard = self.pages.pool.exclusive(self.pid)?;
            let mut room = guard.object_parts_mut(self.filled_bytes, len as usize)?;
            let written = f.take().map_or(0, |f| f(&mut room));
            note_arrived(&room, written, &mut self.head, &mut self.hasher);
            Ok(written)
        })?;
        self.filled_bytes += written.min(len as usize) as u64;
        Ok(())
    }

    /// Takes bytes that come next, as many as are missing. Returns how many.
    ///
    /// # Errors
    /// As of [`Incoming::fill`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<usize, OpError> {
        let before = self.filled_bytes;
        self.fill(bytes.len(), |room| {
            let mut rest = bytes;
            for part in room {
                let (now, later) = rest.split_at(part.len());
                part.copy_from_slice(now);
                rest = later;
            }
            bytes.len() - rest.len()
        })?;
        Ok((self.filled_bytes - before) as usize)
    }

    /// What has come, part by part.
    ///
    /// # Errors
    /// [`OpError::Damaged`].
    pub fn read(&self, f: impl FnMut(&[u8])) -> Result<(), OpError> {
        let mut f = f;
        let blob = Blob { len_bytes: self.filled_bytes as u32, ..self.blob() };
        retry(|| {
            with_bytes(&self.pages.pool, &blob, |bytes| {
                f(bytes);
                true
            })
        })
    }

    pub(crate) fn blob(&self) -> Blob {
        let place = BlobPlace::Object { page_count: self.page_count };
        Blob { pid: self.pid, len_bytes: self.len_bytes as u32, place }
    }

    /// ARRIVING → part of the data. In the operation that makes a key refer to it, before the next look at the barrier.
    pub(crate) fn note_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
        self.garbage.release(self.pid, None);
    }

    /// Keeps its bytes as they are for a reader of all of them; the key that refers to it is locked. `None` if none does, so that the
    /// bytes go with this, if they are few, or if too many values are being read so.
    pub(super) fn hold(&self) -> Option<Sending> {
        let begin = || Sending::begin_unseen(&self.pages, &self.pins, &self.blob());
        self.is_used().then(begin).flatten()
    }

    /// Where it lies, for what is about to refer to it in the store of these pages.
    ///
    /// # Errors
    /// [`OpError::OtherStore`]; [`OpError::Incomplete`]; [`OpError::Used`]: something refers to it already, which would be two.
    pub(super) fn unused_blob(&self, pages: &Arc<Pages>) -> Result<Blob, OpError> {
        if !self.is_of(pages) {
            return Err(OpError::OtherStore);
        }
        if !self.is_complete() {
            return Err(OpError::Incomplete { filled_bytes: self.filled_bytes, len_bytes: self.len_bytes });
        }
        match self.is_used() {
            false => Ok(self.blob()),
            true => Err(OpError::Used),
        }
    }

    pub(super) fn is_of(&self, pages: &Arc<Pages>) -> bool {
        Arc::ptr_eq(&self.pages, pages)
    }

    /// Whether a key refers to it.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }
}

/// Keeps what is to be known of bytes that have just been written.
fn note_arrived(
    room: &[IoSliceMut<'_>],
    written_bytes: usize,
    head: &mut Vec<u8>,
    hasher: &mut Option<SipHasher13>,
) {
    if hasher.is_none() && head.len() >= HEAD_BYTES {
        return;
    }
    let mut left = written_bytes;
    for part in room {
        let bytes = &part[..part.len().min(left)];
        left -= bytes.len();
        head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES - head.len())]);
        hasher.iter_mut().for_each(|hasher| hasher.write(bytes));
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Incoming({} of {} bytes)", self.filled_bytes, self.len_bytes)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.is_used() {
            let place = BlobPlace::Object { page_count: self.page_count };
            self.garbage.release(self.pid, Some(place));
        }
    }
}

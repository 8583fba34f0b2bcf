//! Values and keys that lie outside their leaf: in slabs by size class, or in an object of their own.
//!
//! Latch order: leaf, then the class's mutex, then slabs. Whoever holds a slab without the mutex waits for nothing.

use std::ops::Range;
use std::sync::Arc;

use stillframe_pagepool::{ExclusiveGuard, PageId, Pool, Restart, SharedGuard, PAGE_SIZE};

use super::blob::{Blob, BlobPlace};
use super::bytes::{
    check_resident, damaged_slab, is_far, page_count_of, past_memory, with_bytes, write_parts, Part,
};
use super::duplicate::Duplicate;
use super::garbage::Garbage;
use super::given::{Bytes, Given, Taking};
use super::incoming::Incoming;
use super::reach::{self, add_missing, Reach};
use super::sending::{Pins, Sending};
use super::slab::Class;
use super::slabs::Slabs;
use crate::error::OpError;
use crate::pages::Pages;
use crate::stop::{retry, stop_at, Follow, Stop};
use crate::value::MAX_STRING_BYTES;

/// Pages of the longest string.
pub const OBJECT_PAGES_MAX: u32 = (MAX_STRING_BYTES / PAGE_SIZE as u64) as u32;
/// Objects up to this size are freed at once, larger ones in the background.
const FREE_NOW_PAGES: u32 = 256;
/// From here on the pool hands out zeroed objects.
const ZEROED_PAGES: u32 = 17;
/// So often a slab that others have latched is tried again. It may be the caller's own leaf, if what names it is damaged.
const FREE_TRIES: u32 = 1000;
/// Bytes of long names that are compared at once.
const COMPARED_BYTES: u64 = 256 * 1024;

/// All that lies outside leaves.
pub(crate) struct Blobs {
    pages: Arc<Pages>,
    pool: Arc<Pool>,
    garbage: Arc<Garbage>,
    pins: Arc<Pins>,
    pub slabs: Slabs,
}

impl Blobs {
    pub fn new(pages: &Arc<Pages>, garbage: &Arc<Garbage>, slab_heads: &[u32]) -> Blobs {
        Blobs {
            pages: pages.clone(),
            pool: pages.pool.clone(),
            garbage: garbage.clone(),
            pins: Pins::new(garbage.clone()),
            slabs: Slabs::new(pages.clone(), slab_heads),
        }
    }

    /// Begins a value whose bytes are still to come; see [`Incoming::begin`].
    pub fn begin_incoming(&self, len_bytes: u64) -> Result<Incoming, OpError> {
        Incoming::begin(&self.pages, &self.garbage, &self.pins, len_bytes)
    }

    /// Where a value lies that has come and that nothing refers to.
    ///
    /// # Errors
    /// As of [`Incoming::unused_blob`].
    pub fn unused(&self, incoming: &Incoming) -> Result<Blob, OpError> {
        incoming.unused_blob(&self.pages)
    }

    /// # Errors
    /// [`OpError::OtherStore`].
    pub fn check_own(&self, sending: &Sending) -> Result<(), OpError> {
        match sending.is_of(&self.pages) {
            true => Ok(()),
            false => Err(OpError::OtherStore),
        }
    }

    /// # Errors
    /// [`OpError::OtherStore`].
    pub fn check_own_copy(&self, copy: &Duplicate) -> Result<(), OpError> {
        match copy.copy().is_of(&self.pages) {
            true => Ok(()),
            false => Err(OpError::OtherStore),
        }
    }

    /// Keeps what has come of a value as it is while it is read in parts.
    ///
    /// # Errors
    /// [`OpError::OtherStore`]; as of [`Blobs::begin_sending`].
    pub fn begin_reading(&self, incoming: &Incoming) -> Result<Option<Sending>, OpError> {
        match incoming.is_of(&self.pages) {
            true => retry(|| self.begin_sending(&incoming.blob(), 0..incoming.filled_bytes())),
            false => Err(OpError::OtherStore),
        }
    }

    /// Keeps a value as it is while some of its bytes are read in parts; see [`Sending::begin`].
    pub fn begin_sending(&self, blob: &Blob, bytes: Range<u64>) -> Result<Option<Sending>, Stop> {
        Sending::begin(&self.pages, &self.pins, blob, bytes)
    }

    /// Whether a value is being read in parts.
    pub fn is_sent(&self, blob: &Blob) -> bool {
        self.pins.has(blob)
    }

    /// Whether no value is being read in parts.
    pub fn none_is_sent(&self) -> bool {
        self.pins.is_empty()
    }

    /// Makes a blob of parts. `growing` reserves page ids to grow in place.
    pub fn make(&self, parts: &[Part<'_>], growing: bool) -> Result<Blob, Stop> {
        let len_bytes: u64 = parts.iter().map(Part::len_bytes).sum();
        if len_bytes > MAX_STRING_BYTES {
            return Err(Stop::TooLarge);
        }
        for part in parts {
            if let Part::Zeros(bytes) = part {
                self.pages.check_together(*bytes)?;
            }
        }
        match Class::for_bytes(len_bytes as usize) {
            Some(class) => {
                let (mut guard, slot) = self.slabs.take(class)?;
                write_parts(&mut guard, class.slot_offset(slot) as u64, parts, false)?;
                let place = BlobPlace::Slab { class: class.0, slot };
                Ok(Blob { pid: guard.id(), len_bytes: len_bytes as u32, place })
            }
            None => self.new_object(len_bytes, parts, growing),
        }
    }

    fn new_object(&self, len_bytes: u64, parts: &[Part<'_>], growing: bool) -> Result<Blob, Stop> {
        let (mut guard, page_count, zeroed) = self.allocate_object(len_bytes, growing)?;
        write_parts(&mut guard, 0, parts, zeroed)?;
        Ok(Blob { pid: guard.id(), len_bytes: len_bytes as u32, place: BlobPlace::Object { page_count } })
    }

    fn allocate_object(
        &self,
        len_bytes: u64,
        growing: bool,
    ) -> Result<(ExclusiveGuard<'_>, u32, bool), Stop> {
        let page_count = len_bytes.div_ceil(PAGE_SIZE as u64) as u32;
        let reserve_count =
            if growing { (2 * page_count).min(OBJECT_PAGES_MAX).max(page_count) } else { page_count };
        self.pages.admit(page_count)?;
        let guard = self.pool.allocate_object(page_count, reserve_count)?;
        Ok((guard, page_count, page_count >= ZEROED_PAGES || reserve_count > page_count))
    }

    /// Puts new bytes in the place of a blob's, if they fit there well and it can be had; the caller holds its leaf.
    pub fn rewrite(&self, blob: &Blob, bytes: &[u8]) -> Result<Option<Blob>, Stop> {
        let room_bytes = blob.memory_bytes() as usize;
        if bytes.len() > room_bytes || bytes.len() < room_bytes - room_bytes / 4 || self.pins.has(blob) {
            return Ok(None);
        }
        let is_object = matches!(blob.place, BlobPlace::Object { .. });
        let written = self.pool.follow_exclusive(blob.pid).and_then(|mut guard| {
            let (start, end) = (blob.start(), blob.start() + bytes.len() as u64);
            check_resident(&guard, start, end)?;
            // Pages of its own that a cut needs are kept aside as they are, without a copy.
            if is_object && guard.would_capture(0..page_count_of(end)) {
                return Ok(false);
            }
            write_parts(&mut guard, start, &[Part::Bytes(bytes)], false)?;
            Ok(true)
        });
        match written {
            // They go elsewhere.
            Ok(false) | Err(Stop::Damaged(_)) => return Ok(None),
            // What is going to be overwritten is not worth bringing in.
            Err(Stop::Fault(_) | Stop::Missing(_)) if is_object => return Ok(None),
            written => written?,
        };
        Ok(Some(Blob { len_bytes: bytes.len() as u32, ..*blob }))
    }

    /// Writes parts at byte `start` of a blob, within its place. The caller holds its leaf.
    pub fn overwrite(&self, blob: &Blob, start: u64, parts: &[Part<'_>]) -> Result<(), Stop> {
        let offset = blob.start() + start;
        let len_bytes: u64 = parts.iter().map(Part::len_bytes).sum();
        debug_assert!(start + len_bytes <= blob.memory_bytes());
        let mut guard = self.pool.follow_exclusive(blob.pid)?;
        check_resident(&guard, offset, offset + len_bytes)?;
        write_parts(&mut guard, offset, parts, false)
    }

    /// Writes `bytes` at `start`, at or beyond the end of an object that is too small; a gap becomes zero.
    /// Grows it in place if it can, or moves it to a larger one (the caller discards the old then).
    pub fn grow_object(&self, blob: &Blob, start: u64, bytes: &[u8]) -> Result<Blob, Stop> {
        let BlobPlace::Object { page_count } = blob.place else { return Err(damaged_slab(blob.pid)) };
        let (old_len, end) = (u64::from(blob.len_bytes), (start + bytes.len() as u64));
        let new_count = end.max(old_len).div_ceil(PAGE_SIZE as u64) as u32;
        self.pages.admit(new_count - page_count.min(new_count))?;
        let mut guard = self.pool.follow_exclusive(blob.pid)?;
        // Pages that are new are zero; the old ones have whatever was there beyond the length.
        let old_room = u64::from(page_count) * PAGE_SIZE as u64;
        let gap = start.min(old_room).saturating_sub(old_len);
        self.pages.check_together(start.saturating_sub(old_len))?;
        check_resident(&guard, old_len.min(start), old_room.min(end))?;
        let grown = |pid, page_count| Blob {
            pid,
            len_bytes: end.max(old_len) as u32,
            place: BlobPlace::Object { page_count },
        };
        if self.pool.extend(&mut guard, page_count, new_count) {
            write_parts(&mut guard, old_len, &[Part::Zeros(gap)], false)?;
            write_parts(&mut guard, start, &[Part::Bytes(bytes)], false)?;
            return Ok(grown(blob.pid, new_count));
        }
        drop(guard);
        self.write_elsewhere(blob, start, bytes)
    }

    /// The same to a copy of an object, whose end may lie anywhere; the caller discards the old one then.
    fn write_elsewhere(&self, blob: &Blob, start: u64, bytes: &[u8]) -> Result<Blob, Stop> {
        let (old_len, end) = (u64::from(blob.len_bytes), start + bytes.len() as u64);
        let old = self.latch_with(blob, 0..old_len)?;
        let old_pages = page_count_of(old_len);
        let (mut copy, page_count, _) = self.allocate_object(end.max(old_len), end > old_len)?;
        for index in 0..old_pages {
            let len = (old_len - u64::from(index) * PAGE_SIZE as u64).min(PAGE_SIZE as u64) as usize;
            copy.object_page_mut(index)?[..len].copy_from_slice(&old.object_page(index)?[..len]);
        }
        write_parts(&mut copy, start, &[Part::Bytes(bytes)], false)?;
        let len_bytes = end.max(old_len) as u32;
        Ok(Blob { pid: copy.id(), len_bytes, place: BlobPlace::Object { page_count } })
    }

    /// A copy of an object; the caller holds the leaf that refers to it.
    pub fn copy_object(&self, blob: &Blob) -> Result<Blob, Stop> {
        let len_bytes = u64::from(blob.len_bytes);
        let from = self.latch_with(blob, 0..len_bytes)?;
        let (mut to, page_count, _) = self.allocate_object(len_bytes, false)?;
        for index in 0..page_count {
            *to.object_page_mut(index)? = *from.object_page(index)?;
        }
        Ok(Blob { pid: to.id(), place: BlobPlace::Object { page_count }, ..*blob })
    }

    /// Appends a blob's bytes to `out`; the caller holds the leaf that refers to it.
    pub fn read(&self, blob: &Blob, out: &mut Vec<u8>) -> Result<(), Stop> {
        if is_far(blob) {
            out.reserve_exact(u64::from(blob.len_bytes).min(MAX_STRING_BYTES) as usize);
        }
        with_bytes(&self.pool, blob, |bytes| {
            out.extend_from_slice(bytes);
            true
        })
    }

    /// Gives an element to `f`; `buffer` is for one that is not given where it lies. The caller holds the leaf that refers to it.
    pub fn give<R>(
        &self,
        blob: &Blob,
        taking: Taking,
        buffer: &mut Vec<u8>,
        f: impl FnOnce(Given<'_>) -> R,
    ) -> Result<R, Stop> {
        if taking == Taking::Large {
            if let Some(sending) = Sending::begin_unseen(&self.pages, &self.pins, blob) {
                return Ok(f(Given::Large(sending)));
            }
        }
        buffer.clear();
        self.read(blob, buffer)?;
        Ok(f(Given::Here(buffer)))
    }

    /// Whether a blob has exactly these bytes. Those that lie in pages are compared part by part, past memory.
    pub fn is_same(&self, blob: &Blob, bytes: &Bytes<'_>) -> Result<bool, Stop> {
        let other = match (bytes.here(), bytes.blob()) {
            (Some(bytes), _) => return self.equals(blob, bytes),
            (None, other) => other,
        };
        let Some(other) = other.filter(|other| other.len_bytes == blob.len_bytes) else { return Ok(false) };
        if other == *blob {
            return Ok(true);
        }
        let (mut at, len_bytes, mut is_same) = (0, u64::from(blob.len_bytes), true);
        while at < len_bytes && is_same {
            let end = len_bytes.min(at + COMPARED_BYTES);
            let mut part = Vec::with_capacity((end - at) as usize);
            past_memory(&self.pool, &other, at..end, |bytes| {
                part.extend_from_slice(bytes);
                true
            })?;
            let mut rest = &part[..];
            past_memory(&self.pool, blob, at..end, |bytes| {
                is_same = rest.get(..bytes.len()) == Some(bytes);
                rest = rest.get(bytes.len()..).unwrap_or_default();
                is_same
            })?;
            at = end;
        }
        Ok(is_same)
    }

    /// Whether a blob has exactly these bytes.
    pub fn equals(&self, blob: &Blob, bytes: &[u8]) -> Result<bool, Stop> {
        if blob.len_bytes as usize != bytes.len() {
            return Ok(false);
        }
        let mut rest = bytes;
        with_bytes(&self.pool, blob, |chunk| match rest.split_at_checked(chunk.len()) {
            Some((same, after)) if same == chunk => {
                rest = after;
                true
            }
            _ => false,
        })?;
        Ok(rest.is_empty())
    }

    /// Frees a blob that nothing refers to any more: now, or in the background if that would hold others up or
    /// needs pages that are not in memory.
    pub fn discard(&self, blob: &Blob) {
        if self.pins.keep_unused(blob) {
            return;
        }
        let large = matches!(blob.place, BlobPlace::Object { page_count } if page_count > FREE_NOW_PAGES);
        if large || self.free(blob.pid, blob.place).is_err() {
            self.garbage.push_blob(&self.pool, blob.pid, blob.place);
        }
    }

    /// Frees a blob that nothing refers to any more, unless somebody is in the way for long: that may be the caller, if a damaged
    /// record refers to a page that he has latched.
    pub fn free(&self, pid: PageId, place: BlobPlace) -> Result<(), Stop> {
        let mut result = self.try_free(pid, place);
        for _ in 0..FREE_TRIES {
            if !matches!(result, Err(Stop::Contended)) {
                break;
            }
            std::thread::yield_now();
            result = self.try_free(pid, place);
        }
        result
    }

    fn try_free(&self, pid: PageId, place: BlobPlace) -> Result<(), Stop> {
        match place {
            BlobPlace::Object { page_count } => match self.pool.try_exclusive(pid) {
                Ok(guard) => {
                    self.pool.free(guard, page_count);
                    Ok(())
                }
                Err(Restart::Contended) => Err(Stop::Contended),
                // Nobody needs to know what was in it.
                Err(_) if self.pool.free_unread(pid, page_count) => Ok(()),
                Err(restart) => Err(stop_at(&self.pool, restart)),
            },
            BlobPlace::Slab { class, slot } => self.slabs.free(pid, Class(class), slot),
        }
    }

    /// Latches a blob of which these bytes are in memory.
    #[inline]
    pub fn latch_with(&self, blob: &Blob, bytes: Range<u64>) -> Result<SharedGuard<'_>, Stop> {
        reach::latch_with(&self.pages, blob, bytes)
    }

    /// Makes sure that an element's pages are in memory, unless it is so long that they need not be.
    pub fn check_resident(&self, blob: &Blob) -> Result<(), Stop> {
        if self.pages.all_resident() || is_far(blob) {
            return Ok(());
        }
        self.latch_with(blob, 0..u64::from(blob.len_bytes)).map(drop)
    }

    /// Adds what is missing of a key or an element to `missing`, unless it is so long that its pages need not be in memory.
    pub fn resolve_element(&self, blob: &Blob, missing: &mut Vec<PageId>) {
        if !is_far(blob) {
            self.resolve(blob, Reach::WHOLE, missing);
        }
    }

    /// What is missing of a blob to an operation that reaches so far, with the head whose latch covers that. Of what memory
    /// has no room for the operation is told when it comes to it.
    pub fn resolve(&self, blob: &Blob, reach: Reach, missing: &mut Vec<PageId>) {
        let pages = reach.pages(blob);
        if !pages.is_empty() && !self.pages.is_too_large(pages.len() as u64 * PAGE_SIZE as u64) {
            add_missing(&self.pool, blob, pages, missing);
        }
    }

    /// Writes into a blob's place or grows it, or makes another while it is being sent. `None` if it is in a slab and does
    /// not fit in its slot.
    pub fn write_at(&self, blob: &Blob, offset: u64, bytes: &[u8]) -> Result<Option<Blob>, Stop> {
        if self.pins.has(blob) {
            return self.write_elsewhere(blob, offset, bytes).map(Some);
        }
        let (old_len, end) = (u64::from(blob.len_bytes), offset + bytes.len() as u64);
        if end <= blob.memory_bytes() {
            let gap_start = old_len.min(offset);
            let parts = [Part::Zeros(offset - gap_start), Part::Bytes(bytes)];
            self.overwrite(blob, gap_start, &parts)?;
            return Ok(Some(Blob { len_bytes: end.max(old_len) as u32, ..*blob }));
        }
        match blob.place {
            BlobPlace::Slab { .. } => Ok(None),
            BlobPlace::Object { .. } => self.grow_object(blob, offset, bytes).map(Some),
        }
    }
}

//! Values and keys that lie outside their leaf: in slabs by size class, or in an object of their own.
//!
//! Latch order: leaf, then the class's mutex, then slabs. Whoever holds a slab without the mutex waits for nothing.

use std::cell::RefCell;

use stillframe_pagepool::{ExclusiveGuard, PageId, Restart, SharedGuard, PAGE_SIZE};

use super::{Keyspace, Stop};
use crate::page::record::{Blob, Place};
use crate::page::slab::{self, Class, Slab, SLAB_PAGE_COUNT};
use crate::page::Page;
use crate::value::PageRun;
use crate::MAX_STRING_BYTES;

/// Pages of the longest string.
const OBJECT_PAGES_MAX: u32 = (MAX_STRING_BYTES / PAGE_SIZE as u64) as u32;
/// Objects up to this size are freed at once, larger ones in the background.
const FREE_NOW_PAGES: u32 = 256;
/// From here on the pool hands out zeroed objects.
const ZEROED_PAGES: u32 = 17;

/// What a blob is made of, in order.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
}

impl Part<'_> {
    fn len_bytes(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Zeros(count) => *count,
        }
    }
}

/// The pages of a latched slab or object.
pub(super) struct LatchedRun<'p> {
    pub guard: SharedGuard<'p>,
    failed: RefCell<Option<Restart>>,
}

impl<'p> LatchedRun<'p> {
    pub fn new(guard: SharedGuard<'p>) -> LatchedRun<'p> {
        LatchedRun { guard, failed: RefCell::new(None) }
    }

    /// Why a page could not be read, if so.
    pub fn check(self) -> Result<(), Stop> {
        match self.failed.into_inner() {
            Some(restart) => Err(restart.into()),
            None => Ok(()),
        }
    }
}

impl PageRun for LatchedRun<'_> {
    fn with_page(&self, index: u32, f: &mut dyn FnMut(&Page)) -> bool {
        match self.guard.object_page(index) {
            Ok(page) => {
                f(page);
                true
            }
            Err(restart) => {
                self.failed.borrow_mut().get_or_insert(restart);
                false
            }
        }
    }
}

/// Writes parts from byte `offset` of an object on. Zeros are passed over if the object has them already.
fn write_parts(
    guard: &mut ExclusiveGuard<'_>,
    mut offset: u64,
    parts: &[Part<'_>],
    zeroed: bool,
) -> Result<(), Stop> {
    for part in parts {
        let end = offset + part.len_bytes();
        let start = offset;
        let skip = zeroed && matches!(part, Part::Zeros(_));
        while offset < end && !skip {
            let in_page = (offset % PAGE_SIZE as u64) as usize;
            let len = (PAGE_SIZE - in_page).min((end - offset) as usize);
            let page = guard.object_page_mut((offset / PAGE_SIZE as u64) as u32)?;
            let out = &mut page[in_page..in_page + len];
            match part {
                Part::Bytes(bytes) => {
                    let from = (offset - start) as usize;
                    out.copy_from_slice(&bytes[from..from + len]);
                }
                Part::Zeros(_) => out.fill(0),
            }
            offset += len as u64;
        }
        offset = end;
    }
    Ok(())
}

/// Whether the pages that hold bytes `start..end` of a latched object are in memory.
fn check_resident(guard: &ExclusiveGuard<'_>, start: u64, end: u64) -> Result<(), Stop> {
    for index in start / PAGE_SIZE as u64..end.div_ceil(PAGE_SIZE as u64) {
        guard.object_page(index as u32)?;
    }
    Ok(())
}

pub(super) fn damaged_slab(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a slab was expected", pid.0))
}

impl Keyspace {
    /// Byte of the slab or object where a blob starts.
    pub(super) fn blob_offset(blob: &Blob) -> u64 {
        match blob.place {
            Place::Slab { class, slot } => Class(class).slot_offset(slot) as u64,
            Place::Object { .. } => 0,
        }
    }

    /// Memory that a blob takes, in bytes.
    pub(super) fn blob_memory_bytes(blob: &Blob) -> u64 {
        match blob.place {
            Place::Slab { class, .. } => Class(class).slot_bytes() as u64,
            Place::Object { page_count } => u64::from(page_count) * PAGE_SIZE as u64,
        }
    }

    /// Makes a blob of parts. `growing` reserves page ids to grow in place.
    pub(super) fn new_blob(&self, parts: &[Part<'_>], growing: bool) -> Result<Blob, Stop> {
        let len_bytes: u64 = parts.iter().map(Part::len_bytes).sum();
        if len_bytes > MAX_STRING_BYTES {
            return Err(Stop::TooLarge);
        }
        match Class::for_bytes(len_bytes as usize) {
            Some(class) => self.new_in_slab(class, len_bytes as u32, parts),
            None => self.new_object(len_bytes, parts, growing),
        }
    }

    fn new_object(&self, len_bytes: u64, parts: &[Part<'_>], growing: bool) -> Result<Blob, Stop> {
        let (mut guard, page_count, zeroed) = self.allocate_object(len_bytes, growing)?;
        write_parts(&mut guard, 0, parts, zeroed)?;
        Ok(Blob { pid: guard.id(), len_bytes: len_bytes as u32, place: Place::Object { page_count } })
    }

    fn allocate_object(
        &self,
        len_bytes: u64,
        growing: bool,
    ) -> Result<(ExclusiveGuard<'_>, u32, bool), Stop> {
        let page_count = len_bytes.div_ceil(PAGE_SIZE as u64) as u32;
        let reserve_count =
            if growing { (2 * page_count).min(OBJECT_PAGES_MAX).max(page_count) } else { page_count };
        self.admit(page_count)?;
        let guard = self.pool.allocate_object(page_count, reserve_count)?;
        Ok((guard, page_count, page_count >= ZEROED_PAGES || reserve_count > page_count))
    }

    fn new_in_slab(&self, class: Class, len_bytes: u32, parts: &[Part<'_>]) -> Result<Blob, Stop> {
        let mut list = self.slab_heads[usize::from(class.0)].lock();
        let (mut guard, slot) = if *list == 0 {
            self.admit(SLAB_PAGE_COUNT)?;
            let mut guard = self.pool.allocate_object(SLAB_PAGE_COUNT, SLAB_PAGE_COUNT)?;
            slab::init(guard.page_mut(), class);
            *list = guard.id().0;
            (guard, 0)
        } else {
            let mut guard = self.pool.exclusive(PageId(*list))?;
            let slot = self.check_free_slot(&guard, class)?;
            let head = Slab::new(guard.page()).ok_or_else(|| damaged_slab(guard.id()))?;
            if head.used_count() + 1 == class.slot_count() {
                let next = head.next();
                if next != 0 {
                    let mut next_guard = self.pool.try_exclusive(PageId(next))?;
                    slab::set_prev(next_guard.page_mut(), 0);
                }
                *list = next;
                slab::set_links(guard.page_mut(), 0, 0);
            }
            (guard, slot)
        };
        slab::set_used(guard.page_mut(), slot, true);
        drop(list);
        write_parts(&mut guard, class.slot_offset(slot) as u64, parts, false)?;
        Ok(Blob { pid: guard.id(), len_bytes, place: Place::Slab { class: class.0, slot } })
    }

    /// A free slot of a latched slab whose pages are in memory.
    fn check_free_slot(&self, guard: &ExclusiveGuard<'_>, class: Class) -> Result<u16, Stop> {
        let head = Slab::new(guard.page()).filter(|slab| slab.class() == class);
        let slot = head.and_then(|slab| slab.free_slot()).ok_or_else(|| damaged_slab(guard.id()))?;
        let start = class.slot_offset(slot) as u64;
        check_resident(guard, start, start + class.slot_bytes() as u64)?;
        Ok(slot)
    }

    /// Puts new bytes in the place of a blob's, if they fit there well; the caller holds its leaf.
    pub(super) fn rewrite_blob(&self, blob: &Blob, bytes: &[u8]) -> Result<Option<Blob>, Stop> {
        let room_bytes = Self::blob_memory_bytes(blob) as usize;
        if bytes.len() > room_bytes || bytes.len() < room_bytes - room_bytes / 4 {
            return Ok(None);
        }
        self.overwrite(blob, 0, &[Part::Bytes(bytes)])?;
        Ok(Some(Blob { len_bytes: bytes.len() as u32, ..*blob }))
    }

    /// Writes parts at byte `start` of a blob, within its place. The caller holds its leaf.
    pub(super) fn overwrite(&self, blob: &Blob, start: u64, parts: &[Part<'_>]) -> Result<(), Stop> {
        let offset = Self::blob_offset(blob) + start;
        let len_bytes: u64 = parts.iter().map(Part::len_bytes).sum();
        debug_assert!(start + len_bytes <= Self::blob_memory_bytes(blob));
        let mut guard = self.pool.exclusive(blob.pid)?;
        check_resident(&guard, offset, offset + len_bytes)?;
        write_parts(&mut guard, offset, parts, false)
    }

    /// Writes `bytes` at `start`, at or beyond the end of an object that is too small; a gap becomes zero.
    /// Grows it in place, or moves it to a larger one (the caller discards the old then).
    pub(super) fn grow_object(&self, blob: &Blob, start: u64, bytes: &[u8]) -> Result<Blob, Stop> {
        let Place::Object { page_count } = blob.place else { return Err(damaged_slab(blob.pid)) };
        let (old_len, end) = (u64::from(blob.len_bytes), (start + bytes.len() as u64));
        let new_count = end.max(old_len).div_ceil(PAGE_SIZE as u64) as u32;
        self.admit(new_count - page_count.min(new_count))?;
        let mut guard = self.pool.exclusive(blob.pid)?;
        // Pages that are new are zero; the old ones have whatever was there beyond the length.
        let old_room = u64::from(page_count) * PAGE_SIZE as u64;
        let gap = start.min(old_room).saturating_sub(old_len);
        check_resident(&guard, old_len.min(start), old_room.min(end))?;
        let grown = |pid, page_count| Blob {
            pid,
            len_bytes: end.max(old_len) as u32,
            place: Place::Object { page_count },
        };
        if self.pool.extend(&mut guard, page_count, new_count) {
            write_parts(&mut guard, old_len, &[Part::Zeros(gap)], false)?;
            write_parts(&mut guard, start, &[Part::Bytes(bytes)], false)?;
            return Ok(grown(blob.pid, new_count));
        }
        check_resident(&guard, 0, old_len)?;
        let (mut larger, larger_count, _) = self.allocate_object(end.max(old_len), true)?;
        for index in 0..old_len.div_ceil(PAGE_SIZE as u64) {
            let len = (old_len - index * PAGE_SIZE as u64).min(PAGE_SIZE as u64) as usize;
            let from = guard.object_page(index as u32)?;
            larger.object_page_mut(index as u32)?[..len].copy_from_slice(&from[..len]);
        }
        write_parts(&mut larger, start, &[Part::Bytes(bytes)], false)?;
        Ok(grown(larger.id(), larger_count))
    }

    /// A copy of an object; the caller holds the leaf that refers to it.
    pub(super) fn copy_object(&self, blob: &Blob) -> Result<Blob, Stop> {
        let from = self.pool.shared(blob.pid)?;
        let len_bytes = u64::from(blob.len_bytes);
        let page_count = len_bytes.div_ceil(PAGE_SIZE as u64);
        for index in 0..page_count {
            from.object_page(index as u32)?;
        }
        let (mut to, page_count, _) = self.allocate_object(len_bytes, false)?;
        for index in 0..page_count {
            *to.object_page_mut(index)? = *from.object_page(index)?;
        }
        Ok(Blob { pid: to.id(), place: Place::Object { page_count }, ..*blob })
    }

    /// Appends a blob's bytes to `out`; the caller holds the leaf that refers to it.
    pub(super) fn read_blob(&self, blob: &Blob, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.with_blob(blob, |bytes| {
            out.extend_from_slice(bytes);
            true
        })
    }

    /// Whether a blob has exactly these bytes.
    pub(super) fn blob_equals(&self, blob: &Blob, bytes: &[u8]) -> Result<bool, Stop> {
        if blob.len_bytes as usize != bytes.len() {
            return Ok(false);
        }
        let mut rest = bytes;
        self.with_blob(blob, |chunk| match rest.split_at_checked(chunk.len()) {
            Some((same, after)) if same == chunk => {
                rest = after;
                true
            }
            _ => false,
        })?;
        Ok(rest.is_empty())
    }

    /// Gives a blob's bytes page by page until `f` has seen enough.
    fn with_blob(&self, blob: &Blob, mut f: impl FnMut(&[u8]) -> bool) -> Result<(), Stop> {
        let guard = self.pool.shared(blob.pid)?;
        let mut offset = Self::blob_offset(blob);
        let end = offset + u64::from(blob.len_bytes);
        while offset < end {
            let in_page = (offset % PAGE_SIZE as u64) as usize;
            let len = (PAGE_SIZE - in_page).min((end - offset) as usize);
            let page = guard.object_page((offset / PAGE_SIZE as u64) as u32)?;
            if !f(&page[in_page..in_page + len]) {
                break;
            }
            offset += len as u64;
        }
        Ok(())
    }

    /// Frees a blob that nothing refers to any more: now, or in the background if that would hold others up or
    /// needs pages that are not in memory.
    pub(super) fn discard_blob(&self, blob: &Blob) {
        let large = matches!(blob.place, Place::Object { page_count } if page_count > FREE_NOW_PAGES);
        if large || self.free_blob(blob.pid, blob.place).is_err() {
            self.garbage.push_blob(&self.pool, blob.pid, blob.place);
        }
    }

    /// Frees a blob that nothing refers to any more.
    pub(super) fn free_blob(&self, pid: PageId, place: Place) -> Result<(), Stop> {
        match place {
            Place::Object { page_count } => match self.pool.exclusive(pid) {
                Ok(guard) => {
                    self.pool.free(guard, page_count);
                    Ok(())
                }
                // Nobody needs to know what was in it.
                Err(_) if self.pool.free_unread(pid, page_count) => Ok(()),
                Err(restart) => Err(restart.into()),
            },
            Place::Slab { class, slot } => loop {
                match self.free_slot(pid, Class(class), slot) {
                    Err(Stop::Contended) => std::thread::yield_now(),
                    result => return result,
                }
            },
        }
    }

    fn free_slot(&self, pid: PageId, class: Class, slot: u16) -> Result<(), Stop> {
        let heads = self.slab_heads.get(usize::from(class.0)).ok_or_else(|| damaged_slab(pid))?;
        let mut list = heads.lock();
        let mut guard = self.pool.exclusive(pid)?;
        let head = Slab::new(guard.page()).filter(|slab| slab.class() == class && slab.is_used(slot));
        let head = head.ok_or_else(|| damaged_slab(pid))?;
        let (was_full, will_be_empty) = (head.is_full(), head.used_count() == 1);
        if was_full {
            self.link_slab(&mut list, &mut guard)?;
        } else if will_be_empty {
            self.unlink_slab(&mut list, head.prev(), head.next())?;
            self.pool.free(guard, SLAB_PAGE_COUNT);
            return Ok(());
        }
        slab::set_used(guard.page_mut(), slot, false);
        Ok(())
    }

    /// Puts a slab that was full at the front of its class's list.
    fn link_slab(&self, list: &mut u32, guard: &mut ExclusiveGuard<'_>) -> Result<(), Stop> {
        if *list != 0 {
            let mut next = self.pool.try_exclusive(PageId(*list))?;
            slab::set_prev(next.page_mut(), guard.id().0);
        }
        slab::set_links(guard.page_mut(), 0, *list);
        *list = guard.id().0;
        Ok(())
    }

    fn unlink_slab(&self, list: &mut u32, prev: u32, next: u32) -> Result<(), Stop> {
        let latch = |pid| if pid == 0 { Ok(None) } else { self.pool.try_exclusive(PageId(pid)).map(Some) };
        let (prev_guard, next_guard) = (latch(prev)?, latch(next)?);
        match prev_guard {
            Some(mut guard) => slab::set_next(guard.page_mut(), next),
            None => *list = next,
        }
        if let Some(mut guard) = next_guard {
            slab::set_prev(guard.page_mut(), prev);
        }
        Ok(())
    }
}

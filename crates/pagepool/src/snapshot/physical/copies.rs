//! Where the copies of pages lie, and how an algorithm gets at them.
//!
//! Copies that are two places of a page are the page table's business ([`Side`]). Others have a region of their own, a row after the
//! other: a slot of it is written by who has the row's flag, or the page's latch, and read by the access phase after that.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use stillframe_algorithms::{Copies, CopyId, Place, RowId};

use super::super::core::Core;
use super::ahead;
use super::rows::PageRows;
use super::wants::{Places, Wants};
use crate::page::{touch_covered, Epoch, Side};
use crate::space::{populate_idly, AnonMemory, MapError, Memory};
use crate::{PageBytes, PageId, PAGE_SIZE};

/// Rows without need between two that have some for which both are populated together.
const POPULATE_GAP_ROWS: u32 = 32;

/// See the module.
pub struct PageCopies {
    pub rows: PageRows,
    /// By copy, from [`CopyId::S`] or [`CopyId::U0`] on.
    regions: Vec<Region>,
    /// Content up to that cut need not be kept: of the durable one of the last stream that has begun.
    durable: AtomicU32,
    /// Frames that have been let go, and may still be read by who found them before.
    unread: Mutex<Vec<u32>>,
}

struct Region {
    memory: AnonMemory,
    /// Rows that are in it.
    kept_rows: AtomicU64,
}

impl Region {
    fn new(row_limit: u32) -> Result<Region, MapError> {
        let memory = AnonMemory::new(row_limit as usize * PAGE_SIZE)?;
        Ok(Region { memory, kept_rows: AtomicU64::new(0) })
    }

    /// Gives the memory of all rows back. Nobody reads or writes any.
    fn clear(&self, row_count: u32) {
        if self.kept_rows.swap(0, Ordering::Relaxed) > 0 {
            self.memory.discard(0, row_count as usize * PAGE_SIZE);
        }
    }

    fn bytes(&self, slot: u32) -> *mut PageBytes {
        let start = slot as usize * PAGE_SIZE;
        assert!(start < self.memory.byte_len(), "M1: row {slot} has a slot");
        self.memory.base().as_ptr().wrapping_add(start).cast()
    }
}

impl PageCopies {
    /// For pages `0..page_count`, of which at most `row_limit` have rows.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(page_count: u32, row_limit: u32, places: Places) -> Result<PageCopies, MapError> {
        let regions = (0..places.region_count()).map(|_| Region::new(row_limit));
        Ok(PageCopies {
            rows: PageRows::new(page_count, row_limit)?,
            regions: regions.collect::<Result<_, _>>()?,
            durable: AtomicU32::new(0),
            unread: Mutex::default(),
        })
    }

    /// A stream over this durable cut is about to begin.
    pub fn set_durable(&self, durable: Epoch) {
        self.durable.store(durable.0, Ordering::Relaxed);
    }

    fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::Relaxed))
    }

    /// The region of a copy, if it has one: neither two places nor the page's own do.
    fn region(&self, copy: CopyId) -> Option<&Region> {
        self.regions.get((copy.0 as usize).checked_sub(1)?)
    }

    /// Makes memory of a shadow resident for what the stream of the next cut is going to need, as things are now.
    pub fn populate_shadow(&self, core: &Core, ranges: &[(u32, u32)], durable: Epoch) {
        let [shadow] = &self.regions[..] else { return };
        let populate = |rows: Range<u32>| {
            let (start, count) = (rows.start as usize, rows.len());
            populate_idly(&shadow.memory, start * PAGE_SIZE, count * PAGE_SIZE);
        };
        let mut run: Range<u32> = 0..0;
        for page in ranges.iter().flat_map(|&(start, end)| (start..end).map(PageId)) {
            let epochs = &core.pages.descriptor(page).epochs;
            let Some(row) = self.rows.find(page) else { continue };
            if epochs.written() <= durable || epochs.freed().is_some() {
                continue;
            }
            if row.0 >= run.end && row.0 - run.end <= POPULATE_GAP_ROWS && !run.is_empty() {
                run.end = row.0 + 1;
            } else {
                populate(std::mem::replace(&mut run, row.0..row.0 + 1));
            }
        }
        populate(run);
    }

    /// Pages that are held for snapshots beside the data.
    pub fn held_pages(&self, core: &Core) -> u64 {
        let in_regions: u64 = self.regions.iter().map(|r| r.kept_rows.load(Ordering::Relaxed)).sum();
        in_regions + core.pages.second_frames()
    }

    /// The stream has ended: gives back what it alone needed. `wait_for_turns` returns when nobody reads any more what he found
    /// before.
    pub fn give_back(&self, core: &Core, wait_for_turns: impl FnOnce()) {
        let unread = std::mem::take(&mut *self.unread.lock());
        if !unread.is_empty() {
            wait_for_turns();
            core.pages.give_seconds(&unread);
        }
        // The next period takes as many again.
        ahead::expect(core, unread.len());
        if let [shadow] = &self.regions[..] {
            shadow.clear(self.rows.row_count());
        }
    }
}

/// Whose copies they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// A writer's, of a page that it has latched. Whether the stream needs what it is about to change.
    Writer { is_needed: bool },
    /// Of the same, for a page that has no content yet.
    Newborn,
    /// The saver's, in the barrier or beside writers.
    Saver,
}

/// The copies as one who is at work sees them.
pub struct Access<'a, W> {
    pub copies: &'a PageCopies,
    pub core: &'a Core,
    pub who: Who,
    _wants: PhantomData<fn() -> W>,
}

fn side(copy: CopyId) -> Side {
    if copy == CopyId::D0 {
        Side::First
    } else {
        Side::Second
    }
}

impl<'a, W: Wants> Access<'a, W> {
    pub fn new(copies: &'a PageCopies, core: &'a Core, who: Who) -> Access<'a, W> {
        Access { copies, core, who, _wants: PhantomData }
    }

    /// Whether the saver has something to copy: a page that is not in use or not in memory has nothing, and one that has not
    /// changed and has one place gets its second when it is written.
    fn is_of_use(&self, page: PageId) -> bool {
        let Some(descriptor) = self.core.pages.try_descriptor(page) else { return false };
        let is_changed = || descriptor.epochs.written() > self.copies.durable();
        descriptor.is_in_use()
            && descriptor.state.is_resident()
            && (is_changed() || W::PLACES.are_two() && self.core.pages.has_second(page))
    }

    /// Whether somebody needs a copy of the page from its place, and there is something to copy.
    fn is_wanted(&self, page: PageId) -> bool {
        match self.who {
            Who::Newborn => W::PLACES == Places::Updates,
            Who::Writer { is_needed } => is_needed || W::PLACES != Places::Shadow,
            Who::Saver => self.is_of_use(page),
        }
    }

    /// An image has not finished, and its rows are made rows of another copy, in the barrier: the page lies there from now on. If
    /// it stayed where it was, the copy that is given up would be the one in its place, and neither would be let go.
    fn carry_over(&self, page: PageId, to: Side) {
        // As its writer does, so that it moves nowhere meanwhile (R6).
        touch_covered(&self.core.pages.descriptor(page).state);
        self.core.pages.place(page, to);
    }

    /// Copies to a slot of a region. Whether there was something to copy.
    fn copy_to_region(&self, from: Place, to: Place) -> bool {
        let region = self.copies.region(to.copy).expect("copies beside the pages have regions");
        // SAFETY: M1: a slot of the mapping. F1: who copies to it has the row's flag or latch, or runs in the barrier.
        let into = unsafe { &mut *region.bytes(to.slot) };
        self.copy_out(from, into)
    }

    /// Copies a copy of a page that nobody modifies now. False if there is none.
    pub fn copy_out(&self, place: Place, into: &mut PageBytes) -> bool {
        let page = self.copies.rows.page(RowId(place.slot));
        if W::PLACES.are_two() {
            return self.core.pages.copy_side(page, side(place.copy), into);
        }
        match self.copies.region(place.copy) {
            None => self.core.pages.copy_place(page, into),
            Some(region) => {
                // SAFETY: M1: a slot of the mapping. F1: it has been written, its flag says so, and nobody writes it now.
                into.copy_from_slice(unsafe { &*region.bytes(place.slot) });
                true
            }
        }
    }
}

impl<W: Wants> Copies for Access<'_, W> {
    const LETS_GO: bool = matches!(W::PLACES, Places::Two);

    fn row_count(&self) -> u32 {
        self.copies.rows.row_count()
    }

    fn row_len(&self) -> usize {
        PAGE_SIZE
    }

    fn copy(&self, from: Place, to: Place) {
        debug_assert_eq!(from.slot, to.slot);
        let page = self.copies.rows.page(RowId(from.slot));
        let is_from_place = W::PLACES.are_two() || from.copy == CopyId::D;
        if is_from_place && !self.is_wanted(page) {
            return;
        }
        if W::PLACES.are_two() {
            self.core.pages.fill(page, side(to.copy));
            if self.who == Who::Saver && W::PLACES == Places::Two {
                self.carry_over(page, side(to.copy));
            }
        } else if self.copy_to_region(from, to) {
            if let Some(region) = self.copies.region(to.copy) {
                region.kept_rows.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whole pages: a guard does not say which bytes it has modified.
    fn copy_part(&self, from: Place, to: Place, _bytes: Range<usize>) {
        self.copy_to_region(from, to);
    }

    fn read(&self, place: Place, into: &mut [u8]) {
        let mut page = [0; PAGE_SIZE];
        let is_there = self.copy_out(place, &mut page);
        debug_assert!(is_there);
        into.copy_from_slice(&page[..into.len()]);
    }

    fn let_go(&self, copy: CopyId, rows: Range<u32>) {
        if W::PLACES == Places::Updates {
            return self.copies.region(copy).into_iter().for_each(|region| region.clear(rows.end));
        } else if !W::PLACES.are_two() {
            return;
        }
        let pages = rows.map(|row| self.copies.rows.page(RowId(row)));
        let pages = pages.filter(|page| page.0 < self.core.pages.page_limit());
        let frames = pages.filter_map(|page| self.core.pages.let_go_of_second(page, side(copy)));
        self.copies.unread.lock().extend(frames);
    }
}

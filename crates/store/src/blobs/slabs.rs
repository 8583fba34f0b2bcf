//! The slabs: for each size class a list of those with free slots.
//!
//! Latch order: the class's mutex, then slabs. Whoever holds a slab without the mutex waits for nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_pagepool::{ExclusiveGuard, PageId, Pool, Restart, PAGE_SIZE};

use super::bytes::{check_resident, damaged_slab};
use super::slab::{self, Class, Slab, CLASS_COUNT, SLAB_PAGE_COUNT};
use crate::pages::Pages;
use crate::stop::{stop_at, Follow, Stop};

/// Shorter words, elements and values are never stored outside of their leaves.
const OUTSIDE_MIN_BYTES: usize = 100;

/// What an operation may store in slabs: so many things of any length, and others whose length is known.
#[derive(Clone, Default, Debug)]
pub struct SlabNeeds {
    any_count: usize,
    /// Empty as long as there is none.
    by_class: Vec<usize>,
}

impl SlabNeeds {
    /// So many things of any length.
    pub fn any(count: usize) -> SlabNeeds {
        SlabNeeds { any_count: count, by_class: Vec::new() }
    }

    /// Things of these lengths in bytes.
    pub(crate) fn of(lens_bytes: impl Iterator<Item = usize>) -> SlabNeeds {
        let mut needs = SlabNeeds::any(0);
        lens_bytes.for_each(|len_bytes| needs.add(len_bytes));
        needs
    }

    /// One thing more, of so many bytes.
    pub fn add(&mut self, len_bytes: usize) {
        if len_bytes < OUTSIDE_MIN_BYTES {
            return;
        }
        self.by_class.resize(CLASS_COUNT, 0);
        let class = Class::for_bytes(len_bytes);
        let count = class.and_then(|class| self.by_class.get_mut(usize::from(class.0)));
        count.into_iter().for_each(|count| *count += 1);
    }

    /// One thing more, of any length.
    pub fn add_any(&mut self) {
        self.any_count = self.any_count.saturating_add(1);
    }

    fn slots_of(&self, class: Class) -> usize {
        self.any_count.saturating_add(self.by_class.get(usize::from(class.0)).map_or(0, |count| *count))
    }
}

pub(crate) struct Slabs {
    pages: Arc<Pages>,
    pool: Arc<Pool>,
    /// Head of the list of slabs with free slots, for each class.
    heads: Box<[Mutex<u32>]>,
}

impl Slabs {
    pub fn new(pages: Arc<Pages>, heads: &[u32]) -> Slabs {
        Slabs { pool: pages.pool.clone(), pages, heads: heads.iter().map(|head| Mutex::new(*head)).collect() }
    }

    /// The heads of all lists, as a cut writes them.
    pub fn heads(&self) -> Vec<u32> {
        self.heads.iter().map(|head| *head.lock()).collect()
    }

    /// Follows no list any more: what is in them is found another way.
    pub fn forget(&self) {
        self.heads.iter().for_each(|head| *head.lock() = 0);
    }

    /// A slot of a slab of this class, marked as used, and its latched slab.
    pub fn take(&self, class: Class) -> Result<(ExclusiveGuard<'_>, u16), Stop> {
        let mut list = self.heads[usize::from(class.0)].lock();
        loop {
            self.pass_lost_head(&mut list);
            if *list == 0 {
                self.pages.admit(SLAB_PAGE_COUNT)?;
                let mut guard = self.pool.allocate_object(SLAB_PAGE_COUNT, SLAB_PAGE_COUNT)?;
                slab::init(guard.page_mut(), class);
                slab::set_used(guard.page_mut(), 0, true);
                *list = guard.id().0;
                return Ok((guard, 0));
            }
            let mut guard = self.pool.follow_exclusive(PageId(*list))?;
            let (slot, is_whole) = self.check_free_slot(&guard, class)?;
            self.take_slot(&mut list, &mut guard, slot)?;
            if is_whole {
                return Ok((guard, slot));
            }
            self.pages.leaks.note_leak();
        }
    }

    /// Frees a slot; an empty slab goes. Waits for no latch.
    pub fn free(&self, pid: PageId, class: Class, slot: u16) -> Result<(), Stop> {
        let heads = self.heads.get(usize::from(class.0)).ok_or_else(|| damaged_slab(pid))?;
        let mut list = heads.lock();
        let mut guard = match self.pool.try_exclusive(pid).map_err(|restart| stop_at(&self.pool, restart)) {
            // Nobody gets at its slots any more: it goes when all databases are empty.
            Err(Stop::Damaged(_)) if self.pool.residency().give_up(pid) => {
                self.pages.leaks.note_leak();
                return Ok(());
            }
            guard => guard?,
        };
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
        self.pass_lost_head(list);
        if let Some(mut next) = self.try_slab(*list)? {
            slab::set_prev(next.page_mut(), guard.id().0);
        }
        slab::set_links(guard.page_mut(), 0, *list);
        *list = guard.id().0;
        Ok(())
    }

    fn unlink_slab(&self, list: &mut u32, prev: u32, next: u32) -> Result<(), Stop> {
        let (prev_guard, next_guard) = (self.try_slab(prev)?, self.try_slab(next)?);
        match prev_guard {
            Some(mut guard) => slab::set_next(guard.page_mut(), next),
            None if prev == 0 => *list = next,
            // Behind a slab that is lost: the list does not come here.
            None => {}
        }
        if let Some(mut guard) = next_guard {
            slab::set_prev(guard.page_mut(), prev);
        }
        Ok(())
    }

    /// Marks a free slot of the first slab of a list as used; a slab that has no other leaves the list.
    fn take_slot(&self, list: &mut u32, guard: &mut ExclusiveGuard<'_>, slot: u16) -> Result<(), Stop> {
        let head = Slab::new(guard.page()).ok_or_else(|| damaged_slab(guard.id()))?;
        if head.used_count() + 1 == head.class().slot_count() {
            let next = head.next();
            if let Some(mut next_guard) = self.try_slab(next)? {
                slab::set_prev(next_guard.page_mut(), 0);
            }
            *list = next;
            slab::set_links(guard.page_mut(), 0, 0);
        }
        slab::set_used(guard.page_mut(), slot, true);
        Ok(())
    }

    /// A free slot of a latched slab, and whether its pages are in memory. One of which a page is damaged is of no use to
    /// anybody: it counts as used from then on.
    fn check_free_slot(&self, guard: &ExclusiveGuard<'_>, class: Class) -> Result<(u16, bool), Stop> {
        let head = Slab::new(guard.page()).filter(|slab| slab.class() == class);
        let slot = head.and_then(|slab| slab.free_slot()).ok_or_else(|| damaged_slab(guard.id()))?;
        let start = class.slot_offset(slot) as u64;
        match check_resident(guard, start, start + class.slot_bytes() as u64) {
            Err(Stop::Damaged(_)) => Ok((slot, false)),
            checked => checked.map(|()| (slot, true)),
        }
    }

    /// A list that begins with a slab whose first page is lost ends there. What was behind it is found by others that
    /// free slots of it.
    fn pass_lost_head(&self, list: &mut u32) {
        if *list != 0 && self.pool.residency().has_damage() && self.pool.residency().give_up(PageId(*list)) {
            *list = 0;
        }
    }

    /// A neighbour in a list of slabs, latched. `None` if there is none, or its first page is lost: whoever comes to that
    /// from either side finds the list's end.
    fn try_slab(&self, pid: u32) -> Result<Option<ExclusiveGuard<'_>>, Stop> {
        if pid == 0 {
            return Ok(None);
        }
        match self.pool.try_exclusive(PageId(pid)) {
            Err(Restart::Damaged(_)) if self.pool.residency().give_up(PageId(pid)) => Ok(None),
            guard => guard.map(Some).map_err(|restart| stop_at(&self.pool, restart)),
        }
    }

    /// Whether a slot to which nothing leads can be used again, as far as it is known. One whose pages are lost goes with
    /// its slab; one whose pages may yet be had stays in use until it is looked for again.
    pub fn may_be_reused(&self, pid: PageId, class: Class, slot: u16) -> bool {
        let pages = pages_of_slot(pid, class, slot);
        let is_there =
            |page: &PageId| self.pool.is_resident(*page) || self.pool.residency().is_missing(*page);
        let Some(absent) = pages.into_iter().find(|page| !is_there(page)) else { return true };
        if self.pool.residency().may_yet_be_had(absent) {
            self.pages.leaks.note_leak();
        }
        false
    }

    /// The slabs at the front of the lists of those classes, as many as it takes for what is needed, with the pages of the
    /// slots that are going to be taken; and the one behind them, to which the list's front may move. What is freed meanwhile
    /// comes before them, and is there.
    ///
    /// # Errors
    /// [`Stop::Damaged`]: one of them cannot be read, and may yet be had. Who takes a slot of it is told the same.
    pub fn resolve(&self, needs: &SlabNeeds, missing: &mut Vec<PageId>) -> Result<(), Stop> {
        for (class, head) in (0..).map(Class).zip(&self.heads) {
            let mut left = needs.slots_of(class);
            let mut next = if left == 0 { 0 } else { *head.lock() };
            while next != 0 {
                match self.resolve_slab(PageId(next), left, missing) {
                    Ok((following, taken)) if left > 0 => (next, left) = (following, left - taken),
                    Ok(_) => break,
                    Err(Stop::Fault(pid)) => {
                        missing.push(pid);
                        break;
                    }
                    // The list's end is where it is lost.
                    Err(Stop::Damaged(_)) if self.pool.residency().give_up(PageId(next)) => break,
                    Err(stop) => return Err(stop),
                }
            }
        }
        Ok(())
    }

    /// Looks at the first free slots of a slab, at most so many. Returns the slab behind it, 0 for none, and how many there are.
    fn resolve_slab(
        &self,
        pid: PageId,
        most_slots: usize,
        missing: &mut Vec<PageId>,
    ) -> Result<(u32, usize), Stop> {
        let guard = self.pool.follow_shared(pid)?;
        let slab = Slab::new(guard.page()).ok_or_else(|| damaged_slab(pid))?;
        let (class, next, mut taken) = (slab.class(), slab.next(), 0);
        for slot in slab.free_slots() {
            if taken == most_slots {
                break;
            }
            let (mut absent, mut is_lost) = (Vec::new(), false);
            for page in pages_of_slot(pid, class, slot) {
                match self.pool.residency().is_missing(page) {
                    true => absent.push(page),
                    false => is_lost |= !self.pool.is_resident(page),
                }
            }
            // `take` passes one that is lost, and has the next.
            if !is_lost {
                missing.extend(absent);
                taken += 1;
            }
        }
        Ok((next, taken))
    }
}

/// The pages that have bytes of a slot.
fn pages_of_slot(slab: PageId, class: Class, slot: u16) -> impl Iterator<Item = PageId> {
    let start = class.slot_offset(slot);
    let pages = start / PAGE_SIZE..(start + class.slot_bytes()).div_ceil(PAGE_SIZE);
    pages.map(move |index| PageId(slab.0.saturating_add(index as u32)))
}

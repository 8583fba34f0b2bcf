//! Objects: allocating, growing and freeing runs of pages.

use crate::failing::{self, Failure};
use crate::guard::ExclusiveGuard;
use crate::phase::is_looking;
use crate::pool::Pool;
use crate::residency::Keeper;
use crate::space::Extent;
use crate::{PageId, PoolError};

/// Pages of the small zone without an owner that are freed at once.
const ORPHANS_AT_ONCE: u32 = 1024;

/// Objects of up to so many pages are handed out with whatever content their pages had.
const SMALL_PAGES_MAX: u32 = 16;

impl Pool {
    /// A new page, latched. Its content is undefined.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`].
    pub fn allocate(&self) -> Result<ExclusiveGuard<'_>, PoolError> {
        self.allocate_object(1, 1)
    }

    /// A new object of consecutive pages with room to grow in place to `reserve_count`, its head latched. The
    /// content of objects of 17 pages and more, and of those with a reserve, is zero, that of others undefined. All
    /// of its pages stay in memory while the calling thread, as a member of the barrier, goes on with its command (R3);
    /// who is no member may call this only where nothing is evicted.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`]; [`PoolError::Looking`].
    pub fn allocate_object(
        &self,
        page_count: u32,
        reserve_count: u32,
    ) -> Result<ExclusiveGuard<'_>, PoolError> {
        assert!(page_count > 0, "an object has pages");
        if is_looking() {
            return Err(PoolError::Looking);
        }
        if failing::is_refused(Failure::NoPages) {
            return Err(PoolError::Exhausted { page_count });
        }
        let start = self.supply().take(page_count, reserve_count)?;
        failing::note_allocated(self.residency().met(), start, page_count);
        let mut object = ExclusiveGuard::allocated(self, start);
        // Large objects may begin in memory that reads as zero, but for those that found no place of their own.
        if (page_count > SMALL_PAGES_MAX || reserve_count > page_count) && !self.pages().begins_as_zero(start)
        {
            object.zero(0..page_count);
        }
        Ok(object)
    }

    /// Pages to which an object of `page_count` pages can grow in place.
    pub fn capacity(&self, object: PageId, page_count: u32) -> u32 {
        self.supply().capacity(object, page_count)
    }

    /// Grows an object in place, by pages of zeros. False if its block is too small: the caller moves it.
    pub fn extend(&self, object: &mut ExclusiveGuard<'_>, old_count: u32, new_count: u32) -> bool {
        let is_extended = self.supply().extend(object.id(), old_count, new_count);
        if is_extended {
            failing::note_allocated(
                self.residency().met(),
                PageId(object.id().0 + old_count),
                new_count - old_count,
            );
        }
        if is_extended && !self.pages().begins_as_zero(object.id()) {
            object.zero(old_count..new_count);
        }
        is_extended
    }

    /// Frees an object with all its pages; `page_count` is what it was allocated with or extended to (O1).
    /// A cut that needs the content keeps it; otherwise the pages can be allocated again at once. Of a count that somebody has
    /// made up nothing is freed.
    pub fn free(&self, object: ExclusiveGuard<'_>, page_count: u32) {
        if let Some(extent) = mark_freed(self, object.id(), page_count) {
            self.supply().let_go_of(object.into_id());
            self.supply().finish_free(extent);
        }
    }

    /// Frees an object without its head's latch, because the head is not in memory or cannot be read. Only for what
    /// nothing refers to any more. False if there are no such pages.
    #[must_use]
    pub fn free_unread(&self, head: PageId, page_count: u32) -> bool {
        let extent = mark_freed(self, head, page_count);
        extent.into_iter().for_each(|extent| self.supply().finish_free(extent));
        extent.is_some()
    }

    /// Frees the pages `[start, end)`, which nothing refers to any more, whatever objects they make up. An object that
    /// does not begin among them is left alone. Returns up to where it has got: it frees some at a time.
    pub fn free_orphans(&self, start: u32, end: u32) -> u32 {
        let (block, block_end) = self.supply().block_at(PageId(start));
        let small_end = if self.pages().is_small(block) { start + ORPHANS_AT_ONCE } else { block_end };
        let part_end = end.min(block_end).min(small_end);
        if block.0 == start {
            // They are in use, so they exist.
            let _ = self.free_unread(block, part_end - start);
        }
        part_end
    }

    /// Frees a page that others may be reading optimistically: it is not used again before each member of the barrier
    /// has been between two commands (P5). Content of other kinds is written in other ways.
    pub fn free_node(&self, node: ExclusiveGuard<'_>) {
        if mark_freed(self, node.id(), 1).is_some() {
            self.supply().free_node(node.into_id());
        }
    }

    /// Gives all free memory back to the system, that of free pages and of idle spare frames, in the background but at
    /// once. Without this a reserve is kept, and the rest given back after a while.
    pub fn purge(&self) {
        self.supply().purge();
        self.keeper().into_iter().for_each(Keeper::purge);
    }
}

/// Marks an extent as freed; views that see a page of it that nobody could read are told. None if there is no such object.
fn mark_freed(pool: &Pool, start: PageId, page_count: u32) -> Option<Extent> {
    let extent = Extent { start, page_count };
    if page_count == 0 || !pool.supply().may_be_freed(extent) {
        return None;
    }
    if pool.residency().has_damage() {
        let damaged = extent.pages().filter_map(|page| Some((page, pool.residency().damage_in_place(page)?)));
        damaged.for_each(|(page, why)| {
            pool.snapshotter().before_free_of_damaged(pool.core(), page, &why);
            pool.residency().forget_damage(page);
        });
    }
    pool.supply().mark_freed(extent).then_some(extent)
}

//! A list of any length of what is to be freed. Its newest entries are in memory, and a cut writes them to a page of
//! the catalog; older ones lie in pages of their own, mostly full, which name the page before them.
//!
//! ```text
//! memory, at a cut the catalog: newest entries ─▶ page of older ones ─▶ page of the oldest
//! page    0 kind u8 | 2 entry_count u16 | 4 pid u32 of the page before it | 8 entries, 8 bytes each:
//!         page u32 | place u32 (0: a tree; bit 31: a slab slot; else a page count)
//! ```

use stillframe_pagepool::{PageId, Pool, PoolError};

use super::blob::BlobPlace;
use crate::page::{get_u16, get_u32, put_u16, put_u32, Page, KIND_DISCARDS, PAGE_SIZE};
use crate::stop::Stop;

const HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8;
/// Entries of a page.
pub(crate) const PAGE_ENTRIES: usize = (PAGE_SIZE - HEADER_BYTES) / ENTRY_BYTES;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discarded {
    Tree { root: PageId },
    Blob { pid: PageId, place: BlobPlace },
}

impl Discarded {
    fn encode(self, page: &mut Page, at: usize) {
        let (pid, place) = match self {
            Discarded::Tree { root } => (root, 0),
            Discarded::Blob { pid, place } => (pid, place.to_word()),
        };
        put_u32(page, at, pid.0);
        put_u32(page, at + 4, place);
    }

    fn decode(page: &Page, at: usize) -> Discarded {
        let pid = PageId(get_u32(page, at));
        match get_u32(page, at + 4) {
            0 => Discarded::Tree { root: pid },
            place => Discarded::Blob { pid, place: BlobPlace::from_word(place) },
        }
    }
}

/// The list: last in, first out.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Discards {
    /// More than a page of them only while no page can be had.
    pub newest: Vec<Discarded>,
    /// The page of the next older ones; 0 is none.
    pub older: u32,
}

impl Discards {
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty() && self.older == 0
    }

    pub fn push(&mut self, pool: &Pool, entry: Discarded) {
        // Without a page they stay in memory; the next one tries again.
        let _ = self.make_room(pool);
        self.newest.push(entry);
    }

    /// Sees to it that fewer entries than a page holds are in memory.
    pub fn make_room(&mut self, pool: &Pool) -> Result<(), PoolError> {
        self.fit_a_page(pool, 1)
    }

    /// Sees to it that the entries in memory and `more_count` others fit a page.
    pub fn fit_a_page(&mut self, pool: &Pool, more_count: usize) -> Result<(), PoolError> {
        while self.newest.len() + more_count > PAGE_ENTRIES && !self.newest.is_empty() {
            let moved = self.newest.len().min(PAGE_ENTRIES);
            let mut guard = pool.allocate()?;
            let oldest = Discards { newest: self.newest[..moved].to_vec(), older: self.older };
            *guard.page_mut() = oldest.to_page();
            self.older = guard.id().0;
            self.newest.drain(..moved);
        }
        Ok(())
    }

    /// Takes the last entry. Nothing changes if its page is not in memory.
    pub fn pop(&mut self, pool: &Pool) -> Result<Option<Discarded>, Stop> {
        while self.newest.is_empty() && self.older != 0 {
            let guard = pool.exclusive(PageId(self.older))?;
            *self = Discards::from_page(guard.page()).ok_or_else(|| not_discards(guard.id()))?;
            pool.free(guard, 1);
        }
        Ok(self.newest.pop())
    }

    /// The list as one page. Its newest entries fit there ([`Discards::fit_a_page`]).
    pub fn to_page(&self) -> Page {
        let mut page = [0; PAGE_SIZE];
        page[0] = KIND_DISCARDS;
        debug_assert!(self.newest.len() <= PAGE_ENTRIES);
        put_u16(&mut page, 2, self.newest.len() as u16);
        put_u32(&mut page, 4, self.older);
        for (entry, at) in self.newest.iter().zip((HEADER_BYTES..PAGE_SIZE).step_by(ENTRY_BYTES)) {
            entry.encode(&mut page, at);
        }
        page
    }

    /// `None` if the page is none of a list.
    pub fn from_page(page: &Page) -> Option<Discards> {
        let entry_count = usize::from(get_u16(page, 2));
        if page[0] != KIND_DISCARDS || entry_count > PAGE_ENTRIES {
            return None;
        }
        let places = (HEADER_BYTES..PAGE_SIZE).step_by(ENTRY_BYTES).take(entry_count);
        Some(Discards {
            newest: places.map(|at| Discarded::decode(page, at)).collect(),
            older: get_u32(page, 4),
        })
    }
}

pub(crate) fn not_discards(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a list of what is to be freed was expected", pid.0).into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stillframe_pagepool::{Layout, PoolOptions};

    use super::*;

    fn pool(layout: Layout) -> Arc<Pool> {
        Pool::in_memory(&PoolOptions { layout, ..PoolOptions::default() }).unwrap()
    }

    fn entry(number: u32) -> Discarded {
        match number % 3 {
            0 => Discarded::Tree { root: PageId(number) },
            1 => Discarded::Blob { pid: PageId(number), place: BlobPlace::Object { page_count: number } },
            _ => Discarded::Blob {
                pid: PageId(number),
                place: BlobPlace::Slab { class: 62, slot: number as u16 },
            },
        }
    }

    #[test]
    fn entries_come_back_last_first_and_leave_no_page() {
        let pool = pool(Layout::TINY);
        let allocated = || pool.stats().allocated_pages;
        let before = allocated();
        let (mut list, mut model) = (Discards::default(), Vec::new());
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..40 {
            for _ in 0..random.u32(..3_000) {
                let next = entry(random.u32(1..1 << 20));
                list.push(&pool, next);
                model.push(next);
            }
            let fits = list.newest.len() <= PAGE_ENTRIES
                && allocated() - before <= (model.len() / PAGE_ENTRIES) as u64;
            assert!(fits, "{} entries, {} pages", model.len(), allocated() - before);
            // As after a restart.
            list = Discards::from_page(&list.to_page()).unwrap();
            let left = if round % 4 == 3 { 0 } else { random.usize(..=model.len()) };
            while model.len() > left {
                assert_eq!(list.pop(&pool).unwrap(), model.pop());
            }
            assert_eq!(list.is_empty(), model.is_empty());
        }
        assert_eq!((list.pop(&pool).unwrap(), allocated()), (None, before));
    }

    #[test]
    fn without_a_page_nothing_is_forgotten() {
        let pool = pool(Layout::TINY);
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.allocate().ok()).collect();
        let mut list = Discards::default();
        let count = 2 * PAGE_ENTRIES as u32 + 9;
        (0..count).for_each(|number| list.push(&pool, entry(number)));
        assert!(list.newest.len() == count as usize && list.fit_a_page(&pool, 0).is_err(), "a cut must fail");
        for guard in taken.drain(..2) {
            pool.free(guard, 1);
        }
        list.fit_a_page(&pool, 0).expect("two pages");
        assert_eq!(list.newest.len(), 9);
        for number in (0..count).rev() {
            assert_eq!(list.pop(&pool).unwrap(), Some(entry(number)));
        }
        assert!(list.is_empty());
    }

    #[test]
    fn another_page_is_no_list() {
        let pool = pool(Layout::TINY);
        let mut guard = pool.allocate().unwrap();
        guard.page_mut().fill(0);
        let pid = guard.id();
        drop(guard);
        let mut list = Discards { newest: vec![entry(1)], older: pid.0 };
        assert_eq!(list.pop(&pool).unwrap(), Some(entry(1)));
        assert!(matches!(list.pop(&pool), Err(Stop::Damaged(_))));
        assert_eq!(list.older, pid.0, "nothing has been changed");
    }
}

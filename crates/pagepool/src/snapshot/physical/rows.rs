//! Pages as rows. Algorithms go over all rows, from 0 on; page numbers are sparse over terabytes. So each group of pages gets a
//! group of rows when the first of them is used.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use stillframe_algorithms::RowId;

use crate::space::{Extent, MapError, VirtualArray};
use crate::PageId;

const GROUP_SHIFT: u32 = 10;
const GROUP_PAGES: u32 = 1 << GROUP_SHIFT;

/// See the module.
pub struct PageRows {
    /// By group of pages: its group of rows and one; 0: none yet.
    rows: VirtualArray<AtomicU32>,
    /// By group of rows: its group of pages.
    pages: VirtualArray<AtomicU32>,
    /// Groups of rows that there are.
    group_count: AtomicU32,
    adding: Mutex<()>,
}

impl PageRows {
    /// For pages `0..page_count`, of which `row_limit` or a few more have rows.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn new(page_count: u32, row_limit: u32) -> Result<PageRows, MapError> {
        Ok(PageRows {
            rows: VirtualArray::new(page_count.div_ceil(GROUP_PAGES) as usize)?,
            pages: VirtualArray::new(row_limit.div_ceil(GROUP_PAGES) as usize)?,
            group_count: AtomicU32::new(0),
            adding: Mutex::default(),
        })
    }

    /// The row of a page that has been admitted.
    #[inline]
    pub fn row(&self, page: PageId) -> RowId {
        self.find(page).or_else(|| self.add(page)).expect("each page in use has been admitted")
    }

    /// Gives pages rows; false if there are not as many.
    #[must_use]
    pub fn admit(&self, pages: Extent) -> bool {
        let (first, last) =
            (pages.start.0 >> GROUP_SHIFT, (pages.start.0 + pages.page_count - 1) >> GROUP_SHIFT);
        let first_pages = (first..=last).map(|group| PageId(group << GROUP_SHIFT));
        let mut first_pages = first_pages;
        first_pages.all(|page| self.find(page).or_else(|| self.add(page)).is_some())
    }

    /// The row of a page, if it has one.
    #[inline]
    pub fn find(&self, page: PageId) -> Option<RowId> {
        let group = self.rows.get((page.0 >> GROUP_SHIFT) as usize).load(Ordering::Acquire);
        let first = group.checked_sub(1)? << GROUP_SHIFT;
        Some(RowId(first | page.0 & (GROUP_PAGES - 1)))
    }

    #[cold]
    fn add(&self, page: PageId) -> Option<RowId> {
        let _one_at_a_time = self.adding.lock();
        let (group, next) = (page.0 >> GROUP_SHIFT, self.group_count.load(Ordering::Relaxed));
        let word = self.rows.get(group as usize);
        if word.load(Ordering::Relaxed) == 0 {
            self.pages.try_get(next as usize)?.store(group, Ordering::Relaxed);
            self.group_count.store(next + 1, Ordering::Release);
            word.store(next + 1, Ordering::Release);
        }
        self.find(page)
    }

    /// The page of a row that there is.
    #[inline]
    pub fn page(&self, row: RowId) -> PageId {
        let group = self.pages.get((row.0 >> GROUP_SHIFT) as usize).load(Ordering::Relaxed);
        PageId(group << GROUP_SHIFT | row.0 & (GROUP_PAGES - 1))
    }

    /// Rows that there are, used or not.
    pub fn row_count(&self) -> u32 {
        self.group_count.load(Ordering::Acquire) << GROUP_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_far_apart_have_rows_side_by_side() {
        let rows = PageRows::new(1 << 29, 3 * GROUP_PAGES).unwrap();
        assert_eq!((rows.row_count(), rows.find(PageId(7))), (0, None));
        let pages = [PageId(7), PageId((1 << 29) - 1), PageId(5000), PageId(8), PageId(5001)];
        let found = pages.map(|page| rows.row(page));
        assert_eq!(rows.row_count(), 3 * GROUP_PAGES);
        for (page, row) in pages.into_iter().zip(found) {
            assert!(row.0 < rows.row_count());
            assert_eq!((rows.page(row), rows.row(page), rows.find(page)), (page, row, Some(row)));
        }
        assert_eq!(found[0].0 + 1, found[3].0);
        let admit = |start: u32, page_count: u32| rows.admit(Extent { start: PageId(start), page_count });
        assert!(admit(4096, GROUP_PAGES) && !admit(4096, GROUP_PAGES + 1), "all rows have pages");
    }

    #[test]
    fn threads_that_come_together_find_the_same_row() {
        let rows = PageRows::new(1 << 20, 1 << 20).unwrap();
        let all = std::thread::scope(|scope| {
            let find = || (0..1 << 20).step_by(512).map(|page| rows.row(PageId(page))).collect::<Vec<_>>();
            let threads = [scope.spawn(find), scope.spawn(find)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(all[0], all[1]);
        assert_eq!(rows.row_count(), 1 << 20);
    }
}

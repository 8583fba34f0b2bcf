//! Reading pages back.

use std::io::IoSliceMut;

use super::entry::{Entry, Slot};
use super::{PageError, PageFile};
use crate::{PageId, PAGE_SIZE};

/// Longest read in pages: what the kernel takes in one vectored call.
const READ_PAGES: usize = 1024;

impl PageFile {
    /// Reads page `pid` of the durable checkpoint into `page`, which must be page-aligned, and verifies it.
    ///
    /// On an error the content of `page` is undefined.
    pub fn read_page(&self, pid: PageId, page: &mut [u8; PAGE_SIZE]) -> Result<(), PageError> {
        loop {
            let entry = self.table.get(0, pid.0);
            let result = match entry.slot() {
                None if entry == Entry::NONE => {
                    Err(PageError::Unmapped { file: self.name().to_owned(), pid })
                }
                None => {
                    page.fill(0);
                    Ok(())
                }
                Some(slot) => self
                    .device
                    .read_at(slot.offset(), &mut [IoSliceMut::new(page)])
                    .map_err(|source| PageError::Device { pid, source })
                    .and_then(|()| self.verify(pid, entry, slot, page)),
            };
            // A checkpoint that moved the page in the meantime may have let its old slot be reused.
            if result.is_ok() || self.table.get(0, pid.0) == entry {
                return result;
            }
        }
    }

    /// Reads many pages, each as [`PageFile::read_page`] does; those that lie side by side in the file with one
    /// call. Leaves `pages` sorted by place in the file. Returns what failed; all other pages are verified.
    pub fn read_pages(&self, pages: &mut [(PageId, &mut [u8; PAGE_SIZE])]) -> Vec<PageError> {
        pages.sort_by_cached_key(|(pid, _)| self.table.get(0, pid.0).slot());
        let mut errors = Vec::new();
        let mut rest = pages;
        while !rest.is_empty() {
            let entries = self.adjacent_entries(rest);
            let (run, others) = rest.split_at_mut(entries.len());
            match (run, entries[0].slot()) {
                ([(pid, page)], _) => errors.extend(self.read_page(*pid, page).err()),
                (run, Some(first)) => self.read_run(run, first, &entries, &mut errors),
                _ => {}
            }
            rest = others;
        }
        errors
    }

    /// The entries of the first of `pages`, as far as their slots follow one another.
    fn adjacent_entries(&self, pages: &[(PageId, &mut [u8; PAGE_SIZE])]) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (pid, _) in pages.iter().take(READ_PAGES) {
            let entry = self.table.get(0, pid.0);
            let follows = |last: &Entry| match (last.slot(), entry.slot()) {
                (Some(last), Some(next)) => last.0.checked_add(1) == Some(next.0),
                _ => false,
            };
            if entries.last().is_some_and(|last| !follows(last)) {
                break;
            }
            entries.push(entry);
        }
        entries
    }

    fn read_run(
        &self,
        run: &mut [(PageId, &mut [u8; PAGE_SIZE])],
        first: Slot,
        entries: &[Entry],
        errors: &mut Vec<PageError>,
    ) {
        let mut bufs: Vec<_> = run.iter_mut().map(|(_, page)| IoSliceMut::new(&mut page[..])).collect();
        let whole = self.device.read_at(first.offset(), &mut bufs);
        for ((pid, page), entry) in run.iter_mut().zip(entries) {
            let is_good = whole.is_ok() && crc32c::crc32c(&page[..]) == entry.crc32c();
            if !is_good {
                // Alone: to tell the bad page from its neighbours, or because it has been moved.
                errors.extend(self.read_page(*pid, page).err());
            }
        }
    }

    fn verify(&self, pid: PageId, entry: Entry, slot: Slot, page: &[u8; PAGE_SIZE]) -> Result<(), PageError> {
        let (found_crc32c, expected_crc32c) = (crc32c::crc32c(page), entry.crc32c());
        if found_crc32c == expected_crc32c {
            return Ok(());
        }
        Err(PageError::Damaged { file: self.name().to_owned(), pid, slot, expected_crc32c, found_crc32c })
    }
}

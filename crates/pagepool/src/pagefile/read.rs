//! Reading pages back.

use std::io::IoSliceMut;

use parking_lot::Mutex;

use super::entry::{Entry, PageBuf, Slot, SlotRun};
use super::{parallel, PageError, PageFile, PageFileError};
use crate::device::{DeviceError, DeviceErrorKind, DeviceOp};
use crate::{PageBytes, PageId, PAGE_SIZE};

/// Longest read in pages: what the kernel takes in one vectored call.
const READ_PAGES: usize = 1024;
/// Longest read of what has just been written, in pages (1 MB).
const READ_BACK_PAGES: usize = 256;
/// Unwanted pages between two wanted ones that cost less to read than another call does.
const GAP_PAGES: usize = 16;
/// Unwanted pages of one call; bounds the memory they are read into (1 MB).
const GAP_TOTAL: usize = 256;

impl PageFile {
    /// Reads page `pid` of the durable checkpoint into `page`, which must be page-aligned, and verifies it.
    ///
    /// On an error the content of `page` is undefined.
    pub fn read_page(&self, pid: PageId, page: &mut PageBytes) -> Result<(), PageError> {
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

    /// Reads many pages, each as [`PageFile::read_page`] does; those that lie close together in the file with one
    /// call. Leaves `pages` sorted by place in the file. Returns what failed; all other pages are verified.
    pub fn read_pages(&self, pages: &mut [(PageId, &mut PageBytes)]) -> Vec<PageError> {
        pages.sort_by_cached_key(|(pid, _)| self.table.get(0, pid.0).slot());
        let mut runs = Vec::new();
        let mut rest = pages;
        while !rest.is_empty() {
            let entries = self.close_entries(rest);
            let (run, others) = rest.split_at_mut(entries.len());
            runs.push(Mutex::new((run, entries)));
            rest = others;
        }
        let errors = Mutex::new(Vec::new());
        let done = parallel::for_each(self.device.parallelism(), &runs, |run| {
            let (pages, entries) = &mut *run.lock();
            errors.lock().extend(self.read_run(pages, entries));
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = done;
        errors.into_inner()
    }

    /// The entries of the first of `pages`, as far as one call can read them.
    fn close_entries(&self, pages: &[(PageId, &mut PageBytes)]) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let (mut buf_count, mut gap_count) = (0, 0);
        for (pid, _) in pages {
            let entry = self.table.get(0, pid.0);
            if let Some(last) = entries.last() {
                let Some(gap) = gap_between(*last, entry) else { break };
                (buf_count, gap_count) = (buf_count + gap, gap_count + gap);
            }
            buf_count += 1;
            if buf_count > READ_PAGES || gap_count > GAP_TOTAL {
                break;
            }
            entries.push(entry);
        }
        entries
    }

    /// Reads pages at ascending slots, close together, with one call.
    fn read_run(&self, run: &mut [(PageId, &mut PageBytes)], entries: &[Entry]) -> Vec<PageError> {
        if let [(pid, page)] = run {
            return self.read_page(*pid, page).err().into_iter().collect();
        }
        let gap_before =
            |at: usize| if at == 0 { 0 } else { gap_between(entries[at - 1], entries[at]).unwrap_or(0) };
        let mut gaps = vec![PageBuf::ZERO; (0..entries.len()).map(gap_before).sum()];
        let mut unused = gaps.iter_mut();
        let mut bufs = Vec::with_capacity(run.len() + unused.len());
        for (at, (_, page)) in run.iter_mut().enumerate() {
            bufs.extend(unused.by_ref().take(gap_before(at)).map(|gap| IoSliceMut::new(&mut gap.0)));
            bufs.push(IoSliceMut::new(&mut page[..]));
        }
        let is_read =
            entries[0].slot().is_some_and(|first| self.device.read_at(first.offset(), &mut bufs).is_ok());
        let is_good = |page: &PageBytes, entry: &Entry| is_read && crc32c::crc32c(page) == entry.crc32c();
        // A bad page is read again alone: to tell it from its neighbours, or because it has been moved.
        let bad = run.iter_mut().zip(entries).filter(|((_, page), entry)| !is_good(page, entry));
        bad.filter_map(|((pid, page), _)| self.read_page(*pid, page).err()).collect()
    }

    /// Fails, for good, unless the slots of `runs` hold `pages`: the disk has acknowledged writes that it lost, tore or
    /// did elsewhere.
    pub(super) fn read_back(
        &self,
        runs: &[SlotRun],
        pages: &mut dyn Iterator<Item = &PageBuf>,
    ) -> Result<(), PageFileError> {
        let mut found = Vec::new();
        for run in runs {
            let end = run.first.0 + run.slot_count;
            for first in (run.first.0..end).step_by(READ_BACK_PAGES).map(Slot) {
                found.resize(READ_BACK_PAGES.min((end - first.0) as usize), PageBuf::ZERO);
                let mut bufs: Vec<_> = found.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
                self.device.read_at(first.offset(), &mut bufs).map_err(|error| self.fail(error))?;
                let differs = found.iter().zip(&mut *pages).position(|(found, page)| found.0 != page.0);
                if let Some(index) = differs {
                    let (op, kind) = (DeviceOp::Write, DeviceErrorKind::NotWritten);
                    let offset = Slot(first.0 + index as u32).offset();
                    let device = self.name().to_owned();
                    return Err(self.fail(DeviceError { device, op, offset, len: PAGE_SIZE as u64, kind }));
                }
            }
        }
        Ok(())
    }

    fn verify(&self, pid: PageId, entry: Entry, slot: Slot, page: &PageBytes) -> Result<(), PageError> {
        let (found_crc32c, expected_crc32c) = (crc32c::crc32c(page), entry.crc32c());
        if found_crc32c == expected_crc32c {
            return Ok(());
        }
        Err(PageError::Damaged { file: self.name().to_owned(), pid, slot, expected_crc32c, found_crc32c })
    }
}

/// How many slots lie between two entries, if the second comes after the first and near enough to be read with it.
fn gap_between(first: Entry, second: Entry) -> Option<usize> {
    let gap = second.slot()?.0.checked_sub(first.slot()?.0.checked_add(1)?)? as usize;
    (gap <= GAP_PAGES).then_some(gap)
}

//! Reading pages back.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::entry::{Entry, Slot, SlotRun};
use super::error::{PageError, PageFileError};
use super::file::PageFile;
use super::table::Content;
use crate::device::{Bufs, DeviceError, DeviceErrorKind, DeviceOp, PageBuf, Transfer};
use crate::{PageBytes, PageId, PAGE_SIZE};

/// How often a page that the device could not read is tried before it counts as unreadable.
const READ_ATTEMPTS: u32 = 3;

/// Longest transfer in pages: what the kernel takes in one vectored call.
const READ_PAGES: usize = 1024;
/// Longest read of what has just been written, in pages (1 MB).
const READ_BACK_PAGES: usize = 256;
/// Unwanted pages between two wanted ones that cost less to read than another operation does, at most; among few wanted
/// pages so many as there are, or these. With more, random reads of skewed data took twice what they wanted from the disk.
const GAP_PAGES: usize = 16;
const SPARSE_GAP_PAGES: usize = 2;
/// Unwanted pages of one transfer (1 MB).
const GAP_TOTAL: usize = 256;
/// Unwanted pages of one call, but for its last transfer; bounds the memory they are read into (8 MB).
const CALL_GAP_TOTAL: usize = 2048;

impl PageFile {
    /// Reads page `pid` from its location (what was written back last, else what the durable checkpoint has) into `page`,
    /// which must be page-aligned, and verifies it. Locations may change meanwhile: what is read was at one of them.
    ///
    /// On an error the content of `page` is undefined, but for what does not fit its checksum: that is as it was read.
    pub fn read_page(&self, pid: PageId, page: &mut PageBytes) -> Result<(), PageError> {
        self.read_content(Content::Newest, pid, page)
    }

    /// The same; what the device could not read is tried again.
    pub fn read_page_patiently(&self, pid: PageId, page: &mut PageBytes) -> Result<(), PageError> {
        let mut result = self.read_page(pid, page);
        for _ in 1..READ_ATTEMPTS {
            if !matches!(result, Err(PageError::Device { .. })) {
                break;
            }
            result = self.read_page(pid, page);
        }
        result
    }

    /// The same, of that content.
    pub(super) fn read_content(
        &self,
        content: Content,
        pid: PageId,
        page: &mut PageBytes,
    ) -> Result<(), PageError> {
        loop {
            let entry = self.table.entry(content, pid.0);
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
            // Who moved the page in the meantime may have let its old slot be reused.
            if result.is_ok() || self.table.entry(content, pid.0) == entry {
                return result;
            }
        }
    }

    /// Reads many pages, each as [`PageFile::read_page`] does; those that lie close together in the file with one
    /// call. Leaves `pages` sorted by place in the file. Returns what failed; all other pages are verified.
    pub fn read_pages(&self, pages: &mut [(PageId, &mut PageBytes)]) -> Vec<PageError> {
        self.read_contents(Content::Newest, pages)
    }

    /// The same, and `told` is called, perhaps on other threads, for each page that is good as soon as it has come: its memory
    /// is not touched after that. Those that failed follow in the end.
    pub fn read_pages_telling(
        &self,
        pages: &mut [(PageId, &mut PageBytes)],
        told: &(dyn Fn(PageId) + Sync),
    ) -> Vec<PageError> {
        self.read_contents_telling(Content::Newest, pages, told)
    }

    /// As [`PageFile::read_pages`], of that content.
    pub(super) fn read_contents(
        &self,
        content: Content,
        pages: &mut [(PageId, &mut PageBytes)],
    ) -> Vec<PageError> {
        self.read_contents_telling(content, pages, &|_| ())
    }

    fn read_contents_telling(
        &self,
        content: Content,
        pages: &mut [(PageId, &mut PageBytes)],
        told: &(dyn Fn(PageId) + Sync),
    ) -> Vec<PageError> {
        pages.sort_by_cached_key(|(pid, _)| self.table.entry(content, pid.0).slot());
        let pids: Vec<PageId> = pages.iter().map(|(pid, _)| *pid).collect();
        let wanted = pages.iter_mut().map(|(pid, page)| (self.table.entry(content, pid.0), &mut **page));
        let bad = self.read_entries(&mut wanted.collect::<Vec<_>>(), &|index| told(pids[index]));
        // A bad page is read again alone: to tell it from its neighbours, or because it has been moved.
        let again = |index: usize| {
            let (pid, page) = &mut pages[index];
            match self.read_content(content, *pid, page) {
                Ok(()) => {
                    told(*pid);
                    None
                }
                Err(error) => Some(error),
            }
        };
        bad.into_iter().filter_map(again).collect()
    }

    /// Reads what entries name, sorted by slot, into memory that must be page-aligned; what lies close together with one
    /// transfer, and as few calls as the bound on memory allows. Returns the indices of those that are not what their
    /// entries say, or have no slot; of each of the others `told` hears as it comes.
    pub(super) fn read_entries(
        &self,
        wanted: &mut [(Entry, &mut PageBytes)],
        told: &(dyn Fn(usize) + Sync),
    ) -> Vec<usize> {
        let (mut bad, mut first, mut rest) = (Vec::new(), 0, wanted);
        while !rest.is_empty() {
            let runs = next_runs(rest, gap_pages(self));
            let (now, later) = rest.split_at_mut(runs.iter().map(Vec::len).sum());
            let told = |index| told(first + index);
            bad.extend(self.read_runs(now, &runs, &told).into_iter().map(|index| first + index));
            first += now.len();
            rest = later;
        }
        bad
    }

    /// Reads pages with one call, those of each run with one transfer. Returns the indices of bad ones.
    fn read_runs(
        &self,
        wanted: &mut [(Entry, &mut PageBytes)],
        runs: &[Vec<Entry>],
        told: &(dyn Fn(usize) + Sync),
    ) -> Vec<usize> {
        let mut gaps = vec![PageBuf::ZERO; runs.iter().map(|entries| gaps_in(entries)).sum()];
        let (mut unused, mut rest) = (gaps.iter_mut(), wanted.iter_mut());
        let (mut transfers, mut reads, mut without_slot) = (Vec::new(), Vec::new(), Vec::new());
        let mut first_index = 0;
        for entries in runs {
            let run = rest.by_ref().take(entries.len());
            if let Some(slot) = entries[0].slot() {
                let mut bufs = Vec::with_capacity(entries.len());
                for (at, (_, page)) in run.enumerate() {
                    let gap = unused.by_ref().take(gap_before(entries, at));
                    bufs.extend(gap.map(|gap| IoSliceMut::new(&mut gap.0)));
                    bufs.push(IoSliceMut::new(&mut page[..]));
                }
                transfers.push(Transfer { offset: slot.offset(), bufs: Bufs::Read(bufs) });
                reads.push((first_index, entries));
            } else {
                // No slot, no neighbours.
                without_slot.extend(run.map(|_| first_index));
            }
            first_index += entries.len();
        }
        let bad = Mutex::new(without_slot);
        self.device.transfer(&mut transfers, &|index, transfer, result| {
            let (first_index, entries) = &reads[index];
            for (at, is_good) in (*first_index..).zip(good_pages(entries, transfer, result.is_ok())) {
                match is_good {
                    true => told(at),
                    false => bad.lock().push(at),
                }
            }
        });
        bad.into_inner()
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

/// The entries of the first of `wanted`, by what is read together, as far as one call does it.
fn next_runs(wanted: &[(Entry, &mut PageBytes)], gap_pages: usize) -> Vec<Vec<Entry>> {
    let (mut runs, mut rest, mut gap_count) = (Vec::new(), wanted, 0);
    while !rest.is_empty() && gap_count <= CALL_GAP_TOTAL {
        let entries = close_entries(rest, gap_pages);
        gap_count += gaps_in(&entries);
        rest = &rest[entries.len()..];
        runs.push(entries);
    }
    runs
}

/// The entries of the first of `wanted`, as far as one transfer can read them.
fn close_entries(wanted: &[(Entry, &mut PageBytes)], gap_pages: usize) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut buf_count, mut gap_count) = (0, 0);
    for (entry, _) in wanted {
        if let Some(last) = entries.last() {
            let most = entries.len().max(SPARSE_GAP_PAGES).min(gap_pages);
            let Some(gap) = gap_between(*last, *entry).filter(|&gap| gap <= most) else { break };
            (buf_count, gap_count) = (buf_count + gap, gap_count + gap);
        }
        buf_count += 1;
        if buf_count > READ_PAGES || gap_count > GAP_TOTAL {
            break;
        }
        entries.push(*entry);
    }
    entries
}

/// Unwanted pages before the `at`-th of entries that are read together.
fn gap_before(entries: &[Entry], at: usize) -> usize {
    match at {
        0 => 0,
        _ => gap_between(entries[at - 1], entries[at]).unwrap_or(0),
    }
}

/// Unwanted pages among entries that are read together.
fn gaps_in(entries: &[Entry]) -> usize {
    (0..entries.len()).map(|at| gap_before(entries, at)).sum()
}

/// Which of the wanted pages of a transfer are what they are to be.
fn good_pages(entries: &[Entry], read: &Transfer<'_>, is_read: bool) -> Vec<bool> {
    let Bufs::Read(bufs) = &read.bufs else { unreachable!("pages are read") };
    let mut place = 0;
    let is_good = |(at, entry): (usize, &Entry)| {
        place += gap_before(entries, at) + 1;
        is_read && crc32c::crc32c(&bufs[place - 1]) == entry.crc32c()
    };
    entries.iter().enumerate().map(is_good).collect()
}

/// How many slots lie between two entries, if the second comes after the first and near enough to be read with it.
fn gap_between(first: Entry, second: Entry) -> Option<usize> {
    let gap = second.slot()?.0.checked_sub(first.slot()?.0.checked_add(1)?)? as usize;
    (gap <= GAP_PAGES).then_some(gap)
}

/// Unwanted pages between two wanted ones, at most. Gaps are read into buffers of their own.
fn gap_pages(file: &PageFile) -> usize {
    if file.reads_gaps.load(Ordering::Relaxed) {
        GAP_PAGES
    } else {
        0
    }
}

//! Writing pages to slots.

use std::io::IoSlice;

use super::entry::{is_all_zero, Entry, SlotRun, PAGE_ID_LIMIT};
use super::error::PageFileError;
use super::file::PageFile;
use crate::device::{write_all, Bufs, Transfer};
use crate::sched::idly;
use crate::{PageBytes, PageId};

/// Longest write in pages (1 MB).
const WRITE_PAGES: usize = 256;

/// Pages that are going to be written, and which of them take a slot: those of zeros do not.
pub(super) struct Batch<'p> {
    pages: &'p [(PageId, &'p PageBytes)],
    is_stored: Vec<bool>,
    bufs: Vec<IoSlice<'p>>,
}

impl<'p> Batch<'p> {
    /// Fails if a page is beyond what the map can name.
    pub fn new(pages: &'p [(PageId, &'p PageBytes)]) -> Result<Batch<'p>, PageFileError> {
        pages.iter().try_for_each(|(pid, _)| check_pid(*pid))?;
        let is_stored: Vec<bool> = idly(|| pages.iter().map(|(_, page)| !is_all_zero(page)).collect());
        let stored = pages.iter().zip(&is_stored).filter(|(_, is_stored)| **is_stored);
        let bufs = stored.map(|((_, page), _)| IoSlice::new(&page[..])).collect();
        Ok(Batch { pages, is_stored, bufs })
    }

    /// The pages that take a slot.
    pub fn stored(&self) -> impl Iterator<Item = PageId> + '_ {
        self.pages.iter().zip(&self.is_stored).filter(|(_, is_stored)| **is_stored).map(|((pid, _), _)| *pid)
    }

    /// Slots that they take.
    pub fn slot_count(&self) -> u32 {
        self.bufs.len() as u32
    }

    /// Pages of zeros.
    pub fn zero_page_count(&self) -> u64 {
        (self.pages.len() - self.bufs.len()) as u64
    }

    /// The contents of those that take a slot.
    pub fn bufs(&self) -> &[IoSlice<'p>] {
        &self.bufs
    }

    /// The entry of each page, if they take the slots of `runs`, one after the other.
    pub fn entries(&self, runs: &[SlotRun]) -> Vec<(PageId, Entry)> {
        let mut slots = runs.iter().flat_map(|run| run.slots());
        let place = |((pid, page), is_stored): (&(PageId, &PageBytes), &bool)| {
            let slot = if *is_stored { slots.next() } else { None };
            (*pid, slot.map_or(Entry::ZEROS, |slot| Entry::new(slot, crc32c::crc32c(*page))))
        };
        idly(|| self.pages.iter().zip(&self.is_stored).map(place).collect())
    }
}

pub(super) fn check_pid(pid: PageId) -> Result<(), PageFileError> {
    match pid.0 < PAGE_ID_LIMIT {
        true => Ok(()),
        false => Err(PageFileError::PageIdTooLarge { pid }),
    }
}

impl PageFile {
    /// Writes `bufs`, one page each, to the slots of `runs`, one after the other, with one call.
    pub(super) fn write_runs(&self, runs: &[SlotRun], bufs: &[IoSlice<'_>]) -> Result<(), PageFileError> {
        let mut writes = Vec::with_capacity(runs.len());
        let mut rest = bufs;
        for run in runs {
            let (bufs, others) = rest.split_at(run.slot_count as usize);
            rest = others;
            let parts = run.slots().step_by(WRITE_PAGES).zip(bufs.chunks(WRITE_PAGES));
            writes.extend(
                parts.map(|(slot, bufs)| Transfer { offset: slot.offset(), bufs: Bufs::Write(bufs) }),
            );
        }
        let written = idly(|| write_all(&*self.device, writes));
        written.map_err(|error| self.note_write_error(error))
    }
}

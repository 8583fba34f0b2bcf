//! Versions of pages in slots of their own: before-images that outgrow their memory budget, and what was written back before
//! a page changed.

use std::io::{IoSlice, IoSliceMut};

use super::entry::{is_all_zero, Entry};
use super::error::{PageFileError, SpillError};
use super::file::PageFile;
use super::names::Name;
use super::superblock_io;
use super::table::Content;
use crate::device::PageBuf;
use crate::{PageBytes, PageId};

/// A version of a page in a slot, spilled or kept: give it back with [`PageFile::release_spill`], or the slot stays taken
/// until the file is opened again. Unless a checkpoint adopts it, it is gone after a crash.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the slot stays taken until it is released"]
pub struct Spilled {
    entry: Entry,
}

impl Spilled {
    /// Where it is.
    pub(super) fn entry(&self) -> Entry {
        self.entry
    }
}

impl PageFile {
    /// Writes `page`, which must be page-aligned, to a slot of its own; one of zeros takes none.
    pub fn spill(&self, page: &PageBytes) -> Result<Spilled, SpillError> {
        self.check_failure()?;
        if is_all_zero(page) {
            return Ok(Spilled { entry: Entry::ZEROS });
        }
        superblock_io::protect_superblocks(self)?;
        let slot = self.take_spill_slot()?;
        if let Err(error) = self.device.write_at(slot.offset(), &[IoSlice::new(page)]) {
            self.space.lock().release(Name::Kept, slot);
            return Err(self.note_write_error(error).into());
        }
        Ok(Spilled { entry: Entry::new(slot, crc32c::crc32c(page)) })
    }

    /// Keeps the content at the location of `pid` as a version, without a read or a write; none if it has no content
    /// anywhere. It stays readable whatever becomes of the page, however often checkpoints move it.
    ///
    /// What is kept was the location at one instant of the call, and whose content that is, the caller has to know. He may
    /// rely on this: whoever changes the page first raises its write epoch and then calls
    /// [`PageFile::forget_location`]; what is set as a location afterwards comes later still. All of these and this are in
    /// one order. So if the page was clean and its write epoch was *w* before the call, and both still hold after it, then
    /// the version is the page's content written in *w*. If not, it is of no use and is to be released.
    pub fn keep_location(&self, pid: PageId) -> Option<Spilled> {
        // The location of a page is named, by the durable map if by nobody else, as long as nobody else is in here.
        let mut space = self.space.lock();
        let entry = self.table.entry(Content::Newest, pid.0);
        entry.slot().into_iter().for_each(|slot| space.keep(slot));
        (entry != Entry::NONE).then_some(Spilled { entry })
    }

    /// Whether `pid` has content here: of the durable checkpoint, or written back since.
    pub fn has_page(&self, pid: PageId) -> bool {
        self.table.entry(Content::Newest, pid.0) != Entry::NONE
    }

    /// Reads a version into `page`, which must be page-aligned, and verifies it.
    pub fn read_spill(&self, spilled: &Spilled, page: &mut PageBytes) -> Result<(), SpillError> {
        let Some(slot) = spilled.entry.slot() else {
            page.fill(0);
            return Ok(());
        };
        self.device.read_at(slot.offset(), &mut [IoSliceMut::new(page)]).map_err(PageFileError::Device)?;
        let (found_crc32c, expected_crc32c) = (crc32c::crc32c(page), spilled.entry.crc32c());
        if found_crc32c != expected_crc32c {
            let file = self.name().to_owned();
            return Err(SpillError::Damaged { file, slot, expected_crc32c, found_crc32c });
        }
        Ok(())
    }

    /// Reads many versions, each as [`PageFile::read_spill`] does; those that lie close together in the file with one
    /// transfer, and all with as few calls as a bound on memory allows. What became of each, in order.
    ///
    /// # Errors
    /// Of each version its own: none spoils its neighbours.
    pub fn read_spills(&self, wanted: &mut [(&Spilled, &mut PageBuf)]) -> Vec<Result<(), SpillError>> {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|index| wanted[*index].0.entry.slot());
        let mut by_slot: Vec<_> =
            wanted.iter_mut().map(|(spilled, page)| (spilled.entry, &mut page.0)).collect();
        by_slot.sort_by_key(|(entry, _)| entry.slot());
        let bad = self.read_entries(&mut by_slot, &|_| ());
        let mut results: Vec<_> = wanted.iter().map(|_| Ok(())).collect();
        // What is bad is read again alone: to tell it from its neighbours, and to say what is wrong with it.
        for index in bad.into_iter().map(|place| order[place]) {
            let (spilled, page) = &mut wanted[index];
            results[index] = self.read_spill(spilled, &mut page.0);
        }
        results
    }

    /// Ceases to keep a version. Its slot is let go unless somebody else names it.
    pub fn release_spill(&self, spilled: Spilled) {
        spilled.entry.slot().into_iter().for_each(|slot| self.space.lock().release(Name::Kept, slot));
    }
}

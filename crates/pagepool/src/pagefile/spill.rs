//! Temporary slots, for before-images that outgrow their memory budget.

use std::io::{IoSlice, IoSliceMut};

use super::entry::Slot;
use super::error::{PageFileError, SpillError};
use super::file::PageFile;
use crate::PageBytes;

/// A page in a temporary slot: give it back with [`PageFile::release_spill`], or its slot stays taken until the file
/// is opened again. No checkpoint names it, so after a crash it is gone.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the slot stays taken until it is released"]
pub struct Spilled {
    slot: Slot,
    crc32c: u32,
}

impl PageFile {
    /// Writes `page`, which must be page-aligned, to a temporary slot.
    pub fn spill(&self, page: &PageBytes) -> Result<Spilled, SpillError> {
        self.check_failure()?;
        self.protect_superblocks()?;
        let slot = self.take_spill_slot()?;
        if let Err(error) = self.device.write_at(slot.offset(), &[IoSlice::new(page)]) {
            self.space.lock().release_spill(slot);
            return Err(self.note_write_error(error).into());
        }
        Ok(Spilled { slot, crc32c: crc32c::crc32c(page) })
    }

    /// Reads a spilled page back into `page`, which must be page-aligned, and verifies it.
    pub fn read_spill(&self, spilled: &Spilled, page: &mut PageBytes) -> Result<(), SpillError> {
        let bufs = &mut [IoSliceMut::new(page)];
        self.device.read_at(spilled.slot.offset(), bufs).map_err(PageFileError::Device)?;
        let found_crc32c = crc32c::crc32c(page);
        if found_crc32c != spilled.crc32c {
            let (file, slot, expected_crc32c) = (self.name().to_owned(), spilled.slot, spilled.crc32c);
            return Err(SpillError::Damaged { file, slot, expected_crc32c, found_crc32c });
        }
        Ok(())
    }

    /// Gives the slot of a spilled page back.
    pub fn release_spill(&self, spilled: Spilled) {
        self.space.lock().release_spill(spilled.slot);
    }
}

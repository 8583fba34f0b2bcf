//! Writing superblocks and their witness, in an order in which a crash never leaves two of the three torn.

use std::io::IoSlice;

use super::entry::{Slot, SlotRun};
use super::error::PageFileError;
use super::file::PageFile;
use super::superblock::{Role, Superblock};
use super::superblocks::{Other, Repairs};
use crate::device::PageBuf;

impl PageFile {
    /// Writes the current superblock in place of the other one too, durably, so that the slots which only the other
    /// one names may be reused. Nobody commits at the same time: pages are still being written.
    pub(super) fn mirror_superblock(&self) -> Result<(), PageFileError> {
        // Those who only want to know something do not wait for the disk.
        let _alone = self.mirroring.lock();
        let (current, place) = {
            let superblocks = self.superblocks.lock();
            if superblocks.other == Other::Mirror {
                return Ok(());
            }
            (superblocks.current.clone(), superblocks.place)
        };
        // The last confirmation need not be durable yet: torn together with the superblock it would leave a doubt.
        self.write_witness(&current, Role::Confirmed)?;
        self.device.sync_data().map_err(|error| self.fail(error))?;
        self.write_superblock(1 - place, &current)?;
        self.superblocks.lock().other = Other::Mirror;
        Ok(())
    }

    /// Sees to it that whatever the superblocks on disk name is protected; before any slot is written.
    pub(super) fn protect_superblocks(&self) -> Result<(), PageFileError> {
        match self.superblocks.lock().other {
            Other::Unprotected => {}
            Other::Previous | Other::Mirror => return Ok(()),
        }
        self.mirror_superblock()
    }

    /// Writes, syncs and reads back a superblock. Every failure is sticky: nobody knows which superblock is there now.
    pub(super) fn write_superblock(&self, place: u32, superblock: &Superblock) -> Result<(), PageFileError> {
        let page = Box::new(superblock.encode(Role::Superblock));
        self.device
            .write_at(Slot(place).offset(), &[IoSlice::new(&page.0)])
            .map_err(|error| self.fail(error))?;
        self.device.sync_data().map_err(|error| self.fail(error))?;
        self.read_back_slot(Slot(place), &page)
    }

    /// Writes the witness; the next sync makes it durable. The superblocks are intact, so nothing depends on it yet.
    pub(super) fn write_witness(&self, superblock: &Superblock, role: Role) -> Result<(), PageFileError> {
        let page = Box::new(superblock.encode(role));
        self.device
            .write_at(Slot::WITNESS.offset(), &[IoSlice::new(&page.0)])
            .map_err(|error| self.note_write_error(error))
    }

    /// Fails, for good, unless the synced witness is what was written.
    pub(super) fn read_back_witness(&self, superblock: &Superblock, role: Role) -> Result<(), PageFileError> {
        self.read_back_slot(Slot::WITNESS, &superblock.encode(role))
    }

    fn read_back_slot(&self, slot: Slot, page: &PageBuf) -> Result<(), PageFileError> {
        self.read_back(&[SlotRun { first: slot, slot_count: 1 }], &mut [page].into_iter())
    }

    /// Writes anew what opening found damaged or superseded among the copies of the superblock.
    pub(super) fn repair(&self, repairs: &Repairs) -> Result<(), PageFileError> {
        let superblocks = self.superblocks.lock();
        let current = &superblocks.current;
        if repairs.witness {
            self.write_witness(current, Role::Confirmed)?;
            self.device.sync_data().map_err(|error| self.fail(error))?;
        }
        repairs.places.iter().try_for_each(|place| self.write_superblock(*place, current))?;
        if repairs.confirmation {
            self.write_witness(current, Role::Confirmed)?;
            self.device.sync_data().map_err(|error| self.fail(error))?;
        }
        Ok(())
    }
}

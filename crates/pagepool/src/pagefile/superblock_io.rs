//! Writing superblocks and their witness, in an order in which a crash never leaves two of the three torn.

use std::io::IoSlice;

use super::entry::{Slot, SlotRun};
use super::error::PageFileError;
use super::file::PageFile;
use super::superblock::{Role, Superblock};
use super::superblocks::{Other, Repairs};
use crate::device::PageBuf;

/// Writes the current superblock in place of the other one too, durably, so that the slots which only the other
/// one names may be reused. Nobody commits at the same time: pages are still being written.
pub(super) fn mirror_superblock(file: &PageFile) -> Result<(), PageFileError> {
    // Those who only want to know something do not wait for the disk.
    let _alone = file.mirroring.lock();
    let (current, place) = {
        let superblocks = file.superblocks.lock();
        if superblocks.other == Other::Mirror {
            return Ok(());
        }
        (superblocks.current.clone(), superblocks.place)
    };
    // The last confirmation need not be durable yet: torn together with the superblock it would leave a doubt.
    write_witness(file, &current, Role::Confirmed)?;
    file.device.sync_data().map_err(|error| file.fail(error))?;
    write_superblock(file, 1 - place, &current)?;
    file.superblocks.lock().other = Other::Mirror;
    Ok(())
}

/// Sees to it that whatever the superblocks on disk name is protected; before any slot is written.
pub(super) fn protect_superblocks(file: &PageFile) -> Result<(), PageFileError> {
    match file.superblocks.lock().other {
        Other::Unprotected => {}
        Other::Previous | Other::Mirror => return Ok(()),
    }
    mirror_superblock(file)
}

/// Writes, syncs and reads back a superblock. Every failure is sticky: nobody knows which superblock is there now.
pub(super) fn write_superblock(
    file: &PageFile,
    place: u32,
    superblock: &Superblock,
) -> Result<(), PageFileError> {
    let page = Box::new(superblock.encode(Role::Superblock));
    file.device.write_at(Slot(place).offset(), &[IoSlice::new(&page.0)]).map_err(|error| file.fail(error))?;
    file.device.sync_data().map_err(|error| file.fail(error))?;
    read_back_slot(file, Slot(place), &page)
}

/// Writes the witness; the next sync makes it durable. The superblocks are intact, so nothing depends on it yet.
pub(super) fn write_witness(
    file: &PageFile,
    superblock: &Superblock,
    role: Role,
) -> Result<(), PageFileError> {
    let page = Box::new(superblock.encode(role));
    file.device
        .write_at(Slot::WITNESS.offset(), &[IoSlice::new(&page.0)])
        .map_err(|error| file.note_write_error(error))
}

/// Fails, for good, unless the synced witness is what was written.
pub(super) fn read_back_witness(
    file: &PageFile,
    superblock: &Superblock,
    role: Role,
) -> Result<(), PageFileError> {
    read_back_slot(file, Slot::WITNESS, &superblock.encode(role))
}

fn read_back_slot(file: &PageFile, slot: Slot, page: &PageBuf) -> Result<(), PageFileError> {
    file.read_back(&[SlotRun { first: slot, slot_count: 1 }], &mut [page].into_iter())
}

/// Writes anew what opening found damaged or superseded among the copies of the superblock.
pub(super) fn repair(file: &PageFile, repairs: &Repairs) -> Result<(), PageFileError> {
    let superblocks = file.superblocks.lock();
    let current = &superblocks.current;
    if repairs.witness {
        write_witness(file, current, Role::Confirmed)?;
        file.device.sync_data().map_err(|error| file.fail(error))?;
    }
    repairs.places.iter().try_for_each(|place| write_superblock(file, *place, current))?;
    if repairs.confirmation {
        write_witness(file, current, Role::Confirmed)?;
        file.device.sync_data().map_err(|error| file.fail(error))?;
    }
    Ok(())
}

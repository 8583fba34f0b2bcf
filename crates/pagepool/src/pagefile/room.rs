//! Room for pages. What has to be asked of the device for it is asked without the lock of [`Space`]: whoever wants sizes, or
//! a slot that is there, does not wait for the disk.

use parking_lot::MutexGuard;

use super::entry::{Slot, SlotRun};
use super::error::PageFileError;
use super::file::PageFile;
use super::names::Name;
use super::space::{Room, Space, Taker};
use super::superblock_io;
use crate::device::{DeviceError, DeviceErrorKind, DeviceOp};

impl PageFile {
    /// Takes `need` slots for the running checkpoint, `new_count` of them for pages that had none.
    pub(super) fn take_slots(&self, need: u32, new_count: u64) -> Result<Vec<SlotRun>, PageFileError> {
        let mut space = self.space.lock();
        space.expect_new(new_count);
        let mut runs = Vec::new();
        self.take_runs(&mut space, Taker::Checkpoint, need, &mut runs)?;
        Ok(runs)
    }

    /// Takes `need` slots for pages that are written back; on an error none.
    pub(super) fn take_located_slots(&self, need: u32) -> Result<Vec<SlotRun>, PageFileError> {
        let mut space = self.space.lock();
        let mut runs = Vec::new();
        let result = self.take_runs(&mut space, Taker::WriteBack, need, &mut runs);
        if let Err(error) = result {
            release_runs(&mut space, Name::Located, &runs);
            return Err(error);
        }
        Ok(runs)
    }

    /// Gives back slots that were taken for pages that are written back.
    pub(super) fn release_located_slots(&self, runs: &[SlotRun]) {
        release_runs(&mut self.space.lock(), Name::Located, runs);
    }

    /// Adds `need` slots to `runs`; on an error perhaps some.
    fn take_runs(
        &self,
        space: &mut MutexGuard<'_, Space>,
        taker: Taker,
        need: u32,
        runs: &mut Vec<SlotRun>,
    ) -> Result<(), PageFileError> {
        let mut missing = need;
        while missing > 0 {
            match space.take(taker, missing) {
                Some(run) => {
                    missing -= run.slot_count;
                    runs.push(run);
                }
                None if space.is_settled() => self.make_room(space, taker, missing)?,
                None => self.wait_until_settled(space)?,
            }
        }
        Ok(())
    }

    /// Finds room after the search found none.
    fn make_room(
        &self,
        space: &mut MutexGuard<'_, Space>,
        taker: Taker,
        need: u32,
    ) -> Result<(), PageFileError> {
        match space.plan(taker, need) {
            Room::Search => Ok(()),
            Room::ReleasePrevious => {
                // First make sure that nobody looks for them there. What others take meanwhile is free in any case.
                MutexGuard::unlocked(space, || superblock_io::mirror_superblock(self))?;
                space.release_previous();
                Ok(())
            }
            Room::Exhausted => Err(self.too_long().into()),
            Room::Grow { slot_count, least } => {
                let tail_start = space.tail_start();
                let wanted = if space.is_disk_full() { least } else { slot_count };
                match self.grow(space, wanted) {
                    Err(error) if error.is_no_space() && !space.is_disk_full() => {
                        space.note_disk_full();
                        Ok(())
                    }
                    Err(error) => Err(self.note_write_error(error)),
                    Ok(()) => {
                        space.search_tail(taker, tail_start);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Takes a slot for a spilled page.
    pub(super) fn take_spill_slot(&self) -> Result<Slot, PageFileError> {
        let mut space = self.space.lock();
        let mut is_disk_full = false;
        loop {
            if let Some(slot) = space.take_spill() {
                return Ok(slot);
            }
            if !space.is_settled() {
                self.wait_until_settled(&mut space)?;
                continue;
            }
            let Room::Grow { slot_count, least } = space.plan_spill() else {
                return Err(self.too_long().into());
            };
            match self.grow(&mut space, if is_disk_full { least } else { slot_count }) {
                Err(error) if error.is_no_space() && !is_disk_full => is_disk_full = true,
                result => result.map_err(|error| self.note_write_error(error))?,
            }
        }
    }

    /// Waits for whoever changes the length of the file. If that has failed for good, nobody tries it again.
    fn wait_until_settled(&self, space: &mut MutexGuard<'_, Space>) -> Result<(), PageFileError> {
        self.resized.wait_while(space, |space| !space.is_settled());
        self.check_failure()
    }

    fn grow(&self, space: &mut MutexGuard<'_, Space>, slot_count: u32) -> Result<(), DeviceError> {
        space.begin_growth();
        let result = MutexGuard::unlocked(space, || self.device.allocate(Slot(slot_count).offset()));
        space.end_growth(result.is_ok().then_some(slot_count));
        self.resized.notify_all();
        result
    }

    /// Shortens the file if a good part of it is not needed. If that fails it merely stays longer.
    pub(super) fn shrink(&self) {
        let mut space = self.space.lock();
        let Some(slot_count) = space.begin_shrinking() else { return };
        let result = MutexGuard::unlocked(&mut space, || self.device.truncate(Slot(slot_count).offset()));
        space.end_shrinking(result.is_ok());
        self.resized.notify_all();
    }

    fn too_long(&self) -> DeviceError {
        DeviceError {
            device: self.name().to_owned(),
            op: DeviceOp::Allocate,
            offset: Slot(u32::MAX).offset(),
            len: 0,
            kind: DeviceErrorKind::NoSpace(rustix::io::Errno::FBIG),
        }
    }
}

fn release_runs(space: &mut Space, name: Name, runs: &[SlotRun]) {
    runs.iter().flat_map(|run| run.slots()).for_each(|slot| space.release(name, slot));
}

//! An open page file: what it consists of, and what is known of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::entry::{Entry, Slot};
use super::error::PageFileError;
use super::space::Space;
use super::superblock::{FileId, NeededPages};
use super::superblocks::Superblocks;
use super::table::{Content, SlotTable};
use crate::device::{Device, DeviceError, IoReport};
use crate::PageId;

/// An open page file. All methods may be called from any thread.
pub struct PageFile {
    pub(super) device: Arc<dyn Device>,
    pub(super) table: SlotTable,
    /// Taken before `superblocks`. Nobody waits for the disk with it (D7).
    pub(super) space: Mutex<Space>,
    /// The length of the file is settled.
    pub(super) resized: Condvar,
    pub(super) superblocks: Mutex<Superblocks>,
    /// Held while a superblock is written over the other one.
    pub(super) mirroring: Mutex<()>,
    pub(super) is_checkpoint_running: AtomicBool,
    /// The error after which nothing is written any more.
    pub(super) failure: OnceLock<String>,
    pub(super) last_checkpoint_bytes: AtomicU64,
    pub(super) needed: NeededPages,
    /// What lies between wanted pages may be read with them.
    pub(super) reads_gaps: AtomicBool,
}

/// Sizes, in slots of 4 KB unless said otherwise. A slot may be counted as several things at once, but for free ones.
#[derive(Clone, Copy, Default, Debug)]
pub struct PageFileStats {
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Generation of the durable checkpoint.
    pub generation: u64,
    /// Pages of the durable checkpoint, those of zeros included.
    pub page_count: u64,
    /// Slots that the durable checkpoint names, its map included.
    pub live_slots: u64,
    /// Slots that the checkpoint before it names and it does not.
    pub previous_slots: u64,
    /// Slots that the running checkpoint names and the durable one does not.
    pub pending_slots: u64,
    /// Slots that hold versions of pages: spilled, or kept where they were.
    pub spilled_slots: u64,
    /// Slots of pages that have been written back since the durable checkpoint.
    pub located_slots: u64,
    /// Slots that nobody uses.
    pub free_slots: u64,
    /// Bytes that the last checkpoint wrote, map and superblock included.
    pub last_checkpoint_bytes: u64,
}

impl PageFile {
    /// Name of the device, for messages.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The number of the file.
    pub fn id(&self) -> FileId {
        self.superblocks.lock().current.file_id
    }

    /// The greatest generation that a checkpoint of this file has, or was to have: one whose commit failed may be on the
    /// disk nevertheless.
    pub fn newest_generation(&self) -> u64 {
        self.superblocks.lock().newest_generation
    }

    /// Calls `visit(first_pid, page_count)` for each run of mapped pages of the durable checkpoint, ascending.
    pub fn for_each_mapped(&self, mut visit: impl FnMut(PageId, u32)) {
        let mut run: Option<(u32, u32)> = None;
        self.table.for_each_node(0, &mut |page, _| {
            run = match run {
                Some((first, count)) if first + count == page => Some((first, count + 1)),
                Some((first, count)) => {
                    visit(PageId(first), count);
                    Some((page, 1))
                }
                None => Some((page, 1)),
            };
        });
        if let Some((first, count)) = run {
            visit(PageId(first), count);
        }
    }

    /// Whether the durable checkpoint has page `pid`.
    pub fn is_mapped(&self, pid: PageId) -> bool {
        self.table.get(0, pid.0) != Entry::NONE
    }

    /// Whether there is content of page `pid`: written back, or in the durable checkpoint.
    pub fn has_content(&self, pid: PageId) -> bool {
        self.table.entry(Content::Newest, pid.0) != Entry::NONE
    }

    /// The error that made the file refuse all writing until it is opened again, if there was one.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// What the device does and has done, if it counts.
    pub fn io_report(&self) -> Option<IoReport> {
        self.device.io_report()
    }

    /// Sizes as of now.
    pub fn stats(&self) -> PageFileStats {
        let (generation, page_count) = {
            let superblocks = self.superblocks.lock();
            (superblocks.current.generation, superblocks.current.page_count)
        };
        let space = self.space.lock();
        PageFileStats {
            file_bytes: Slot(space.slot_count()).offset(),
            generation,
            page_count,
            live_slots: space.names().live_count().into(),
            previous_slots: space.names().previous_count().into(),
            pending_slots: space.names().pending_count().into(),
            spilled_slots: space.names().kept_count().into(),
            located_slots: space.names().located_count().into(),
            free_slots: space.free_count().into(),
            last_checkpoint_bytes: self.last_checkpoint_bytes.load(Ordering::Relaxed),
        }
    }

    /// Refuses after a sticky error.
    pub(super) fn check_failure(&self) -> Result<(), PageFileError> {
        match self.failure.get() {
            Some(cause) => Err(PageFileError::Failed { file: self.name().to_owned(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Makes `error` sticky, unless only space lacks and nothing durable was touched.
    pub(super) fn note_write_error(&self, error: DeviceError) -> PageFileError {
        match error.is_no_space() {
            true => error.into(),
            false => self.fail(error),
        }
    }

    /// Makes `error` sticky.
    pub(super) fn fail(&self, error: impl std::fmt::Display) -> PageFileError {
        // Of several the first counts.
        let cause = self.failure.get_or_init(|| error.to_string()).clone();
        PageFileError::Failed { file: self.name().to_owned(), cause }
    }
}

//! The page file: where checkpoints keep pages, out of place, behind a copy-on-write map and two superblocks.
//!
//! Its format, and the rules by which slots are reused, are in `docs/format.md`. In short: a page lives in a *slot*
//! of 4 KB; the *map* says in which, with a checksum of its content; a checkpoint writes the changed pages and the
//! changed part of the map to free slots, syncs, and then writes the *superblock* that names the new map in place of
//! the older of two, and syncs again. The previous checkpoint stays loadable until the next one needs its room.
//!
//! It knows pages by number and content. It does not know what is in them, does not cache them, and does not decide
//! when to write which.
//!
//! Errors: lack of space fails a checkpoint and nothing else. Any other failed write, and any failed sync, is sticky:
//! no checkpoint and no spilling until the file is opened again, while reads go on. After a failed sync the kernel
//! has dropped what it could not write and will not say so twice, and a disk that fails a write is not to be trusted
//! with the next.

mod bitmap;
mod checkpoint;
mod commit;
mod entry;
mod error;
mod open;
mod parallel;
mod read;
mod relocate;
mod space;
mod spill;
mod superblock;
mod table;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub use checkpoint::CheckpointWriter;
pub use commit::CommitStats;
pub use entry::{PageBuf, Slot, SlotRun};
pub use error::{PageError, PageFileError, SpillError};
pub use spill::Spilled;
pub use superblock::{UserHeader, FORMAT_VERSION, USER_HEADER_BYTES};

use crate::device::{Device, DeviceError, DeviceErrorKind, DeviceOp};
use crate::PageId;
use entry::Entry;
use space::{Room, Space};
use superblock::Superblock;
use table::SlotTable;

/// One more than the greatest page number that a page file can hold.
pub const PAGE_ID_LIMIT: u32 = 1 << 30;

/// Names, from the caller's header, the pages without which a checkpoint is of no use to it: one that has lost such a
/// page does not load, and the previous one does.
pub type NeededPages = fn(&UserHeader) -> Range<u32>;

/// An open page file. All methods may be called from any thread.
pub struct PageFile {
    device: Arc<dyn Device>,
    table: SlotTable,
    /// Taken before `superblocks`.
    space: Mutex<Space>,
    superblocks: Mutex<Superblocks>,
    is_checkpoint_running: AtomicBool,
    /// The error after which nothing is written any more.
    failure: OnceLock<String>,
    last_checkpoint_bytes: AtomicU64,
    needed: NeededPages,
}

/// The durable superblock and what lies in the place of the other.
struct Superblocks {
    current: Superblock,
    /// Slot of the current one, 0 or 1.
    place: u32,
    other: Other,
    /// The greatest generation seen in this file.
    newest_generation: u64,
}

/// What the superblock that is not the current one names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    /// The previous checkpoint; its slots are protected.
    Previous,
    /// The same as the current one.
    Mirror,
    /// Nothing that can be loaded, or slots that are not protected: to be overwritten before any slot is.
    Unprotected,
}

/// What opening found.
#[derive(Debug)]
pub struct Recovered {
    /// Generation of the checkpoint that is served.
    pub generation: u64,
    /// The caller's part of its superblock.
    pub user_header: UserHeader,
    /// Pages it has, those of zeros included.
    pub page_count: u64,
    /// The file was new.
    pub is_new: bool,
    /// A newer checkpoint is in the file and does not load: this is the previous one. `damage` says why.
    pub fell_back: bool,
    /// What is wrong with the checkpoint that is not served, if anything is. A torn superblock is what a crash in
    /// the middle of a commit leaves, and means no loss.
    pub damage: Option<PageFileError>,
}

/// Sizes, in slots of 4 KB unless said otherwise.
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
    /// Slots that only the checkpoint before it names.
    pub previous_slots: u64,
    /// Slots taken by the running checkpoint.
    pub pending_slots: u64,
    /// Slots taken by spilled pages.
    pub spilled_slots: u64,
    /// Slots that nobody uses.
    pub free_slots: u64,
    /// Bytes that the last checkpoint wrote, map and superblock included.
    pub last_checkpoint_bytes: u64,
}

impl PageFile {
    /// Opens the page file on `device`; an empty device becomes an empty page file.
    ///
    /// Serves the newest checkpoint that loads, and says in [`Recovered`] if that is not the newest there is.
    pub fn create_or_open(device: Arc<dyn Device>) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        PageFile::create_or_open_with(device, |_| 0..0)
    }

    /// The same, for a caller that cannot do without some of the pages.
    pub fn create_or_open_with(
        device: Arc<dyn Device>,
        needed: NeededPages,
    ) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        let len = device.len()?;
        if open::is_blank(&*device, len)? {
            open::create(&*device)?;
            return PageFile::open(device, true, needed);
        }
        PageFile::open(device, false, needed)
    }

    fn open(
        device: Arc<dyn Device>,
        is_new: bool,
        needed: NeededPages,
    ) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        let opened = open::open(&*device, needed)?;
        let recovered = Recovered {
            generation: opened.superblock.generation,
            user_header: opened.superblock.user_header,
            page_count: opened.superblock.page_count,
            is_new,
            fell_back: opened.fell_back,
            damage: opened.damage,
        };
        let superblocks = Superblocks {
            current: opened.superblock,
            place: opened.place,
            other: opened.other,
            newest_generation: opened.newest_generation,
        };
        let file = PageFile {
            device,
            table: opened.table,
            space: Mutex::new(Space::recovered(opened.slot_count, opened.slots, opened.previous_slots)),
            superblocks: Mutex::new(superblocks),
            is_checkpoint_running: AtomicBool::new(false),
            failure: OnceLock::new(),
            last_checkpoint_bytes: AtomicU64::new(0),
            needed,
        };
        Ok((Arc::new(file), recovered))
    }

    /// Name of the device, for messages.
    pub fn name(&self) -> &str {
        self.device.name()
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

    /// The error that made the file refuse all writing until it is opened again, if there was one.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
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
            live_slots: space.live_count(),
            previous_slots: space.previous_count().into(),
            pending_slots: space.pending_count().into(),
            spilled_slots: space.spilled_count().into(),
            free_slots: space.free_count().into(),
            last_checkpoint_bytes: self.last_checkpoint_bytes.load(Ordering::Relaxed),
        }
    }

    /// Refuses after a sticky error.
    fn check_failure(&self) -> Result<(), PageFileError> {
        match self.failure.get() {
            Some(cause) => Err(PageFileError::Failed { file: self.name().to_owned(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Makes `error` sticky, unless only space lacks and nothing durable was touched.
    fn note_write_error(&self, error: DeviceError) -> PageFileError {
        match error.is_no_space() {
            true => error.into(),
            false => self.fail(error),
        }
    }

    /// Makes `error` sticky.
    fn fail(&self, error: impl std::fmt::Display) -> PageFileError {
        // Of several the first counts.
        let cause = self.failure.get_or_init(|| error.to_string()).clone();
        PageFileError::Failed { file: self.name().to_owned(), cause }
    }

    /// Takes `need` slots for the running checkpoint, `new_count` of them for pages that had none.
    fn take_slots(&self, need: u32, new_count: u64) -> Result<Vec<SlotRun>, PageFileError> {
        let mut space = self.space.lock();
        space.expect_new(new_count);
        let mut runs = Vec::new();
        let mut missing = need;
        while missing > 0 {
            match space.take(missing) {
                Some(run) => {
                    missing -= run.slot_count;
                    runs.push(run);
                }
                None => self.make_room(&mut space, missing)?,
            }
        }
        Ok(runs)
    }

    /// Finds room for the running checkpoint after the search found none.
    fn make_room(&self, space: &mut Space, need: u32) -> Result<(), PageFileError> {
        match space.plan(need) {
            Room::Search => Ok(()),
            Room::ReleasePrevious => {
                // First make sure that nobody looks for them there.
                self.mirror_superblock()?;
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
                        space.search_tail(tail_start);
                        Ok(())
                    }
                }
            }
        }
    }

    fn grow(&self, space: &mut Space, slot_count: u32) -> Result<(), DeviceError> {
        self.device.allocate(Slot(slot_count).offset())?;
        space.set_slot_count(slot_count);
        Ok(())
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

    /// Writes the current superblock in place of the other one too, durably, so that the slots which only the other
    /// one names may be reused.
    fn mirror_superblock(&self) -> Result<(), PageFileError> {
        let mut superblocks = self.superblocks.lock();
        if superblocks.other == Other::Mirror {
            return Ok(());
        }
        self.write_superblock(1 - superblocks.place, &superblocks.current)?;
        superblocks.other = Other::Mirror;
        Ok(())
    }

    /// Sees to it that whatever the superblocks on disk name is protected; before any slot is written.
    fn protect_superblocks(&self) -> Result<(), PageFileError> {
        match self.superblocks.lock().other {
            Other::Unprotected => {}
            Other::Previous | Other::Mirror => return Ok(()),
        }
        self.mirror_superblock()
    }

    /// Writes, syncs and reads back a superblock. Every failure is sticky: nobody knows which superblock is there now.
    fn write_superblock(&self, place: u32, superblock: &Superblock) -> Result<(), PageFileError> {
        let page = Box::new(superblock.encode());
        let bufs = [std::io::IoSlice::new(&page.0)];
        self.device.write_at(Slot(place).offset(), &bufs).map_err(|error| self.fail(error))?;
        self.device.sync_data().map_err(|error| self.fail(error))?;
        let mut pages = [&*page].into_iter();
        self.read_back(&[SlotRun { first: Slot(place), slot_count: 1 }], &mut pages)
    }
}

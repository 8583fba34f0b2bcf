//! The page file: where checkpoints keep pages, out of place, behind a copy-on-write map and two superblocks.
//!
//! Its format, and the rules by which slots are reused, are in `docs/format.md`. In short: a page lives in a *slot*
//! of 4 KB; the *map* says in which, with a checksum of its content; a checkpoint writes the changed pages and the
//! changed part of the map to free slots, syncs, and then writes the *superblock* that names the new map in place of
//! the older of two, and syncs again. The previous checkpoint stays loadable until the next one needs its room. A third
//! copy of the superblock, the *witness*, is written before and after: by it opening knows which checkpoint was
//! acknowledged last, and it refuses to serve an older one unless told to.
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
mod choice;
mod commit;
mod entry;
mod error;
mod map;
mod open;
mod parallel;
mod read;
mod relocate;
mod space;
mod spill;
mod superblock;
mod superblocks;
mod table;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

pub use checkpoint::CheckpointWriter;
pub use commit::CommitStats;
pub use entry::{PageBuf, Slot, SlotRun};
pub use error::{PageError, PageFileError, SpillError};
pub use spill::Spilled;
pub use superblock::{FileId, UserHeader, FORMAT_VERSION, USER_HEADER_BYTES};

use crate::device::{Device, DeviceError, DeviceErrorKind, DeviceOp, FileDevice, OpenMode};
use crate::PageId;
use entry::Entry;
use space::{Room, Space};
use superblocks::{Other, Superblocks};
use table::SlotTable;

/// One more than the greatest page number that a page file can hold.
pub const PAGE_ID_LIMIT: u32 = 1 << 30;

/// Names, from the caller's header, the pages without which a checkpoint is of no use to it: one that has lost such a
/// page does not load, and the previous one does.
pub type NeededPages = fn(&UserHeader) -> Range<u32>;

/// How a page file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The pages that the caller cannot do without.
    pub needed: NeededPages,
    /// The checkpoint of this generation may be served although a later one was, or may have been, acknowledged. Only
    /// this one: what is accepted is this loss and no other.
    pub accept_loss_after: Option<u64>,
    /// Nothing is written, not even what is damaged among the copies of the superblock.
    pub is_read_only: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { needed: |_| 0..0, accept_loss_after: None, is_read_only: false }
    }
}

/// An open page file. All methods may be called from any thread.
pub struct PageFile {
    device: Arc<dyn Device>,
    table: SlotTable,
    /// Taken before `superblocks`.
    space: Mutex<Space>,
    superblocks: Mutex<Superblocks>,
    /// Held while a superblock is written over the other one.
    mirroring: Mutex<()>,
    is_checkpoint_running: AtomicBool,
    /// The error after which nothing is written any more.
    failure: OnceLock<String>,
    last_checkpoint_bytes: AtomicU64,
    needed: NeededPages,
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
    /// No checkpoint has ever been taken.
    pub is_new: bool,
    /// A later checkpoint was, or may have been, acknowledged: the caller has accepted the loss. `damage` says why.
    pub fell_back: bool,
    /// What is wrong in the file, if anything. Unless `fell_back`, what is served is what was acknowledged last, or a
    /// later checkpoint that a crash left complete.
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
    /// Opens the page file on `device`; an empty device becomes an empty page file. For devices that have no name
    /// under which nothing but a complete page file is ever found; for those see [`PageFile::open_or_create_at`].
    pub fn create_or_open(device: Arc<dyn Device>) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        PageFile::create_or_open_with(device, &OpenOptions::default())
    }

    /// The same, as the options say.
    pub fn create_or_open_with(
        device: Arc<dyn Device>,
        options: &OpenOptions,
    ) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        if device.is_empty()? {
            open::create(&*device)?;
        }
        PageFile::open(device, options)
    }

    /// The device of the page file at `path`. If there is none an empty page file is made under another name, and gets
    /// its name when it is durable: so a file of that name that is empty or zeroed has lost its data.
    pub fn open_or_create_at(path: &Path, mode: OpenMode) -> Result<FileDevice, PageFileError> {
        match FileDevice::open(path, mode) {
            Err(error) if error.is_missing() => {}
            Ok(device) if device.is_empty()? => {
                return Err(PageFileError::Empty { file: device.name().to_owned() });
            }
            result => return Ok(result?),
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let device = FileDevice::create(Path::new(&unfinished), mode)?;
        open::create(&device)?;
        Ok(device.publish(path)?)
    }

    /// Opens the page file on `device` and serves the checkpoint that was acknowledged last. If that cannot be had it
    /// says what can ([`PageFileError::WouldLose`]).
    pub fn open(
        device: Arc<dyn Device>,
        options: &OpenOptions,
    ) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        let opened = open::open(&*device, options)?;
        let recovered = Recovered {
            generation: opened.superblock.generation,
            user_header: opened.superblock.user_header,
            page_count: opened.superblock.page_count,
            is_new: opened.newest_generation == 1,
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
            mirroring: Mutex::new(()),
            is_checkpoint_running: AtomicBool::new(false),
            failure: OnceLock::new(),
            last_checkpoint_bytes: AtomicU64::new(0),
            needed: options.needed,
        };
        if !options.is_read_only {
            // A disk that cannot be written serves: saves say what is the matter.
            let _ = file.repair(&opened.repairs);
        }
        Ok((Arc::new(file), recovered))
    }

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
    fn make_room(&self, space: &mut MutexGuard<'_, Space>, need: u32) -> Result<(), PageFileError> {
        match space.plan(need) {
            Room::Search => Ok(()),
            Room::ReleasePrevious => {
                // First make sure that nobody looks for them there. What others take meanwhile is free in any case.
                MutexGuard::unlocked(space, || self.mirror_superblock())?;
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
}

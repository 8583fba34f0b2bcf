//! Opening: find the checkpoint that was acknowledged last, load it, and protect what the file holds.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::bitmap::SlotSet;
use super::choice::{choose, Choice, Copies};
use super::entry::{Entry, Slot, PAGE_ID_LIMIT};
use super::error::{shown_time, PageError, PageFileError};
use super::file::PageFile;
use super::map::MapLoader;
use super::space::Space;
use super::superblock::{FileId, Found, LogPosition, NeededPages, Role, Superblock, UserHeader};
use super::superblock_io;
use super::superblocks::{Other, Repairs, Superblocks};
use super::table::SlotTable;
use crate::device::{read_patiently, Device, DeviceError, FileDevice, IoOptions, PageBuf};
use crate::{PageId, PAGE_SIZE};

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

/// What opening found.
#[derive(Debug)]
pub struct Recovered {
    /// Generation of the checkpoint that is served.
    pub generation: u64,
    /// The caller's part of its superblock.
    pub user_header: UserHeader,
    /// Where it was cut in the log that goes with it.
    pub log: LogPosition,
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

/// A checkpoint that can be served, and what is to be done about the file.
struct Opened {
    pub superblock: Superblock,
    /// Where its superblock lies, or is to be written.
    pub place: u32,
    pub other: Other,
    pub table: SlotTable,
    pub slot_count: u32,
    /// Slots of the checkpoint that is served.
    pub slots: SlotSet,
    /// Slots of the one before it that differ.
    pub previous_slots: SlotSet,
    pub newest_generation: u64,
    pub fell_back: bool,
    pub damage: Option<PageFileError>,
    pub repairs: Repairs,
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
            create(&*device)?;
        }
        PageFile::open(device, options)
    }

    /// The device of the page file at `path`. If there is none an empty page file is made under another name, and gets
    /// its name when it is durable: so a file of that name that is empty or zeroed has lost its data.
    pub fn open_or_create_at(path: &Path, io: IoOptions) -> Result<FileDevice, PageFileError> {
        match FileDevice::open(path, io) {
            Err(error) if error.is_missing() => {}
            Ok(device) if device.is_empty()? => {
                return Err(PageFileError::Empty { file: device.name().to_owned() });
            }
            result => return Ok(result?),
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let device = FileDevice::create(Path::new(&unfinished), io)?;
        create(&device)?;
        Ok(device.publish(path)?)
    }

    /// Opens the page file on `device` and serves the checkpoint that was acknowledged last. If that cannot be had it
    /// says what can ([`PageFileError::WouldLose`]).
    pub fn open(
        device: Arc<dyn Device>,
        options: &OpenOptions,
    ) -> Result<(Arc<PageFile>, Recovered), PageFileError> {
        let opened = open(&*device, options)?;
        let recovered = Recovered {
            generation: opened.superblock.generation,
            user_header: opened.superblock.user_header,
            log: opened.superblock.log,
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
            resized: Condvar::new(),
            superblocks: Mutex::new(superblocks),
            mirroring: Mutex::new(()),
            is_checkpoint_running: AtomicBool::new(false),
            failure: OnceLock::new(),
            last_checkpoint_bytes: AtomicU64::new(0),
            needed: options.needed,
            reads_gaps: AtomicBool::new(true),
        };
        if !options.is_read_only {
            // A disk that cannot be written serves: saves say what is the matter.
            let _ = superblock_io::repair(&file, &opened.repairs);
        }
        Ok((Arc::new(file), recovered))
    }
}

/// Makes an empty page file of an empty device.
fn create(device: &dyn Device) -> Result<(), DeviceError> {
    device.allocate(Slot::FIRST.offset())?;
    let superblock = Superblock::empty(FileId(fastrand::u128(..)));
    let pages = [Role::Superblock, Role::Superblock, Role::Confirmed].map(|role| superblock.encode(role));
    let bufs: Vec<_> = pages.iter().map(|page| IoSlice::new(&page.0)).collect();
    device.write_at(0, &bufs)?;
    device.sync_data()
}

/// Opens the checkpoint that was acknowledged last, with the pages that its header needs; an older one only if the
/// loss is accepted.
fn open(device: &dyn Device, options: &OpenOptions) -> Result<Opened, PageFileError> {
    let len = device.len()?;
    if len == 0 {
        return Err(PageFileError::Empty { file: device.name().to_owned() });
    }
    let slot_count = u32::try_from(len / PAGE_SIZE as u64).unwrap_or(u32::MAX);
    let copies = read_copies(device, slot_count)?;
    let Choice { candidates, mut doubt } = choose(device.name(), &copies)?;
    let mut failures = Vec::new();
    for superblock in candidates {
        match load(device, slot_count, superblock, options) {
            Ok(opened) => return admit(device, copies, opened, doubt, options),
            // Lack of address space says nothing about the file.
            Err(error @ PageFileError::Memory(_)) => return Err(error),
            Err(error) => {
                doubt.get_or_insert_with(|| error.clone());
                failures.push(error);
            }
        }
    }
    failures.extend(copies.into_errors());
    Err(PageFileError::NothingLoads { reasons: failures })
}

/// Completes a checkpoint that loads, unless serving it would be a loss that nobody has accepted.
fn admit(
    device: &dyn Device,
    copies: Copies,
    mut opened: Opened,
    doubt: Option<PageFileError>,
    options: &OpenOptions,
) -> Result<Opened, PageFileError> {
    let generation = opened.superblock.generation;
    opened.newest_generation = copies.newest_generation();
    if let Some(cause) = doubt {
        if options.accept_loss_after != Some(generation) {
            let (cause, taken) = (Box::new(cause), shown_time(opened.superblock.taken_unix_ms));
            return Err(PageFileError::WouldLose { cause, generation, taken });
        }
        // Nothing is repaired before the first write: whoever accepted the loss may still think better of it.
        (opened.fell_back, opened.damage) = (true, Some(cause));
        opened.place = copies.place_of(&opened.superblock).unwrap_or(opened.superblock.place);
        return Ok(opened);
    }
    opened.place = copies.place_of(&opened.superblock).unwrap_or(opened.superblock.place);
    opened.repairs = copies.repairs(&opened.superblock, opened.place);
    match &copies.places[1 - opened.place as usize] {
        Ok(older) => match load_previous(device, &opened, older) {
            Ok((other, slots)) => (opened.other, opened.previous_slots) = (other, slots),
            Err(error) => opened.damage = Some(error),
        },
        // Repaired with a copy of the current one.
        Err(_) => opened.other = Other::Mirror,
    }
    let errors = copies.into_errors();
    opened.damage = errors.into_iter().next().or(opened.damage);
    Ok(opened)
}

fn read_copies(device: &dyn Device, slot_count: u32) -> Result<Copies, PageFileError> {
    let read = |slot: u32, roles: &[Role]| read_copy(device, slot_count, slot, roles);
    let places = [read(0, &[Role::Superblock])?, read(1, &[Role::Superblock])?];
    let witness = read(Slot::WITNESS.0, &[Role::Announced, Role::Confirmed])?;
    Ok(Copies { places: places.map(|place| place.map(|(superblock, _)| superblock)), witness })
}

/// Reads the copy of the superblock in a slot. The outer error is a reason to go no further.
fn read_copy(
    device: &dyn Device,
    slot_count: u32,
    slot: u32,
    roles: &[Role],
) -> Result<Result<(Superblock, Role), PageFileError>, PageFileError> {
    let file = device.name().to_owned();
    if slot >= slot_count {
        return Ok(Err(PageFileError::SuperblockMissing { file, place: slot }));
    }
    let mut page = PageBuf::boxed();
    let read = || device.read_at(Slot(slot).offset(), &mut [IoSliceMut::new(&mut page.0)]);
    if let Err(error) = read_patiently(read) {
        return Ok(Err(error.into()));
    }
    Ok(match Superblock::decode(&page) {
        Found::Valid(superblock, role) if roles.contains(&role) => Ok((*superblock, role)),
        Found::Valid(_, role) => {
            let why = format!("a copy that belongs elsewhere ({role:?})");
            Err(PageFileError::SuperblockDamaged { file, place: slot, why })
        }
        Found::OtherVersion(found) => return Err(PageFileError::UnknownVersion { file, found }),
        Found::Damaged(why) => Err(PageFileError::SuperblockDamaged { file, place: slot, why }),
        Found::Foreign => Err(PageFileError::SuperblockMissing { file, place: slot }),
    })
}

/// Loads a checkpoint to serve from.
fn load(
    device: &dyn Device,
    slot_count: u32,
    superblock: Superblock,
    options: &OpenOptions,
) -> Result<Opened, PageFileError> {
    let table = SlotTable::new().map_err(|error| PageFileError::Memory(Arc::new(error)))?;
    let loader = MapLoader { device, superblock: &superblock, slot_count, target: Some(&table), known: None };
    let slots = loader.load()?;
    if superblock.page_count > 0 {
        check_pages(device, (options.needed)(&superblock.user_header), |pid| table.get(0, pid))?;
    }
    Ok(Opened {
        newest_generation: superblock.generation,
        place: superblock.place,
        superblock,
        other: Other::Unprotected,
        table,
        slot_count,
        slots,
        previous_slots: SlotSet::default(),
        fell_back: false,
        damage: None,
        repairs: Repairs::default(),
    })
}

/// Reads and verifies pages, found by `entry_of`.
pub(super) fn check_pages(
    device: &dyn Device,
    pids: Range<u32>,
    entry_of: impl Fn(u32) -> Entry,
) -> Result<(), PageError> {
    let mut page = PageBuf::boxed();
    for pid in pids.map(PageId) {
        let file = || device.name().to_owned();
        let entry = if pid.0 < PAGE_ID_LIMIT { entry_of(pid.0) } else { Entry::NONE };
        let Some(slot) = entry.slot() else {
            match entry == Entry::NONE {
                true => return Err(PageError::Unmapped { file: file(), pid }),
                false => continue,
            }
        };
        read_patiently(|| device.read_at(slot.offset(), &mut [IoSliceMut::new(&mut page.0)]))
            .map_err(|source| PageError::Device { pid, source })?;
        let (found_crc32c, expected_crc32c) = (crc32c::crc32c(&page.0), entry.crc32c());
        if found_crc32c != expected_crc32c {
            return Err(PageError::Damaged { file: file(), pid, slot, expected_crc32c, found_crc32c });
        }
    }
    Ok(())
}

/// Finds the slots of the checkpoint before the one that is served.
fn load_previous(
    device: &dyn Device,
    served: &Opened,
    older: &Superblock,
) -> Result<(Other, SlotSet), PageFileError> {
    if *older == served.superblock {
        return Ok((Other::Mirror, SlotSet::default()));
    }
    let known = Some((&served.table, served.superblock.root));
    let slot_count = served.slot_count;
    let slots = MapLoader { device, superblock: older, slot_count, target: None, known }.load()?;
    Ok((Other::Previous, slots))
}

//! The superblock: which map is the durable one, and the witness beside it, which says whether that was acknowledged.
//! Byte by byte in docs/internals/format.md.

use std::ops::Range;

use super::entry::Entry;
use super::table::MAP_HEIGHT;
use crate::device::PageBuf;
use crate::PAGE_SIZE;

/// The version of the page file's format that this code writes where no log goes with a checkpoint.
pub const FORMAT_VERSION: u32 = 2;

/// The same where one does: a program that knows no log refuses the file instead of serving what is older than the log.
pub const LOG_FORMAT_VERSION: u32 = 3;

/// Bytes of the superblock that are the caller's.
pub const USER_HEADER_BYTES: usize = 512;

/// What the caller keeps in the superblock: roots, counters, whatever it needs to find the rest.
pub type UserHeader = [u8; USER_HEADER_BYTES];

/// Names, from the caller's header, the pages without which a checkpoint is of no use to it: one that has lost such a
/// page does not load, and the previous one does.
pub type NeededPages = fn(&UserHeader) -> Range<u32>;

/// The place in a log where a checkpoint was cut: what is before it is in the checkpoint, and nothing else is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogPosition {
    /// The first segment that has to be read, from 1 on; 0: no log goes with the checkpoint.
    pub segment: u64,
    /// Of the first byte behind the cut in the log's stream.
    pub offset: u64,
}

impl LogPosition {
    pub const NONE: LogPosition = LogPosition { segment: 0, offset: 0 };
}

/// What the caller of a checkpoint has in its superblock.
#[derive(Clone, Copy, Debug)]
pub struct CutHeader {
    pub user: UserHeader,
    pub log: LogPosition,
}

impl From<UserHeader> for CutHeader {
    fn from(user: UserHeader) -> CutHeader {
        CutHeader { user, log: LogPosition::NONE }
    }
}

const MAGIC: [u8; 8] = *b"STILLPGF";

// Offsets in bytes. MAGIC, VERSION and CHECKSUM keep their place and meaning in every future version.
const VERSION: usize = 8;
const PAGE_BYTES: usize = 12;
const GENERATION: usize = 16;
const ROOT: usize = 24;
const HEIGHT: usize = 32;
const ROLE: usize = 36;
const PAGE_COUNT: usize = 40;
const DATA_SLOT_COUNT: usize = 48;
const MAP_SLOT_COUNT: usize = 56;
const LOG_POSITION: usize = 64;
const FILE_ID: usize = 80;
const PREDECESSOR: usize = 96;
const TAKEN_UNIX_MS: usize = 104;
const PLACE: usize = 112;
const USER_HEADER: usize = 128;
const CHECKSUM: usize = PAGE_SIZE - 4;

/// A random number that a page file gets when it is created and keeps: another file has another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileId(pub u128);

impl std::fmt::Display for FileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a copy of a superblock is for.
///
/// ```text
///    commit: pages and map written     both synced, superblock written and synced
///   (none) -----------------> Announced ----------------------------> Confirmed      (the witness, slot 2)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// In slot 0 or 1: names a durable checkpoint.
    Superblock,
    /// In the witness: about to be written as a superblock. That has begun only if everything it names is durable.
    Announced,
    /// In the witness: durable as a superblock, and acknowledged.
    Confirmed,
}

/// What a checkpoint is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Superblock {
    /// Number of the checkpoint; the greater is the newer.
    pub generation: u64,
    /// The root of the map, [`Entry::NONE`] when no page is mapped.
    pub root: Entry,
    /// Mapped pages, those of zeros included.
    pub page_count: u64,
    /// Slots that pages take.
    pub data_slot_count: u64,
    /// Slots that the map takes.
    pub map_slot_count: u64,
    /// The place in the log that goes with the checkpoint.
    pub log: LogPosition,
    /// Of the file.
    pub file_id: FileId,
    /// Generation of the checkpoint that was current when this one was taken, and had been acknowledged; 0 for none.
    pub predecessor: u64,
    /// When it was taken, by the machine's clock, in milliseconds since 1970; for messages only.
    pub taken_unix_ms: u64,
    /// The slot that it is written to first, 0 or 1.
    pub place: u32,
    /// The caller's.
    pub user_header: UserHeader,
}

/// What was found in place of a superblock.
#[derive(Debug)]
pub(super) enum Found {
    /// A superblock of this version.
    Valid(Box<Superblock>, Role),
    /// An intact superblock of another version.
    OtherVersion(u32),
    /// A superblock that does not verify, or of a geometry that no program writes.
    Damaged(String),
    /// No superblock: the magic number is missing.
    Foreign,
}

impl Superblock {
    /// Of a new page file, without a page.
    pub fn empty(file_id: FileId) -> Superblock {
        Superblock {
            generation: 1,
            root: Entry::NONE,
            page_count: 0,
            data_slot_count: 0,
            map_slot_count: 0,
            log: LogPosition::NONE,
            file_id,
            predecessor: 0,
            taken_unix_ms: now_unix_ms(),
            place: 0,
            user_header: [0; USER_HEADER_BYTES],
        }
    }

    pub fn encode(&self, role: Role) -> PageBuf {
        let mut page = PageBuf::ZERO;
        let mut put = |at: usize, bytes: &[u8]| page.0[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(VERSION, &version_for(self.log).to_le_bytes());
        put(PAGE_BYTES, &(PAGE_SIZE as u32).to_le_bytes());
        put(GENERATION, &self.generation.to_le_bytes());
        put(ROOT, &self.root.0.to_le_bytes());
        put(HEIGHT, &MAP_HEIGHT.to_le_bytes());
        put(ROLE, &role.to_word().to_le_bytes());
        put(PAGE_COUNT, &self.page_count.to_le_bytes());
        put(DATA_SLOT_COUNT, &self.data_slot_count.to_le_bytes());
        put(MAP_SLOT_COUNT, &self.map_slot_count.to_le_bytes());
        put(LOG_POSITION, &self.log.segment.to_le_bytes());
        put(LOG_POSITION + 8, &self.log.offset.to_le_bytes());
        put(FILE_ID, &self.file_id.0.to_le_bytes());
        put(PREDECESSOR, &self.predecessor.to_le_bytes());
        put(TAKEN_UNIX_MS, &self.taken_unix_ms.to_le_bytes());
        put(PLACE, &self.place.to_le_bytes());
        put(USER_HEADER, &self.user_header);
        let crc32c = crc32c::crc32c(&page.0[..CHECKSUM]);
        page.0[CHECKSUM..].copy_from_slice(&crc32c.to_le_bytes());
        page
    }

    pub fn decode(page: &PageBuf) -> Found {
        if page.0[..8] != MAGIC {
            return Found::Foreign;
        }
        let expected = u32_at(page, CHECKSUM);
        let found = crc32c::crc32c(&page.0[..CHECKSUM]);
        if found != expected {
            return Found::Damaged(format!("checksum {found:#010x} found, {expected:#010x} expected"));
        }
        let version = u32_at(page, VERSION);
        if version != FORMAT_VERSION && version != LOG_FORMAT_VERSION {
            return Found::OtherVersion(version);
        }
        let log = LogPosition { segment: u64_at(page, LOG_POSITION), offset: u64_at(page, LOG_POSITION + 8) };
        if version != version_for(log) {
            return Found::Damaged(format!("version {version} and a log from segment {} on", log.segment));
        }
        let (page_bytes, height) = (u32_at(page, PAGE_BYTES), u32_at(page, HEIGHT));
        if page_bytes != PAGE_SIZE as u32 || height != MAP_HEIGHT {
            return Found::Damaged(format!("page size {page_bytes} and map height {height}"));
        }
        if u64_at(page, GENERATION) == u64::MAX {
            return Found::Damaged("no generation can follow".to_owned());
        }
        let place = u32_at(page, PLACE);
        let Some(role) = Role::of_word(u32_at(page, ROLE)).filter(|_| place < 2) else {
            return Found::Damaged("a role or a place that there is not".to_owned());
        };
        let mut user_header = [0; USER_HEADER_BYTES];
        user_header.copy_from_slice(&page.0[USER_HEADER..USER_HEADER + USER_HEADER_BYTES]);
        let superblock = Superblock {
            generation: u64_at(page, GENERATION),
            root: Entry(u64_at(page, ROOT)),
            page_count: u64_at(page, PAGE_COUNT),
            data_slot_count: u64_at(page, DATA_SLOT_COUNT),
            map_slot_count: u64_at(page, MAP_SLOT_COUNT),
            log,
            file_id: FileId(u128::from(u64_at(page, FILE_ID)) | u128::from(u64_at(page, FILE_ID + 8)) << 64),
            predecessor: u64_at(page, PREDECESSOR),
            taken_unix_ms: u64_at(page, TAKEN_UNIX_MS),
            place,
            user_header,
        };
        Found::Valid(Box::new(superblock), role)
    }
}

fn version_for(log: LogPosition) -> u32 {
    match log {
        LogPosition::NONE => FORMAT_VERSION,
        _ => LOG_FORMAT_VERSION,
    }
}

impl Role {
    fn to_word(self) -> u32 {
        match self {
            Role::Superblock => 0,
            Role::Announced => 1,
            Role::Confirmed => 2,
        }
    }

    fn of_word(word: u32) -> Option<Role> {
        [Role::Superblock, Role::Announced, Role::Confirmed].into_iter().find(|role| role.to_word() == word)
    }
}

/// The machine's clock, 0 if it is before 1970.
pub(super) fn now_unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn u32_at(page: &PageBuf, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page.0[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(page: &PageBuf, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page.0[at..at + 8]);
    u64::from_le_bytes(bytes)
}

//! The superblock: which map is the durable one. Byte by byte in docs/format.md.

use super::entry::{Entry, PageBuf};
use super::table::MAP_HEIGHT;
use crate::PAGE_SIZE;

/// The version of the page file's format that this code writes and reads.
pub const FORMAT_VERSION: u32 = 2;

/// Bytes of the superblock that are the caller's.
pub const USER_HEADER_BYTES: usize = 512;

/// What the caller keeps in the superblock: roots, counters, whatever it needs to find the rest.
pub type UserHeader = [u8; USER_HEADER_BYTES];

const MAGIC: [u8; 8] = *b"STILLPGF";

// Offsets in bytes. MAGIC, VERSION and CHECKSUM keep their place and meaning in every future version.
const VERSION: usize = 8;
const PAGE_BYTES: usize = 12;
const GENERATION: usize = 16;
const ROOT: usize = 24;
const HEIGHT: usize = 32;
const PAGE_COUNT: usize = 40;
const DATA_SLOT_COUNT: usize = 48;
const MAP_SLOT_COUNT: usize = 56;
const LOG_POSITION: usize = 64;
const USER_HEADER: usize = 128;
const CHECKSUM: usize = PAGE_SIZE - 4;

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
    /// Position of the log that goes with the checkpoint: file number and byte. Both 0 until there is a log.
    pub log_position: [u64; 2],
    /// The caller's.
    pub user_header: UserHeader,
}

/// What was found in place of a superblock.
#[derive(Debug)]
pub(super) enum Found {
    /// A superblock of this version.
    Valid(Box<Superblock>),
    /// An intact superblock of another version.
    OtherVersion(u32),
    /// A superblock that does not verify, or of a geometry that no program writes.
    Damaged(String),
    /// No superblock: the magic number is missing.
    Foreign,
}

impl Superblock {
    /// Of a page file without a page.
    pub fn empty() -> Superblock {
        Superblock {
            generation: 1,
            root: Entry::NONE,
            page_count: 0,
            data_slot_count: 0,
            map_slot_count: 0,
            log_position: [0; 2],
            user_header: [0; USER_HEADER_BYTES],
        }
    }

    pub fn encode(&self) -> PageBuf {
        let mut page = PageBuf::ZERO;
        let mut put = |at: usize, bytes: &[u8]| page.0[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(VERSION, &FORMAT_VERSION.to_le_bytes());
        put(PAGE_BYTES, &(PAGE_SIZE as u32).to_le_bytes());
        put(GENERATION, &self.generation.to_le_bytes());
        put(ROOT, &self.root.0.to_le_bytes());
        put(HEIGHT, &MAP_HEIGHT.to_le_bytes());
        put(PAGE_COUNT, &self.page_count.to_le_bytes());
        put(DATA_SLOT_COUNT, &self.data_slot_count.to_le_bytes());
        put(MAP_SLOT_COUNT, &self.map_slot_count.to_le_bytes());
        put(LOG_POSITION, &self.log_position[0].to_le_bytes());
        put(LOG_POSITION + 8, &self.log_position[1].to_le_bytes());
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
        if version != FORMAT_VERSION {
            return Found::OtherVersion(version);
        }
        let (page_bytes, height) = (u32_at(page, PAGE_BYTES), u32_at(page, HEIGHT));
        if page_bytes != PAGE_SIZE as u32 || height != MAP_HEIGHT {
            return Found::Damaged(format!("page size {page_bytes} and map height {height}"));
        }
        if u64_at(page, GENERATION) == u64::MAX {
            return Found::Damaged("no generation can follow".to_owned());
        }
        let mut user_header = [0; USER_HEADER_BYTES];
        user_header.copy_from_slice(&page.0[USER_HEADER..USER_HEADER + USER_HEADER_BYTES]);
        Found::Valid(Box::new(Superblock {
            generation: u64_at(page, GENERATION),
            root: Entry(u64_at(page, ROOT)),
            page_count: u64_at(page, PAGE_COUNT),
            data_slot_count: u64_at(page, DATA_SLOT_COUNT),
            map_slot_count: u64_at(page, MAP_SLOT_COUNT),
            log_position: [u64_at(page, LOG_POSITION), u64_at(page, LOG_POSITION + 8)],
            user_header,
        }))
    }
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

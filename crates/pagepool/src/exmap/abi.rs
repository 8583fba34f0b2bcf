//! What the kernel module and this library share: `kernel/include/uapi/exmap.h`, which says what each field means.

use std::ffi::{c_int, c_ulong, CStr};

pub const DEVICE: &CStr = c"/dev/exmap";
pub const VERSION: u32 = 1;
pub const INTERFACES_MAX: usize = 256;
/// Entries of one call, as many as a page has room for.
pub const ENTRIES_MAX: usize = 512;
/// Pages of one entry.
pub const LENGTH_MAX: usize = 32767;
/// Where the pages of interfaces are mapped from.
pub const OFFSET_INTERFACE: i64 = 1 << 44;

#[repr(C)]
#[derive(Default)]
pub struct Setup {
    pub size: u32,
    pub version: u32,
    pub map_pages: u64,
    pub pool_pages: u64,
    pub interface_count: u32,
    pub flags: u32,
    pub reserved: [u64; 2],
}

#[repr(C)]
pub struct Backing {
    pub size: u32,
    pub fd: c_int,
    pub flags: u32,
    pub reserved: u32,
}

/// In the page of an interface, which the kernel reads and writes too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    pub page: u32,
    pub length: u16,
    pub result: i16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Opcode {
    Alloc = 0,
    Free = 1,
}

#[repr(C)]
pub struct Action {
    pub interface: u16,
    pub opcode: u16,
    pub entry_count: u16,
    pub flags: u16,
    pub offset: u64,
}

/// A run of pages of the map: the first, and how many.
pub type Run = (u32, u32);

/// Counters of a map.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ExmapStatistics {
    pub size: u32,
    pub version: u32,
    pub map_pages: u64,
    pub pool_pages: u64,
    pub frames: u64,
    pub frames_free: u64,
    pub pages_allocated: u64,
    pub pages_present: u64,
    pub pages_freed: u64,
    pub pages_absent: u64,
    pub pages_busy: u64,
    pub pages_unmapped: u64,
    pub pages_zeroed: u64,
    pub pages_read: u64,
    pub reads: u64,
    pub reads_failed: u64,
    pub frames_from_interface: u64,
    pub frames_from_pool: u64,
    pub frames_stolen: u64,
    pub frames_missing: u64,
    pub shootdowns_free: u64,
    pub shootdowns_alloc: u64,
    pub shootdowns_full: u64,
    pub zero_faults: u64,
    pub write_faults: u64,
    pub steals: u64,
    pub interfaces_asked: u64,
    pub reserved: [u64; 6],
}

const _: () = assert!(size_of::<Setup>() == 48 && size_of::<Backing>() == 16 && size_of::<Entry>() == 8);
const _: () = assert!(size_of::<Action>() == 16 && size_of::<ExmapStatistics>() == 256);

const WRITE: c_ulong = 1;
const READ_WRITE: c_ulong = 3;

const fn request(direction: c_ulong, number: c_ulong, size: usize) -> c_ulong {
    direction << 30 | (size as c_ulong) << 16 | 0xE7 << 8 | number
}

pub const SETUP: c_ulong = request(WRITE, 1, size_of::<Setup>());
pub const BACKING: c_ulong = request(WRITE, 2, size_of::<Backing>());
pub const ACTION: c_ulong = request(WRITE, 3, size_of::<Action>());
pub const STATISTICS: c_ulong = request(READ_WRITE, 4, size_of::<ExmapStatistics>());

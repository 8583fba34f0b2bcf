//! What can go wrong with a page file.

use std::sync::Arc;

use super::entry::{Slot, PAGE_ID_LIMIT};
use super::superblock::LOG_FORMAT_VERSION;
use crate::device::DeviceError;
use crate::space::MapError;
use crate::PageId;

/// Why the page file could not be opened, written or committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageFileError {
    /// The device failed. See [`PageFileError::is_no_space`].
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier write or sync failed, so nobody knows what the disk holds of the writes since.
    #[error(
        "page file '{file}' takes no more checkpoints since an earlier error: {cause}. \
         What is served can still be copied elsewhere: do that, find the cause, open it again"
    )]
    Failed {
        /// The file.
        file: String,
        /// The error that did it.
        cause: String,
    },
    /// The file is something else.
    #[error("'{file}' is not a page file: move it away, or name another directory")]
    NotAPageFile {
        /// The file.
        file: String,
    },
    /// The file was written by a program with another format.
    #[error(
        "page file '{file}' has format version {found} and this program reads up to version {LOG_FORMAT_VERSION}: \
         write a dump with the program that wrote the file (BGSAVE RDB), move the file away, and start again"
    )]
    UnknownVersion {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
    },
    /// There is no superblock where one should be.
    #[error("page file '{file}': superblock {place} (byte {}) is missing", Slot(*place).offset())]
    SuperblockMissing {
        /// The file.
        file: String,
        /// Which of the two, 0 or 1; 2 is their witness.
        place: u32,
    },
    /// A superblock does not verify.
    #[error("page file '{file}': superblock {place} (byte {}) is damaged: {why}", Slot(*place).offset())]
    SuperblockDamaged {
        /// The file.
        file: String,
        /// Which of the two, 0 or 1; 2 is their witness.
        place: u32,
        /// What does not fit.
        why: String,
    },
    /// A map page does not verify or says something impossible.
    #[error(
        "page file '{file}': map page at slot {} (byte {}) of checkpoint {generation} is damaged (level {level}, \
         pages from {first_pid} on): {why}", .slot.0, .slot.offset()
    )]
    MapDamaged {
        /// The file.
        file: String,
        /// Generation of the checkpoint it belongs to.
        generation: u64,
        /// Where it lies.
        slot: Slot,
        /// Level in the tree, leaves 1.
        level: u32,
        /// The first page it is about.
        first_pid: u64,
        /// What does not fit.
        why: String,
    },
    /// The file has no byte. A page file never has that few: it is made under another name.
    #[error(
        "page file '{file}' is empty (0 bytes), which a page file never is: what it held is lost. Restore it from a \
         backup, or remove it to start without data"
    )]
    Empty {
        /// The file.
        file: String,
    },
    /// The copies of the superblock come from different files.
    #[error(
        "page file '{file}' is put together from parts of different page files. Restore it from a backup"
    )]
    MixedFiles {
        /// The file.
        file: String,
    },
    /// A checkpoint that was acknowledged is no longer named by any superblock.
    #[error("page file '{file}': the superblock of checkpoint {generation}, which had been saved, is gone")]
    CheckpointMissing {
        /// The file.
        file: String,
        /// Generation of the checkpoint.
        generation: u64,
    },
    /// The checkpoint that was acknowledged last cannot be had, or nobody knows whether it can; an older one loads.
    #[error(
        "{cause}. So the last checkpoint that was saved cannot be served, only checkpoint {generation} of {taken}: \
         what was saved after it would be lost. Restore the file from a backup; or keep a copy of it and accept \
         that loss with 'accept-loss-after-checkpoint {generation}'"
    )]
    WouldLose {
        /// What is wrong with the later one.
        cause: Box<PageFileError>,
        /// Generation of the checkpoint that loads.
        generation: u64,
        /// When that was taken.
        taken: String,
    },
    /// No checkpoint in the file can be loaded.
    #[error("no checkpoint can be loaded: {}. Restore the file from a backup", joined(reasons))]
    NothingLoads {
        /// What is wrong with each.
        reasons: Vec<PageFileError>,
    },
    /// There is no address space for the map.
    #[error("page file: {0}")]
    Memory(Arc<MapError>),
    /// A page that the caller cannot do without does not verify.
    #[error(transparent)]
    NeededPage(#[from] PageError),
    /// A checkpoint is running already.
    #[error("a checkpoint of page file '{file}' is running already")]
    CheckpointRunning {
        /// The file.
        file: String,
    },
    /// The checkpoint has been committed or given up.
    #[error("this checkpoint of page file '{file}' has ended")]
    CheckpointEnded {
        /// The file.
        file: String,
    },
    /// A page could not be written, so that the checkpoint would not be whole.
    #[error("this checkpoint of page file '{file}' cannot be committed: not all its pages could be written")]
    CheckpointIncomplete {
        /// The file.
        file: String,
    },
    /// The page number is beyond what the map can name.
    #[error("page {} is beyond the page file's limit of {} pages", .pid.0, PAGE_ID_LIMIT)]
    PageIdTooLarge {
        /// The page.
        pid: PageId,
    },
}

fn joined(reasons: &[PageFileError]) -> String {
    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and ")
}

/// A time for messages, in UTC.
pub(super) fn shown_time(unix_ms: u64) -> String {
    let (days, seconds) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    // The civil calendar from days since 1970, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

impl PageFileError {
    /// Whether only space lacks: the previous checkpoint is intact and a later checkpoint may succeed.
    pub fn is_no_space(&self) -> bool {
        matches!(self, PageFileError::Device(error) if error.is_no_space())
    }
}

/// Why a page could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageError {
    /// The checkpoint has no such page.
    #[error("page file '{file}' has no page {}", .pid.0)]
    Unmapped {
        /// The file.
        file: String,
        /// The page.
        pid: PageId,
    },
    /// What the slot holds is not what was written there: torn, lost, misdirected or rotten.
    #[error(
        "page file '{file}': page {} at slot {} (byte {}) is damaged: checksum {found_crc32c:#010x} found, \
         {expected_crc32c:#010x} expected", .pid.0, .slot.0, .slot.offset()
    )]
    Damaged {
        /// The file.
        file: String,
        /// The page.
        pid: PageId,
        /// Where it lies.
        slot: Slot,
        /// Checksum in the map.
        expected_crc32c: u32,
        /// Checksum of what was read.
        found_crc32c: u32,
    },
    /// The device failed.
    #[error("page {}: {source}", .pid.0)]
    Device {
        /// The page.
        pid: PageId,
        /// Why.
        source: DeviceError,
    },
}

impl PageError {
    /// Whether it could be read and is not what was written.
    pub(super) fn is_wrong_content(&self) -> bool {
        matches!(self, PageError::Damaged { .. })
    }

    /// The page concerned.
    pub fn pid(&self) -> PageId {
        match self {
            PageError::Unmapped { pid, .. }
            | PageError::Damaged { pid, .. }
            | PageError::Device { pid, .. } => *pid,
        }
    }
}

/// Why a before-image could not be spilled or read back.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpillError {
    /// There was no room, or the device failed.
    #[error(transparent)]
    File(#[from] PageFileError),
    /// What the slot holds is not what was written there.
    #[error(
        "page file '{file}': spilled page at slot {} (byte {}) is damaged: checksum {found_crc32c:#010x} found, \
         {expected_crc32c:#010x} expected", .slot.0, .slot.offset()
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where it lies.
        slot: Slot,
        /// Checksum when it was written.
        expected_crc32c: u32,
        /// Checksum of what was read.
        found_crc32c: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::shown_time;

    #[test]
    fn times_are_shown_by_the_calendar() {
        assert_eq!(shown_time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(shown_time(951_827_696_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(shown_time(1_767_225_599_999), "2025-12-31 23:59:59 UTC");
    }
}

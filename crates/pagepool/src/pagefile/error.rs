//! What can go wrong with a page file.

use std::sync::Arc;

use super::entry::Slot;
use super::superblock::FORMAT_VERSION;
use crate::device::DeviceError;
use crate::{PageId, PoolError};

/// Why the page file could not be opened, written or committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageFileError {
    /// The device failed. See [`PageFileError::is_no_space`].
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier write or sync failed, so nobody knows what the disk holds of the writes since.
    #[error(
        "page file '{file}' takes no more checkpoints since an earlier error: {cause}. \
         Its last checkpoint is intact: copy the data elsewhere if it is still served, check the disk, restart"
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
        "page file '{file}' has format version {found} and this program reads version {FORMAT_VERSION}: \
         use the program that wrote it"
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
        /// Which of the two, 0 or 1.
        place: u32,
    },
    /// A superblock does not verify.
    #[error("page file '{file}': superblock {place} (byte {}) is damaged: {why}", Slot(*place).offset())]
    SuperblockDamaged {
        /// The file.
        file: String,
        /// Which of the two, 0 or 1.
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
    /// The newer checkpoint does not load and the one before it has no page. Serving that would look like a new store.
    #[error("the checkpoint before it is empty")]
    PreviousEmpty,
    /// Neither of the two checkpoints in the file can be loaded.
    #[error("no checkpoint can be loaded: {newest}; and {older}. Restore the file from a backup")]
    NothingLoads {
        /// What is wrong with the newer one.
        newest: Box<PageFileError>,
        /// What is wrong with the older one.
        older: Box<PageFileError>,
    },
    /// There is no address space for the map.
    #[error("page file: {0}")]
    Memory(Arc<PoolError>),
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
    #[error("page {} is beyond the page file's limit of {} pages", .pid.0, super::PAGE_ID_LIMIT)]
    PageIdTooLarge {
        /// The page.
        pid: PageId,
    },
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

//! The page file: where checkpoints keep pages, out of place, behind a copy-on-write map and two superblocks.
//!
//! Its format, and the rules by which slots are reused, are in `docs/internals/format.md`. In short: a page lives in a *slot*
//! of 4 KB; the *map* says in which, with a checksum of its content; a checkpoint writes the changed pages and the
//! changed part of the map to free slots, syncs, and then writes the *superblock* that names the new map in place of
//! the older of two, and syncs again. The previous checkpoint stays loadable until the next one needs its room. A third
//! copy of the superblock, the *witness*, is written before and after: by it opening knows which checkpoint was
//! acknowledged last, and it refuses to serve an older one unless told to.
//!
//! Between checkpoints pages may be *written back* to free slots, so that they need not stay in memory: reads go to the
//! *location* of a page, and a crash forgets it. Versions of pages that a cut sees are kept in slots likewise.
//!
//! It knows pages by number and content. It does not know what is in them, does not cache them, and does not decide
//! when to write which.
//!
//! Errors: lack of space fails a checkpoint and nothing else. Any other failed write, and any failed sync, is sticky:
//! no checkpoint, no write-back and no spilling until the file is opened again, while reads go on. After a failed sync the kernel
//! has dropped what it could not write and will not say so twice, and a disk that fails a write is not to be trusted
//! with the next.

mod bitmap;
mod checkpoint;
mod choice;
mod commit;
mod entry;
mod error;
mod file;
mod map;
mod names;
mod open;
mod read;
mod relocate;
mod room;
mod scrub;
mod search;
mod serve;
mod space;
mod spill;
mod superblock;
mod superblock_io;
mod superblocks;
mod table;
mod write;
mod write_back;

pub use checkpoint::CheckpointWriter;
pub use commit::CommitStats;
pub use entry::Slot;
pub use error::{PageError, PageFileError, SpillError};
pub use file::{PageFile, PageFileStats};
pub use open::{OpenOptions, Recovered};
pub use scrub::BadSlot;
pub use serve::PageFeed;
pub use spill::Spilled;
pub use superblock::{CutHeader, FileId, LogPosition, NeededPages, UserHeader, USER_HEADER_BYTES};
pub use write_back::WrittenBack;

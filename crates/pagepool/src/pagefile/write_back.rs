//! Writing pages between checkpoints, so that their memory can be used for others.
//!
//! ```text
//!                                              given to set_location
//!   write_back ──▶ WrittenBack (names its slot) ─────────────────────▶ the location of its page
//!                        │                                                │ another is set, forget_location, or a
//!                        │ given to drop_written                          │ checkpoint that has it is durable
//!                        ▼                                                ▼
//!                  slot let go (Names)                              slot let go (Names)
//! ```
//!
//! Nothing on disk says where a location is: after a crash these slots are free, and the last checkpoint is all there is.

use super::entry::Entry;
use super::error::PageFileError;
use super::file::PageFile;
use super::names::Name;
use super::superblock_io;
use super::write::Batch;
use crate::{PageBytes, PageId};

/// Content of a page that has been written to a slot of its own, and is not its location yet: to be given to
/// [`PageFile::set_location`] or [`PageFile::drop_written`], or its slot stays taken until the file is opened again.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the slot stays taken until it is given to set_location or drop_written"]
pub struct WrittenBack {
    pid: PageId,
    entry: Entry,
}

impl WrittenBack {
    /// The page that was written.
    pub fn page(&self) -> PageId {
        self.pid
    }
}

impl PageFile {
    /// Writes pages to free slots, with one call of the device; pages of zeros take none. Returns what has been written, in
    /// the order of `pages`. Each buffer must be page-aligned and keep its content during the call.
    ///
    /// # Errors
    /// Lack of space, or a failed write, which is sticky. Nothing stays taken then.
    pub fn write_back(&self, pages: &[(PageId, &PageBytes)]) -> Result<Vec<WrittenBack>, PageFileError> {
        self.check_failure()?;
        let batch = Batch::new(pages)?;
        superblock_io::protect_superblocks(self)?;
        let runs = self.take_located_slots(batch.slot_count())?;
        if let Err(error) = self.write_runs(&runs, batch.bufs()) {
            self.release_located_slots(&runs);
            return Err(error);
        }
        Ok(batch.entries(&runs).into_iter().map(|(pid, entry)| WrittenBack { pid, entry }).collect())
    }

    /// What has been written is the location of `pid` from now on: reads go there. The one before is let go.
    ///
    /// Whoever calls this knows that the page still is what was written, and keeps it so during the call (by its latch): a
    /// change that comes between looking and setting would find nothing to forget.
    pub fn set_location(&self, pid: PageId, written: WrittenBack) {
        assert_eq!(written.pid, pid, "a page's location holds its own content");
        let mut space = self.space.lock();
        let replaced = self.table.set_located(pid.0, written.entry);
        replaced.slot().into_iter().for_each(|slot| space.release(Name::Located, slot));
    }

    /// Lets go of what has been written: the page has changed meanwhile.
    pub fn drop_written(&self, written: WrittenBack) {
        written.entry.slot().into_iter().for_each(|slot| self.space.lock().release(Name::Located, slot));
    }

    /// What was written back of `pid` is not its content any more: it has been changed or freed. Its slot is let go. Until
    /// something else is written back, reads find what the durable checkpoint has.
    ///
    /// Costs one load if nothing was written back since the durable checkpoint.
    pub fn forget_location(&self, pid: PageId) {
        if self.table.located(pid.0) == Entry::NONE {
            return;
        }
        let mut space = self.space.lock();
        // A checkpoint may have been faster.
        let replaced = self.table.set_located(pid.0, Entry::NONE);
        replaced.slot().into_iter().for_each(|slot| space.release(Name::Located, slot));
    }

    /// The durable map has `entry` now: as a location it is not needed beside it, if it still is one.
    pub(super) fn settle_location(&self, pid: PageId, entry: Entry) {
        let mut space = self.space.lock();
        if self.table.located(pid.0) == entry {
            self.table.set_located(pid.0, Entry::NONE);
            entry.slot().into_iter().for_each(|slot| space.release(Name::Located, slot));
        }
    }
}

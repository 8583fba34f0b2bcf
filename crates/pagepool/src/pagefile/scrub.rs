//! Verifying slots while the file is in use, and writing pages whose slots have rotted to others.

use super::checkpoint::CheckpointWriter;
use super::entry::{Entry, Slot, FANOUT};
use super::error::{PageError, PageFileError};
use super::file::PageFile;
use super::table::{node_limit, Content, MAP_HEIGHT};
use crate::device::PageBuf;
use crate::sched::idly;
use crate::{PageBytes, PageId};

/// A slot that does not hold the page that the durable checkpoint has there.
#[derive(Clone, Debug)]
pub struct BadSlot {
    /// The page.
    pub pid: PageId,
    /// Where it lies.
    pub slot: Slot,
    /// What is wrong.
    pub error: PageError,
}

impl PageFile {
    /// The slot of page `pid` in the durable checkpoint, if it takes one.
    pub fn slot_of(&self, pid: PageId) -> Option<Slot> {
        self.table.get(0, pid.0).slot()
    }

    /// The first `page_count` pages of the durable checkpoint from `first` on, ascending.
    pub fn mapped_from(&self, first: PageId, page_count: usize) -> Vec<PageId> {
        let (mut pids, mut pid) = (Vec::new(), first.0);
        while pid < node_limit(0) && pids.len() < page_count {
            // The highest node that is missing lets most be passed over.
            let is_missing = |level: &u32| self.table.get(*level, first_below(pid, *level).0) == Entry::NONE;
            match (0..MAP_HEIGHT).rev().find(is_missing) {
                Some(level) => pid = first_below(pid, level).1,
                None => {
                    pids.push(PageId(pid));
                    pid += 1;
                }
            }
        }
        pids
    }

    /// Reads pages of the durable checkpoint only to verify them; returns the slots that are bad. A checkpoint may move pages meanwhile: a slot
    /// counts as bad if a second reading agrees and the page is still there.
    pub fn verify_slots(&self, pids: &[PageId]) -> Vec<BadSlot> {
        let mut bufs = vec![PageBuf::ZERO; pids.len()];
        let mut pages: Vec<_> = pids.iter().zip(&mut bufs).map(|(pid, buf)| (*pid, &mut buf.0)).collect();
        let suspects = idly(|| self.read_contents(Content::Durable, &mut pages));
        let mut again = PageBuf::boxed();
        suspects.iter().filter_map(|suspect| self.confirm(suspect.pid(), &mut again.0)).collect()
    }

    fn confirm(&self, pid: PageId, again: &mut PageBytes) -> Option<BadSlot> {
        let slot = self.slot_of(pid)?;
        let error = self.read_content(Content::Durable, pid, again).err()?;
        // Otherwise a checkpoint has been faster: the next round verifies what it wrote.
        (self.slot_of(pid) == Some(slot)).then_some(BadSlot { pid, slot, error })
    }
}

/// The index of the node of `level` that page `pid` is below, and the first page behind it.
fn first_below(pid: u32, level: u32) -> (u32, u32) {
    let bits = FANOUT.ilog2() * level;
    (pid >> bits, ((pid >> bits) + 1) << bits)
}

impl CheckpointWriter {
    /// Writes those of `pages` to another slot that this checkpoint does not change and whose content is, by the checksum
    /// in the map, what the durable one has (D8). Not while the same pages are being written or freed.
    pub fn rewrite_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), PageFileError> {
        let is_as_durable = |(pid, content): &&(PageId, &PageBytes)| {
            self.file.table.get(0, pid.0).crc32c() == crc32c::crc32c(*content) && !self.has_anew(*pid)
        };
        let pages: Vec<_> = pages.iter().filter(is_as_durable).copied().collect();
        self.write_pages(&pages)
    }

    /// Whether this checkpoint, as far as it has come, has written or freed page `pid`.
    pub fn has_anew(&self, pid: PageId) -> bool {
        !self.is_unchanged(&self.pending.lock(), pid.0)
    }
}

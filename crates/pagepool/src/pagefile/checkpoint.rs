//! A checkpoint under way: pages go to free slots, and a pending map says where.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::entry::{Entry, SlotRun, FANOUT, PAGE_ID_LIMIT};
use super::error::PageFileError;
use super::file::PageFile;
use super::names::Name;
use super::spill::Spilled;
use super::superblock_io;
use super::write::{check_pid, Batch};
use crate::device::PageBuf;
use crate::{PageBytes, PageId, PAGE_SIZE};

/// Pages for which slots are looked for together.
const BATCH_PAGES: usize = 1024;

/// Whether pages may still be added.
///
/// ```text
///              commit
///      Open ------------> Ended
///       |                   ^
///       +--- abort, drop ---+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    Ended,
}

/// A checkpoint that is being written; dropped without a commit, it has never been.
///
/// Starts from the durable checkpoint: pages that are neither written nor freed stay as they are there. All methods
/// may be called from several threads at once, but two of them must not write or free the same page at the same
/// time; one after the other they may, and the last one counts.
///
/// Memory: 4 KB for each 512 consecutive page numbers among which one was written or freed.
pub struct CheckpointWriter {
    pub(super) file: Arc<PageFile>,
    /// Held shared while pages are written, exclusively to end.
    pub(super) phase: RwLock<Phase>,
    /// A page could not be written or freed.
    pub(super) is_incomplete: AtomicBool,
    pub(super) pending: Mutex<PendingMap>,
    pub(super) counters: Counters,
    /// Slots for pages that the commit moves.
    pub(super) reserved: Mutex<Vec<SlotRun>>,
}

/// What the writer has done so far.
#[derive(Default)]
pub(super) struct Counters {
    pub page_count: AtomicU64,
    pub zero_page_count: AtomicU64,
    pub adopted_page_count: AtomicU64,
    pub written_bytes: AtomicU64,
}

/// The leaves of the map as the checkpoint will have them, where they may differ from the durable ones. The key is
/// the number of the leaf.
#[derive(Default)]
pub(super) struct PendingMap {
    pub leaves: HashMap<u32, Box<PageBuf>>,
}

impl PageFile {
    /// Begins a checkpoint. There is one at a time.
    pub fn begin_checkpoint(self: &Arc<PageFile>) -> Result<CheckpointWriter, PageFileError> {
        self.check_failure()?;
        if self.is_checkpoint_running.swap(true, Ordering::AcqRel) {
            return Err(PageFileError::CheckpointRunning { file: self.name().to_owned() });
        }
        let writer = CheckpointWriter {
            file: self.clone(),
            phase: RwLock::new(Phase::Open),
            is_incomplete: AtomicBool::new(false),
            pending: Mutex::default(),
            counters: Counters::default(),
            reserved: Mutex::default(),
        };
        // On an error dropping the writer ends it.
        superblock_io::protect_superblocks(self)?;
        *writer.reserved.lock() = self.space.lock().begin();
        Ok(writer)
    }
}

impl CheckpointWriter {
    /// Writes pages; each buffer must be page-aligned and keep its content during the call.
    ///
    /// Large batches are written with large writes. Pages of zeros take no slot and no write. After an error the
    /// checkpoint can only be given up: a commit is refused.
    pub fn write_pages(&self, pages: &[(PageId, &PageBytes)]) -> Result<(), PageFileError> {
        let phase = self.phase.read();
        self.check_open(*phase)?;
        self.note_incomplete(pages.chunks(BATCH_PAGES).try_for_each(|batch| self.write_batch(batch)))
    }

    fn note_incomplete(&self, result: Result<(), PageFileError>) -> Result<(), PageFileError> {
        if result.is_err() {
            self.is_incomplete.store(true, Ordering::Release);
        }
        result
    }

    fn write_batch(&self, batch: &[(PageId, &PageBytes)]) -> Result<(), PageFileError> {
        let batch = Batch::new(batch)?;
        let had_none = |pid: &PageId| self.file.table.get(0, pid.0).slot().is_none();
        let new_count = batch.stored().filter(had_none).count() as u64;
        let runs = self.file.take_slots(batch.slot_count(), new_count)?;
        let entries = batch.entries(&runs);
        self.write_runs(&runs, batch.bufs())?;
        self.record(&entries);
        self.counters.page_count.fetch_add(entries.len() as u64, Ordering::Relaxed);
        self.counters.zero_page_count.fetch_add(batch.zero_page_count(), Ordering::Relaxed);
        Ok(())
    }

    /// Writes `bufs`, one page each, to the slots of `runs`, one after the other.
    pub(super) fn write_runs(&self, runs: &[SlotRun], bufs: &[IoSlice<'_>]) -> Result<(), PageFileError> {
        self.file.write_runs(runs, bufs)?;
        self.counters.written_bytes.fetch_add((bufs.len() * PAGE_SIZE) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The checkpoint has `pid` as it is in `version`, without writing it. That is a version of this page, and the slot may be
    /// released afterwards: the checkpoint names it, too.
    pub fn adopt_page(&self, pid: PageId, version: &Spilled) -> Result<(), PageFileError> {
        let phase = self.phase.read();
        self.check_open(*phase)?;
        self.note_incomplete(check_pid(pid))?;
        let mut pending = self.pending.lock();
        let entry = version.entry();
        let is_there =
            self.leaf_mut(&mut pending, pid.0 / FANOUT as u32).entry(pid.0 as usize % FANOUT) == entry;
        if !is_there && entry != self.file.table.get(0, pid.0) {
            entry.slot().into_iter().for_each(|slot| self.file.space.lock().adopt(slot));
        }
        self.set_entry(&mut pending, pid, entry);
        self.counters.adopted_page_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The checkpoint will not have page `pid`.
    pub fn free_page(&self, pid: PageId) -> Result<(), PageFileError> {
        self.free_pages(pid, 1)
    }

    /// The checkpoint will have none of the `page_count` pages from `first` on.
    pub fn free_pages(&self, first: PageId, page_count: u32) -> Result<(), PageFileError> {
        let phase = self.phase.read();
        self.check_open(*phase)?;
        let Some(end) = first.0.checked_add(page_count).filter(|end| *end <= PAGE_ID_LIMIT) else {
            return self.note_incomplete(Err(PageFileError::PageIdTooLarge { pid: first }));
        };
        let mut pid = first.0;
        let mut pending = self.pending.lock();
        while pid < end {
            let leaf = pid / FANOUT as u32;
            let leaf_end = end.min((leaf + 1) * FANOUT as u32);
            // A leaf that is not there names nothing that could be freed.
            if pending.leaves.contains_key(&leaf) || self.file.table.get(1, leaf) != Entry::NONE {
                (pid..leaf_end).for_each(|pid| self.set_entry(&mut pending, PageId(pid), Entry::NONE));
            }
            pid = leaf_end;
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.counters.written_bytes.load(Ordering::Relaxed)
    }

    /// Gives the checkpoint up and its slots back. Without effect after a commit.
    pub fn abort(&self) {
        let mut phase = self.phase.write();
        if *phase == Phase::Open {
            *phase = Phase::Ended;
            self.file.space.lock().abort();
            self.file.is_checkpoint_running.store(false, Ordering::Release);
        }
    }

    pub(super) fn check_open(&self, phase: Phase) -> Result<(), PageFileError> {
        self.file.check_failure()?;
        match phase {
            Phase::Open => Ok(()),
            Phase::Ended => Err(PageFileError::CheckpointEnded { file: self.file.name().to_owned() }),
        }
    }

    /// Enters pages into the pending map.
    pub(super) fn record(&self, entries: &[(PageId, Entry)]) {
        let mut pending = self.pending.lock();
        entries.iter().for_each(|(pid, entry)| self.set_entry(&mut pending, *pid, *entry));
    }

    fn set_entry(&self, pending: &mut PendingMap, pid: PageId, entry: Entry) {
        let offset = pid.0 as usize % FANOUT;
        let page = self.leaf_mut(pending, pid.0 / FANOUT as u32);
        let replaced = page.entry(offset);
        page.set_entry(offset, entry);
        if replaced != entry && replaced != self.file.table.get(0, pid.0) {
            if let Some(slot) = replaced.slot() {
                self.file.space.lock().release(Name::Pending, slot);
            }
        }
    }

    /// The leaf of the pending map, to change it.
    pub(super) fn leaf_mut<'a>(&self, pending: &'a mut PendingMap, leaf: u32) -> &'a mut PageBuf {
        pending.leaves.entry(leaf).or_insert_with(|| {
            let mut page = PageBuf::boxed();
            if self.file.table.get(1, leaf) != Entry::NONE {
                self.file.table.copy_node(1, leaf, &mut page);
            }
            page
        })
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        self.abort();
    }
}

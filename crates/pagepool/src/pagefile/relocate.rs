//! Shortening a file of which much has been freed: its last pages move to free slots further ahead.

use std::collections::BTreeSet;
use std::io::IoSlice;

use super::bitmap::SlotSet;
use super::checkpoint::{CheckpointWriter, PendingMap};
use super::entry::{Entry, SlotRun, FANOUT};
use super::error::PageFileError;
use super::file::PageFile;
use super::names::Name;
use super::table::{Content, MAP_HEIGHT};
use crate::device::PageBuf;
use crate::PageId;

/// Pages read before they are written; bounds the memory (1 MB).
const BATCH_PAGES: usize = 256;

/// What has been moved.
#[derive(Default)]
pub(super) struct Moved {
    pub page_count: u64,
    /// Leaves of the map to be written anew although their entries stay.
    pub leaves: BTreeSet<u32>,
}

impl CheckpointWriter {
    /// Moves pages that this checkpoint does not change to the slots that were reserved for it.
    pub(super) fn move_pages(&self) -> Result<Moved, PageFileError> {
        let mut moved = Moved::default();
        let mut runs = std::mem::take(&mut *self.reserved.lock());
        let slot_count: u32 = runs.iter().map(|run| run.slot_count).sum();
        if slot_count == 0 {
            return Ok(moved);
        }
        let superseded = self.superseded();
        let victims = self.file.space.lock().choose_to_empty(&superseded, slot_count);
        let mut pids = residents(&self.file, 0, &victims);
        self.retain_unchanged(&mut pids);
        for level in 1..MAP_HEIGHT {
            let nodes = residents(&self.file, level, &victims);
            moved.leaves.extend(nodes.iter().filter_map(|index| first_leaf(&self.file, level, *index)));
        }
        for leaf in &moved.leaves {
            self.leaf_mut(&mut self.pending.lock(), *leaf);
        }
        for batch in pids.chunks(BATCH_PAGES) {
            moved.page_count += self.move_batch(batch, &mut runs)?;
        }
        let mut space = self.file.space.lock();
        runs.iter().flat_map(|run| run.slots()).for_each(|slot| space.release(Name::Pending, slot));
        Ok(moved)
    }

    /// Slots that the durable checkpoint names and this one will not.
    fn superseded(&self) -> SlotSet {
        let table = &self.file.table;
        let mut slots = SlotSet::default();
        let mut insert = |entry: Entry| entry.slot().map(|slot| slots.insert(slot));
        for (leaf, page) in &self.pending.lock().leaves {
            for offset in 0..FANOUT {
                let old = table.get(0, leaf * FANOUT as u32 + offset as u32);
                if page.entry(offset) != old {
                    insert(old);
                }
            }
            let mut index = *leaf;
            for level in 1..MAP_HEIGHT {
                insert(table.get(level, index));
                index /= FANOUT as u32;
            }
        }
        slots
    }

    /// Leaves only pages that this checkpoint has neither written nor freed.
    fn retain_unchanged(&self, pids: &mut Vec<u32>) {
        let pending = self.pending.lock();
        pids.retain(|pid| self.is_unchanged(&pending, *pid));
    }

    /// Whether this checkpoint has neither written nor freed a page.
    pub(super) fn is_unchanged(&self, pending: &PendingMap, pid: u32) -> bool {
        let leaf = pending.leaves.get(&(pid / FANOUT as u32));
        let entry = leaf.map(|leaf| leaf.entry(pid as usize % FANOUT));
        entry.is_none_or(|entry| entry == self.file.table.get(0, pid))
    }

    /// Copies pages to slots from the end of `runs`, as far as there are some. Returns how many.
    fn move_batch(&self, pids: &[u32], runs: &mut Vec<SlotRun>) -> Result<u64, PageFileError> {
        let mut bufs = vec![PageBuf::ZERO; pids.len()];
        let mut pages: Vec<_> =
            pids.iter().zip(&mut bufs).map(|(pid, buf)| (PageId(*pid), &mut buf.0)).collect();
        let mut errors = self.file.read_contents(Content::Durable, &mut pages);
        errors.retain_mut(|error| match pages.iter_mut().find(|(pid, _)| *pid == error.pid()) {
            // Once more, as what is moved for damaged is damaged for good.
            Some((pid, page)) => {
                let again = self.file.read_content(Content::Durable, *pid, page);
                again.map_err(|again| *error = again).is_err()
            }
            None => true,
        });
        // Damaged bytes move as they are, with the checksum that they do not fit: whoever wants the page is told, and it
        // does not keep the file long. One that the device cannot read stays where it is.
        let unreadable: BTreeSet<PageId> =
            errors.iter().filter(|error| !error.is_wrong_content()).map(|error| error.pid()).collect();
        pages.retain(|(pid, _)| !unreadable.contains(pid));
        pages.sort_unstable_by_key(|(pid, _)| *pid);
        let taken = take_runs(runs, pages.len() as u32);
        let entries: Vec<_> = pages
            .iter()
            .zip(taken.iter().flat_map(|run| run.slots()))
            .map(|((pid, _), slot)| (*pid, Entry::new(slot, self.file.table.get(0, pid.0).crc32c())))
            .collect();
        let moved = &pages[..entries.len()];
        let bufs: Vec<_> = moved.iter().map(|(_, page)| IoSlice::new(&page[..])).collect();
        self.write_runs(&taken, &bufs)?;
        self.record(&entries);
        Ok(entries.len() as u64)
    }
}

/// Takes up to `need` slots off the last of `runs`.
fn take_runs(runs: &mut Vec<SlotRun>, mut need: u32) -> Vec<SlotRun> {
    let mut taken = Vec::new();
    while let Some(last) = runs.last_mut().filter(|_| need > 0) {
        let part = SlotRun { first: last.first, slot_count: last.slot_count.min(need) };
        need -= part.slot_count;
        last.first.0 += part.slot_count;
        last.slot_count -= part.slot_count;
        if last.slot_count == 0 {
            runs.pop();
        }
        taken.push(part);
    }
    taken
}

/// Indices of the nodes of `level` (level 0: pages) that live in `slots`.
fn residents(file: &PageFile, level: u32, slots: &SlotSet) -> Vec<u32> {
    let mut indices = Vec::new();
    if slots.len() > 0 {
        file.table.for_each_node(level, &mut |index, entry| {
            if entry.slot().is_some_and(|slot| slots.contains(slot)) {
                indices.push(index);
            }
        });
    }
    indices
}

/// A leaf below a node of the map; writing that anew writes the node anew.
fn first_leaf(file: &PageFile, level: u32, index: u32) -> Option<u32> {
    if level == 1 {
        return Some(index);
    }
    let first = index * FANOUT as u32;
    let child =
        (first..first + FANOUT as u32).find(|child| file.table.get(level - 1, *child) != Entry::NONE)?;
    first_leaf(file, level - 1, child)
}

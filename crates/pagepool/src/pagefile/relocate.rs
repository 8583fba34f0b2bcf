//! Shortening a file of which much has been freed: its last pages move to free slots further ahead.

use std::collections::BTreeSet;
use std::io::IoSlice;

use super::checkpoint::CheckpointWriter;
use super::entry::{Entry, PageBuf, Slot, SlotRun, FANOUT};
use super::table::MAP_HEIGHT;
use super::{PageFile, PageFileError};
use crate::PageId;

/// A checkpoint moves at most this part of the live slots, and at least [`LEAST_MOVES`]: the file shrinks over several
/// checkpoints rather than that one of them takes long.
const MOVED_PART: u64 = 16;
/// See [`MOVED_PART`].
const LEAST_MOVES: u64 = 256;
/// Pages of a read and a write; bounds the memory (1 MB).
const BATCH_PAGES: usize = 256;

/// What has been moved.
#[derive(Default)]
pub(super) struct Moved {
    pub page_count: u64,
    /// Leaves of the map to be written anew although their entries stay.
    pub leaves: BTreeSet<u32>,
}

/// What lies in a slot near the end of the file: a node of the map, or a page (level 0).
struct Resident {
    slot: Slot,
    level: u32,
    index: u32,
}

impl CheckpointWriter {
    /// Moves what lies last in an oversize file. Does nothing to others, nor to pages that this checkpoint changes.
    pub(super) fn move_tail(&self) -> Result<Moved, PageFileError> {
        let mut moved = Moved::default();
        let (ceiling, limit) = {
            let space = self.file.space.lock();
            let Some(ceiling) = space.ceiling() else { return Ok(moved) };
            (ceiling, (space.live_count() / MOVED_PART).max(LEAST_MOVES) as usize)
        };
        let mut pids = Vec::new();
        for resident in last_residents(&self.file, ceiling, limit) {
            match resident.level {
                0 => pids.push(resident.index),
                level => moved.leaves.extend(first_leaf(&self.file, level, resident.index)),
            }
        }
        {
            let mut pending = self.pending.lock();
            pids.retain(|pid| {
                let entry =
                    pending.leaves.get(&(pid / FANOUT as u32)).map(|leaf| leaf.entry(*pid as usize % FANOUT));
                entry.is_none_or(|entry| entry == self.file.table.get(0, *pid))
            });
            for leaf in &moved.leaves {
                self.leaf_mut(&mut pending, *leaf);
            }
        }
        pids.sort_unstable();
        for batch in pids.chunks(BATCH_PAGES) {
            moved.page_count += self.move_pages(batch)?;
        }
        Ok(moved)
    }

    /// Copies pages to slots below the ceiling, as far as there are some. Returns how many.
    fn move_pages(&self, pids: &[u32]) -> Result<u64, PageFileError> {
        let mut bufs = vec![PageBuf::ZERO; pids.len()];
        let mut pages: Vec<_> =
            pids.iter().zip(&mut bufs).map(|(pid, buf)| (PageId(*pid), &mut buf.0)).collect();
        // A page that cannot be read stays where it is: whoever wants it is told.
        let damaged: BTreeSet<u32> =
            self.file.read_pages(&mut pages).iter().map(|error| error.pid().0).collect();
        pages.retain(|(pid, _)| !damaged.contains(&pid.0));
        let mut rest = &pages[..];
        while let Some(run) = self.take_ahead(rest.len() as u32) {
            let (part, others) = rest.split_at(run.slot_count as usize);
            rest = others;
            let slices: Vec<_> = part.iter().map(|(_, page)| IoSlice::new(&page[..])).collect();
            self.write_run(run, &slices)?;
            let entries: Vec<_> = part
                .iter()
                .zip(run.slots())
                .map(|((pid, _), slot)| (*pid, Entry::new(slot, self.file.table.get(0, pid.0).crc32c())))
                .collect();
            self.record(&entries);
        }
        Ok((pages.len() - rest.len()) as u64)
    }

    fn take_ahead(&self, need: u32) -> Option<SlotRun> {
        match need {
            0 => None,
            _ => self.file.space.lock().take_below_ceiling(need),
        }
    }
}

/// What lies in the last `limit` of the live slots from `ceiling` on.
fn last_residents(file: &PageFile, ceiling: u32, limit: usize) -> Vec<Resident> {
    let mut residents = Vec::new();
    for level in 0..MAP_HEIGHT {
        file.table.for_each_node(level, &mut |index, entry| {
            if let Some(slot) = entry.slot().filter(|slot| slot.0 >= ceiling) {
                residents.push(Resident { slot, level, index });
            }
        });
    }
    if residents.len() > limit {
        let first_kept = residents.len() - limit;
        residents.select_nth_unstable_by_key(first_kept, |resident| resident.slot);
        residents.drain(..first_kept);
    }
    residents
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

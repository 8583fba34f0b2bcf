//! Making a checkpoint the durable one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::bitmap::SlotSet;
use super::checkpoint::{CheckpointWriter, Phase};
use super::entry::{is_all_zero, Entry, Slot, SlotRun, FANOUT};
use super::error::PageFileError;
use super::file::PageFile;
use super::open::check_pages;
use super::superblock::{now_unix_ms, CutHeader, Role, Superblock};
use super::superblock_io;
use super::superblocks::Other;
use super::table::MAP_HEIGHT;
use crate::device::PageBuf;
use crate::{PageId, PAGE_SIZE};

/// What a checkpoint did and how long it took.
#[derive(Clone, Copy, Default, Debug)]
pub struct CommitStats {
    /// Number of the checkpoint.
    pub generation: u64,
    /// Pages written, those of zeros included.
    pub page_count: u64,
    /// Of those, pages of zeros, which take neither slot nor write.
    pub zero_page_count: u64,
    /// Pages taken over where they had been written before, without a write.
    pub adopted_page_count: u64,
    /// Pages of the map written.
    pub map_page_count: u64,
    /// Unchanged pages moved ahead, to shorten a file of which much has been freed.
    pub moved_page_count: u64,
    /// Bytes written: pages, map, superblock.
    pub written_bytes: u64,
    /// Time to write the map.
    pub map_write: Duration,
    /// Time to sync pages and map.
    pub data_sync: Duration,
    /// Time to write and sync the superblock.
    pub superblock_sync: Duration,
}

/// The changed part of the new map, each level by index: 0 is unused, 1 the leaves.
type Draft = [BTreeMap<u32, Box<PageBuf>>; MAP_HEIGHT as usize + 1];

/// What changes with the new map.
struct Changes {
    /// The next superblock, but for the root.
    superblock: Superblock,
    /// Slots that the new map no longer names.
    superseded: SlotSet,
}

impl CheckpointWriter {
    /// Makes the checkpoint durable and the one to be served, with `header` in its superblock.
    ///
    /// On an error the previous one stays; the checkpoint has ended and its slots are given back, unless the error
    /// came when the superblock was already on its way: then the file refuses further checkpoints, and which of the
    /// two the disk holds is known when it is opened again.
    pub fn commit(&self, header: impl Into<CutHeader>) -> Result<CommitStats, PageFileError> {
        let header = header.into();
        let mut phase = self.phase.write();
        self.check_open(*phase)?;
        if self.is_incomplete.load(Ordering::Acquire) {
            return Err(PageFileError::CheckpointIncomplete { file: self.file.name().to_owned() });
        }
        *phase = Phase::Ended;
        let result = self.commit_map(&header);
        if result.is_err() {
            // Gives nothing back if the slots have been kept in doubt.
            self.file.space.lock().abort();
        }
        self.file.is_checkpoint_running.store(false, Ordering::Release);
        result
    }

    fn commit_map(&self, header: &CutHeader) -> Result<CommitStats, PageFileError> {
        let file = &self.file;
        let current = file.superblocks.lock().current.clone();
        let moved = self.move_pages()?;
        let begin = Instant::now();
        let mut draft = Draft::default();
        let mut changes = self.draft_leaves(&mut draft, &current, &moved.leaves);
        draft_nodes(file, &mut draft);
        let map_runs = self.place_map(&mut draft, &current, &mut changes)?;
        let map_write = begin.elapsed();
        (changes.superblock.user_header, changes.superblock.log) = (header.user, header.log);
        self.name_checkpoint(&mut changes.superblock);
        let generation = changes.superblock.generation;
        let (data_sync, superblock_sync) = self.make_durable(&changes.superblock, &draft, &map_runs)?;

        self.publish(&draft, changes);
        file.shrink();
        let written_bytes = self.written_bytes() + 3 * PAGE_SIZE as u64;
        file.last_checkpoint_bytes.store(written_bytes, Ordering::Relaxed);
        Ok(CommitStats {
            generation,
            page_count: self.counters.page_count.load(Ordering::Relaxed),
            zero_page_count: self.counters.zero_page_count.load(Ordering::Relaxed),
            adopted_page_count: self.counters.adopted_page_count.load(Ordering::Relaxed),
            map_page_count: map_runs.iter().map(|run| u64::from(run.slot_count)).sum(),
            moved_page_count: moved.page_count,
            written_bytes,
            map_write,
            data_sync,
            superblock_sync,
        })
    }

    /// Takes over the leaves that differ from the durable ones or are to be `moved`, and counts what changes.
    fn draft_leaves(&self, draft: &mut Draft, current: &Superblock, moved: &BTreeSet<u32>) -> Changes {
        let table = &self.file.table;
        let mut superseded = SlotSet::default();
        let mut superblock = current.clone();
        for (leaf, page) in std::mem::take(&mut self.pending.lock().leaves) {
            let mut differs = moved.contains(&leaf);
            for offset in 0..FANOUT {
                let (old, new) = (table.get(0, leaf * FANOUT as u32 + offset as u32), page.entry(offset));
                if old == new {
                    continue;
                }
                differs = true;
                superblock.page_count += u64::from(new != Entry::NONE);
                superblock.page_count -= u64::from(old != Entry::NONE);
                superblock.data_slot_count += u64::from(new.slot().is_some());
                superblock.data_slot_count -= u64::from(old.slot().is_some());
                old.slot().map(|slot| superseded.insert(slot));
            }
            if differs {
                draft[1].insert(leaf, page);
            }
        }
        Changes { superblock, superseded }
    }

    /// Gives every page of the draft a slot, bottom up, and writes them. Returns the slots.
    fn place_map(
        &self,
        draft: &mut Draft,
        current: &Superblock,
        changes: &mut Changes,
    ) -> Result<Vec<SlotRun>, PageFileError> {
        let file = &self.file;
        let runs = file.take_slots(kept_pages(draft).count() as u32, 0)?;
        let mut slots = runs.iter().flat_map(|run| run.slots());
        let mut root = current.root;
        for level in 1..=MAP_HEIGHT {
            let mut nodes = std::mem::take(&mut draft[level as usize]);
            for (index, page) in &mut nodes {
                let old = if level < MAP_HEIGHT { file.table.get(level, *index) } else { current.root };
                changes.superblock.map_slot_count -= u64::from(old.slot().is_some());
                old.slot().map(|slot| changes.superseded.insert(slot));
                let entry = match (!is_all_zero(&page.0)).then(|| slots.next()).flatten() {
                    Some(slot) => Entry::new(slot, crc32c::crc32c(&page.0)),
                    None => Entry::NONE,
                };
                changes.superblock.map_slot_count += u64::from(entry.slot().is_some());
                match draft
                    .get_mut(level as usize + 1)
                    .and_then(|parents| parents.get_mut(&(index / FANOUT as u32)))
                {
                    Some(parent) => parent.set_entry(*index as usize % FANOUT, entry),
                    None => root = entry,
                }
            }
            draft[level as usize] = nodes;
        }
        changes.superblock.root = root;
        let bufs: Vec<_> = kept_pages(draft).map(|page| IoSlice::new(&page.0)).collect();
        self.write_runs(&runs, &bufs)?;
        Ok(runs)
    }

    /// Gives the checkpoint its number, which no other has had, and its place.
    fn name_checkpoint(&self, superblock: &mut Superblock) {
        let mut superblocks = self.file.superblocks.lock();
        superblocks.newest_generation += 1;
        superblock.generation = superblocks.newest_generation;
        superblock.predecessor = superblocks.current.generation;
        superblock.taken_unix_ms = now_unix_ms();
        superblock.place = 1 - superblocks.place;
    }

    /// Announces the checkpoint, syncs pages and map, then writes and syncs the superblock. Returns how long each took.
    fn make_durable(
        &self,
        superblock: &Superblock,
        draft: &Draft,
        map_runs: &[SlotRun],
    ) -> Result<(Duration, Duration), PageFileError> {
        let file = &self.file;
        let begin = Instant::now();
        file.device.check_identity().map_err(|error| file.fail(error))?;
        superblock_io::write_witness(file, superblock, Role::Announced)?;
        file.device.sync_data().map_err(|error| file.fail(error))?;
        let data_sync = begin.elapsed();
        // A disk that loses a page loses that page; one that loses the map, or what the caller needs to begin with,
        // would lose the checkpoint.
        file.read_back(map_runs, &mut kept_pages(draft))?;
        superblock_io::read_back_witness(file, superblock, Role::Announced)?;
        let entry_of = |pid: u32| match draft[1].get(&(pid / FANOUT as u32)) {
            Some(leaf) => leaf.entry(pid as usize % FANOUT),
            None => file.table.get(0, pid),
        };
        check_pages(&*file.device, (file.needed)(&superblock.user_header), entry_of)
            .map_err(|error| file.fail(error))?;
        let begin = Instant::now();
        // Nobody else writes a superblock now: no page is being written, and before the first one was they were
        // protected.
        if let Err(error) = self.write_current(superblock) {
            file.space.lock().keep_in_doubt();
            return Err(error);
        }
        let mut superblocks = file.superblocks.lock();
        superblocks.current = superblock.clone();
        superblocks.place = superblock.place;
        superblocks.other = Other::Previous;
        Ok((data_sync, begin.elapsed()))
    }

    /// Makes the new map the one that reads follow. Locations that it has are no longer kept beside it.
    fn publish(&self, draft: &Draft, changes: Changes) {
        let file = &self.file;
        for level in 1..=MAP_HEIGHT {
            for (index, page) in &draft[level as usize] {
                for offset in 0..FANOUT {
                    let (child, new) = (index * FANOUT as u32 + offset as u32, page.entry(offset));
                    if file.table.get(level - 1, child) != new {
                        file.table.set(level - 1, child, new);
                        if level == 1 && new != Entry::NONE && file.table.located(child) == new {
                            file.settle_location(PageId(child), new);
                        }
                    }
                }
            }
        }
        let live_count = changes.superblock.data_slot_count + changes.superblock.map_slot_count;
        let mut space = file.space.lock();
        space.commit(changes.superseded);
        debug_assert_eq!(u64::from(space.names().live_count()), live_count, "the superblock says otherwise");
    }

    /// Makes the superblock durable, in a file that is still the one at its path, and lets the witness say so. That
    /// becomes durable with the next sync; until then opening takes the superblock's word.
    fn write_current(&self, superblock: &Superblock) -> Result<(), PageFileError> {
        let file = &self.file;
        superblock_io::write_superblock(file, superblock.place, superblock)?;
        file.device.check_identity().map_err(|error| file.fail(error))?;
        // The checkpoint is durable whatever becomes of this; what was an error stops the next one.
        let _ = superblock_io::write_witness(file, superblock, Role::Confirmed);
        Ok(())
    }
}

/// The pages of the draft that take a slot, in the order in which they take them.
fn kept_pages(draft: &Draft) -> impl Iterator<Item = &PageBuf> {
    draft.iter().flat_map(BTreeMap::values).map(|page| &**page).filter(|page| !is_all_zero(&page.0))
}

/// Adds the ancestors of the changed leaves to the draft; a child that stays is marked with a provisional entry.
fn draft_nodes(file: &PageFile, draft: &mut Draft) {
    for level in 2..=MAP_HEIGHT {
        let mut parents: BTreeMap<u32, Box<PageBuf>> = BTreeMap::new();
        for (index, page) in &draft[level as usize - 1] {
            let parent_index = index / FANOUT as u32;
            let parent = parents.entry(parent_index).or_insert_with(|| {
                let mut parent = PageBuf::boxed();
                file.table.copy_node(level, parent_index, &mut parent);
                parent
            });
            let provisional = if is_all_zero(&page.0) { Entry::NONE } else { Entry::new(Slot::FIRST, 0) };
            parent.set_entry(*index as usize % FANOUT, provisional);
        }
        draft[level as usize] = parents;
    }
}

//! The live map in memory: where the newest durable content of each page lies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use super::entry::{Entry, PageBuf, FANOUT};
use super::PAGE_ID_LIMIT;

/// Levels of map pages. Level 1 is the leaves, whose entries are pages; level [`MAP_HEIGHT`] is the root.
pub(super) const MAP_HEIGHT: u32 = 4;

/// Entries a chunk of an [`EntryArray`] holds.
const CHUNK_ENTRIES: usize = 1 << 16;

/// The entries of all nodes, a level an array: array 0 has the entries of the pages, array `n` those of the map pages
/// of level `n`. A map page of level `n` at index `i` holds entries `512 i .. 512 (i + 1)` of array `n - 1`.
/// The entry of the root is in the superblock.
pub(super) struct SlotTable {
    levels: Vec<EntryArray>,
}

impl SlotTable {
    pub fn new() -> SlotTable {
        SlotTable { levels: (0..MAP_HEIGHT).map(|level| EntryArray::new(node_limit(level))).collect() }
    }

    /// The entry of node `index` of `level` (level 0: page `index`). Indices out of range have none.
    pub fn get(&self, level: u32, index: u32) -> Entry {
        self.levels[level as usize].get(index)
    }

    pub fn set(&self, level: u32, index: u32, entry: Entry) {
        self.levels[level as usize].set(index, entry);
    }

    /// Fills `page` with what the map page `index` of `level` holds.
    pub fn copy_node(&self, level: u32, index: u32, page: &mut PageBuf) {
        let first = u64::from(index) * FANOUT as u64;
        for offset in 0..FANOUT {
            let entry =
                u32::try_from(first + offset as u64).map_or(Entry::NONE, |at| self.get(level - 1, at));
            page.set_entry(offset, entry);
        }
    }

    /// Calls `visit(page, entry)` for each mapped page, ascending.
    pub fn for_each_page(&self, visit: &mut impl FnMut(u32, Entry)) {
        self.visit_node(MAP_HEIGHT, 0, visit);
    }

    fn visit_node(&self, level: u32, index: u32, visit: &mut impl FnMut(u32, Entry)) {
        let children = level - 1;
        let first = u64::from(index) * FANOUT as u64;
        let end = (first + FANOUT as u64).min(u64::from(node_limit(children)));
        for child in first..end {
            let child = child as u32;
            let entry = self.get(children, child);
            if entry == Entry::NONE {
                continue;
            }
            match children {
                0 => visit(child, entry),
                _ => self.visit_node(children, child, visit),
            }
        }
    }
}

/// How many nodes `level` has at most (level 0: how many pages).
pub(super) fn node_limit(level: u32) -> u32 {
    let shift = 9 * level;
    ((u64::from(PAGE_ID_LIMIT) + (1u64 << shift) - 1) >> shift) as u32
}

/// A fixed number of entries, all [`Entry::NONE`] at first, that takes memory where it has been written only.
struct EntryArray {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl EntryArray {
    fn new(entry_count: u32) -> EntryArray {
        let chunk_count = (entry_count as usize).div_ceil(CHUNK_ENTRIES);
        EntryArray { chunks: (0..chunk_count).map(|_| OnceLock::new()).collect() }
    }

    fn get(&self, index: u32) -> Entry {
        let index = index as usize;
        match self.chunks.get(index / CHUNK_ENTRIES).and_then(OnceLock::get) {
            Some(chunk) => Entry(chunk[index % CHUNK_ENTRIES].load(Ordering::Acquire)),
            None => Entry::NONE,
        }
    }

    fn set(&self, index: u32, entry: Entry) {
        let index = index as usize;
        let chunk = self.chunks[index / CHUNK_ENTRIES]
            .get_or_init(|| (0..CHUNK_ENTRIES).map(|_| AtomicU64::new(Entry::NONE.0)).collect());
        chunk[index % CHUNK_ENTRIES].store(entry.0, Ordering::Release);
    }
}

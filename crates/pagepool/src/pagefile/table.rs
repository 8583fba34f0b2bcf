//! The live map in memory: where the newest durable content of each page lies.

use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{Entry, FANOUT, PAGE_ID_LIMIT};
use crate::device::PageBuf;
use crate::space::{MapError, VirtualArray};

/// Levels of map pages. Level 1 is the leaves, whose entries are pages; level [`MAP_HEIGHT`] is the root.
pub(super) const MAP_HEIGHT: u32 = 4;

/// The entries of all nodes, a level an array: array 0 has the entries of the pages, array `n` those of the map pages
/// of level `n`. A map page of level `n` at index `i` holds entries `512 i .. 512 (i + 1)` of array `n - 1`.
/// The entry of the root is in the superblock.
///
/// Takes 8 bytes of memory a mapped page, and address space for all that could be.
pub(super) struct SlotTable {
    levels: Vec<VirtualArray<AtomicU64>>,
}

impl SlotTable {
    pub fn new() -> Result<SlotTable, MapError> {
        let levels = (0..MAP_HEIGHT).map(|level| VirtualArray::new(node_limit(level) as usize));
        Ok(SlotTable { levels: levels.collect::<Result<_, _>>()? })
    }

    /// The entry of node `index` of `level` (level 0: page `index`). Indices out of range have none.
    pub fn get(&self, level: u32, index: u32) -> Entry {
        match index < node_limit(level) {
            true => Entry(self.levels[level as usize].get(index as usize).load(Ordering::Acquire)),
            false => Entry::NONE,
        }
    }

    /// Sets the entry of a node, whose index is in range.
    pub fn set(&self, level: u32, index: u32, entry: Entry) {
        self.levels[level as usize].get(index as usize).store(entry.0, Ordering::Release);
    }

    /// Fills `page` with what the map page `index` of `level` holds.
    pub fn copy_node(&self, level: u32, index: u32, page: &mut PageBuf) {
        let first = index * FANOUT as u32;
        for offset in 0..FANOUT {
            page.set_entry(offset, self.get(level - 1, first + offset as u32));
        }
    }

    /// Calls `visit(index, entry)` for each node of `level` that there is (level 0: each mapped page), ascending.
    pub fn for_each_node(&self, level: u32, visit: &mut impl FnMut(u32, Entry)) {
        self.visit_children(level, MAP_HEIGHT, 0, visit);
    }

    fn visit_children(&self, wanted: u32, level: u32, index: u32, visit: &mut impl FnMut(u32, Entry)) {
        let children = level - 1;
        let first = index * FANOUT as u32;
        for child in first..(first + FANOUT as u32).min(node_limit(children)) {
            let entry = self.get(children, child);
            if entry == Entry::NONE {
                continue;
            }
            match children == wanted {
                true => visit(child, entry),
                false => self.visit_children(wanted, children, child, visit),
            }
        }
    }
}

/// How many nodes `level` has at most (level 0: how many pages).
pub(super) fn node_limit(level: u32) -> u32 {
    u64::from(PAGE_ID_LIMIT).div_ceil(1 << (9 * level)) as u32
}

//! Where the content of each page lies: the live map in memory, and the locations that it does not have yet.

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
/// Takes 8 bytes of memory a mapped page, as many for 512 neighbours of which one has been written back, and address
/// space for all that could be.
pub(super) struct SlotTable {
    levels: Vec<VirtualArray<AtomicU64>>,
    /// What has been written back and is not in the map: it counts before that. Changed with [`super::space::Space`] locked.
    located: VirtualArray<AtomicU64>,
}

/// Which content of a page is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// What the durable checkpoint has.
    Durable,
    /// What was written last: its location.
    Newest,
}

impl SlotTable {
    pub fn new() -> Result<SlotTable, MapError> {
        let levels = (0..MAP_HEIGHT).map(|level| VirtualArray::new(node_limit(level) as usize));
        let located = VirtualArray::new(node_limit(0) as usize)?;
        Ok(SlotTable { levels: levels.collect::<Result<_, _>>()?, located })
    }

    /// Where page `pid` has that content.
    pub fn entry(&self, content: Content, pid: u32) -> Entry {
        // In this order: what becomes durable is entered into the map before it is no longer located.
        match content {
            Content::Newest => Some(self.located(pid)).filter(|entry| *entry != Entry::NONE),
            Content::Durable => None,
        }
        .unwrap_or_else(|| self.get(0, pid))
    }

    /// The location of page `pid` that the map does not have, if there is one.
    pub fn located(&self, pid: u32) -> Entry {
        let entry = self.located.try_get(pid as usize);
        entry.map_or(Entry::NONE, |entry| Entry(entry.load(Ordering::Acquire)))
    }

    /// Sets that location, with the space locked; of a page whose number is in range. Returns what it was.
    pub fn set_located(&self, pid: u32, entry: Entry) -> Entry {
        Entry(self.located.get(pid as usize).swap(entry.0, Ordering::AcqRel))
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

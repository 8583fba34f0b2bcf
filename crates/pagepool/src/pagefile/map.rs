//! Reading and verifying the map of a checkpoint.

use std::io::IoSliceMut;

use parking_lot::Mutex;

use super::bitmap::SlotSet;
use super::entry::{Entry, Slot, FANOUT};
use super::error::PageFileError;
use super::superblock::Superblock;
use super::table::{node_limit, SlotTable, MAP_HEIGHT};
use crate::device::{read_patiently, Bufs, Device, PageBuf, Transfer};

/// Map pages that are read between two looks at what they say, and slots that one call reads: bounds the memory of
/// opening (32 MB).
const WAVE_PAGES: usize = 4096;
/// Longest read, in slots.
const READ_SLOTS: u32 = 256;
/// Slots in between that are read for nothing rather than with another call.
const GAP_SLOTS: u32 = 16;

/// A map page that is known by its parent and not yet read.
#[derive(Clone, Copy)]
struct Node {
    index: u32,
    entry: Entry,
}

/// Loads and verifies the map of one checkpoint.
pub(super) struct MapLoader<'a> {
    pub device: &'a dyn Device,
    pub superblock: &'a Superblock,
    /// Slots the file has.
    pub slot_count: u32,
    /// Takes the entries, if the map is to be served from.
    pub target: Option<&'a SlotTable>,
    /// A map that is loaded already and its root: what both share is not looked at again.
    pub known: Option<(&'a SlotTable, Entry)>,
}

impl MapLoader<'_> {
    /// Reads the map from the root down. Returns the slots it names, its own map pages' included; an error names the
    /// first page that does not fit.
    pub fn load(&self) -> Result<SlotSet, PageFileError> {
        let mut load = Load { loader: self, slots: SlotSet::default(), page_count: 0, data_slot_count: 0 };
        let root = Node { index: 0, entry: self.superblock.root };
        let mut nodes = Vec::new();
        if self.known.is_none_or(|(_, known_root)| known_root != root.entry) {
            load.admit(MAP_HEIGHT, Slot(0), root, &mut nodes)?;
        }
        for level in (1..=MAP_HEIGHT).rev() {
            let mut children = Vec::new();
            for wave in nodes.chunks(WAVE_PAGES) {
                for (node, page) in self.read_nodes(level, wave)? {
                    load.admit_children(level, node, &page, &mut children)?;
                }
            }
            nodes = children;
        }
        load.finish()
    }

    fn damaged(&self, level: u32, node: Node, why: String) -> PageFileError {
        PageFileError::MapDamaged {
            file: self.device.name().to_owned(),
            generation: self.superblock.generation,
            slot: Slot(node.entry.0 as u32),
            level,
            first_pid: u64::from(node.index) << (9 * level),
            why,
        }
    }

    /// Reads and verifies the map pages `nodes` of `level`, neighbours together, several reads at a time.
    fn read_nodes(&self, level: u32, nodes: &[Node]) -> Result<Vec<(Node, PageBuf)>, PageFileError> {
        let mut by_slot = nodes.to_vec();
        by_slot.sort_unstable_by_key(|node| node.entry.0 as u32);
        let mut found = Vec::with_capacity(nodes.len());
        let reads = split_reads(&by_slot);
        let mut rest = &reads[..];
        while !rest.is_empty() {
            let mut slot_count = 0;
            let fits = |read: &&&[Node]| {
                slot_count += span(read);
                slot_count <= WAVE_PAGES
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
            self.read_runs(level, now, &mut found)?;
            rest = later;
        }
        Ok(found)
    }

    /// Reads nodes with one call; those of each of `reads` lie close together, in ascending slots.
    fn read_runs(
        &self,
        level: u32,
        reads: &[&[Node]],
        found: &mut Vec<(Node, PageBuf)>,
    ) -> Result<(), PageFileError> {
        let mut pages: Vec<_> = reads.iter().map(|nodes| vec![PageBuf::ZERO; span(nodes)]).collect();
        let mut transfers = Vec::with_capacity(reads.len());
        for (nodes, pages) in reads.iter().zip(&mut pages) {
            let bufs = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
            transfers.push(Transfer { offset: first_slot(nodes).offset(), bufs: Bufs::Read(bufs) });
        }
        let failed = Mutex::new(None);
        self.device.transfer(&mut transfers, &|index, transfer, result| {
            let mut first_result = Some(result);
            let read = || first_result.take().unwrap_or_else(|| transfer.perform(self.device));
            let read = read_patiently(read).map_err(PageFileError::from);
            if let Err(error) = read.and_then(|()| self.verify(level, reads[index], transfer)) {
                failed.lock().get_or_insert(error);
            }
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        for (nodes, mut pages) in reads.iter().zip(pages) {
            let place = |node: &Node| (node.entry.0 as u32 - first_slot(nodes).0) as usize;
            let take = |node: &Node| (*node, std::mem::replace(&mut pages[place(node)], PageBuf::ZERO));
            found.extend(nodes.iter().map(take));
        }
        Ok(())
    }

    /// Verifies nodes that have been read with one transfer.
    fn verify(&self, level: u32, nodes: &[Node], read: &Transfer<'_>) -> Result<(), PageFileError> {
        let Bufs::Read(pages) = &read.bufs else { unreachable!("nodes are read") };
        for node in nodes {
            let page = &pages[(node.entry.0 as u32 - first_slot(nodes).0) as usize];
            let (found, expected) = (crc32c::crc32c(page), node.entry.crc32c());
            if found != expected {
                let why = format!("checksum {found:#010x} found, {expected:#010x} expected");
                return Err(self.damaged(level, *node, why));
            }
        }
        Ok(())
    }
}

fn first_slot(nodes: &[Node]) -> Slot {
    Slot(nodes[0].entry.0 as u32)
}

/// Slots from the first of `nodes` to the last.
fn span(nodes: &[Node]) -> usize {
    (nodes[nodes.len() - 1].entry.0 as u32 - first_slot(nodes).0) as usize + 1
}

/// Splits nodes in ascending slots into parts that one read each fetches.
fn split_reads(nodes: &[Node]) -> Vec<&[Node]> {
    let mut reads = Vec::new();
    let mut begin = 0;
    for at in 1..=nodes.len() {
        let slot = |at: usize| nodes[at].entry.0 as u32;
        let is_end =
            at == nodes.len() || slot(at) - slot(at - 1) > GAP_SLOTS || slot(at) - slot(begin) >= READ_SLOTS;
        if is_end {
            reads.push(&nodes[begin..at]);
            begin = at;
        }
    }
    reads
}

/// A load under way.
struct Load<'a> {
    loader: &'a MapLoader<'a>,
    slots: SlotSet,
    page_count: u64,
    data_slot_count: u64,
}

impl Load<'_> {
    /// Checks the entry of `node`, of `level`, which the map page at `parent` names, and takes note of its slot.
    /// Map pages that are still to be read are added to `nodes`.
    fn admit(
        &mut self,
        level: u32,
        parent: Slot,
        node: Node,
        nodes: &mut Vec<Node>,
    ) -> Result<(), PageFileError> {
        let loader = self.loader;
        let entry = node.entry;
        if entry == Entry::NONE {
            return Ok(());
        }
        let place = |why: &str| {
            let parent_node = Node { index: node.index >> 9, entry: Entry::new(parent, 0) };
            let text = format!("{why}: entry {:#018x} of node {}", entry.0, node.index);
            Err(loader.damaged(level + 1, parent_node, text))
        };
        if !entry.is_well_formed() || (entry == Entry::ZEROS && level > 0) {
            return place("an entry without a meaning");
        }
        if node.index >= node_limit(level) {
            return place("a page beyond the limit");
        }
        if let Some(slot) = entry.slot() {
            if slot.0 >= loader.slot_count {
                return place("a slot beyond the end of the file");
            }
            if !self.slots.insert(slot) {
                return place("a slot that is named twice");
            }
            self.data_slot_count += u64::from(level == 0);
        }
        if let Some(table) = loader.target {
            if level < MAP_HEIGHT {
                table.set(level, node.index, entry);
            }
        }
        match level {
            0 => self.page_count += 1,
            _ => nodes.push(node),
        }
        Ok(())
    }

    fn admit_children(
        &mut self,
        level: u32,
        node: Node,
        page: &PageBuf,
        nodes: &mut Vec<Node>,
    ) -> Result<(), PageFileError> {
        let parent = Slot(node.entry.0 as u32);
        for offset in 0..FANOUT as u32 {
            let entry = page.entry(offset as usize);
            if entry == Entry::NONE {
                continue;
            }
            let index = node.index * FANOUT as u32 + offset;
            if self.loader.known.is_some_and(|(known, _)| known.get(level - 1, index) == entry) {
                continue;
            }
            self.admit(level - 1, parent, Node { index, entry }, nodes)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<SlotSet, PageFileError> {
        let sums = self.loader.superblock;
        let found =
            (self.page_count, self.data_slot_count, u64::from(self.slots.len()) - self.data_slot_count);
        let expected = (sums.page_count, sums.data_slot_count, sums.map_slot_count);
        if self.loader.known.is_none() && found != expected {
            let why =
                format!("pages, their slots, map slots are {found:?}, the superblock says {expected:?}");
            return Err(self.loader.damaged(MAP_HEIGHT, Node { index: 0, entry: sums.root }, why));
        }
        Ok(self.slots)
    }
}

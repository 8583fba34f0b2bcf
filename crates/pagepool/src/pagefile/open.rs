//! Opening: find the newest checkpoint that loads, and protect both.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::bitmap::SlotSet;
use super::entry::{Entry, PageBuf, Slot, FANOUT};
use super::superblock::{Found, Superblock};
use super::table::{node_limit, SlotTable, MAP_HEIGHT};
use super::{parallel, NeededPages, Other, PageError, PageFileError, PAGE_ID_LIMIT};
use crate::device::{Device, DeviceError};
use crate::{PageId, PAGE_SIZE};

/// Map pages that are read between two looks at what they say; bounds the memory of opening (16 MB).
const WAVE_PAGES: usize = 4096;
/// Longest read, in slots.
const READ_SLOTS: u32 = 256;
/// Slots in between that are read for nothing rather than with another call.
const GAP_SLOTS: u32 = 16;
/// Bytes of a page file that holds superblocks only.
const SUPERBLOCK_BYTES: u64 = 2 * PAGE_SIZE as u64;

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
        let reads = split_reads(&by_slot);
        let found = Mutex::new(Vec::with_capacity(nodes.len()));
        parallel::for_each(self.device.parallelism(), &reads, |read| {
            self.read_run(level, read).map(|pages| found.lock().extend(pages))
        })?;
        Ok(found.into_inner())
    }

    /// Reads `nodes`, which lie close together in ascending slots, with one call.
    fn read_run(&self, level: u32, nodes: &[Node]) -> Result<Vec<(Node, PageBuf)>, PageFileError> {
        let first = nodes[0].entry.0 as u32;
        let span = nodes[nodes.len() - 1].entry.0 as u32 - first + 1;
        let mut pages = vec![PageBuf::ZERO; span as usize];
        let mut bufs: Vec<_> = pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
        self.device.read_at(Slot(first).offset(), &mut bufs)?;
        let mut verified = Vec::with_capacity(nodes.len());
        for node in nodes {
            let page = &pages[(node.entry.0 as u32 - first) as usize];
            let (found, expected) = (crc32c::crc32c(&page.0), node.entry.crc32c());
            if found != expected {
                let why = format!("checksum {found:#010x} found, {expected:#010x} expected");
                return Err(self.damaged(level, *node, why));
            }
            verified.push((*node, page.clone()));
        }
        Ok(verified)
    }
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

/// A checkpoint that the file may hold: its superblock, and in which place that is.
struct Candidate {
    place: u32,
    superblock: Superblock,
}

/// What opening found.
pub(super) struct Opened {
    pub superblock: Superblock,
    pub place: u32,
    pub other: Other,
    pub table: SlotTable,
    pub slot_count: u32,
    /// Slots of the checkpoint that is served.
    pub slots: SlotSet,
    /// Slots of the one before it that differ.
    pub previous_slots: SlotSet,
    pub newest_generation: u64,
    pub fell_back: bool,
    pub damage: Option<PageFileError>,
}

/// Makes an empty page file of an empty device.
pub(super) fn create(device: &dyn Device) -> Result<(), DeviceError> {
    device.allocate(SUPERBLOCK_BYTES)?;
    let page = Box::new(Superblock::empty().encode());
    device.write_at(0, &[IoSlice::new(&page.0), IoSlice::new(&page.0)])?;
    device.sync_data()
}

/// Finds the newest checkpoint that loads, with the pages that its header needs.
pub(super) fn open(device: &dyn Device, needed: NeededPages) -> Result<Opened, PageFileError> {
    let len = device.len()?;
    if len < SUPERBLOCK_BYTES {
        return Err(PageFileError::NotAPageFile { file: device.name().to_owned() });
    }
    let slot_count = u32::try_from(len / PAGE_SIZE as u64).unwrap_or(u32::MAX);
    let candidates = [read_candidate(device, 0)?, read_candidate(device, 1)?];
    if candidates.iter().all(|candidate| matches!(candidate, Err(PageFileError::SuperblockMissing { .. }))) {
        return Err(PageFileError::NotAPageFile { file: device.name().to_owned() });
    }
    let (newer, older) = match candidates {
        [Ok(first), Ok(second)] if second.superblock.generation > first.superblock.generation => {
            (Ok(second), Ok(first))
        }
        [Err(error), Ok(second)] => (Ok(second), Err(error)),
        [first, second] => (first, second),
    };
    let newest_generation = newer.as_ref().map_or(0, |newer| newer.superblock.generation);
    let load = |candidate| load(device, slot_count, candidate, needed);
    let loaded = newer.and_then(load);
    match loaded {
        Ok(mut opened) => {
            match older.and_then(|older| load_previous(device, &opened, &older)) {
                Ok((other, slots)) => (opened.other, opened.previous_slots) = (other, slots),
                Err(error) => opened.damage = Some(error),
            }
            Ok(opened)
        }
        Err(newest) => match older.and_then(not_empty).and_then(load) {
            Ok(opened) => Ok(Opened { newest_generation, fell_back: true, damage: Some(newest), ..opened }),
            Err(older) => Err(PageFileError::NothingLoads { newest: newest.into(), older: older.into() }),
        },
    }
}

fn not_empty(candidate: Candidate) -> Result<Candidate, PageFileError> {
    match candidate.superblock.page_count {
        0 => Err(PageFileError::PreviousEmpty),
        _ => Ok(candidate),
    }
}

/// Reads the superblock at `place`. The outer error is a reason to go no further.
fn read_candidate(
    device: &dyn Device,
    place: u32,
) -> Result<Result<Candidate, PageFileError>, PageFileError> {
    let mut page = PageBuf::boxed();
    if let Err(error) = device.read_at(Slot(place).offset(), &mut [IoSliceMut::new(&mut page.0)]) {
        return Ok(Err(error.into()));
    }
    let file = device.name().to_owned();
    Ok(match Superblock::decode(&page) {
        Found::Valid(superblock) => Ok(Candidate { place, superblock: *superblock }),
        Found::OtherVersion(found) => return Err(PageFileError::UnknownVersion { file, found }),
        Found::Damaged(why) => Err(PageFileError::SuperblockDamaged { file, place, why }),
        Found::Foreign => Err(PageFileError::SuperblockMissing { file, place }),
    })
}

/// Loads a checkpoint to serve from.
fn load(
    device: &dyn Device,
    slot_count: u32,
    candidate: Candidate,
    needed: NeededPages,
) -> Result<Opened, PageFileError> {
    let table = SlotTable::new().map_err(|error| PageFileError::Memory(Arc::new(error)))?;
    let Candidate { place, superblock } = candidate;
    let loader = MapLoader { device, superblock: &superblock, slot_count, target: Some(&table), known: None };
    let slots = loader.load()?;
    if superblock.page_count > 0 {
        check_pages(device, needed(&superblock.user_header), |pid| table.get(0, pid))?;
    }
    Ok(Opened {
        newest_generation: superblock.generation,
        superblock,
        place,
        other: Other::Unprotected,
        table,
        slot_count,
        slots,
        previous_slots: SlotSet::default(),
        fell_back: false,
        damage: None,
    })
}

/// Reads and verifies pages, found by `entry_of`.
pub(super) fn check_pages(
    device: &dyn Device,
    pids: Range<u32>,
    entry_of: impl Fn(u32) -> Entry,
) -> Result<(), PageError> {
    let mut page = PageBuf::boxed();
    for pid in pids.map(PageId) {
        let file = || device.name().to_owned();
        let entry = if pid.0 < PAGE_ID_LIMIT { entry_of(pid.0) } else { Entry::NONE };
        let Some(slot) = entry.slot() else {
            match entry == Entry::NONE {
                true => return Err(PageError::Unmapped { file: file(), pid }),
                false => continue,
            }
        };
        device
            .read_at(slot.offset(), &mut [IoSliceMut::new(&mut page.0)])
            .map_err(|source| PageError::Device { pid, source })?;
        let (found_crc32c, expected_crc32c) = (crc32c::crc32c(&page.0), entry.crc32c());
        if found_crc32c != expected_crc32c {
            return Err(PageError::Damaged { file: file(), pid, slot, expected_crc32c, found_crc32c });
        }
    }
    Ok(())
}

/// Finds the slots of the checkpoint before the one that is served.
fn load_previous(
    device: &dyn Device,
    served: &Opened,
    older: &Candidate,
) -> Result<(Other, SlotSet), PageFileError> {
    if older.superblock == served.superblock {
        return Ok((Other::Mirror, SlotSet::default()));
    }
    let known = Some((&served.table, served.superblock.root));
    let (superblock, slot_count) = (&older.superblock, served.slot_count);
    let slots = MapLoader { device, superblock, slot_count, target: None, known }.load()?;
    Ok((Other::Previous, slots))
}

/// Whether the device holds nothing, or no more than the begin of creating a page file.
pub(super) fn is_blank(device: &dyn Device, len: u64) -> Result<bool, DeviceError> {
    if len == 0 {
        return Ok(true);
    }
    if len != SUPERBLOCK_BYTES {
        return Ok(false);
    }
    let fresh = Superblock::empty().encode();
    let mut pages = [PageBuf::ZERO, PageBuf::ZERO];
    let [first, second] = &mut pages;
    device.read_at(0, &mut [IoSliceMut::new(&mut first.0), IoSliceMut::new(&mut second.0)])?;
    let is_part = |page: &PageBuf| {
        let sectors = page.0.chunks(512).zip(fresh.0.chunks(512));
        sectors.into_iter().all(|(found, made)| found == made || found.iter().all(|byte| *byte == 0))
    };
    Ok(pages.iter().all(is_part) && pages.iter().any(|page| page.0 != fresh.0))
}

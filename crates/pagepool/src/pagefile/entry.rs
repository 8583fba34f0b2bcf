//! Slots and map entries.

use crate::device::PageBuf;
use crate::PAGE_SIZE;

/// One more than the greatest page number that a page file can hold.
pub const PAGE_ID_LIMIT: u32 = 1 << 30;

/// Entries of a map page: the number of children a node has.
pub(super) const FANOUT: usize = PAGE_SIZE / 8;

impl PageBuf {
    /// Entry `index` of a map page.
    pub(super) fn entry(&self, index: usize) -> Entry {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[index * 8..index * 8 + 8]);
        Entry(u64::from_le_bytes(bytes))
    }

    /// Sets entry `index` of a map page.
    pub(super) fn set_entry(&mut self, index: usize, entry: Entry) {
        self.0[index * 8..index * 8 + 8].copy_from_slice(&entry.0.to_le_bytes());
    }
}

/// Number of a 4 KB slot of the page file; slot `n` lies at byte `n * 4096`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

impl Slot {
    /// Where the witness of the superblocks lies.
    pub(super) const WITNESS: Slot = Slot(2);
    /// The first slot behind the superblocks and their witness.
    pub(super) const FIRST: Slot = Slot(3);

    /// Its first byte in the file.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * PAGE_SIZE as u64
    }
}

/// Consecutive slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRun {
    /// The first of them.
    pub first: Slot,
    /// How many.
    pub slot_count: u32,
}

impl SlotRun {
    /// The slots, ascending.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        (self.first.0..self.first.0 + self.slot_count).map(Slot)
    }
}

/// Where a page lives and what its content sums up to: slot in the low, CRC-32C in the high 32 bits.
///
/// Slot 0 says that there is no page, slot 1 that the page is all zeros and takes no slot; both with checksum 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(pub u64);

impl Entry {
    /// There is no such page.
    pub const NONE: Entry = Entry(0);
    /// The page is there and holds zeros only.
    pub const ZEROS: Entry = Entry(1);

    pub fn new(slot: Slot, crc32c: u32) -> Entry {
        Entry(u64::from(slot.0) | u64::from(crc32c) << 32)
    }

    /// The slot the page takes, if it takes one.
    pub fn slot(self) -> Option<Slot> {
        let slot = Slot(self.0 as u32);
        (slot >= Slot::FIRST).then_some(slot)
    }

    pub fn crc32c(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether the bits mean anything: a checksum without a slot does not, nor does the slot of the witness.
    pub fn is_well_formed(self) -> bool {
        self.slot().is_some() || self == Entry::NONE || self == Entry::ZEROS
    }
}

/// Whether `page` holds zeros only.
pub(super) fn is_all_zero(page: &[u8; PAGE_SIZE]) -> bool {
    // Page by page most first words differ from zero already; a block at a time lets the compiler vectorise.
    page.chunks_exact(64).all(|block| block.iter().fold(0, |acc, byte| acc | byte) == 0)
}

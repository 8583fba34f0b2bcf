//! The reference to bytes kept outside a leaf.

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::slab::{Class, SLAB_PAGE_COUNT};

/// Bytes of an encoded reference.
pub(crate) const BLOB_BYTES: usize = 12;

/// Bytes kept outside the leaf: in a slot of a slab, or in pages of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blob {
    /// Head page of the slab or of the object.
    pub pid: PageId,
    pub len_bytes: u32,
    pub place: BlobPlace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlobPlace {
    /// Slot of the slab, and the slab's size class.
    Slab { class: u8, slot: u16 },
    /// The object is the blob alone; `page_count` pages are reserved for it.
    Object { page_count: u32 },
}

const PLACE_SLAB: u32 = 1 << 31;

impl BlobPlace {
    /// Bit 31 is set for a slab: class in bits 16-23, slot below; else it is the page count.
    pub fn to_word(self) -> u32 {
        match self {
            BlobPlace::Slab { class, slot } => PLACE_SLAB | u32::from(class) << 16 | u32::from(slot),
            BlobPlace::Object { page_count } => page_count,
        }
    }

    pub fn from_word(word: u32) -> BlobPlace {
        match word & PLACE_SLAB {
            0 => BlobPlace::Object { page_count: word },
            _ => BlobPlace::Slab { class: (word >> 16) as u8, slot: word as u16 },
        }
    }
}

impl Blob {
    pub fn encode(&self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&self.pid.0.to_le_bytes());
        out[4..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        out[8..12].copy_from_slice(&self.place.to_word().to_le_bytes());
    }

    pub fn parse(bytes: &[u8]) -> Option<Blob> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Blob { pid: PageId(word(0)?), len_bytes: word(4)?, place: BlobPlace::from_word(word(8)?) })
    }

    /// Byte of the slab or object where it starts.
    pub fn start(&self) -> u64 {
        match self.place {
            BlobPlace::Slab { class, slot } => Class(class).slot_offset(slot) as u64,
            BlobPlace::Object { .. } => 0,
        }
    }

    /// Whether the page is one of the slab's or the object's.
    pub fn has_page(&self, pid: PageId) -> bool {
        let page_count = match self.place {
            BlobPlace::Slab { .. } => SLAB_PAGE_COUNT,
            BlobPlace::Object { page_count } => page_count,
        };
        pid.0.checked_sub(self.pid.0).is_some_and(|nth| nth < page_count)
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        match self.place {
            BlobPlace::Slab { class, .. } => Class(class).slot_bytes() as u64,
            BlobPlace::Object { page_count } => u64::from(page_count) * PAGE_SIZE as u64,
        }
    }
}

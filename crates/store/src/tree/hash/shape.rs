//! Where in a leaf a hash is looked for: what a few bytes of its header say, checked or merely peeked at.

use crate::page::PAGE_SIZE;
use wide::u32x4;

pub(crate) const HEADER_BYTES: usize = 36;
pub(crate) const SLOT_BYTES: usize = 4;

/// Slots compared at once: the whole of a leaf of 100-byte values, or a window around the expected place.
pub(super) const WINDOW_SLOTS: usize = 40;
pub(super) const WINDOW_BYTES: usize = SLOT_BYTES * WINDOW_SLOTS;
/// The same for a peek, where a few may be missed.
pub(super) const PEEK_SLOTS: usize = 32;
pub(super) const PEEK_SLOTS_BYTES: usize = SLOT_BYTES * PEEK_SLOTS;

/// Number of fingerprint units that `lo..=hi` spans, less one.
pub(super) fn span(lo: u64, hi: u64, shift: u8) -> u64 {
    (hi >> shift) - (lo >> shift)
}

/// The part of a leaf's header that says how its slots are ordered.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Below 64.
    pub fp_shift: u8,
    pub count: usize,
    pub lo: u64,
    /// At least `lo`.
    pub hi: u64,
}

impl Shape {
    #[inline(always)]
    pub fn fingerprint(&self, hash: u64) -> u16 {
        (hash >> self.fp_shift) as u16
    }

    /// Fingerprint units above `lo`.
    #[inline(always)]
    pub fn rank_of(&self, fingerprint: u16) -> u16 {
        fingerprint.wrapping_sub((self.lo >> self.fp_shift) as u16)
    }

    /// Where so many slots around the expected place of a fingerprint start: hashes are uniform.
    #[inline(always)]
    fn window_start(&self, fingerprint: u16, slot_count: usize) -> usize {
        if self.count <= slot_count {
            return 0;
        }
        let span = span(self.lo, self.hi, self.fp_shift) as u32 & 0xffff;
        let expected = u32::from(self.rank_of(fingerprint)) * self.count as u32 / (span + 1);
        (expected as usize).saturating_sub(slot_count / 2).min(self.count - slot_count)
    }

    /// Where the window of a hash, of so many slots, is in the page; `None` if it would reach beyond.
    #[inline(always)]
    pub fn window(&self, hash: u64, slot_count: usize) -> Option<Window> {
        let fingerprint = self.fingerprint(hash);
        let start = self.window_start(fingerprint, slot_count);
        let at = HEADER_BYTES + SLOT_BYTES * start;
        let end = self.count.min(start + slot_count);
        (at + SLOT_BYTES * slot_count <= PAGE_SIZE).then_some(Window { fingerprint, start, end, at })
    }

    /// The bytes of the page where the slots of the window are.
    #[inline(always)]
    pub fn window_bytes(&self, hash: u64) -> std::ops::Range<usize> {
        let at = HEADER_BYTES + SLOT_BYTES * self.window_start(self.fingerprint(hash), WINDOW_SLOTS);
        at..at + SLOT_BYTES * self.count.clamp(1, WINDOW_SLOTS)
    }
}

/// The slots that are compared with a fingerprint at once.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub fingerprint: u16,
    /// First slot, and the one after the last.
    pub start: usize,
    pub end: usize,
    /// Its first byte in the page.
    pub at: usize,
}

impl Window {
    /// A bit for each slot from `start` on whose fingerprint is the wanted one.
    #[inline(always)]
    pub fn matches(&self, slots: &[u8]) -> u64 {
        match_mask(slots, self.fingerprint) & ((1u64 << (self.end - self.start)) - 1)
    }
}

/// A bit for each of up to 64 slots (a multiple of 4 is given): whether its fingerprint is the given one.
#[inline(always)]
fn match_mask(slots: &[u8], fingerprint: u16) -> u64 {
    let wanted = u32x4::splat(u32::from(fingerprint));
    let mut mask = 0u64;
    for (group, slots) in slots.chunks_exact(4 * SLOT_BYTES).enumerate() {
        let slot = |i: usize| u32::from_le_bytes([slots[i], slots[i + 1], slots[i + 2], slots[i + 3]]);
        let four = u32x4::new([slot(0), slot(4), slot(8), slot(12)]);
        let equal = (four >> 16u32).simd_eq(wanted);
        mask |= u64::from(equal.to_bitmask()) << (4 * group);
    }
    mask
}

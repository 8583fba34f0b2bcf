//! A leaf: 36 bytes of header, slots sorted by hash growing up, records growing down from the end.
//!
//! ```text
//! 0  kind u8 | 1 fp_shift u8 | 2 count u16 | 4 heap_start u16 | 6 dead_bytes u16
//! 8  lo u64: least hash the leaf is responsible for      16 hi u64: greatest, inclusive
//! 24 tag u32: the tree it belongs to                     28 chain u32: next leaf of the same single hash, or 0
//! 32 deadline_count u16: of records or their elements    34 outside_count u16: records with a key or value elsewhere
//! 36 slots: u32 each, fingerprint << 16 | offset of the record
//! ```
//!
//! The fingerprint is `(hash >> fp_shift) as u16`. The range of the leaf spans fewer than 65,536 of these units, so
//! that fingerprint and `lo` give the hash down to the unit: most leaves are split and merged without hashing
//! a key again.

use super::record::{Header, Record};
use super::shape::{
    span, Shape, HEADER_BYTES, PEEK_SLOTS, PEEK_SLOTS_BYTES, SLOT_BYTES, WINDOW_BYTES, WINDOW_SLOTS,
};
use crate::page::*;
use std::ops::Range;
use stillframe_pagepool::{PageId, Pool};

/// Bytes for slots and records.
pub(crate) const CAPACITY_BYTES: usize = PAGE_SIZE - HEADER_BYTES;

const FP_SHIFT: usize = 1;
const COUNT: usize = 2;
const HEAP_START: usize = 4;
const DEAD: usize = 6;
const LO: usize = 8;
const HI: usize = 16;
const TAG: usize = 24;
const CHAIN: usize = 28;
const DEADLINES: usize = 32;
const OUTSIDE: usize = 34;

/// The finest shift by which every hash of `lo..=hi` has a fingerprint that tells it from others.
pub(crate) fn finest_shift(lo: u64, hi: u64) -> u8 {
    let mut shift = (64 - (hi - lo).leading_zeros()).saturating_sub(16) as u8;
    if span(lo, hi, shift) > 0xffff {
        shift += 1;
    }
    shift
}

/// Whether fingerprints of this shift are unambiguous in `lo..=hi`, and fine enough to be worth keeping.
pub(crate) fn shift_is_good(lo: u64, hi: u64, shift: u8) -> bool {
    let span = span(lo, hi, shift);
    span <= 0xffff && (span >= 0xfff || shift == 0)
}

/// Bytes at the start of a leaf that a peek takes: a cache line.
const PEEK_BYTES: usize = 64;
/// Of a new record so many bytes are asked for ahead; the processor follows from there.
const ROOM_MAX_BYTES: usize = 256;

/// The header of what was taken for a leaf, as a peek gave it: hints come from it, and nothing else.
pub(super) struct PeekedLeaf {
    head: [u8; PEEK_BYTES],
    pub shape: Shape,
}

impl PeekedLeaf {
    /// `None` if the page is not in memory or no leaf.
    #[inline(always)]
    pub fn new(pool: &Pool, pid: PageId) -> Option<PeekedLeaf> {
        let mut head = [0; PEEK_BYTES];
        if !pool.peek(pid, 0, &mut head) {
            return None;
        }
        let shape = Shape {
            fp_shift: head[FP_SHIFT],
            count: usize::from(get_u16(&head, COUNT)),
            lo: get_u64(&head, LO),
            hi: get_u64(&head, HI),
        };
        let is_leaf = head[0] == KIND_LEAF
            && shape.fp_shift < 64
            && shape.lo <= shape.hi
            && HEADER_BYTES + SLOT_BYTES * shape.count <= PAGE_SIZE;
        is_leaf.then_some(PeekedLeaf { head, shape })
    }

    /// The first slot with the hash's fingerprint, and where its record begins: it is the right one but for a few in a
    /// hundred.
    #[inline(always)]
    pub fn candidate(&self, pool: &Pool, pid: PageId, hash: u64) -> Option<(usize, usize)> {
        let window = self.shape.window(hash, PEEK_SLOTS)?;
        let mut slots = [0; PEEK_SLOTS_BYTES];
        let matches = if pool.peek(pid, window.at, &mut slots) { window.matches(&slots) } else { 0 };
        let first = (matches != 0).then(|| matches.trailing_zeros() as usize)?;
        Some((window.start + first, usize::from(get_u16(&slots, SLOT_BYTES * first))))
    }

    /// Whether any record has its key or its value elsewhere.
    #[inline(always)]
    pub fn has_outside(&self) -> bool {
        get_u16(&self.head, OUTSIDE) > 0
    }

    /// The bytes of the page that a new record is likely to take.
    #[inline(always)]
    pub fn room_bytes(&self) -> Range<usize> {
        let end = usize::from(get_u16(&self.head, HEAP_START)).min(PAGE_SIZE);
        end.saturating_sub(self.mean_record_bytes().min(ROOM_MAX_BYTES))..end
    }

    /// The bytes of the page where slots are, from the first that may make way for one of the hash.
    #[inline(always)]
    pub fn slots_behind(&self, hash: u64) -> Range<usize> {
        self.shape.window_bytes(hash).start..HEADER_BYTES + SLOT_BYTES * self.shape.count
    }

    /// Bytes of a record on average, slack included.
    #[inline(always)]
    pub fn mean_record_bytes(&self) -> usize {
        PAGE_SIZE.saturating_sub(usize::from(get_u16(&self.head, HEAP_START))) / self.shape.count.max(1)
    }
}

/// Read access to a leaf whose header has been checked.
#[derive(Clone, Copy)]
pub(crate) struct Leaf<'a> {
    pub page: &'a Page,
}

impl<'a> Leaf<'a> {
    /// `None` unless the page is a leaf with a sane header: no accessor panics after that.
    #[inline(always)]
    pub fn new(page: &'a Page) -> Option<Leaf<'a>> {
        let leaf = Leaf { page };
        let slots_end = HEADER_BYTES + SLOT_BYTES * leaf.count();
        let sane = page[0] == KIND_LEAF
            && page[FP_SHIFT] < 64
            && leaf.lo() <= leaf.hi()
            && slots_end <= leaf.heap_start()
            && leaf.heap_start() + leaf.dead_bytes() <= PAGE_SIZE;
        sane.then_some(leaf)
    }

    #[inline(always)]
    pub fn fp_shift(&self) -> u8 {
        self.page[FP_SHIFT]
    }

    #[inline(always)]
    pub fn count(&self) -> usize {
        usize::from(get_u16(self.page, COUNT))
    }

    #[inline(always)]
    pub fn heap_start(&self) -> usize {
        usize::from(get_u16(self.page, HEAP_START))
    }

    #[inline(always)]
    pub fn dead_bytes(&self) -> usize {
        usize::from(get_u16(self.page, DEAD))
    }

    #[inline(always)]
    pub fn lo(&self) -> u64 {
        get_u64(self.page, LO)
    }

    #[inline(always)]
    pub fn hi(&self) -> u64 {
        get_u64(self.page, HI)
    }

    #[inline(always)]
    pub fn tag(&self) -> u32 {
        get_u32(self.page, TAG)
    }

    /// Page of the next leaf that holds keys of the same hash, or 0.
    #[inline(always)]
    pub fn chain(&self) -> u32 {
        get_u32(self.page, CHAIN)
    }

    /// Records that have a deadline, or an element with one.
    #[inline(always)]
    pub fn deadline_count(&self) -> usize {
        usize::from(get_u16(self.page, DEADLINES))
    }

    /// Records whose key or value lies outside the leaf.
    #[inline(always)]
    pub fn outside_count(&self) -> usize {
        usize::from(get_u16(self.page, OUTSIDE))
    }

    /// Whether keys of this hash belong here.
    #[inline(always)]
    pub fn covers(&self, tag: u32, hash: u64) -> bool {
        self.tag() == tag && self.lo() <= hash && hash <= self.hi()
    }

    /// Bytes that records and their slots take.
    pub fn live_bytes(&self) -> usize {
        PAGE_SIZE - self.heap_start() - self.dead_bytes() + SLOT_BYTES * self.count()
    }

    /// Bytes free for a record and its slot, after compaction.
    #[inline(always)]
    pub fn free_bytes(&self) -> usize {
        CAPACITY_BYTES - self.live_bytes()
    }

    #[inline(always)]
    fn shape(&self) -> Shape {
        Shape { fp_shift: self.fp_shift(), count: self.count(), lo: self.lo(), hi: self.hi() }
    }

    #[inline(always)]
    pub fn fingerprint(&self, hash: u64) -> u16 {
        self.shape().fingerprint(hash)
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> u32 {
        get_u32(self.page, HEADER_BYTES + SLOT_BYTES * index)
    }

    /// Fingerprint units above `lo` of the slot's key.
    #[inline(always)]
    fn rank(&self, index: usize) -> u16 {
        self.rank_of((self.slot(index) >> 16) as u16)
    }

    #[inline(always)]
    fn rank_of(&self, fingerprint: u16) -> u16 {
        self.shape().rank_of(fingerprint)
    }

    /// The least hash that the key of the slot can have; keys of lower slots with another fingerprint are below it.
    pub fn least_hash(&self, index: usize) -> u64 {
        let units = (self.lo() >> self.fp_shift()).saturating_add(u64::from(self.rank(index)));
        (units << self.fp_shift()).max(self.lo())
    }

    /// The bytes from the start of the record on.
    #[inline(always)]
    pub fn record_tail(&self, index: usize) -> &'a [u8] {
        let offset = self.slot(index) as u16 as usize;
        self.page.get(offset..).unwrap_or(&[])
    }

    #[inline(always)]
    pub fn record_offset(&self, index: usize) -> usize {
        self.slot(index) as u16 as usize
    }

    #[inline(always)]
    pub fn record(&self, index: usize) -> Option<Record<'a>> {
        Record::parse(self.record_tail(index))
    }

    /// Bytes of the record, without its slot; 0 if it is malformed.
    pub fn record_bytes(&self, index: usize) -> usize {
        let tail = self.record_tail(index);
        Header::parse(tail).map(|h| h.record_bytes()).filter(|n| *n <= tail.len()).unwrap_or(0)
    }

    /// Whether the record of a slot has this key in line.
    #[inline(always)]
    pub fn key_is(&self, index: usize, key: &[u8]) -> bool {
        let tail = self.record_tail(index);
        Header::parse(tail).is_some_and(|header| header.key_is(tail, key))
    }

    /// Slot of a key that is kept in line.
    #[inline(always)]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.find_candidate(hash, |index| self.key_is(index, key))
    }

    /// First slot with the hash's fingerprint for which `accept` says yes.
    #[inline(always)]
    pub fn find_candidate(&self, hash: u64, mut accept: impl FnMut(usize) -> bool) -> Option<usize> {
        let shape = self.shape();
        let Some(window) = shape.window(hash, WINDOW_SLOTS) else {
            return self.find_by_bisection(shape.fingerprint(hash), accept);
        };
        let (fingerprint, start, end, count) = (window.fingerprint, window.start, window.end, shape.count);
        let mut matches = window.matches(&self.page[window.at..window.at + WINDOW_BYTES]);
        while matches != 0 {
            let index = start + matches.trailing_zeros() as usize;
            if accept(index) {
                return Some(index);
            }
            matches &= matches - 1;
        }
        let rank = self.rank_of(fingerprint);
        let all_seen = (start == 0 || self.rank(start - 1) < rank) && (end == count || self.rank(end) > rank);
        match all_seen {
            true => None,
            false => self.find_by_bisection(fingerprint, accept),
        }
    }

    #[cold]
    fn find_by_bisection(&self, fingerprint: u16, mut accept: impl FnMut(usize) -> bool) -> Option<usize> {
        let rank = self.rank_of(fingerprint);
        let first = self.lower_bound(rank);
        (first..self.count()).take_while(|i| self.rank(*i) == rank).find(|i| accept(*i))
    }

    /// First slot whose rank is at least `rank`.
    fn lower_bound(&self, rank: u16) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let mid = (low + high) / 2;
            if self.rank(mid) < rank {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }

    /// First slot that may have a hash of at least `hash`.
    pub fn first_at_or_above(&self, hash: u64) -> usize {
        if hash <= self.lo() {
            return 0;
        }
        self.lower_bound(self.rank_of(self.fingerprint(hash)))
    }

    /// Earliest deadline of the leaf's records.
    pub fn earliest_deadline(&self) -> Option<crate::UnixMillis> {
        if self.deadline_count() == 0 {
            return None;
        }
        (0..self.count()).filter_map(|i| self.record(i)?.earliest_deadline()).min()
    }
}

/// Write access to a leaf whose header has been checked.
pub(crate) struct LeafMut<'a> {
    page: &'a mut Page,
}

impl<'a> LeafMut<'a> {
    /// `None` unless the page is a leaf with a sane header.
    pub fn new(page: &'a mut Page) -> Option<LeafMut<'a>> {
        Leaf::new(page)?;
        Some(LeafMut { page })
    }

    /// Makes an empty leaf of the page.
    pub fn init(page: &'a mut Page, tag: u32, lo: u64, hi: u64, fp_shift: u8) -> LeafMut<'a> {
        page[..HEADER_BYTES].fill(0);
        page[0] = KIND_LEAF;
        page[FP_SHIFT] = fp_shift;
        put_u16(page, HEAP_START, PAGE_SIZE as u16);
        put_u64(page, LO, lo);
        put_u64(page, HI, hi);
        put_u32(page, TAG, tag);
        LeafMut { page }
    }

    #[inline(always)]
    pub fn leaf(&self) -> Leaf<'_> {
        Leaf { page: self.page }
    }

    pub fn set_chain(&mut self, pid: u32) {
        put_u32(self.page, CHAIN, pid);
    }

    /// Narrows the range; records stay where they are, so the range must hold them all.
    pub fn set_range(&mut self, lo: u64, hi: u64) {
        put_u64(self.page, LO, lo);
        put_u64(self.page, HI, hi);
    }

    /// Inserts a record; false if there is no room. The key must not be there.
    #[inline]
    pub fn insert(&mut self, hash: u64, record: &Record<'_>) -> bool {
        let header = record.header();
        let record_bytes = header.record_bytes();
        let leaf = self.leaf();
        if leaf.free_bytes() < record_bytes + SLOT_BYTES {
            return false;
        }
        let fingerprint = leaf.fingerprint(hash);
        let index = leaf.lower_bound(leaf.rank_of(fingerprint));
        let Some(offset) = self.reserve(record_bytes + SLOT_BYTES, record_bytes) else { return false };
        record.encode(&mut self.page[offset..offset + record_bytes]);
        self.insert_slot(index, fingerprint, offset);
        self.account(&header, 1);
        true
    }

    /// Counts a record with this header in or out.
    #[inline(always)]
    fn account(&mut self, header: &Header, count: i32) {
        if header.is_timed() {
            let sum = self.leaf().deadline_count() as i32 + count;
            put_u16(self.page, DEADLINES, sum as u16);
        }
        if header.is_outside() {
            let sum = self.leaf().outside_count() as i32 + count;
            put_u16(self.page, OUTSIDE, sum as u16);
        }
    }

    /// Takes `record_bytes` from the heap, having compacted if the gap has less than `gap_bytes`. The offset;
    /// `None` if the header promises room that the records do not leave (a leaf that nobody wrote like this).
    #[inline(always)]
    fn reserve(&mut self, gap_bytes: usize, record_bytes: usize) -> Option<usize> {
        let slots_end = HEADER_BYTES + SLOT_BYTES * self.leaf().count();
        if self.leaf().heap_start() - slots_end < gap_bytes {
            self.compact();
            if self.leaf().heap_start() < slots_end + gap_bytes {
                return None;
            }
        }
        let offset = self.leaf().heap_start() - record_bytes;
        put_u16(self.page, HEAP_START, offset as u16);
        Some(offset)
    }

    #[inline(always)]
    fn insert_slot(&mut self, index: usize, fingerprint: u16, offset: usize) {
        let count = self.leaf().count();
        let at = HEADER_BYTES + SLOT_BYTES * index;
        let end = HEADER_BYTES + SLOT_BYTES * count;
        self.page.copy_within(at..end, at + SLOT_BYTES);
        put_u32(self.page, at, u32::from(fingerprint) << 16 | offset as u32);
        put_u16(self.page, COUNT, count as u16 + 1);
    }

    #[inline(always)]
    fn add_dead(&mut self, bytes: usize) {
        let leaf = self.leaf();
        // Of a leaf that nobody wrote like this, the record may lie over the header.
        let dead = (leaf.dead_bytes() + bytes).min(PAGE_SIZE.saturating_sub(leaf.heap_start()));
        put_u16(self.page, DEAD, dead as u16);
    }

    /// Removes the record of a slot.
    pub fn remove(&mut self, index: usize) {
        let leaf = self.leaf();
        let count = leaf.count();
        let header = Header::parse(leaf.record_tail(index));
        let (at, end) = (HEADER_BYTES + SLOT_BYTES * index, HEADER_BYTES + SLOT_BYTES * count);
        self.page.copy_within(at + SLOT_BYTES..end, at);
        put_u16(self.page, COUNT, count as u16 - 1);
        if let Some(header) = header {
            self.add_dead(header.record_bytes());
            self.account(&header, -1);
        }
        if count == 1 {
            put_u16(self.page, HEAP_START, PAGE_SIZE as u16);
            put_u16(self.page, DEAD, 0);
        }
    }

    /// Puts `record` (same key) in the place of a slot's record; false if there is no room, and nothing changed.
    #[inline]
    pub fn replace(&mut self, index: usize, record: &Record<'_>) -> bool {
        let leaf = self.leaf();
        let Some(old) = Header::parse(leaf.record_tail(index)) else { return false };
        let new = record.header();
        let (old_bytes, new_bytes) = (old.record_bytes(), new.record_bytes());
        if new_bytes <= old_bytes {
            let offset = leaf.record_offset(index);
            let Some(out) = self.page.get_mut(offset..offset + new_bytes) else { return false };
            record.encode(out);
            if new_bytes < old_bytes {
                self.add_dead(old_bytes - new_bytes);
            }
        } else {
            if leaf.free_bytes() + old_bytes < new_bytes {
                return false;
            }
            if !self.replace_elsewhere(index, old_bytes, record) {
                return false;
            }
        }
        self.account(&old, -1);
        self.account(&new, 1);
        true
    }

    /// Puts a body in the place of the one of a slot's record; false, and nothing changed, unless it is as long and of the same
    /// form.
    #[inline]
    pub fn replace_body(&mut self, index: usize, body: &[u8]) -> bool {
        let Some(header) = Header::parse(self.leaf().record_tail(index)) else { return false };
        let offset = self.leaf().record_offset(index);
        match self.page.get_mut(offset + header.value_start()..offset + header.record_bytes()) {
            Some(out) if header.has_body_like(body) => {
                out.copy_from_slice(body);
                true
            }
            _ => false,
        }
    }

    fn replace_elsewhere(&mut self, index: usize, old_bytes: usize, record: &Record<'_>) -> bool {
        let new_bytes = record.encoded_bytes();
        let at = HEADER_BYTES + SLOT_BYTES * index;
        let slot = get_u32(self.page, at);
        let slots_end = HEADER_BYTES + SLOT_BYTES * self.leaf().count();
        if self.leaf().heap_start() - slots_end < new_bytes {
            // Without an offset, compaction drops the old record.
            put_u32(self.page, at, slot & 0xffff_0000);
        }
        self.add_dead(old_bytes);
        let Some(offset) = self.reserve(new_bytes, new_bytes) else { return false };
        record.encode(&mut self.page[offset..offset + new_bytes]);
        put_u32(self.page, at, slot & 0xffff_0000 | offset as u32);
        true
    }

    /// The value bytes of a slot, to be changed in place.
    pub fn value_mut(&mut self, index: usize) -> &mut [u8] {
        let offset = self.leaf().record_offset(index);
        let Some(header) = self.page.get(offset..).and_then(Header::parse) else { return &mut [] };
        self.page.get_mut(offset + header.value_start()..offset + header.record_bytes()).unwrap_or(&mut [])
    }

    /// Moves the records together. A slot of offset 0 has none and keeps none.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let old = *self.page;
        let leaf = Leaf { page: &old };
        let mut heap_start = PAGE_SIZE;
        for index in 0..leaf.count() {
            let (offset, record_bytes) = (leaf.record_offset(index), leaf.record_bytes(index));
            if offset == 0 || record_bytes == 0 || heap_start < record_bytes {
                continue;
            }
            heap_start -= record_bytes;
            self.page[heap_start..heap_start + record_bytes]
                .copy_from_slice(&old[offset..offset + record_bytes]);
            let slot = leaf.slot(index) & 0xffff_0000 | heap_start as u32;
            put_u32(self.page, HEADER_BYTES + SLOT_BYTES * index, slot);
        }
        put_u16(self.page, HEAP_START, heap_start as u16);
        put_u16(self.page, DEAD, 0);
    }
}

/// Fills a page with records in the order of their hashes.
pub(crate) struct LeafBuilder<'a> {
    page: &'a mut Page,
    count: usize,
    heap_start: usize,
    deadline_count: u16,
    outside_count: u16,
}

impl<'a> LeafBuilder<'a> {
    pub fn new(page: &'a mut Page, tag: u32, lo: u64, hi: u64, fp_shift: u8) -> LeafBuilder<'a> {
        let LeafMut { page } = LeafMut::init(page, tag, lo, hi, fp_shift);
        LeafBuilder { page, count: 0, heap_start: PAGE_SIZE, deadline_count: 0, outside_count: 0 }
    }

    /// Adds an encoded record with its fingerprint; false if there is no room.
    #[inline(always)]
    pub fn push(&mut self, fingerprint: u16, encoded: &[u8]) -> bool {
        let slot_at = HEADER_BYTES + SLOT_BYTES * self.count;
        let Some(header) = Header::parse(encoded) else { return false };
        if self.heap_start < slot_at + SLOT_BYTES + encoded.len() {
            return false;
        }
        let end = self.heap_start;
        self.heap_start -= encoded.len();
        self.page[self.heap_start..end].copy_from_slice(encoded);
        put_u32(self.page, slot_at, u32::from(fingerprint) << 16 | self.heap_start as u32);
        self.count += 1;
        self.deadline_count += u16::from(header.is_timed());
        self.outside_count += u16::from(header.is_outside());
        true
    }

    pub fn finish(self) {
        put_u16(self.page, COUNT, self.count as u16);
        put_u16(self.page, HEAP_START, self.heap_start as u16);
        put_u16(self.page, DEADLINES, self.deadline_count);
        put_u16(self.page, OUTSIDE, self.outside_count);
    }
}

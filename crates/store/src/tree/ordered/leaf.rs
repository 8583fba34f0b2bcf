//! A leaf of byte-string keys: slots sorted by key growing up, records growing down.
//!
//! ```text
//! 0  kind u8 | 1 is_last u8: no upper bound | 2 count u16 | 4 heap_start u16 | 6 dead_bytes u16
//! 8  tag u32 | 12 prefix_bytes u16 | 14 lo_bytes u16 | 16 hi_bytes u16 | 18 run u16: slot | length << 9
//! 20 slots: head u32 | offset u16 | tail_bytes u16, with bit 15 the record is bare
//!    records: value_bytes u16, with bit 15 the value is a reference; the tail of the key, the value
//!    bare records: the tail of the key, for a value without bytes
//!    at the end of the page hi, before it lo
//! ```
//! Keys are from `lo` up to, not including, `hi`. The prefix that both have in common is left out of the keys; the head is
//! the first four bytes of the rest, zeros added.
//!
//! A run is of keys that came one after the other, each into the slot after the one before. It is a hint where the next
//! ones will go.

use std::cmp::Ordering;

use stillframe_pagepool::OptimisticGuard;

use super::node::{head_of, partition, prefix_bytes};
use crate::blobs::Blob;
use crate::page::{get_u16, get_u32, put_u16, put_u32, Page, KIND_ORDERED_LEAF, PAGE_SIZE};
use crate::tree::order::LeafView;

/// Longer keys do not go into a tree of this order.
pub(crate) const KEY_MAX_BYTES: usize = 512;
/// Key and value of a record: three of the longest fit into a leaf.
pub(super) const KEY_AND_VALUE_MAX_BYTES: usize = 1024;

/// Whether a value goes into the leaf with its key. A longer one lies elsewhere, and costs whoever reads it another page.
#[inline]
pub(crate) fn fits_leaf(key: &[u8], value: &[u8]) -> bool {
    key.len() + value.len() <= KEY_AND_VALUE_MAX_BYTES
}

/// A record's value is a reference to where it lies.
const OUTSIDE: u16 = 1 << 15;
/// A record is a tail and nothing else: its value has no bytes. In the slot, so that it costs the record nothing.
const BARE: u16 = 1 << 15;

/// A value as a leaf has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stored<'a> {
    /// The value, or the reference to it.
    pub bytes: &'a [u8],
    pub is_outside: bool,
}

impl<'a> Stored<'a> {
    /// A value without bytes.
    pub const NONE: Stored<'static> = Stored { bytes: &[], is_outside: false };

    pub fn inline(bytes: &'a [u8]) -> Stored<'a> {
        Stored { bytes, is_outside: false }
    }

    /// Where the value lies, if not in the leaf. A reference that is malformed leads nowhere.
    pub fn blob(&self) -> Option<Blob> {
        if self.is_outside {
            Blob::parse(self.bytes)
        } else {
            None
        }
    }

    fn length_word(&self) -> u16 {
        self.bytes.len() as u16 | if self.is_outside { OUTSIDE } else { 0 }
    }

    #[inline(always)]
    fn is_bare(&self) -> bool {
        self.bytes.is_empty() && !self.is_outside
    }

    /// Bytes of a new record with this value and so much of its key, without its slot.
    #[inline(always)]
    pub(super) fn record_bytes(&self, tail_bytes: usize) -> usize {
        tail_bytes + if self.is_bare() { 0 } else { RECORD_HEADER_BYTES + self.bytes.len() }
    }
}

pub(super) const HEADER_BYTES: usize = 20;
pub(super) const SLOT_BYTES: usize = 8;
/// Bytes for slots, records and bounds.
pub(super) const CAPACITY_BYTES: usize = PAGE_SIZE - HEADER_BYTES;
/// Bytes of a record that is not bare, beside key and value.
const RECORD_HEADER_BYTES: usize = 2;

const IS_LAST: usize = 1;
const COUNT: usize = 2;
const HEAP_START: usize = 4;
const DEAD: usize = 6;
const TAG: usize = 8;
const PREFIX: usize = 12;
const LO: usize = 14;
const HI: usize = 16;
const RUN: usize = 18;
const RUN_SLOT_BITS: u32 = 9;
const RUN_LENGTH_MAX: u16 = u16::MAX >> RUN_SLOT_BITS;
/// Keys in a row of which more are expected.
const RUN_LENGTH_MIN: usize = 4;

/// Read access to a leaf whose header has been checked.
#[derive(Clone, Copy)]
pub(crate) struct OrderedLeaf<'a> {
    page: &'a Page,
}

impl LeafView for OrderedLeaf<'_> {
    fn count(&self) -> usize {
        usize::from(get_u16(self.page, COUNT))
    }

    fn live_bytes(&self) -> usize {
        let heap_end = PAGE_SIZE - self.bounds_bytes();
        heap_end - self.heap_start() - self.dead_bytes() + SLOT_BYTES * self.count()
    }

    fn free_bytes(&self) -> usize {
        CAPACITY_BYTES - self.bounds_bytes() - self.live_bytes()
    }

    fn is_alone(&self) -> bool {
        true
    }
}

impl<'a> OrderedLeaf<'a> {
    /// `None` unless the page is a leaf with a sane header: no accessor panics after that.
    pub fn new(page: &'a Page) -> Option<OrderedLeaf<'a>> {
        let leaf = OrderedLeaf { page };
        let is_one = page[0] == KIND_ORDERED_LEAF && leaf.bounds_bytes() <= CAPACITY_BYTES;
        let heap_end = PAGE_SIZE.checked_sub(leaf.bounds_bytes())?;
        let sane = is_one
            && HEADER_BYTES + SLOT_BYTES * leaf.count() <= leaf.heap_start()
            && leaf.heap_start() + leaf.dead_bytes() <= heap_end
            && usize::from(get_u16(page, PREFIX)) <= usize::from(get_u16(page, LO));
        sane.then_some(leaf)
    }

    fn heap_start(&self) -> usize {
        usize::from(get_u16(self.page, HEAP_START))
    }

    fn dead_bytes(&self) -> usize {
        usize::from(get_u16(self.page, DEAD))
    }

    fn bounds_bytes(&self) -> usize {
        usize::from(get_u16(self.page, LO)) + usize::from(get_u16(self.page, HI))
    }

    pub fn tag(&self) -> u32 {
        get_u32(self.page, TAG)
    }

    /// The least key that belongs here.
    pub fn lo(&self) -> &'a [u8] {
        let at = PAGE_SIZE - self.bounds_bytes();
        &self.page[at..at + usize::from(get_u16(self.page, LO))]
    }

    /// The least key that is above all that belong here.
    pub fn hi(&self) -> Option<&'a [u8]> {
        let len = usize::from(get_u16(self.page, HI));
        (self.page[IS_LAST] == 0).then(|| &self.page[PAGE_SIZE - len..])
    }

    pub fn prefix(&self) -> &'a [u8] {
        &self.lo()[..usize::from(get_u16(self.page, PREFIX))]
    }

    fn slot_at(index: usize) -> usize {
        HEADER_BYTES + SLOT_BYTES * index
    }

    /// The key without the prefix, and the value; `None` if the record is malformed.
    #[inline(always)]
    pub fn record(&self, index: usize) -> Option<(&'a [u8], Stored<'a>)> {
        let slot = Self::slot_at(index);
        let at = usize::from(get_u16(self.page, slot + 4));
        if at < HEADER_BYTES {
            return None;
        }
        let tail_word = get_u16(self.page, slot + 6);
        let tail_bytes = usize::from(tail_word & !BARE);
        if tail_word & BARE != 0 {
            return Some((self.page.get(at..at + tail_bytes)?, Stored::NONE));
        }
        let length_word = u16::from_le_bytes(self.page.get(at..at + 2)?.try_into().ok()?);
        let value_bytes = usize::from(length_word & !OUTSIDE);
        let tail = self.page.get(at + 2..at + 2 + tail_bytes)?;
        let bytes = self.page.get(at + 2 + tail_bytes..at + 2 + tail_bytes + value_bytes)?;
        Some((tail, Stored { bytes, is_outside: length_word & OUTSIDE != 0 }))
    }

    /// Bytes of a record, without its slot; 0 if it is malformed.
    pub fn record_bytes(&self, index: usize) -> usize {
        let header_bytes = if self.is_bare(index) { 0 } else { RECORD_HEADER_BYTES };
        self.record(index).map_or(0, |(tail, value)| header_bytes + tail.len() + value.bytes.len())
    }

    fn is_bare(&self, index: usize) -> bool {
        get_u16(self.page, Self::slot_at(index) + 6) & BARE != 0
    }

    /// Whether the last few records came one after the other, and one in this slot would be the next. A leaf of few records has had all of
    /// them so.
    pub fn is_next_of_run(&self, slot: usize) -> bool {
        let (last, length) = self.run();
        let is_long = usize::from(length) >= RUN_LENGTH_MIN.min(self.count().saturating_sub(1)).max(1);
        is_long && slot == last + 1 && slot <= self.count()
    }

    /// The slot that the last new record went to, and how many in a row came so.
    fn run(&self) -> (usize, u16) {
        let run = get_u16(self.page, RUN);
        (usize::from(run & ((1 << RUN_SLOT_BITS) - 1)), run >> RUN_SLOT_BITS)
    }

    pub fn key(&self, index: usize) -> Vec<u8> {
        [self.prefix(), self.record(index).map_or(&[], |(tail, _)| tail)].concat()
    }

    /// Whether a record can be stored where [`OrderedLeaf::find`] has found its key or the place for it.
    pub fn has_room(&self, found: Result<usize, usize>, key: &[u8], value: Stored<'_>) -> bool {
        let bytes = value.record_bytes(key.len().saturating_sub(self.prefix().len()));
        match found {
            Ok(slot) => bytes <= self.free_bytes() + self.record_bytes(slot),
            Err(_) => bytes + SLOT_BYTES <= self.free_bytes(),
        }
    }

    /// Bytes of the page that a record takes.
    pub fn record_range(&self, index: usize) -> std::ops::Range<usize> {
        let at = usize::from(get_u16(self.page, Self::slot_at(index) + 4));
        at..(at + self.record_bytes(index)).min(PAGE_SIZE)
    }

    #[inline(always)]
    fn head_at(&self, index: usize) -> u32 {
        get_u32(self.page, Self::slot_at(index))
    }

    /// The slot of a key; if it is not there, where it would be.
    #[inline(always)]
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        match key.strip_prefix(prefix) {
            Some(tail) => self.find_tail(tail),
            None => Err(if key < prefix { 0 } else { self.count() }),
        }
    }

    /// The slot of a key that belongs to the leaf, if it is there; `guess` is looked at first. The prefix is not compared: it
    /// lies at the end of the page, and every key that belongs here has it.
    #[inline(always)]
    pub fn get(&self, key: &[u8], guess: usize) -> Option<usize> {
        let tail = key.get(usize::from(get_u16(self.page, PREFIX))..)?;
        if guess < self.count() && self.record(guess).is_some_and(|(found, _)| found == tail) {
            return Some(guess);
        }
        self.find_tail(tail).ok()
    }

    #[inline(always)]
    fn find_tail(&self, tail: &[u8]) -> Result<usize, usize> {
        let (head, count) = (head_of(tail), self.count());
        let first = partition(0..count, |index| self.head_at(index) < head);
        if first == count || self.head_at(first) != head {
            return Err(first);
        }
        match self.compare_tail(first, tail) {
            Ordering::Less => self.find_among_equal_heads(first + 1, head, tail),
            Ordering::Equal => Ok(first),
            Ordering::Greater => Err(first),
        }
    }

    #[inline(always)]
    fn compare_tail(&self, index: usize, tail: &[u8]) -> Ordering {
        self.record(index).map_or(&[][..], |(tail, _)| tail).cmp(tail)
    }

    #[cold]
    fn find_among_equal_heads(&self, first: usize, head: u32, tail: &[u8]) -> Result<usize, usize> {
        let end = partition(first..self.count(), |index| self.head_at(index) == head);
        let at = partition(first..end, |index| self.compare_tail(index, tail).is_lt());
        match at < end && self.compare_tail(at, tail).is_eq() {
            true => Ok(at),
            false => Err(at),
        }
    }
}

/// Where in a leaf that nobody has latched a key seems to be, and the bytes of its record, about.
#[inline(always)]
pub(super) fn guess(page: &OptimisticGuard<'_>, key: &[u8]) -> (usize, std::ops::Range<usize>) {
    let mut header = [0; HEADER_BYTES];
    page.peek(0, &mut header);
    let count = usize::from(get_u16(&header, COUNT)).min(CAPACITY_BYTES / SLOT_BYTES);
    let slot = |index: usize| {
        let mut slot = [0; SLOT_BYTES];
        page.peek(OrderedLeaf::slot_at(index), &mut slot);
        slot
    };
    let head = head_of(key.get(usize::from(get_u16(&header, PREFIX))..).unwrap_or_default());
    let index = partition(0..count, |index| get_u32(&slot(index), 0) < head);
    if index == count {
        return (index, 0..0);
    }
    let start = usize::from(get_u16(&slot(index), 4)).min(PAGE_SIZE);
    // How long it is the record itself says: this is the average.
    let record_bytes = PAGE_SIZE.saturating_sub(usize::from(get_u16(&header, HEAP_START))) / count;
    (index, start..(start + record_bytes).min(PAGE_SIZE))
}

/// Write access to a leaf whose header has been checked.
pub(super) struct OrderedLeafMut<'a> {
    page: &'a mut Page,
}

impl<'a> OrderedLeafMut<'a> {
    pub fn new(page: &'a mut Page) -> Option<OrderedLeafMut<'a>> {
        OrderedLeaf::new(page)?;
        Some(OrderedLeafMut { page })
    }

    /// Makes an empty leaf of the page.
    pub fn init(page: &'a mut Page, tag: u32, lo: &[u8], hi: Option<&[u8]>) -> OrderedLeafMut<'a> {
        page[..HEADER_BYTES].fill(0);
        page[0] = KIND_ORDERED_LEAF;
        page[IS_LAST] = u8::from(hi.is_none());
        let prefix_bytes = prefix_bytes(lo, hi);
        let hi = hi.unwrap_or(&[]);
        let heap_start = PAGE_SIZE - lo.len() - hi.len();
        page[heap_start..heap_start + lo.len()].copy_from_slice(lo);
        page[heap_start + lo.len()..].copy_from_slice(hi);
        put_u16(page, HEAP_START, heap_start as u16);
        put_u32(page, TAG, tag);
        put_u16(page, PREFIX, prefix_bytes as u16);
        put_u16(page, LO, lo.len() as u16);
        put_u16(page, HI, hi.len() as u16);
        OrderedLeafMut { page }
    }

    pub fn leaf(&self) -> OrderedLeaf<'_> {
        OrderedLeaf { page: self.page }
    }

    /// Inserts a record whose key belongs before the slot; false if there is no room.
    pub fn insert(&mut self, index: usize, key: &[u8], value: Stored<'_>) -> bool {
        let Some(tail) = key.get(self.leaf().prefix().len()..) else { return false };
        let record_bytes = value.record_bytes(tail.len());
        let count = self.leaf().count();
        let Some(at) = self.reserve(record_bytes, SLOT_BYTES) else { return false };
        let (slot, end) = (OrderedLeaf::slot_at(index), OrderedLeaf::slot_at(count));
        self.page.copy_within(slot..end, slot + SLOT_BYTES);
        self.write_record(index, at, tail, value);
        put_u16(self.page, COUNT, count as u16 + 1);
        true
    }

    /// Notes where a new key has gone.
    pub fn note_run(&mut self, index: usize) {
        let (last, length) = self.leaf().run();
        let length = if index == last + 1 { (length + 1).min(RUN_LENGTH_MAX) } else { 0 };
        put_u16(self.page, RUN, index as u16 | length << RUN_SLOT_BITS);
    }

    /// Gives a record another value; false if there is no room.
    pub fn replace(&mut self, index: usize, value: Stored<'_>) -> bool {
        let Some((tail, old)) = self.leaf().record(index) else { return false };
        let tail_bytes = tail.len();
        let at = usize::from(get_u16(self.page, OrderedLeaf::slot_at(index) + 4));
        let unused_bytes = old.bytes.len().checked_sub(value.bytes.len());
        if let Some(unused_bytes) = unused_bytes.filter(|_| !self.leaf().is_bare(index)) {
            put_u16(self.page, at, value.length_word());
            let value_at = at + RECORD_HEADER_BYTES + tail_bytes;
            self.page[value_at..value_at + value.bytes.len()].copy_from_slice(value.bytes);
            self.add_dead(unused_bytes);
            return true;
        }
        if self.leaf().free_bytes() + self.leaf().record_bytes(index) < value.record_bytes(tail_bytes) {
            return false;
        }
        let old_bytes = old.bytes.len();
        if self.grow(index, value.bytes.len() - old_bytes) {
            let at = usize::from(get_u16(self.page, OrderedLeaf::slot_at(index) + 4));
            put_u16(self.page, at, value.length_word());
            let value_at = at + RECORD_HEADER_BYTES + tail_bytes;
            self.page[value_at..value_at + value.bytes.len()].copy_from_slice(value.bytes);
            return true;
        }
        let (tail, _) = self.leaf().record(index).unwrap_or((&[], Stored::NONE));
        let key = [self.leaf().prefix(), tail].concat();
        self.remove(index);
        self.insert(index, &key, value)
    }

    /// Makes a record so much longer at its end, if it is the lowest of the heap and there is a gap below it: nothing else moves, and
    /// nothing is left behind. What the new bytes are is to be said.
    fn grow(&mut self, index: usize, more_bytes: usize) -> bool {
        let leaf = self.leaf();
        let at = usize::from(get_u16(self.page, OrderedLeaf::slot_at(index) + 4));
        let end = at + leaf.record_bytes(index);
        let to = at.checked_sub(more_bytes).filter(|to| *to >= OrderedLeaf::slot_at(leaf.count()));
        let Some(to) = to.filter(|_| at == leaf.heap_start() && !leaf.is_bare(index)) else { return false };
        self.page.copy_within(at..end, to);
        put_u16(self.page, OrderedLeaf::slot_at(index) + 4, to as u16);
        put_u16(self.page, HEAP_START, to as u16);
        true
    }

    /// Appends to a record's value, and puts `front` over its first bytes; false if there is no room.
    pub fn extend(&mut self, index: usize, front: &[u8], more: &[u8]) -> bool {
        let Some((tail, value)) = self.leaf().record(index) else { return false };
        let (tail_bytes, old_bytes) = (tail.len(), value.bytes.len());
        if value.is_outside || front.len() > old_bytes || self.leaf().free_bytes() < more.len() {
            return false;
        }
        if !self.grow(index, more.len()) {
            self.compact_with_last(index);
            if !self.grow(index, more.len()) {
                return false;
            }
        }
        let at = usize::from(get_u16(self.page, OrderedLeaf::slot_at(index) + 4));
        let value_at = at + RECORD_HEADER_BYTES + tail_bytes;
        // Not so only where somebody has made up a leaf.
        let Some(value) = self.page.get_mut(value_at..value_at + old_bytes + more.len()) else {
            return false;
        };
        value[..front.len()].copy_from_slice(front);
        value[old_bytes..].copy_from_slice(more);
        put_u16(self.page, at, (old_bytes + more.len()) as u16);
        true
    }

    /// Notes that bytes among the records belong to none.
    fn add_dead(&mut self, bytes: usize) {
        let most = PAGE_SIZE - self.leaf().bounds_bytes() - self.leaf().heap_start();
        put_u16(self.page, DEAD, (self.leaf().dead_bytes() + bytes).min(most) as u16);
    }

    /// Removes records in a row.
    pub fn remove_run(&mut self, slots: std::ops::Range<usize>) {
        let count = self.leaf().count();
        let bytes = slots.clone().map(|index| self.leaf().record_bytes(index)).sum();
        let (start, end) = (OrderedLeaf::slot_at(slots.start), OrderedLeaf::slot_at(slots.end));
        self.page.copy_within(end..OrderedLeaf::slot_at(count), start);
        put_u16(self.page, COUNT, (count - slots.len()) as u16);
        self.add_dead(bytes);
    }

    pub fn remove(&mut self, index: usize) {
        self.remove_run(index..index + 1);
    }

    /// Writes a record to the heap and refers to it in a slot.
    fn write_record(&mut self, index: usize, at: usize, tail: &[u8], value: Stored<'_>) {
        let (slot, tail_word) = (OrderedLeaf::slot_at(index), tail.len() as u16);
        put_u32(self.page, slot, head_of(tail));
        put_u16(self.page, slot + 4, at as u16);
        put_u16(self.page, slot + 6, if value.is_bare() { tail_word | BARE } else { tail_word });
        let mut tail_at = at;
        if !value.is_bare() {
            put_u16(self.page, at, value.length_word());
            tail_at += RECORD_HEADER_BYTES;
        }
        let value_at = tail_at + tail.len();
        self.page[tail_at..value_at].copy_from_slice(tail);
        self.page[value_at..value_at + value.bytes.len()].copy_from_slice(value.bytes);
    }

    /// Takes room for a record from the heap, beside `slot_bytes` for slots, compacting if need be.
    fn reserve(&mut self, record_bytes: usize, slot_bytes: usize) -> Option<usize> {
        if self.leaf().free_bytes() < record_bytes + slot_bytes {
            return None;
        }
        let slots_end = OrderedLeaf::slot_at(self.leaf().count()) + slot_bytes;
        if self.leaf().heap_start() < slots_end + record_bytes {
            self.compact();
        }
        let at = self.leaf().heap_start().checked_sub(record_bytes).filter(|at| *at >= slots_end)?;
        put_u16(self.page, HEAP_START, at as u16);
        Some(at)
    }

    /// Moves all records together.
    fn compact(&mut self) {
        self.compact_with_last(self.leaf().count());
    }

    /// The same; this one is the lowest of the heap then.
    fn compact_with_last(&mut self, last: usize) {
        let copy = *self.page;
        let old = OrderedLeaf { page: &copy };
        let mut heap_start = PAGE_SIZE - old.bounds_bytes();
        let slots_end = OrderedLeaf::slot_at(old.count());
        let others = (0..old.count()).filter(|index| *index != last);
        for index in others.chain((last < old.count()).then_some(last)) {
            let Some((tail, value)) = old.record(index) else { continue };
            let bytes = value.record_bytes(tail.len());
            // Records of a leaf that somebody else wrote may overlap: they would be too many.
            let Some(at) = heap_start.checked_sub(bytes).filter(|at| *at >= slots_end) else { break };
            heap_start = at;
            self.write_record(index, at, tail, value);
        }
        put_u16(self.page, HEAP_START, heap_start as u16);
        put_u16(self.page, DEAD, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn content(leaf: OrderedLeaf<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..leaf.count()).map(|i| (leaf.key(i), leaf.record(i).unwrap().1.bytes.to_vec())).collect()
    }

    #[test]
    fn a_leaf_is_a_sorted_map() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for (lo, hi) in [(&b""[..], None), (b"ab", Some(&b"ac"[..])), (b"abcd", Some(b"abce\x01"))] {
            let mut page = [0x55; PAGE_SIZE];
            let prefix = prefix_bytes(lo, hi);
            OrderedLeafMut::init(&mut page, 9, lo, hi);
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for step in 0..4_000 {
                let tail: Vec<u8> =
                    (0..random.usize(..7)).map(|_| [0, b'a', 0xff][random.usize(..3)]).collect();
                let key = [lo, &tail].concat();
                assert!(key.starts_with(&lo[..prefix]));
                let value = vec![step as u8; random.usize(..90) * random.usize(..2)];
                let mut leaf = OrderedLeafMut::new(&mut page).unwrap();
                let stored = match (leaf.leaf().find(&key), random.u32(..4)) {
                    (Ok(slot), 0) if random.u32(..8) == 0 => {
                        let end = (slot + random.usize(..5)).min(leaf.leaf().count());
                        (slot..end).for_each(|slot| drop(model.remove(&leaf.leaf().key(slot))));
                        leaf.remove_run(slot..end);
                        continue;
                    }
                    (Ok(slot), 0) => {
                        leaf.remove(slot);
                        model.remove(&key);
                        continue;
                    }
                    (Ok(slot), 1) if !model[&key].is_empty() => {
                        let extended = leaf.extend(slot, b"F", &value[..value.len() / 4]);
                        let was = model.get_mut(&key).filter(|_| extended);
                        if let Some(was) = was {
                            was[0] = b'F';
                            was.extend_from_slice(&value[..value.len() / 4]);
                        }
                        continue;
                    }
                    (Ok(slot), _) => leaf.replace(slot, Stored::inline(&value)),
                    (Err(slot), _) => leaf.insert(slot, &key, Stored::inline(&value)),
                };
                if stored {
                    model.insert(key, value);
                } else {
                    assert!(leaf.leaf().free_bytes() < SLOT_BYTES + RECORD_HEADER_BYTES + 6 + 90);
                    while leaf.leaf().count() > 5 {
                        leaf.remove(0);
                        model.pop_first();
                    }
                }
                let leaf = OrderedLeaf::new(&page).unwrap();
                assert_eq!((leaf.lo(), leaf.hi(), leaf.tag()), (lo, hi, 9));
            }
            let leaf = OrderedLeaf::new(&page).unwrap();
            assert_eq!(content(leaf), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_crafted_leaf_never_panics() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..20_000 {
            let mut page = [0; PAGE_SIZE];
            page.fill_with(|| random.u8(..));
            page[0] = KIND_ORDERED_LEAF;
            for at in [COUNT, HEAP_START, DEAD, PREFIX, LO, HI] {
                put_u16(&mut page, at, random.u16(..) >> random.u32(3..12));
            }
            put_u16(&mut page, HEAP_START, random.u16(..4096));
            let Some(mut leaf) = OrderedLeafMut::new(&mut page) else { continue };
            let key = [random.u8(..); 3];
            let (Ok(slot) | Err(slot)) = leaf.leaf().find(&key);
            let slot = slot.min(leaf.leaf().count());
            leaf.insert(slot, &key, Stored::inline(b"value"));
            if leaf.leaf().count() > 0 {
                leaf.replace(0, Stored { bytes: &[1; 40], is_outside: true });
            }
            if let Some(last) = leaf.leaf().count().checked_sub(1) {
                leaf.extend(last, b"abc", b"defg");
            }
            if leaf.leaf().count() > 0 {
                leaf.remove(0);
            }
        }
    }
}

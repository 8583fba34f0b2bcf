//! An inner node of byte-string keys: a page of 512 words, read and written through relaxed atomics.
//!
//! ```text
//! word 0    kind u8 | level u8 | count u16 | tag u32
//! word 1    prefix_bytes u16 | lo_bytes u16 | hi_bytes u16 | is_last u16: no upper bound
//! word 2..  two words a child: head u32 | offset u16 | tail_bytes u16, then child u32 | records below it u32
//! bytes     lo, hi, then the tails of the separators
//! ```
//! A separator is the least key that belongs to its child; the first is `lo`, and is not compared. What `lo` and `hi` have
//! in common is the prefix of all keys below, so a tail is a separator without it. The head is the first four bytes of the
//! tail, zeros added, so that most comparisons look at nothing else.
//!
//! A node is searched in place and changed as a whole: it is decoded, changed, and written anew.

use std::cmp::Ordering;

use crate::page::{KIND_ORDERED_INNER, PAGE_SIZE};
use crate::tree::words::{Words, WordsMut, WORD_COUNT};

const LENGTHS: usize = 1;
const CHILDREN: usize = 2;
const WORDS_A_CHILD: usize = 2;
const HEADER_BYTES: usize = CHILDREN * 8;
pub(super) const CHILD_BYTES: usize = WORDS_A_CHILD * 8;
/// Children that a page has room for.
const COUNT_MAX: usize = (PAGE_SIZE - HEADER_BYTES) / CHILD_BYTES;

/// The first four bytes, zeros added, in the order of the keys.
#[inline(always)]
pub(super) fn head_of(tail: &[u8]) -> u32 {
    match tail.first_chunk() {
        Some(head) => u32::from_be_bytes(*head),
        // A copy of so few bytes would be a call of the library.
        None => tail.iter().zip([24, 16, 8]).fold(0, |head, (byte, shift)| head | u32::from(*byte) << shift),
    }
}

pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Bytes that all keys from `lo` up to `hi` begin with.
pub(super) fn prefix_bytes(lo: &[u8], hi: Option<&[u8]>) -> usize {
    hi.map_or(0, |hi| common_prefix(lo, hi))
}

/// A node's words as a node.
pub(super) trait OrderedNode: Words {
    #[inline(always)]
    fn is_ordered_inner(&self, tag: u32) -> bool {
        let word = self.word(0);
        word as u8 == KIND_ORDERED_INNER && (word >> 32) as u32 == tag
    }

    /// Number of children, at least 1 and within the page whatever it holds.
    #[inline(always)]
    fn count(&self) -> usize {
        usize::from((self.word(0) >> 16) as u16).clamp(1, COUNT_MAX)
    }

    #[inline(always)]
    fn child_at(&self, index: usize) -> u32 {
        self.word(CHILDREN + WORDS_A_CHILD * index + 1) as u32
    }

    /// Records below a child, if the tree counts them.
    #[inline(always)]
    fn records_at(&self, index: usize) -> u32 {
        (self.word(CHILDREN + WORDS_A_CHILD * index + 1) >> 32) as u32
    }

    /// A byte of the page; the last one for all beyond it.
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        (self.word((at / 8).min(WORD_COUNT - 1)) >> (8 * (at % 8))) as u8
    }

    /// Compares bytes of the page with others.
    fn compare(&self, at: usize, len: usize, with: &[u8]) -> Ordering {
        for (index, byte) in with.iter().enumerate().take(len) {
            match self.byte(at + index).cmp(byte) {
                Ordering::Equal => {}
                other => return other,
            }
        }
        len.cmp(&with.len())
    }

    /// Where the bytes of the header end.
    #[inline(always)]
    fn fences_at(&self) -> usize {
        HEADER_BYTES + CHILD_BYTES * self.count()
    }

    /// Compares a separator, without the prefix, with the tail of a key.
    #[inline(always)]
    fn compare_separator(&self, index: usize, head: u32, tail: &[u8]) -> Ordering {
        let slot = self.word(CHILDREN + WORDS_A_CHILD * index);
        match (slot as u32).cmp(&head) {
            Ordering::Equal => {
                let (at, len) = ((slot >> 32) as u16, (slot >> 48) as u16);
                self.compare(usize::from(at), usize::from(len), tail)
            }
            other => other,
        }
    }

    /// The last child whose separator is not above the key, or, with `below`, is below it; the first if there is none.
    fn search(&self, key: &[u8], below: bool) -> usize {
        let prefix_bytes = usize::from(self.word(LENGTHS) as u16);
        // Keys that belong here begin with the prefix; for another the caller finds out that it is in the wrong place.
        let Some(tail) = key.get(prefix_bytes..) else { return 0 };
        let head = head_of(tail);
        let (mut low, mut high) = (0, self.count());
        while low + 1 < high {
            let mid = (low + high) / 2;
            let is_left = match self.compare_separator(mid, head, tail) {
                Ordering::Less => true,
                Ordering::Equal => !below,
                Ordering::Greater => false,
            };
            if is_left {
                low = mid;
            } else {
                high = mid;
            }
        }
        low
    }

    /// Bytes of the page that the first steps of a search look at: the median of the separators, the quartiles, the eighths.
    #[inline(always)]
    fn first_probes(&self) -> impl Iterator<Item = usize> {
        let count = self.count();
        (1..8).map(move |eighth| HEADER_BYTES + CHILD_BYTES * (count * eighth / 8))
    }

    /// Everything that is in the node.
    fn decode(&self) -> Node {
        let lengths = self.word(LENGTHS);
        let length = |at: u32| usize::from((lengths >> at) as u16).min(PAGE_SIZE);
        let bytes = |at: usize, len: usize| (at..at + len).map(|at| self.byte(at)).collect::<Vec<u8>>();
        let fences_at = self.fences_at();
        let lo = bytes(fences_at, length(16));
        let hi = (length(48) == 0).then(|| bytes(fences_at + lo.len(), length(32)));
        let prefix = lo[..length(0).min(lo.len())].to_vec();
        let child = |index: usize| {
            let slot = self.word(CHILDREN + WORDS_A_CHILD * index);
            let tail =
                bytes(usize::from((slot >> 32) as u16), usize::from((slot >> 48) as u16).min(PAGE_SIZE));
            let separator = if index == 0 { lo.clone() } else { [&prefix[..], &tail].concat() };
            Child { separator, pid: self.child_at(index), records: self.records_at(index) }
        };
        let children = (0..self.count()).map(child).collect();
        Node { level: self.level(), tag: (self.word(0) >> 32) as u32, lo, hi, children }
    }
}

impl<W: Words + ?Sized> OrderedNode for W {}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub separator: Vec<u8>,
    pub pid: u32,
    pub records: u32,
}

/// A node that is being changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub level: u8,
    pub tag: u32,
    pub lo: Vec<u8>,
    /// The least key that is above all below the node.
    pub hi: Option<Vec<u8>>,
    pub children: Vec<Child>,
}

impl Node {
    fn prefix_bytes(&self) -> usize {
        prefix_bytes(&self.lo, self.hi.as_deref())
    }

    /// Bytes of the page that it takes.
    pub fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + self.lo.len() + self.hi.as_ref().map_or(0, Vec::len) + self.children_bytes()
    }

    /// Bytes of the page that its children take.
    pub fn children_bytes(&self) -> usize {
        let prefix_bytes = self.prefix_bytes();
        let tails = self.children.iter().skip(1).map(|child| child.separator.len() - prefix_bytes);
        CHILD_BYTES * self.children.len() + tails.sum::<usize>()
    }

    pub fn free_bytes(&self) -> usize {
        PAGE_SIZE.saturating_sub(self.encoded_bytes())
    }

    pub fn records(&self) -> u32 {
        self.children.iter().map(|child| child.records).sum()
    }

    /// Writes the node, which fits its page.
    pub fn encode(&self, page: &mut impl WordsMut) {
        debug_assert!(self.encoded_bytes() <= PAGE_SIZE && !self.children.is_empty());
        let prefix_bytes = self.prefix_bytes();
        let hi = self.hi.as_deref().unwrap_or(&[]);
        let count = self.children.len();
        page.set_word(
            0,
            u64::from(KIND_ORDERED_INNER)
                | u64::from(self.level) << 8
                | (count as u64) << 16
                | u64::from(self.tag) << 32,
        );
        let lengths = prefix_bytes | self.lo.len() << 16 | hi.len() << 32;
        page.set_word(LENGTHS, lengths as u64 | u64::from(self.hi.is_none()) << 48);
        let heap_at = HEADER_BYTES + CHILD_BYTES * count;
        let mut heap = [&self.lo[..], hi].concat();
        for (index, child) in self.children.iter().enumerate() {
            let tail = if index == 0 { &[][..] } else { &child.separator[prefix_bytes..] };
            let at = heap_at + heap.len();
            let slot = u64::from(head_of(tail)) | (at as u64) << 32 | (tail.len() as u64) << 48;
            page.set_word(CHILDREN + WORDS_A_CHILD * index, slot);
            let below = u64::from(child.pid) | u64::from(child.records) << 32;
            page.set_word(CHILDREN + WORDS_A_CHILD * index + 1, below);
            heap.extend_from_slice(tail);
        }
        for (index, bytes) in heap.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            page.set_word(heap_at / 8 + index, u64::from_le_bytes(word));
        }
    }

    /// Moves the upper half, by bytes, to a node of its own.
    pub fn split_off(&mut self) -> Node {
        let total: usize = self.children.iter().map(|child| CHILD_BYTES + child.separator.len()).sum();
        let mut seen = 0;
        let half = self.children.iter().position(|child| {
            seen += CHILD_BYTES + child.separator.len();
            seen > total / 2
        });
        let at = half.unwrap_or(0).clamp(1, self.children.len() - 1);
        let children = self.children.split_off(at);
        let lo = children[0].separator.clone();
        let hi = self.hi.replace(lo.clone());
        Node { level: self.level, tag: self.tag, lo, hi, children }
    }
}

/// Adds to the count of records below a child.
pub(super) fn add_records(page: &mut impl WordsMut, index: usize, delta: i32) {
    let at = CHILDREN + WORDS_A_CHILD * index + 1;
    let word = page.word(at);
    let records = ((word >> 32) as u32).wrapping_add_signed(delta);
    page.set_word(at, word & 0xffff_ffff | u64::from(records) << 32);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Words for Vec<u64> {
        fn word(&self, index: usize) -> u64 {
            self[index]
        }
    }

    impl WordsMut for Vec<u64> {
        fn set_word(&mut self, index: usize, value: u64) {
            self[index] = value;
        }
    }

    /// Few letters and any length, so that prefixes, heads and zeros are all met.
    fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
        let len = random.usize(..14);
        (0..len).map(|_| [0, 1, b'a', b'b', 0xff][random.usize(..5)]).collect()
    }

    #[test]
    fn a_node_comes_back_and_finds_what_a_list_finds() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..300 {
            let shared = [b'p'; 9][..random.usize(..9)].to_vec();
            let key = |random: &mut fastrand::Rng| [&shared[..], &random_key(random)].concat();
            let mut keys: Vec<_> = (0..random.usize(2..60)).map(|_| key(&mut random)).collect();
            keys.sort();
            keys.dedup();
            let hi = if random.bool() { keys.pop() } else { None };
            let Some(lo) = keys.first().cloned() else { continue };
            let child = |(index, separator): (usize, &Vec<u8>)| Child {
                separator: separator.clone(),
                pid: index as u32 + 7,
                records: random.u32(..),
            };
            let children = keys.iter().enumerate().map(child).collect();
            let node = Node { level: 3, tag: 11, lo: lo.clone(), hi: hi.clone(), children };
            let mut page = vec![u64::MAX; WORD_COUNT];
            node.encode(&mut page);
            assert_eq!(page.decode(), node);
            assert!(page.is_ordered_inner(11) && !page.is_ordered_inner(12));
            let is_inside = |key: &Vec<u8>| *key >= lo && hi.as_ref().is_none_or(|hi| key < hi);
            for _ in 0..60 {
                let key = key(&mut random);
                if is_inside(&key) {
                    let expected = keys.partition_point(|separator| *separator <= key) - 1;
                    assert_eq!(page.search(&key, false), expected, "{key:?} in {keys:?}");
                }
                if key > lo && hi.as_ref().is_none_or(|hi| key <= *hi) {
                    let expected = keys.partition_point(|separator| *separator < key) - 1;
                    assert_eq!(page.search(&key, true), expected, "below {key:?} in {keys:?}");
                }
            }
            if node.children.len() > 1 {
                let (mut left, whole) = (node.clone(), node);
                let right = left.split_off();
                assert_eq!(left.hi.as_ref(), Some(&right.lo));
                assert_eq!([left.children, right.children].concat(), whole.children);
            }
        }
    }

    #[test]
    fn a_torn_node_never_panics() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..2_000 {
            let page: Vec<u64> = (0..WORD_COUNT).map(|_| random.u64(..)).collect();
            let key = random_key(&mut random);
            let index = page.search(&key, random.bool());
            let _ = (page.child_at(index), page.decode(), page.is_ordered_inner(1));
        }
    }
}

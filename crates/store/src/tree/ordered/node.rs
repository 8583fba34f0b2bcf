//! An inner node of byte-string keys: a page of 512 words, read and written through relaxed atomics.
//!
//! ```text
//! 0    kind u8 | level u8 | count u16 | tag u32
//! 8    prefix_bytes u16 | lo_bytes u16 | hi_bytes u16 | flags u16: 1 no upper bound, 2 counts of records, from bit 6 on
//!      shared_bytes
//! 16   hints: head u32, of the first child of each block
//!      blocks, each a line of 64 bytes: heads u32, of eight children | pids u32, of the same
//!      slots: offset u16 | tail_bytes u16, one for each child
//!      counts of records below: u32, one for each child
//!      bytes: lo, hi, shared, then the tails of the separators without what is in their heads
//! ```
//! A separator is the least key that belongs to its child; the first is `lo`, and is not compared. What `lo` and `hi` have
//! in common is the prefix of all keys below. What separators begin with after it, all but the first, is shared by them, but
//! not by all keys below: it is compared. A tail is a separator without both. The head is the first four bytes of the tail,
//! zeros added, so that most comparisons look at nothing else. So a search reads the hints and one block, as a rule: few
//! cache lines, and where they are is known as soon as the ones before are there.
//!
//! Without shared bytes a root, whose bounds have nothing in common, would have the same head for all keys that begin alike.
//!
//! A node is searched in place and changed as a whole: it is decoded, changed, and written anew.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::page::{get_u16, get_u32, get_u64, Page, KIND_ORDERED_INNER, PAGE_SIZE};
use crate::tree::words::{Words, WordsMut, WORD_COUNT};

const COUNT: usize = 2;
const TAG: usize = 4;
const LENGTHS: usize = 8;
const HINTS: usize = 16;
const BLOCK_CHILDREN: usize = 8;
const BLOCK_BYTES: usize = 64;
/// Bytes of a head in the node.
const HEAD_BYTES: usize = 4;
/// Where in a block the pids are.
const BLOCK_PIDS: usize = BLOCK_CHILDREN * HEAD_BYTES;
const SLOT_BYTES: usize = 4;
const RECORDS_BYTES: usize = 4;
/// Children that a page has room for.
const COUNT_MAX: usize = 320;
/// Bytes of a page that all hints are in.
pub(super) const HINTS_END: usize = HINTS + COUNT_MAX / BLOCK_CHILDREN * HEAD_BYTES;
/// Bytes that a child takes at most beside its separator: it may begin a block, and hints another line.
pub(super) const CHILD_BYTES_MAX: usize = 2 * BLOCK_BYTES + SLOT_BYTES + RECORDS_BYTES;

const IS_LAST: u16 = 1;
const COUNTS: u16 = 2;
const SHARED_SHIFT: u32 = 6;

/// Where the parts of a node are that has so many children.
struct Parts {
    blocks: usize,
    slots: usize,
    records: usize,
    bytes: usize,
}

impl Parts {
    #[inline(always)]
    fn of(count: usize, counts: bool) -> Parts {
        let blocks = Parts::blocks(count);
        let slots = blocks + BLOCK_BYTES * count.div_ceil(BLOCK_CHILDREN);
        let records = slots + SLOT_BYTES * count;
        Parts { blocks, slots, records, bytes: records + if counts { RECORDS_BYTES * count } else { 0 } }
    }

    #[inline(always)]
    fn blocks(count: usize) -> usize {
        (HINTS + HEAD_BYTES * count.div_ceil(BLOCK_CHILDREN)).next_multiple_of(BLOCK_BYTES)
    }
}

/// The first four bytes, zeros added, in the order of the keys.
#[inline(always)]
pub(super) fn head_of(tail: &[u8]) -> u32 {
    match tail.first_chunk() {
        Some(head) => u32::from_be_bytes(*head),
        // A copy of so few bytes would be a call of the library.
        None => tail.iter().zip([24, 16, 8]).fold(0, |head, (byte, shift)| head | u32::from(*byte) << shift),
    }
}

/// The first eight bytes, zeros added, in the order of the keys.
#[inline(always)]
fn first_eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            bytes.iter().zip((0..8).rev()).fold(0, |all, (byte, place)| all | u64::from(*byte) << (8 * place))
        }
    }
}

pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Bytes that all keys from `lo` up to `hi` begin with.
pub(super) fn prefix_bytes(lo: &[u8], hi: Option<&[u8]>) -> usize {
    hi.map_or(0, |hi| common_prefix(lo, hi))
}

/// The first index that is not `below`, which no index after it is either; the end if there is none. Without a branch that
/// depends on what is found: half of them would be taken for the wrong ones.
#[inline(always)]
pub(super) fn partition(range: std::ops::Range<usize>, mut is_below: impl FnMut(usize) -> bool) -> usize {
    let (mut start, mut len) = (range.start, range.end.saturating_sub(range.start));
    while len > 1 {
        let half = len / 2;
        start += if is_below(start + half - 1) { half } else { 0 };
        len -= half;
    }
    start + usize::from(len == 1 && is_below(start))
}

/// The children of a node of a tree; `None` if the page is none.
pub(crate) fn children_of(page: &Page, tag: u32) -> Option<Vec<u32>> {
    let is_node = page.is_ordered_inner(tag);
    is_node.then(|| (0..page.count()).map(|index| page.child_at(index)).collect())
}

/// Which child of a node of a tree that counts has the record below it that has so many before it, and how many of these
/// are below that child; the last child, and what is left, if there are not so many. `None` if the page is none.
pub(crate) fn find_rank(page: &Page, tag: u32, rank: u64) -> Option<(usize, u64)> {
    page.is_ordered_inner(tag).then(|| {
        let (child, before) = page.child_of_rank(rank);
        (child, rank.saturating_sub(before))
    })
}

/// Which child of a node of a tree a key belongs to, and how many records are below those before it. `None` if the page is
/// none.
pub(crate) fn find_key(page: &Page, tag: u32, key: &[u8]) -> Option<(usize, u64)> {
    page.is_ordered_inner(tag).then(|| {
        let child = page.search(key, false);
        (child, page.records_before(child))
    })
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

    /// Four bytes at a multiple of four; the last word's if they are beyond the page.
    #[inline(always)]
    fn half(&self, at: usize) -> u32 {
        (self.word((at / 8).min(WORD_COUNT - 1)) >> (8 * (at % 8))) as u32
    }

    /// Eight bytes of the page, the first lowest; the last word's if they are beyond it.
    #[inline(always)]
    fn eight(&self, at: usize) -> u64 {
        let word = |index: usize| self.word(index.min(WORD_COUNT - 1));
        match at % 8 {
            0 => word(at / 8),
            byte => word(at / 8) >> (8 * byte) | word(at / 8 + 1) << (64 - 8 * byte),
        }
    }

    /// Compares bytes of the page with others, eight at a time.
    #[inline(always)]
    fn compare(&self, at: usize, len: usize, with: &[u8]) -> Ordering {
        for (start, part) in (at..).step_by(8).zip(with[..len.min(with.len())].chunks(8)) {
            let theirs = match part.first_chunk() {
                Some(part) => u64::from_le_bytes(*part),
                None => part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            };
            let ours = self.eight(start) & u64::MAX >> (64 - 8 * part.len());
            match ours.swap_bytes().cmp(&theirs.swap_bytes()) {
                Ordering::Equal => {}
                other => return other,
            }
        }
        len.cmp(&with.len())
    }

    #[inline(always)]
    fn has_counts(&self) -> bool {
        (self.word(LENGTHS / 8) >> 48) as u16 & COUNTS != 0
    }

    #[inline(always)]
    fn block_at(&self, block: usize) -> usize {
        Parts::blocks(self.count()) + BLOCK_BYTES * block
    }

    #[inline(always)]
    fn child_at(&self, index: usize) -> u32 {
        let at = self.block_at(index / BLOCK_CHILDREN) + BLOCK_PIDS;
        self.half(at + HEAD_BYTES * (index % BLOCK_CHILDREN))
    }

    #[inline(always)]
    fn head_at(&self, index: usize) -> u32 {
        self.half(self.block_at(index / BLOCK_CHILDREN) + HEAD_BYTES * (index % BLOCK_CHILDREN))
    }

    /// Records below a child, if the tree counts them.
    #[inline(always)]
    fn records_at(&self, index: usize) -> u32 {
        match self.has_counts() {
            true => self.half(Parts::of(self.count(), true).records + RECORDS_BYTES * index),
            false => 0,
        }
    }

    /// Records below all children before this one, if the tree counts them.
    fn records_before(&self, index: usize) -> u64 {
        if !self.has_counts() {
            return 0;
        }
        let start = Parts::of(self.count(), true).records;
        let end = start + RECORDS_BYTES * index;
        let both = |word: u64| u64::from(word as u32) + (word >> 32);
        // Two to a word, but for the first and the last.
        let words = start.div_ceil(8)..end / 8;
        let first = if start % 8 != 0 && start < end { u64::from(self.half(start)) } else { 0 };
        let last =
            if end % 8 != 0 && words.end * 8 >= start { u64::from(self.half(end - end % 8)) } else { 0 };
        first + words.map(|word| both(self.word(word.min(WORD_COUNT - 1)))).sum::<u64>() + last
    }

    /// The child with the record that has so many before it in the node, and the records before that child; the last child
    /// if there are not so many.
    fn child_of_rank(&self, rank: u64) -> (usize, u64) {
        let (last, mut before) = (self.count() - 1, 0);
        for index in 0..last {
            let after = before + u64::from(self.records_at(index));
            if rank < after {
                return (index, before);
            }
            before = after;
        }
        (last, before)
    }

    #[inline(always)]
    fn shared_bytes(&self) -> usize {
        usize::from((self.word(LENGTHS / 8) >> 48) as u16 >> SHARED_SHIFT)
    }

    /// The tail of a key; for one that has none, as all separators are above or below it, the child that it belongs to.
    #[inline(always)]
    fn tail_of<'k>(&self, key: &'k [u8]) -> Result<&'k [u8], usize> {
        // Keys that belong here begin with the prefix; for another the caller finds out that it is in the wrong place.
        let tail = key.get(usize::from(self.word(LENGTHS / 8) as u16)..).ok_or(0usize)?;
        match self.shared_bytes() {
            0 => Ok(tail),
            shared_bytes => self.tail_after(tail, shared_bytes),
        }
    }

    fn tail_after<'k>(&self, tail: &'k [u8], shared_bytes: usize) -> Result<&'k [u8], usize> {
        let (lengths, counts) = (self.word(LENGTHS / 8), self.has_counts());
        let bounds_bytes = usize::from((lengths >> 16) as u16) + usize::from((lengths >> 32) as u16);
        let at = Parts::of(self.count(), counts).bytes + bounds_bytes;
        let (start, rest) = tail.split_at(shared_bytes.min(tail.len()));
        match self.compare(at, shared_bytes, start) {
            Ordering::Less => Err(self.count() - 1),
            Ordering::Equal => Ok(rest),
            Ordering::Greater => Err(0),
        }
    }

    /// The last block that begins with a head below this one; the first if there is none.
    #[inline(always)]
    fn block_of(&self, head: u32) -> usize {
        let block_count = self.count().div_ceil(BLOCK_CHILDREN);
        partition(1..block_count, |block| self.half(HINTS + HEAD_BYTES * block) < head) - 1
    }

    /// The byte of the page where the block begins that a search for the key looks at.
    #[inline(always)]
    fn probe(&self, key: &[u8]) -> usize {
        self.block_at(match self.tail_of(key) {
            Ok(tail) => self.block_of(head_of(tail)),
            Err(child) => child / BLOCK_CHILDREN,
        })
    }

    /// The last child whose separator is not above the key, or, with `below`, is below it; the first if there is none.
    #[inline(always)]
    fn search(&self, key: &[u8], below: bool) -> usize {
        let tail = match self.tail_of(key) {
            Ok(tail) => tail,
            Err(child) => return child,
        };
        let head = head_of(tail);
        let block = self.block_of(head);
        let at = self.block_at(block);
        let lower_count = (0..BLOCK_CHILDREN / 2).fold(0, |count, pair| {
            let heads = self.word((at / 8 + pair).min(WORD_COUNT - 1));
            count + usize::from((heads as u32) < head) + usize::from(((heads >> 32) as u32) < head)
        });
        // The first child of all is in its place whatever its head.
        let next = (block * BLOCK_CHILDREN + lower_count.max(1)).min(self.count());
        if next < self.count() && self.head_at(next) == head {
            return self.search_equal_heads(next, tail, below);
        }
        next - 1
    }

    /// The same among the children from `start` on whose head is the key's.
    #[inline(never)]
    fn search_equal_heads(&self, start: usize, tail: &[u8], below: bool) -> usize {
        let (head, count, blocks) = (head_of(tail), self.count(), self.block_at(0));
        let head_at = |index: usize| {
            self.half(blocks + BLOCK_BYTES * (index / BLOCK_CHILDREN) + HEAD_BYTES * (index % BLOCK_CHILDREN))
        };
        let end = partition(start..count, |index| head_at(index) == head);
        let slots = Parts::of(count, false).slots;
        let rest = tail.get(HEAD_BYTES..).unwrap_or_default();
        let next_bytes = first_eight(rest);
        let is_left = |index| {
            let slot = self.half(slots + SLOT_BYTES * index);
            let (at, tail_bytes) = (usize::from(slot as u16), usize::from((slot >> 16) as u16));
            let rest_bytes = tail_bytes.saturating_sub(HEAD_BYTES);
            let kept = if rest_bytes < 8 { !(u64::MAX >> (8 * rest_bytes)) } else { u64::MAX };
            // Bytes that differ decide; that there are none counts as zeros, which come before all others.
            let order =
                (self.eight(at).swap_bytes() & kept).cmp(&next_bytes).then_with(|| match rest_bytes {
                    0 => tail_bytes.cmp(&tail.len()),
                    _ => self.compare(at, rest_bytes, rest),
                });
            order.is_lt() || order.is_eq() && !below
        };
        partition(start..end, is_left) - 1
    }

    /// [`Node::encoded_bytes`] with the children of `replaced` replaced by others, of which all but the first have separators of
    /// these lengths; the first keeps its own.
    fn bytes_with(
        &self,
        replaced: std::ops::Range<usize>,
        separator_lens: impl ExactSizeIterator<Item = usize>,
    ) -> usize {
        let (lengths, count, counts) = (self.word(LENGTHS / 8), self.count(), self.has_counts());
        let length = |number: u32| usize::from((lengths >> (16 * number)) as u16);
        let slots = Parts::of(count, counts).slots;
        let rest = |tail_bytes: usize| tail_bytes.saturating_sub(HEAD_BYTES);
        let tail_bytes = |index| usize::from((self.half(slots + SLOT_BYTES * index) >> 16) as u16);
        let kept = (1..count).filter(|index| *index <= replaced.start || *index >= replaced.end);
        let kept_bytes: usize = kept.map(|index| rest(tail_bytes(index) + self.shared_bytes())).sum();
        let count_after = count - replaced.len() + separator_lens.len() + 1;
        let new_bytes: usize = separator_lens.map(|len| rest(len.saturating_sub(length(0)))).sum();
        Parts::of(count_after, counts).bytes + length(1) + length(2) + kept_bytes + new_bytes
    }

    /// Bytes of the page that the children take: [`Node::children_bytes`] of what is in the node.
    fn children_bytes(&self) -> usize {
        let (count, counts) = (self.count(), self.has_counts());
        let slots = Parts::of(count, counts).slots;
        let tail_bytes = |index| usize::from((self.half(slots + SLOT_BYTES * index) >> 16) as u16);
        let rest = |index| (tail_bytes(index) + self.shared_bytes()).saturating_sub(HEAD_BYTES);
        Parts::of(count, counts).bytes + (1..count).map(rest).sum::<usize>()
    }

    /// [`Node::encoded_bytes`] of what is in the node.
    fn used_bytes(&self) -> usize {
        let length = |number: u32| usize::from((self.word(LENGTHS / 8) >> (16 * number)) as u16);
        length(1) + length(2) + self.children_bytes()
    }

    /// Whether everything that the node says of itself is there and in order.
    fn is_whole(&self) -> bool {
        let length = |number: u32| usize::from((self.word(LENGTHS / 8) >> (16 * number)) as u16);
        let (count, shared_bytes, node) = (self.count(), self.shared_bytes(), self.decode());
        let hi_bytes = node.hi.as_ref().map_or(0, Vec::len);
        let slots = Parts::of(count, self.has_counts()).slots;
        let tail_bytes = |index| usize::from((self.half(slots + SLOT_BYTES * index) >> 16) as u16);
        let mut children = node.children.iter().enumerate().skip(1);
        usize::from((self.word(0) >> 16) as u16) == count
            && (node.prefix_bytes(), node.lo.len(), hi_bytes) == (length(0), length(1), length(2))
            && children
                .all(|(index, child)| child.separator.len() == length(0) + shared_bytes + tail_bytes(index))
            && node.children.windows(2).all(|pair| pair[0].separator < pair[1].separator)
            && node
                .children
                .last()
                .is_some_and(|last| node.hi.as_ref().is_none_or(|hi| last.separator[..] < hi[..]))
            && node.encoded_bytes() <= PAGE_SIZE
    }

    /// Everything that is in the node.
    fn decode(&self) -> Node {
        let mut page = [0; PAGE_SIZE];
        page.chunks_exact_mut(8)
            .enumerate()
            .for_each(|(index, word)| word.copy_from_slice(&self.word(index).to_le_bytes()));
        Node::parse(&page)
    }
}

impl<W: Words + ?Sized> OrderedNode for W {}

/// Most are short: a node is decoded without an allocation for each.
pub(super) type Separator = SmallVec<[u8; 24]>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub separator: Separator,
    pub pid: u32,
    pub records: u32,
}

/// A node that is being changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub level: u8,
    pub tag: u32,
    /// Whether records below children are counted.
    pub counts: bool,
    pub lo: Vec<u8>,
    /// The least key that is above all below the node.
    pub hi: Option<Vec<u8>>,
    pub children: Vec<Child>,
}

impl Node {
    fn parse(page: &Page) -> Node {
        let length = |number: usize| usize::from(get_u16(page, LENGTHS + 2 * number));
        let bytes = |at: usize, len: usize| page.get(at..at + len).unwrap_or_default();
        let flags = get_u16(page, LENGTHS + 6);
        let (count, counts) = (page.count(), flags & COUNTS != 0);
        let parts = Parts::of(count, counts);
        let lo = bytes(parts.bytes, length(1));
        let hi = (flags & IS_LAST == 0).then(|| bytes(parts.bytes + lo.len(), length(2)).to_vec());
        let prefix = &lo[..length(0).min(lo.len())];
        let shared = bytes(parts.bytes + lo.len() + length(2), usize::from(flags >> SHARED_SHIFT));
        let separator = |index: usize| {
            let slot = parts.slots + SLOT_BYTES * index;
            let (at, len) = (usize::from(get_u16(page, slot)), usize::from(get_u16(page, slot + 2)));
            let head = page.head_at(index).to_be_bytes();
            let rest = bytes(at, len.saturating_sub(HEAD_BYTES));
            let mut separator = Separator::new();
            for part in [prefix, shared, &head[..len.min(HEAD_BYTES)], rest] {
                separator.extend_from_slice(part);
            }
            separator
        };
        let child = |index: usize| Child {
            separator: if index == 0 { lo.into() } else { separator(index) },
            pid: page.child_at(index),
            records: page.records_at(index),
        };
        let children = (0..count).map(child).collect();
        Node { level: page[1], tag: get_u32(page, TAG), counts, lo: lo.to_vec(), hi, children }
    }

    fn prefix_bytes(&self) -> usize {
        prefix_bytes(&self.lo, self.hi.as_deref())
    }

    /// Bytes that separators share after the prefix, if it saves room to keep them once. So a node never takes more than
    /// without: [`Node::encoded_bytes`] does not count on it, as the next separator may end it.
    fn shared_bytes(&self) -> usize {
        let [_, first, .., last] = &self.children[..] else { return 0 };
        let prefix_bytes = self.prefix_bytes();
        let shared_bytes = common_prefix(&first.separator, &last.separator).saturating_sub(prefix_bytes);
        let rests = |left_out: usize| -> usize {
            let tails = self.children.iter().skip(1).map(|child| child.separator.len());
            tails.map(|len| len.saturating_sub(left_out + HEAD_BYTES)).sum()
        };
        match rests(prefix_bytes + shared_bytes) + shared_bytes < rests(prefix_bytes) {
            true => shared_bytes,
            false => 0,
        }
    }

    fn parts(&self) -> Parts {
        Parts::of(self.children.len(), self.counts)
    }

    /// Bytes of the page that it takes.
    pub fn encoded_bytes(&self) -> usize {
        self.lo.len() + self.hi.as_ref().map_or(0, Vec::len) + self.children_bytes()
    }

    /// Bytes of the page that its children take.
    pub fn children_bytes(&self) -> usize {
        let in_head = self.prefix_bytes() + HEAD_BYTES;
        let tails = self.children.iter().skip(1).map(|child| child.separator.len().saturating_sub(in_head));
        self.parts().bytes + tails.sum::<usize>()
    }

    pub fn records(&self) -> u32 {
        self.children.iter().fold(0, |sum, child| sum.wrapping_add(child.records))
    }

    /// Writes the node, which fits its page. Of one that was read from a page that held nonsense what does not fit is left out.
    pub fn encode(&self, page: &mut impl WordsMut) {
        debug_assert!(!self.children.is_empty());
        let mut bytes = [0; PAGE_SIZE];
        let used_bytes = self.write(&mut bytes);
        for (index, word) in bytes[..used_bytes.next_multiple_of(8)].chunks_exact(8).enumerate() {
            page.set_word(index, get_u64(word, 0));
        }
    }

    /// Writes it to a page of zeros; the bytes that it takes there.
    fn write(&self, page: &mut Page) -> usize {
        let (prefix_bytes, shared_bytes, parts) = (self.prefix_bytes(), self.shared_bytes(), self.parts());
        let left_out = prefix_bytes + shared_bytes;
        let hi = self.hi.as_deref().unwrap_or(&[]);
        (page[0], page[1]) = (KIND_ORDERED_INNER, self.level);
        put(page, COUNT, &(self.children.len() as u16).to_le_bytes());
        put(page, TAG, &self.tag.to_le_bytes());
        let is_last = if self.hi.is_none() { IS_LAST } else { 0 };
        let flags = is_last | if self.counts { COUNTS } else { 0 } | (shared_bytes as u16) << SHARED_SHIFT;
        let lengths = [prefix_bytes as u16, self.lo.len() as u16, hi.len() as u16, flags];
        for (number, length) in lengths.iter().enumerate() {
            put(page, LENGTHS + 2 * number, &length.to_le_bytes());
        }
        let mut end = parts.bytes;
        let mut append = |page: &mut Page, bytes: &[u8]| {
            put(page, end, bytes);
            end += bytes.len();
            end - bytes.len()
        };
        append(page, &self.lo);
        append(page, hi);
        if shared_bytes > 0 {
            append(page, &self.children[1].separator[prefix_bytes..left_out]);
        }
        for (index, child) in self.children.iter().enumerate() {
            let tail = child.separator.get(left_out..).filter(|_| index > 0).unwrap_or_default();
            let (block, place) = (index / BLOCK_CHILDREN, index % BLOCK_CHILDREN);
            let at = parts.blocks + BLOCK_BYTES * block + HEAD_BYTES * place;
            if place == 0 {
                put(page, HINTS + HEAD_BYTES * block, &head_of(tail).to_le_bytes());
            }
            put(page, at, &head_of(tail).to_le_bytes());
            put(page, at + BLOCK_PIDS, &child.pid.to_le_bytes());
            if self.counts {
                put(page, parts.records + RECORDS_BYTES * index, &child.records.to_le_bytes());
            }
            let rest_at = append(page, tail.get(HEAD_BYTES..).unwrap_or_default());
            put(page, parts.slots + SLOT_BYTES * index, &(rest_at as u16).to_le_bytes());
            put(page, parts.slots + SLOT_BYTES * index + 2, &(tail.len() as u16).to_le_bytes());
        }
        // No search takes the places that are left for keys below its own.
        for place in self.children.len()..self.children.len().next_multiple_of(BLOCK_CHILDREN) {
            let block_at = parts.blocks + BLOCK_BYTES * (place / BLOCK_CHILDREN);
            put(page, block_at + HEAD_BYTES * (place % BLOCK_CHILDREN), &u32::MAX.to_le_bytes());
        }
        end.min(PAGE_SIZE)
    }

    /// Moves the upper half, by bytes, to a node of its own; of two children at least.
    pub fn split_off(&mut self) -> Node {
        let bytes_of = |child: &Child| BLOCK_BYTES / BLOCK_CHILDREN + SLOT_BYTES + child.separator.len();
        let total: usize = self.children.iter().map(bytes_of).sum();
        let mut seen = 0;
        let half = self.children.iter().position(|child| {
            seen += bytes_of(child);
            seen > total / 2
        });
        let at = half.unwrap_or(0).clamp(1, self.children.len() - 1);
        let children = self.children.split_off(at);
        let lo = children[0].separator.to_vec();
        let hi = self.hi.replace(lo.clone());
        Node { level: self.level, tag: self.tag, counts: self.counts, lo, hi, children }
    }
}

/// Writes bytes to a page, unless they lie beyond it.
fn put(page: &mut Page, at: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Adds to the count of records below a child, which lies within the page unless that holds nonsense.
pub(super) fn add_records(page: &mut impl WordsMut, index: usize, delta: i32) {
    let at = (Parts::of(page.count(), true).records + RECORDS_BYTES * index).min(PAGE_SIZE - RECORDS_BYTES);
    let (word, shift) = (page.word(at / 8), 8 * (at % 8));
    let records = page.half(at).wrapping_add_signed(delta);
    page.set_word(at / 8, word & !(u64::from(u32::MAX) << shift) | u64::from(records) << shift);
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
            let counts = random.bool();
            let child = |(index, separator): (usize, &Vec<u8>)| Child {
                separator: separator[..].into(),
                pid: index as u32 + 7,
                records: if counts { random.u32(..) } else { 0 },
            };
            let children = keys.iter().enumerate().map(child).collect();
            let node = Node { level: 3, tag: 11, counts, lo: lo.clone(), hi: hi.clone(), children };
            let mut page = vec![u64::MAX; WORD_COUNT];
            node.encode(&mut page);
            assert_eq!(page.decode(), node);
            let bytes = (page.used_bytes(), page.children_bytes());
            assert_eq!(bytes, (node.encoded_bytes(), node.children_bytes()));
            assert!(page.is_ordered_inner(11) && !page.is_ordered_inner(12));
            let mut before = 0;
            for (index, child) in node.children.iter().enumerate() {
                assert_eq!(page.records_before(index), before);
                before += u64::from(child.records);
                if child.records > 0 {
                    let first = before - u64::from(child.records);
                    assert_eq!(page.child_of_rank(first), (index, first));
                    assert_eq!(page.child_of_rank(before - 1), (index, first));
                }
            }
            let is_inside = |key: &Vec<u8>| *key >= lo && hi.as_ref().is_none_or(|hi| key < hi);
            for _ in 0..60 {
                let key = match random.u32(..3) {
                    0 => [&shared[..random.usize(..=shared.len())], &random_key(&mut random)].concat(),
                    1 => [&shared[..random.usize(..=shared.len())], b"q"].concat(),
                    _ => key(&mut random),
                };
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
            let _ = (page.records_before(index), page.child_of_rank(random.u64(..)));
        }
    }

    /// A page that fits its checksum may hold nonsense all the same. Whoever changes it makes other nonsense of it.
    #[test]
    fn a_crafted_node_is_changed_without_a_panic() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        let (mut split_count, mut too_large_count) = (0, 0);
        for _ in 0..5_000 {
            let mut page = vec![0; WORD_COUNT];
            let mut keys: Vec<_> = (0..random.usize(1..60)).map(|_| random_key(&mut random)).collect();
            keys.sort();
            let (lo, hi) = (keys[0].clone(), random.bool().then(|| vec![0xff; 15]));
            let child = |separator: Vec<u8>| Child { separator: separator.into(), pid: 7, records: 1 };
            let children = keys.into_iter().map(child).collect();
            Node { level: 1, tag: 11, counts: random.bool(), lo, hi, children }.encode(&mut page);
            for _ in 0..random.usize(1..20) {
                let (word, bits) = (random.usize(..WORD_COUNT), random.u64(..) & random.u64(..));
                page[if random.bool() { word % 32 } else { word }] ^= bits;
            }
            let mut node = page.decode();
            node.encode(&mut page);
            add_records(&mut page, node.children.len() - 1, 1);
            too_large_count += u32::from(node.encoded_bytes() > PAGE_SIZE);
            if node.children.len() > 1 {
                let right = node.split_off();
                right.encode(&mut page);
                node.children.extend(right.children);
                node.children.insert(1, node.children[0].clone());
                node.encode(&mut page);
                split_count += 1;
            }
        }
        assert!(split_count > 1_000 && too_large_count > 10, "{split_count}, {too_large_count}");
    }
}

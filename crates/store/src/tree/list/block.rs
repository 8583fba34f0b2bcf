//! A leaf of a list: a block of elements in their order, one after the other, with room before them and behind them.
//!
//! ```text
//! byte 0  kind 11 | 2 element count u16 | 4 byte of the first element u16 | 6 byte behind the last u16 | 8 tag u32
//!      12 anchor: index of an element u16, byte where it begins u16
//!      16 room, elements, room
//! element 0..=253: so many bytes follow | 254: a length u16, so many bytes follow | 255: a reference, 12 bytes
//! ```
//! Elements are found by going over those before them, from the first or from the anchor. That is kept near the end, where
//! elements are pushed and popped: so these are found without going over the whole block.

use std::ops::Range;

use crate::blobs::{Blob, BLOB_BYTES};
use crate::effect::End;
use crate::page::{get_u16, get_u32, put_u16, put_u32, Page, KIND_LIST_LEAF, PAGE_SIZE};

/// The longest element that lies in its block, in bytes. Of longer ones the block has a reference.
pub(crate) const ELEMENT_INLINE_MAX_BYTES: usize = 512;

const COUNT: usize = 2;
const START: usize = 4;
const END: usize = 6;
const TAG: usize = 8;
const ANCHOR_INDEX: usize = 12;
const ANCHOR_BYTE: usize = 14;
const HEADER_BYTES: usize = 16;

/// Bytes of a block for elements.
pub(super) const CAPACITY_BYTES: usize = PAGE_SIZE - HEADER_BYTES;
/// An element at an end of the list is put into the end block only if so much is free on its side, or in all: elements are
/// not moved for a few that still fit.
const SLIDE_MIN_BYTES: usize = CAPACITY_BYTES / 8;

const MARK_LONG: u8 = 254;
const MARK_OUTSIDE: u8 = 255;
/// The anchor is so many elements before the last that was looked for, and moves after so many.
const ANCHOR_STEP: usize = 16;

/// Room of a block for elements at one end of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Between the elements and the end of the block on that side.
    gap_bytes: usize,
    free_bytes: usize,
}

impl Room {
    /// Of a block without elements whose room is on that side.
    pub const WHOLE: Room = Room { gap_bytes: CAPACITY_BYTES, free_bytes: CAPACITY_BYTES };

    /// Takes room for an element, as [`BlockMut::push`] does. False, and none taken, if there is none.
    pub fn take(&mut self, bytes: usize) -> bool {
        if self.gap_bytes < bytes {
            if self.free_bytes < bytes.max(SLIDE_MIN_BYTES) {
                return false;
            }
            self.gap_bytes = gap_after_slide(self.free_bytes, bytes);
        }
        self.gap_bytes -= bytes;
        self.free_bytes -= bytes;
        true
    }
}

/// Room that is on the side where an element is put once the others have been moved: half of it, so that the next find some
/// on either side.
fn gap_after_slide(free_bytes: usize, bytes: usize) -> usize {
    bytes.max(free_bytes / 2)
}

/// An element as its block has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element<'a> {
    /// At most [`ELEMENT_INLINE_MAX_BYTES`].
    Inline(&'a [u8]),
    /// Its bytes lie in a slab or in an object.
    Outside(Blob),
}

impl<'a> Element<'a> {
    /// Bytes that it takes in a block.
    pub(super) fn encoded_bytes(&self) -> usize {
        match self {
            Element::Inline(bytes) if bytes.len() < usize::from(MARK_LONG) => 1 + bytes.len(),
            Element::Inline(bytes) => 3 + bytes.len(),
            Element::Outside(_) => 1 + BLOB_BYTES,
        }
    }

    pub(super) fn fits_a_block(&self) -> bool {
        !matches!(self, Element::Inline(bytes) if bytes.len() > ELEMENT_INLINE_MAX_BYTES)
    }

    /// Writes it to `out`, which has exactly [`Element::encoded_bytes`].
    pub(super) fn encode(&self, out: &mut [u8]) {
        match self {
            Element::Inline(bytes) if bytes.len() < usize::from(MARK_LONG) => {
                out[0] = bytes.len() as u8;
                out[1..].copy_from_slice(bytes);
            }
            Element::Inline(bytes) => {
                out[0] = MARK_LONG;
                out[1..3].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
                out[3..].copy_from_slice(bytes);
            }
            Element::Outside(blob) => {
                out[0] = MARK_OUTSIDE;
                blob.encode(&mut out[1..]);
            }
        }
    }

    /// The element at the beginning of `bytes`, and how many of them it takes. `None` if it is malformed or cut off.
    #[inline(always)]
    fn parse(bytes: &'a [u8]) -> Option<(Element<'a>, usize)> {
        match *bytes.first()? {
            len if len < MARK_LONG => {
                let end = 1 + usize::from(len);
                Some((Element::Inline(bytes.get(1..end)?), end))
            }
            _ => Element::parse_marked(bytes),
        }
    }

    fn parse_marked(bytes: &'a [u8]) -> Option<(Element<'a>, usize)> {
        if *bytes.first()? == MARK_OUTSIDE {
            let blob = Blob::parse(bytes.get(1..1 + BLOB_BYTES)?)?;
            return Some((Element::Outside(blob), 1 + BLOB_BYTES));
        }
        let end = 3 + usize::from(u16::from_le_bytes([*bytes.get(1)?, *bytes.get(2)?]));
        Some((Element::Inline(bytes.get(3..end)?), end))
    }
}

/// Goes over `count` elements, of which the first begins at byte `at` of `bytes`.
#[inline(always)]
pub(super) fn skip(bytes: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        at += match *bytes.get(at)? {
            MARK_OUTSIDE => 1 + BLOB_BYTES,
            MARK_LONG => 3 + usize::from(u16::from_le_bytes([*bytes.get(at + 1)?, *bytes.get(at + 2)?])),
            len => 1 + usize::from(len),
        };
    }
    (at <= bytes.len()).then_some(at)
}

/// Elements as they lie in a block.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub bytes: &'a [u8],
    pub count: usize,
}

/// See [`Block::elements`].
pub(crate) struct Elements<'p> {
    bytes: &'p [u8],
    left_count: usize,
}

impl<'p> Iterator for Elements<'p> {
    type Item = Option<Element<'p>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Option<Element<'p>>> {
        self.left_count = self.left_count.checked_sub(1)?;
        let parsed = Element::parse(self.bytes);
        match parsed {
            Some((_, element_bytes)) => self.bytes = &self.bytes[element_bytes..],
            None => self.left_count = 0,
        }
        Some(parsed.map(|(element, _)| element))
    }
}

/// A block whose header has been checked.
#[derive(Clone, Copy)]
pub(crate) struct Block<'p> {
    page: &'p Page,
}

impl<'p> Block<'p> {
    pub fn new(page: &'p Page) -> Option<Block<'p>> {
        let block = Block { page };
        let (start, end) = (block.start(), block.end());
        let (anchor_index, anchor) = block.anchor();
        let is_sane = page[0] == KIND_LIST_LEAF
            && HEADER_BYTES <= start
            && start <= end
            && end <= PAGE_SIZE
            && block.count() <= end - start
            && anchor_index <= block.count()
            && (start..=end).contains(&anchor)
            && (anchor_index > 0 || anchor == start)
            && (anchor_index < block.count() || anchor == end);
        is_sane.then_some(block)
    }

    #[inline(always)]
    pub fn count(&self) -> usize {
        usize::from(get_u16(self.page, COUNT))
    }

    #[inline(always)]
    fn start(&self) -> usize {
        usize::from(get_u16(self.page, START))
    }

    #[inline(always)]
    fn end(&self) -> usize {
        usize::from(get_u16(self.page, END))
    }

    pub fn tag(&self) -> u32 {
        get_u32(self.page, TAG)
    }

    /// Index of an element, or of the one that would be the next, and the byte where it begins.
    fn anchor(&self) -> (usize, usize) {
        (usize::from(get_u16(self.page, ANCHOR_INDEX)), usize::from(get_u16(self.page, ANCHOR_BYTE)))
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.end() - self.start()
    }

    pub(super) fn free_bytes(&self) -> usize {
        CAPACITY_BYTES - self.live_bytes()
    }

    /// All its elements.
    pub(super) fn run(&self) -> Run<'p> {
        Run { bytes: &self.page[self.start()..self.end()], count: self.count() }
    }

    pub(super) fn room(&self, end: End) -> Room {
        let gap_bytes = match end {
            End::Left => self.start() - HEADER_BYTES,
            End::Right => PAGE_SIZE - self.end(),
        };
        Room { gap_bytes, free_bytes: self.free_bytes() }
    }

    /// Where an element begins; where the next would, for the count of them. `None` if there are fewer, or one is malformed.
    #[inline(always)]
    pub(super) fn offset(&self, index: usize) -> Option<usize> {
        let (from, at) = match self.anchor() {
            (anchor_index, anchor) if anchor_index <= index => (anchor_index, anchor),
            _ => (0, self.start()),
        };
        match index <= self.count() {
            true => skip(&self.page[..self.end()], at, index - from),
            false => None,
        }
    }

    #[inline(always)]
    pub fn element(&self, index: usize) -> Option<Element<'p>> {
        let at = self.offset(index).filter(|_| index < self.count())?;
        Some(Element::parse(&self.page[at..self.end()])?.0)
    }

    /// The bytes of the elements from `from` on. `None` if there are fewer, or one before them is malformed.
    #[inline(always)]
    pub(super) fn bytes_from(&self, from: usize) -> Option<&'p [u8]> {
        self.offset(from).map(|at| &self.page[at..self.end()])
    }

    /// The elements from `from` on; ends with `None` at one that is malformed.
    pub fn elements(&self, from: usize) -> Elements<'p> {
        match self.bytes_from(from) {
            Some(bytes) => Elements { bytes, left_count: self.count() - from },
            None => Elements { bytes: &[], left_count: 0 },
        }
    }

    /// The elements below `below` from the last to the first; none if one is malformed.
    pub fn elements_down(&self, below: usize) -> Option<impl Iterator<Item = Element<'p>>> {
        let elements: Option<Vec<_>> = self.elements(0).take(below).collect();
        Some(elements.filter(|elements| elements.len() == below)?.into_iter().rev())
    }

    /// References to what lies outside, of the elements in a range. `None` if one is malformed.
    pub(super) fn blobs(&self, range: Range<usize>) -> Option<Vec<Blob>> {
        let mut blobs = Vec::new();
        let mut count = 0;
        for element in self.elements(range.start).take(range.len()) {
            count += 1;
            if let Element::Outside(blob) = element? {
                blobs.push(blob);
            }
        }
        (count == range.len()).then_some(blobs)
    }

    /// The bytes of the elements of a range. `None` if there are fewer, or the block holds nonsense.
    pub(super) fn span(&self, range: &Range<usize>) -> Option<(usize, usize)> {
        let (from, to) = (self.offset(range.start)?, self.offset(range.end)?);
        self.is_anchored(range, from, to).then_some((from, to))
    }

    /// Whether the anchor can be where it says, if the elements of a range are from byte `from` up to `to`. Of a page that holds
    /// nonsense the two are told by different elements: nothing is reckoned from both before this has been asked.
    fn is_anchored(&self, range: &Range<usize>, from: usize, to: usize) -> bool {
        let (anchor_index, anchor) = self.anchor();
        let lies_right = match anchor_index {
            index if index <= range.start => anchor <= from,
            index if index < range.end => (from..=to).contains(&anchor),
            _ => to <= anchor,
        };
        self.start() <= from && from <= to && to <= self.end() && lies_right
    }

    /// Whether the elements end where the header says, and one begins where the anchor says.
    pub(super) fn is_whole(&self) -> bool {
        let (anchor_index, anchor) = self.anchor();
        let bytes = &self.page[..self.end()];
        let are_sound = self.elements(0).filter(Option::is_some).count() == self.count();
        are_sound
            && skip(bytes, self.start(), anchor_index) == Some(anchor)
            && skip(bytes, self.start(), self.count()) == Some(self.end())
    }
}

/// A block that is changed. What is asked of it has been found possible before.
pub(super) struct BlockMut<'p> {
    page: &'p mut Page,
}

impl<'p> BlockMut<'p> {
    pub fn new(page: &'p mut Page) -> Option<BlockMut<'p>> {
        Block::new(page)?;
        Some(BlockMut { page })
    }

    /// Makes a block of some elements, at most [`CAPACITY_BYTES`] of them, with the room on one side.
    pub fn fill(page: &'p mut Page, tag: u32, parts: &[Run<'_>], room: End) -> BlockMut<'p> {
        let live_bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
        let count: usize = parts.iter().map(|part| part.count).sum();
        let start = match room {
            End::Left => PAGE_SIZE - live_bytes,
            End::Right => HEADER_BYTES,
        };
        page[..HEADER_BYTES].fill(0);
        page[0] = KIND_LIST_LEAF;
        put_u32(page, TAG, tag);
        let mut block = BlockMut { page };
        block.set(start, start + live_bytes, count);
        block.set_anchor(0, start);
        let mut at = start;
        for part in parts {
            block.page[at..at + part.bytes.len()].copy_from_slice(part.bytes);
            at += part.bytes.len();
        }
        block
    }

    fn view(&self) -> Block<'_> {
        Block { page: self.page }
    }

    fn set(&mut self, start: usize, end: usize, count: usize) {
        put_u16(self.page, START, start as u16);
        put_u16(self.page, END, end as u16);
        put_u16(self.page, COUNT, count as u16);
    }

    fn set_anchor(&mut self, index: usize, byte: usize) {
        put_u16(self.page, ANCHOR_INDEX, index as u16);
        put_u16(self.page, ANCHOR_BYTE, byte as u16);
    }

    /// As [`Block::offset`]; the anchor follows if that was far.
    fn seek(&mut self, index: usize) -> Option<usize> {
        let (anchor_index, _) = self.view().anchor();
        let steps = if anchor_index <= index { index - anchor_index } else { index };
        if steps > 2 * ANCHOR_STEP && index <= self.view().count() {
            let before = index.saturating_sub(ANCHOR_STEP);
            let byte = self.view().offset(before)?;
            self.set_anchor(before, byte);
        }
        self.view().offset(index)
    }

    /// Moves all elements, so that the first begins at `start`.
    fn slide(&mut self, start: usize) {
        let (old_start, old_end, count) = (self.view().start(), self.view().end(), self.view().count());
        let (anchor_index, anchor) = self.view().anchor();
        self.page.copy_within(old_start..old_end, start);
        self.set(start, start + old_end - old_start, count);
        self.set_anchor(anchor_index, start + anchor - old_start);
    }

    /// Inserts an element before the one at `index`. False, and nothing changed, if it has no room, there are fewer, or the
    /// block holds nonsense.
    pub fn insert(&mut self, index: usize, element: Element<'_>) -> bool {
        if self.seek(index).is_none() || self.view().free_bytes() < element.encoded_bytes() {
            return false;
        }
        let Some((at, _)) = self.view().span(&(index..index)) else { return false };
        // The shorter part moves.
        let towards = match self.view().end() - at <= at - self.view().start() {
            true => End::Right,
            false => End::Left,
        };
        self.insert_at(index, at, element, towards);
        true
    }

    /// Puts an element to an end of the list, if the block has room there.
    pub fn push(&mut self, end: End, element: Element<'_>) -> bool {
        let has_room = self.view().room(end).take(element.encoded_bytes());
        if has_room {
            let (index, at) = match end {
                End::Left => (0, self.view().start()),
                End::Right => (self.view().count(), self.view().end()),
            };
            self.insert_at(index, at, element, end);
        }
        has_room
    }

    fn insert_at(&mut self, index: usize, at: usize, element: Element<'_>, towards: End) {
        let bytes = element.encoded_bytes();
        let (start, free_bytes) = (self.view().start(), self.view().free_bytes());
        let mut at = at;
        if self.view().room(towards).gap_bytes < bytes {
            let gap_bytes = gap_after_slide(free_bytes, bytes);
            let front_gap = if towards == End::Left { gap_bytes } else { free_bytes - gap_bytes };
            self.slide(HEADER_BYTES + front_gap);
            at = HEADER_BYTES + front_gap + at - start;
        }
        let at = self.open(index, at, bytes, towards);
        element.encode(&mut self.page[at..at + bytes]);
    }

    /// Makes room for an element in a gap that is large enough; where it is to be.
    fn open(&mut self, index: usize, at: usize, bytes: usize, towards: End) -> usize {
        let (start, end, count) = (self.view().start(), self.view().end(), self.view().count());
        let (anchor_index, anchor) = self.view().anchor();
        if towards == End::Right {
            self.page.copy_within(at..end, at + bytes);
            self.set(start, end + bytes, count + 1);
            if anchor_index > index {
                self.set_anchor(anchor_index + 1, anchor + bytes);
            } else if index == count && index - anchor_index > ANCHOR_STEP {
                self.set_anchor(index, at);
            }
            at
        } else {
            self.page.copy_within(start..at, start - bytes);
            self.set(start - bytes, end, count + 1);
            match anchor_index >= index {
                true => self.set_anchor(anchor_index + 1, anchor),
                false => self.set_anchor(anchor_index, anchor - bytes),
            }
            at - bytes
        }
    }

    /// Removes the elements of a range. False, and nothing changed, if there are fewer, or the block holds nonsense.
    pub fn remove(&mut self, range: Range<usize>) -> bool {
        if self.seek(range.start).is_none() {
            return false;
        }
        let Some((from, to)) = self.view().span(&range) else { return false };
        let (start, end, count) = (self.view().start(), self.view().end(), self.view().count());
        let (anchor_index, anchor) = self.view().anchor();
        let (bytes, left) = (to - from, count - range.len());
        if end - to <= from - start {
            self.page.copy_within(to..end, from);
            self.set(start, end - bytes, left);
            if anchor_index >= range.end {
                self.set_anchor(anchor_index - range.len(), anchor - bytes);
            } else if anchor_index > range.start {
                self.set_anchor(range.start, from);
            }
        } else {
            self.page.copy_within(start..from, start + bytes);
            self.set(start + bytes, end, left);
            if anchor_index >= range.end {
                self.set_anchor(anchor_index - range.len(), anchor);
            } else if anchor_index >= range.start {
                self.set_anchor(range.start, to);
            } else {
                self.set_anchor(anchor_index, anchor + bytes);
            }
        }
        true
    }

    /// Puts an element in the place of another. False if it has no room, there is none, or the block holds nonsense.
    pub fn replace(&mut self, index: usize, element: Element<'_>) -> bool {
        let bytes = element.encoded_bytes();
        let Some((at, old_bytes)) = self.extent(index) else { return false };
        if bytes == old_bytes {
            element.encode(&mut self.page[at..at + bytes]);
            return true;
        }
        self.view().free_bytes() + old_bytes >= bytes
            && self.remove(index..index + 1)
            && self.insert(index, element)
    }

    /// Where an element begins, and its bytes.
    fn extent(&mut self, index: usize) -> Option<(usize, usize)> {
        let at = self.seek(index).filter(|_| index < self.view().count())?;
        let (_, bytes) = Element::parse(&self.page[at..self.view().end()])?;
        Some((at, bytes))
    }
}

/// A block that is too full, with one element more, or with another in the place of one.
pub(super) struct Overfull {
    bytes: Vec<u8>,
    count: usize,
    /// Elements of the left half, and their bytes.
    left: (usize, usize),
}

impl Overfull {
    /// `None` if an element is malformed, or there is none to be replaced.
    pub fn plan(block: Block<'_>, index: usize, element: Element<'_>, replaces: bool) -> Option<Overfull> {
        let from = block.offset(index)?;
        let to = block.offset(index + usize::from(replaces))?;
        let mut bytes = block.page[block.start()..from].to_vec();
        bytes.resize(bytes.len() + element.encoded_bytes(), 0);
        element.encode(&mut bytes[from - block.start()..]);
        bytes.extend(&block.page[to..block.end()]);
        let count = block.count() + usize::from(!replaces);
        let (mut left, mut at) = ((0, 0), 0);
        for index in 0..count {
            let next = skip(&bytes, at, 1)?;
            if index == 0 || next <= bytes.len() / 2 {
                left = (index + 1, next);
            }
            at = next;
        }
        let fits = (1..count).contains(&left.0) && left.1.max(bytes.len() - left.1) <= CAPACITY_BYTES;
        (at == bytes.len() && fits).then_some(Overfull { bytes, count, left })
    }

    pub fn left(&self) -> Run<'_> {
        Run { bytes: &self.bytes[..self.left.1], count: self.left.0 }
    }

    pub fn right(&self) -> Run<'_> {
        Run { bytes: &self.bytes[self.left.1..], count: self.count - self.left.0 }
    }
}

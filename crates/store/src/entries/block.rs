//! Some entries in a row: the value of one of a stream's records, whose key has an ID that none of them is below, the base.
//!
//! ```text
//! block    count u16 | nodes that begin u16 | template: number of names, names | entries
//! entry    head: bit 0 begins a node   bit 1 has the template's fields   bit 2 the number of its ID is 0
//!          | milliseconds since the base's | number of the ID unless bit 2 | values, or number of pairs and names and values
//! ```
//! Numbers are 7 bits a byte, the lowest first, bit 7 set on all but the last. Names and values have their length before them. The template
//! is the fields of the entry that the block began with, which may have gone.

use smallvec::SmallVec;

use super::id::StreamId;

const BEGINS_NODE: u8 = 1;
const LIKE_TEMPLATE: u8 = 1 << 1;
const FIRST_OF_MS: u8 = 1 << 2;
const HEADER_BYTES: usize = 4;
/// Of a block with several entries: four such blocks fill a leaf.
const MAX_BYTES: usize = 960;

/// A name, a value, a name, ...
pub(crate) type Parts<'b> = SmallVec<[&'b [u8]; 16]>;

/// An entry of a block.
#[derive(Debug)]
pub(crate) struct Entry<'b> {
    pub id: StreamId,
    pub begins_node: bool,
    pub parts: Parts<'b>,
    /// Where its bytes are in the block.
    start: usize,
    end: usize,
}

/// A block that is read.
#[derive(Clone, Copy)]
pub(crate) struct Block<'b> {
    base: StreamId,
    bytes: &'b [u8],
}

/// A place in a block's bytes; `None` from what is malformed on.
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    pub fn new(bytes: &'b [u8]) -> Cursor<'b> {
        Cursor { bytes, at: 0 }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    fn part(&mut self) -> Option<&'b [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let part = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(part)
    }
}

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    put_number(out, part.len() as u64);
    out.extend_from_slice(part);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_le_bytes(*two))
}

fn add_at(block: &mut [u8], at: usize, delta: u16) {
    let sum = u16_at(block, at).wrapping_add(delta);
    block[at..at + 2].copy_from_slice(&sum.to_le_bytes());
}

impl<'b> Block<'b> {
    pub fn new(base: StreamId, bytes: &'b [u8]) -> Block<'b> {
        Block { base, bytes }
    }

    /// Entries.
    pub fn count(&self) -> u64 {
        u64::from(u16_at(self.bytes, 0))
    }

    /// Entries that begin a node.
    pub fn node_count(&self) -> u64 {
        u64::from(u16_at(self.bytes, 2))
    }

    fn template(&self) -> Option<(SmallVec<[&'b [u8]; 8]>, usize)> {
        let mut cursor = Cursor { bytes: self.bytes, at: HEADER_BYTES };
        let count = cursor.number()?;
        let names: Option<SmallVec<[&'b [u8]; 8]>> = (0..count).map(|_| cursor.part()).collect();
        Some((names?, cursor.at))
    }

    /// Its entries in their order; `None` stands for the rest, where it is malformed.
    pub fn entries(self) -> Entries<'b> {
        match self.template() {
            Some((template, at)) => Entries { block: self, template, at, is_malformed: false },
            None => Entries { block: self, template: SmallVec::new(), at: 0, is_malformed: true },
        }
    }
}

pub(crate) struct Entries<'b> {
    block: Block<'b>,
    template: SmallVec<[&'b [u8]; 8]>,
    at: usize,
    is_malformed: bool,
}

impl<'b> Entries<'b> {
    /// Those from this ID on.
    pub fn not_below(mut self, id: StreamId) -> Entries<'b> {
        while let Some((below, end)) = self.skipped() {
            if below >= id {
                break;
            }
            self.at = end;
        }
        self
    }

    /// The ID of the next entry, and where it ends; `None` if there is none, or it is malformed.
    fn skipped(&self) -> Option<(StreamId, usize)> {
        let mut cursor = Cursor { bytes: self.block.bytes, at: self.at };
        let head = cursor.byte()?;
        let ms = self.block.base.ms.checked_add(cursor.number()?)?;
        let seq = if head & FIRST_OF_MS != 0 { 0 } else { cursor.number()? };
        let part_count = match head & LIKE_TEMPLATE != 0 {
            true => self.template.len() as u64,
            false => cursor.number()?.checked_mul(2)?,
        };
        for _ in 0..part_count {
            cursor.part()?;
        }
        Some((StreamId { ms, seq }, cursor.at))
    }

    fn read(&mut self) -> Option<Entry<'b>> {
        let mut cursor = Cursor { bytes: self.block.bytes, at: self.at };
        let head = cursor.byte()?;
        let ms = self.block.base.ms.checked_add(cursor.number()?)?;
        let seq = if head & FIRST_OF_MS != 0 { 0 } else { cursor.number()? };
        let mut parts = Parts::new();
        if head & LIKE_TEMPLATE != 0 {
            for name in &self.template {
                parts.extend([*name, cursor.part()?]);
            }
        } else {
            for _ in 0..cursor.number()? {
                parts.extend([cursor.part()?, cursor.part()?]);
            }
        }
        let start = std::mem::replace(&mut self.at, cursor.at);
        let begins_node = head & BEGINS_NODE != 0;
        Some(Entry { id: StreamId { ms, seq }, begins_node, parts, start, end: cursor.at })
    }
}

impl<'b> Iterator for Entries<'b> {
    type Item = Option<Entry<'b>>;

    fn next(&mut self) -> Option<Option<Entry<'b>>> {
        if std::mem::take(&mut self.is_malformed) {
            self.at = self.block.bytes.len();
            return Some(None);
        }
        if self.at >= self.block.bytes.len() {
            return None;
        }
        let entry = self.read();
        if entry.is_none() {
            self.at = self.block.bytes.len();
        }
        Some(entry)
    }
}

/// Begins a block with its first entry, whose ID is the base.
pub(crate) fn begin(out: &mut Vec<u8>, id: StreamId, parts: &[&[u8]], begins_node: bool) {
    out.clear();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    put_number(out, parts.len() as u64 / 2);
    parts.iter().step_by(2).for_each(|name| put_part(out, name));
    put_entry(out, true, id, id, parts, begins_node);
    count_entry(out, begins_node);
}

/// Appends an entry, whose ID is above all of the block's. False, and nothing is changed, if the block is full.
pub(crate) fn push(
    block: &mut Vec<u8>,
    base: StreamId,
    id: StreamId,
    parts: &[&[u8]],
    begins_node: bool,
) -> bool {
    let mut more = Vec::new();
    let Some(front) = longer(block, base, (id, parts, begins_node), &mut more) else { return false };
    block[..HEADER_BYTES].copy_from_slice(&front);
    block.extend_from_slice(&more);
    true
}

/// What comes behind a block with an entry more, whose ID is above all of the block's. Returns what the block begins with then; `None`
/// if it is full.
pub(crate) fn longer(
    block: &[u8],
    base: StreamId,
    (id, parts, begins_node): (StreamId, &[&[u8]], bool),
    out: &mut Vec<u8>,
) -> Option<[u8; HEADER_BYTES]> {
    put_entry(out, is_alike(block, parts), id, base, parts, begins_node);
    let mut front: [u8; HEADER_BYTES] = *block.first_chunk()?;
    count_entry(&mut front, begins_node);
    (block.len() + out.len() <= MAX_BYTES).then_some(front)
}

/// Whether an entry has the fields of the block's template.
fn is_alike(block: &[u8], parts: &[&[u8]]) -> bool {
    let mut cursor = Cursor { bytes: block, at: HEADER_BYTES };
    cursor.number() == Some(parts.len() as u64 / 2)
        && parts.iter().step_by(2).all(|name| cursor.part() == Some(*name))
}

fn count_entry(front: &mut [u8], begins_node: bool) {
    add_at(front, 0, 1);
    add_at(front, 2, u16::from(begins_node));
}

fn put_entry(
    out: &mut Vec<u8>,
    is_alike: bool,
    id: StreamId,
    base: StreamId,
    parts: &[&[u8]],
    begins_node: bool,
) {
    let mut head = if begins_node { BEGINS_NODE } else { 0 };
    if is_alike {
        head |= LIKE_TEMPLATE;
    }
    if id.seq == 0 {
        head |= FIRST_OF_MS;
    }
    out.push(head);
    put_number(out, id.ms - base.ms);
    if id.seq != 0 {
        put_number(out, id.seq);
    }
    if is_alike {
        parts.iter().skip(1).step_by(2).for_each(|value| put_part(out, value));
    } else {
        put_number(out, parts.len() as u64 / 2);
        parts.iter().for_each(|part| put_part(out, part));
    }
}

/// Takes an entry out of a block.
pub(crate) fn remove(block: &mut Vec<u8>, entry: &Removed) {
    block.drain(entry.start..entry.end);
    add_at(block, 0, 1_u16.wrapping_neg());
    if entry.begins_node {
        add_at(block, 2, 1_u16.wrapping_neg());
    }
}

/// An entry to be taken out of a block, whose other bytes are not looked at.
pub(crate) struct Removed {
    start: usize,
    end: usize,
    pub begins_node: bool,
}

impl Removed {
    /// Where the entry behind it is once it has gone.
    pub fn start(&self) -> usize {
        self.start
    }
}

impl Entry<'_> {
    pub fn to_remove(&self) -> Removed {
        Removed { start: self.start, end: self.end, begins_node: self.begins_node }
    }
}

/// The first entry of a block begins a node from now on; whether it did not before.
pub(crate) fn hand_node_to_first(block: &mut [u8]) -> bool {
    let Some((_, at)) = Block::new(StreamId::MIN, block).template() else { return false };
    hand_node_to(block, at)
}

/// The same of the entry that begins at a place.
pub(crate) fn hand_node_to(block: &mut [u8], at: usize) -> bool {
    match block.get_mut(at) {
        Some(head) if *head & BEGINS_NODE == 0 => {
            *head |= BEGINS_NODE;
            add_at(block, 2, 1);
            true
        }
        _ => false,
    }
}

/// Keeps the entries from this one on, which begins a node then. How many have gone, how many nodes began among them, and whether the
/// first that is kept did not begin one. `None` if the block is malformed, or has no such entry.
pub(crate) fn keep_from(block: &mut Vec<u8>, base: StreamId, first: StreamId) -> Option<Dropped> {
    let (_, begin) = Block::new(base, block).template()?;
    let (mut dropped, mut end) = (Dropped::default(), None);
    for entry in Block::new(base, block).entries() {
        let entry = entry?;
        if entry.id >= first {
            end = Some(entry.start);
            break;
        }
        dropped.count += 1;
        dropped.node_count += u16::from(entry.begins_node);
    }
    block.drain(begin..end?);
    add_at(block, 0, dropped.count.wrapping_neg());
    add_at(block, 2, dropped.node_count.wrapping_neg());
    dropped.hands_over = hand_node_to(block, begin);
    Some(dropped)
}

/// What has gone from a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dropped {
    pub count: u16,
    pub node_count: u16,
    pub hands_over: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'p>(text: &'p [&'p str]) -> Vec<&'p [u8]> {
        text.iter().map(|part| part.as_bytes()).collect()
    }

    fn listed(base: StreamId, block: &[u8]) -> Vec<(u64, u64, bool, Vec<String>)> {
        let text = |part: &&[u8]| String::from_utf8(part.to_vec()).unwrap();
        let entries = Block::new(base, block).entries();
        entries
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.id.ms, entry.id.seq, entry.begins_node, entry.parts.iter().map(text).collect())
            })
            .collect()
    }

    #[test]
    fn entries_come_back_in_their_order_and_leave() {
        let (base, mut block) = (StreamId::new(1000, 7), Vec::new());
        begin(&mut block, base, &parts(&["a", "1", "b", ""]), true);
        push(&mut block, base, StreamId::new(1000, 8), &parts(&["a", "2", "b", "3"]), false);
        push(&mut block, base, StreamId::new(900_000, 0), &parts(&["c", "4"]), true);
        push(&mut block, base, StreamId::new(900_000, 1), &parts(&[]), false);
        let all = listed(base, &block);
        assert_eq!(all[1], (1000, 8, false, ["a", "2", "b", "3"].map(str::to_owned).to_vec()));
        assert_eq!(all[2], (900_000, 0, true, ["c", "4"].map(str::to_owned).to_vec()));
        assert_eq!(all[3], (900_000, 1, false, Vec::new()));
        assert_eq!((Block::new(base, &block).count(), Block::new(base, &block).node_count()), (4, 2));
        let third = Block::new(base, &block).entries().nth(2).unwrap().unwrap().to_remove();
        remove(&mut block, &third);
        assert_eq!(listed(base, &block), [&all[..2], &all[3..]].concat());
        let dropped = keep_from(&mut block, base, StreamId::new(1000, 8)).unwrap();
        assert_eq!(dropped, Dropped { count: 1, node_count: 1, hands_over: true });
        assert_eq!(listed(base, &block)[0], (1000, 8, true, all[1].3.clone()));
        assert_eq!((Block::new(base, &block).count(), Block::new(base, &block).node_count()), (2, 1));
    }

    /// Whatever is cut off or turned over: the walk ends, and nothing panics.
    #[test]
    fn what_is_malformed_ends_the_walk() {
        let (base, mut block) = (StreamId::new(5, 5), Vec::new());
        begin(&mut block, base, &parts(&["name", "value"]), true);
        push(&mut block, base, StreamId::new(6, 0), &parts(&["other", "value"]), false);
        for end in 0..block.len() {
            let _ = Block::new(base, &block[..end]).entries().count();
            let mut changed = block.clone();
            changed[end] ^= 0xff;
            let _ = Block::new(base, &changed).entries().count();
            let _ = keep_from(&mut changed, base, StreamId::new(6, 0));
        }
        assert!(Block::new(base, &block[..block.len() - 1]).entries().any(|entry| entry.is_none()));
        assert!(Block::new(base, &[]).entries().all(|entry| entry.is_none()));
    }
}

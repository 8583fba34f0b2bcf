//! Payloads of streams that are nearly right: each number, word and count is what it has to be, or, where the input says so, another.

use crate::checks;

/// Decisions, from any bytes; when they are used up all is as it has to be.
struct Choices<'b> {
    bytes: &'b [u8],
}

/// One in so many choices is a wrong one.
const WRONG_OF: u8 = 24;

impl Choices<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn below(&mut self, end: u64) -> u64 {
        u64::from(self.byte().unwrap_or(0)) % end
    }

    /// This number, or one that is near a limit, or small, or near it.
    fn or(&mut self, right: u64) -> u64 {
        if self.byte().unwrap_or(1) % WRONG_OF != 0 {
            return right;
        }
        let kind = self.byte().unwrap_or(0);
        match kind % 4 {
            0 => u64::from(kind) / 4,
            1 => right.wrapping_add(1),
            2 => right.wrapping_sub(1),
            _ => u64::MAX >> (kind / 4),
        }
    }
}

/// A length as dumps have it.
fn put_length(out: &mut Vec<u8>, len: u64) {
    match u32::try_from(len) {
        Ok(len @ 0..=63) => out.push(len as u8),
        Ok(len) => {
            out.push(0x80);
            out.extend_from_slice(&len.to_be_bytes());
        }
        Err(_) => {
            out.push(0x81);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A listpack that is being written.
#[derive(Default)]
struct Listpack {
    bytes: Vec<u8>,
    count: u64,
}

impl Listpack {
    fn end(&mut self, len: usize) {
        assert!(len < 128);
        self.bytes.push(len as u8);
        self.count += 1;
    }

    fn number(&mut self, number: u64) {
        match number {
            0..=127 => {
                self.bytes.push(number as u8);
                self.end(1);
            }
            _ => {
                self.bytes.push(0xf4);
                self.bytes.extend_from_slice(&number.to_le_bytes());
                self.end(9);
            }
        }
    }

    fn word(&mut self, word: &[u8]) {
        self.bytes.push(0x80 | word.len() as u8);
        self.bytes.extend_from_slice(word);
        self.end(1 + word.len());
    }

    fn finish(self, choices: &mut Choices<'_>) -> Vec<u8> {
        let size = choices.or(self.bytes.len() as u64 + 7) as u32;
        let count = choices.or(self.count) as u16;
        [&size.to_le_bytes()[..], &count.to_le_bytes(), &self.bytes, &[0xff]].concat()
    }
}

const NAMES: [&[u8]; 3] = [b"name", b"other", b""];
const SAME_FIELDS: u64 = 2;
const GONE: u64 = 1;

/// A node that begins with the ID, and the ID of its last entry.
fn node(choices: &mut Choices<'_>, first_ms: u64) -> (Vec<u8>, u64, u64) {
    let entry_count = 1 + choices.below(4);
    let gone: Vec<bool> = (0..entry_count).map(|_| choices.below(6) == 5).collect();
    let gone_count = gone.iter().filter(|is_gone| **is_gone).count() as u64;
    let mut words = Listpack::default();
    words.number(choices.or(entry_count - gone_count));
    words.number(choices.or(gone_count));
    let names = 1 + choices.below(2);
    words.number(choices.or(names));
    (0..names).for_each(|index| words.word(NAMES[index as usize]));
    words.number(choices.or(0));
    for (index, is_gone) in gone.iter().enumerate() {
        let is_alike = choices.below(3) < 2;
        words.number(choices.or(u64::from(*is_gone) * GONE + u64::from(is_alike) * SAME_FIELDS));
        words.number(choices.or(index as u64));
        words.number(choices.or(0));
        let pair_count = if is_alike { names } else { choices.below(3) };
        if !is_alike {
            words.number(choices.or(pair_count));
        }
        for pair in 0..pair_count {
            if !is_alike {
                words.word(NAMES[pair as usize]);
            }
            words.number(choices.or(pair));
        }
        words.number(choices.or(if is_alike { pair_count + 3 } else { 2 * pair_count + 4 }));
    }
    let mut out = Vec::new();
    put_string(&mut out, &id(first_ms, 0));
    put_string(&mut out, &words.finish(choices));
    (out, first_ms + entry_count - 1, entry_count - gone_count)
}

fn id(ms: u64, seq: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ms.to_be_bytes());
    bytes[8..].copy_from_slice(&seq.to_be_bytes());
    bytes
}

/// The body of a payload: its type, and its value.
pub fn crafted(bytes: &[u8]) -> Vec<u8> {
    let choices = &mut Choices { bytes };
    let revision = [15, 19, 21][choices.below(3) as usize];
    let mut out = vec![revision];
    let node_count = choices.below(4);
    put_length(&mut out, choices.or(node_count));
    let (mut last_ms, mut live_count) = (0, 0);
    for _ in 0..node_count {
        let (bytes, last, live) = node(choices, last_ms + 1);
        out.extend_from_slice(&bytes);
        (last_ms, live_count) = (last, live_count + live);
    }
    let mut numbers = vec![live_count, last_ms, 0];
    if revision > 15 {
        numbers.extend([u64::from(live_count > 0), 0, 0, 0, live_count]);
    }
    numbers.into_iter().for_each(|number| put_length(&mut out, choices.or(number)));
    let group_count = choices.below(3);
    put_length(&mut out, choices.or(group_count));
    for number in 0..group_count {
        group(choices, &mut out, revision, number);
    }
    out
}

fn group(choices: &mut Choices<'_>, out: &mut Vec<u8>, revision: u8, number: u64) {
    put_string(out, &[b'g', choices.or(number) as u8]);
    put_length(out, choices.or(9));
    put_length(out, choices.or(0));
    if revision > 15 {
        put_length(out, choices.or(1));
    }
    let consumer_count = choices.below(3);
    let owned: Vec<u64> = (0..consumer_count).map(|_| choices.below(3)).collect();
    let pending_count: u64 = owned.iter().sum();
    put_length(out, choices.or(pending_count));
    for ms in 1..=pending_count {
        out.extend_from_slice(&id(choices.or(ms), 0));
        out.extend_from_slice(&choices.or(7).to_le_bytes());
        put_length(out, choices.or(1));
    }
    put_length(out, choices.or(consumer_count));
    let mut ms = 0;
    for (consumer, count) in owned.into_iter().enumerate() {
        put_string(out, &[b'c', choices.or(consumer as u64) as u8]);
        out.extend_from_slice(&choices.or(5).to_le_bytes());
        if revision == 21 {
            out.extend_from_slice(&choices.or(6).to_le_bytes());
        }
        put_length(out, choices.or(count));
        for _ in 0..count {
            ms += 1;
            out.extend_from_slice(&id(choices.or(ms), 0));
        }
    }
}

pub fn check(bytes: &[u8]) {
    checks::payload(&crafted(bytes));
}

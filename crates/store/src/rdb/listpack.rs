//! Listpacks, in which Redis from 7 on keeps small collections and the nodes of lists, after `listpack.c`.
//!
//! ```text
//! total:4 LE  count:2 LE  { encoding  [bytes]  back }  ff
//!
//! 0VVVVVVV                    the number V              11110001 int16 LE      11110011 int32 LE
//! 10LLLLLL                    string of L bytes         11110010 int24 LE      11110100 int64 LE
//! 110VVVVV VVVVVVVV           number of 13 bits         11110000 length:4 LE   string
//! 1110LLLL LLLLLLLL           string of L bytes
//! ```
//!
//! `back` is the length of what precedes it of the entry, in groups of 7 bits, to be read from the end: its first byte
//! alone has no top bit. A count of 65535 stands for any.

use super::blob::Blob;
use super::encode::parse_canonical;
use super::error::ReadErrorKind;
use super::source::{append_decimal, Source};
use super::ziplist::int24;
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

const END: u8 = 0xff;
const UNKNOWN_COUNT: u16 = u16::MAX;
pub(super) const HEADER_BYTES: usize = 4 + 2;
const MAX_BACK_BYTES: usize = 5;
/// Bytes of one without entries.
pub(crate) const EMPTY_BYTES: usize = HEADER_BYTES + 1;

/// Longest text that is tried as an integer: "-9223372036854775808".
const MAX_INTEGER_TEXT_BYTES: usize = 20;

/// A listpack that is being read.
pub(super) struct Listpack {
    blob: Blob,
    announced_count: u16,
    entry_count: u64,
}

impl Listpack {
    pub fn begin<R: Read>(source: &mut Source<R>) -> Result<Listpack> {
        let mut blob = Blob::begin(source, "listpack")?;
        let total_bytes = u32::from_le_bytes(blob.array(source)?);
        if u64::from(total_bytes) != blob.length_bytes() {
            return Err(blob.error("its length is not what it says"));
        }
        let announced_count = u16::from_le_bytes(blob.array(source)?);
        Ok(Listpack { blob, announced_count, entry_count: 0 })
    }

    pub fn length_bytes(&self) -> u64 {
        self.blob.length_bytes()
    }

    /// Number of entries, if it says.
    pub fn count(&self) -> Option<u64> {
        (self.announced_count != UNKNOWN_COUNT).then_some(u64::from(self.announced_count))
    }

    /// Appends the next entry to `out`; false after the last.
    pub fn next<R: Read>(&mut self, source: &mut Source<R>, out: &mut Vec<u8>) -> Result<bool> {
        let start_bytes = self.blob.offset_bytes();
        let encoding = self.blob.byte(source)?;
        if encoding == END {
            return self.end(source).map(|()| false);
        }
        self.entry(source, encoding, out)?;
        let (back, count) = back(self.blob.offset_bytes() - start_bytes);
        for expected in &back[..count] {
            if self.blob.byte(source)? != *expected {
                return Err(self.blob.error("an entry is not as long as it says"));
            }
        }
        self.entry_count += 1;
        Ok(true)
    }

    fn entry<R: Read>(&mut self, source: &mut Source<R>, encoding: u8, out: &mut Vec<u8>) -> Result<()> {
        let blob = &mut self.blob;
        let length_bytes = match encoding {
            0x80..=0xbf => u64::from(encoding & 0x3f),
            0xe0..=0xef => u64::from(encoding & 0x0f) << 8 | u64::from(blob.byte(source)?),
            0xf0 => u64::from(u32::from_le_bytes(blob.array(source)?)),
            _ => {
                let value = self.integer(source, encoding)?;
                append_decimal(out, value);
                return Ok(());
            }
        };
        blob.append_to(source, length_bytes, out)
    }

    fn integer<R: Read>(&mut self, source: &mut Source<R>, encoding: u8) -> Result<i64> {
        let blob = &mut self.blob;
        Ok(match encoding {
            0..=0x7f => i64::from(encoding),
            0xc0..=0xdf => {
                let bits = i64::from(encoding & 0x1f) << 8 | i64::from(blob.byte(source)?);
                // The top one of the 13 is the sign.
                bits - ((bits & 1 << 12) << 1)
            }
            0xf1 => i64::from(i16::from_le_bytes(blob.array(source)?)),
            0xf2 => int24(blob.array(source)?),
            0xf3 => i64::from(i32::from_le_bytes(blob.array(source)?)),
            0xf4 => i64::from_le_bytes(blob.array(source)?),
            _ => return Err(blob.error("an entry has an unknown encoding")),
        })
    }

    fn end<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        self.blob.finish(source)?;
        if self.count().is_some_and(|count| count != self.entry_count) {
            return Err(self.blob.error("it has not as many entries as it says"));
        }
        Ok(())
    }
}

/// What follows an entry of so many bytes, and how many bytes of it. The steps are Redis's: one early at two.
fn back(length_bytes: u64) -> ([u8; MAX_BACK_BYTES], usize) {
    let count = match length_bytes {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => MAX_BACK_BYTES,
    };
    let mut bytes = [0; MAX_BACK_BYTES];
    for (index, byte) in bytes[..count].iter_mut().enumerate() {
        let group = (length_bytes >> (7 * (count - 1 - index))) as u8 & 0x7f;
        *byte = if index == 0 { group } else { group | 0x80 };
    }
    (bytes, count)
}

/// Bytes that an entry takes, as [`ListpackBuilder::push`] encodes it.
pub(crate) fn entry_bytes(entry: &[u8]) -> usize {
    let encoded_bytes = match as_integer(entry) {
        Some(value) => integer_bytes(value),
        None => match entry.len() {
            length @ 0..=0x3f => 1 + length,
            length @ 0x40..=0xfff => 2 + length,
            length => 5 + length,
        },
    };
    encoded_bytes + back(encoded_bytes as u64).1
}

/// The same of a number.
pub(crate) fn number_bytes(value: i64) -> usize {
    let encoded_bytes = integer_bytes(value);
    encoded_bytes + back(encoded_bytes as u64).1
}

fn as_integer(entry: &[u8]) -> Option<i64> {
    match entry.len() {
        ..=MAX_INTEGER_TEXT_BYTES => parse_canonical(entry),
        _ => None,
    }
}

fn integer_bytes(value: i64) -> usize {
    match value {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=8_388_607 => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    }
}

/// A listpack that is being built.
pub(super) struct ListpackBuilder {
    /// The header, and the entries so far.
    bytes: Vec<u8>,
    entry_count: u64,
}

impl ListpackBuilder {
    pub fn new() -> ListpackBuilder {
        ListpackBuilder { bytes: vec![0; HEADER_BYTES], entry_count: 0 }
    }

    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// Appends an entry, as a number if it is the canonical text of one.
    pub fn push(&mut self, entry: &[u8]) {
        if let Some(value) = as_integer(entry) {
            return self.push_integer(value);
        }
        let start = self.bytes.len();
        match entry.len() {
            length @ 0..=0x3f => self.bytes.push(0x80 | length as u8),
            length @ 0x40..=0xfff => self.bytes.extend_from_slice(&(0xe000 | length as u16).to_be_bytes()),
            length => {
                self.bytes.push(0xf0);
                // No string of the format is longer than 512 MB.
                self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(entry);
        self.end_entry(start);
    }

    pub fn push_integer(&mut self, value: i64) {
        let start = self.bytes.len();
        match integer_bytes(value) {
            1 => self.bytes.push(value as u8),
            2 => self.bytes.extend_from_slice(&(0xc000 | value as u16 & 0x1fff).to_be_bytes()),
            count => {
                self.bytes.push(match count {
                    3 => 0xf1,
                    4 => 0xf2,
                    5 => 0xf3,
                    _ => 0xf4,
                });
                self.bytes.extend_from_slice(&value.to_le_bytes()[..count - 1]);
            }
        }
        self.end_entry(start);
    }

    /// Appends the entries of another.
    pub fn append(&mut self, other: &ListpackBuilder) {
        self.bytes.extend_from_slice(&other.bytes[HEADER_BYTES..]);
        self.entry_count += other.entry_count;
    }

    fn end_entry(&mut self, start: usize) {
        let (back, count) = back((self.bytes.len() - start) as u64);
        self.bytes.extend_from_slice(&back[..count]);
        self.entry_count += 1;
    }

    /// Gives the whole to `out`, and begins the next.
    pub fn take<R>(&mut self, out: impl FnOnce(&[u8]) -> R) -> R {
        self.bytes.push(END);
        // The builder is given up before it grows so long.
        let total_bytes = self.bytes.len() as u32;
        let count = u16::try_from(self.entry_count).unwrap_or(UNKNOWN_COUNT);
        self.bytes[..4].copy_from_slice(&total_bytes.to_le_bytes());
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        let result = out(&self.bytes);
        self.bytes.truncate(HEADER_BYTES);
        self.entry_count = 0;
        result
    }
}

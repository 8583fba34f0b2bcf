//! Ziplists, in which Redis before 7 keeps small lists, hashes and sorted sets, after `ziplist.c`.
//!
//! ```text
//! total:4 LE  tail:4 LE  count:2 LE  { previous  encoding  [bytes] }  ff
//!
//! previous   length of the entry before: 1 byte below 254, or 254 and 4 bytes LE
//! 00LLLLLL                    string of L bytes         11000000 int16 LE      11110000 int24 LE
//! 01LLLLLL LLLLLLLL           string of L bytes         11010000 int32 LE      11111110 int8
//! 10...... length:4 BE        string                    11100000 int64 LE      1111VVVV the number V - 1, V from 1 to 13
//! ```
//!
//! `tail` is where the last entry begins; a count of 65535 stands for any.

use super::blob::Blob;
use super::error::ReadErrorKind;
use super::source::{append_decimal, Source};
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

const END: u8 = 0xff;
const LONG_PREVIOUS: u8 = 0xfe;
const UNKNOWN_COUNT: u16 = u16::MAX;

/// A ziplist that is being read.
pub(super) struct Ziplist {
    blob: Blob,
    tail_bytes: u64,
    announced_count: u16,
    entry_count: u64,
    /// Where the entry before begins.
    previous_start_bytes: u64,
    previous_length_bytes: u64,
}

impl Ziplist {
    pub fn begin<R: Read>(source: &mut Source<R>) -> Result<Ziplist> {
        let mut blob = Blob::begin(source, "ziplist")?;
        let total_bytes = u32::from_le_bytes(blob.array(source)?);
        if u64::from(total_bytes) != blob.length_bytes() {
            return Err(blob.error("its length is not what it says"));
        }
        let tail_bytes = u64::from(u32::from_le_bytes(blob.array(source)?));
        let announced_count = u16::from_le_bytes(blob.array(source)?);
        let previous_start_bytes = blob.offset_bytes();
        Ok(Ziplist {
            blob,
            tail_bytes,
            announced_count,
            entry_count: 0,
            previous_start_bytes,
            previous_length_bytes: 0,
        })
    }

    /// Number of entries, if it says.
    pub fn count(&self) -> Option<u64> {
        (self.announced_count != UNKNOWN_COUNT).then_some(u64::from(self.announced_count))
    }

    /// Appends the next entry to `out`; false after the last.
    pub fn next<R: Read>(&mut self, source: &mut Source<R>, out: &mut Vec<u8>) -> Result<bool> {
        let start_bytes = self.blob.offset_bytes();
        let first = self.blob.byte(source)?;
        if first == END {
            return self.end(source).map(|()| false);
        }
        let previous_length_bytes = match first {
            LONG_PREVIOUS => u64::from(u32::from_le_bytes(self.blob.array(source)?)),
            _ => u64::from(first),
        };
        if previous_length_bytes != self.previous_length_bytes {
            return Err(self.blob.error("an entry is not as long as the next one says"));
        }
        let encoding = self.blob.byte(source)?;
        self.entry(source, encoding, out)?;
        self.entry_count += 1;
        self.previous_start_bytes = start_bytes;
        self.previous_length_bytes = self.blob.offset_bytes() - start_bytes;
        Ok(true)
    }

    fn entry<R: Read>(&mut self, source: &mut Source<R>, encoding: u8, out: &mut Vec<u8>) -> Result<()> {
        let blob = &mut self.blob;
        let low = u64::from(encoding & 0x3f);
        let length_bytes = match encoding >> 6 {
            0 => low,
            1 => low << 8 | u64::from(blob.byte(source)?),
            2 => u64::from(u32::from_be_bytes(blob.array(source)?)),
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
            0xc0 => i64::from(i16::from_le_bytes(blob.array(source)?)),
            0xd0 => i64::from(i32::from_le_bytes(blob.array(source)?)),
            0xe0 => i64::from_le_bytes(blob.array(source)?),
            0xf0 => int24(blob.array(source)?),
            0xf1..=0xfd => i64::from(encoding & 0x0f) - 1,
            0xfe => i64::from(i8::from_le_bytes(blob.array(source)?)),
            _ => return Err(blob.error("an entry has an unknown encoding")),
        })
    }

    fn end<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        self.blob.finish(source)?;
        if self.entry_count > 0 && self.tail_bytes != self.previous_start_bytes {
            return Err(self.blob.error("its last entry is not where it says"));
        }
        if self.count().is_some_and(|count| count != self.entry_count) {
            return Err(self.blob.error("it has not as many entries as it says"));
        }
        Ok(())
    }
}

/// A number of three bytes, the least first.
pub(super) fn int24([a, b, c]: [u8; 3]) -> i64 {
    i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
}

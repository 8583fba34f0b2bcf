//! Intsets, in which Redis keeps small sets of integers, after `intset.c`.
//!
//! ```text
//! width:4 LE  count:4 LE  { number:width LE }      width 2, 4 or 8, numbers ascending
//! ```

use super::blob::Blob;
use super::error::ReadErrorKind;
use super::source::{append_decimal, Source};
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

const HEADER_BYTES: u64 = 4 + 4;

/// An intset that is being read.
pub(super) struct Intset {
    blob: Blob,
    width_bytes: u32,
    count: u32,
    last: Option<i64>,
}

impl Intset {
    pub fn begin<R: Read>(source: &mut Source<R>) -> Result<Intset> {
        let mut blob = Blob::begin(source, "intset")?;
        let width_bytes = u32::from_le_bytes(blob.array(source)?);
        if ![2, 4, 8].contains(&width_bytes) {
            return Err(blob.error("its numbers have an unknown width"));
        }
        let count = u32::from_le_bytes(blob.array(source)?);
        if HEADER_BYTES + u64::from(width_bytes) * u64::from(count) != blob.length_bytes() {
            return Err(blob.error("its length is not what it says"));
        }
        if count == 0 {
            return Err(blob.error("it is empty"));
        }
        Ok(Intset { blob, width_bytes, count, last: None })
    }

    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Appends the next number to `out`; false after the last.
    pub fn next<R: Read>(&mut self, source: &mut Source<R>, out: &mut Vec<u8>) -> Result<bool> {
        let blob = &mut self.blob;
        if blob.left_bytes() == 0 {
            return blob.finish(source).map(|()| false);
        }
        let value = match self.width_bytes {
            2 => i64::from(i16::from_le_bytes(blob.array(source)?)),
            4 => i64::from(i32::from_le_bytes(blob.array(source)?)),
            _ => i64::from_le_bytes(blob.array(source)?),
        };
        if self.last.is_some_and(|last| last >= value) {
            return Err(blob.error("its numbers are not in order"));
        }
        self.last = Some(value);
        append_decimal(out, value);
        Ok(true)
    }
}

/// The intset of ascending numbers.
pub(super) fn intset_of(numbers: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| numbers.iter().all(|number| *number << (64 - bits) >> (64 - bits) == *number);
    let width_bytes = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize + width_bytes * numbers.len());
    bytes.extend_from_slice(&(width_bytes as u32).to_le_bytes());
    bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()[..width_bytes]));
    bytes
}

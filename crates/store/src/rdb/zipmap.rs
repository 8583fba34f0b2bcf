//! Zipmaps, in which Redis before 2.6 keeps small hashes, after `zipmap.c`.
//!
//! ```text
//! count:1  { length field  length free:1 value unused:free }  ff
//! ```
//!
//! A length is 1 byte below 254, or 254 and 4 bytes LE. A count of 254 or more stands for any.

use super::blob::Blob;
use super::error::ReadErrorKind;
use super::source::Source;
use std::io::Read;

type Result<T> = std::result::Result<T, ReadErrorKind>;

const END: u8 = 0xff;
const LONG_LENGTH: u8 = 0xfe;
const UNKNOWN_COUNT: u8 = 0xfe;

/// A zipmap that is being read.
pub(super) struct Zipmap {
    blob: Blob,
    announced_count: u8,
    pair_count: u64,
    /// The next string is a value.
    at_value: bool,
}

impl Zipmap {
    pub fn begin<R: Read>(source: &mut Source<R>) -> Result<Zipmap> {
        let mut blob = Blob::begin(source, "zipmap")?;
        let announced_count = blob.byte(source)?;
        Ok(Zipmap { blob, announced_count, pair_count: 0, at_value: false })
    }

    /// Number of fields and values, if it says.
    pub fn count(&self) -> Option<u64> {
        (self.announced_count < UNKNOWN_COUNT).then_some(2 * u64::from(self.announced_count))
    }

    /// Appends the next field or value to `out`; false after the last.
    pub fn next<R: Read>(&mut self, source: &mut Source<R>, out: &mut Vec<u8>) -> Result<bool> {
        let blob = &mut self.blob;
        let length_bytes = match blob.byte(source)? {
            END if !self.at_value => return self.end(source).map(|()| false),
            END => return Err(blob.error("a field has no value")),
            LONG_LENGTH => u64::from(u32::from_le_bytes(blob.array(source)?)),
            length => u64::from(length),
        };
        if self.at_value {
            let free_bytes = u64::from(blob.byte(source)?);
            blob.append_to(source, length_bytes, out)?;
            blob.skip(source, free_bytes)?;
            self.pair_count += 1;
        } else {
            blob.append_to(source, length_bytes, out)?;
        }
        self.at_value = !self.at_value;
        Ok(true)
    }

    fn end<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        self.blob.finish(source)?;
        if self.count().is_some_and(|count| count != 2 * self.pair_count) {
            return Err(self.blob.error("it has not as many entries as it says"));
        }
        Ok(())
    }
}

//! Buffered input that counts, checksums and decodes lengths and strings.

use super::error::ReadErrorKind;
use super::expand::{decompress, Expander};
use super::format::{string_encoding, RdbString, CRC64, MAX_STRING_BYTES};
use super::lzf::MAX_EXPANSION;
use crc::{Digest, Table};
use std::io::{self, Read, Write};

/// Bytes of a long string that are taken from the input at a time, so that what is compressed does not grow beyond 2 MB.
const PIECE_BYTES: u64 = 16 << 10;

type Result<T> = std::result::Result<T, ReadErrorKind>;

/// A length field: a count, or the tag of a specially encoded string.
pub(super) enum Length {
    Plain(u64),
    Encoded(u8),
}

/// What precedes the bytes of a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StringHead {
    Int(i64),
    Plain {
        length_bytes: u64,
    },
    /// An LZF stream of `packed_bytes` follows.
    Packed {
        packed_bytes: u64,
        length_bytes: u64,
    },
}

impl StringHead {
    /// Bytes of the string, if it is not an integer.
    pub fn length_bytes(&self) -> Option<u64> {
        match *self {
            StringHead::Int(_) => None,
            StringHead::Plain { length_bytes } | StringHead::Packed { length_bytes, .. } => {
                Some(length_bytes)
            }
        }
    }
}

/// The bytes of a string that come in pieces.
pub(super) enum StringBody {
    Plain {
        left_bytes: u64,
    },
    /// So many are still to be taken; `waiting` has been taken and not been expanded.
    Packed {
        left_bytes: u64,
        waiting: Vec<u8>,
        expander: Expander,
    },
}

impl StringBody {
    /// Of a string; an integer has none.
    ///
    /// # Errors
    /// [`ReadErrorKind::BadLzf`]: so few bytes do not stand for so many.
    pub fn new(head: StringHead) -> Result<StringBody> {
        Ok(match head {
            StringHead::Int(_) => StringBody::Plain { left_bytes: 0 },
            StringHead::Plain { length_bytes } => StringBody::Plain { left_bytes: length_bytes },
            StringHead::Packed { packed_bytes, length_bytes } => {
                if length_bytes > packed_bytes.saturating_mul(MAX_EXPANSION as u64) {
                    return Err(ReadErrorKind::BadLzf);
                }
                let expander = Expander::new(length_bytes);
                StringBody::Packed { left_bytes: packed_bytes, waiting: Vec::new(), expander }
            }
        })
    }

    /// Bytes of the input that are still to be taken.
    pub fn left_bytes(&self) -> u64 {
        match self {
            StringBody::Plain { left_bytes } | StringBody::Packed { left_bytes, .. } => *left_bytes,
        }
    }

    /// Takes the next bytes of the input, no more than are left, and gives `out` what they stand for.
    ///
    /// # Errors
    /// [`ReadErrorKind::BadLzf`].
    pub fn feed(&mut self, piece: &[u8], mut out: impl FnMut(&[u8])) -> Result<()> {
        match self {
            StringBody::Plain { left_bytes } => {
                *left_bytes -= piece.len() as u64;
                out(piece);
            }
            StringBody::Packed { left_bytes, waiting, expander } => {
                *left_bytes -= piece.len() as u64;
                waiting.extend_from_slice(piece);
                let (is_last, mut done) = (*left_bytes == 0, 0);
                loop {
                    let fed = expander.feed(&waiting[done..], is_last);
                    let (taken, given) = fed.map_err(|_| ReadErrorKind::BadLzf)?;
                    out(given);
                    done += taken;
                    if taken == 0 {
                        break;
                    }
                }
                waiting.drain(..done);
                if is_last && expander.left_bytes() > 0 {
                    return Err(ReadErrorKind::BadLzf);
                }
            }
        }
        Ok(())
    }
}

/// Memory grows with what was read, never with what a length field says.
pub(super) struct Source<R> {
    inner: R,
    buffer: Box<[u8]>,
    /// `buffer[next..filled]` has not been handed out.
    next: usize,
    filled: usize,
    /// `buffer[checksummed..next]` is not yet part of `digest`.
    checksummed: usize,
    digest: Option<Digest<'static, u64, Table<16>>>,
    /// Offset in the input of `buffer[0]`.
    buffer_offset_bytes: u64,
    /// What is being read, for the error of a truncated file.
    pub part: &'static str,
}

impl<R: Read> Source<R> {
    pub fn new(inner: R, buffer_bytes: usize, verify_checksum: bool) -> Self {
        Source {
            inner,
            buffer: vec![0; buffer_bytes].into_boxed_slice(),
            next: 0,
            filled: 0,
            checksummed: 0,
            digest: verify_checksum.then(|| CRC64.digest()),
            buffer_offset_bytes: 0,
            part: "the header",
        }
    }

    pub fn offset_bytes(&self) -> u64 {
        self.buffer_offset_bytes + self.next as u64
    }

    /// Checksum of all bytes handed out, if it is computed at all.
    pub fn checksum(&mut self) -> Option<u64> {
        self.update_digest();
        self.digest.clone().map(|digest| digest.finalize())
    }

    fn update_digest(&mut self) {
        if let Some(digest) = &mut self.digest {
            digest.update(&self.buffer[self.checksummed..self.next]);
        }
        self.checksummed = self.next;
    }

    /// The unread bytes of the buffer, refilled if there are none; empty at the end of the input.
    fn available(&mut self) -> Result<&[u8]> {
        if self.next == self.filled {
            self.update_digest();
            self.buffer_offset_bytes += self.filled as u64;
            (self.next, self.filled, self.checksummed) = (0, 0, 0);
            self.filled = loop {
                match self.inner.read(&mut self.buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    other => break other.map_err(ReadErrorKind::Io)?,
                }
            };
        }
        Ok(&self.buffer[self.next..self.filled])
    }

    pub fn at_end(&mut self) -> Result<bool> {
        Ok(self.available()?.is_empty())
    }

    /// Hands `count` bytes out, in as many pieces as the buffer needs.
    fn consume(&mut self, count: u64, mut each: impl FnMut(&[u8])) -> Result<()> {
        let part = self.part;
        let mut left = count;
        while left > 0 {
            let available = self.available()?;
            if available.is_empty() {
                return Err(ReadErrorKind::Truncated(part));
            }
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(available.len());
            each(&available[..step]);
            self.next += step;
            left -= step as u64;
        }
        Ok(())
    }

    pub fn skip(&mut self, count: u64) -> Result<()> {
        self.consume(count, |_| ())
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads as many bytes as `bytes` has.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut at = 0;
        self.consume(bytes.len() as u64, |piece| {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        })
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let limit = usize::try_from(count).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        self.consume(count, |piece| {
            if bytes.capacity() - bytes.len() < piece.len() {
                // Doubling, but not past the length that was promised.
                let wanted = (2 * bytes.len()).max(bytes.len() + piece.len()).min(limit);
                bytes.reserve_exact(wanted - bytes.len());
            }
            bytes.extend_from_slice(piece);
        })?;
        Ok(bytes)
    }

    pub fn length(&mut self) -> Result<Length> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(u64::from(low)),
            (1, _) => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            (_, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Encoded(low),
            _ => return Err(ReadErrorKind::BadLength(first)),
        })
    }

    /// A length that must be a plain number.
    pub fn count(&mut self) -> Result<u64> {
        match self.length()? {
            Length::Plain(count) => Ok(count),
            Length::Encoded(tag) => Err(ReadErrorKind::BadLength(tag | 0xc0)),
        }
    }

    pub fn string(&mut self) -> Result<RdbString> {
        let head = self.string_head()?;
        self.string_after(head)
    }

    /// What precedes the bytes of a string.
    pub fn string_head(&mut self) -> Result<StringHead> {
        Ok(match self.length()? {
            Length::Plain(length_bytes) => StringHead::Plain { length_bytes: checked_length(length_bytes)? },
            Length::Encoded(string_encoding::LZF) => StringHead::Packed {
                packed_bytes: checked_length(self.count()?)?,
                length_bytes: checked_length(self.count()?)?,
            },
            Length::Encoded(tag) => StringHead::Int(self.integer(tag)?),
        })
    }

    /// The string, of which this has been read.
    pub fn string_after(&mut self, head: StringHead) -> Result<RdbString> {
        Ok(match head {
            StringHead::Int(value) => RdbString::Int(value),
            StringHead::Plain { length_bytes } => RdbString::Bytes(self.bytes(length_bytes)?),
            StringHead::Packed { packed_bytes, length_bytes } => {
                let packed = self.bytes(packed_bytes)?;
                let length = usize::try_from(length_bytes).map_err(|_| ReadErrorKind::BadLzf)?;
                RdbString::Bytes(decompress(&packed, length).ok_or(ReadErrorKind::BadLzf)?)
            }
        })
    }

    /// Appends a string to `out`; an integer as its decimal text. `out` grows with what is read.
    pub fn string_into(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let head = self.string_head()?;
        if let StringHead::Int(value) = head {
            append_decimal(out, value);
            return Ok(());
        }
        let mut body = StringBody::new(head)?;
        while body.left_bytes() > 0 {
            self.feed(&mut body, |piece| out.extend_from_slice(piece))?;
        }
        Ok(())
    }

    /// Takes the next piece of `body` and gives `out` what it stands for, up to 2 MB.
    pub fn feed(&mut self, body: &mut StringBody, out: impl FnMut(&[u8])) -> Result<()> {
        let piece = self.piece(body.left_bytes().min(PIECE_BYTES))?;
        body.feed(piece, out)
    }

    /// The next bytes of the input, up to so many: as many as are at hand, at least one.
    pub fn piece(&mut self, most_bytes: u64) -> Result<&[u8]> {
        let part = self.part;
        let step = usize::try_from(most_bytes).unwrap_or(usize::MAX).min(self.available()?.len());
        if step == 0 {
            return Err(ReadErrorKind::Truncated(part));
        }
        self.next += step;
        Ok(&self.buffer[self.next - step..self.next])
    }

    fn integer(&mut self, tag: u8) -> Result<i64> {
        Ok(match tag {
            string_encoding::INT8 => i64::from(i8::from_le_bytes(self.array()?)),
            string_encoding::INT16 => i64::from(i16::from_le_bytes(self.array()?)),
            string_encoding::INT32 => i64::from(i32::from_le_bytes(self.array()?)),
            _ => return Err(ReadErrorKind::BadStringEncoding(tag)),
        })
    }

    /// Passes over a string, of any length.
    pub fn skip_string(&mut self) -> Result<()> {
        match self.length()? {
            Length::Plain(length_bytes) => self.skip(length_bytes),
            Length::Encoded(string_encoding::LZF) => {
                let packed_bytes = self.count()?;
                self.count()?;
                self.skip(packed_bytes)
            }
            Length::Encoded(tag) => self.integer(tag).map(drop),
        }
    }
}

/// Appends the decimal text of a number.
pub(super) fn append_decimal(out: &mut Vec<u8>, value: i64) {
    // Nothing fails in writing to a vector.
    let _ = write!(out, "{value}");
}

fn checked_length(length_bytes: u64) -> Result<u64> {
    if length_bytes > MAX_STRING_BYTES {
        return Err(ReadErrorKind::StringTooLong { length_bytes });
    }
    Ok(length_bytes)
}

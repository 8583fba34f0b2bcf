//! The payloads of `DUMP` and `RESTORE`: `type:1 value version:2 LE crc64:8 LE`, as in `cluster.c` of Redis 7.0.

use super::elements::Elements;
use super::encode::{put_length, put_string_head, Body};
use super::error::{PayloadError, ReadErrorKind, WriteError};
use super::format::{
    is_read_version, RdbString, SmallLimits, StringRef, WriteVersion, CRC64, TYPE_STRING, WRITE_VERSION,
};
use super::gather::{CollectionWriter, Head};
use super::kind::{Announced, CollectionKind, Element, RdbValue};
use super::lzf::Compressor;
use super::output::Output;
use super::skip::OtherType;
use super::source::{Source, StringBody, StringHead};
use crc::{Digest, Table};
use std::io::Write;

const FOOTER_BYTES: usize = 2 + 8;
const CHECKSUM_BYTES: usize = 8;
const BUFFER_BYTES: usize = 4096;

/// The bytes that `DUMP` returns for a string. Without a compressor it is not compressed (`rdbcompression no`).
pub fn dump_string(string: StringRef<'_>, compressor: Option<&mut Compressor>) -> Vec<u8> {
    let mut out = vec![TYPE_STRING];
    let body = put_string_head(&mut out, string, compressor);
    let body_bytes: &[u8] = match &body {
        Body::Complete => &[],
        Body::Verbatim(bytes) => bytes,
        Body::Packed(bytes) => bytes,
    };
    out.reserve_exact(body_bytes.len() + FOOTER_BYTES);
    out.extend_from_slice(body_bytes);
    put_footer(&mut out);
    out
}

/// Ends a payload.
pub(super) fn put_footer(out: &mut Vec<u8>) {
    out.extend_from_slice(&(WRITE_VERSION as u16).to_le_bytes());
    let checksum = CRC64.checksum(out);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The bytes that `DUMP` returns for a collection, which comes element by element.
pub struct PayloadWriter<W> {
    output: Output<W>,
    collection: CollectionWriter,
    version: WriteVersion,
    is_complete: bool,
}

impl<W: Write> PayloadWriter<W> {
    /// Of a collection, whose elements come in [`PayloadWriter::element`], as many as are announced.
    ///
    /// # Errors
    /// It has no elements; or [`WriteError::FieldDeadlines`]: the version has no form for it.
    pub fn begin(
        out: W,
        announced: Announced,
        compress: bool,
        version: WriteVersion,
        limits: SmallLimits,
    ) -> Result<PayloadWriter<W>, WriteError> {
        let mut output = Output::new(out, compress, true);
        let (head, has_deadlines) = (Head::default(), version.has_deadlines());
        let collection = CollectionWriter::begin(&mut output, announced, head, limits, has_deadlines)?;
        Ok(PayloadWriter { output, collection, version, is_complete: false })
    }

    /// The next element. After an error the payload is to be given up.
    ///
    /// # Errors
    /// More come than were announced, or others; or they cannot be written.
    pub fn element(&mut self, element: Element<'_>) -> Result<(), WriteError> {
        self.is_complete = self.collection.element(&mut self.output, element)?;
        Ok(())
    }

    /// After the last element: what the payload has been written to.
    ///
    /// # Errors
    /// Some did not come, or they cannot be written.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if !self.is_complete {
            return Err(self.collection.too_few());
        }
        self.output.put_bytes(&(self.version.number() as u16).to_le_bytes())?;
        self.output.finish()
    }
}

impl<W: Write> std::fmt::Debug for PayloadWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PayloadWriter({:?} bytes)", self.output.written_bytes())
    }
}

/// What is in a payload.
#[derive(Debug)]
pub enum Payload<'p> {
    String(RdbString),
    Collection(Box<PayloadElements<'p>>),
}

/// The elements of a collection in a payload, one after the other.
pub struct PayloadElements<'p> {
    source: Source<&'p [u8]>,
    elements: Box<Elements>,
}

impl PayloadElements<'_> {
    pub fn kind(&self) -> CollectionKind {
        self.elements.kind()
    }

    /// Whether they lie in a listpack or the like, which Redis takes over as it is: then a score may be the negative zero.
    pub fn is_packed(&self) -> bool {
        self.elements.is_packed()
    }

    /// How many elements there are, if the payload says so at the beginning; damage may make it wrong.
    pub fn count_hint(&self) -> Option<u64> {
        self.elements.count_hint()
    }

    /// The next element; `None` after the last. Whether it has come before is for the caller to see: then the payload is
    /// [`PayloadError::BadData`].
    ///
    /// # Errors
    /// [`PayloadError::BadData`].
    pub fn element(&mut self) -> Result<Option<Element<'_>>, PayloadError> {
        let has_one = self.elements.advance(&mut self.source).map_err(bad_data)?;
        Ok(has_one.then(|| self.elements.current()))
    }
}

impl std::fmt::Debug for PayloadElements<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PayloadElements({:?})", self.kind())
    }
}

/// Opens a payload that `DUMP` returned, here, in a Redis up to 8.2 or in a Valkey up to 9. Bytes between the value and the
/// footer are ignored, as Redis ignores them.
///
/// # Errors
/// The footer is wrong, or the value is.
pub fn open_payload(payload: &[u8]) -> Result<Payload<'_>, PayloadError> {
    let (body, version) = checked_body(payload).ok_or(PayloadError::VersionOrChecksum)?;
    open_body(body, version)
}

/// The same without a look at the checksum, for payloads that tests have damaged.
///
/// # Errors
/// As of [`open_payload`].
pub fn open_unchecked_payload(payload: &[u8]) -> Result<Payload<'_>, PayloadError> {
    let (body, version, _) = parts(payload).ok_or(PayloadError::VersionOrChecksum)?;
    open_body(body, version)
}

fn open_body(body: &[u8], version: u32) -> Result<Payload<'_>, PayloadError> {
    let mut source = Source::new(body, body.len().clamp(1, BUFFER_BYTES), false);
    let code = source.byte().map_err(bad_data)?;
    if code == TYPE_STRING {
        return source.string().map(Payload::String).map_err(bad_data);
    }
    let kind = CollectionKind::of_code(code, version).ok_or_else(|| unsupported(code, version))?;
    let begun = Elements::begin(&mut source, (kind, code), version).map_err(bad_data)?;
    // As in Redis, there is nothing to be restored from an empty collection.
    let elements = begun.ok_or(PayloadError::BadData)?;
    Ok(Payload::Collection(Box::new(PayloadElements { source, elements })))
}

/// The value in a payload, held as a whole; see [`open_payload`].
///
/// # Errors
/// As of [`open_payload`]; or an element comes twice.
pub fn parse_payload(payload: &[u8]) -> Result<RdbValue, PayloadError> {
    match open_payload(payload)? {
        Payload::String(string) => Ok(RdbValue::String(string)),
        Payload::Collection(collection) => {
            let PayloadElements { mut source, elements } = *collection;
            elements.collect(&mut source).map_err(bad_data)
        }
    }
}

/// The payload without its footer, if that is right, and the version it names.
pub(super) fn checked_body(payload: &[u8]) -> Option<(&[u8], u32)> {
    let (body, version, checksum) = parts(payload)?;
    let checked = &payload[..payload.len() - CHECKSUM_BYTES];
    (checksum == CRC64.checksum(checked)).then_some((body, version))
}

/// The payload without its footer, the version it names, if that can be read, and its checksum.
fn parts(payload: &[u8]) -> Option<(&[u8], u32, u64)> {
    let (checked, checksum) = payload.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (body, version) = checked.split_last_chunk::<2>()?;
    let version = u32::from(u16::from_le_bytes(*version));
    is_read_version(version).then_some((body, version, u64::from_le_bytes(*checksum)))
}

/// What precedes the bytes of a string in a payload takes so many at most: a type, and an LZF stream's two lengths.
pub const PAYLOAD_HEAD_BYTES: usize = 1 + 1 + 9 + 9;

/// A payload that comes in pieces, as [`open_payload`] takes one that is there as a whole. A string is given piece by
/// piece; of a collection all bytes are given, for [`open_gathered`].
pub struct PayloadReader {
    digest: Digest<'static, u64, Table<16>>,
    /// Bytes of the head that are still to be passed over, and then the string.
    head_bytes: usize,
    content: Content,
    footer: [u8; FOOTER_BYTES],
}

enum Content {
    Int(i64),
    String {
        length_bytes: u64,
        body: StringBody,
    },
    Collection,
    /// Whatever follows is not looked at, but for the checksum.
    Refused(PayloadError),
}

/// What a payload has held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadContent {
    Int(i64),
    /// The string that has been given.
    String,
    /// The collection whose bytes have been given: [`open_gathered`] opens them.
    Collection {
        version: u32,
    },
}

/// Opens the bytes that a [`PayloadReader`] has given of a collection.
///
/// # Errors
/// [`PayloadError::BadData`].
pub fn open_gathered(bytes: &[u8], version: u32) -> Result<Payload<'_>, PayloadError> {
    open_body(bytes, version)
}

impl PayloadReader {
    /// Bytes of a payload that are its footer.
    pub const FOOTER_BYTES: usize = FOOTER_BYTES;

    /// Of a payload that begins and ends with these bytes: [`PAYLOAD_HEAD_BYTES`] or more, and the footer.
    pub fn new(start: &[u8], footer: [u8; FOOTER_BYTES]) -> PayloadReader {
        let mut source = Source::new(start, start.len().max(1), false);
        let version = u32::from(u16::from_le_bytes([footer[0], footer[1]]));
        let content =
            content_of(&mut source, version).unwrap_or_else(|error| Content::Refused(bad_data(error)));
        let head_bytes = source.offset_bytes() as usize;
        PayloadReader { digest: CRC64.digest(), head_bytes, content, footer }
    }

    /// Bytes of the string, if it is one.
    pub fn length_bytes(&self) -> Option<u64> {
        match &self.content {
            Content::String { length_bytes, .. } => Some(*length_bytes),
            Content::Int(_) | Content::Collection | Content::Refused(_) => None,
        }
    }

    /// Takes the next bytes of the payload, from its first on and without its footer, and gives `out` those of the string,
    /// or as they are if it is a collection.
    pub fn feed(&mut self, piece: &[u8], mut out: impl FnMut(&[u8])) {
        self.digest.update(piece);
        let passed = self.head_bytes.min(piece.len());
        self.head_bytes -= passed;
        let body = match &mut self.content {
            Content::String { body, .. } => body,
            Content::Collection => return out(piece),
            Content::Int(_) | Content::Refused(_) => return,
        };
        // Bytes between the value and the footer are ignored.
        let rest = &piece[passed..];
        let wanted = rest.len().min(usize::try_from(body.left_bytes()).unwrap_or(usize::MAX));
        if wanted > 0 {
            if let Err(error) = body.feed(&rest[..wanted], out) {
                self.content = Content::Refused(bad_data(error));
            }
        }
    }

    /// After the last byte before the footer.
    ///
    /// # Errors
    /// As of [`parse_payload`]: what has been given is nothing then.
    pub fn finish(mut self) -> Result<PayloadContent, PayloadError> {
        let (version, stored) = (&self.footer[..2], &self.footer[2..]);
        self.digest.update(version);
        let version = u32::from(u16::from_le_bytes([version[0], version[1]]));
        if !is_read_version(version) || self.digest.finalize().to_le_bytes() != *stored {
            return Err(PayloadError::VersionOrChecksum);
        }
        match self.content {
            Content::Int(value) => Ok(PayloadContent::Int(value)),
            Content::String { body, .. } if body.left_bytes() == 0 => Ok(PayloadContent::String),
            Content::String { .. } => Err(PayloadError::BadData),
            Content::Collection => Ok(PayloadContent::Collection { version }),
            Content::Refused(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for PayloadReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PayloadReader({:?} bytes)", self.length_bytes())
    }
}

fn content_of(source: &mut Source<&[u8]>, version: u32) -> Result<Content, ReadErrorKind> {
    let code = source.byte()?;
    if code != TYPE_STRING {
        return Ok(match CollectionKind::of_code(code, version) {
            Some(_) => Content::Collection,
            None => Content::Refused(unsupported(code, version)),
        });
    }
    Ok(match source.string_head()? {
        StringHead::Int(value) => Content::Int(value),
        head => {
            Content::String { length_bytes: head.length_bytes().unwrap_or(0), body: StringBody::new(head)? }
        }
    })
}

/// Why a value that is no string is refused.
fn unsupported(code: u8, version: u32) -> PayloadError {
    OtherType::from_code(code, version)
        .map_or(PayloadError::BadData, |OtherType { code, family, encoding, .. }| {
            PayloadError::UnsupportedType { family, encoding, code }
        })
}

/// The payload of a string that is not copied, and not compressed either: what comes before its bytes, and what after them.
pub struct LongPayload {
    digest: Digest<'static, u64, Table<16>>,
}

impl LongPayload {
    /// Bytes after the string.
    pub const FOOTER_BYTES: usize = FOOTER_BYTES;

    /// Of a string of so many bytes; with what comes before it.
    pub fn begin(length_bytes: u64) -> (LongPayload, Vec<u8>) {
        let mut head = vec![TYPE_STRING];
        put_length(&mut head, length_bytes);
        let mut digest = CRC64.digest();
        digest.update(&head);
        (LongPayload { digest }, head)
    }

    /// Takes the next bytes of the string into account.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// What comes after the last byte.
    pub fn footer(&self) -> [u8; FOOTER_BYTES] {
        let (mut digest, mut footer) = (self.digest.clone(), [0; FOOTER_BYTES]);
        footer[..2].copy_from_slice(&(WRITE_VERSION as u16).to_le_bytes());
        digest.update(&footer[..2]);
        footer[2..].copy_from_slice(&digest.finalize().to_le_bytes());
        footer
    }
}

impl std::fmt::Debug for LongPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LongPayload")
    }
}

fn bad_data(_: ReadErrorKind) -> PayloadError {
    PayloadError::BadData
}

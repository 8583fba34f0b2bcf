//! The payloads of `DUMP` and `RESTORE`: `type:1 value version:2 LE crc64:8 LE`, as in `cluster.c` of Redis 7.0.

use super::encode::{put_string_head, Body};
use super::error::{PayloadError, ReadErrorKind};
use super::format::{RdbValue, StringRef, CRC64, MAX_READ_VERSION, TYPE_STRING, WRITE_VERSION};
use super::lzf::Compressor;
use super::skip::OtherType;
use super::source::Source;

const FOOTER_BYTES: usize = 2 + 8;
const CHECKSUM_BYTES: usize = 8;
const BUFFER_BYTES: usize = 4096;

/// The bytes that `DUMP` returns for `value`. Without a compressor strings are not compressed (`rdbcompression no`).
pub fn dump_payload(value: &RdbValue, compressor: Option<&mut Compressor>) -> Vec<u8> {
    match value {
        RdbValue::String(string) => dump_string(string.as_ref(), compressor),
    }
}

/// [`dump_payload`] for a borrowed string.
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
    out.extend_from_slice(&(WRITE_VERSION as u16).to_le_bytes());
    let checksum = CRC64.checksum(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// The value in a payload that `DUMP` returned, here or in a Redis up to 8.2. Bytes between the value and the footer
/// are ignored, as Redis ignores them.
pub fn parse_payload(payload: &[u8]) -> Result<RdbValue, PayloadError> {
    let (body, version) = checked_body(payload).ok_or(PayloadError::VersionOrChecksum)?;
    let mut source = Source::new(body, body.len().clamp(1, BUFFER_BYTES), false);
    let code = source.byte().map_err(bad_data)?;
    if code == TYPE_STRING {
        return source.string().map(RdbValue::String).map_err(bad_data);
    }
    let OtherType { code, family, encoding, .. } =
        OtherType::from_code(code, version).ok_or(PayloadError::BadData)?;
    Err(PayloadError::UnsupportedType { family, encoding, code })
}

/// The payload without its footer, if that is right, and the version it names.
fn checked_body(payload: &[u8]) -> Option<(&[u8], u32)> {
    let (checked, checksum) = payload.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (body, version) = checked.split_last_chunk::<2>()?;
    let version = u32::from(u16::from_le_bytes(*version));
    let right = version <= MAX_READ_VERSION && u64::from_le_bytes(*checksum) == CRC64.checksum(checked);
    right.then_some((body, version))
}

fn bad_data(_: ReadErrorKind) -> PayloadError {
    PayloadError::BadData
}

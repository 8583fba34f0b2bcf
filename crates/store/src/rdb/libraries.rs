//! Function libraries in dumps, and the payloads of `FUNCTION DUMP` and `FUNCTION RESTORE`:
//! `{ FUNCTION2:1 source } version:2 LE crc64:8 LE`, as in `functions.c` of Redis 7.0.

use std::io::Read;

use super::encode::{put_string_head, Body};
use super::error::{LibrariesError, ReadErrorKind};
use super::format::{opcode, StringRef, MAX_STRING_BYTES};
use super::lzf::Compressor;
use super::payload::{checked_body, put_footer};
use super::source::Source;
use crate::library::LIBRARY_MAX_BYTES;

const BUFFER_BYTES: usize = 4096;

/// Reads the source of a library, behind its opcode.
///
/// # Errors
/// It cannot be read, or is too long.
pub(super) fn read_source<R: Read>(source: &mut Source<R>) -> Result<Vec<u8>, ReadErrorKind> {
    let head = source.string_head()?;
    match head.length_bytes().filter(|length_bytes| *length_bytes > LIBRARY_MAX_BYTES) {
        Some(length_bytes) => Err(ReadErrorKind::LibraryTooLong { length_bytes }),
        None => Ok(source.string_after(head)?.into_bytes()),
    }
}

/// The bytes that `FUNCTION DUMP` returns for libraries of these sources. Without a compressor they are not compressed
/// (`rdbcompression no`).
pub fn dump_libraries<'s>(
    sources: impl IntoIterator<Item = &'s [u8]>,
    mut compressor: Option<&mut Compressor>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for source in sources {
        out.push(opcode::FUNCTION2);
        match put_string_head(&mut out, StringRef::Bytes(source), compressor.as_deref_mut()) {
            Body::Complete => {}
            Body::Verbatim(bytes) => out.extend_from_slice(bytes),
            Body::Packed(bytes) => out.extend_from_slice(&bytes),
        }
    }
    put_footer(&mut out);
    out
}

/// The sources of the libraries in a payload that `FUNCTION DUMP` returned, here, in a Redis from 7.0 up to 8.2 or in a Valkey up to 9.
/// Whether they are libraries, and whether two have the same name, is for the caller to see.
///
/// # Errors
/// [`LibrariesError`].
pub fn open_libraries(payload: &[u8]) -> Result<Vec<Vec<u8>>, LibrariesError> {
    let (body, _) = checked_body(payload).ok_or(LibrariesError::VersionOrChecksum)?;
    let mut source = Source::new(body, body.len().clamp(1, BUFFER_BYTES), false);
    // What is compressed may stand for hundreds of times as much.
    let (mut sources, mut room_bytes) = (Vec::new(), MAX_STRING_BYTES);
    while source.offset_bytes() < body.len() as u64 {
        let code = source.byte().map_err(|_| LibrariesError::BadData)?;
        match code {
            opcode::FUNCTION2 => {}
            opcode::FUNCTION_PRE_GA => return Err(LibrariesError::PreRelease),
            _ => return Err(LibrariesError::OtherType),
        }
        let library = read_source(&mut source).map_err(|kind| match kind {
            ReadErrorKind::LibraryTooLong { .. } => LibrariesError::TooLong,
            _ => LibrariesError::BadData,
        })?;
        room_bytes = room_bytes.checked_sub(library.len() as u64).ok_or(LibrariesError::TooLong)?;
        sources.push(library);
    }
    Ok(sources)
}

//! IDs of a stream's entries as arguments.

use stillframe_store::StreamId;

use crate::command::error::CmdError;
use crate::protocol::reply::put_digits;

const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";
/// No ID is longer, and Redis looks at no longer one.
const ID_BYTES_MAX: usize = 127;

/// Which ID an `XADD` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// `*`
    Any,
    /// `ms-*`
    OfMillis(u64),
    Exact(StreamId),
}

/// An ID as text.
#[derive(Clone, Copy)]
pub struct IdText {
    bytes: [u8; IdText::BYTES_MAX],
    start: usize,
}

impl IdText {
    /// Two numbers of twenty digits, and the sign between them.
    const BYTES_MAX: usize = 41;

    pub fn of(id: StreamId) -> IdText {
        let mut bytes = [0; IdText::BYTES_MAX];
        let dash = put_digits(&mut bytes, IdText::BYTES_MAX, id.seq) - 1;
        bytes[dash] = b'-';
        let start = put_digits(&mut bytes, dash, id.ms);
        IdText { bytes, start }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// A number as C's `strtoull` reads it, all of the text.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// An ID as C reads it: up to the first NUL.
fn read(text: &[u8]) -> Result<&[u8], CmdError> {
    match text.len() {
        0..=ID_BYTES_MAX => Ok(text.split(|byte| *byte == 0).next().unwrap_or_default()),
        _ => Err(INVALID.into()),
    }
}

/// The two halves of an ID, the second if it is given.
fn halves(text: &[u8]) -> Result<(u64, Option<&[u8]>), CmdError> {
    let text = read(text)?;
    let (ms, seq) = match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    };
    Ok((number(ms).ok_or(INVALID)?, seq))
}

/// An ID; one without a number has this one.
///
/// # Errors
/// `ERR Invalid stream ID specified as stream command argument`
pub fn strict(text: &[u8], missing: u64) -> Result<StreamId, CmdError> {
    let (ms, seq) = halves(text)?;
    Ok(StreamId { ms, seq: seq.map_or(Some(missing), number).ok_or(INVALID)? })
}

/// The ID of an entry that is to be added.
///
/// # Errors
/// As of [`strict`].
pub fn of_new(text: &[u8]) -> Result<Asked, CmdError> {
    if text == b"*" {
        return Ok(Asked::Any);
    }
    match halves(text)? {
        (ms, Some(b"*")) => Ok(Asked::OfMillis(ms)),
        _ => strict(text, 0).map(Asked::Exact),
    }
}

/// An end of an interval, and whether it is left out: `-`, `+`, or an ID, with `(` before it.
fn bound(text: &[u8], missing: u64) -> Result<(StreamId, bool), CmdError> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => Ok((strict(rest, missing)?, true)),
        _ => match read(text)? {
            b"-" => Ok((StreamId::MIN, false)),
            b"+" => Ok((StreamId::MAX, false)),
            text => Ok((strict(text, missing)?, false)),
        },
    }
}

/// The least ID of an interval.
///
/// # Errors
/// As of [`strict`], and where no ID follows one that is left out.
pub fn least(text: &[u8]) -> Result<StreamId, CmdError> {
    match bound(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or("ERR invalid start ID for the interval".into()),
    }
}

/// The greatest ID of an interval.
///
/// # Errors
/// As of [`least`].
pub fn greatest(text: &[u8]) -> Result<StreamId, CmdError> {
    match bound(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().ok_or("ERR invalid end ID for the interval".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_they_are_read() {
        for id in [StreamId::MIN, StreamId::MAX, StreamId::new(10, 0), StreamId::new(0, 109)] {
            assert_eq!(IdText::of(id).bytes(), id.to_string().as_bytes());
            assert_eq!(strict(IdText::of(id).bytes(), 7).unwrap(), id);
        }
    }
}

//! A reply as it came over the wire, RESP2 or RESP3: equal replies are equal bytes, but for the length of an array that
//! is written with zeros before it.

use std::io::{self, BufRead, Read};

/// One reply. Texts are bytes: an error may quote what a client has sent.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// `+`
    Simple(Vec<u8>),
    /// `-`
    Error(Vec<u8>),
    /// `:`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// RESP2's `$-1`
    NullBulk,
    /// `*`
    Array(Vec<Reply>),
    /// RESP2's `*-1`
    NullArray,
    /// RESP3's `_`
    Null3,
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `=`, the format and a colon before the text
    Verbatim(Vec<u8>),
    /// `, # (`: doubles, booleans, big numbers, with their type byte
    Scalar(u8, Vec<u8>),
}

impl Reply {
    /// # Errors
    /// The stream's, its end in the middle of a reply, or bytes that are none.
    pub fn read(from: &mut impl BufRead) -> io::Result<Reply> {
        let line = read_line(from)?;
        let Some((&tag, text)) = line.split_first() else { return Err(malformed("an empty line", &line)) };
        // None: the null of RESP2.
        let count = || match integer(text) {
            Some(-1) => Ok(None),
            Some(count) => usize::try_from(count).map(Some).map_err(|_| malformed("a bad length", &line)),
            None => Err(malformed("a bad length", &line)),
        };
        let len = || count()?.ok_or_else(|| malformed("a null that RESP does not have", &line));
        Ok(match tag {
            b'+' => Reply::Simple(text.to_vec()),
            b'-' => Reply::Error(text.to_vec()),
            b':' => Reply::Int(integer(text).ok_or_else(|| malformed("a bad integer", &line))?),
            b'_' if text.is_empty() => Reply::Null3,
            b',' | b'#' | b'(' => Reply::Scalar(tag, text.to_vec()),
            b'$' => match count()? {
                Some(len) => Reply::Bulk(bytes(from, len)?),
                None => Reply::NullBulk,
            },
            b'=' => Reply::Verbatim(bytes(from, len()?)?),
            b'*' => match count()? {
                Some(len) => Reply::Array(items(from, len)?),
                None => Reply::NullArray,
            },
            b'~' => Reply::Set(items(from, len()?)?),
            b'>' => Reply::Push(items(from, len()?)?),
            b'%' => {
                let pair = |_| Ok((Reply::read(from)?, Reply::read(from)?));
                Reply::Map((0..len()?).map(pair).collect::<io::Result<_>>()?)
            }
            _ => return Err(malformed("an unknown type byte", &line)),
        })
    }

    #[must_use]
    pub fn ok() -> Reply {
        Reply::Simple(b"OK".to_vec())
    }

    #[must_use]
    pub fn queued() -> Reply {
        Reply::Simple(b"QUEUED".to_vec())
    }

    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// Any of the three.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Reply::NullBulk | Reply::NullArray | Reply::Null3)
    }

    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The content of a string.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Of an array, a set or a push.
    #[must_use]
    pub fn try_items(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => Some(items),
            _ => None,
        }
    }

    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        self.try_items().unwrap_or_else(|| panic!("not an array: {self:?}"))
    }

    /// What a person would read.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text)
            | Reply::Error(text)
            | Reply::Bulk(text)
            | Reply::Verbatim(text)
            | Reply::Scalar(_, text) => String::from_utf8_lossy(text).into_owned(),
            Reply::Int(number) => number.to_string(),
            other => format!("{other:?}"),
        }
    }
}

/// As Redis writes it: no sign but a minus, no zeros before.
fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
}

fn items(from: &mut impl BufRead, len: usize) -> io::Result<Vec<Reply>> {
    (0..len).map(|_| Reply::read(from)).collect()
}

fn bytes(from: &mut impl BufRead, len: usize) -> io::Result<Vec<u8>> {
    // Not allocated before it is there: the length is only what somebody says.
    let mut bytes = Vec::new();
    let wanted = (len as u64).saturating_add(2);
    if (from.take(wanted).read_to_end(&mut bytes)? as u64) < wanted {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the connection was closed within a string",
        ));
    }
    if !bytes.ends_with(b"\r\n") {
        return Err(malformed("a string without its CRLF", &bytes));
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn malformed(what: &str, bytes: &[u8]) -> io::Error {
    let shown = bytes[..bytes.len().min(100)].escape_ascii();
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply, {what}: \"{shown}\""))
}

fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
    }
    if !line.ends_with(b"\r\n") {
        return Err(malformed("a line without its CRLF", &line));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN_BYTES: usize = 200;
        match self {
            Reply::Simple(text) => write!(f, "+{}", text.escape_ascii()),
            Reply::Error(text) => write!(f, "-{}", text.escape_ascii()),
            Reply::Int(number) => write!(f, ":{number}"),
            Reply::Scalar(tag, text) => write!(f, "{}{}", *tag as char, text.escape_ascii()),
            Reply::NullBulk => f.write_str("$-1"),
            Reply::NullArray => f.write_str("*-1"),
            Reply::Null3 => f.write_str("_"),
            Reply::Bulk(bytes) | Reply::Verbatim(bytes) => {
                let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
                write!(f, "\"{}\"", shown.escape_ascii())?;
                match bytes.len() {
                    len if len > shown.len() => write!(f, "... ({len} bytes)"),
                    _ => Ok(()),
                }
            }
            Reply::Array(items) => f.debug_list().entries(items).finish(),
            Reply::Set(items) => f.debug_set().entries(items).finish(),
            Reply::Push(items) => f.debug_tuple(">").field(items).finish(),
            Reply::Map(pairs) => {
                f.debug_map().entries(pairs.iter().map(|(name, value)| (name, value))).finish()
            }
        }
    }
}

/// Appends a command in the form that clients send: an array of bulk strings.
pub fn encode(words: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A command by itself.
#[must_use]
pub fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(words, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Reply> {
        let mut from = bytes;
        let reply = Reply::read(&mut from);
        assert!(from.is_empty() || reply.is_err(), "{from:?} is left of {bytes:?}");
        reply
    }

    #[test]
    fn every_kind_is_read() {
        for (wire, expected) in [
            (&b"+OK\r\n"[..], Reply::ok()),
            (b"-ERR \xff\r\n", Reply::Error(b"ERR \xff".to_vec())),
            (b":-12\r\n", Reply::Int(-12)),
            (b"$4\r\na\r\nb\r\n", Reply::Bulk(b"a\r\nb".to_vec())),
            (b"$0\r\n\r\n", Reply::Bulk(Vec::new())),
            (b"$-1\r\n", Reply::NullBulk),
            (b"*-1\r\n", Reply::NullArray),
            (b"_\r\n", Reply::Null3),
            (b"*0\r\n", Reply::Array(Vec::new())),
            (
                b"*2\r\n:1\r\n*1\r\n$-1\r\n",
                Reply::Array(vec![Reply::Int(1), Reply::Array(vec![Reply::NullBulk])]),
            ),
            (b"%1\r\n+a\r\n:1\r\n", Reply::Map(vec![(Reply::Simple(b"a".to_vec()), Reply::Int(1))])),
            (b"~1\r\n:1\r\n", Reply::Set(vec![Reply::Int(1)])),
            (b">1\r\n:1\r\n", Reply::Push(vec![Reply::Int(1)])),
            (b"=7\r\ntxt:abc\r\n", Reply::Verbatim(b"txt:abc".to_vec())),
            (b",1.5\r\n", Reply::Scalar(b',', b"1.5".to_vec())),
            (b"#t\r\n", Reply::Scalar(b'#', b"t".to_vec())),
        ] {
            assert_eq!(read(wire).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error_that_shows_it() {
        for wire in [
            &b"\r\n"[..],
            b"hello\r\n",
            b":1\n",
            b":01\r\n",
            b":+1\r\n",
            b"$-2\r\n",
            b"$x\r\n",
            b"~-1\r\n",
            b"_x\r\n",
            b"$1\r\nabc",
            b"*1\r\n?\r\n",
        ] {
            let error = read(wire).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{wire:?}: {error}");
        }
        for cut in [&b""[..], b"$5\r\nab", b"*2\r\n:1\r\n"] {
            assert_eq!(read(cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{cut:?}");
        }
        assert!(read(b"+hello").unwrap_err().to_string().contains("hello"));
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        let mut out = Vec::new();
        encode(&["SET", "k", "\r\n"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }
}

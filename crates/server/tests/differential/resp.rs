//! A reply as it came over the wire, RESP2 or RESP3, kept so that comparing two of them compares bytes.

use std::io::{self, BufRead};

/// One reply. `tag` is the type byte of the protocol.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reply {
    /// `+ - : , # ( _`: everything that ends with the line.
    Line { tag: u8, text: Vec<u8> },
    /// `$ = !`: a counted string; `None` is RESP2's `$-1`.
    Bulk { tag: u8, bytes: Option<Vec<u8>> },
    /// `* ~ > % |`: maps are flattened; `None` is RESP2's `*-1`.
    Aggregate { tag: u8, items: Option<Vec<Reply>> },
}

impl Reply {
    pub fn read(from: &mut impl BufRead) -> io::Result<Reply> {
        let line = read_line(from)?;
        let Some((&tag, text)) = line.split_first() else { return Err(malformed("an empty line")) };
        let count = || {
            std::str::from_utf8(text)
                .ok()
                .and_then(|t| t.parse::<i64>().ok())
                .ok_or(malformed("a bad length"))
        };
        match tag {
            b'$' | b'=' | b'!' => {
                let Ok(len) = usize::try_from(count()?) else { return Ok(Reply::Bulk { tag, bytes: None }) };
                let mut bytes = vec![0; len + 2];
                from.read_exact(&mut bytes)?;
                if !bytes.ends_with(b"\r\n") {
                    return Err(malformed("a bulk string without its CRLF"));
                }
                bytes.truncate(len);
                Ok(Reply::Bulk { tag, bytes: Some(bytes) })
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Ok(len) = usize::try_from(count()?) else {
                    return Ok(Reply::Aggregate { tag, items: None });
                };
                let len = if matches!(tag, b'%' | b'|') { len * 2 } else { len };
                let items = (0..len).map(|_| Reply::read(from)).collect::<io::Result<_>>()?;
                Ok(Reply::Aggregate { tag, items: Some(items) })
            }
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Ok(Reply::Line { tag, text: text.to_vec() }),
            _ => Err(malformed("an unknown type byte")),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Line { tag: b'-', .. } | Reply::Bulk { tag: b'!', .. })
    }

    pub fn is_queued(&self) -> bool {
        matches!(self, Reply::Line { tag: b'+', text } if text == b"QUEUED")
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Line { tag: b':', text } => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Bulk { bytes: Some(bytes), .. } => Some(bytes),
            _ => None,
        }
    }

    pub fn items(&self) -> Option<&[Reply]> {
        match self {
            Reply::Aggregate { items: Some(items), .. } => Some(items),
            _ => None,
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed reply: {what}"))
}

fn read_line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\r\n") {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reply::Line { tag, text } => write!(f, "{}{}", *tag as char, text.escape_ascii()),
            Reply::Bulk { tag, bytes: None } => write!(f, "{}-1", *tag as char),
            Reply::Bulk { tag, bytes: Some(bytes) } => {
                let shown = &bytes[..bytes.len().min(200)];
                write!(f, "{}\"{}\"", *tag as char, shown.escape_ascii())?;
                if shown.len() < bytes.len() {
                    write!(f, "... ({} bytes)", bytes.len())?;
                }
                Ok(())
            }
            Reply::Aggregate { tag, items: None } => write!(f, "{}-1", *tag as char),
            Reply::Aggregate { tag, items: Some(items) } => {
                write!(f, "{}", *tag as char)?;
                f.debug_list().entries(items).finish()
            }
        }
    }
}

/// Appends a command in the form that clients send: an array of bulk strings.
pub fn encode(args: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

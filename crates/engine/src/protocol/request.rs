//! The request side of RESP: multibulk and inline commands, parsed in place.

use stillframe_units::words;

use crate::protocol::args::ArgRange;
use crate::text::number::parse_i64;

/// Longest inline command and longest length line, in bytes.
const LINE_MAX_BYTES: usize = 64 * 1024;
/// What a client that has not authenticated may send: arguments and bytes of each.
const UNAUTHENTICATED_ARGS: i64 = 10;
const UNAUTHENTICATED_BULK_BYTES: i64 = 16 * 1024;

/// Bounds that depend on the configuration and the client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_bulk_bytes: i64,
    pub is_authenticated: bool,
}

/// A bulk string of which only the first bytes are in the buffer: the others went to their place as they came.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Where its content starts in the buffer.
    pub at: usize,
    /// Bytes of it in the buffer.
    pub kept_bytes: usize,
}

/// Those of a command, in a buffer whose byte `start` is the first that is looked at.
#[derive(Clone, Copy, Default)]
struct Receipts<'r> {
    start: usize,
    received: &'r [Received],
}

impl Receipts<'_> {
    /// Bytes in the buffer of the one whose content starts at `at`, if that is one.
    fn kept_bytes(&self, at: usize) -> Option<u32> {
        let found = self.received.iter().find(|received| received.at == self.start + at);
        found.map(|received| received.kept_bytes as u32)
    }
}

/// A bulk string whose content is not all there.
#[derive(Clone, Debug)]
pub struct Awaited<'a> {
    /// The command's arguments before it, by their ranges from the command's start on.
    pub before: &'a [ArgRange],
    /// Where its content starts, from the command's start on.
    pub at: usize,
    pub len_bytes: u32,
}

/// What the next bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A command; its argument ranges have been appended. `end` is where the next one starts.
    Command { end: usize },
    /// Nothing to do (an empty line, a multibulk of no elements).
    Nothing { end: usize },
    /// The command goes on for at least `missing` more bytes.
    Incomplete { missing: usize },
    /// The connection must be closed after this error, given without code.
    Error(String),
}

/// Parser of one connection.
///
/// ```text
///               header, all arguments there
///        +--------------------------------------+
///        v                                      |
///     Fresh ------- bytes end early -------> Partial
///        ^                                      |
///        +----------- last argument ------------+
/// ```
///
/// A command that is not complete keeps its place, so that one of a million arguments that trickles in is
/// looked at once.
#[derive(Default, Debug)]
pub struct Parser {
    partial: Option<Box<Partial>>,
    /// In the order in which they came; of one command.
    received: Vec<Received>,
}

#[derive(Default, Debug)]
struct Partial {
    /// Relative to the start of the command.
    ranges: Vec<ArgRange>,
    progress: Progress,
}

#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    /// Next byte to look at; relative to the command's start in a `Partial`.
    at: usize,
    args_left: u32,
    /// Length of the bulk string whose content is next.
    bulk_len: Option<u32>,
}

enum Step {
    Complete,
    Incomplete { missing: usize },
}

enum Line {
    /// The number and where the next line starts.
    Number(i64, usize),
    Bad,
    Incomplete,
}

impl Parser {
    /// Whether a command has begun to arrive.
    pub fn is_inside_command(&self) -> bool {
        self.partial.is_some()
    }

    /// Forgets the part of a command that it has seen; parsing starts again at the command's first byte.
    pub fn reset(&mut self) {
        self.partial = None;
    }

    /// The argument that a command that has begun to arrive waits for, if its length is known.
    pub fn awaited(&self) -> Option<Awaited<'_>> {
        let partial = self.partial.as_deref()?;
        let len_bytes = partial.progress.bulk_len?;
        Some(Awaited { before: &partial.ranges, at: partial.progress.at, len_bytes })
    }

    /// Bulk strings that have few of their bytes in the buffer. Kept by [`Parser::reset`].
    pub fn received(&self) -> &[Received] {
        &self.received
    }

    pub fn received_mut(&mut self) -> &mut Vec<Received> {
        &mut self.received
    }

    /// Looks at `buf[start..]`. For a complete command its ranges in `buf` are appended to `ranges`. An inline
    /// command is first rewritten as a multibulk, in place.
    pub fn next(
        &mut self,
        buf: &mut Vec<u8>,
        start: usize,
        ranges: &mut Vec<ArgRange>,
        limits: Limits,
    ) -> Parsed {
        let received = Receipts { start: 0, received: &self.received };
        if let Some(partial) = &mut self.partial {
            return match partial.go_on(&buf[start..], limits, Receipts { start, ..received }) {
                Ok(Step::Incomplete { missing }) => Parsed::Incomplete { missing },
                Ok(Step::Complete) => {
                    let end = start + partial.progress.at;
                    let absolute = |r: &ArgRange| ArgRange { start: r.start + start as u32, len: r.len };
                    ranges.extend(partial.ranges.iter().map(absolute));
                    self.partial = None;
                    Parsed::Command { end }
                }
                Err(error) => Parsed::Error(error),
            };
        }
        match buf.get(start) {
            None => Parsed::Incomplete { missing: 1 },
            Some(b'*') => multibulk(&mut self.partial, buf, start, ranges, limits, received),
            Some(_) => match inline(buf, start) {
                // What was short enough as a line is not looked at as a stranger's multibulk.
                Inline::Rewritten => {
                    let limits = Limits { is_authenticated: true, ..limits };
                    multibulk(&mut self.partial, buf, start, ranges, limits, Receipts::default())
                }
                Inline::Other(parsed) => parsed,
            },
        }
    }
}

/// Takes a command apart; of one that is not complete `partial` keeps the place.
fn multibulk(
    partial: &mut Option<Box<Partial>>,
    buf: &[u8],
    start: usize,
    ranges: &mut Vec<ArgRange>,
    limits: Limits,
    received: Receipts<'_>,
) -> Parsed {
    let short = short_number(buf, start + 1).map(|(count, at)| Line::Number(i64::from(count), at));
    let (count, at) = match short.unwrap_or_else(|| number_line(buf, start + 1)) {
        Line::Number(count, at) if count <= i64::from(i32::MAX) => (count, at),
        Line::Number(..) | Line::Bad => return error("invalid multibulk length"),
        Line::Incomplete if buf.len() - start > LINE_MAX_BYTES => return error("too big mbulk count string"),
        Line::Incomplete => return Parsed::Incomplete { missing: 1 },
    };
    if count > UNAUTHENTICATED_ARGS && !limits.is_authenticated {
        return error("unauthenticated multibulk length");
    }
    if count <= 0 {
        return Parsed::Nothing { end: at };
    }
    let mark = ranges.len();
    let mut progress = Progress { at, args_left: count as u32, bulk_len: None };
    match progress.take_args(buf, ranges, limits, received) {
        Ok(Step::Complete) => Parsed::Command { end: progress.at },
        Ok(Step::Incomplete { missing }) => {
            let relative = |r: ArgRange| ArgRange { start: r.start - start as u32, len: r.len };
            progress.at -= start;
            let ranges = ranges.drain(mark..).map(relative).collect();
            *partial = Some(Box::new(Partial { ranges, progress }));
            Parsed::Incomplete { missing }
        }
        Err(error) => {
            ranges.truncate(mark);
            Parsed::Error(error)
        }
    }
}

impl Partial {
    fn go_on(&mut self, command: &[u8], limits: Limits, received: Receipts<'_>) -> Result<Step, String> {
        self.progress.take_args(command, &mut self.ranges, limits, received)
    }
}

impl Progress {
    /// Takes arguments as long as they are short, and all of them is there: what most commands are made of.
    #[inline]
    fn take_short_args(
        &mut self,
        buf: &[u8],
        ranges: &mut Vec<ArgRange>,
        limits: Limits,
        received: Receipts<'_>,
    ) {
        if self.bulk_len.is_some() || !received.received.is_empty() {
            return;
        }
        let (mut at, mut args_left) = (self.at, self.args_left);
        while args_left > 0 && buf.get(at) == Some(&b'$') {
            let Some((len, content)) = short_number(buf, at + 1) else { break };
            let end = content + len as usize + 2;
            if end > buf.len() || i64::from(len) > limits.max_bulk_bytes {
                break;
            }
            ranges.push(ArgRange { start: content as u32, len });
            at = end;
            args_left -= 1;
        }
        (self.at, self.args_left) = (at, args_left);
    }

    /// Takes arguments until all are there or the bytes end.
    fn take_args(
        &mut self,
        buf: &[u8],
        ranges: &mut Vec<ArgRange>,
        limits: Limits,
        received: Receipts<'_>,
    ) -> Result<Step, String> {
        self.take_short_args(buf, ranges, limits, received);
        while self.args_left > 0 {
            let len = match self.bulk_len {
                Some(len) => len,
                None => match self.bulk_header(buf, limits)? {
                    Some(len) => len,
                    None => return Ok(Step::Incomplete { missing: 1 }),
                },
            };
            let in_buf = received.kept_bytes(self.at).unwrap_or(len);
            let end = self.at + in_buf as usize + 2;
            if end > buf.len() {
                self.bulk_len = Some(len);
                return Ok(Step::Incomplete { missing: end - buf.len() });
            }
            ranges.push(ArgRange { start: self.at as u32, len: in_buf });
            self.at = end;
            self.bulk_len = None;
            self.args_left -= 1;
        }
        Ok(Step::Complete)
    }

    /// Takes `$<len>\r\n`; `None` if it is not complete.
    fn bulk_header(&mut self, buf: &[u8], limits: Limits) -> Result<Option<u32>, String> {
        let line = number_line(buf, self.at + 1);
        if matches!(line, Line::Incomplete) {
            let is_too_long = buf.len() - self.at > LINE_MAX_BYTES;
            return if is_too_long { Err(protocol("too big bulk count string")) } else { Ok(None) };
        }
        if buf[self.at] != b'$' {
            return Err(protocol(&format!("expected '$', got '{}'", buf[self.at] as char)));
        }
        match line {
            Line::Number(len, at) if (0..=limits.max_bulk_bytes).contains(&len) => {
                if len > UNAUTHENTICATED_BULK_BYTES && !limits.is_authenticated {
                    return Err(protocol("unauthenticated bulk length"));
                }
                self.at = at;
                Ok(Some(len as u32))
            }
            _ => Err(protocol("invalid bulk length")),
        }
    }
}

fn protocol(what: &str) -> String {
    format!("Protocol error: {what}")
}

fn error(what: &str) -> Parsed {
    Parsed::Error(protocol(what))
}

/// A number of up to three digits that `\r` and one more byte end, and where the next line starts. `None`: not that short, or near
/// the end of the buffer.
#[inline(always)]
fn short_number(buf: &[u8], at: usize) -> Option<(u32, usize)> {
    let line = buf.get(at..)?.first_chunk::<5>()?;
    let digit = |index: usize| Some(u32::from(line[index].wrapping_sub(b'0'))).filter(|digit| *digit <= 9);
    let first = digit(0)?;
    if line[1] == b'\r' {
        return Some((first, at + 3));
    }
    let two = 10 * first + digit(1)?;
    if two < 10 {
        // A leading zero.
        return None;
    }
    if line[2] == b'\r' {
        return Some((two, at + 4));
    }
    let three = 10 * two + digit(2)?;
    (line[3] == b'\r').then_some((three, at + 5))
}

/// Reads a decimal number that `\r` and one more byte end.
fn number_line(buf: &[u8], at: usize) -> Line {
    let mut number: i64 = 0;
    let mut end = at;
    // The common case: a few digits. A leading zero, a sign and long numbers go the long way.
    while let Some(&byte) = buf.get(end) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 || end - at == 17 {
            break;
        }
        number = number * 10 + i64::from(digit);
        end += 1;
    }
    if end > at && buf.get(end) == Some(&b'\r') && (buf[at] != b'0' || end == at + 1) {
        return if end + 1 < buf.len() { Line::Number(number, end + 2) } else { Line::Incomplete };
    }
    let Some(rest) = buf.get(at..) else { return Line::Incomplete };
    let Some(len) = rest.iter().position(|&b| b == b'\r') else { return Line::Incomplete };
    if at + len + 1 >= buf.len() {
        return Line::Incomplete;
    }
    parse_i64(&rest[..len]).map_or(Line::Bad, |n| Line::Number(n, at + len + 2))
}

/// Rewrites a line of words as a multibulk, so that it can be parsed again like any other command.
enum Inline {
    Rewritten,
    Other(Parsed),
}

fn inline(buf: &mut Vec<u8>, start: usize) -> Inline {
    let Some(len) = buf[start..].iter().position(|&b| b == b'\n') else {
        let is_too_long = buf.len() - start > LINE_MAX_BYTES;
        let incomplete = Parsed::Incomplete { missing: 1 };
        return Inline::Other(if is_too_long { error("too big inline request") } else { incomplete });
    };
    let end = start + len + 1;
    let line_end = if len > 0 && buf[start + len - 1] == b'\r' { start + len - 1 } else { start + len };
    let Ok(words) = words(&buf[start..line_end]) else {
        return Inline::Other(error("unbalanced quotes in request"));
    };
    if words.is_empty() {
        return Inline::Other(Parsed::Nothing { end });
    }
    let mut multibulk = format!("*{}\r\n", words.len()).into_bytes();
    for word in &words {
        multibulk.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        multibulk.extend_from_slice(word);
        multibulk.extend_from_slice(b"\r\n");
    }
    buf.splice(start..end, multibulk);
    Inline::Rewritten
}

#[cfg(test)]
mod tests;

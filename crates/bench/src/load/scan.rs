//! Counts RESP2 replies in a stream of bytes without keeping them: what a load generator needs and no more.

/// What the replies so far were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub errors: u64,
    pub nils: u64,
    pub value_bytes: u64,
    /// The first error reply, without its leading `-`.
    pub first_error: Option<String>,
}

/// ```text
///            type byte                 \n of $n, n >= 0
///   ┌──────┐ ─────────► ┌────────┐ ───────────────────► ┌──────┐
///   │ Type │            │  Line  │                      │ Skip │
///   └──────┘ ◄───────── └────────┘                      └──────┘
///      ▲      \n of + - : * and $-1                         │
///      └────────────────────────────────────────────────────┘
///                       n + 2 bytes are through
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Type,
    Line { kind: u8 },
    Skip { left: usize },
}

/// Splits may fall anywhere: the scanner carries its state from one read to the next.
#[derive(Debug)]
pub struct ReplyScanner {
    state: State,
    number: i64,
    negative: bool,
    error_text: Vec<u8>,
    /// Elements that the reply being read still lacks (1 for anything but an array).
    elements_left: u64,
    pub tally: Tally,
}

const OK: &[u8] = b"+OK\r\n";
const ERROR_TEXT_BYTES: usize = 200;

impl ReplyScanner {
    pub fn new() -> Self {
        Self {
            state: State::Type,
            number: 0,
            negative: false,
            error_text: Vec::new(),
            elements_left: 1,
            tally: Tally::default(),
        }
    }

    /// Takes the next bytes of the stream and returns how many replies became complete; a byte that cannot start
    /// a reply is the error.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, u8> {
        let mut complete = 0;
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Type => {
                    if self.elements_left == 1 && bytes[at..].starts_with(OK) {
                        complete += 1;
                        at += OK.len();
                        continue;
                    }
                    self.begin_line(bytes[at])?;
                    at += 1;
                }
                State::Line { kind } => match bytes[at..].iter().position(|b| *b == b'\n') {
                    Some(line_len) => {
                        self.take_line(kind, &bytes[at..at + line_len]);
                        at += line_len + 1;
                        complete += self.end_line(kind);
                    }
                    None => {
                        self.take_line(kind, &bytes[at..]);
                        at = bytes.len();
                    }
                },
                State::Skip { left } => {
                    let step = left.min(bytes.len() - at);
                    at += step;
                    complete += self.skip(left - step);
                }
            }
        }
        Ok(complete)
    }

    /// Type -> Line
    fn begin_line(&mut self, kind: u8) -> Result<(), u8> {
        if !matches!(kind, b'+' | b'-' | b':' | b'$' | b'*') {
            return Err(kind);
        }
        self.number = 0;
        self.negative = false;
        self.error_text.clear();
        self.state = State::Line { kind };
        Ok(())
    }

    fn take_line(&mut self, kind: u8, part: &[u8]) {
        match kind {
            b'$' | b'*' => {
                for &b in part {
                    match b {
                        b'-' => self.negative = true,
                        b'0'..=b'9' => {
                            self.number = self.number.saturating_mul(10).saturating_add(i64::from(b - b'0'));
                        }
                        _ => {}
                    }
                }
            }
            b'-' if self.tally.first_error.is_none() => {
                let room = ERROR_TEXT_BYTES.saturating_sub(self.error_text.len());
                self.error_text.extend(part.iter().take(room).filter(|b| **b != b'\r'));
            }
            _ => {}
        }
    }

    /// Line -> Skip or Type
    fn end_line(&mut self, kind: u8) -> usize {
        self.state = State::Type;
        match kind {
            b'$' if !self.negative => {
                self.tally.value_bytes += self.number as u64;
                self.state = State::Skip { left: self.number as usize + 2 };
                0
            }
            b'*' if !self.negative => {
                self.elements_left += self.number as u64;
                self.end_element()
            }
            b'$' | b'*' => {
                self.tally.nils += 1;
                self.end_element()
            }
            b'-' => {
                self.tally.errors += 1;
                if self.tally.first_error.is_none() {
                    self.tally.first_error = Some(String::from_utf8_lossy(&self.error_text).into_owned());
                }
                self.end_element()
            }
            _ => self.end_element(),
        }
    }

    /// Skip -> Skip or Type
    fn skip(&mut self, left: usize) -> usize {
        if left > 0 {
            self.state = State::Skip { left };
            return 0;
        }
        self.state = State::Type;
        self.end_element()
    }

    fn end_element(&mut self) -> usize {
        self.elements_left -= 1;
        if self.elements_left > 0 {
            return 0;
        }
        self.elements_left = 1;
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"+OK\r\n$5\r\nhe\r\no\r\n:12\r\n$-1\r\n*3\r\n$1\r\na\r\n*0\r\n*2\r\n+OK\r\n:1\r\n-ERR no\r\n*-1\r\n$0\r\n\r\n+OK\r\n";

    #[test]
    fn counts_whatever_the_split() {
        for chunk_bytes in 1..=STREAM.len() {
            let mut scanner = ReplyScanner::new();
            let complete: usize = STREAM.chunks(chunk_bytes).map(|c| scanner.feed(c).unwrap()).sum();
            assert_eq!(complete, 9, "chunks of {chunk_bytes}");
            let tally = Tally { errors: 1, nils: 2, value_bytes: 6, first_error: Some("ERR no".into()) };
            assert_eq!(scanner.tally, tally);
        }
    }

    #[test]
    fn refuses_what_is_not_resp() {
        assert_eq!(ReplyScanner::new().feed(b"HTTP/1.1 400"), Err(b'H'));
    }
}

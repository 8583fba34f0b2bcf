//! Replies, written straight to the connection's output buffer in RESP2 or RESP3.

use stillframe_store::StrRef;

/// Appends replies to a buffer that lives as long as its connection.
pub struct Reply<'a> {
    pub out: &'a mut Vec<u8>,
    /// RESP3 (`HELLO 3`); otherwise RESP2.
    pub resp3: bool,
}

impl Reply<'_> {
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        push_decimal(self.out, number);
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string; `text` has no line break.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, code first. Line breaks become spaces.
    pub fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        self.out.extend(text.iter().map(|&b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn int(&mut self, number: i64) {
        match number {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => self.header(b':', number),
        }
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string that holds a decimal number.
    pub fn bulk_int(&mut self, number: i64) {
        let mut text = [0; 20];
        let text = decimal(&mut text, number);
        self.bulk(text);
    }

    /// A stored string as a bulk string, copied once.
    pub fn bulk_value(&mut self, value: &StrRef<'_>) {
        self.bulk_range(value, 0, value.len());
    }

    /// Bytes `start..end` of a stored string as a bulk string; the caller has clamped them.
    pub fn bulk_range(&mut self, value: &StrRef<'_>, start: u64, end: u64) {
        self.header(b'$', (end - start) as i64);
        value.chunks(start, end, |chunk| self.out.extend_from_slice(chunk));
        self.out.extend_from_slice(b"\r\n");
    }

    /// No such value: `_` in RESP3, a bulk string of length -1 in RESP2.
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// As [`Reply::null`], an array of length -1 in RESP2.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Header of an array; its elements follow.
    pub fn array(&mut self, element_count: usize) {
        self.header(b'*', element_count as i64);
    }

    /// Header of a map of so many pairs; a flat array in RESP2.
    pub fn map(&mut self, pair_count: usize) {
        if self.resp3 {
            self.header(b'%', pair_count as i64);
        } else {
            self.header(b'*', 2 * pair_count as i64);
        }
    }

    /// Header of a set; an array in RESP2.
    pub fn set(&mut self, element_count: usize) {
        self.header(if self.resp3 { b'~' } else { b'*' }, element_count as i64);
    }

    /// A floating point number, as Redis prints it (`%.17g`); a bulk string in RESP2.
    pub fn double_text(&mut self, text: &str) {
        if self.resp3 {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// A truth value; 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        if self.resp3 {
            self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.int(i64::from(value));
        }
    }

    /// Text for people (`txt`); a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        if self.resp3 {
            self.header(b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text);
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// The reply of a `HELP` subcommand: lines as simple strings, framed as Redis frames them.
    pub fn help(&mut self, command: &str, lines: &[&str]) {
        self.array(lines.len() + 3);
        self.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
        for line in lines {
            self.simple(line);
        }
        self.simple("HELP");
        self.simple("    Prints this help.");
    }
}

/// Appends a number in decimal.
pub fn push_decimal(out: &mut Vec<u8>, number: i64) {
    let mut text = [0; 20];
    let text = decimal(&mut text, number);
    out.extend_from_slice(text);
}

/// Writes a number in decimal to the end of `buf`.
pub fn decimal(buf: &mut [u8; 20], number: i64) -> &[u8] {
    let mut at = buf.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        buf[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        buf[at] = b'-';
    }
    &buf[at..]
}

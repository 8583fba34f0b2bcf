//! What is sent.

use std::ops::Range;

use crate::load::collections::{append_length, append_word};
use crate::load::values::mix;
use crate::load::Requests;

/// Entries that a group's reader asks for.
pub const READ_COUNT: u64 = 10;
/// Entries of a range.
const RANGE_COUNT: &[u8] = b"100";
/// A value of ten bytes, and one of eight.
const TEN: &[u8] = b"0123456789";
const EIGHT: &[u8] = b"01234567";
const FIELDS: [&[u8]; 5] = [b"field--a", b"field--b", b"field--c", b"field--d", b"field--e"];

fn append_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    append_length(out, b'*', words.len());
    words.iter().for_each(|word| append_word(out, word));
}

fn id(number: u64) -> Vec<u8> {
    format!("{number}-1").into_bytes()
}

/// What an entry has.
#[derive(Clone, Copy)]
pub enum Shape {
    /// A field, and a value of ten bytes.
    One,
    /// Five fields of eight bytes with as long values.
    Five,
}

/// `XADD`.
pub struct Add {
    shape: Shape,
    /// Entries a key, which is numbered then; `None`: one key.
    of_each: Option<u64>,
    /// The ID is the number of the entry, not the time.
    is_numbered: bool,
    limit: Option<u64>,
    sent: u64,
}

impl Add {
    /// To one stream, as long as it takes.
    pub fn endless() -> Add {
        Add { shape: Shape::One, of_each: None, is_numbered: false, limit: None, sent: 0 }
    }

    /// The entries from `1-1` to `N-1`.
    pub fn numbered(count: u64) -> Add {
        Add { is_numbered: true, limit: Some(count), ..Add::endless() }
    }

    /// So many to one stream.
    pub fn of_shape(shape: Shape, entries: Range<u64>) -> Add {
        Add { shape, limit: Some(entries.end - entries.start), ..Add::endless() }
    }

    /// Streams of three entries.
    pub fn threes(keys: Range<u64>) -> Add {
        let limit = Some(3 * (keys.end - keys.start));
        Add { of_each: Some(3), limit, sent: 3 * keys.start, ..Add::endless() }
    }
}

impl Requests for Add {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        let key =
            self.of_each.map_or_else(|| "stream".to_owned(), |each| format!("stream:{}", self.sent / each));
        let id = if self.is_numbered { id(self.sent + 1) } else { b"*".to_vec() };
        let mut words = vec![b"XADD", key.as_bytes(), &id];
        match self.shape {
            Shape::One => words.extend([b"field", TEN]),
            Shape::Five => FIELDS.iter().for_each(|field| words.extend([*field, EIGHT])),
        }
        append_words(out, &words);
        self.sent += 1;
    }

    fn request_count(&self) -> Option<u64> {
        self.limit
    }
}

/// `XRANGE` of a hundred from a random ID on.
pub struct Ranges {
    pub entry_count: u64,
    pub sent: u64,
}

impl Requests for Ranges {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        let from = id(1 + mix(self.sent) % self.entry_count);
        append_words(out, &[b"XRANGE", b"stream", &from, b"+", b"COUNT", RANGE_COUNT]);
        self.sent += 1;
    }

    fn request_count(&self) -> Option<u64> {
        None
    }
}

/// `XREADGROUP`, and `XACK` of what it has read, by turns; when all has been read the group begins anew. For one connection: what is
/// acknowledged is known from how many have been sent.
pub struct Consume {
    pub entry_count: u64,
    pub sent: u64,
}

impl Requests for Consume {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        let turns = self.entry_count / READ_COUNT;
        let (turn, step) = (self.sent / 2 % turns, self.sent % 2);
        match (turn, step) {
            (_, 1) => {
                let ids: Vec<_> = (1..=READ_COUNT).map(|number| id(turn * READ_COUNT + number)).collect();
                let mut words: Vec<&[u8]> = vec![b"XACK", b"stream", b"group"];
                words.extend(ids.iter().map(Vec::as_slice));
                append_words(out, &words);
            }
            (0, _) => append_words(out, &[b"EVAL", ANEW, b"1", b"stream"]),
            _ => append_read(out, READ_COUNT),
        }
        self.sent += 1;
    }

    fn request_count(&self) -> Option<u64> {
        None
    }
}

/// One request, so that the count of replies stays that of reads and acknowledgements.
const ANEW: &[u8] = b"redis.call('XGROUP', 'SETID', KEYS[1], 'group', '0')
return redis.call('XREADGROUP', 'GROUP', 'group', 'consumer', 'COUNT', '10', 'STREAMS', KEYS[1], '>')";

fn append_read(out: &mut Vec<u8>, count: u64) {
    let count = count.to_string();
    append_words(
        out,
        &[
            b"XREADGROUP",
            b"GROUP",
            b"group",
            b"consumer",
            b"COUNT",
            count.as_bytes(),
            b"STREAMS",
            b"stream",
            b">",
        ],
    );
}

/// `XREADGROUP` until all has been read.
pub struct Deliver {
    limit: u64,
}

impl Deliver {
    /// So many of those that no consumer has got.
    pub fn of(entries: Range<u64>) -> Deliver {
        Deliver { limit: (entries.end - entries.start).div_ceil(READ_COUNT) }
    }
}

impl Requests for Deliver {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        append_read(out, READ_COUNT);
    }

    fn request_count(&self) -> Option<u64> {
        Some(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::scan::ReplyScanner;

    #[test]
    fn requests_are_well_formed() {
        let (mut out, mut count) = (Vec::new(), 0);
        let mut take = |requests: &mut dyn Requests| {
            (0..50).for_each(|_| requests.append_request(&mut out));
            count += 50;
        };
        for add in [Add::endless(), Add::numbered(9), Add::of_shape(Shape::Five, 0..9), Add::threes(3..6)] {
            take(&mut { add });
        }
        take(&mut Ranges { entry_count: 10, sent: 0 });
        take(&mut Consume { entry_count: 40, sent: 0 });
        take(&mut Deliver::of(0..5));
        // Requests are arrays, which the scanner of replies counts as well.
        assert_eq!(ReplyScanner::new().feed(&out), Ok(count));
    }
}

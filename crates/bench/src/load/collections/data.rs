//! Which collections there are, and the names of their elements.

use crate::load::workload::{write_digits, KEY_BYTES, KEY_DIGITS};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Hash,
    /// A hash whose values are numbers
    Counters,
    Set,
    List,
    SortedSet,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Counters => "hash of numbers",
            Kind::Set => "set",
            Kind::List => "list",
            Kind::SortedSet => "sorted set",
        }
    }

    /// The command that says how many elements one has.
    pub fn count_command(self) -> &'static str {
        match self {
            Kind::Hash | Kind::Counters => "HLEN",
            Kind::Set => "SCARD",
            Kind::List => "LLEN",
            Kind::SortedSet => "ZCARD",
        }
    }
}

/// So many collections of one kind, with as many elements each. Their keys are those of strings: `key:` and twelve digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    pub kind: Kind,
    pub key_count: u64,
    /// Of each.
    pub element_count: u64,
    /// Of a field, a member or an item: a letter and digits at least.
    pub element_bytes: usize,
    /// Of a hash's values.
    pub value_bytes: usize,
}

const PREFIX: &[u8] = b"element:";
const DIGITS: usize = 12;

/// Elements of these sizes are redis-benchmark's, `element:` and twelve digits.
pub const LARGE_ELEMENT_BYTES: usize = PREFIX.len() + DIGITS;
const LARGE_VALUE_BYTES: usize = 20;
/// Elements of a small collection.
const SMALL_COUNT: u64 = 10;
const SMALL_ELEMENT_BYTES: usize = 6;
const SMALL_VALUE_BYTES: usize = 10;

impl Data {
    /// One collection with many elements of 20 B.
    pub fn one(kind: Kind, element_count: u64) -> Data {
        let (element_bytes, value_bytes) = (LARGE_ELEMENT_BYTES, LARGE_VALUE_BYTES);
        Data { kind, key_count: 1, element_count, element_bytes, value_bytes }
    }

    /// Many collections with ten elements each, of the sizes that give redis-server's bytes a key in the bars.
    pub fn many(kind: Kind, key_count: u64) -> Data {
        let (element_bytes, value_bytes) = (SMALL_ELEMENT_BYTES, SMALL_VALUE_BYTES);
        Data { kind, key_count, element_count: SMALL_COUNT, element_bytes, value_bytes }
    }

    /// The same with elements as large as those of the one.
    pub fn many_of_large(kind: Kind, key_count: u64) -> Data {
        Data { key_count, element_count: SMALL_COUNT, ..Data::one(kind, SMALL_COUNT) }
    }

    pub fn is_one(&self) -> bool {
        self.key_count == 1
    }

    /// How many different names elements can have.
    pub fn name_count(&self) -> u64 {
        10u64.pow(self.digits() as u32)
    }

    fn digits(&self) -> usize {
        DIGITS.min(self.element_bytes - 1)
    }

    pub fn append_element(&self, out: &mut Vec<u8>, index: u64) {
        let digits = self.digits();
        append_length(out, b'$', self.element_bytes);
        out.extend_from_slice(&PREFIX[..self.element_bytes - digits]);
        append_digits(out, index, digits);
        out.extend_from_slice(b"\r\n");
    }

    /// In words.
    pub fn line(&self) -> String {
        let elements = match self.kind {
            Kind::Hash => {
                format!("fields of {} B with values of {} B", self.element_bytes, self.value_bytes)
            }
            Kind::Counters => format!("fields of {} B with numbers", self.element_bytes),
            Kind::Set | Kind::List | Kind::SortedSet => format!("elements of {} B", self.element_bytes),
        };
        let keys = if self.is_one() { "key" } else { "keys" };
        format!("{} {keys} of {} {elements}", self.key_count, self.element_count)
    }
}

/// A number with a fixed number of digits.
pub fn append_digits(out: &mut Vec<u8>, number: u64, digits: usize) {
    let start = out.len();
    out.resize(start + digits, b'0');
    write_digits(&mut out[start..], number);
}

fn digit_count(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// The first line of an array (`*`) or of a word (`$`).
pub fn append_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    append_digits(out, length as u64, digit_count(length as u64));
    out.extend_from_slice(b"\r\n");
}

pub fn append_word(out: &mut Vec<u8>, word: &[u8]) {
    append_length(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

pub fn append_number(out: &mut Vec<u8>, number: u64) {
    let digits = digit_count(number);
    append_length(out, b'$', digits);
    append_digits(out, number, digits);
    out.extend_from_slice(b"\r\n");
}

pub fn append_command(out: &mut Vec<u8>, words: &[&str]) {
    append_length(out, b'*', words.len());
    words.iter().for_each(|word| append_word(out, word.as_bytes()));
}

/// As `key_name` has it.
pub fn append_key(out: &mut Vec<u8>, index: u64) {
    append_length(out, b'$', KEY_BYTES);
    out.extend_from_slice(b"key:");
    append_digits(out, index, KEY_DIGITS);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::workload::key_name;

    #[test]
    fn elements_have_their_size() {
        let mut out = Vec::new();
        Data::one(Kind::Set, 9).append_element(&mut out, 42);
        Data::many(Kind::Set, 9).append_element(&mut out, 7);
        assert_eq!(out, b"$20\r\nelement:000000000042\r\n$6\r\ne00007\r\n");
    }

    #[test]
    fn words_are_what_a_server_reads() {
        let mut out = Vec::new();
        append_key(&mut out, 1234);
        append_number(&mut out, 0);
        append_number(&mut out, 1_000_000);
        append_word(&mut out, b"hello");
        let expected = format!("$16\r\n{}\r\n$1\r\n0\r\n$7\r\n1000000\r\n$5\r\nhello\r\n", key_name(1234));
        assert_eq!(out, expected.as_bytes());
    }
}

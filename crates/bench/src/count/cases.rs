//! Which commands are counted, and on what data. A row for each.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::error::{BenchError, Result};
use crate::load::collections::{append_digits, append_length, append_word};
use crate::load::values::{mix, ValuePool};
use crate::load::Requests;

/// Of what is sent, and of what the server draws at random.
pub const SEED: u64 = 20_261_125;

/// A command with what it finds. In the lines, what stands in `<>` is made anew each time ([`Word`]).
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// Lines that fill the server, and how often each is sent.
    pub fills: &'static [(u64, &'static str)],
    pub line: &'static str,
}

/// Strings, keys of counters, and elements of a collection that others take from.
const STRINGS: u64 = 100_000;
const ELEMENTS: u64 = 40_000;
const SMALL_HASHES: u64 = 5_000;
const ITEMS: u64 = 40_000;

const fn case(name: &'static str, fills: &'static [(u64, &'static str)], line: &'static str) -> Case {
    Case { name, fills, line }
}

pub const ALL: [Case; 21] = [
    case("ping", &[], "PING"),
    case("get", &[(STRINGS, "SET <key> <value>")], "GET <key>"),
    case("set", &[(STRINGS, "SET <key> <value>")], "SET <key> <value>"),
    case("incr", &[(STRINGS, "SET <key> 1000")], "INCR <key>"),
    case("lpush", &[(ITEMS, "LPUSH list <value>")], "LPUSH list <value>"),
    case("rpop", &[(ITEMS, "LPUSH list <value>")], "RPOP list"),
    case("brpop", &[(ITEMS, "LPUSH list <value>")], "BRPOP list 0"),
    case(
        "lmove",
        &[(ITEMS, "LPUSH list <value>"), (ITEMS, "LPUSH other <value>")],
        "LMOVE list other RIGHT LEFT",
    ),
    case("lrange_100", &[(ITEMS, "LPUSH list <value>")], "LRANGE list 0 99"),
    case("zadd", &[(ELEMENTS, "ZADD sorted <score> <member>")], "ZADD sorted <score> <new>"),
    case("zpopmin", &[(ELEMENTS, "ZADD sorted <score> <member>")], "ZPOPMIN sorted"),
    case("hset_packed", &[(SMALL_HASHES, PACKED)], "HSET <hash> <field> <short>"),
    case("hset_large", &[(ELEMENTS, "HSET hash <member> <short>")], "HSET hash <new> <short>"),
    case("hset_large_over", &[(ELEMENTS, "HSET hash <member> <short>")], "HSET hash <member> <short>"),
    case("sadd", &[(ELEMENTS, "SADD set <member>")], "SADD set <new>"),
    case("spop", &[(ELEMENTS, "SADD set <member>")], "SPOP set"),
    case("xadd", &[(ELEMENTS, "XADD stream * field <short>")], "XADD stream * field <short>"),
    case("xrange_10", &[(ELEMENTS, "XADD stream * field <short>")], "XRANGE stream - + COUNT 10"),
    case("mset_10", &[(STRINGS, "SET <key> <value>")], MSET),
    case(
        "evalsha_one",
        &[(1, "SCRIPT LOAD return(1)")],
        "EVALSHA 930269f31393d0be681588b6ab08dccee7d6bb67 0",
    ),
    case(
        "evalsha_get",
        &[(STRINGS, "SET <key> <value>"), (1, "SCRIPT LOAD return(redis.call('GET',KEYS[1]))")],
        "EVALSHA bfef805d9dcd9d3857da9372933ef22c17736f58 1 <key>",
    ),
];

const PACKED: &str =
    "HSET <hash> field0 <short> field1 <short> field2 <short> field3 <short> field4 <short> \
                      field5 <short> field6 <short> field7 <short> field8 <short> field9 <short>";
const MSET: &str = "MSET <key> <value> <key> <value> <key> <value> <key> <value> <key> <value> \
                    <key> <value> <key> <value> <key> <value> <key> <value> <key> <value>";

const VALUE_BYTES: usize = 100;
const SHORT_VALUE_BYTES: usize = 20;
/// In the names of keys and of elements, after their prefix.
const DIGITS: usize = 12;

impl Case {
    pub fn named(name: &str) -> Result<Case> {
        ALL.into_iter().find(|case| case.name == name).ok_or_else(|| {
            let names = ALL.map(|case| case.name).join(", ");
            BenchError::Failed(format!("{name:?} is not counted, only {names}"))
        })
    }

    /// The streams that fill a server, with a share of the rows in `1 / share_of`.
    pub fn fills(&self, seed: u64, share_of: u64) -> Vec<Lines> {
        let fill = |&(count, line): &(u64, &'static str)| Lines {
            limit: Some((count / share_of).max(1)),
            ..Lines::new(line, seed, share_of)
        };
        self.fills.iter().map(fill).collect()
    }

    pub fn requests(&self, seed: u64, share_of: u64) -> Lines {
        Lines::new(self.line, mix(seed), share_of)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Text(&'static str),
    /// `prefix` and the digits of a number of that many: one after the other in a fill, drawn else.
    Numbered {
        prefix: &'static str,
        count: u64,
    },
    /// The same with the numbers after these.
    New {
        prefix: &'static str,
        count: u64,
    },
    Field,
    Value {
        byte_len: usize,
    },
    Score,
}

impl Word {
    fn of(text: &'static str, share_of: u64) -> Word {
        let numbered = |prefix, count| Word::Numbered { prefix, count: count / share_of };
        match text {
            "<key>" => numbered("key:", STRINGS),
            "<hash>" => numbered("hash:", SMALL_HASHES),
            "<member>" => numbered("element:", ELEMENTS),
            "<new>" => Word::New { prefix: "element:", count: ELEMENTS / share_of },
            "<field>" => Word::Field,
            "<value>" => Word::Value { byte_len: VALUE_BYTES },
            "<short>" => Word::Value { byte_len: SHORT_VALUE_BYTES },
            "<score>" => Word::Score,
            text => Word::Text(text),
        }
    }
}

/// A line over and over.
pub struct Lines {
    words: Vec<Word>,
    random: SmallRng,
    values: ValuePool,
    /// How many there are, if it is a fill.
    limit: Option<u64>,
    sent: u64,
}

const FIELDS: u64 = 10;
const SCORES: u64 = 1_000_000;

impl Lines {
    fn new(line: &'static str, seed: u64, share_of: u64) -> Lines {
        Lines {
            words: line.split_whitespace().map(|text| Word::of(text, share_of)).collect(),
            random: SmallRng::seed_from_u64(seed),
            values: ValuePool::new(seed, VALUE_BYTES, false),
            limit: None,
            sent: 0,
        }
    }

    fn append_numbered(out: &mut Vec<u8>, prefix: &str, number: u64) {
        append_length(out, b'$', prefix.len() + DIGITS);
        out.extend_from_slice(prefix.as_bytes());
        append_digits(out, number, DIGITS);
        out.extend_from_slice(b"\r\n");
    }

    fn append(&mut self, out: &mut Vec<u8>, word: Word) {
        match word {
            Word::Text(text) => append_word(out, text.as_bytes()),
            Word::Numbered { prefix, count } => {
                let number = match self.limit {
                    Some(_) => self.sent % count,
                    None => self.random.random_range(0..count),
                };
                Lines::append_numbered(out, prefix, number);
            }
            Word::New { prefix, count } => Lines::append_numbered(out, prefix, count + self.sent),
            Word::Field => {
                append_word(out, format!("field{}", self.random.random_range(0..FIELDS)).as_bytes())
            }
            Word::Value { byte_len } => {
                append_length(out, b'$', byte_len);
                self.values.append(out, self.sent, self.random.random(), byte_len);
                out.extend_from_slice(b"\r\n");
            }
            Word::Score => {
                append_word(out, self.random.random_range(0..SCORES).to_string().as_bytes());
            }
        }
    }
}

impl Requests for Lines {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        append_length(out, b'*', self.words.len());
        for at in 0..self.words.len() {
            self.append(out, self.words[at]);
        }
        self.sent += 1;
    }

    fn request_count(&self) -> Option<u64> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::scan::ReplyScanner;

    fn texts(mut lines: Lines, count: usize) -> Vec<Vec<String>> {
        let mut one = || {
            let mut out = Vec::new();
            lines.append_request(&mut out);
            // Requests are arrays, which the scanner of replies counts as well.
            assert_eq!(ReplyScanner::new().feed(&out), Ok(1));
            String::from_utf8_lossy(&out).lines().skip(2).step_by(2).map(str::to_owned).collect()
        };
        (0..count).map(|_| one()).collect()
    }

    #[test]
    fn all_are_well_formed_and_have_names_of_their_own() {
        for case in ALL {
            assert_eq!(Case::named(case.name).unwrap().line, case.line);
            texts(case.requests(1, 1), 100);
            case.fills(1, 1).into_iter().for_each(|fill| drop(texts(fill, 100)));
        }
        assert!(Case::named("flushall").is_err());
    }

    #[test]
    fn a_fill_has_each_number_once_and_requests_draw_them_alike_each_time() {
        let set = Case::named("set").unwrap();
        let fill = set.fills(1, 1000).remove(0);
        assert_eq!(fill.request_count(), Some(100));
        let keys: std::collections::BTreeSet<_> =
            texts(fill, 100).into_iter().map(|words| words[1].clone()).collect();
        assert_eq!((keys.len(), keys.last().unwrap().as_str()), (100, "key:000000000099"));
        let drawn = || texts(set.requests(1, 1000), 50);
        assert_eq!(drawn(), drawn());
        assert!(drawn().iter().all(|words| keys.contains(&words[1])));
        assert_ne!(drawn(), texts(set.requests(2, 1000), 50));
    }

    #[test]
    fn new_elements_are_not_among_those_of_the_fill() {
        let words = texts(Case::named("sadd").unwrap().requests(1, 1), 2);
        assert_eq!([&words[0][2], &words[1][2]], ["element:000000040000", "element:000000040001"]);
    }
}

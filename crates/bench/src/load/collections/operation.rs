//! Commands on random elements of collections that are there. A row for each command.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::data::{append_key, append_length, append_number, append_word, Data, Kind};
use crate::load::requests::Requests;
use crate::load::values::{mix, ValuePool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub name: &'static str,
    pub kind: Kind,
    words: &'static [Word],
    pub effect: Effect,
}

/// What becomes of the number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Stays,
    Grows,
    /// Each takes an element away, after as many that added one to the same keys.
    Shrinks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Text(&'static str),
    Key,
    /// One that is there.
    Element,
    /// One that hardly is.
    NewElement,
    Value,
    /// A number as large as there are elements: the score of another.
    Score,
    /// With so many elements behind it, and the last of these.
    Rank,
    RankOfLast,
    MiddleIndex,
    MiddleElement,
}

use self::Word::{
    Element, Key, MiddleElement, MiddleIndex, NewElement, Rank, RankOfLast, Score, Text, Value,
};

/// Elements of a range.
const RANGE: u64 = 100;

const fn row(name: &'static str, kind: Kind, words: &'static [Word]) -> Operation {
    Operation { name, kind, words, effect: Effect::Stays }
}

impl Operation {
    const fn that(self, effect: Effect) -> Operation {
        Operation { effect, ..self }
    }
}

/// Those that are compared. What shrinks a collection comes right behind what has made it grow.
pub const ALL: [Operation; 14] = [
    row("HSET", Kind::Hash, &[Text("HSET"), Key, Element, Value]),
    row("HGET", Kind::Hash, &[Text("HGET"), Key, Element]),
    row("HINCRBY", Kind::Counters, &[Text("HINCRBY"), Key, Element, Text("1")]),
    row("SISMEMBER", Kind::Set, &[Text("SISMEMBER"), Key, Element]),
    row("SADD", Kind::Set, &[Text("SADD"), Key, NewElement]).that(Effect::Grows),
    row("SPOP", Kind::Set, &[Text("SPOP"), Key]).that(Effect::Shrinks),
    // From the head, as redis-benchmark does.
    row("LRANGE_100", Kind::List, &[Text("LRANGE"), Key, Text("0"), Text("99")]),
    row("LPUSH", Kind::List, &[Text("LPUSH"), Key, Element]).that(Effect::Grows),
    row("RPOP", Kind::List, &[Text("RPOP"), Key]).that(Effect::Shrinks),
    row("ZADD", Kind::SortedSet, &[Text("ZADD"), Key, Score, Element]),
    row("ZINCRBY", Kind::SortedSet, &[Text("ZINCRBY"), Key, Text("1"), Element]),
    row("ZSCORE", Kind::SortedSet, &[Text("ZSCORE"), Key, Element]),
    row("ZRANK", Kind::SortedSet, &[Text("ZRANK"), Key, Element]),
    row("ZRANGE_100", Kind::SortedSet, &[Text("ZRANGE"), Key, Rank, RankOfLast]),
];

pub const LINDEX_MIDDLE: Operation = row("LINDEX", Kind::List, &[Text("LINDEX"), Key, MiddleIndex]);
/// Both the place and the pivot are in the middle.
pub const LINSERT_MIDDLE: Operation =
    row("LINSERT", Kind::List, &[Text("LINSERT"), Key, Text("BEFORE"), MiddleElement, Element])
        .that(Effect::Grows);

impl Operation {
    pub fn named(name: &str) -> Option<Operation> {
        ALL.into_iter().find(|operation| operation.name == name)
    }
}

/// A command over and over, on random keys and elements.
pub struct Operations {
    operation: Operation,
    data: Data,
    /// Those of keys do not depend on what is drawn beside: two commands with one seed meet the same keys.
    keys: SmallRng,
    elements: SmallRng,
    pool: Option<ValuePool>,
    rank: u64,
}

impl Operations {
    pub fn new(operation: Operation, data: Data, seed: u64) -> Operations {
        let pool = || ValuePool::new(seed, data.value_bytes, false);
        Operations {
            operation,
            data,
            keys: SmallRng::seed_from_u64(mix(seed)),
            elements: SmallRng::seed_from_u64(mix(seed ^ mix(1))),
            pool: operation.words.contains(&Value).then(pool),
            rank: 0,
        }
    }

    fn append(&mut self, out: &mut Vec<u8>, word: Word) {
        let data = self.data;
        match word {
            Text(text) => append_word(out, text.as_bytes()),
            Key => append_key(out, self.keys.random_range(0..data.key_count)),
            Element => data.append_element(out, self.elements.random_range(0..data.element_count)),
            NewElement => {
                let new = data.element_count..data.name_count();
                data.append_element(out, self.elements.random_range(new));
            }
            Value => self.append_value(out),
            Score => append_number(out, self.elements.random_range(0..data.element_count)),
            Rank => {
                let last_rank = data.element_count.saturating_sub(RANGE);
                self.rank = self.elements.random_range(0..=last_rank);
                append_number(out, self.rank);
            }
            RankOfLast => append_number(out, self.rank + RANGE - 1),
            MiddleIndex => append_number(out, data.element_count / 2),
            MiddleElement => data.append_element(out, data.element_count / 2),
        }
    }

    fn append_value(&mut self, out: &mut Vec<u8>) {
        let Some(pool) = &self.pool else { return };
        let nonce = self.elements.random::<u64>();
        append_length(out, b'$', self.data.value_bytes);
        pool.append(out, 0, nonce, self.data.value_bytes);
        out.extend_from_slice(b"\r\n");
    }
}

impl Requests for Operations {
    #[inline]
    fn append_request(&mut self, out: &mut Vec<u8>) {
        let words = self.operation.words;
        append_length(out, b'*', words.len());
        for word in words {
            self.append(out, *word);
        }
    }

    /// There is no end.
    fn request_count(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(operation: Operation, data: Data, count: usize) -> Vec<Vec<String>> {
        let mut operations = Operations::new(operation, data, 3);
        let line = |out: &[u8]| {
            let text = String::from_utf8_lossy(out).into_owned();
            text.lines().skip(2).step_by(2).map(str::to_owned).collect()
        };
        let mut one = || {
            let mut out = Vec::new();
            operations.append_request(&mut out);
            line(&out)
        };
        (0..count).map(|_| one()).collect()
    }

    fn named(name: &str) -> Operation {
        Operation::named(name).unwrap()
    }

    #[test]
    fn requests_say_what_their_rows_say() {
        let one = texts(named("ZRANGE_100"), Data::one(Kind::SortedSet, 100), 1);
        assert_eq!(one[0], ["ZRANGE", "key:000000000000", "0", "99"]);
        let middle = texts(LINSERT_MIDDLE, Data::one(Kind::List, 1000), 1);
        assert_eq!(middle[0][..4], ["LINSERT", "key:000000000000", "BEFORE", "element:000000000500"]);
    }

    /// So that no collection is emptied.
    #[test]
    fn what_takes_meets_the_keys_that_were_added_to() {
        for (adds, takes) in [("SADD", "SPOP"), ("LPUSH", "RPOP")] {
            let data = Data::many(named(adds).kind, 1000);
            let keys = |name| -> Vec<String> {
                texts(named(name), data, 200).into_iter().map(|mut words| words.remove(1)).collect()
            };
            assert_eq!(keys(adds), keys(takes));
        }
    }

    #[test]
    fn new_members_are_new() {
        let data = Data::many(Kind::Set, 10);
        assert!(texts(named("SADD"), data, 500).iter().all(|words| words[2].as_str() > "e00009"));
    }
}

//! What fills collections.

use super::data::{append_key, append_length, append_number, append_word, Data, Kind};
use crate::load::requests::Requests;
use crate::load::values::ValuePool;
use crate::load::workload::Permutation;

/// Elements of one command: enough for its own cost not to matter, few enough for nobody to wait for it.
const ELEMENTS_AT_ONCE: u64 = 100;

/// Each element of each collection once, in random order; items of a list in their own.
pub struct Fill {
    data: Data,
    keys: Permutation,
    elements: Permutation,
    pool: ValuePool,
    /// Commands for one collection.
    steps_per_key: u64,
    next: u64,
}

impl Fill {
    pub fn new(data: Data, seed: u64) -> Fill {
        Fill {
            data,
            keys: Permutation::new(data.key_count, seed),
            elements: Permutation::new(data.element_count, seed),
            pool: ValuePool::new(seed, data.value_bytes, false),
            steps_per_key: data.element_count.div_ceil(ELEMENTS_AT_ONCE),
            next: 0,
        }
    }

    fn command(&self) -> &'static str {
        match self.data.kind {
            Kind::Hash | Kind::Counters => "HSET",
            Kind::Set => "SADD",
            Kind::List => "RPUSH",
            Kind::SortedSet => "ZADD",
        }
    }

    fn words_per_element(&self) -> u64 {
        match self.data.kind {
            Kind::Hash | Kind::Counters | Kind::SortedSet => 2,
            Kind::Set | Kind::List => 1,
        }
    }

    fn append_element(&self, out: &mut Vec<u8>, place: u64) {
        let data = &self.data;
        let index = if data.kind == Kind::List { place } else { self.elements.at(place) };
        if data.kind == Kind::SortedSet {
            append_number(out, index);
        }
        data.append_element(out, index);
        match data.kind {
            Kind::Counters => append_number(out, index),
            Kind::Hash => {
                append_length(out, b'$', data.value_bytes);
                self.pool.append(out, index, index, data.value_bytes);
                out.extend_from_slice(b"\r\n");
            }
            Kind::Set | Kind::List | Kind::SortedSet => {}
        }
    }
}

impl Requests for Fill {
    fn append_request(&mut self, out: &mut Vec<u8>) {
        let (key, step) = (self.next / self.steps_per_key, self.next % self.steps_per_key);
        self.next += 1;
        let first = step * ELEMENTS_AT_ONCE;
        let end = (first + ELEMENTS_AT_ONCE).min(self.data.element_count);
        let word_count = 2 + (end - first) * self.words_per_element();
        append_length(out, b'*', word_count as usize);
        append_word(out, self.command().as_bytes());
        append_key(out, self.keys.at(key % self.data.key_count));
        (first..end).for_each(|place| self.append_element(out, place));
    }

    fn request_count(&self) -> Option<u64> {
        Some(self.data.key_count * self.steps_per_key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::load::scan::ReplyScanner;

    /// Requests are arrays, which the scanner of replies counts as well.
    fn sent(data: Data) -> Vec<u8> {
        let mut fill = Fill::new(data, 7);
        let mut out = Vec::new();
        let count = fill.request_count().unwrap();
        (0..count).for_each(|_| fill.append_request(&mut out));
        assert_eq!(ReplyScanner::new().feed(&out), Ok(count as usize));
        out
    }

    #[test]
    fn each_element_is_sent_once() {
        let text = String::from_utf8(sent(Data::one(Kind::Set, 1234))).unwrap();
        let elements: BTreeSet<&str> = text.lines().filter(|line| line.starts_with("element:")).collect();
        assert_eq!((elements.len(), text.matches("element:").count()), (1234, 1234));
        let text = String::from_utf8(sent(Data::many(Kind::SortedSet, 50))).unwrap();
        let keys: BTreeSet<&str> = text.lines().filter(|line| line.starts_with("key:")).collect();
        assert_eq!((keys.len(), text.matches("\r\ne0000").count()), (50, 500));
    }

    #[test]
    fn items_of_a_list_are_in_order() {
        let text = String::from_utf8(sent(Data::one(Kind::List, 250))).unwrap();
        let items: Vec<&str> = text.lines().filter(|line| line.starts_with("element:")).collect();
        assert!(items.is_sorted() && items.len() == 250);
    }

    #[test]
    fn hashes_have_values() {
        for kind in [Kind::Hash, Kind::Counters] {
            assert!(sent(Data::one(kind, 3)).starts_with(b"*8\r\n$4\r\nHSET\r\n$16\r\nkey:000000000000\r\n"));
        }
    }
}

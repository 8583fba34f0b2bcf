//! What two databases hold after commands of all types: a model that takes the commands themselves, so that what is sent and
//! what is expected cannot part.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use stillframe_testkit::Reply;

use crate::log_streams::{self, Stream};

/// A command as it is sent.
pub type Words = Vec<Vec<u8>>;

/// A field's value and its deadline in milliseconds since 1970.
pub type Field = (String, Option<i64>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Text(Arc<Vec<u8>>),
    Hash(BTreeMap<String, Field>),
    List(VecDeque<String>),
    Set(BTreeSet<String>),
    Sorted(BTreeMap<String, i64>),
    Stream(Stream),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub value: Value,
    pub deadline_ms: Option<i64>,
}

/// One database.
pub type Space = BTreeMap<String, Entry>;

/// Two databases with neighbouring numbers, of one client.
#[derive(Clone, Default, Debug)]
pub struct Data {
    pub dbs: [Space; 2],
    /// The one that is selected.
    pub at: usize,
    /// Keys that commands may have changed since this was taken; see [`Data::take_touched`].
    touched: Vec<(usize, String)>,
    touches_all: bool,
}

/// What has to be compared anew.
pub enum Touched {
    All,
    Keys(Vec<(usize, String)>),
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn number(word: &[u8]) -> i64 {
    text(word).parse().unwrap_or_else(|_| panic!("{:?} is not a number", text(word)))
}

fn int(count: usize) -> Option<Reply> {
    Some(Reply::Int(count as i64))
}

fn bulk(item: Option<String>) -> Option<Reply> {
    Some(item.map_or(Reply::NullBulk, |item| Reply::Bulk(item.into_bytes())))
}

/// Without what is over at `at_ms`; none if nothing is left.
pub fn at_time(entry: Option<&Entry>, at_ms: i64) -> Option<Entry> {
    let is_over = |deadline_ms: Option<i64>| deadline_ms.is_some_and(|deadline_ms| deadline_ms <= at_ms);
    let mut entry = entry.filter(|entry| !is_over(entry.deadline_ms))?.clone();
    if let Value::Hash(fields) = &mut entry.value {
        fields.retain(|_, field| !is_over(field.1));
        return (!fields.is_empty()).then_some(entry);
    }
    Some(entry)
}

/// From the first index to the last, which may count from the end.
fn range(len: usize, first: i64, last: i64) -> std::ops::Range<usize> {
    let place = |index: i64| if index < 0 { index + len as i64 } else { index };
    let first = place(first).clamp(0, len as i64);
    let last = place(last).min(len as i64 - 1);
    first as usize..(last + 1).max(first) as usize
}

/// Access to the values of a type, made where there is none.
macro_rules! value_of {
    ($name:ident, $kind:ident, $type:ty) => {
        fn $name(&mut self, key: &[u8]) -> &mut $type {
            let entry = self.entry(key, || Value::$kind(<$type>::default()));
            match &mut entry.value {
                Value::$kind(value) => value,
                other => panic!("another type: {other:?}"),
            }
        }
    };
}

impl Data {
    value_of!(hash, Hash, BTreeMap<String, Field>);
    value_of!(list, List, VecDeque<String>);
    value_of!(set, Set, BTreeSet<String>);
    value_of!(sorted, Sorted, BTreeMap<String, i64>);
    value_of!(string, Text, Arc<Vec<u8>>);
    value_of!(stream, Stream, Stream);

    fn entry(&mut self, key: &[u8], new: impl FnOnce() -> Value) -> &mut Entry {
        let entry = self.space().entry(text(key));
        entry.or_insert_with(|| Entry { value: new(), deadline_ms: None })
    }

    pub fn space(&mut self) -> &mut Space {
        &mut self.dbs[self.at]
    }

    pub fn take_touched(&mut self) -> Touched {
        let keys = std::mem::take(&mut self.touched);
        match std::mem::take(&mut self.touches_all) {
            true => Touched::All,
            false => Touched::Keys(keys),
        }
    }

    fn touch(&mut self, key: &[u8]) {
        self.touched.push((self.at, text(key)));
    }

    /// Removes what certainly has expired before `at_ms`.
    pub fn purge(&mut self, at_ms: i64) {
        for db in 0..2 {
            let mut gone = Vec::new();
            for (key, entry) in &self.dbs[db] {
                let left = at_time(Some(entry), at_ms);
                if left.as_ref() != Some(entry) {
                    gone.push((key.clone(), left));
                }
            }
            for (key, left) in gone {
                match left {
                    Some(entry) => drop(self.dbs[db].insert(key.clone(), entry)),
                    None => drop(self.dbs[db].remove(&key)),
                }
                self.touched.push((db, key));
            }
        }
    }

    /// Runs a command; returns its reply, or none where it may be anything but an error.
    pub fn run(&mut self, words: &Words) -> Option<Reply> {
        let name = text(&words[0]);
        // Whatever may be a key is one that may have changed.
        if words.len() > 1 && !matches!(&name[..], "SELECT" | "SWAPDB" | "FLUSHDB" | "MSET") {
            self.touch(&words[1]);
        }
        let key = words.get(1).map_or(&b""[..], |word| word);
        let rest = words.get(2..).unwrap_or_default();
        let reply = match &name[..] {
            "SELECT" | "SWAPDB" | "FLUSHDB" => self.run_on_databases(&name, words),
            "SET" | "MSET" | "APPEND" | "SETRANGE" | "INCRBY" | "GETDEL" | "GETSET" => {
                self.run_on_text(&name, key, rest, words)
            }
            "RENAME" | "COPY" | "MOVE" | "DEL" | "PEXPIREAT" | "PERSIST" | "RESTORE-AS" => {
                self.run_on_key(&name, key, rest)
            }
            _ if name.starts_with('X') => {
                let key = log_streams::key_of(words).to_vec();
                self.touch(&key);
                self.stream(&key).run(words)
            }
            _ if name.starts_with('H') => self.run_on_hash(&name, key, rest),
            _ if name.starts_with('Z') => self.run_on_sorted(&name, key, rest),
            "SADD" | "SREM" | "SMOVE" | "SUNIONSTORE" | "SDIFFSTORE" => self.run_on_set(&name, key, rest),
            _ => self.run_on_list(&name, key, rest),
        };
        self.drop_empty(words);
        reply
    }

    /// Collections without elements are none.
    fn drop_empty(&mut self, words: &[Vec<u8>]) {
        for word in words.iter().skip(1) {
            let key = text(word);
            let is_empty = |entry: &Entry| match &entry.value {
                Value::Text(_) | Value::Stream(_) => false,
                Value::Hash(fields) => fields.is_empty(),
                Value::List(items) => items.is_empty(),
                Value::Set(members) => members.is_empty(),
                Value::Sorted(members) => members.is_empty(),
            };
            if self.space().get(&key).is_some_and(is_empty) {
                self.space().remove(&key);
            }
        }
    }

    fn run_on_databases(&mut self, name: &str, words: &[Vec<u8>]) -> Option<Reply> {
        match name {
            "SELECT" => self.at = (number(&words[1]) % 2) as usize,
            "SWAPDB" => {
                self.dbs.swap(0, 1);
                self.touches_all = true;
            }
            _ => {
                self.space().clear();
                self.touches_all = true;
            }
        }
        Some(Reply::ok())
    }

    fn put(&mut self, key: &[u8], value: &[u8], deadline_ms: Option<i64>) {
        let value = Value::Text(Arc::new(value.to_vec()));
        self.space().insert(text(key), Entry { value, deadline_ms });
    }

    fn run_on_text(&mut self, name: &str, key: &[u8], rest: &[Vec<u8>], words: &[Vec<u8>]) -> Option<Reply> {
        match name {
            "SET" => {
                let kept = self.space().get(&text(key)).and_then(|entry| entry.deadline_ms);
                let deadline_ms = match rest.get(1).map(|word| text(word)).as_deref() {
                    Some("PXAT") => Some(number(&rest[2])),
                    Some("KEEPTTL") => kept,
                    _ => None,
                };
                self.put(key, &rest[0], deadline_ms);
                Some(Reply::ok())
            }
            "MSET" => {
                for pair in words[1..].chunks(2) {
                    self.touch(&pair[0]);
                    self.put(&pair[0], &pair[1], None);
                }
                Some(Reply::ok())
            }
            "APPEND" => {
                let value = Arc::make_mut(self.string(key));
                value.extend_from_slice(&rest[0]);
                int(value.len())
            }
            "SETRANGE" => {
                let value = Arc::make_mut(self.string(key));
                let end = number(&rest[0]) as usize + rest[1].len();
                value.resize(end.max(value.len()), 0);
                value[end - rest[1].len()..end].copy_from_slice(&rest[1]);
                int(value.len())
            }
            "INCRBY" => {
                let value = Arc::make_mut(self.string(key));
                let sum = if value.is_empty() { 0 } else { number(value) } + number(&rest[0]);
                *value = sum.to_string().into_bytes();
                Some(Reply::Int(sum))
            }
            _ => {
                let before = self.space().remove(&text(key));
                if name == "GETSET" {
                    self.put(key, &rest[0], None);
                }
                Some(match before.map(|entry| entry.value) {
                    Some(Value::Text(value)) => Reply::Bulk(value.to_vec()),
                    _ => Reply::NullBulk,
                })
            }
        }
    }

    fn run_on_key(&mut self, name: &str, key: &[u8], rest: &[Vec<u8>]) -> Option<Reply> {
        let from = text(key);
        match name {
            "DEL" => {
                rest.iter().for_each(|key| self.touch(key));
                let keys = std::iter::once(from).chain(rest.iter().map(|word| text(word)));
                let gone = keys.filter(|key| self.space().remove(key).is_some()).count();
                int(gone)
            }
            "RENAME" => {
                self.touch(&rest[0]);
                let entry = self.space().remove(&from).expect("a key that is there");
                self.space().insert(text(&rest[0]), entry);
                Some(Reply::ok())
            }
            // COPY from to DB n REPLACE
            "COPY" => {
                let to = (number(&rest[2]) % 2) as usize;
                let entry = self.space()[&from].clone();
                self.dbs[to].insert(text(&rest[0]), entry);
                self.touched.push((to, text(&rest[0])));
                int(1)
            }
            "MOVE" => {
                let to = (number(&rest[0]) % 2) as usize;
                let is_free = to != self.at && !self.dbs[to].contains_key(&from);
                if let Some(entry) = is_free.then(|| self.space().remove(&from)).flatten() {
                    self.dbs[to].insert(from.clone(), entry);
                    self.touched.push((to, from));
                    return int(1);
                }
                int(0)
            }
            // RESTORE-AS to from: what DUMP has said of `from` before.
            "RESTORE-AS" => {
                let Entry { value, .. } = self.space()[&text(&rest[0])].clone();
                self.space().insert(from, Entry { value, deadline_ms: None });
                Some(Reply::ok())
            }
            "PERSIST" => {
                let deadline_ms = self.space().get_mut(&from).and_then(|entry| entry.deadline_ms.take());
                int(usize::from(deadline_ms.is_some()))
            }
            _ => {
                let deadline_ms = number(&rest[0]);
                let Some(entry) = self.space().get_mut(&from) else { return int(0) };
                entry.deadline_ms = Some(deadline_ms);
                if deadline_ms < 1000 {
                    self.space().remove(&from);
                }
                int(1)
            }
        }
    }

    fn run_on_hash(&mut self, name: &str, key: &[u8], rest: &[Vec<u8>]) -> Option<Reply> {
        let fields = self.hash(key);
        match name {
            "HSET" => {
                let pairs = rest.chunks(2).map(|pair| (text(&pair[0]), (text(&pair[1]), None)));
                int(pairs
                    .filter(|(field, value)| fields.insert(field.clone(), value.clone()).is_none())
                    .count())
            }
            "HDEL" => int(rest.iter().filter(|field| fields.remove(&text(field)).is_some()).count()),
            "HINCRBY" => {
                let value = &mut fields.entry(text(&rest[0])).or_insert_with(|| ("0".to_owned(), None)).0;
                let sum = number(value.as_bytes()) + number(&rest[1]);
                *value = sum.to_string();
                Some(Reply::Int(sum))
            }
            // HPEXPIREAT key deadline FIELDS 1 field, HPERSIST key FIELDS 1 field
            _ => {
                let field = text(&rest[rest.len() - 1]);
                let deadline_ms = (name == "HPEXPIREAT").then(|| number(&rest[0]));
                if deadline_ms.is_some_and(|deadline_ms| deadline_ms < 1000) {
                    fields.remove(&field);
                } else if let Some(field) = fields.get_mut(&field) {
                    field.1 = deadline_ms;
                }
                None
            }
        }
    }

    fn run_on_sorted(&mut self, name: &str, key: &[u8], rest: &[Vec<u8>]) -> Option<Reply> {
        if name == "ZUNIONSTORE" {
            // ZUNIONSTORE to 2 a b
            let mut sums = BTreeMap::new();
            for from in &rest[1..3] {
                for (member, score) in self.sorted(from).clone() {
                    *sums.entry(member).or_insert(0) += score;
                }
            }
            let count = sums.len();
            self.space().insert(text(key), Entry { value: Value::Sorted(sums), deadline_ms: None });
            return int(count);
        }
        let members = self.sorted(key);
        match name {
            "ZADD" => {
                let pairs = rest.chunks(2).map(|pair| (text(&pair[1]), number(&pair[0])));
                int(pairs.filter(|(member, score)| members.insert(member.clone(), *score).is_none()).count())
            }
            "ZREM" => int(rest.iter().filter(|member| members.remove(&text(member)).is_some()).count()),
            "ZINCRBY" => {
                let score = members.entry(text(&rest[1])).or_insert(0);
                *score += number(&rest[0]);
                Some(Reply::Bulk(score.to_string().into_bytes()))
            }
            _ => {
                let least = members.iter().min_by_key(|(member, score)| (**score, member.as_bytes()));
                let least = least.map(|(member, score)| (member.clone(), *score));
                let Some((member, score)) = least else { return Some(Reply::Array(Vec::new())) };
                members.remove(&member);
                let reply = [member, score.to_string()].map(|text| Reply::Bulk(text.into_bytes()));
                Some(Reply::Array(reply.to_vec()))
            }
        }
    }

    fn run_on_set(&mut self, name: &str, key: &[u8], rest: &[Vec<u8>]) -> Option<Reply> {
        match name {
            "SADD" => {
                let members = self.set(key);
                int(rest.iter().filter(|member| members.insert(text(member))).count())
            }
            "SREM" => {
                let members = self.set(key);
                int(rest.iter().filter(|member| members.remove(&text(member))).count())
            }
            // SMOVE from to member
            "SMOVE" => {
                self.touch(&rest[0]);
                let is_there = self.set(key).remove(&text(&rest[1]));
                if is_there {
                    self.set(&rest[0]).insert(text(&rest[1]));
                }
                int(usize::from(is_there))
            }
            _ => {
                let (one, other) = (self.set(&rest[0]).clone(), self.set(&rest[1]).clone());
                let members: BTreeSet<String> = match name {
                    "SUNIONSTORE" => one.union(&other).cloned().collect(),
                    _ => one.difference(&other).cloned().collect(),
                };
                let count = members.len();
                self.space().insert(text(key), Entry { value: Value::Set(members), deadline_ms: None });
                int(count)
            }
        }
    }

    fn run_on_list(&mut self, name: &str, key: &[u8], rest: &[Vec<u8>]) -> Option<Reply> {
        if name == "LMOVE" {
            self.touch(&rest[0]);
            let items = self.list(key);
            let item = if rest[1] == b"LEFT" { items.pop_front() } else { items.pop_back() };
            if let Some(item) = &item {
                let to = self.list(&rest[0]);
                match &rest[2][..] {
                    b"LEFT" => to.push_front(item.clone()),
                    _ => to.push_back(item.clone()),
                }
            }
            return bulk(item);
        }
        let items = self.list(key);
        match name {
            "RPUSH" => items.extend(rest.iter().map(|item| text(item))),
            "LPUSH" => rest.iter().for_each(|item| items.push_front(text(item))),
            "LPOP" => return bulk(items.pop_front()),
            "RPOP" => return bulk(items.pop_back()),
            "LTRIM" => {
                let kept = range(items.len(), number(&rest[0]), number(&rest[1]));
                *items = items.range(kept).cloned().collect();
                return Some(Reply::ok());
            }
            "LSET" => {
                items[number(&rest[0]) as usize] = text(&rest[1]);
                return Some(Reply::ok());
            }
            // LINSERT key BEFORE pivot item
            "LINSERT" => {
                let Some(at) = items.iter().position(|item| *item == text(&rest[1])) else {
                    return Some(Reply::Int(if items.is_empty() { 0 } else { -1 }));
                };
                items.insert(at, text(&rest[2]));
            }
            "LREM" => {
                let before = items.len();
                items.retain(|item| *item != text(&rest[1]));
                return int(before - items.len());
            }
            other => panic!("the model does not know {other}"),
        }
        int(items.len())
    }
}

//! What a file holds, as `keys.txt` says it.

use std::collections::{BTreeMap, BTreeSet};

pub type Bytes = Vec<u8>;

/// Databases, named trees and function libraries.
pub struct Data {
    pub keys: Vec<Key>,
    pub trees: BTreeMap<Bytes, BTreeMap<Bytes, Bytes>>,
    /// Sources by names.
    pub libraries: BTreeMap<String, Bytes>,
}

#[derive(Clone)]
pub struct Key {
    pub db: u32,
    pub name: Bytes,
    pub encoding: String,
    pub deadline_ms: Option<i64>,
    pub content: Content,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    String(Bytes),
    List(Vec<Bytes>),
    Set(BTreeSet<Bytes>),
    /// Scores as Redis writes them.
    SortedSet(BTreeMap<Bytes, Bytes>),
    /// With the deadlines of fields, in milliseconds since 1970.
    Hash(BTreeMap<Bytes, (Bytes, Option<i64>)>),
    /// IDs, each with a field and its value. A consumer of a group has got the first two entries.
    Stream(Vec<(String, Bytes, Bytes)>),
}

impl Content {
    pub fn type_name(&self) -> &'static str {
        match self {
            Content::String(_) => "string",
            Content::List(_) => "list",
            Content::Set(_) => "set",
            Content::SortedSet(_) => "zset",
            Content::Hash(_) => "hash",
            Content::Stream(_) => "stream",
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Content::String(bytes) => bytes.len(),
            Content::List(items) => items.len(),
            Content::Set(members) => members.len(),
            Content::SortedSet(members) => members.len(),
            Content::Hash(fields) => fields.len(),
            Content::Stream(entries) => entries.len(),
        }
    }

    pub fn has_field_deadlines(&self) -> bool {
        matches!(self, Content::Hash(fields) if fields.values().any(|(_, deadline_ms)| deadline_ms.is_some()))
    }
}

impl Data {
    pub fn parse(text: &str) -> Data {
        let mut data = Data { keys: Vec::new(), trees: BTreeMap::new(), libraries: BTreeMap::new() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["tree", name, ref records @ ..] => {
                    let records = elements(records).map(|record| pair(&record));
                    let is_new = data.trees.insert(only(name), records.collect()).is_none();
                    assert!(is_new, "{line}");
                }
                ["library", name, source] => {
                    let is_new = data.libraries.insert(name.to_owned(), only(source)).is_none();
                    assert!(is_new, "{line}");
                }
                [db, value_type, encoding, name, deadline, ref content @ ..] => {
                    let [db, deadline_ms] = [number(db), number(deadline)];
                    let db = u32::try_from(db.expect("a database")).expect("a small number");
                    let keys = expand(name).into_iter().enumerate().map(|(index, name)| {
                        let all = content.iter().flat_map(|word| expand(word));
                        let own = |word: &str| expand(word).swap_remove(index);
                        let elements = match value_type {
                            // A key that counts has the value of the same index.
                            "string" => vec![own(content[0])],
                            _ => all.collect(),
                        };
                        let content = Content::of(value_type, elements);
                        Key { db, name: bytes(&name), encoding: encoding.into(), deadline_ms, content }
                    });
                    data.keys.extend(keys);
                }
                _ => panic!("{line}"),
            }
        }
        data
    }

    pub fn of_database(&self, db: u32) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.db == db)
    }

    pub fn databases(&self) -> BTreeSet<u32> {
        self.keys.iter().map(|key| key.db).collect()
    }
}

impl Content {
    fn of(value_type: &str, elements: Vec<String>) -> Content {
        let count = elements.len();
        let elements = elements.into_iter();
        let content = match value_type {
            "string" => return Content::String(elements.map(|value| bytes(&value)).next().expect("a value")),
            "list" => Content::List(elements.map(|item| bytes(&item)).collect()),
            "set" => Content::Set(elements.map(|member| bytes(&member)).collect()),
            "zset" => Content::SortedSet(elements.map(|member| pair(&member)).collect()),
            "hash" => Content::Hash(elements.map(|field| timed(&field)).collect()),
            "stream" => Content::Stream(elements.map(|entry| entry_of(&entry)).collect()),
            other => panic!("{other} is no type"),
        };
        assert_eq!(content.len(), count, "a {value_type} has an element twice");
        content
    }
}

/// None for `never`.
fn number(word: &str) -> Option<i64> {
    (word != "never").then(|| word.parse().unwrap_or_else(|_| panic!("{word} is no number")))
}

fn elements<'w>(words: &'w [&str]) -> impl Iterator<Item = String> + 'w {
    words.iter().flat_map(|word| expand(word))
}

fn only(word: &str) -> Bytes {
    bytes(&expand(word)[0])
}

/// `name=value`
fn pair(text: &str) -> (Bytes, Bytes) {
    let (name, value) = text.split_once('=').unwrap_or_else(|| panic!("{text} is no pair"));
    (bytes(name), bytes(value))
}

/// `id:name=value`
fn entry_of(text: &str) -> (String, Bytes, Bytes) {
    let (id, text) = text.split_once(':').unwrap_or_else(|| panic!("{text} is no entry"));
    let (field, value) = pair(text);
    (id.to_owned(), field, value)
}

/// `name=value` or `name=value@deadline`
fn timed(text: &str) -> (Bytes, (Bytes, Option<i64>)) {
    let (text, deadline) = text.split_once('@').unwrap_or((text, "never"));
    let (name, value) = pair(text);
    (name, (value, number(deadline)))
}

/// A word with all that its braces stand for: as many words as its ranges have numbers, side by side.
fn expand(word: &str) -> Vec<String> {
    let (mut rest, mut words) = (word, vec![String::new()]);
    while let Some((before, within)) = rest.split_once('{') {
        let (braces, after) = within.split_once('}').expect("a brace is closed");
        let parts: Vec<String> = match (braces.split_once(".."), braces.split_once('*')) {
            (Some((first, last)), _) => {
                let [from, to] = [first, last].map(|number| number.parse::<u64>().expect("a number"));
                (from..=to).map(|number| format!("{number:0width$}", width = first.len())).collect()
            }
            (None, Some((text, count))) => vec![text.repeat(count.parse().expect("a number"))],
            _ => panic!("{braces} is neither a range nor a repetition"),
        };
        if words.len() == 1 {
            words.resize(parts.len(), words[0].clone());
        }
        assert!(parts.len() == 1 || parts.len() == words.len(), "{word}: ranges of two lengths");
        for (word, part) in words.iter_mut().zip(parts.iter().cycle()) {
            *word += before;
            *word += part;
        }
        rest = after;
    }
    words.iter_mut().for_each(|word| *word += rest);
    words
}

/// Without escapes; two quotes are nothing.
fn bytes(text: &str) -> Bytes {
    if text == "\"\"" {
        return Bytes::new();
    }
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).expect("two digits"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

#[test]
fn braces_and_escapes() {
    assert_eq!(expand("a{1..3}-{01..03}{x*2}"), ["a1-01xx", "a2-02xx", "a3-03xx"]);
    assert_eq!(expand("{x*3}y"), ["xxxy"]);
    assert_eq!(expand("{x*2}{8..10}"), ["xx8", "xx9", "xx10"]);
    assert_eq!(bytes("a\\x00\\xffb"), b"a\0\xffb");
    assert_eq!(bytes("\"\""), b"");
    let data = Data::parse("# words\n3 hash listpack h{1..2} never a{1..2}=b@5\ntree t k=\n");
    assert_eq!(data.keys.len(), 2);
    let fields = [(b"a1".to_vec(), (b"b".to_vec(), Some(5))), (b"a2".to_vec(), (b"b".to_vec(), Some(5)))];
    assert!(data.keys.iter().all(|key| key.db == 3 && key.content == Content::Hash(fields.clone().into())));
    assert_eq!(data.trees[&b"t"[..]], [(b"k".to_vec(), Bytes::new())].into());
}

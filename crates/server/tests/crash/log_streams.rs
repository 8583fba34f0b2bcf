//! Streams in the model: their entries, and one group with what is pending of it.

use std::collections::BTreeMap;
use std::str::FromStr;

use stillframe_testkit::Reply;

use crate::log_found::text;
use crate::log_model::Words;
use crate::process::Client;

/// The group of each stream that has one.
pub const GROUP: &str = "group";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Id(pub u64, pub u64);

impl FromStr for Id {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Id, Self::Err> {
        let (ms, seq) = text.split_once('-').unwrap_or((text, "0"));
        Ok(Id(ms.parse()?, seq.parse()?))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// The consumer that has got an entry, and how often.
type Pending = (String, i64);

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Group {
    pub last: Id,
    pub pending: BTreeMap<Id, Pending>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stream {
    /// A field and its value, a field, ...
    pub entries: BTreeMap<Id, Vec<String>>,
    pub last: Id,
    pub group: Option<Group>,
}

fn word(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn id(word: &[u8]) -> Id {
    String::from_utf8_lossy(word).parse().expect("an ID")
}

fn number(text: &[u8]) -> usize {
    word(text).parse().expect("a number")
}

/// The key of a command on streams.
pub fn key_of(words: &[Vec<u8>]) -> &[u8] {
    match &words[0][..] {
        b"XGROUP" => &words[2],
        b"XREADGROUP" => &words[words.len() - 2],
        _ => &words[1],
    }
}

fn int(count: usize) -> Option<Reply> {
    Some(Reply::Int(count as i64))
}

impl Stream {
    /// Runs a command; its reply, or none where it may be anything but an error.
    pub fn run(&mut self, words: &Words) -> Option<Reply> {
        match &words[0][..] {
            b"XADD" => Some(self.add(words)),
            b"XTRIM" => int(self.trim(number(&words[3]))),
            b"XDEL" => int(words[2..].iter().filter(|word| self.entries.remove(&id(word)).is_some()).count()),
            // XGROUP CREATE key group 0 MKSTREAM, XGROUP DESTROY key group
            b"XGROUP" if words[1] == b"CREATE" => {
                self.group = Some(Group::default());
                Some(Reply::ok())
            }
            b"XGROUP" => int(usize::from(self.group.take().is_some())),
            b"XACK" => {
                let group = self.group.as_mut().expect("a group");
                int(words[3..].iter().filter(|word| group.pending.remove(&id(word)).is_some()).count())
            }
            b"XREADGROUP" => {
                self.read(&word(&words[3]), number(&words[5]));
                None
            }
            // XCLAIM key group consumer 0 ID
            b"XCLAIM" => {
                self.claim(&word(&words[3]), id(&words[5]));
                None
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// XADD key [MAXLEN n] ID field value ...
    fn add(&mut self, words: &Words) -> Reply {
        let most = (words[2] == b"MAXLEN").then(|| number(&words[3]));
        let at = if most.is_some() { 4 } else { 2 };
        self.last = id(&words[at]);
        self.entries.insert(self.last, words[at + 1..].iter().map(|part| word(part)).collect());
        if let Some(most) = most {
            self.trim(most);
        }
        Reply::Bulk(words[at].clone())
    }

    fn trim(&mut self, most: usize) -> usize {
        let count = self.entries.len().saturating_sub(most);
        (0..count).for_each(|_| drop(self.entries.pop_first()));
        count
    }

    fn read(&mut self, consumer: &str, most: usize) {
        let group = self.group.as_mut().expect("a group");
        let new = self.entries.keys().filter(|id| **id > group.last).take(most).copied();
        let new: Vec<Id> = new.collect();
        for id in new {
            group.pending.insert(id, (consumer.to_owned(), 1));
            group.last = id;
        }
    }

    /// Of an entry that has gone it is pending no longer.
    fn claim(&mut self, consumer: &str, id: Id) {
        let group = self.group.as_mut().expect("a group");
        let Some((owner, count)) = group.pending.get_mut(&id) else { return };
        if self.entries.contains_key(&id) {
            (*owner, *count) = (consumer.to_owned(), *count + 1);
        } else {
            group.pending.remove(&id);
        }
    }
}

/// A map that RESP2 sends as a list.
fn field<'r>(pairs: &'r Reply, name: &str) -> &'r Reply {
    let pairs = pairs.items();
    let at = pairs.iter().step_by(2).position(|found| text(found) == name);
    &pairs[2 * at.unwrap_or_else(|| panic!("no {name} in {pairs:?}")) + 1]
}

fn id_of(reply: &Reply) -> Id {
    text(reply).parse().expect("an ID")
}

/// What the server says of a stream; none if it has gone meanwhile.
pub fn fetch(conn: &mut Client, key: &str) -> Option<Stream> {
    let info = conn.run(&format!("XINFO STREAM {key} FULL COUNT 0"));
    if info.is_error() {
        assert!(info.text().contains("no such key"), "{key}: {info:?}");
        return None;
    }
    let entry = |entry: &Reply| {
        let parts = entry.items()[1].items().iter().map(text).collect();
        (id_of(&entry.items()[0]), parts)
    };
    let entries: BTreeMap<Id, Vec<String>> = field(&info, "entries").items().iter().map(entry).collect();
    assert_eq!(field(&info, "length").integer(), Some(entries.len() as i64), "XLEN of {key}");
    let groups = field(&info, "groups").items();
    assert!(groups.len() <= 1, "{key} has {} groups", groups.len());
    let group = groups.first().map(|group| {
        let pending = |pending: &Reply| {
            let pending = pending.items();
            (id_of(&pending[0]), (text(&pending[1]), pending[3].integer().expect("a count")))
        };
        let pending: BTreeMap<Id, Pending> = field(group, "pending").items().iter().map(pending).collect();
        assert_eq!(field(group, "pel-count").integer(), Some(pending.len() as i64), "of {key}");
        check_owners(field(group, "consumers"), &pending);
        Group { last: id_of(field(group, "last-delivered-id")), pending }
    });
    Some(Stream { entries, last: id_of(field(&info, "last-generated-id")), group })
}

/// Each pending entry is its owner's, and nobody else's.
fn check_owners(consumers: &Reply, pending: &BTreeMap<Id, Pending>) {
    let mut owned = BTreeMap::new();
    for consumer in consumers.items() {
        for entry in field(consumer, "pending").items() {
            owned.insert(id_of(&entry.items()[0]), text(field(consumer, "name")));
        }
    }
    assert!(owned.iter().eq(pending.iter().map(|(id, (owner, _))| (id, owner))), "{owned:?}, {pending:?}");
}

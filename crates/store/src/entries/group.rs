//! Groups of consumers as records of their stream.
//!
//! ```text
//! 02 group 00            last ID 16 | entries read i64, below 0: unknown | pending u64 | consumers u32 | next number u32 | name
//! 02 group 01 ID         pending entry: number of its consumer | delivery time | deliveries
//! 02 group 02 consumer   its number, u32 BE
//! 02 group 03 number     seen i64 | active i64, below 0: never | pending u64 | name; the number is u32 BE
//! 02 group 03 number ID  pending entry of the consumer, no bytes
//! ```
//! A name in a key is `01`, its bytes with `00` as `00 ff`, and `00 00`; or, if it is long, `02` and its SHA-1. Numbers of pending entries are 7 bits a
//! byte, times milliseconds since the Unix epoch.

use sha1::{Digest, Sha1};
use smallvec::SmallVec;

use super::block::{put_number, Cursor};
use super::id::StreamId;

const GROUP: u8 = 2;
#[cfg(test)]
const AFTER_GROUPS: &[u8] = &[GROUP + 1];
pub(crate) const FIRST_GROUP: &[u8] = &[GROUP];

const SELF: u8 = 0;
const PENDING: u8 = 1;
const NAMED: u8 = 2;
const CONSUMER: u8 = 3;

/// A longer name is hashed.
const NAME_MAX_BYTES: usize = 100;

/// A number that a group gives its consumers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct ConsumerNumber(pub u32);

/// A key of a record.
pub(crate) type RecordKey = SmallVec<[u8; 64]>;

fn put_name(key: &mut RecordKey, name: &[u8]) {
    if name.len() > NAME_MAX_BYTES {
        key.push(2);
        key.extend_from_slice(&Sha1::digest(name));
        return;
    }
    key.push(1);
    for byte in name {
        key.push(*byte);
        if *byte == 0 {
            key.push(0xff);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

/// The keys of one group's records.
#[derive(Clone)]
pub(crate) struct GroupKeys(RecordKey);

impl GroupKeys {
    pub fn new(group: &[u8]) -> GroupKeys {
        let mut key = RecordKey::from_slice(&[GROUP]);
        put_name(&mut key, group);
        GroupKeys(key)
    }

    fn with(&self, tail: &[&[u8]]) -> RecordKey {
        let mut key = RecordKey::from_slice(&self.0);
        tail.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    /// Of the group itself.
    pub fn group(&self) -> RecordKey {
        self.with(&[&[SELF]])
    }

    pub fn pending(&self, id: StreamId) -> RecordKey {
        self.with(&[&[PENDING], &id.to_bytes()])
    }

    /// Above all of what is pending.
    pub fn names(&self) -> RecordKey {
        self.with(&[&[NAMED]])
    }

    /// Of a consumer's number.
    pub fn named(&self, consumer: &[u8]) -> RecordKey {
        let mut key = self.with(&[&[NAMED]]);
        put_name(&mut key, consumer);
        key
    }

    pub fn consumer(&self, number: ConsumerNumber) -> RecordKey {
        self.with(&[&[CONSUMER], &number.0.to_be_bytes()])
    }

    pub fn owned(&self, number: ConsumerNumber, id: StreamId) -> RecordKey {
        self.with(&[&[CONSUMER], &number.0.to_be_bytes(), &id.to_bytes()])
    }

    /// Above all of them.
    pub fn after(&self) -> RecordKey {
        self.with(&[&[CONSUMER + 1]])
    }

    /// What a key of the group is of; `None` if it is another group's.
    pub fn part<'k>(&self, key: &'k [u8]) -> Option<Part<'k>> {
        part_of(key.strip_prefix(&self.0[..])?)
    }
}

/// What a record of a group is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part<'k> {
    Group,
    Pending(StreamId),
    Named(&'k [u8]),
    Consumer(ConsumerNumber),
    Owned(ConsumerNumber, StreamId),
}

fn part_of(tail: &[u8]) -> Option<Part<'_>> {
    let (tag, rest) = tail.split_first()?;
    let id = |bytes: &[u8]| Some(StreamId::from_bytes(bytes.try_into().ok()?));
    match *tag {
        SELF if rest.is_empty() => Some(Part::Group),
        PENDING => Some(Part::Pending(id(rest)?)),
        NAMED => Some(Part::Named(rest)),
        CONSUMER => {
            let (number, rest) = rest.split_first_chunk()?;
            let number = ConsumerNumber(u32::from_be_bytes(*number));
            match rest {
                [] => Some(Part::Consumer(number)),
                rest => Some(Part::Owned(number, id(rest)?)),
            }
        }
        _ => None,
    }
}

/// The keys of the group that a record is of, and what it is; `None` if it is of none.
pub(crate) fn of_key(key: &[u8]) -> Option<(GroupKeys, Part<'_>)> {
    let [GROUP, form, rest @ ..] = key else { return None };
    let name_bytes = match form {
        1 => {
            let mut at = 0;
            while rest.get(at..at + 2)? != [0, 0] {
                at += if rest[at] == 0 { 2 } else { 1 };
            }
            at + 2
        }
        2 => 20,
        _ => return None,
    };
    let end = 2 + name_bytes;
    Some((GroupKeys(key.get(..end)?.into()), part_of(&key[end..])?))
}

/// What a group says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Group {
    pub name: Vec<u8>,
    /// The last ID that has been given to a consumer.
    pub last: StreamId,
    /// Entries up to that; `None`: nobody knows.
    pub read_count: Option<u64>,
    pub pending_count: u64,
    pub consumer_count: u32,
    pub next_number: u32,
}

fn count_of(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn number_of(count: Option<u64>) -> i64 {
    count.and_then(|count| i64::try_from(count).ok()).unwrap_or(-1)
}

impl Group {
    pub fn parse(bytes: &[u8]) -> Option<Group> {
        let (last, rest) = bytes.split_first_chunk()?;
        let (read, rest) = rest.split_first_chunk()?;
        let (pending, rest) = rest.split_first_chunk()?;
        let (consumers, rest) = rest.split_first_chunk()?;
        let (next, name) = rest.split_first_chunk()?;
        Some(Group {
            name: name.to_vec(),
            last: StreamId::from_bytes(*last),
            read_count: count_of(i64::from_le_bytes(*read)),
            pending_count: u64::from_le_bytes(*pending),
            consumer_count: u32::from_le_bytes(*consumers),
            next_number: u32::from_le_bytes(*next),
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.last.to_bytes().to_vec();
        bytes.extend_from_slice(&number_of(self.read_count).to_le_bytes());
        bytes.extend_from_slice(&self.pending_count.to_le_bytes());
        bytes.extend_from_slice(&self.consumer_count.to_le_bytes());
        bytes.extend_from_slice(&self.next_number.to_le_bytes());
        bytes.extend_from_slice(&self.name);
        bytes
    }
}

/// What a consumer says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Consumer {
    pub name: Vec<u8>,
    /// When it last asked for something.
    pub seen_ms: i64,
    /// When it last got something; below 0: never.
    pub active_ms: i64,
    pub pending_count: u64,
}

impl Consumer {
    pub fn parse(bytes: &[u8]) -> Option<Consumer> {
        let (seen, rest) = bytes.split_first_chunk()?;
        let (active, rest) = rest.split_first_chunk()?;
        let (pending, name) = rest.split_first_chunk()?;
        Some(Consumer {
            name: name.to_vec(),
            seen_ms: i64::from_le_bytes(*seen),
            active_ms: i64::from_le_bytes(*active),
            pending_count: u64::from_le_bytes(*pending),
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.seen_ms.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.active_ms.to_le_bytes());
        bytes.extend_from_slice(&self.pending_count.to_le_bytes());
        bytes.extend_from_slice(&self.name);
        bytes
    }
}

/// An entry that a consumer has got and not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pending {
    pub consumer: ConsumerNumber,
    /// When it was last delivered.
    pub time_ms: i64,
    /// How often.
    pub count: u64,
}

impl Pending {
    pub fn parse(bytes: &[u8]) -> Option<Pending> {
        let mut cursor = Cursor::new(bytes);
        let consumer = ConsumerNumber(u32::try_from(cursor.number()?).ok()?);
        let time_ms = cursor.number()? as i64;
        Some(Pending { consumer, time_ms, count: cursor.number()? })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(10);
        put_number(&mut bytes, u64::from(self.consumer.0));
        put_number(&mut bytes, self.time_ms as u64);
        put_number(&mut bytes, self.count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let id = StreamId::new(5, 6);
        let (name, long) = (&b"a\0b"[..], vec![b'x'; 300]);
        for group in [name, &long, b""] {
            let keys = GroupKeys::new(group);
            let number = ConsumerNumber(7);
            for (key, part) in [
                (keys.group(), Part::Group),
                (keys.pending(id), Part::Pending(id)),
                (keys.consumer(number), Part::Consumer(number)),
                (keys.owned(number, id), Part::Owned(number, id)),
            ] {
                assert_eq!(keys.part(&key), Some(part));
                assert_eq!(of_key(&key).unwrap().1, part);
                assert!(FIRST_GROUP < &key[..] && &key[..] < AFTER_GROUPS && key.len() <= 512);
            }
            assert!(keys.named(&long) > keys.pending(StreamId::MAX));
            assert!(keys.named(&long) < keys.consumer(ConsumerNumber(0)));
        }
        assert!(GroupKeys::new(b"a").group() < GroupKeys::new(b"a\0").group());
        assert!(GroupKeys::new(b"a\0").group() < GroupKeys::new(b"aa").group());
        assert_eq!(GroupKeys::new(b"a").part(&GroupKeys::new(b"aa").group()), None);
        let group = Group {
            name: name.to_vec(),
            last: id,
            read_count: None,
            pending_count: 3,
            consumer_count: 4,
            next_number: 5,
        };
        assert_eq!(Group::parse(&group.encode()), Some(group));
        let consumer = Consumer { name: long, seen_ms: 1, active_ms: -1, pending_count: 2 };
        assert_eq!(Consumer::parse(&consumer.encode()), Some(consumer));
        for time_ms in [0, 1 << 41, -5] {
            let pending = Pending { consumer: ConsumerNumber(200), time_ms, count: u64::MAX };
            assert_eq!(Pending::parse(&pending.encode()), Some(pending));
        }
    }
}

//! Commands of a unit as they are put together: effects in a row on one key are one command.

use std::sync::Arc;

use stillframe_journal::Body;

use super::unit::{put_word, put_word_head, Unit};
use crate::blobs::Bytes;
use crate::effect::End;
use crate::error::OpError;
use crate::step::WorkerId;
use crate::{DbId, UnixMillis};

/// A command of many words ends with so many words or bytes at most; a word more may be larger.
const GROUP_WORDS_MAX: u64 = 1_000;
const GROUP_BYTES_MAX: usize = 64 * 1024;

/// A buffer that was larger is not kept.
const KEPT_BYTES: usize = 4 * GROUP_BYTES_MAX;

/// Commands on one key that take any number of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Many {
    #[default]
    Delete,
    HashSet,
    HashDelete,
    HashExpireAt(UnixMillis),
    HashPersist,
    SetAdd,
    SetRemove,
    ScoredAdd,
    ScoredRemove,
    Push(End),
    EntryRemove,
}

impl Many {
    fn name(self) -> &'static [u8] {
        match self {
            Many::Delete => b"DEL",
            Many::HashSet => b"HSET",
            Many::HashDelete => b"HDEL",
            Many::HashExpireAt(_) => b"HPEXPIREAT",
            Many::HashPersist => b"HPERSIST",
            Many::SetAdd => b"SADD",
            Many::SetRemove => b"SREM",
            Many::ScoredAdd => b"ZADD",
            Many::ScoredRemove => b"ZREM",
            Many::Push(End::Left) => b"LPUSH",
            Many::Push(End::Right) => b"RPUSH",
            Many::EntryRemove => b"XDEL",
        }
    }
}

/// A word of a command.
#[derive(Clone, Copy)]
pub(super) enum Word<'a> {
    Bytes(Bytes<'a>),
    Number(i64),
}

impl Word<'_> {
    /// Whether no page has to be read for it.
    fn is_here(&self) -> bool {
        match self {
            Word::Bytes(bytes) => bytes.here().is_some(),
            Word::Number(_) => true,
        }
    }
}

impl<'a> From<&'a [u8]> for Word<'a> {
    fn from(bytes: &'a [u8]) -> Word<'a> {
        Word::Bytes(Bytes::Here(bytes))
    }
}

/// Words one after the other, and the bodies that lie among them.
#[derive(Default)]
struct Words {
    bytes: Vec<u8>,
    bodies: Vec<(usize, Arc<dyn Body>)>,
    count: u64,
}

impl Words {
    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.bodies.clear();
        self.count = 0;
    }

    /// # Errors
    /// The word lies in pages that cannot be read.
    fn push(&mut self, word: Word<'_>) -> Result<(), OpError> {
        self.count += 1;
        let bytes = match word {
            Word::Number(number) => {
                put_word(&mut self.bytes, number.to_string().as_bytes());
                return Ok(());
            }
            Word::Bytes(bytes) => bytes,
        };
        if let Some(here) = bytes.here() {
            put_word(&mut self.bytes, here);
            return Ok(());
        }
        put_word_head(&mut self.bytes, bytes.len());
        match bytes.hold() {
            Some(body) => self.bodies.push((self.bytes.len(), Arc::new(body))),
            // Short, or too many values are being held: it is copied.
            None => bytes.for_each(|part| self.bytes.extend_from_slice(part))?,
        }
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.count >= GROUP_WORDS_MAX || self.bytes.len() >= GROUP_BYTES_MAX || !self.bodies.is_empty()
    }
}

/// A command that may get more words.
#[derive(Default)]
struct Group {
    is_open: bool,
    many: Many,
    db: Option<DbId>,
    key: Vec<u8>,
    words: Words,
}

impl Group {
    fn open(&mut self, db: DbId, key: &[u8], many: Many) {
        (self.is_open, self.many, self.db) = (true, many, Some(db));
        self.key.clear();
        self.key.extend_from_slice(key);
        self.words.clear();
    }

    fn is_of(&self, db: DbId, key: &[u8]) -> bool {
        self.is_open && self.db == Some(db) && self.key == key
    }

    /// Ends it, and puts it into a unit.
    fn close(&mut self, unit: &mut Unit) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let count = self.words.count;
        let more = match self.many {
            Many::HashExpireAt(_) => 3,
            Many::HashPersist => 2,
            _ => 0,
        };
        unit.begin_command(self.db, 2 + more + count);
        unit.word(self.many.name());
        unit.word(&self.key);
        if let Many::HashExpireAt(deadline) = self.many {
            unit.word(deadline.to_string().as_bytes());
        }
        if more > 0 {
            unit.word(b"FIELDS");
            unit.word(count.to_string().as_bytes());
        }
        unit.put(&self.words.bytes, self.words.bodies.drain(..));
    }
}

/// A unit that is being made.
#[derive(Default)]
pub(super) struct Building {
    unit: Unit,
    group: Group,
    /// The deadlines of the fields that `group` sets: they come behind it.
    deadlines: Group,
    /// Where the deadlines may be told once more.
    repeated_at: usize,
    fault: Option<OpError>,
    words: Words,
}

impl Building {
    pub fn clear(&mut self, worker: WorkerId) {
        self.unit.clear(worker);
        (self.group.is_open, self.deadlines.is_open) = (false, false);
        (self.repeated_at, self.fault) = (0, None);
    }

    /// The unit, if it is not empty.
    ///
    /// # Errors
    /// A large element of it could not be read.
    pub fn finish(&mut self) -> Result<Option<&Unit>, OpError> {
        self.flush();
        if let Some(error) = self.fault.take() {
            return Err(error);
        }
        Ok(self.unit.finish().then_some(&self.unit))
    }

    fn note<T>(&mut self, result: Result<T, OpError>) {
        if let Err(error) = result {
            self.fault.get_or_insert(error);
        }
    }

    fn flush(&mut self) {
        self.group.close(&mut self.unit);
        self.deadlines.close(&mut self.unit);
        self.repeated_at = 0;
    }

    /// What is left of this key by what was told last need not be told: nothing is left of it.
    pub fn drop_last_of(&mut self, db: DbId, key: &[u8]) {
        if self.group.is_of(db, key) {
            (self.group.is_open, self.deadlines.is_open) = (false, false);
        }
    }

    /// A command by itself.
    pub fn one(&mut self, db: Option<DbId>, name: &[u8], words: &[Word<'_>]) {
        self.flush();
        let count = 1 + words.len() as u64;
        if words.iter().all(|word| word.is_here()) {
            self.unit.begin_command(db, count);
            self.unit.word(name);
            for word in words {
                match word {
                    Word::Number(number) => self.unit.word(number.to_string().as_bytes()),
                    Word::Bytes(bytes) => bytes.here().into_iter().for_each(|bytes| self.unit.word(bytes)),
                }
            }
            return;
        }
        self.words.clear();
        for word in words {
            let pushed = self.words.push(*word);
            self.note(pushed);
        }
        self.unit.begin_command(db, count);
        self.unit.word(name);
        self.unit.put(&self.words.bytes, self.words.bodies.drain(..));
    }

    /// Words of a command that has perhaps begun.
    pub fn many(&mut self, db: DbId, key: &[u8], many: Many, words: &[Word<'_>]) {
        let goes_on = self.group.is_of(db, key) && self.group.many == many && !self.deadlines.is_open;
        if !goes_on || self.group.words.is_full() {
            self.flush();
            self.group.open(db, key, many);
        }
        self.add(words);
    }

    fn add(&mut self, words: &[Word<'_>]) {
        for word in words {
            let pushed = self.group.words.push(*word);
            self.note(pushed);
        }
    }

    /// A field that has this value now, and this deadline or none.
    pub fn field(
        &mut self,
        (db, key): (DbId, &[u8]),
        (field, value): (Bytes<'_>, Bytes<'_>),
        deadline: Option<UnixMillis>,
    ) {
        let words = [Word::Bytes(field), Word::Bytes(value)];
        let Some(deadline) = deadline else { return self.many(db, key, Many::HashSet, &words) };
        let deadlines = Many::HashExpireAt(deadline);
        let goes_on = self.group.is_of(db, key)
            && self.group.many == Many::HashSet
            && (!self.deadlines.is_open || self.deadlines.many == deadlines)
            && !self.group.words.is_full();
        if !goes_on {
            self.flush();
            self.group.open(db, key, Many::HashSet);
        }
        if !self.deadlines.is_open {
            self.deadlines.open(db, key, deadlines);
        }
        self.add(&words);
        let pushed = self.deadlines.words.push(Word::Bytes(field));
        self.note(pushed);
    }

    /// A field that has this deadline now, unless it has just been told with the field.
    pub fn field_deadline(&mut self, (db, key): (DbId, &[u8]), field: Bytes<'_>, deadline: UnixMillis) {
        let deadlines = Many::HashExpireAt(deadline);
        if self.deadlines.is_of(db, key) && self.deadlines.many == deadlines {
            let rest = &self.deadlines.words.bytes[self.repeated_at..];
            if let Some(len) = field.here().and_then(|field| word_len(rest, field)) {
                self.repeated_at += len;
                return;
            }
        }
        self.many(db, key, deadlines, &[Word::Bytes(field)]);
    }
}

/// How long the first word is, if it is this one.
fn word_len(words: &[u8], word: &[u8]) -> Option<usize> {
    let mut expected = Vec::with_capacity(word.len() + 16);
    put_word(&mut expected, word);
    words.starts_with(&expected).then_some(expected.len())
}

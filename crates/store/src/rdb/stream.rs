//! Streams: what is written of their records, and the records that are made of what is read.
//!
//! ```text
//! count { ID:16 BE  listpack }  length  last ID  [first ID  greatest deleted ID  entries added]  groups { group }
//! group      name  last ID  [entries read]  pending { ID:16 BE  time:8 LE  deliveries }  consumers { consumer }
//! consumer   name  seen:8 LE  <active:8 LE>  pending { ID:16 BE }
//! listpack   live  gone  fields  { name }  0   { flags  ms  number  ... values  words }
//! ```
//! An ID is two lengths but for those of 16 bytes. In a listpack the IDs are differences to its own. Bit 0 of the flags: the entry has gone;
//! bit 1: it has the listpack's fields, and only their values. Type 15 has not what is in brackets, and type 21
//! alone what is in angles.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::{Read, Write};

use super::error::{ReadErrorKind, WriteError};
use super::format::{collection_type, StringRef};
use super::listpack::{Listpack, ListpackBuilder};
use super::output::Output;
use super::source::Source;
use crate::entries::block::{self, Block};
use crate::entries::group::{self, Consumer, ConsumerNumber, Group, GroupKeys, Part, Pending};
use crate::entries::{base_of, block_key, Head, LastNode, StreamId, HEAD_KEY};

const GONE: i64 = 1;
const LIKE_FIRST: i64 = 2;

/// A stream that is being written, of its records in their order.
pub(super) struct StreamWriter {
    head: Head,
    node: Option<Node>,
    left_count: u64,
    /// What comes behind the entries has been begun.
    has_ended_entries: bool,
    /// Consumers have an active time: from version 12 on.
    has_active_times: bool,
    /// How many consumers of the group are still to come, before the first is begun.
    consumer_count: Option<u32>,
}

/// A node that is being written.
struct Node {
    id: StreamId,
    names: Vec<Vec<u8>>,
    count: i64,
    entries: ListpackBuilder,
}

impl StreamWriter {
    /// Of the first record.
    pub fn begin<W: Write>(
        output: &mut Output<W>,
        value: &[u8],
        has_active_times: bool,
    ) -> Result<StreamWriter, WriteError> {
        let head = Head::parse(value).ok_or(WriteError::WrongElement)?;
        output.put_length(head.node_count);
        Ok(StreamWriter {
            head,
            node: None,
            left_count: head.node_count,
            has_ended_entries: false,
            has_active_times,
            consumer_count: None,
        })
    }

    /// The next record.
    pub fn record<W: Write>(
        &mut self,
        output: &mut Output<W>,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), WriteError> {
        let Some(base) = base_of(key) else {
            self.end_entries(output)?;
            let (_, part) = group::of_key(key).ok_or(WriteError::WrongElement)?;
            return self.of_group(output, part, value);
        };
        for entry in Block::new(base, value).entries() {
            let entry = entry.ok_or(WriteError::WrongElement)?;
            if entry.begins_node {
                self.end_node(output)?;
                let names = entry.parts.iter().step_by(2).map(|name| name.to_vec()).collect();
                let entries = ListpackBuilder::new();
                self.node = Some(Node { id: entry.id, names, count: 0, entries });
            }
            let node = self.node.as_mut().ok_or(WriteError::WrongElement)?;
            node.push(entry.id, &entry.parts);
        }
        Ok(())
    }

    fn end_node<W: Write>(&mut self, output: &mut Output<W>) -> Result<(), WriteError> {
        let Some(node) = self.node.take() else { return Ok(()) };
        self.left_count = self.left_count.checked_sub(1).ok_or(WriteError::WrongElement)?;
        output.put_string(StringRef::Bytes(&node.id.to_bytes()))?;
        node.listpack().take(|listpack| output.put_string(StringRef::Bytes(listpack)))
    }

    /// After the last record.
    pub fn end<W: Write>(&mut self, output: &mut Output<W>) -> Result<(), WriteError> {
        self.end_entries(output)?;
        self.end_pending(output);
        Ok(())
    }

    fn end_entries<W: Write>(&mut self, output: &mut Output<W>) -> Result<(), WriteError> {
        if std::mem::replace(&mut self.has_ended_entries, true) {
            return Ok(());
        }
        self.end_node(output)?;
        if self.left_count > 0 {
            return Err(WriteError::WrongElement);
        }
        let Head { len, last, first, max_deleted, added_count, group_count, .. } = self.head;
        output.put_length(len);
        for id in [last, first, max_deleted] {
            output.put_length(id.ms);
            output.put_length(id.seq);
        }
        output.put_length(added_count);
        output.put_length(group_count);
        Ok(())
    }

    /// A record of a group, in their order: the group, what is pending, names, and each consumer with what it owns.
    fn of_group<W: Write>(
        &mut self,
        output: &mut Output<W>,
        part: Part<'_>,
        value: &[u8],
    ) -> Result<(), WriteError> {
        match part {
            Part::Group => {
                self.end_pending(output);
                let group = Group::parse(value).ok_or(WriteError::WrongElement)?;
                output.put_string(StringRef::Bytes(&group.name))?;
                output.put_length(group.last.ms);
                output.put_length(group.last.seq);
                output.put_length(group.read_count.unwrap_or(u64::MAX));
                output.put_length(group.pending_count);
                self.consumer_count = Some(group.consumer_count);
            }
            Part::Pending(id) => {
                let pending = Pending::parse(value).ok_or(WriteError::WrongElement)?;
                output.put_bytes(&id.to_bytes())?;
                output.put_bytes(&pending.time_ms.to_le_bytes())?;
                output.put_length(pending.count);
            }
            Part::Named(_) => {}
            Part::Consumer(_) => {
                self.end_pending(output);
                let consumer = Consumer::parse(value).ok_or(WriteError::WrongElement)?;
                output.put_string(StringRef::Bytes(&consumer.name))?;
                output.put_bytes(&consumer.seen_ms.to_le_bytes())?;
                if self.has_active_times {
                    output.put_bytes(&consumer.active_ms.to_le_bytes())?;
                }
                output.put_length(consumer.pending_count);
            }
            Part::Owned(_, id) => output.put_bytes(&id.to_bytes())?,
        }
        Ok(())
    }

    /// Behind what is pending in a group comes how many consumers it has.
    fn end_pending<W: Write>(&mut self, output: &mut Output<W>) {
        if let Some(count) = self.consumer_count.take() {
            output.put_length(u64::from(count));
        }
    }
}

impl Node {
    fn push(&mut self, id: StreamId, parts: &[&[u8]]) {
        let pair_count = parts.len() as i64 / 2;
        let is_alike = self.names.iter().map(|name| &name[..]).eq(parts.iter().step_by(2).copied());
        self.count += 1;
        let entries = &mut self.entries;
        entries.push_integer(if is_alike { LIKE_FIRST } else { 0 });
        entries.push_integer(id.ms.wrapping_sub(self.id.ms) as i64);
        entries.push_integer(id.seq.wrapping_sub(self.id.seq) as i64);
        if is_alike {
            parts.iter().skip(1).step_by(2).for_each(|value| entries.push(value));
            entries.push_integer(pair_count + 3);
        } else {
            entries.push_integer(pair_count);
            parts.iter().for_each(|part| entries.push(part));
            entries.push_integer(2 * pair_count + 4);
        }
    }

    fn listpack(&self) -> ListpackBuilder {
        let mut listpack = ListpackBuilder::new();
        for number in [self.count, 0, self.names.len() as i64] {
            listpack.push_integer(number);
        }
        self.names.iter().for_each(|name| listpack.push(name));
        listpack.push_integer(0);
        listpack.append(&self.entries);
        listpack
    }
}

/// A stream that is being read, record by record: blocks, and the head behind them.
pub(super) struct StreamReader {
    /// The type's revision: 1 of Redis 5, 2 of 7.0, 3 of 7.2.
    revision: u8,
    left_count: u64,
    node: Option<ReadNode>,
    /// The block that is being filled, and its base.
    block: Vec<u8>,
    base: StreamId,
    head: Head,
    /// Records of the group that is being read.
    of_group: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Names of groups, and of consumers of the group that is being read.
    names: HashSet<Vec<u8>>,
    left_groups: u64,
    has_ended_entries: bool,
    is_over: bool,
}

/// A node that is being read.
struct ReadNode {
    id: StreamId,
    listpack: Listpack,
    names: Vec<Vec<u8>>,
    live_count: u64,
    /// Entries still to come, those that have gone included.
    left_count: u64,
    /// Entries, as it began.
    entry_count: u32,
    has_given: bool,
}

const BAD_ENTRY: ReadErrorKind = ReadErrorKind::BadElement("an entry of a stream is malformed");
const BAD_ORDER: ReadErrorKind = ReadErrorKind::BadElement("the IDs of a stream do not ascend");
const BAD_PENDING: ReadErrorKind =
    ReadErrorKind::BadElement("the pending entries of a group and of its consumers contradict each other");
/// The number of no consumer.
const NOBODY: ConsumerNumber = ConsumerNumber(u32::MAX);
const BAD_COUNT: ReadErrorKind = ReadErrorKind::BadElement("a stream has not as many entries as it says");

type Result<T, E = ReadErrorKind> = std::result::Result<T, E>;

/// Which type a stream is written as, by whether consumers have an active time.
pub(super) fn revision_of(code: u8) -> Option<u8> {
    match code {
        collection_type::STREAM => Some(1),
        collection_type::STREAM_2 => Some(2),
        collection_type::STREAM_3 => Some(3),
        _ => None,
    }
}

impl StreamReader {
    pub fn begin<R: Read>(source: &mut Source<R>, revision: u8) -> Result<StreamReader> {
        let left_count = source.count()?;
        Ok(StreamReader {
            revision,
            left_count,
            node: None,
            block: Vec::new(),
            base: StreamId::MIN,
            head: Head::default(),
            of_group: VecDeque::new(),
            names: HashSet::new(),
            left_groups: 0,
            has_ended_entries: false,
            is_over: false,
        })
    }

    /// Reads the next record into `key` and `value`, which are empty; false if there is none.
    pub fn next<R: Read>(
        &mut self,
        source: &mut Source<R>,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        while let Some(entry) = self.next_entry(source)? {
            if self.take(&entry) {
                key.extend_from_slice(&block_key(self.base));
                std::mem::swap(value, &mut self.block);
                // What did not fit begins the next one.
                self.begin_block(&entry);
                return Ok(true);
            }
        }
        if !self.block.is_empty() {
            key.extend_from_slice(&block_key(self.base));
            std::mem::swap(value, &mut self.block);
            self.block.clear();
            return Ok(true);
        }
        if !std::mem::replace(&mut self.has_ended_entries, true) {
            self.read_end(source)?;
        }
        while self.of_group.is_empty() && self.left_groups > 0 {
            self.left_groups -= 1;
            self.read_group(source)?;
        }
        match self.of_group.pop_front() {
            Some(record) => (*key, *value) = record,
            None => {
                self.is_over = true;
                key.extend_from_slice(HEAD_KEY);
                value.extend_from_slice(&self.head.encode());
            }
        }
        Ok(true)
    }

    /// Reads a group whole: its entries' owners come behind them.
    fn read_group<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        let name = source.string()?.into_bytes();
        let last = StreamId::new(source.count()?, source.count()?);
        let read_count = match self.revision {
            // Nobody knows.
            1 => None,
            _ => Some(source.count()?).filter(|count| i64::try_from(*count).is_ok()),
        };
        let keys = GroupKeys::new(&name);
        self.is_new_name(keys.group().to_vec())?;
        let mut pending: BTreeMap<StreamId, Pending> = BTreeMap::new();
        let pending_count = source.count()?;
        for _ in 0..pending_count {
            let id = StreamId::from_bytes(source.array()?);
            let time_ms = i64::from_le_bytes(source.array()?);
            let new = Pending { time_ms, count: source.count()?, consumer: NOBODY };
            if pending.insert(id, new).is_some() {
                return Err(BAD_PENDING);
            }
        }
        let consumer_count = u32::try_from(source.count()?).map_err(|_| BAD_PENDING)?;
        for number in 0..consumer_count {
            self.read_consumer(source, &keys, ConsumerNumber(number), &mut pending)?;
        }
        for (id, pending) in &pending {
            if pending.consumer == NOBODY {
                return Err(BAD_PENDING);
            }
            self.of_group.push_back((keys.pending(*id).to_vec(), pending.encode()));
        }
        let group =
            Group { name, last, read_count, pending_count, consumer_count, next_number: consumer_count };
        self.of_group.push_back((keys.group().to_vec(), group.encode()));
        self.head.group_count += 1;
        Ok(())
    }

    fn is_new_name(&mut self, key: Vec<u8>) -> Result<()> {
        match self.names.insert(key) {
            true => Ok(()),
            false => Err(ReadErrorKind::DuplicateElement),
        }
    }

    fn read_consumer<R: Read>(
        &mut self,
        source: &mut Source<R>,
        keys: &GroupKeys,
        number: ConsumerNumber,
        pending: &mut BTreeMap<StreamId, Pending>,
    ) -> Result<()> {
        let name = source.string()?.into_bytes();
        let seen_ms = i64::from_le_bytes(source.array()?);
        let active_ms = match self.revision {
            3 => i64::from_le_bytes(source.array()?),
            _ => seen_ms,
        };
        let pending_count = source.count()?;
        for _ in 0..pending_count {
            let id = StreamId::from_bytes(source.array()?);
            let owned = pending.get_mut(&id).filter(|pending| pending.consumer == NOBODY);
            owned.ok_or(BAD_PENDING)?.consumer = number;
            self.of_group.push_back((keys.owned(number, id).to_vec(), Vec::new()));
        }
        let named = keys.named(&name).to_vec();
        self.is_new_name(named.clone())?;
        self.of_group.push_back((named, number.0.to_be_bytes().to_vec()));
        let consumer = Consumer { name, seen_ms, active_ms, pending_count };
        self.of_group.push_back((keys.consumer(number).to_vec(), consumer.encode()));
        Ok(())
    }

    /// Whether the block is full without the entry, which it has not taken then.
    fn take(&mut self, entry: &ReadEntry) -> bool {
        if self.block.is_empty() {
            self.begin_block(entry);
            return false;
        }
        !block::push(&mut self.block, self.base, entry.id, &entry.parts(), entry.begins_node)
    }

    fn begin_block(&mut self, entry: &ReadEntry) {
        self.base = entry.id;
        block::begin(&mut self.block, entry.id, &entry.parts(), entry.begins_node);
    }

    fn next_entry<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<ReadEntry>> {
        loop {
            if let Some(node) = &mut self.node {
                if let Some(entry) = node.next(source)? {
                    if entry.id <= self.head.last {
                        return Err(BAD_ORDER);
                    }
                    if self.head.len == 0 {
                        self.head.first = entry.id;
                    }
                    (self.head.last, self.head.len) = (entry.id, self.head.len + 1);
                    self.head.node_count += u64::from(entry.begins_node);
                    return Ok(Some(entry));
                }
                self.head.last_node = node.ended();
                self.node = None;
            }
            let Some(left) = self.left_count.checked_sub(1) else { return Ok(None) };
            self.left_count = left;
            let id = source.string()?.into_bytes();
            let id = id[..].try_into().map_err(|_| BAD_ENTRY)?;
            self.node = Some(ReadNode::begin(source, StreamId::from_bytes(id))?);
        }
    }

    /// What is behind the nodes.
    fn read_end<R: Read>(&mut self, source: &mut Source<R>) -> Result<()> {
        let len = source.count()?;
        if len != self.head.len {
            return Err(BAD_COUNT);
        }
        let id = |source: &mut Source<R>| Ok(StreamId::new(source.count()?, source.count()?));
        let last = id(source)?;
        if last < self.head.last {
            return Err(BAD_ORDER);
        }
        self.head.last = last;
        self.head.added_count = len;
        if self.revision >= 2 {
            id(source)?;
            self.head.max_deleted = id(source)?;
            self.head.added_count = source.count()?;
        }
        self.left_groups = source.count()?;
        Ok(())
    }
}

/// An entry that has been read.
struct ReadEntry {
    id: StreamId,
    begins_node: bool,
    words: Vec<Vec<u8>>,
}

impl ReadEntry {
    fn parts(&self) -> Vec<&[u8]> {
        self.words.iter().map(|word| &word[..]).collect()
    }
}

impl ReadNode {
    fn begin<R: Read>(source: &mut Source<R>, id: StreamId) -> Result<ReadNode> {
        let listpack = Listpack::begin(source)?;
        let mut node = ReadNode {
            id,
            listpack,
            names: Vec::new(),
            live_count: 0,
            left_count: 0,
            entry_count: 0,
            has_given: false,
        };
        let (live, gone) = (node.count(source)?, node.count(source)?);
        let name_count = node.count(source)?;
        for _ in 0..name_count {
            let name = node.word(source)?;
            node.names.push(name);
        }
        node.number(source)?;
        node.live_count = live;
        node.left_count = live.checked_add(gone).ok_or(BAD_COUNT)?;
        node.entry_count = u32::try_from(node.left_count).map_err(|_| BAD_COUNT)?;
        Ok(node)
    }

    fn word<R: Read>(&mut self, source: &mut Source<R>) -> Result<Vec<u8>> {
        let mut word = Vec::new();
        match self.listpack.next(source, &mut word)? {
            true => Ok(word),
            false => Err(BAD_ENTRY),
        }
    }

    fn number<R: Read>(&mut self, source: &mut Source<R>) -> Result<i64> {
        let word = self.word(source)?;
        std::str::from_utf8(&word).ok().and_then(|text| text.parse().ok()).ok_or(BAD_ENTRY)
    }

    fn count<R: Read>(&mut self, source: &mut Source<R>) -> Result<u64> {
        u64::try_from(self.number(source)?).map_err(|_| BAD_ENTRY)
    }

    /// The next entry that has not gone.
    fn next<R: Read>(&mut self, source: &mut Source<R>) -> Result<Option<ReadEntry>> {
        while let Some(left) = self.left_count.checked_sub(1) {
            self.left_count = left;
            let flags = self.number(source)?;
            let (ms, seq) = (self.number(source)?, self.number(source)?);
            let id = StreamId::new(self.id.ms.wrapping_add(ms as u64), self.id.seq.wrapping_add(seq as u64));
            let mut words = Vec::new();
            if flags & LIKE_FIRST != 0 {
                for at in 0..self.names.len() {
                    words.push(self.names[at].clone());
                    words.push(self.word(source)?);
                }
            } else {
                for _ in 0..self.count(source)? {
                    words.push(self.word(source)?);
                    words.push(self.word(source)?);
                }
            }
            self.number(source)?;
            if flags & GONE == 0 {
                self.live_count = self.live_count.checked_sub(1).ok_or(BAD_COUNT)?;
                let begins_node = !std::mem::replace(&mut self.has_given, true);
                return Ok(Some(ReadEntry { id, begins_node, words }));
            }
        }
        if self.live_count > 0 || self.listpack.next(source, &mut Vec::new())? {
            return Err(BAD_COUNT);
        }
        Ok(None)
    }

    /// The node as the next entry may go to it.
    fn ended(&self) -> LastNode {
        if !self.has_given {
            return LastNode::default();
        }
        let names: Vec<&[u8]> = self.names.iter().map(|name| &name[..]).collect();
        let byte_count = u32::try_from(self.listpack.length_bytes()).unwrap_or(u32::MAX);
        LastNode::ended(self.id, byte_count, self.entry_count, &names)
    }
}

//! From effects to commands: a listener that makes a unit of each step.
//!
//! ```text
//!        the first effect               hear: a command, or more words of one
//!   (none) ─────────▶ BUILDING a unit ────┐
//!     ▲                   │  ▲────────────┘
//!     └───────────────────┘ end: the unit goes to the consumer, with the step's locks held
//! ```
//! Steps of cause `Load` make no units: what is read from elsewhere is not part of the stream.

use std::sync::OnceLock;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::group::{Building, Many, Word};
use super::unit::Consumer;
use crate::blobs::Bytes;
use crate::effect::{Change, Effect, End};
use crate::entry::{Deadline, NewValue};
use crate::error::OpError;
use crate::listener::{Ear, Listener};
use crate::rdb::score_text;
use crate::step::{Cause, Position, Step, WorkerId};
use crate::{DbId, StreamId};

/// Workers whose units are looked for under one lock are few.
const SHARD_COUNT: usize = 32;

/// What an encoder has made so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Encoded {
    pub units: u64,
    pub commands: u64,
    /// Without the SELECTs that are put before units.
    pub bytes: u64,
    /// Effects that it has heard; counted in debug builds.
    pub effects: u64,
}

impl Encoded {
    fn plus(self, other: Encoded) -> Encoded {
        Encoded {
            units: self.units + other.units,
            commands: self.commands + other.commands,
            bytes: self.bytes + other.bytes,
            effects: self.effects + other.effects,
        }
    }
}

/// The unit of a worker's step.
type OfWorker = (WorkerId, Box<Building>);

/// Units of some workers' steps.
#[derive(Default)]
struct Shard {
    building: Vec<OfWorker>,
    /// What was of a worker before.
    spare: Vec<OfWorker>,
    encoded: Encoded,
}

impl Shard {
    fn of(&mut self, worker: WorkerId) -> Option<usize> {
        self.building.iter().position(|(other, _)| *other == worker)
    }

    /// The unit of the step that the worker is at.
    fn begun(&mut self, worker: WorkerId) -> &mut Building {
        let index = self.of(worker).unwrap_or_else(|| {
            let mut building = self.spare.pop().map(|(_, spare)| spare).unwrap_or_default();
            building.clear(worker);
            self.building.push((worker, building));
            self.building.len() - 1
        });
        &mut self.building[index].1
    }
}

/// Makes units of a store's steps for a consumer; see the module.
pub struct Encoder<C> {
    consumer: C,
    shards: [Mutex<Shard>; SHARD_COUNT],
    ear: OnceLock<Ear>,
}

impl<C: Consumer> Encoder<C> {
    /// One that hears nothing before [`Encoder::start`].
    pub fn new(consumer: C) -> Encoder<C> {
        Encoder { consumer, shards: std::array::from_fn(|_| Mutex::default()), ear: OnceLock::new() }
    }

    /// From now on the consumer gets units. To be called after [`crate::Store::listen`], while no step is under way: before there
    /// are workers, or by one that is alone.
    pub fn start(&self) {
        self.ear.get().into_iter().for_each(Ear::open);
    }

    /// Until [`Encoder::start`] the consumer gets nothing, and changes cost nothing. To be called as that is.
    pub fn stop(&self) {
        self.ear.get().into_iter().for_each(Ear::close);
    }

    pub fn consumer(&self) -> &C {
        &self.consumer
    }

    pub fn encoded(&self) -> Encoded {
        self.shards.iter().map(|shard| shard.lock().encoded).fold(Encoded::default(), Encoded::plus)
    }

    fn shard(&self, worker: WorkerId) -> &Mutex<Shard> {
        &self.shards[worker.0 as usize % SHARD_COUNT]
    }

    fn hand_over(&self, building: &mut Building, encoded: &mut Encoded) {
        match building.finish() {
            Ok(None) => {}
            Err(error) => self.consumer.fail(&error),
            Ok(Some(unit)) => {
                encoded.units += 1;
                encoded.commands += unit.command_count();
                encoded.bytes += unit.len_bytes();
                self.consumer.append(unit);
            }
        }
    }
}

impl<C: Consumer> Listener for Encoder<C> {
    fn attend(&self, ear: Ear) {
        // A listener attends once.
        let _ = self.ear.set(ear);
    }

    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        let mut shard = self.shard(step.worker).lock();
        if cfg!(debug_assertions) {
            shard.encoded.effects += 1;
        }
        if step.cause != Cause::Load {
            encode(shard.begun(step.worker), effect);
        }
    }

    fn end(&self, step: &Step, _: Position) {
        let shard = &mut *self.shard(step.worker).lock();
        if let Some(index) = shard.of(step.worker) {
            let mut ended = shard.building.swap_remove(index);
            self.hand_over(&mut ended.1, &mut shard.encoded);
            shard.spare.push(ended);
        }
    }

    fn has_missed(&self) {
        self.consumer.fail(&OpError::Damaged("a unit was not made for a fault of the program".into()));
    }
}

fn encode(to: &mut Building, effect: &Effect<'_>) {
    match *effect {
        Effect::Set { db, key, value, deadline, .. } => set(to, (db, key.bytes), value, deadline),
        Effect::Write { db, key, offset, bytes, is_new } => {
            write(to, (db, key.bytes), (offset, bytes), is_new)
        }
        Effect::Element { db, key, change, is_new } => {
            if let (Change::StreamMarked { .. }, true) = (&change, is_new) {
                empty_stream(to, (db, key.bytes));
            }
            element(to, (db, key.bytes), change);
        }
        Effect::Deadline { db, key, deadline: Some(deadline) } => {
            to.one(Some(db), b"PEXPIREAT", &[key.bytes.into(), Word::Number(deadline)]);
        }
        Effect::Deadline { db, key, deadline: None } => to.one(Some(db), b"PERSIST", &[key.bytes.into()]),
        Effect::Replace { db, key }
        | Effect::Delete { db, key }
        | Effect::Expire { db, key }
        | Effect::Evict { db, key } => delete(to, db, key.bytes),
        Effect::Move { from, to: other, replaces } => {
            rename(to, (from.0, from.1.bytes), (other.0, other.1.bytes), replaces);
        }
        Effect::Copy { from, to: other } => copy(to, (from.0, from.1.bytes), (other.0, other.1.bytes)),
        Effect::Flush { db, .. } => to.one(Some(db), b"FLUSHDB", &[]),
        Effect::Swap { a, b, .. } => to.one(None, b"SWAPDB", &[number(a), number(b)]),
        // Its name is in its first line.
        Effect::LibrarySet { source, .. } => function(to, &[b"LOAD", b"REPLACE", source]),
        Effect::LibraryRemoved { name } => function(to, &[b"DELETE", name.as_bytes()]),
        Effect::LibrariesRemoved => function(to, &[b"FLUSH"]),
    }
}

fn function(to: &mut Building, words: &[&[u8]]) {
    let words: SmallVec<[Word<'_>; 3]> = words.iter().map(|word| Word::from(*word)).collect();
    to.one(None, b"FUNCTION", &words);
}

fn number(db: DbId) -> Word<'static> {
    Word::Number(db.0.into())
}

fn delete(to: &mut Building, db: DbId, key: &[u8]) {
    to.drop_last_of(db, key);
    to.many(db, key, Many::Delete, &[]);
}

fn set(to: &mut Building, (db, key): (DbId, &[u8]), value: NewValue<'_>, deadline: Deadline) {
    let value = match value {
        NewValue::Int(value) => Word::Number(value),
        NewValue::Bytes { bytes, .. } => bytes.into(),
        NewValue::Incoming(incoming) => Word::Bytes(Bytes::Incoming(incoming)),
    };
    // With KEEPTTL the deadline of what was there would come back.
    if deadline != Deadline::Keep {
        to.drop_last_of(db, key);
    }
    let (key, option): (Word<'_>, &[u8]) = (key.into(), b"KEEPTTL");
    match deadline {
        Deadline::Clear => to.one(Some(db), b"SET", &[key, value]),
        Deadline::Keep => to.one(Some(db), b"SET", &[key, value, option.into()]),
        Deadline::At(deadline) => {
            let option: &[u8] = b"PXAT";
            to.one(Some(db), b"SET", &[key, value, option.into(), Word::Number(deadline)]);
        }
    }
}

/// No bytes make a string that was not there, and change none that was.
fn write(to: &mut Building, (db, key): (DbId, &[u8]), (offset, bytes): (u64, &[u8]), is_new: bool) {
    match (bytes, is_new) {
        ([], true) => return set(to, (db, key), NewValue::Bytes { bytes, raw: true }, Deadline::Clear),
        ([], false) => return,
        _ => {}
    }
    let offset = Word::Number(i64::try_from(offset).unwrap_or(i64::MAX));
    to.one(Some(db), b"SETRANGE", &[key.into(), offset, bytes.into()]);
}

fn rename(to: &mut Building, from: (DbId, &[u8]), target: (DbId, &[u8]), replaces: bool) {
    if from.0 == target.0 {
        return to.one(Some(from.0), b"RENAME", &[from.1.into(), target.1.into()]);
    }
    if from.1 != target.1 {
        copy(to, from, target);
        return delete(to, from.0, from.1);
    }
    if replaces {
        delete(to, target.0, target.1);
    }
    to.one(Some(from.0), b"MOVE", &[from.1.into(), number(target.0)]);
}

fn copy(to: &mut Building, from: (DbId, &[u8]), target: (DbId, &[u8])) {
    if from == target {
        return;
    }
    let (in_db, replace): (&[u8], &[u8]) = (b"DB", b"REPLACE");
    let words = [from.1.into(), target.1.into(), in_db.into(), number(target.0), replace.into()];
    to.one(Some(from.0), b"COPY", &words);
}

fn element(to: &mut Building, (db, key): (DbId, &[u8]), change: Change<'_>) {
    let mut many = |many, words: &[Word<'_>]| to.many(db, key, many, words);
    match change {
        Change::Field { field, value, deadline } => to.field((db, key), (field, value), deadline),
        Change::FieldDeadline { field, deadline: Some(at) } => to.field_deadline((db, key), field, at),
        Change::FieldDeadline { field, deadline: None } => many(Many::HashPersist, &[Word::Bytes(field)]),
        Change::FieldRemoved { field } | Change::FieldExpired { field } => {
            many(Many::HashDelete, &[Word::Bytes(field)]);
        }
        Change::Member { member } => many(Many::SetAdd, &[Word::Bytes(member)]),
        Change::MemberRemoved { member } => many(Many::SetRemove, &[Word::Bytes(member)]),
        Change::Scored { member, score } => {
            let score = score_text(score);
            many(Many::ScoredAdd, &[score.as_bytes().into(), Word::Bytes(member)]);
        }
        Change::ScoredRemoved { member } => many(Many::ScoredRemove, &[Word::Bytes(member)]),
        Change::Pushed { end, item } => many(Many::Push(end), &[Word::Bytes(item)]),
        Change::Popped { end, item_count } => pop(to, (db, key), end, item_count),
        Change::Item { index, item } => {
            let index = Word::Number(i64::try_from(index).unwrap_or(i64::MAX));
            to.one(Some(db), b"LSET", &[key.into(), index, Word::Bytes(item)]);
        }
        Change::ItemInserted { is_before, pivot, item } => {
            let side: &[u8] = if is_before { b"BEFORE" } else { b"AFTER" };
            let words = [key.into(), side.into(), Word::Bytes(pivot), Word::Bytes(item)];
            to.one(Some(db), b"LINSERT", &words);
        }
        Change::ItemsRemoved { item, count } => {
            to.one(Some(db), b"LREM", &[key.into(), Word::Number(count), Word::Bytes(item)]);
        }
        Change::EntryAdded { id, parts } => {
            let id = id.to_string();
            let mut words: SmallVec<[Word<'_>; 8]> = SmallVec::new();
            words.extend([key.into(), id.as_bytes().into()]);
            words.extend(parts.iter().map(|part| Word::from(*part)));
            to.one(Some(db), b"XADD", &words);
        }
        Change::EntryRemoved { id } => many(Many::EntryRemove, &[id.to_string().as_bytes().into()]),
        Change::EntriesTrimmed { first, .. } => trimmed(to, (db, key), first),
        Change::StreamMarked { last, added_count, max_deleted } => {
            marked(to, (db, key), last, added_count, max_deleted);
        }
        change => group(to, (db, key), change),
    }
}

/// What becomes of groups of a stream.
fn group(to: &mut Building, (db, key): (DbId, &[u8]), change: Change<'_>) {
    let mut command = |name: &'static [u8], words: &[&[u8]]| {
        let words: SmallVec<[Word<'_>; 16]> = words.iter().map(|word| Word::from(*word)).collect();
        to.one(Some(db), name, &words);
    };
    match change {
        Change::GroupSet { group, last, read_count, is_new_group } => {
            let count = read_count.map_or(-1, |count| i64::try_from(count).unwrap_or(-1)).to_string();
            let last = last.to_string();
            let (verb, read): (&[u8], &[u8]) =
                (if is_new_group { b"CREATE" } else { b"SETID" }, b"ENTRIESREAD");
            let words = [verb, key, group, last.as_bytes(), b"MKSTREAM", read, count.as_bytes()];
            match is_new_group {
                true => command(b"XGROUP", &words),
                false => command(b"XGROUP", &[&words[..4], &words[5..]].concat()),
            }
        }
        Change::GroupRemoved { group } => command(b"XGROUP", &[b"DESTROY", key, group]),
        Change::ConsumerAdded { group, consumer } => {
            command(b"XGROUP", &[b"CREATECONSUMER", key, group, consumer]);
        }
        Change::ConsumerRemoved { group, consumer } => {
            command(b"XGROUP", &[b"DELCONSUMER", key, group, consumer]);
        }
        Change::PendingSet { group, consumer, id, time, count } => {
            let (id, time, count) = (id.to_string(), time.to_string(), count.to_string());
            let (time, count) = (time.as_bytes(), count.as_bytes());
            let words: [&[u8]; 11] = [
                key,
                group,
                consumer,
                b"0",
                id.as_bytes(),
                b"TIME",
                time,
                b"RETRYCOUNT",
                count,
                b"FORCE",
                b"JUSTID",
            ];
            command(b"XCLAIM", &words);
        }
        Change::PendingRemoved { group, id } => {
            command(b"XACK", &[key, group, id.to_string().as_bytes()]);
        }
        _ => {}
    }
}

/// A stream that has no entries: a group makes it, and goes.
fn empty_stream(to: &mut Building, (db, key): (DbId, &[u8])) {
    let group = Change::GroupSet { group: b"", last: StreamId::MIN, read_count: None, is_new_group: true };
    element(to, (db, key), group);
    element(to, (db, key), Change::GroupRemoved { group: b"" });
}

fn trimmed(to: &mut Building, (db, key): (DbId, &[u8]), first: Option<StreamId>) {
    let (equals, zero): (&[u8], &[u8]) = (b"=", b"0");
    let (by, to_id) = match first {
        Some(first) => (&b"MINID"[..], first.to_string()),
        None => (&b"MAXLEN"[..], String::new()),
    };
    let to_id = if first.is_some() { to_id.as_bytes() } else { zero };
    to.one(Some(db), b"XTRIM", &[key.into(), by.into(), equals.into(), to_id.into()]);
}

fn marked(
    to: &mut Building,
    (db, key): (DbId, &[u8]),
    last: StreamId,
    added_count: u64,
    max_deleted: StreamId,
) {
    let (last, max_deleted) = (last.to_string(), max_deleted.to_string());
    let (added, deleted): (&[u8], &[u8]) = (b"ENTRIESADDED", b"MAXDELETEDID");
    let count = Word::Number(i64::try_from(added_count).unwrap_or(i64::MAX));
    let words = [
        key.into(),
        last.as_bytes().into(),
        added.into(),
        count,
        deleted.into(),
        max_deleted.as_bytes().into(),
    ];
    to.one(Some(db), b"XSETID", &words);
}

fn pop(to: &mut Building, (db, key): (DbId, &[u8]), end: End, item_count: u64) {
    let count = i64::try_from(item_count).unwrap_or(i64::MAX - 1);
    let key = key.into();
    match (end, count) {
        // A trim that takes nothing is told as well.
        (_, 0) => {}
        (End::Left, 1) => to.one(Some(db), b"LPOP", &[key]),
        (End::Right, 1) => to.one(Some(db), b"RPOP", &[key]),
        (End::Left, _) => to.one(Some(db), b"LTRIM", &[key, Word::Number(count), Word::Number(-1)]),
        (End::Right, _) => to.one(Some(db), b"LTRIM", &[key, Word::Number(0), Word::Number(-count - 1)]),
    }
}

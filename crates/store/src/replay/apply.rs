//! From commands to changes: units run on a store, without a server.
//!
//! ```text
//!   unit ── all of it read and checked ──▶ all others stop ──▶ its commands, one after the other ──▶ (next)
//!                   │ malformed                                      │ one does not run
//!                   ▼ nothing has been changed                       ▼
//!                 (next)                                           ENDED: no other unit is run
//! ```
//! The clock stands at 0: nothing expires but by the stream's own DEL and HDEL. What is changed has the cause `Load`: no encoder
//! makes units of it.

use smallvec::SmallVec;

use crate::entry::{Deadline, NewValue};
use crate::error::OpError;
use crate::step::Cause;
use crate::store::Store;
use crate::stream::command::{self, Command, Malformed, OfElements, OfList, OfStream, Placed, Script};
use crate::types::{
    AddRule, Added, ClaimRule, FieldMode, GroupMade, GroupStart, Insertion, Marks, NegativeZero, NewId,
    ScoreRule, Setting, StreamAt, Trim, TrimTo,
};
use crate::worker::Worker;
use crate::{DbId, Key};

/// Units whose keys are brought into the cache together.
const BATCH_UNITS: usize = 16;

/// Why a unit was not run, or not to its end.
#[derive(thiserror::Error, Debug)]
pub enum ApplyError {
    /// Nothing has been changed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Nothing has been changed.
    #[error("byte {offset} of the unit: there is no database {db}: open the store with as many as the stream's had")]
    NoDatabase { offset: usize, db: u32 },
    /// Nothing has been changed: another thread does not stop.
    #[error("the unit is one step to others, and they do not stop: {0}")]
    NotAlone(#[source] OpError),
    /// The store refuses the command.
    #[error("byte {offset} of the unit: {name}: {source}; open the store anew as of its last checkpoint")]
    Refused { offset: usize, name: String, source: OpError },
    /// The store has not what the command changes.
    #[error(
        "byte {offset} of the unit: {name}: {what}: the store is not the one that the stream was made beside; \
         open it anew as of the checkpoint that the stream begins at"
    )]
    Differs { offset: usize, name: String, what: &'static str },
    #[error("a unit before has not been run to its end: open the store anew as of its last checkpoint")]
    Ended,
}

/// Why a command was not run.
enum Stopped {
    Refused(OpError),
    Differs(&'static str),
}

impl From<OpError> for Stopped {
    fn from(error: OpError) -> Stopped {
        Stopped::Refused(error)
    }
}

/// How much of several units has been run.
pub(super) struct Applied {
    pub byte_count: usize,
    pub unit_count: usize,
}

/// Runs units in their order; see the module.
pub struct Applier {
    worker: Worker,
    /// Selected by the last unit.
    db: Option<DbId>,
    has_ended: bool,
}

impl Applier {
    /// For a stream from a cut on.
    pub fn new(store: &Store) -> Applier {
        let mut worker = store.worker();
        worker.set_now(0);
        worker.steps().set_cause(Cause::Load);
        Applier { worker, db: None, has_ended: false }
    }

    /// Runs one unit: to all others, and to each cut, it is one step.
    ///
    /// # Errors
    /// [`ApplyError`]. After `Refused` and `Differs` a part of the unit may have been run, and every later unit is refused.
    pub fn apply(&mut self, unit: &[u8]) -> Result<(), ApplyError> {
        self.run_script(&command::script(unit, self.db)?, None)
    }

    /// Runs the first of these units, as many as are looked up together.
    ///
    /// # Errors
    /// Those of [`Applier::apply`]; units before the one that fails have been run.
    pub(super) fn apply_some(&mut self, units: &[u8]) -> Result<Applied, ApplyError> {
        let (mut byte_count, mut db) = (0, self.db);
        let mut batch: SmallVec<[Script<'_>; BATCH_UNITS]> = SmallVec::new();
        while byte_count < units.len() && batch.len() < BATCH_UNITS {
            match command::first(&units[byte_count..], db) {
                Ok(script) => {
                    (byte_count, db) = (byte_count + script.len, script.db);
                    batch.push(script);
                }
                // Those before it are run first; the next call comes to it again.
                Err(_) if !batch.is_empty() => break,
                Err(malformed) => return Err(malformed.into()),
            }
        }
        let keys = self.keys_ahead(&batch);
        for (script, found) in batch.iter().zip(&keys) {
            self.run_script(script, found.map(|(_, key)| key))?;
        }
        Ok(Applied { byte_count, unit_count: batch.len() })
    }

    /// The keys of units of one command each, brought into the cache: each stage for all before the next.
    fn keys_ahead<'u>(&self, batch: &[Script<'u>]) -> SmallVec<[Option<(DbId, Key<'u>)>; BATCH_UNITS]> {
        let database_count = self.worker.store().database_count();
        let key_of = |script: &Script<'u>| match &script.commands[..] {
            [Placed { db: Some(db), command, .. }] if db.0 < database_count => {
                command.first_key().map(|key| (*db, self.worker.key(key).to_be_written(true)))
            }
            _ => None,
        };
        let mut keys: SmallVec<[_; BATCH_UNITS]> = batch.iter().map(key_of).collect();
        let ahead = self.worker.prefetch();
        keys.iter_mut().flatten().for_each(|(db, key)| ahead.node(*db, key));
        keys.iter().flatten().for_each(|(_, key)| ahead.child(key));
        keys.iter_mut().flatten().for_each(|(db, key)| ahead.leaf(*db, key));
        keys.iter_mut().flatten().for_each(|(_, key)| ahead.slots(key));
        keys.iter_mut().flatten().for_each(|(_, key)| ahead.record(key));
        keys.iter().flatten().for_each(|(_, key)| ahead.value(key));
        keys
    }

    /// `found`: the first key of the only command, as looked up ahead.
    fn run_script(&mut self, script: &Script<'_>, found: Option<Key<'_>>) -> Result<(), ApplyError> {
        if self.has_ended {
            return Err(ApplyError::Ended);
        }
        script.commands.iter().try_for_each(|placed| self.check_databases(placed))?;
        match &script.commands[..] {
            [] => {}
            [single] => self.run(single, found)?,
            several => self.run_alone(several)?,
        }
        self.db = script.db;
        Ok(())
    }

    fn check_databases(&self, placed: &Placed<'_>) -> Result<(), ApplyError> {
        let others = match placed.command {
            Command::Swap { a, b } => [Some(a), Some(b)],
            Command::Move { to, .. } => [Some(to), None],
            Command::Copy { to_db, .. } => [Some(to_db), None],
            _ => [None; 2],
        };
        let count = self.worker.store().database_count();
        let missing = others.into_iter().chain([placed.db]).flatten().find(|db| db.0 >= count);
        match missing {
            None => Ok(()),
            Some(db) => Err(ApplyError::NoDatabase { offset: placed.offset, db: db.0 }),
        }
    }

    fn run_alone(&mut self, commands: &[Placed<'_>]) -> Result<(), ApplyError> {
        let _alone = self.worker.stop_others().map_err(ApplyError::NotAlone)?;
        self.worker.steps().begin();
        let ended = commands.iter().try_for_each(|placed| self.run(placed, None));
        self.worker.steps().end();
        ended
    }

    fn run(&mut self, placed: &Placed<'_>, found: Option<Key<'_>>) -> Result<(), ApplyError> {
        // A command has a database unless it names its own.
        let db = placed.db.unwrap_or(DbId(0));
        let stopped = match run(&mut self.worker, db, &placed.command, found) {
            Ok(()) => return Ok(()),
            Err(stopped) => stopped,
        };
        self.has_ended = true;
        let (offset, name) = (placed.offset, command::text(placed.name));
        Err(match stopped {
            Stopped::Refused(source) => ApplyError::Refused { offset, name, source },
            Stopped::Differs(what) => ApplyError::Differs { offset, name, what },
        })
    }
}

const NO_KEY: &str = "there is no such key";

fn expect(is_there: bool, what: &'static str) -> Result<(), Stopped> {
    match is_there {
        true => Ok(()),
        false => Err(Stopped::Differs(what)),
    }
}

fn run(worker: &mut Worker, db: DbId, command: &Command<'_>, found: Option<Key<'_>>) -> Result<(), Stopped> {
    let key_of = |worker: &Worker, bytes| found.unwrap_or_else(|| worker.key(bytes));
    match *command {
        Command::Set { key, value, deadline } => {
            let key = key_of(worker, key);
            set(worker, (db, &key), value, deadline)?;
        }
        Command::WriteRange { key, offset, bytes } => {
            let key = key_of(worker, key);
            worker.string_at(db, &key).write_range(offset, bytes)?;
        }
        Command::SetDeadline { key, deadline } => {
            let key = key_of(worker, key);
            expect(worker.set_deadline(db, &key, deadline)?, NO_KEY)?;
        }
        Command::Delete { ref keys } => {
            // One that is not there need not be told twice that it has gone.
            for key in keys {
                let key = worker.key(key);
                worker.remove(db, &key)?;
            }
        }
        Command::Rename { from, to } => {
            let (from, to) = (worker.key(from), worker.key(to));
            expect(worker.rename((db, &from), (db, &to))?, NO_KEY)?;
        }
        Command::Move { key, to } => {
            let key = worker.key(key);
            expect(worker.rename((db, &key), (to, &key))?, NO_KEY)?;
        }
        Command::Copy { from, to, to_db } => {
            let (from, to) = (worker.key(from), worker.key(to));
            expect(worker.copy((db, &from), (to_db, &to))?, NO_KEY)?;
        }
        Command::Flush => worker.database(db).flush()?,
        Command::Swap { a, b } => worker.database(a).swap_with(b)?,
        Command::SetLibrary { ref name, source } => drop(worker.libraries().set(name, source)?),
        Command::RemoveLibrary { name } => {
            expect(worker.libraries().remove(name)?, "there is no such library")?;
        }
        Command::RemoveLibraries => drop(worker.libraries().clear()?),
        Command::Elements { key, ref change } => {
            let key = key_of(worker, key);
            run_on_elements(worker, (db, &key), change)?;
        }
        Command::List { key, ref change } => {
            let key = key_of(worker, key);
            run_on_list(worker, (db, &key), change)?;
        }
        Command::Stream { key, ref change } => {
            let key = key_of(worker, key);
            run_on_stream(worker, (db, &key), change)?;
        }
    }
    Ok(())
}

fn run_on_elements(
    worker: &mut Worker,
    (db, key): (DbId, &Key<'_>),
    change: &OfElements<'_>,
) -> Result<(), OpError> {
    match change {
        OfElements::SetFields(pairs) => {
            worker.hash_at(db, key).set(pairs, FieldMode::All, Deadline::Clear).map(drop)
        }
        OfElements::RemoveFields(fields) => worker.hash_at(db, key).remove(fields).map(drop),
        OfElements::SetDeadline { deadline, fields } => {
            worker.hash_at(db, key).set_deadline(fields, *deadline).map(drop)
        }
        OfElements::AddMembers(members) => worker.set_at(db, key).add(members).map(drop),
        OfElements::RemoveMembers(members) => worker.set_at(db, key).remove(members).map(drop),
        OfElements::PutScored(scored) => {
            let rule = ScoreRule { negative_zero: NegativeZero::Kept, ..ScoreRule::default() };
            worker.sorted_set_at(db, key).put(scored, &rule).map(drop)
        }
        OfElements::RemoveScored(members) => worker.sorted_set_at(db, key).remove(members).map(drop),
    }
}

fn run_on_list(worker: &mut Worker, (db, key): (DbId, &Key<'_>), change: &OfList<'_>) -> Result<(), Stopped> {
    let mut list = worker.list_at(db, key);
    match *change {
        OfList::Push { end, ref items } => list.push(end, items, false).map(drop)?,
        OfList::Pop { end } => expect(list.pop(end, 1, |_| (), |_| ())?, NO_KEY)?,
        OfList::Trim { first, last } => expect(list.trim(first, last)?, NO_KEY)?,
        OfList::SetItem { index, item } => {
            expect(list.set(index, item)? == Setting::Done, "the list has no item there")?;
        }
        OfList::Insert { is_before, pivot, item } => {
            let insertion = list.insert(is_before, pivot, item)?;
            expect(matches!(insertion, Insertion::Done(_)), "the list has no such item")?;
        }
        OfList::RemoveItems { count, item } => {
            let removed_count = list.remove(count, item)?;
            expect(removed_count == count.unsigned_abs(), "the list has not as many of these items")?;
        }
    }
    Ok(())
}

fn run_on_stream(
    worker: &mut Worker,
    (db, key): (DbId, &Key<'_>),
    change: &OfStream<'_>,
) -> Result<(), Stopped> {
    let mut stream = worker.stream_at(db, key);
    match *change {
        OfStream::Add { id, ref parts } => {
            let added = stream.add(NewId::Exact(id), parts, &AddRule::default())?;
            expect(matches!(added, Added::Done { .. }), "the stream has a greater ID")?;
        }
        OfStream::Remove(ref ids) => {
            let removed_count = stream.remove(ids)?;
            expect(removed_count == ids.len() as u64, "the stream has not these entries")?;
        }
        OfStream::TrimTo(first) => {
            let to = first.map_or(TrimTo::Length(0), TrimTo::Id);
            expect(stream.trim(&Trim { to, approximately: None })? > 0, "the stream has no such entries")?;
        }
        OfStream::Mark { last, added_count, max_deleted } => {
            let marks = Marks { last, added_count, max_deleted };
            expect(stream.set_marks(|_, _| Some(marks))?, NO_KEY)?;
        }
        ref change => run_on_group(stream, change)?,
    }
    Ok(())
}

const NO_GROUP: &str = "there is no such group";

fn run_on_group(stream: StreamAt<'_, '_>, change: &OfStream<'_>) -> Result<(), Stopped> {
    match *change {
        OfStream::SetGroup { group, last, read_count, is_new } => {
            let (start, mut group) = (GroupStart { after: Some(last), read_count }, stream.group(group));
            match is_new {
                true => expect(group.create(&start, true)? == GroupMade::Done, "there is such a group"),
                false => expect(group.set(&start)?.is_ok(), NO_GROUP),
            }
        }
        OfStream::RemoveGroup { group } => expect(stream.group(group).remove()?.is_ok(), NO_GROUP),
        OfStream::AddConsumer { group, consumer } => expect(
            stream.group(group).add_consumer(consumer)? == Ok(true),
            "there is such a consumer, or no group",
        ),
        OfStream::RemoveConsumer { group, consumer } => {
            let removed = stream.group(group).remove_consumer(consumer)?;
            expect(matches!(removed, Ok(Some(_))), "there is no such consumer")
        }
        OfStream::Own { group, consumer, id, time, count } => {
            let rule = ClaimRule::told(time, count);
            expect(stream.group(group).claim(consumer, &[id], &rule, || (), |_, _| ())?.is_ok(), NO_GROUP)
        }
        OfStream::Acknowledge { group, id } => {
            expect(stream.group(group).acknowledge(&[id])? == Ok(1), "nothing is pending under this ID")
        }
        _ => Ok(()),
    }
}

/// A number is kept as one, as Redis does.
fn set(
    worker: &mut Worker,
    (db, key): (DbId, &Key<'_>),
    value: &[u8],
    deadline: Deadline,
) -> Result<(), Stopped> {
    let number = command::number(value).filter(|number| number.to_string().as_bytes() == value);
    let value = number.map_or(NewValue::Bytes { bytes: value, raw: false }, NewValue::Int);
    match deadline {
        Deadline::At(deadline) => worker.string_at(db, key).set_until(value, deadline)?,
        other => worker.set(db, key, value, other)?,
    };
    Ok(())
}

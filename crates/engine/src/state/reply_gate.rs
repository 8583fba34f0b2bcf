//! Replies that wait until what they tell of is durable (`appendfsync always`): no byte leaves the server that depends on a unit which
//! is not (G1). Threads do not wait, and a read waits only if its own keys have changes that are not durable.
//!
//! ```text
//!   worker:  a step's locks ── effects ──▶ words of its keys ── unit appended ──▶ note_unit: its end into the words ── locks go
//!   reader:  a value is read ──▶ the key's lock is free ──▶ the end in the key's word is the reply's need
//!   output:  ... reply (need 40) | reply (need 75) |   durable: 60 ──▶ up to here it may leave
//!   log:     written, synced ──▶ durable(75): workers that hold output are woken by their mailboxes
//! ```
//!
//! **The lock is the mark.** A thread that changes a key has locked the key's stripe, exclusively, before its first latch, and gives
//! the lock up after the unit has been appended and noted; or all others stand still until then. So a reader that has met a change finds the lock taken, or the end
//! noted: it looks at the lock after its read, waits for the thread that has it (the time of a command, never of a device), and then takes the word. No word has to
//! be marked beforehand.
//!
//! **Expiry.** A key that has expired is gone by the clock, whether its removal is durable or not: a start after a crash finds
//! it expired as well. Its unit is noted all the same, as each step of any thread is, eviction included: the store tells of each before the key's lock goes.

mod bell;
mod ends;
#[cfg(debug_assertions)]
mod rehearsal;

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stillframe_store::{DbId, Ear, Effect, Key, Listener, Position, Step, Worker, WorkerId};

use crate::protocol::need::{Need, RunningNeed};
use crate::state::exceptions::{Exceptions, Matter};
use crate::state::mailbox::{Mailbox, Message};

use bell::Bell;
use ends::Ends;
#[cfg(debug_assertions)]
pub use rehearsal::Mistake;
#[cfg(debug_assertions)]
use rehearsal::{Mistaken, Rehearsal};

const WORD_COUNT: usize = 16_384;
/// Workers whose steps are looked for under one lock are few.
const SHARD_COUNT: usize = 32;

/// What a worker is at.
///
/// ```text
///   (none) ── begin of a step ──▶ STEP ── note_unit, end ──▶ (none)
///   (none) ── begin_command ──▶ COMMAND ── steps begin, are noted and end ──▶ COMMAND ── end_command ──▶ (none)
/// ```
#[derive(Default)]
struct Present {
    is_command: bool,
    /// Words of the keys that the running step has changed.
    words: Vec<usize>,
    changes_all: bool,
    /// Of the newest unit.
    end_offset: u64,
    /// What it tells others waits for this.
    need: Option<Arc<RunningNeed>>,
}

/// See the module.
pub struct ReplyGate {
    exceptions: Exceptions,
    /// Of each worker.
    mailboxes: Vec<Arc<Mailbox>>,
    bell: Bell,
    /// There are some once replies have been held.
    ends: OnceLock<Ends>,
    /// Open from the first time on that replies are held.
    ear: OnceLock<Ear>,
    shards: [Mutex<Vec<(WorkerId, Present)>>; SHARD_COUNT],
    #[cfg(debug_assertions)]
    mistaken: Mistaken,
    #[cfg(debug_assertions)]
    rehearsal: OnceLock<Rehearsal>,
}

impl ReplyGate {
    /// One that holds nothing, of workers with these mailboxes.
    pub fn new(exceptions: &Exceptions, mailboxes: Vec<Arc<Mailbox>>) -> ReplyGate {
        ReplyGate {
            exceptions: exceptions.clone(),
            bell: Bell::new(mailboxes.len()),
            mailboxes,
            ends: OnceLock::new(),
            ear: OnceLock::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            #[cfg(debug_assertions)]
            mistaken: Mistaken::default(),
            #[cfg(debug_assertions)]
            rehearsal: OnceLock::new(),
        }
    }

    /// What has to hear of the store's changes, behind whatever makes units.
    pub fn listeners(self: &Arc<ReplyGate>) -> Vec<Arc<dyn Listener>> {
        let gate: Arc<dyn Listener> = self.clone();
        #[cfg(debug_assertions)]
        return vec![self.rehearsal.get_or_init(|| self.new_rehearsal()).listener(), gate];
        #[cfg(not(debug_assertions))]
        vec![gate]
    }

    fn shard(&self, worker: WorkerId) -> &Mutex<Vec<(WorkerId, Present)>> {
        &self.shards[worker.0 as usize % SHARD_COUNT]
    }

    /// Calls `f` with what a worker is at, if it is at something.
    fn with<R>(&self, worker: WorkerId, f: impl FnOnce(&mut Present) -> R) -> Option<R> {
        let mut shard = self.shard(worker).lock();
        shard.iter_mut().find(|(other, _)| *other == worker).map(|(_, present)| f(present))
    }

    fn begin_at(&self, worker: WorkerId, is_command: bool) {
        let mut shard = self.shard(worker).lock();
        if !shard.iter().any(|(other, _)| *other == worker) {
            shard.push((worker, Present { is_command, ..Present::default() }));
        }
    }

    fn remove(&self, worker: WorkerId) -> Option<Present> {
        let mut shard = self.shard(worker).lock();
        let index = shard.iter().position(|(other, _)| *other == worker)?;
        Some(shard.swap_remove(index).1)
    }

    fn wake(&self, worker: usize) {
        self.mailboxes[worker].send(Message::Durable);
    }

    fn settle(&self, need: Option<Arc<RunningNeed>>, end_offset: u64) {
        if let Some(need) = need {
            need.settle(end_offset);
            // A worker that has asked while it was not known waits for any news.
            self.bell.ring(0, |worker| self.wake(worker));
        }
    }
}

/// What the log calls.
impl ReplyGate {
    /// From the next unit on replies are held until that is durable (`appendfsync always`); or not any more: everything is released.
    /// To be called by the thread that changes the policy, before the log is told of `always`, and after it has synced for the last time.
    pub fn set_holding(&self, is_holding: bool) {
        if is_holding {
            self.ends.get_or_init(|| Ends::new(WORD_COUNT));
            // It hears of all units of which a command may wait for the end.
            self.ear.get().into_iter().for_each(Ear::open);
            self.bell.set_holding(true, |_| {});
            self.exceptions.set(Matter::HOLDING, true);
        } else {
            self.exceptions.set(Matter::HOLDING, false);
            self.bell.set_holding(false, |worker| self.wake(worker));
            self.ear.get().into_iter().for_each(Ear::close);
        }
    }

    /// A step of this worker ([`stillframe_store::stream::Unit::worker`]) is in the log, in a unit that ends at this offset. To be called by
    /// the consumer of the store's encoder, in its `append`: with the locks of the step's keys held, once the offset is known. It is short, and
    /// waits for nothing. While nothing is held it is a look at one word.
    pub fn note_unit(&self, worker: WorkerId, end_offset: u64) {
        let Some(ends) = self.ends.get().filter(|_| self.bell.is_holding()) else { return };
        ends.note_tail(end_offset);
        self.with(worker, |present| {
            present.words.drain(..).for_each(|index| ends.note(index, end_offset));
            if std::mem::take(&mut present.changes_all) {
                ends.note_all(end_offset);
            }
            present.end_offset = present.end_offset.max(end_offset);
        });
    }

    /// Everything before this offset is durable: wakes the workers that wait for that. To be called by the log's thread after each
    /// successful sync, whatever the policy.
    pub fn durable(&self, to_offset: u64) {
        self.bell.rise(to_offset, |worker| self.wake(worker));
    }

    /// The log has failed: nothing more becomes durable. Clients whose output is held are closed unanswered, from now on, until
    /// [`ReplyGate::mend`].
    pub fn failed(&self) {
        self.bell.set_failed(true, |worker| self.wake(worker));
    }

    /// A new log has begun at this offset, with everything before it durable in a checkpoint.
    pub fn mend(&self, at_offset: u64) {
        self.bell.set_failed(false, |_| {});
        self.durable(at_offset);
    }
}

/// What commands ask.
impl ReplyGate {
    /// Whether replies may be held. Commands look at [`Matter::HOLDING`].
    pub fn is_holding(&self) -> bool {
        self.bell.is_holding()
    }

    /// A command begins: what it tells others before it ends has the need that [`ReplyGate::end_command`] gives.
    pub fn begin_command(&self, worker: WorkerId) {
        self.begin_at(worker, true);
    }

    /// Where the newest unit ends that the worker has made since [`ReplyGate::begin_command`]; 0 if there is none.
    pub fn own_end_offset(&self, worker: WorkerId) -> u64 {
        self.with(worker, |present| present.end_offset).unwrap_or(0)
    }

    /// The command has ended, with this need.
    pub fn end_command(&self, worker: WorkerId, need_offset: u64) {
        if let Some(present) = self.remove(worker) {
            self.settle(present.need, need_offset);
        }
    }

    /// The need of what the worker's running step or command tells others; nothing if there is none.
    pub fn running(&self, worker: WorkerId) -> Need {
        if !self.bell.is_holding() {
            return Need::default();
        }
        #[cfg(debug_assertions)]
        if self.mistaken.is(Mistake::TellsAtOnce) {
            return Need::default();
        }
        let need = self.with(worker, |present| present.need.get_or_insert_default().clone());
        need.map_or_else(Need::default, Need::of_running)
    }

    /// Where the newest unit of a key ends, if no step is under way that has been met.
    pub fn end_offset_of(&self, db: DbId, hash: u64) -> u64 {
        #[cfg(debug_assertions)]
        if self.mistaken.is(Mistake::ReadsAtOnce) {
            return 0;
        }
        self.ends.get().map_or(0, |ends| ends.of(ends.index_of(db.0, hash)))
    }

    /// Which word a key has. Keys of one word wait for each other.
    pub fn word_of(&self, db: DbId, hash: u64) -> usize {
        self.ends.get_or_init(|| Ends::new(WORD_COUNT)).index_of(db.0, hash)
    }

    /// Where the newest unit of a key ends that this worker has read just now. Waits for a command that is changing the key.
    pub fn seen_end_offset(&self, worker: &Worker, db: DbId, key: &Key<'_>) -> u64 {
        worker.steps().await_writer(db, key);
        self.end_offset_of(db, key.hash)
    }

    /// Where the newest unit of all ends.
    pub fn tail_offset(&self) -> u64 {
        self.ends.get().map_or(0, Ends::tail_offset)
    }
}

/// What those ask who have output.
impl ReplyGate {
    /// Output with this need, or a lower one, may leave.
    #[inline]
    pub fn limit_offset(&self) -> u64 {
        #[cfg(debug_assertions)]
        if self.mistaken.is(Mistake::SendsAtOnce) {
            return u64::MAX;
        }
        self.bell.limit_offset()
    }

    /// Everything before this is durable, as far as the log has said.
    pub fn durable_offset(&self) -> u64 {
        self.bell.durable_offset()
    }

    /// Whether what is held will never leave.
    pub fn has_failed(&self) -> bool {
        self.bell.is_holding() && self.bell.has_failed()
    }

    /// The worker, by its index, holds output with this need, the lowest that it has; 0: not known yet. `None`: it holds none. It gets [`Message::Durable`]
    /// when that changes. It has to look once more before it sleeps.
    pub fn ask(&self, worker: usize, offset: Option<u64>) {
        self.bell.ask(worker, offset);
    }
}

/// A log for tests, in debug builds: nothing is durable by itself.
#[cfg(debug_assertions)]
impl ReplyGate {
    fn new_rehearsal(self: &Arc<ReplyGate>) -> Rehearsal {
        let gate = Arc::downgrade(self);
        Rehearsal::new(Box::new(move |worker, end_offset| {
            if let Some(gate) = gate.upgrade() {
                gate.note_unit(worker, end_offset);
            }
        }))
    }

    /// Everything that has been done is durable, and nothing that comes from now on. To be called by a worker that is alone.
    pub fn rehearse(&self) {
        self.rehearsal.get().into_iter().for_each(Rehearsal::start);
        self.mend(self.rehearsed_offset());
        self.set_holding(true);
    }

    /// Nothing is held any more. To be called as [`ReplyGate::rehearse`] is.
    pub fn end_rehearsal(&self) {
        self.set_holding(false);
        self.rehearsal.get().into_iter().for_each(Rehearsal::stop);
    }

    /// Where the log of the tests ends.
    pub fn rehearsed_offset(&self) -> u64 {
        self.rehearsal.get().map_or(0, Rehearsal::end_offset)
    }

    /// Leaves a part of the rule out.
    pub fn make(&self, mistake: Mistake) {
        self.mistaken.set(mistake);
    }
}

/// It has to hear after the encoder of the log: at the end of a step the unit has been noted.
impl Listener for ReplyGate {
    fn attend(&self, ear: Ear) {
        // A listener attends once.
        let _ = self.ear.set(ear);
    }

    fn begin(&self, step: &Step) {
        self.begin_at(step.worker, false);
    }

    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        let Some(ends) = self.ends.get() else { return };
        self.with(step.worker, |present| {
            let mut add = |db: DbId, hash: u64| {
                let index = ends.index_of(db.0, hash);
                if present.words.last() != Some(&index) {
                    present.words.push(index);
                }
            };
            match effect {
                Effect::Set { db, key, .. }
                | Effect::Write { db, key, .. }
                | Effect::Element { db, key, .. }
                | Effect::Replace { db, key }
                | Effect::Deadline { db, key, .. }
                | Effect::Delete { db, key }
                | Effect::Expire { db, key }
                | Effect::Evict { db, key } => add(*db, key.hash),
                Effect::Move { from, to, .. } | Effect::Copy { from, to } => {
                    add(from.0, from.1.hash);
                    add(to.0, to.1.hash);
                }
                // Whatever key a function touches, the library is its code.
                Effect::Flush { .. }
                | Effect::Swap { .. }
                | Effect::LibrarySet { .. }
                | Effect::LibraryRemoved { .. }
                | Effect::LibrariesRemoved => present.changes_all = true,
            }
        });
    }

    fn end(&self, step: &Step, _: Position) {
        let is_command = self.with(step.worker, |present| {
            // Of what makes no unit there is nothing to wait for.
            (present.changes_all, _) = (false, present.words.clear());
            present.is_command
        });
        if is_command == Some(false) {
            if let Some(present) = self.remove(step.worker) {
                self.settle(present.need, present.end_offset);
            }
        }
    }
}

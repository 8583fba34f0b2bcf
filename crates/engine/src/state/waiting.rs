//! Clients that wait for a key to hold something, across workers.
//!
//! Who changes a key serves those who wait for it, whoever's clients they are, before anybody else gets at the key:
//!
//! ```text
//!   BLPOP, under its keys' locks:   nothing there ──▶ in the queues of its keys
//!   RPUSH, under its keys' locks:   push ──▶ the effect finds a queue: the key is ready ──▶ the first of the queue is served
//!                                                                                       ──▶ its worker sends the reply
//! ```
//! Both hold the locks of their keys all the time. So a key that is pushed to either has somebody in its queue, or whoever
//! comes to wait finds what was pushed.

mod claim;
mod queues;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stillframe_store::{Cause, DbId, Ear, Effect, Listener, Step, ValueType, WorkerId};

use crate::command::CommandId;
use crate::protocol::args::{ArgRange, Args};
use crate::state::clients::ClientInfo;
use crate::state::exceptions::{Exceptions, Matter};
use crate::state::session::LateReply;

use claim::Claim;
use queues::{Arrival, Queues};

/// So many of those who wait for a key and change further keys are served by whoever makes it ready (invariant W4). The others
/// are served in steps of their own: a change must not lock what all those change who wait.
const FIRST_SERVED: usize = 16;
/// So many further keys are locked at most by whoever makes keys ready.
const FURTHER_KEYS_MAX: usize = 64;

/// A database and the hash of a key in it.
type KeyPlace = (DbId, u64);

/// A key that has come to hold something, while somebody waits for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadyKey {
    pub db: DbId,
    pub hash: u64,
    pub key: Box<[u8]>,
}

/// Memory of a place in the queue of a key, with the queue if it is the only one, about.
const QUEUED_BYTES: usize = 160;

/// What a client waits for.
pub struct Wait<'a> {
    pub command: CommandId,
    pub args: &'a Args<'a>,
    /// The arguments that are the keys.
    pub keys: Range<usize>,
    /// Their hashes.
    pub hashes: Vec<u64>,
    /// Further keys that the command changes when it is served, as arguments, and their hashes.
    pub targets: Vec<(usize, u64)>,
    pub db: DbId,
    /// Of another type a key is none.
    pub wants: ValueType,
    /// The wait ends with its key.
    pub minds_end: bool,
    pub resp3: bool,
    pub reply: LateReply,
    /// When it waits no longer.
    pub deadline: Option<Instant>,
}

/// A client that waits, with what it takes to run its command in its place.
pub struct Waiter {
    pub client: Arc<ClientInfo>,
    pub command: CommandId,
    pub db: DbId,
    pub wants: ValueType,
    pub minds_end: bool,
    pub resp3: bool,
    pub reply: LateReply,
    pub arrival: Arrival,
    pub deadline: Option<Instant>,
    keys: Range<usize>,
    hashes: Box<[u64]>,
    targets: Box<[(usize, u64)]>,
    buf: Box<[u8]>,
    ranges: Box<[ArgRange]>,
    /// What its command took before it waited.
    first_step_ns: AtomicU64,
    claim: Claim,
}

impl Waiter {
    fn new(client: Arc<ClientInfo>, arrival: Arrival, wait: Wait<'_>) -> Waiter {
        let (mut buf, mut ranges) = (Vec::new(), Vec::with_capacity(wait.args.len()));
        for arg in wait.args.from(0) {
            ranges.push(ArgRange { start: buf.len() as u32, len: arg.len() as u32 });
            buf.extend_from_slice(arg);
        }
        Waiter {
            client,
            command: wait.command,
            db: wait.db,
            wants: wait.wants,
            minds_end: wait.minds_end,
            resp3: wait.resp3,
            reply: wait.reply,
            arrival,
            deadline: wait.deadline,
            keys: wait.keys,
            hashes: wait.hashes.into(),
            targets: wait.targets.into(),
            buf: buf.into(),
            ranges: ranges.into(),
            first_step_ns: AtomicU64::new(0),
            claim: Claim::default(),
        }
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.buf, &self.ranges)
    }

    /// What its command took before it waited.
    pub fn first_step(&self) -> Duration {
        Duration::from_nanos(self.first_step_ns.load(Ordering::Relaxed))
    }

    /// Memory that it takes, with its places in the queues, about.
    pub fn byte_count(&self) -> usize {
        let key_bytes: usize = self.keys.clone().map(|index| self.args().at(index).len()).sum();
        let ranges = self.ranges.len() * size_of::<ArgRange>();
        self.buf.len() + ranges + key_bytes + self.hashes.len() * QUEUED_BYTES + size_of::<Waiter>()
    }

    /// Which of its arguments is that key.
    pub fn index_of(&self, key: &[u8]) -> Option<usize> {
        let args = self.args();
        self.keys.clone().find(|index| args.at(*index) == key)
    }

    /// Further keys that its command changes when it is served.
    pub fn targets(&self) -> impl Iterator<Item = ReadyKey> + '_ {
        let args = self.args();
        self.targets.iter().map(move |(index, hash)| ReadyKey {
            db: self.db,
            hash: *hash,
            key: args.at(*index).into(),
        })
    }

    fn places(&self) -> impl Iterator<Item = KeyPlace> + '_ {
        self.hashes.iter().map(|hash| (self.db, *hash))
    }
}

/// All clients that wait.
#[derive(Default)]
pub struct Waiters {
    queues: Queues<KeyPlace, Waiter>,
    /// Until their workers have told them how the wait has ended.
    by_client: Mutex<HashMap<u64, Arc<Waiter>>>,
    /// Those who have not been answered.
    waiter_count: AtomicUsize,
    /// Those of them who change further keys.
    targeting_count: AtomicUsize,
    /// Those of them whose wait ends with its key.
    minding_count: AtomicUsize,
    /// Open as long as somebody waits; the lock is held while that begins and ends.
    ear: OnceLock<Mutex<Ear>>,
    /// Keys that the running step of a worker has made ready, in their order.
    ready: Mutex<HashMap<WorkerId, VecDeque<ReadyKey>>>,
    /// [`Matter::READY`] holds as long as there are some.
    exceptions: Exceptions,
}

impl Waiters {
    pub fn new(exceptions: &Exceptions) -> Waiters {
        Waiters { exceptions: exceptions.clone(), ..Waiters::default() }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiter_count.load(Ordering::Acquire) == 0
    }

    /// Marks a key as ready for the running step of a worker to serve.
    pub fn make_ready(&self, worker: WorkerId, key: ReadyKey) {
        let mut ready = self.ready.lock();
        let keys = ready.entry(worker).or_default();
        if keys.back() != Some(&key) {
            keys.push_back(key);
            self.exceptions.set(Matter::READY, true);
        }
    }

    /// Takes the first of the keys that the running step of a worker has made ready.
    pub fn take_ready(&self, worker: WorkerId) -> Option<ReadyKey> {
        let mut ready = self.ready.lock();
        let keys = ready.get_mut(&worker)?;
        let key = keys.pop_front();
        if keys.is_empty() {
            ready.remove(&worker);
        }
        if ready.is_empty() {
            self.exceptions.set(Matter::READY, false);
        }
        key
    }

    /// Whether somebody who waits changes further keys when served.
    pub fn have_targets(&self) -> bool {
        self.targeting_count.load(Ordering::Acquire) > 0
    }

    /// Whether the wait of somebody ends with its key.
    fn some_mind_ends(&self) -> bool {
        self.minding_count.load(Ordering::Acquire) > 0
    }

    /// Marks all keys of some databases that somebody waits for.
    fn all_ready(&self, worker: WorkerId, is_of: impl Fn(DbId) -> bool) {
        self.queues.for_each_key(|(db, hash), waiter| {
            if is_of(db) {
                let args = waiter.args();
                let place = waiter.hashes.iter().position(|of| *of == hash);
                let index = place.map_or(waiter.keys.start, |place| waiter.keys.start + place);
                self.make_ready(worker, ReadyKey { db, hash, key: args.at(index).into() });
            }
        });
    }

    /// Those who do not wait for ever.
    pub fn with_deadline_count(&self) -> usize {
        self.by_client.lock().values().filter(|waiter| waiter.deadline.is_some()).count()
    }

    /// Lets a client wait. The caller holds the locks of the keys.
    pub fn add(&self, client: Arc<ClientInfo>, wait: Wait<'_>) -> Arc<Waiter> {
        let id = client.id;
        let places: Vec<KeyPlace> = wait.hashes.iter().map(|hash| (wait.db, *hash)).collect();
        self.count(|count| count.fetch_add(1, Ordering::AcqRel));
        self.targeting_count.fetch_add(usize::from(!wait.targets.is_empty()), Ordering::AcqRel);
        self.minding_count.fetch_add(usize::from(wait.minds_end), Ordering::AcqRel);
        let waiter = self.queues.add(places.into_iter(), |arrival| Waiter::new(client, arrival, wait));
        self.by_client.lock().insert(id, waiter.clone());
        waiter
    }

    /// The command of a client has begun to wait, which took that long.
    pub fn note_first_step(&self, client: u64, time: Duration) {
        if let Some(waiter) = self.by_client.lock().get(&client) {
            waiter.first_step_ns.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// The first of those who wait for a key and came after another.
    pub fn next(&self, key: &ReadyKey, after: Arrival) -> Option<Arc<Waiter>> {
        self.queues.next((key.db, key.hash), after)
    }

    /// Lets `answer` serve a waiter, unless somebody has answered it. It says whether it did. Returns whether it did.
    pub fn serve(&self, waiter: &Waiter, answer: impl FnOnce() -> bool) -> bool {
        // What is given to one that is killed would be lost.
        let is_killed = || waiter.client.is_killed.load(Ordering::Acquire);
        let is_served = waiter.claim.serve(|| !is_killed() && answer());
        if is_served {
            self.take_out(waiter);
        }
        is_served
    }

    /// Ends a wait. Returns whether the caller is the one to tell the client.
    pub fn end(&self, waiter: &Waiter) -> bool {
        let is_ended = waiter.claim.end();
        if is_ended {
            self.take_out(waiter);
        }
        is_ended
    }

    fn take_out(&self, waiter: &Waiter) {
        self.queues.remove(waiter.places(), waiter.arrival);
        self.targeting_count.fetch_sub(usize::from(!waiter.targets.is_empty()), Ordering::AcqRel);
        self.minding_count.fetch_sub(usize::from(waiter.minds_end), Ordering::AcqRel);
        self.count(|count| count.fetch_sub(1, Ordering::AcqRel));
    }

    /// Changes how many wait; as long as there are some, the effects are heard.
    fn count(&self, change: impl FnOnce(&AtomicUsize) -> usize) {
        let ear = self.ear.get().map(|ear| ear.lock());
        change(&self.waiter_count);
        let Some(ear) = ear else { return };
        match self.is_empty() {
            true => ear.close(),
            false => ear.open(),
        }
    }

    /// The wait of a client, which may just have ended.
    pub fn of_client(&self, id: u64) -> Option<Arc<Waiter>> {
        self.by_client.lock().get(&id).cloned()
    }

    /// Forgets the wait of a client, which knows how it has ended, or has gone.
    pub fn forget(&self, id: u64) -> Option<Arc<Waiter>> {
        self.by_client.lock().remove(&id)
    }

    /// The keys given, and those that may change when the first are served who wait for them: what their commands change, and
    /// what the first who wait for that change.
    pub fn reach_of<'k>(&self, keys: impl Iterator<Item = (DbId, u64, &'k [u8])>) -> Vec<ReadyKey> {
        let mut known: Vec<ReadyKey> =
            keys.map(|(db, hash, key)| ReadyKey { db, hash, key: key.into() }).collect();
        let (most, mut done) = (known.len() + FURTHER_KEYS_MAX, 0);
        while let Some(key) = known.get(done).cloned() {
            done += 1;
            let has_targets = |waiter: &Waiter| !waiter.targets.is_empty();
            self.queues.for_first((key.db, key.hash), FIRST_SERVED, has_targets, |waiter| {
                for target in waiter.targets() {
                    if known.len() < most && !known.contains(&target) {
                        known.push(target);
                    }
                }
            });
        }
        known
    }
}

/// Marks the keys as ready that hold something now, whatever it is, and that somebody waits for; those that have gone, too, if the
/// wait of somebody ends with its key.
impl Listener for Waiters {
    fn attend(&self, ear: Ear) {
        let _ = self.ear.set(Mutex::new(ear));
    }

    fn follows_steps(&self) -> bool {
        false
    }

    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        // As in Redis: who waits is served from what clients do.
        if step.cause == Cause::Load {
            return;
        }
        if let Effect::Move { from: (db, key), .. } = effect {
            if self.some_mind_ends() && self.queues.has((*db, key.hash)) {
                self.make_ready(step.worker, ReadyKey { db: *db, hash: key.hash, key: key.bytes.into() });
            }
        }
        match effect {
            Effect::Set { db, key, .. }
            | Effect::Write { db, key, .. }
            | Effect::Element { db, key, .. }
            | Effect::Copy { to: (db, key), .. }
            | Effect::Move { to: (db, key), .. } => {
                if self.queues.has((*db, key.hash)) {
                    self.make_ready(step.worker, ReadyKey { db: *db, hash: key.hash, key: key.bytes.into() });
                }
            }
            Effect::Swap { a, b, .. } => self.all_ready(step.worker, |db| db == *a || db == *b),
            Effect::Flush { db: gone, .. } if self.some_mind_ends() => {
                self.all_ready(step.worker, |db| db == *gone);
            }
            Effect::Replace { db, key }
            | Effect::Delete { db, key }
            | Effect::Expire { db, key }
            | Effect::Evict { db, key }
                if self.some_mind_ends() && self.queues.has((*db, key.hash)) =>
            {
                self.make_ready(step.worker, ReadyKey { db: *db, hash: key.hash, key: key.bytes.into() });
            }
            Effect::Replace { .. }
            | Effect::Deadline { .. }
            | Effect::Delete { .. }
            | Effect::Expire { .. }
            | Effect::Evict { .. }
            | Effect::Flush { .. }
            | Effect::LibrarySet { .. }
            | Effect::LibraryRemoved { .. }
            | Effect::LibrariesRemoved => {}
        }
    }
}

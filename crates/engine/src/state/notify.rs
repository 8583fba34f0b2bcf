//! Keyspace notifications: what changes, to those who listen. The notifier hears of changes by the store's effects; what a
//! command calls its change is the name of the step's call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stillframe_store::{
    Call, Change, DbId, Deadline, Ear, Effect, End, Listener, Position, Step, Worker, WorkerId,
};

use crate::config::Events;
use crate::state::exceptions::{Exceptions, Matter};
use crate::state::pubsub::PubSub;
use crate::state::reply_gate::ReplyGate;

const SET: &str = "set";
/// Told once a command, however many bits or registers it sets.
const TOLD_ONCE: [&str; 2] = ["setbit", "pfadd"];
/// Nobody is told of the value that is stored.
pub const SILENT: &str = "";
/// It counts as a generic event, as those do that are not about a string.
pub const RESTORE: &str = "restore";

/// The class of a change, and what it is called where the command does not say.
fn event_of(change: &Change<'_>) -> (Events, &'static str) {
    match change {
        Change::Field { .. } => (Events::HASH, "hset"),
        Change::FieldDeadline { deadline: Some(_), .. } => (Events::HASH, "hexpire"),
        Change::FieldDeadline { deadline: None, .. } => (Events::HASH, "hpersist"),
        Change::FieldRemoved { .. } => (Events::HASH, "hdel"),
        Change::FieldExpired { .. } => (Events::HASH, "hexpired"),
        Change::Member { .. } => (Events::SET, "sadd"),
        Change::MemberRemoved { .. } => (Events::SET, "srem"),
        Change::Scored { .. } => (Events::SORTED_SET, "zadd"),
        Change::ScoredRemoved { .. } => (Events::SORTED_SET, "zrem"),
        Change::Pushed { end: End::Left, .. } => (Events::LIST, "lpush"),
        Change::Pushed { end: End::Right, .. } => (Events::LIST, "rpush"),
        Change::Popped { end: End::Left, .. } => (Events::LIST, "lpop"),
        Change::Popped { end: End::Right, .. } => (Events::LIST, "rpop"),
        Change::Item { .. } => (Events::LIST, "lset"),
        Change::ItemInserted { .. } => (Events::LIST, "linsert"),
        Change::ItemsRemoved { .. } => (Events::LIST, "lrem"),
        Change::EntryAdded { .. } => (Events::STREAM, "xadd"),
        Change::EntryRemoved { .. } => (Events::STREAM, "xdel"),
        Change::EntriesTrimmed { .. } => (Events::STREAM, "xtrim"),
        Change::StreamMarked { .. } => (Events::STREAM, "xsetid"),
        Change::GroupSet { is_new_group: true, .. } => (Events::STREAM, "xgroup-create"),
        Change::GroupRemoved { .. } => (Events::STREAM, "xgroup-destroy"),
        Change::ConsumerAdded { .. } => (Events::STREAM, "xgroup-createconsumer"),
        Change::ConsumerRemoved { .. } => (Events::STREAM, "xgroup-delconsumer"),
        // Reads, claims and acknowledgements are not told of.
        Change::GroupSet { .. } | Change::PendingSet { .. } | Change::PendingRemoved { .. } => {
            (Events::STREAM, SILENT)
        }
    }
}

/// What the call names the value that it stores.
fn name_of(call: &Call) -> &'static str {
    call.name.unwrap_or(SET)
}

/// What has been told last of the elements of a key, or of a value that is told once a command.
struct Told {
    call_number: u64,
    event: &'static str,
    db: DbId,
    key: Vec<u8>,
}

/// See the module.
pub struct Notifier {
    pubsub: Arc<PubSub>,
    reply_gate: Arc<ReplyGate>,
    /// [`Events`]
    events: AtomicU32,
    exceptions: Exceptions,
    /// Open as long as there are some.
    ear: OnceLock<Ear>,
    /// Of the running step of each worker.
    told: Mutex<HashMap<WorkerId, Told>>,
}

impl Notifier {
    pub fn new(
        pubsub: Arc<PubSub>,
        reply_gate: Arc<ReplyGate>,
        events: Events,
        exceptions: &Exceptions,
    ) -> Notifier {
        Notifier {
            pubsub,
            reply_gate,
            events: AtomicU32::new(events.0),
            exceptions: exceptions.clone(),
            ear: OnceLock::new(),
            told: Mutex::default(),
        }
    }

    pub fn set_events(&self, events: Events) {
        self.events.store(events.0, Ordering::Relaxed);
        self.exceptions.set(Matter::NOTIFYING, events.0 != 0);
        if let Some(ear) = self.ear.get() {
            match events.is_any() {
                true => ear.open(),
                false => ear.close(),
            }
        }
    }

    fn events(&self) -> Events {
        Events(self.events.load(Ordering::Relaxed))
    }

    /// Whether anybody may be told of a change.
    pub fn is_on(&self) -> bool {
        self.events().0 != 0
    }

    /// A worker's next call begins, which stores values under that name; `None`: under the usual one.
    pub fn name_stored(&self, worker: &mut Worker, event: Option<&'static str>) {
        if self.is_on() {
            worker.steps().name_call(event);
        }
    }

    /// A key was looked up in vain by a worker.
    #[inline]
    pub fn note_miss(&self, worker: WorkerId, db: DbId, key: &[u8]) {
        if self.events().has(Events::MISS) {
            self.tell(worker, Events::MISS, "keymiss", db, key);
        }
    }

    fn tell_of(&self, step: &Step, effect: &Effect<'_>) {
        let generic = |event, db: DbId, key: &[u8]| self.tell(step.worker, Events::GENERIC, event, db, key);
        match effect {
            Effect::Set { db, key, deadline, is_new, .. } => {
                self.tell_of_stored(step, *db, key.bytes, *is_new);
                if matches!(deadline, Deadline::At(_)) && name_of(&step.call) == SET {
                    generic("expire", *db, key.bytes);
                }
            }
            Effect::Write { db, key, is_new, .. } => self.tell_of_stored(step, *db, key.bytes, *is_new),
            Effect::Element { db, key, change, is_new } => {
                self.tell_of_element(step, (*db, key.bytes), change, *is_new);
            }
            // Of the elements that follow it is told.
            Effect::Replace { .. } => {}
            Effect::Deadline { .. } if step.call.name == Some(SILENT) => {}
            Effect::Deadline { db, key, deadline: Some(_) } => generic("expire", *db, key.bytes),
            Effect::Deadline { db, key, deadline: None } => generic("persist", *db, key.bytes),
            Effect::Delete { db, key } => generic("del", *db, key.bytes),
            Effect::Expire { db, key } => self.tell(step.worker, Events::EXPIRED, "expired", *db, key.bytes),
            Effect::Evict { db, key } => self.tell(step.worker, Events::EVICTED, "evicted", *db, key.bytes),
            Effect::Move { from, to, .. } => {
                self.tell(step.worker, Events::NEW, "new", to.0, to.1.bytes);
                let is_move = from.1.bytes == to.1.bytes;
                generic(if is_move { "move_from" } else { "rename_from" }, from.0, from.1.bytes);
                generic(if is_move { "move_to" } else { "rename_to" }, to.0, to.1.bytes);
            }
            Effect::Copy { to, .. } => {
                self.tell(step.worker, Events::NEW, "new", to.0, to.1.bytes);
                generic("copy_to", to.0, to.1.bytes);
            }
            Effect::Flush { .. } | Effect::Swap { .. } => {}
            // Of keys alone clients are told.
            Effect::LibrarySet { .. } | Effect::LibraryRemoved { .. } | Effect::LibrariesRemoved => {}
        }
    }

    fn tell_of_stored(&self, step: &Step, db: DbId, key: &[u8], is_new: bool) {
        if is_new {
            self.tell(step.worker, Events::NEW, "new", db, key);
        }
        let event = name_of(&step.call);
        if event == SILENT || (TOLD_ONCE.contains(&event) && self.has_told(step, event, None)) {
            return;
        }
        let class = if event == RESTORE { Events::GENERIC } else { Events::STRING };
        self.tell(step.worker, class, event, db, key);
    }

    /// Told once a command and key, however many elements it changes: under the command's name for it, or the usual one.
    fn tell_of_element(&self, step: &Step, (db, key): (DbId, &[u8]), change: &Change<'_>, is_new: bool) {
        if is_new {
            self.tell(step.worker, Events::NEW, "new", db, key);
        }
        let (class, usual) = event_of(change);
        let event = step.call.name.unwrap_or(usual);
        if event != SILENT && !self.has_told(step, event, Some((db, key))) {
            self.tell(step.worker, if event == RESTORE { Events::GENERIC } else { class }, event, db, key);
        }
    }

    /// Whether the step's call has told that last, of this key or of any; from now on it has.
    fn has_told(&self, step: &Step, event: &'static str, of: Option<(DbId, &[u8])>) -> bool {
        let (mut told, call_number) = (self.told.lock(), step.call.number);
        let is_same = |last: &Told| {
            let is_of_key = of.is_none_or(|(db, key)| last.db == db && last.key == key);
            last.call_number == call_number && last.event == event && is_of_key
        };
        if told.get(&step.worker).is_some_and(is_same) {
            return true;
        }
        let (db, key) = of.unwrap_or((DbId(0), b""));
        told.insert(step.worker, Told { call_number, event, db, key: key.to_vec() });
        false
    }

    /// Tells of something that the worker's running step has done.
    fn tell(&self, worker: WorkerId, class: Events, event: &str, db: DbId, key: &[u8]) {
        let events = self.events();
        if !events.has(class) {
            return;
        }
        let need = self.reply_gate.running(worker);
        if events.has(Events::KEYSPACE) {
            let channel = [format!("__keyspace@{}__:", db.0).as_bytes(), key].concat();
            self.pubsub.publish(false, &channel, event.as_bytes(), &need);
        }
        if events.has(Events::KEYEVENT) {
            let channel = format!("__keyevent@{}__:{event}", db.0);
            self.pubsub.publish(false, channel.as_bytes(), key, &need);
        }
    }
}

impl Listener for Notifier {
    fn attend(&self, ear: Ear) {
        let _ = self.ear.set(ear);
        self.set_events(self.events());
    }

    fn hear(&self, step: &Step, effect: &Effect<'_>) {
        if !self.pubsub.is_empty() {
            self.tell_of(step, effect);
        }
    }

    fn end(&self, step: &Step, _: Position) {
        self.told.lock().remove(&step.worker);
    }
}

//! Keyspace notifications: what changes, to those who listen. It hears of changes as all do, by the store's effects; what a
//! command calls its change it has been told before.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use stillframe_store::{Change, DbId, Deadline, Effect, End};

use crate::config::Events;
use crate::state::pubsub::PubSub;

thread_local! {
    /// What the running command calls the value that it stores.
    static STORED: Cell<&'static str> = const { Cell::new(SET) };
    /// What the running command has told of the elements of a key last.
    static ELEMENTS_OF: RefCell<Option<(&'static str, DbId, Vec<u8>)>> = const { RefCell::new(None) };
}

const SET: &str = "set";
/// Told once a command, however many bits or registers it sets; then it is known as [`SILENT`].
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
    }
}

/// See the module.
pub struct Notifier {
    pubsub: Arc<PubSub>,
    /// [`Events`]
    events: AtomicU32,
}

impl Notifier {
    pub fn new(pubsub: Arc<PubSub>, events: Events) -> Notifier {
        Notifier { pubsub, events: AtomicU32::new(events.0) }
    }

    pub fn set_events(&self, events: Events) {
        self.events.store(events.0, Ordering::Relaxed);
    }

    fn events(&self) -> Events {
        Events(self.events.load(Ordering::Relaxed))
    }

    /// Whether anybody may be told of a change.
    pub fn is_on(&self) -> bool {
        self.events().0 != 0
    }

    /// The commands of this thread store values under that name from now on; `None`: under the usual one.
    #[inline]
    pub fn name_stored(&self, event: Option<&'static str>) {
        if self.events().0 != 0 {
            STORED.set(event.unwrap_or(SET));
            ELEMENTS_OF.take();
        }
    }

    /// A key was looked up in vain.
    #[inline]
    pub fn note_miss(&self, db: DbId, key: &[u8]) {
        if self.events().has(Events::MISS) {
            self.tell(Events::MISS, "keymiss", db, key);
        }
    }

    #[inline]
    pub fn hear(&self, effect: &Effect<'_>) {
        if self.events().is_any() && !self.pubsub.is_empty() {
            self.tell_of(effect);
        }
    }

    fn tell_of(&self, effect: &Effect<'_>) {
        let generic = |event, db: DbId, key: &[u8]| self.tell(Events::GENERIC, event, db, key);
        match effect {
            Effect::Set { db, key, deadline, is_new, .. } => {
                self.tell_of_stored(*db, key.bytes, *is_new);
                if matches!(deadline, Deadline::At(_)) && STORED.get() == SET {
                    generic("expire", *db, key.bytes);
                }
            }
            Effect::Write { db, key, is_new, .. } => self.tell_of_stored(*db, key.bytes, *is_new),
            Effect::Element { db, key, change, is_new } => {
                self.tell_of_element(*db, key.bytes, change, *is_new);
            }
            // Of the elements that follow it is told.
            Effect::Replace { .. } => {}
            Effect::Deadline { db, key, deadline: Some(_) } => generic("expire", *db, key.bytes),
            Effect::Deadline { db, key, deadline: None } => generic("persist", *db, key.bytes),
            Effect::Delete { db, key } => generic("del", *db, key.bytes),
            Effect::Expire { db, key } => self.tell(Events::EXPIRED, "expired", *db, key.bytes),
            Effect::Evict { db, key } => self.tell(Events::EVICTED, "evicted", *db, key.bytes),
            Effect::Move { from, to } => {
                self.tell(Events::NEW, "new", to.0, to.1.bytes);
                let is_move = from.1.bytes == to.1.bytes;
                generic(if is_move { "move_from" } else { "rename_from" }, from.0, from.1.bytes);
                generic(if is_move { "move_to" } else { "rename_to" }, to.0, to.1.bytes);
            }
            Effect::Copy { to, .. } => {
                self.tell(Events::NEW, "new", to.0, to.1.bytes);
                generic("copy_to", to.0, to.1.bytes);
            }
            Effect::Flush { .. } | Effect::Swap { .. } => {}
        }
    }

    fn tell_of_stored(&self, db: DbId, key: &[u8], is_new: bool) {
        if is_new {
            self.tell(Events::NEW, "new", db, key);
        }
        let event = STORED.get();
        if event == SILENT {
            return;
        }
        if TOLD_ONCE.contains(&event) {
            STORED.set(SILENT);
        }
        let class = if event == RESTORE { Events::GENERIC } else { Events::STRING };
        self.tell(class, event, db, key);
    }

    /// Told once a command and key, however many elements it changes: under the command's name for it, or the usual one.
    fn tell_of_element(&self, db: DbId, key: &[u8], change: &Change<'_>, is_new: bool) {
        if is_new {
            self.tell(Events::NEW, "new", db, key);
        }
        let (class, usual) = event_of(change);
        let event = match STORED.get() {
            SET => usual,
            named => named,
        };
        let told = ELEMENTS_OF.with_borrow_mut(|last| {
            let is_same = last
                .as_ref()
                .is_some_and(|(of, last_db, last_key)| *of == event && *last_db == db && last_key == key);
            if !is_same {
                *last = Some((event, db, key.to_vec()));
            }
            is_same
        });
        if !told {
            self.tell(if event == RESTORE { Events::GENERIC } else { class }, event, db, key);
        }
    }

    fn tell(&self, class: Events, event: &str, db: DbId, key: &[u8]) {
        let events = self.events();
        if !events.has(class) {
            return;
        }
        if events.has(Events::KEYSPACE) {
            let channel = [format!("__keyspace@{}__:", db.0).as_bytes(), key].concat();
            self.pubsub.publish(false, &channel, event.as_bytes());
        }
        if events.has(Events::KEYEVENT) {
            let channel = format!("__keyevent@{}__:{event}", db.0);
            self.pubsub.publish(false, channel.as_bytes(), key);
        }
    }
}

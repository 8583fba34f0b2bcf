//! Publish and subscribe: who listens to what, across workers.
//!
//! A message goes into the inboxes of its listeners, under the lock of the table: so all of them hear all messages in one
//! order, and a client that unsubscribes hears what was published before and nothing after.
//!
//! ```text
//!   worker 1                                   worker 2
//!   PUBLISH: table locked, into the inbox ──▶ (wakes worker 2)
//!   the reply of the PUBLISH
//!                                              a command of the subscriber has run: takes the inbox
//!                                              ──▶ output: the message, then the reply of that command
//! ```
//! What changes keys tells of it in the same way, before it lets go of the key's lock. Invariants U1 to U4.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::need::Need;
use crate::state::listener::{Heard, Listener};
use crate::state::mailbox::{Mailbox, Message};
use crate::state::subscription::{Kind, Published, Subscriptions};
use crate::state::token::Token;
use crate::text::glob::Glob;

/// Clients by their ids.
type Listeners = BTreeMap<u64, Arc<Listener>>;

/// A name that somebody listens to.
struct Name {
    listeners: Listeners,
    /// The name as a pattern, if it is one.
    glob: Option<Glob<'static>>,
}

impl Name {
    fn new(kind: Kind, name: &[u8]) -> Name {
        let glob = (kind == Kind::Pattern).then(|| Glob::new(name.to_vec(), false));
        Name { listeners: Listeners::new(), glob }
    }
}

/// See the module.
pub struct PubSub {
    /// Of each worker.
    mailboxes: Vec<Arc<Mailbox>>,
    by_kind: Mutex<[HashMap<Vec<u8>, Name>; 3]>,
    /// Subscriptions of all clients: who publishes passes without the lock if there are none.
    count: AtomicUsize,
}

impl PubSub {
    pub fn new(mailboxes: Vec<Arc<Mailbox>>) -> PubSub {
        PubSub { mailboxes, by_kind: Mutex::default(), count: AtomicUsize::new(0) }
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// From now on the client listens.
    pub fn subscribe(&self, listener: &Arc<Listener>, own: &mut Subscriptions, kind: Kind, name: &[u8]) {
        if own.add(kind, name) {
            let mut tables = self.by_kind.lock();
            let entry = tables[kind as usize].entry(name.to_vec());
            let heard = entry.or_insert_with(|| Name::new(kind, name));
            heard.listeners.insert(listener.client.id, listener.clone());
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The client does not listen any more. What it has been told by now is in its inbox.
    pub fn unsubscribe(&self, client_id: u64, own: &mut Subscriptions, kind: Kind, name: &[u8]) {
        if !own.remove(kind, name) {
            return;
        }
        let mut tables = self.by_kind.lock();
        let table = &mut tables[kind as usize];
        if let Some(heard) = table.get_mut(name) {
            heard.listeners.remove(&client_id);
            if heard.listeners.is_empty() {
                table.remove(name);
            }
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// The same of everything that the client listens to.
    pub fn unsubscribe_all(&self, client_id: u64, own: &mut Subscriptions) {
        for kind in Kind::ALL {
            own.all(kind).iter().for_each(|name| self.unsubscribe(client_id, own, kind, name));
        }
    }

    /// Sends a message to all who listen to a channel (one of a shard: to that alone); none of them gets it before `need` is durable.
    /// Returns how many that are.
    pub fn publish(&self, is_shard: bool, channel: &[u8], payload: &[u8], need: &Need) -> usize {
        if self.is_empty() {
            return 0;
        }
        let tables = self.by_kind.lock();
        let kind = if is_shard { Kind::Shard } else { Kind::Channel };
        let mut receiver_count = 0;
        if let Some(Name { listeners, .. }) = tables[kind as usize].get(channel) {
            receiver_count += listeners.len();
            let message = Published::new(kind, b"", channel, payload);
            self.tell(listeners.values(), &Heard::Message(message, need.clone()));
        }
        if !is_shard {
            for (pattern, Name { listeners, glob }) in &tables[Kind::Pattern as usize] {
                if glob.as_ref().is_some_and(|glob| glob.matches(channel)) {
                    let message = Published::new(Kind::Pattern, pattern, channel, payload);
                    receiver_count += listeners.len();
                    self.tell(listeners.values(), &Heard::Message(message, need.clone()));
                }
            }
        }
        receiver_count
    }

    /// Names that somebody listens to.
    pub fn name_count(&self, kind: Kind) -> usize {
        self.by_kind.lock()[kind as usize].len()
    }

    /// Those that match a pattern, if one is given.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let tables = self.by_kind.lock();
        let glob = pattern.map(|pattern| Glob::new(pattern, false));
        let is_wanted = |name: &&Vec<u8>| glob.as_ref().is_none_or(|glob| glob.matches(name));
        tables[kind as usize].keys().filter(is_wanted).cloned().collect()
    }

    /// How many listen to exactly this.
    pub fn listener_count(&self, kind: Kind, name: &[u8]) -> usize {
        self.by_kind.lock()[kind as usize].get(name).map_or(0, |heard| heard.listeners.len())
    }

    /// Tells some connections, whose workers are woken to write it.
    pub fn tell<'l>(&self, listeners: impl Iterator<Item = &'l Arc<Listener>>, what: &Heard) {
        let mut woken: Vec<Vec<Token>> = vec![Vec::new(); self.mailboxes.len()];
        for listener in listeners {
            if listener.tell(what.clone()) {
                woken[listener.client.worker].push(listener.client.token());
            }
        }
        for (mailbox, tokens) in self.mailboxes.iter().zip(woken) {
            if !tokens.is_empty() {
                mailbox.send(Message::Heard(tokens));
            }
        }
    }
}

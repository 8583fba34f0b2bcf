//! Publish and subscribe: who listens to what, across workers.
//!
//! A message goes to the workers of those who listen, under the lock of the table: so all of them hear all messages in one
//! order. The worker hands it to each client that listens still, in the protocol that the client speaks by then.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::state::clients::ClientInfo;
use crate::state::mailbox::{Mailbox, Message};
use crate::state::subscription::{Kind, Published, Subscriptions};
use crate::state::token::Token;
use crate::text::glob;

/// Clients by their ids.
type Listeners = BTreeMap<u64, Arc<ClientInfo>>;

/// See the module.
pub struct PubSub {
    /// Of each worker.
    mailboxes: Vec<Arc<Mailbox>>,
    by_kind: Mutex<[HashMap<Vec<u8>, Listeners>; 3]>,
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
    pub fn subscribe(&self, client: &Arc<ClientInfo>, own: &mut Subscriptions, kind: Kind, name: &[u8]) {
        if own.add(kind, name) {
            let mut tables = self.by_kind.lock();
            tables[kind as usize].entry(name.to_vec()).or_default().insert(client.id, client.clone());
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The client does not listen any more. What is on its way to it does not come to it.
    pub fn unsubscribe(&self, client_id: u64, own: &mut Subscriptions, kind: Kind, name: &[u8]) {
        if !own.remove(kind, name) {
            return;
        }
        let mut tables = self.by_kind.lock();
        let table = &mut tables[kind as usize];
        if let Some(listeners) = table.get_mut(name) {
            listeners.remove(&client_id);
            if listeners.is_empty() {
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

    /// Sends a message to all who listen to a channel (one of a shard: to that alone). Returns how many that are.
    pub fn publish(&self, is_shard: bool, channel: &[u8], payload: &[u8]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let tables = self.by_kind.lock();
        let kind = if is_shard { Kind::Shard } else { Kind::Channel };
        let mut receiver_count = 0;
        if let Some(listeners) = tables[kind as usize].get(channel) {
            receiver_count += self.send(listeners, Published::new(kind, b"", channel, payload));
        }
        if !is_shard {
            for (pattern, listeners) in &tables[Kind::Pattern as usize] {
                if glob::matches(pattern, channel, false) {
                    let message = Published::new(Kind::Pattern, pattern, channel, payload);
                    receiver_count += self.send(listeners, message);
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
        let is_wanted = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
        tables[kind as usize].keys().filter(is_wanted).cloned().collect()
    }

    /// How many listen to exactly this.
    pub fn listener_count(&self, kind: Kind, name: &[u8]) -> usize {
        self.by_kind.lock()[kind as usize].get(name).map_or(0, BTreeMap::len)
    }

    /// One message a worker. Returns how many clients it is for.
    fn send(&self, listeners: &Listeners, message: Arc<Published>) -> usize {
        let mut tokens: BTreeMap<usize, Vec<Token>> = BTreeMap::new();
        listeners.values().for_each(|client| tokens.entry(client.worker).or_default().push(client.token()));
        for (worker, tokens) in tokens {
            self.mailboxes[worker].send(Message::Publish(tokens, message.clone()));
        }
        listeners.len()
    }
}

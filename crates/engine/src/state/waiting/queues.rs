//! Who waits for which key, in the order of arrival.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::sync::Mutex;

/// The number of a wait: later ones are higher.
pub type Arrival = u64;

/// For each key those who wait for it, the first to come first.
pub struct Queues<K, W> {
    inner: Mutex<Inner<K, W>>,
}

struct Inner<K, W> {
    by_key: HashMap<K, BTreeMap<Arrival, Arc<W>>>,
    last: Arrival,
}

impl<K, W> Default for Queues<K, W> {
    fn default() -> Self {
        Queues { inner: Mutex::new(Inner { by_key: HashMap::new(), last: 0 }) }
    }
}

impl<K: Copy + Eq + Hash, W> Queues<K, W> {
    /// Puts a new waiter behind all others of its keys. `make` is given its number.
    pub fn add(&self, keys: impl Iterator<Item = K>, make: impl FnOnce(Arrival) -> W) -> Arc<W> {
        let mut inner = self.inner.lock();
        inner.last += 1;
        let arrival = inner.last;
        let waiter = Arc::new(make(arrival));
        for key in keys {
            inner.by_key.entry(key).or_default().insert(arrival, waiter.clone());
        }
        waiter
    }

    pub fn remove(&self, keys: impl Iterator<Item = K>, arrival: Arrival) {
        let mut inner = self.inner.lock();
        for key in keys {
            let Some(queue) = inner.by_key.get_mut(&key) else { continue };
            queue.remove(&arrival);
            if queue.is_empty() {
                inner.by_key.remove(&key);
            }
        }
    }

    /// The first of those who wait for a key and came after another, if that is given.
    pub fn next(&self, key: K, after: Arrival) -> Option<Arc<W>> {
        let inner = self.inner.lock();
        inner.by_key.get(&key)?.range(after + 1..).next().map(|(_, waiter)| waiter.clone())
    }

    pub fn has(&self, key: K) -> bool {
        self.inner.lock().by_key.contains_key(&key)
    }

    /// Calls `f` with those who wait for a key and are meant, the first `count` of them, in their order.
    pub fn for_first(&self, key: K, count: usize, is_meant: impl Fn(&W) -> bool, mut f: impl FnMut(&W)) {
        if let Some(queue) = self.inner.lock().by_key.get(&key) {
            queue.values().filter(|waiter| is_meant(waiter)).take(count).for_each(|waiter| f(waiter));
        }
    }

    /// Calls `f` with each key and the first who waits for it.
    pub fn for_each_key(&self, mut f: impl FnMut(K, &W)) {
        for (key, queue) in &self.inner.lock().by_key {
            queue.values().next().into_iter().for_each(|waiter| f(*key, waiter));
        }
    }
}

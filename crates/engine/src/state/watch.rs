//! Keys watched for `EXEC`, across workers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stillframe_store::{DbId, Ear, Effect, Key, Listener, Step};

use crate::state::session::{Session, WatchFlag, Watched};

struct Entry {
    key: Vec<u8>,
    was_there: bool,
    client: u64,
    flag: Arc<WatchFlag>,
}

/// Who watches which key. It hears of changes under the key's lock, and `WATCH` and `EXEC` hold it too, so none of them
/// misses the other.
#[derive(Default)]
pub struct WatchTable {
    watch_count: AtomicUsize,
    entries: Mutex<HashMap<(DbId, u64), Vec<Entry>>>,
    /// Open as long as somebody watches something.
    ear: OnceLock<Ear>,
}

impl WatchTable {
    fn is_empty(&self) -> bool {
        self.watch_count.load(Ordering::Acquire) == 0
    }

    pub fn watch(&self, client: u64, flag: &Arc<WatchFlag>, watched: &Watched) {
        let entry =
            Entry { key: watched.key.clone(), was_there: watched.was_there, client, flag: flag.clone() };
        let mut entries = self.entries.lock();
        entries.entry((watched.db, watched.hash)).or_default().push(entry);
        if self.watch_count.fetch_add(1, Ordering::AcqRel) == 0 {
            self.ear.get().into_iter().for_each(Ear::open);
        }
    }

    fn unwatch(&self, client: u64, watched: &HashSet<Watched>) {
        let mut entries = self.entries.lock();
        for key in watched {
            let Some(list) = entries.get_mut(&(key.db, key.hash)) else { continue };
            let before = list.len();
            list.retain(|e| e.client != client || e.key != key.key);
            self.watch_count.fetch_sub(before - list.len(), Ordering::AcqRel);
            if list.is_empty() {
                entries.remove(&(key.db, key.hash));
            }
        }
        if self.is_empty() {
            self.ear.get().into_iter().for_each(Ear::close);
        }
    }

    /// Forgets all watches of a client.
    pub fn unwatch_all(&self, client: &mut Session) {
        if !client.watched.is_empty() {
            self.unwatch(client.id, &client.watched);
            client.watched = HashSet::new();
            client.watched_bytes = 0;
            client.watch_flag = Arc::default();
        }
    }

    /// Some of the keys that are watched, and their databases, at most `most`.
    pub fn some(&self, most: usize) -> Vec<(DbId, Vec<u8>)> {
        if self.is_empty() {
            return Vec::new();
        }
        let entries = self.entries.lock();
        let keys =
            entries.iter().flat_map(|((db, _), list)| list.iter().map(|entry| (*db, entry.key.clone())));
        keys.take(most).collect()
    }

    /// A key has changed: the transactions that watch it will not run.
    fn changed(&self, db: DbId, key: &Key<'_>, is_affected: impl Fn(&Entry) -> bool) {
        if let Some(list) = self.entries.lock().get(&(db, key.hash)) {
            list.iter().filter(|e| e.key == key.bytes && is_affected(e)).for_each(|e| e.flag.raise());
        }
    }

    /// All keys of `db` for which `is_affected` have changed (`FLUSHDB`, `SWAPDB`).
    fn changed_all(&self, db: DbId, is_affected: impl Fn(&[u8]) -> bool) {
        for ((watched_db, _), list) in self.entries.lock().iter() {
            if *watched_db != db {
                continue;
            }
            for entry in list {
                if !entry.flag.is_raised() && is_affected(&entry.key) {
                    entry.flag.raise();
                }
            }
        }
    }
}

impl Listener for WatchTable {
    fn attend(&self, ear: Ear) {
        let _ = self.ear.set(ear);
    }

    fn follows_steps(&self) -> bool {
        false
    }

    fn hear(&self, _: &Step, effect: &Effect<'_>) {
        let all = |_: &Entry| true;
        match effect {
            Effect::Set { db, key, .. }
            | Effect::Write { db, key, .. }
            | Effect::Deadline { db, key, .. }
            | Effect::Element { db, key, .. }
            | Effect::Replace { db, key }
            | Effect::Delete { db, key }
            | Effect::Evict { db, key } => self.changed(*db, key, all),
            Effect::Copy { to: (db, key), .. } => self.changed(*db, key, all),
            Effect::Move { from, to, .. } => {
                self.changed(from.0, &from.1, all);
                self.changed(to.0, &to.1, all);
            }
            Effect::Expire { db, key } => self.changed(*db, key, |entry| entry.was_there),
            Effect::Flush { db, before } => self.changed_all(*db, |key| before.may_have(*db, key)),
            Effect::Swap { a, b, before } => {
                let in_either = |key: &[u8]| before.may_have(*a, key) || before.may_have(*b, key);
                self.changed_all(*a, in_either);
                self.changed_all(*b, in_either);
            }
            Effect::LibrarySet { .. } | Effect::LibraryRemoved { .. } | Effect::LibrariesRemoved => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillframe_store::{Deadline, NewValue, Options, Store, Worker};
    use stillframe_testkit::TempDir;

    #[test]
    fn it_hears_what_the_store_changes() {
        let dir = TempDir::new("watch");
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let table = Arc::new(WatchTable::default());
        store.listen(vec![table.clone()]);
        let (db, other) = (DbId(0), DbId(1));
        let mut worker = store.nonblocking_worker().unwrap();
        // Whether `change` raises the flag of who watches the key `k`, which has expired there (or has never been).
        let mut is_raised = |has_expired: bool, was_there: bool, change: &dyn Fn(&mut Worker, &Key<'_>)| {
            worker.set_now(1_000);
            let key = worker.key(b"k");
            worker.database(db).flush().unwrap();
            if has_expired {
                worker.set(db, &key, NewValue::Int(1), Deadline::At(1_001)).unwrap();
            }
            worker.set_now(2_000);
            let flag = Arc::default();
            let watched = Watched { db, key: b"k".to_vec(), hash: key.hash, was_there, deadline: None };
            table.watch(7, &flag, &watched);
            change(&mut worker, &key);
            table.unwatch(7, &HashSet::from([watched]));
            flag.is_raised()
        };
        let look = |worker: &mut Worker, key: &Key<'_>| assert!(worker.entry(db, key).unwrap().is_none());
        let set = |db| {
            move |worker: &mut Worker, key: &Key<'_>| {
                worker.set(db, key, NewValue::Int(2), Deadline::Clear).unwrap();
            }
        };
        assert!(!is_raised(true, false, &look), "it had expired before it was watched");
        assert!(is_raised(true, true, &look), "it expired while it was watched");
        assert!(!is_raised(false, true, &look), "nothing has changed");
        assert!(is_raised(false, false, &set(db)));
        assert!(!is_raised(false, false, &set(other)), "a key of another database");
        assert!(
            is_raised(false, false, &|worker, _| worker.database(db).swap_with(other).unwrap()),
            "it comes with the swap"
        );
        assert!(
            !is_raised(false, false, &|worker, _| worker.database(db).flush().unwrap()),
            "there was none"
        );
    }
}

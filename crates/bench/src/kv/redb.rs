//! redb: a copy-on-write B-tree. One transaction at a time writes; those that read wait for nobody.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition,
    WriteTransaction,
};

use super::seam::{
    refused_write, Access, Body, Done, KeyValue, OpenOptions, Order, Session, Settings, Show, Transaction,
    TreeId, TreeRow, Verdict,
};
use super::versions::locked;
use crate::error::{BenchError, Result};

type ReadTable = ReadOnlyTable<&'static [u8], &'static [u8]>;
type WriteTable<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// The file in the directory.
const FILE: &str = "data.redb";
/// Rows of one transaction of a bulk load.
const LOAD_ROWS: usize = 100_000;
/// What is in the cache takes more than its size, and the kernel caches files in what is left.
const CACHE_PERCENT: u64 = 50;
/// Commits between two that are durable: the pages that a commit replaces are kept until one is.
const COMMITS_UNSYNCED_MAX: u64 = 4096;

pub struct Redb {
    database: Database,
    names: Vec<String>,
    cache_bytes: u64,
    commit_count: AtomicU64,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("redb", error)
}

fn definition(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

impl Redb {
    pub fn open(options: &OpenOptions<'_>) -> Result<Redb> {
        let cache_bytes = options.memory_bytes / 100 * CACHE_PERCENT;
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes as usize);
        let database = builder.create(options.dir.join(FILE)).map_err(failed)?;
        let names: Vec<String> = options.trees.iter().map(|&name| name.to_owned()).collect();
        let txn = database.begin_write().map_err(failed)?;
        for name in &names {
            txn.open_table(definition(name)).map_err(failed)?;
        }
        txn.commit().map_err(failed)?;
        Ok(Redb { database, names, cache_bytes, commit_count: AtomicU64::new(0) })
    }

    fn write(&self, durability: Durability) -> Result<WriteTransaction> {
        let mut txn = self.database.begin_write().map_err(failed)?;
        txn.set_durability(durability).map_err(failed)?;
        Ok(txn)
    }

    fn commit(&self, txn: WriteTransaction) -> Result<()> {
        txn.commit().map_err(failed)?;
        self.commit_count.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl KeyValue for Redb {
    fn settings(&self) -> Settings {
        Settings {
            version: format!("redb {}", locked("redb")),
            memory: format!("cache of {}", stillframe_units::human_bytes(self.cache_bytes as f64)),
            durability: format!(
                "none (Durability::None), one in {COMMITS_UNSYNCED_MAX} commits is synced, which redb needs to reuse space"
            ),
        }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { store: self, picture: None }))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        let mut is_done = false;
        while !is_done {
            let txn = self.write(Durability::Immediate)?;
            let mut writing = Writing { txn: &txn, names: &self.names, tables: HashMap::new() };
            for _ in 0..LOAD_ROWS {
                let Some((tree, key, value)) = rows.next() else {
                    is_done = true;
                    break;
                };
                writing.put(tree, &key, &value)?;
            }
            drop(writing);
            self.commit(txn)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.commit(self.write(Durability::Immediate)?)
    }

    fn has_many_writers(&self) -> bool {
        false
    }
}

/// Tables as of one commit.
struct Picture {
    commit_count: u64,
    tables: Vec<ReadTable>,
}

struct RedbSession<'s> {
    store: &'s Redb,
    /// What single reads see, as long as nobody has committed since: to open a table costs as much as a read.
    picture: Option<Picture>,
}

impl RedbSession<'_> {
    fn picture(&mut self) -> Result<&Picture> {
        let commit_count = self.store.commit_count.load(Ordering::Acquire);
        let picture = match self.picture.take() {
            Some(picture) if picture.commit_count == commit_count => picture,
            _ => {
                let txn = self.store.database.begin_read().map_err(failed)?;
                let open = |name: &String| txn.open_table(definition(name)).map_err(failed);
                Picture { commit_count, tables: self.store.names.iter().map(open).collect::<Result<_>>()? }
            }
        };
        Ok(self.picture.insert(picture))
    }
}

impl Session for RedbSession<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.picture()?.tables[tree.0].get(key).map_err(failed)?;
        Ok(value.map(|value| found(value.value())).is_some())
    }

    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let table = &self.picture()?.tables[tree.0];
        for (index, &key) in keys.iter().enumerate() {
            if let Some(value) = table.get(key).map_err(failed)? {
                found(index, value.value());
            }
        }
        Ok(())
    }

    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        if access == Access::Read {
            let verdict = body(&mut Reading { tables: &self.picture()?.tables })?;
            return Ok(Done::at_once(verdict));
        }
        // It would keep pages from being used again.
        self.picture = None;
        let count = self.store.commit_count.load(Ordering::Relaxed);
        let durability = match count % COMMITS_UNSYNCED_MAX {
            0 => Durability::Immediate,
            _ => Durability::None,
        };
        let txn = self.store.write(durability)?;
        let verdict = body(&mut Writing { txn: &txn, names: &self.store.names, tables: HashMap::new() });
        match verdict {
            Ok(Verdict::Commit) => self.store.commit(txn)?,
            Ok(Verdict::Rollback) | Err(_) => txn.abort().map_err(failed)?,
        }
        Ok(Done::at_once(verdict?))
    }
}

struct Reading<'t> {
    tables: &'t [ReadTable],
}

impl Transaction for Reading<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.tables[tree.0], key, found)
    }

    fn put(&mut self, _: TreeId, _: &[u8], _: &[u8]) -> Result<()> {
        Err(refused_write())
    }

    fn remove(&mut self, _: TreeId, _: &[u8]) -> Result<()> {
        Err(refused_write())
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        scan(&self.tables[tree.0], keys, order, row)
    }
}

struct Writing<'t> {
    txn: &'t WriteTransaction,
    names: &'t [String],
    /// Those that have been used so far: to open one costs as much as a read.
    tables: HashMap<usize, WriteTable<'t>>,
}

impl<'t> Writing<'t> {
    fn table(&mut self, tree: TreeId) -> Result<&mut WriteTable<'t>> {
        use std::collections::hash_map::Entry;
        Ok(match self.tables.entry(tree.0) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(self.txn.open_table(definition(&self.names[tree.0])).map_err(failed)?)
            }
        })
    }
}

impl Transaction for Writing<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(self.table(tree)?, key, found)
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.table(tree)?.insert(key, value).map_err(failed)?;
        Ok(())
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.table(tree)?.remove(key).map_err(failed)?;
        Ok(())
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        scan(self.table(tree)?, keys, order, row)
    }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
    found: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    Ok(table.get(key).map_err(failed)?.map(|value| found(value.value())).is_some())
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    keys: Range<&[u8]>,
    order: Order,
    row: &mut Show<'_>,
) -> Result<()> {
    let mut rows = table.range::<&[u8]>(keys).map_err(failed)?;
    loop {
        let next = match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        let Some(found) = next else { return Ok(()) };
        let (key, value) = found.map_err(failed)?;
        if row(key.value(), value.value())?.is_break() {
            return Ok(());
        }
    }
}

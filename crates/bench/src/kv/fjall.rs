//! fjall: a log-structured merge tree. Transactions run beside each other; one that read what another has changed meanwhile
//! is begun anew.

use std::ops::Range;

use fjall::{
    Conflict, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx,
    PersistMode, Readable, Snapshot,
};

use super::seam::{
    refused_write, Access, Body, Done, KeyValue, OpenOptions, Order, Session, Settings, Show, Transaction,
    TreeId, TreeRow, Verdict,
};
use super::versions::locked;
use crate::error::{BenchError, Result};

/// What is in the cache takes more than its size, and the kernel caches files in what is left.
const CACHE_PERCENT: u64 = 40;
/// Of all trees together, beside the cache.
const WRITE_BUFFERS_PERCENT: u64 = 15;
const WRITE_BUFFER_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);

pub struct Fjall {
    database: OptimisticTxDatabase,
    trees: Vec<OptimisticTxKeyspace>,
    cache_bytes: u64,
    write_buffer_bytes: u64,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("fjall", error)
}

impl Fjall {
    pub fn open(options: &OpenOptions<'_>) -> Result<Fjall> {
        let cache_bytes = options.memory_bytes / 100 * CACHE_PERCENT;
        let of_all = options.memory_bytes / 100 * WRITE_BUFFERS_PERCENT;
        // Two at a time: one that is filled, one that is written.
        let of_one = of_all / options.trees.len().max(1) as u64 / 2;
        let write_buffer_bytes = of_one.clamp(*WRITE_BUFFER_BYTES.start(), *WRITE_BUFFER_BYTES.end());
        let database = OptimisticTxDatabase::builder(options.dir).cache_size(cache_bytes).open();
        let database = database.map_err(failed)?;
        let tree_options = || {
            KeyspaceCreateOptions::default()
                .expect_point_read_hits(true)
                .max_memtable_size(write_buffer_bytes)
        };
        let open = |name: &&str| database.keyspace(name, tree_options).map_err(failed);
        let trees = options.trees.iter().map(open).collect::<Result<_>>()?;
        Ok(Fjall { database, trees, cache_bytes, write_buffer_bytes })
    }
}

impl KeyValue for Fjall {
    fn settings(&self) -> Settings {
        let shown = |bytes: u64| stillframe_units::human_bytes(bytes as f64);
        Settings {
            version: format!("fjall {}", locked("fjall")),
            memory: format!(
                "cache of {}, write buffers of {} a tree, no compression",
                shown(self.cache_bytes),
                shown(self.write_buffer_bytes)
            ),
            durability: "journal to the kernel at each commit, no fsync until a flush".to_owned(),
        }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        let mut rows = rows.peekable();
        while let Some(&(tree, ..)) = rows.peek() {
            let mut ingestion = self.trees[tree.0].inner().start_ingestion().map_err(failed)?;
            while let Some((_, key, value)) = rows.next_if(|row| row.0 == tree) {
                ingestion.write(key, value).map_err(failed)?;
            }
            ingestion.finish().map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(failed)
    }

    fn has_many_writers(&self) -> bool {
        true
    }
}

impl Session for &Fjall {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.trees[tree.0].get(key).map_err(failed)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        if access == Access::Read {
            let verdict = body(&mut Reading { trees: &self.trees, picture: self.database.read_tx() })?;
            return Ok(Done::at_once(verdict));
        }
        let mut retry_count = 0;
        loop {
            let txn = self.database.write_tx().map_err(failed)?;
            let mut writing = Writing { trees: &self.trees, txn };
            let verdict = body(&mut writing)?;
            if verdict == Verdict::Rollback {
                writing.txn.rollback();
                return Ok(Done { verdict, retry_count });
            }
            match writing.txn.commit().map_err(failed)? {
                Ok(()) => return Ok(Done { verdict, retry_count }),
                Err(Conflict) => retry_count += 1,
            }
        }
    }
}

struct Reading<'t> {
    trees: &'t [OptimisticTxKeyspace],
    picture: Snapshot,
}

impl Transaction for Reading<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.picture, &self.trees[tree.0], key, found)
    }

    fn put(&mut self, _: TreeId, _: &[u8], _: &[u8]) -> Result<()> {
        Err(refused_write())
    }

    fn remove(&mut self, _: TreeId, _: &[u8]) -> Result<()> {
        Err(refused_write())
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        scan(&self.picture, &self.trees[tree.0], keys, order, row)
    }
}

struct Writing<'t> {
    trees: &'t [OptimisticTxKeyspace],
    txn: OptimisticWriteTx,
}

impl Transaction for Writing<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.txn, &self.trees[tree.0], key, found)
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.insert(&self.trees[tree.0], key, value);
        Ok(())
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.txn.remove(&self.trees[tree.0], key);
        Ok(())
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        scan(&self.txn, &self.trees[tree.0], keys, order, row)
    }
}

fn get(
    from: &impl Readable,
    tree: &OptimisticTxKeyspace,
    key: &[u8],
    found: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    Ok(from.get(tree, key).map_err(failed)?.map(|value| found(&value)).is_some())
}

fn scan(
    from: &impl Readable,
    tree: &OptimisticTxKeyspace,
    keys: Range<&[u8]>,
    order: Order,
    row: &mut Show<'_>,
) -> Result<()> {
    let mut rows = from.range::<&[u8], _>(tree, keys);
    loop {
        let next = match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        };
        let Some(guard) = next else { return Ok(()) };
        let (key, value) = guard.into_inner().map_err(failed)?;
        if row(&key, &value)?.is_break() {
            return Ok(());
        }
    }
}

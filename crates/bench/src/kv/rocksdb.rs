//! RocksDB: a log-structured merge tree. Transactions run beside each other on a picture as of their beginning; one that
//! writes what another has changed meanwhile is begun anew.

use std::ops::Range;
use std::path::PathBuf;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DBCompressionType, Error, ErrorKind, IngestExternalFileOptions,
    OptimisticTransactionDB, OptimisticTransactionOptions, Options, ReadOptions, SnapshotWithThreadMode,
    SstFileWriter, WriteOptions,
};

use super::seam::{
    Access, Body, Done, KeyValue, OpenOptions, Order, Session, Settings, Show, Transaction, TreeId, TreeRow,
    Verdict,
};
use crate::error::{BenchError, Result};

type Database = OptimisticTransactionDB;
type Txn<'d> = rocksdb::Transaction<'d, Database>;

/// What is in the cache takes more than its size, and the kernel caches files in what is left.
const CACHE_PERCENT: u64 = 40;
/// Of all trees together, beside the cache.
const WRITE_BUFFERS_PERCENT: u64 = 15;
const WRITE_BUFFER_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(64 << 20);
/// One that is filled, and those that are being written.
const WRITE_BUFFERS: u64 = 3;
const BLOOM_BITS: f64 = 10.0;
const BACKGROUND_JOBS: i32 = 2;
/// Of a file of a bulk load.
const LOAD_FILE_BYTES: u64 = 64 << 20;
const LOAD_FILE: &str = "load.sst";

pub struct Rocksdb {
    database: Database,
    names: Vec<String>,
    options: Options,
    load_path: PathBuf,
    cache_bytes: u64,
    write_buffer_bytes: u64,
}

fn failed(error: Error) -> BenchError {
    BenchError::failed("RocksDB", error)
}

impl Rocksdb {
    pub fn open(options: &OpenOptions<'_>) -> Result<Rocksdb> {
        let cache_bytes = options.memory_bytes / 100 * CACHE_PERCENT;
        let of_all = options.memory_bytes / 100 * WRITE_BUFFERS_PERCENT;
        let of_one = of_all / options.trees.len().max(1) as u64 / WRITE_BUFFERS;
        let write_buffer_bytes = of_one.clamp(*WRITE_BUFFER_BYTES.start(), *WRITE_BUFFER_BYTES.end());
        let of_database = database_options(cache_bytes, write_buffer_bytes)?;
        let trees =
            options.trees.iter().map(|name| rocksdb::ColumnFamilyDescriptor::new(*name, of_database.clone()));
        let database = Database::open_cf_descriptors(&of_database, options.dir, trees).map_err(failed)?;
        Ok(Rocksdb {
            database,
            names: options.trees.iter().map(|&name| name.to_owned()).collect(),
            options: of_database,
            load_path: options.dir.join(LOAD_FILE),
            cache_bytes,
            write_buffer_bytes,
        })
    }

    fn tree(&self, name: &str) -> Result<&ColumnFamily> {
        let found = self.database.cf_handle(name);
        found.ok_or_else(|| BenchError::Failed(format!("RocksDB: there is no column family {name}")))
    }

    fn trees(&self) -> Result<Vec<&ColumnFamily>> {
        self.names.iter().map(|name| self.tree(name)).collect()
    }
}

fn database_options(cache_bytes: u64, write_buffer_bytes: u64) -> Result<Options> {
    let cache = Cache::new_lru_cache(cache_bytes as usize).map_err(failed)?;
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_bloom_filter(BLOOM_BITS, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(write_buffer_bytes as usize);
    options.set_max_write_buffer_number(WRITE_BUFFERS as i32);
    // Conflicts are looked for in what was written of late.
    options.set_max_write_buffer_size_to_maintain((write_buffer_bytes * WRITE_BUFFERS) as i64);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    Ok(options)
}

/// The library that this process has mapped; its name ends in its version.
fn library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let name = maps.split(['/', '\n', ' ']).find(|part| part.starts_with("librocksdb"));
    name.unwrap_or("linked into this program").to_owned()
}

impl KeyValue for Rocksdb {
    fn settings(&self) -> Settings {
        let shown = |bytes: u64| stillframe_units::human_bytes(bytes as f64);
        Settings {
            version: format!("RocksDB {}", library()),
            memory: format!(
                "block cache of {}, {WRITE_BUFFERS} write buffers of {} a tree, Bloom filters, no compression",
                shown(self.cache_bytes),
                shown(self.write_buffer_bytes)
            ),
            durability: "none until a flush of the write buffers (no write-ahead log)".to_owned(),
        }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RocksdbSession {
            database: &self.database,
            trees: self.trees()?,
            reads: ReadOptions::default(),
        }))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        let trees = self.trees()?;
        let mut moving = IngestExternalFileOptions::default();
        moving.set_move_files(true);
        let mut rows = rows.peekable();
        while let Some(&(tree, ..)) = rows.peek() {
            let mut file = SstFileWriter::create(&self.options);
            file.open(&self.load_path).map_err(failed)?;
            let mut bytes = 0;
            while let Some((_, key, value)) = rows.next_if(|row| row.0 == tree && bytes < LOAD_FILE_BYTES) {
                bytes += (key.len() + value.len()) as u64;
                file.put(&key, &value).map_err(failed)?;
            }
            file.finish().map_err(failed)?;
            self.database
                .ingest_external_file_cf_opts(&trees[tree.0], &moving, vec![&self.load_path])
                .map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.trees()?.iter().try_for_each(|tree| self.database.flush_cf(tree)).map_err(failed)
    }

    fn has_many_writers(&self) -> bool {
        true
    }
}

struct RocksdbSession<'s> {
    database: &'s Database,
    trees: Vec<&'s ColumnFamily>,
    /// Of single reads: to make them costs an allocation.
    reads: ReadOptions,
}

impl Session for RocksdbSession<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.database.get_pinned_cf_opt(&self.trees[tree.0], key, &self.reads).map_err(failed)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let values = self.database.batched_multi_get_cf(&self.trees[tree.0], keys.iter().copied(), false);
        for (index, value) in values.into_iter().enumerate() {
            if let Some(value) = value.map_err(failed)? {
                found(index, &value);
            }
        }
        Ok(())
    }

    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        let mut writes = WriteOptions::default();
        writes.disable_wal(true);
        // Reads see what was there at the beginning, and so do the checks for conflicts.
        let mut of_txn = OptimisticTransactionOptions::default();
        of_txn.set_snapshot(true);
        let mut retry_count = 0;
        loop {
            let txn = self.database.transaction_opt(&writes, &of_txn);
            let verdict = {
                let picture = txn.snapshot();
                let mut reads = ReadOptions::default();
                reads.set_snapshot(&picture);
                body(&mut Running {
                    txn: &txn,
                    access,
                    picture: &picture,
                    reads: &reads,
                    trees: &self.trees,
                })?
            };
            if verdict == Verdict::Rollback || access == Access::Read {
                txn.rollback().map_err(failed)?;
                return Ok(Done { verdict, retry_count });
            }
            match txn.commit() {
                Ok(()) => return Ok(Done { verdict, retry_count }),
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                    retry_count += 1
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

struct Running<'r, 'd> {
    txn: &'r Txn<'d>,
    access: Access,
    picture: &'r SnapshotWithThreadMode<'r, Txn<'d>>,
    /// As of the picture.
    reads: &'r ReadOptions,
    trees: &'r [&'d ColumnFamily],
}

impl Transaction for Running<'_, '_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.txn.get_pinned_cf_opt(&self.trees[tree.0], key, self.reads).map_err(failed)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.access.check_write()?;
        self.txn.put_cf(&self.trees[tree.0], key, value).map_err(failed)
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.access.check_write()?;
        self.txn.delete_cf(&self.trees[tree.0], key).map_err(failed)
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        let mut reads = ReadOptions::default();
        reads.set_snapshot(self.picture);
        reads.set_iterate_range(keys.clone());
        let mut rows = self.txn.raw_iterator_cf_opt(&self.trees[tree.0], reads);
        // The bounds hold for what has been committed, but not for what the transaction has written.
        match order {
            Order::Ascending => rows.seek(keys.start),
            Order::Descending => {
                rows.seek_for_prev(keys.end);
                if rows.key() == Some(keys.end) {
                    rows.prev();
                }
            }
        }
        while let Some((key, value)) = rows.item().filter(|(key, _)| keys.contains(key)) {
            if row(key, value)?.is_break() {
                break;
            }
            match order {
                Order::Ascending => rows.next(),
                Order::Descending => rows.prev(),
            }
        }
        rows.status().map_err(failed)
    }
}

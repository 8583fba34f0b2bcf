//! LMDB. One transaction at a time writes; those that read see the last commit before they began and wait for nobody.

use std::ops::{Bound, ControlFlow, Range};

use stillframe_lmdb_sys::heed::types::Bytes;
use stillframe_lmdb_sys::heed::{
    self, CommitOrAbort, Database, Env, Error, MdbError, PutFlags, RoTxn, RwTxn, WithoutTls,
};

use super::seam::{
    refused_write, Access, Body, Done, KeyValue, OpenOptions, Order, Session, Settings, Show, Transaction,
    TreeId, TreeRow, Verdict,
};
use crate::error::{BenchError, Result};

type Tree = Database<'static, Bytes, Bytes>;

/// Rows of one transaction of a bulk load.
const LOAD_ROWS: usize = 100_000;

pub struct Lmdb {
    env: Env<WithoutTls>,
    trees: Vec<Tree>,
    memory_bytes: u64,
}

fn failed(error: Error) -> BenchError {
    BenchError::failed("LMDB", error)
}

impl Lmdb {
    pub fn open(options: &OpenOptions<'_>) -> Result<Lmdb> {
        let map_bytes = options.disk_bytes_max.next_multiple_of(1 << 20) as usize;
        let tree_count = options.trees.len() as u32;
        let reader_count = options.thread_count as u32 * 2;
        let env = stillframe_lmdb_sys::open(options.dir, map_bytes, tree_count, reader_count);
        let env = env.map_err(failed)?;
        let mut trees = Vec::new();
        for name in options.trees {
            let txn = env.write_txn().map_err(failed)?;
            let created = env.create_databases_and_commit(txn, |opener, txn| -> heed::Result<_> {
                Ok(CommitOrAbort::<_, ()>::Commit(opener.create_database::<Bytes, Bytes>(txn, Some(name))?))
            });
            match created.map_err(failed)? {
                CommitOrAbort::Commit(tree) => trees.push(tree),
                CommitOrAbort::Abort(()) => unreachable!("nothing aborts"),
            }
        }
        Ok(Lmdb { env, trees, memory_bytes: options.memory_bytes })
    }
}

fn version() -> String {
    let version = heed::lmdb_version();
    format!("LMDB {}.{}.{}", version.major, version.minor, version.patch)
}

impl KeyValue for Lmdb {
    fn settings(&self) -> Settings {
        Settings {
            version: version(),
            memory: format!(
                "the kernel's page cache, {} with all else, no read-ahead",
                stillframe_units::human_bytes(self.memory_bytes as f64)
            ),
            durability: "none until a flush (WRITEMAP, NOSYNC); a crash may cost the file".to_owned(),
        }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { store: self, picture: None }))
    }

    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()> {
        let mut is_done = false;
        while !is_done {
            let mut txn = self.env.write_txn().map_err(failed)?;
            for _ in 0..LOAD_ROWS {
                let Some((tree, key, value)) = rows.next() else {
                    is_done = true;
                    break;
                };
                let put = self.trees[tree.0].put_with_flags(&mut txn, PutFlags::APPEND, &key, &value);
                put.map_err(failed)?;
            }
            txn.commit().map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.env.force_sync().map_err(failed)
    }

    fn has_many_writers(&self) -> bool {
        false
    }
}

struct LmdbSession<'s> {
    store: &'s Lmdb,
    /// What single reads see, as long as nobody has committed since: to begin a transaction costs as much as a read.
    picture: Option<RoTxn<'static, WithoutTls>>,
}

impl LmdbSession<'_> {
    fn picture(&mut self) -> Result<&RoTxn<'static, WithoutTls>> {
        let last = self.store.env.info().last_txn_id;
        let picture = match self.picture.take() {
            Some(picture) if picture.id() == last => picture,
            _ => self.store.env.clone().static_read_txn().map_err(failed)?,
        };
        Ok(self.picture.insert(picture))
    }
}

impl Session for LmdbSession<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let tree = self.store.trees[tree.0];
        let value = tree.get(self.picture()?, key).map_err(failed)?;
        Ok(value.map(found).is_some())
    }

    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let tree = self.store.trees[tree.0];
        let picture = self.picture()?;
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = tree.get(picture, key).map_err(failed)? {
                found(index, value);
            }
        }
        Ok(())
    }

    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done> {
        let trees = &self.store.trees;
        if access == Access::Read {
            let verdict = body(&mut Reading { trees, txn: self.picture()? })?;
            return Ok(Done::at_once(verdict));
        }
        // It would keep pages from being used again.
        self.picture = None;
        let mut writing = Writing { trees, txn: self.store.env.write_txn().map_err(failed)? };
        let verdict = body(&mut writing)?;
        match verdict {
            Verdict::Commit => writing.txn.commit().map_err(failed)?,
            Verdict::Rollback => writing.txn.abort(),
        }
        Ok(Done::at_once(verdict))
    }
}

struct Reading<'t> {
    trees: &'t [Tree],
    txn: &'t RoTxn<'static, WithoutTls>,
}

impl Transaction for Reading<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.trees[tree.0].get(self.txn, key).map_err(failed)?.map(found).is_some())
    }

    fn put(&mut self, _: TreeId, _: &[u8], _: &[u8]) -> Result<()> {
        Err(refused_write())
    }

    fn remove(&mut self, _: TreeId, _: &[u8]) -> Result<()> {
        Err(refused_write())
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        scan(self.trees[tree.0], self.txn, keys, order, row)
    }
}

struct Writing<'t> {
    trees: &'t [Tree],
    txn: RwTxn<'t>,
}

impl Transaction for Writing<'_> {
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.trees[tree.0].get(&self.txn, key).map_err(failed)?.map(found).is_some())
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.trees[tree.0].put(&mut self.txn, key, value).map_err(|error| match error {
            Error::Mdb(MdbError::MapFull) => {
                BenchError::Failed("LMDB: the data outgrew the room that was set for it".to_owned())
            }
            error => failed(error),
        })
    }

    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.trees[tree.0].delete(&mut self.txn, key).map(drop).map_err(failed)
    }

    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
        scan(self.trees[tree.0], &self.txn, keys, order, row)
    }
}

fn scan(tree: Tree, txn: &RoTxn<'_>, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()> {
    let bounds = (Bound::Included(keys.start), Bound::Excluded(keys.end));
    let mut show = |found: heed::Result<(&[u8], &[u8])>| -> Result<ControlFlow<()>> {
        let (key, value) = found.map_err(failed)?;
        row(key, value)
    };
    match order {
        Order::Ascending => {
            for found in tree.range(txn, &bounds).map_err(failed)? {
                if show(found)?.is_break() {
                    break;
                }
            }
        }
        Order::Descending => {
            for found in tree.rev_range(txn, &bounds).map_err(failed)? {
                if show(found)?.is_break() {
                    break;
                }
            }
        }
    }
    Ok(())
}

//! The seam between workloads and stores.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use crate::error::{BenchError, Result};

/// A tree of a store, by its place in [`OpenOptions::trees`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeId(pub usize);

/// Tree, key and value.
pub type TreeRow = (TreeId, Vec<u8>, Vec<u8>);

/// What a store is opened with.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions<'a> {
    /// An existing directory of the store's own.
    pub dir: &'a Path,
    pub trees: &'a [&'a str],
    /// Memory for all that the store keeps in it. What it takes beside its cache comes out of this.
    pub memory_bytes: u64,
    /// More than the data will ever take on disk.
    pub disk_bytes_max: u64,
    /// Threads that will have a session at once.
    pub thread_count: usize,
}

/// How a store was opened, in words for the report.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    pub version: String,
    pub memory: String,
    pub durability: String,
}

/// What a store has evicted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Evictions {
    /// Pages.
    pub page_count: u64,
    /// Time in which their memory was given back, in nanoseconds.
    pub give_back_ns: u64,
    /// Pages that were read.
    pub loaded_page_count: u64,
}

impl Evictions {
    pub fn since(self, before: Evictions) -> Evictions {
        Evictions {
            page_count: self.page_count - before.page_count,
            give_back_ns: self.give_back_ns - before.give_back_ns,
            loaded_page_count: self.loaded_page_count - before.loaded_page_count,
        }
    }
}

/// Ordered trees of byte strings, of which no key is empty. Any number of threads, each with a session of its own.
pub trait KeyValue: Send + Sync {
    fn settings(&self) -> Settings;

    /// # Errors
    /// The store has no room for another one.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Fills empty trees with rows in ascending order of tree and key, the fastest way that the store has.
    ///
    /// # Errors
    /// The store cannot take them: no space, or an I/O error.
    fn bulk_load(&self, rows: &mut dyn Iterator<Item = TreeRow>) -> Result<()>;

    /// Returns when all that was committed is durable.
    ///
    /// # Errors
    /// An I/O error.
    fn flush(&self) -> Result<()>;

    /// Whether transactions that write run beside each other.
    fn has_many_writers(&self) -> bool;

    /// What it has evicted, if it counts that.
    fn evictions(&self) -> Option<Evictions> {
        None
    }
}

/// One thread's access to a store.
pub trait Session {
    /// Shows the value of `key` as of now to `found`. Whether there is one.
    ///
    /// # Errors
    /// An I/O error.
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows the values of those `keys` that there are, in any order, each with its place in `keys`.
    ///
    /// # Errors
    /// An I/O error.
    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.get(tree, key, &mut |value| found(index, value))?;
        }
        Ok(())
    }

    /// Runs `body` so that nobody sees a part of what it did, and it sees nobody else's. It is run again after a
    /// conflict with another one, so it changes nothing else. An error of its own undoes what it did.
    ///
    /// # Errors
    /// That of `body`, or an I/O error.
    fn transaction(&mut self, access: Access, body: &mut Body<'_>) -> Result<Done>;
}

/// What a transaction does, and whether it is to count.
pub type Body<'b> = dyn FnMut(&mut dyn Transaction) -> Result<Verdict> + 'b;

/// Is shown rows, and says whether it wants more.
pub type Show<'s> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 's;

pub trait Transaction {
    /// As of [`Session::get`], within the transaction.
    ///
    /// # Errors
    /// An I/O error, or a conflict, which is for the session to see.
    fn get(&mut self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// As of [`Session::get_many`], within the transaction.
    ///
    /// # Errors
    /// As of [`Transaction::get`].
    fn get_many(&mut self, tree: TreeId, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.get(tree, key, &mut |value| found(index, value))?;
        }
        Ok(())
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// As of [`Transaction::get`]; or the transaction is one that reads.
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes `key`, if it is there.
    ///
    /// # Errors
    /// As of [`Transaction::put`].
    fn remove(&mut self, tree: TreeId, key: &[u8]) -> Result<()>;

    /// Shows rows of `keys` in their order to `row`, until it has enough.
    ///
    /// # Errors
    /// As of [`Transaction::get`], and that of `row`.
    fn scan(&mut self, tree: TreeId, keys: Range<&[u8]>, order: Order, row: &mut Show<'_>) -> Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

impl Access {
    /// # Errors
    /// A transaction that reads is asked to write.
    pub fn check_write(self) -> Result<()> {
        match self {
            Access::Write => Ok(()),
            Access::Read => Err(refused_write()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Commit,
    Rollback,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub verdict: Verdict,
    /// How often it was begun anew after conflicts.
    pub retry_count: u64,
}

impl Done {
    pub fn at_once(verdict: Verdict) -> Done {
        Done { verdict, retry_count: 0 }
    }
}

/// What a transaction that reads answers to a write.
pub fn refused_write() -> BenchError {
    BenchError::Failed("a transaction that reads was asked to write".to_owned())
}

//! Data in a store of this process, for what is measured on the embedded library.

use std::path::Path;

use stillframe_store::{DbId, Deadline, NewValue, OpError, Options, Store, Worker};

use crate::error::{BenchError, Context, Result};

pub const DB: DbId = DbId(0);
pub const KEY_BYTES: usize = 16;

pub type OpResult<T> = std::result::Result<T, OpError>;

/// A store in a new directory with `key_count` keys, each with a copy of `value`.
///
/// # Errors
/// The directory or the store cannot be made, or does not take the data.
pub fn filled(dir: &Path, worker_count: usize, key_count: u64, value: &[u8]) -> Result<Store> {
    std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
    let options =
        Options { worker_count: worker_count.max(1), checkpoint_on_drop: false, ..Options::default() };
    let store = Store::open(dir, options).map_err(|error| BenchError::failed("open the store", error))?;
    let mut worker = store.nonblocking_worker().map_err(|error| BenchError::failed("fill", error))?;
    for number in 0..key_count {
        set(&mut worker, &key_bytes(number), value).map_err(|error| BenchError::failed("fill", error))?;
        worker.quiesce();
    }
    drop(worker);
    Ok(store)
}

pub fn key_bytes(number: u64) -> [u8; KEY_BYTES] {
    let mut bytes = *b"key:\0\0\0\0\0\0\0\0\0\0\0\0";
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

pub fn set(worker: &mut Worker, key: &[u8], value: &[u8]) -> OpResult<bool> {
    let key = worker.key(key);
    worker.set(DB, &key, NewValue::Bytes { bytes: value, raw: false }, Deadline::Clear)
}

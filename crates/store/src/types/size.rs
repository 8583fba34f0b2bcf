//! How much memory a value takes: of a large collection as one of its leaves lets expect.

use stillframe_pagepool::PAGE_SIZE;

use crate::keyspace::{collections, read, CollectionKey};
use crate::types::kinds;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

impl Worker {
    /// Memory of key, value and record, without the free space of the leaf, in bytes; `None` if the key is absent.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn memory_bytes(&mut self, db: DbId, key: &Key<'_>) -> Result<Option<u64>, OpError> {
        self.with_run(|op, run| {
            let Some(entry) = read::entry(op, db, key)? else { return Ok(None) };
            let Some(kind) = kinds::of(entry.value_type) else { return Ok(Some(entry.memory_bytes)) };
            let at = CollectionKey { db, key: *key, value_type: entry.value_type };
            let opened = collections::open_to_read(op, &at, run)?;
            let page_count = match opened.and_then(|(opened, _lock)| opened.grown) {
                Some(grown) => kind.page_count(op.keyspace, &grown)?,
                None => 0,
            };
            Ok(Some(entry.memory_bytes + page_count * PAGE_SIZE as u64))
        })
    }
}

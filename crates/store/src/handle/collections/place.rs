//! The key of a collection, and the thread's way to it.

use std::rc::Rc;

use super::desk::Desk;
use crate::{DbId, Key, OpError, Store, Worker};

/// Handles are on keys of the first database.
const DB: DbId = DbId(0);

#[derive(Clone)]
pub(super) struct HandleKey {
    desk: Rc<Desk>,
    key: Vec<u8>,
}

impl HandleKey {
    pub fn new(store: &Store, key: &[u8]) -> HandleKey {
        HandleKey { desk: Desk::of(store), key: key.to_vec() }
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Runs an operation that only looks at the key; see [`Desk::read`].
    pub fn read<R>(
        &self,
        mut operation: impl FnMut(&mut Worker, DbId, &Key<'_>) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        self.desk.read(|worker| {
            let key = worker.key(&self.key);
            operation(worker, DB, &key)
        })
    }

    /// Runs one that may change it; see [`Desk::write`].
    pub fn write<R>(
        &self,
        mut operation: impl FnMut(&mut Worker, DbId, &Key<'_>) -> Result<R, OpError>,
    ) -> Result<R, OpError> {
        self.desk.write(|worker| {
            let key = worker.key(&self.key);
            operation(worker, DB, &key)
        })
    }
}

//! What the store does with values of any type now and then: what has expired goes, and everything is checked.

use std::cell::Cell;
use std::time::Duration;

use crate::here::check_outside;
use crate::keyspace::{CheckReport, Keyspace, Local};
use crate::stop::Stop;
use crate::store::Store;
use crate::types::hash;
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// Of all types only hashes have elements with deadlines.
fn expire_elements(keyspace: &Keyspace, local: &mut Local, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    match hash::expire_fields(keyspace, local, db, key) {
        Err(OpError::WrongType) => Ok(false),
        is_unfinished => is_unfinished,
    }
}

impl Worker {
    /// Removes expired entries, and expired fields of hashes, for at most about `limit`, calling `f` with each entry; returns how
    /// many entries.
    pub fn expire_cycle(&mut self, limit: Duration, f: impl FnMut(DbId, &[u8])) -> Result<u64, OpError> {
        let (mut f, removed) = (f, Cell::new(0));
        let mut note = |db: DbId, key: &[u8]| {
            removed.set(removed.get() + 1);
            f(db, key);
        };
        self.run(|keyspace, local| keyspace.expire_cycle(local, limit, expire_elements, &mut note))?;
        Ok(removed.get())
    }
}

impl Store {
    /// Checks the invariants of all trees, slabs and page counts; while nobody writes. Data may be larger than memory: what is
    /// not there is read past it.
    ///
    /// # Errors
    /// What is wrong, and where. Or it is called in a closure that an operation of this thread calls.
    pub fn check(&self) -> Result<CheckReport, String> {
        check_outside(self.number()).map_err(|busy| OpError::from(busy).to_string())?;
        self.keyspace().check(hash::is_lower_bound).map_err(|stop| match stop {
            Stop::Damaged(text) => text,
            other => format!("{other:?}"),
        })
    }
}

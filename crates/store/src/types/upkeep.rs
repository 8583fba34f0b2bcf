//! What the store does with values of any type now and then: what has expired goes, and everything is checked.

use std::cell::Cell;
use std::time::Duration;

use crate::here::check_outside;
use crate::keyspace::{check, evict, expire, CheckReport, CollectionChecks, Op, PageCheck};
use crate::stop::Stop;
use crate::store::Store;
use crate::tree::hash::Grown;
use crate::types::kinds;
use crate::types::viewed::damaged;
use crate::value::ValueType;
use crate::worker::Worker;
use crate::{DbId, Evicted, EvictionPolicy, Key, OpError, UnixMillis};

fn expire_elements(op: &mut Op<'_>, value_type: ValueType, at: (DbId, &Key<'_>)) -> Result<bool, OpError> {
    let Some(kind) = kinds::of(value_type) else { return Ok(false) };
    match kind.expire(op, at) {
        // The key has got another value meanwhile.
        Err(OpError::WrongType) => Ok(false),
        is_unfinished => is_unfinished,
    }
}

/// Whether no element of a packed collection has a deadline before the earliest that its body tells.
fn is_lower_bound(value_type: ValueType, earliest: UnixMillis, run: &[u8]) -> bool {
    let Some(kind) = kinds::of(value_type) else { return true };
    let checked = kind.for_each_packed(run, true, &mut |element| match element.parts().deadline {
        Some(deadline) if deadline < earliest => Err(damaged("a deadline")),
        _ => Ok(()),
    });
    checked.is_ok()
}

/// Checks the trees of a large collection; how many elements they have.
fn check_trees(value_type: ValueType, grown: &Grown, pages: &mut PageCheck<'_>) -> Result<u64, Stop> {
    let Some(kind) = kinds::of(value_type) else {
        return Err(Stop::Damaged(format!("{grown:?} are the trees of a {}", value_type.name()).into()));
    };
    kind.check(grown, pages)
}

/// What a worker does for the store between two commands.
pub struct Upkeep<'w>(&'w mut Worker);

impl Worker {
    /// What is to be done between two commands.
    #[inline]
    pub fn upkeep(&mut self) -> Upkeep<'_> {
        Upkeep(self)
    }
}

impl Upkeep<'_> {
    /// Removes expired entries, and expired fields of hashes, for at most about `limit`, calling `f` with each entry; returns how
    /// many entries.
    pub fn expire_cycle(&mut self, limit: Duration, f: impl FnMut(DbId, &[u8])) -> Result<u64, OpError> {
        let (mut f, removed) = (f, Cell::new(0));
        let mut note = |db: DbId, key: &[u8]| {
            removed.set(removed.get() + 1);
            f(db, key);
        };
        self.0.run(|op| expire::expire_cycle(op, limit, expire_elements, &mut note))?;
        Ok(removed.get())
    }

    /// To be called after a shared lock set has been released: removes what was found expired under it. Such
    /// entries count as absent and are otherwise left to the active expiry, but [`Store::db_stats`] counts them.
    ///
    /// # Errors
    /// [`OpError`]; the entry is left to the active expiry.
    #[inline]
    pub fn remove_left_expired(&mut self) -> Result<(), OpError> {
        self.0.run(expire::remove_left_expired)
    }

    /// Evicts one key, and removes what is met that has expired. To be called between two commands, without locks. Keys that were
    /// chosen by another policy before are not remembered.
    ///
    /// # Errors
    /// What is in the way of the keys that were chosen; none has been evicted.
    pub fn evict(&mut self, policy: EvictionPolicy, sample_count: usize) -> Result<Evicted, OpError> {
        self.0.run(|op| evict::evict(op, policy, sample_count))
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
        let checks = CollectionChecks { is_lower_bound, trees: check_trees };
        check::check(self.keyspace(), checks).map_err(|stop| match stop {
            Stop::Damaged(reason) => reason.to_string(),
            other => format!("{other:?}"),
        })
    }
}

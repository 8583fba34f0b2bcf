//! Keys of a batch that are brought into the cache before its operations, in stages.

use super::state::Keyspace;
use crate::{DbId, Key};

/// Brings what a batch is going to look at into the cache: each stage for all of it before the next, so that the waits for memory
/// overlap. What a stage leaves is a hint.
#[derive(Clone, Copy)]
pub struct Prefetch<'w>(pub(crate) &'w Keyspace);

impl Prefetch<'_> {
    /// First of six stages in which the keys of a batch are brought into the cache, each for all keys before the
    /// next: the waits for memory overlap. What it leaves in the key is a hint that costs nothing if it gets stale.
    #[inline]
    pub fn node(&self, db: DbId, key: &mut Key<'_>) {
        if let Some(tree) = self.0.tree(db) {
            self.0.trees.prefetch_node(tree, key);
        }
    }

    /// Second stage, after [`Prefetch::node`].
    #[inline]
    pub fn child(&self, key: &Key<'_>) {
        self.0.trees.prefetch_child(key);
    }

    /// Third stage, after [`Prefetch::child`]; also of use alone.
    #[inline]
    pub fn leaf(&self, db: DbId, key: &mut Key<'_>) {
        if let Some(tree) = self.0.tree(db) {
            self.0.trees.prefetch_leaf(tree, key);
            if key.will_write {
                self.0.locks.prefetch(db, key.hash);
            }
        }
    }

    /// Fourth stage, after [`Prefetch::leaf`].
    #[inline]
    pub fn slots(&self, key: &mut Key<'_>) {
        self.0.trees.prefetch_slots(key);
    }

    /// Fifth stage, after [`Prefetch::slots`].
    #[inline]
    pub fn record(&self, key: &mut Key<'_>) {
        self.0.trees.prefetch_record(key);
    }

    /// Last stage, after [`Prefetch::record`]: for values that lie outside their leaf.
    #[inline]
    pub fn value(&self, key: &Key<'_>) {
        if key.outside_hint {
            let _ = self.0.trees.prefetch_value(key);
        }
    }

    /// All stages for a batch of keys of one database.
    pub fn all(&self, db: DbId, keys: &mut [Key<'_>]) {
        keys.iter_mut().for_each(|key| self.node(db, key));
        keys.iter().for_each(|key| self.child(key));
        keys.iter_mut().for_each(|key| self.leaf(db, key));
        keys.iter_mut().for_each(|key| self.slots(key));
        keys.iter_mut().for_each(|key| self.record(key));
        keys.iter().for_each(|key| self.value(key));
    }
}

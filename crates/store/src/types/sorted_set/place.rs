//! The key of a sorted set, its trees, and places in it.

use crate::keyspace::CollectionKey;
use crate::tree::hash::Grown;
use crate::tree::sorted_set::Roots;
use crate::value::ValueType;
use crate::{DbId, Key, OpError};

pub(super) fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::SortedSet }
}

/// The trees of a large one.
pub(crate) fn roots(grown: &Grown) -> Result<Roots, OpError> {
    let order = grown.second.ok_or_else(|| OpError::Damaged("a sorted set has one tree only".into()))?;
    Ok(Roots { index: grown.first, order })
}

pub(super) fn grown(roots: Roots, element_count: u64) -> Grown {
    Grown { element_count, first: roots.index, second: Some(roots.order) }
}

/// A member's place: how many are before it, and its score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rank {
    pub rank: u64,
    pub score: f64,
}

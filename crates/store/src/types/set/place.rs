//! The key of a set.

use crate::keyspace::CollectionKey;
use crate::value::ValueType;
use crate::{DbId, Key};

pub(super) fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::Set }
}

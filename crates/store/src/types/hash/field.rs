//! What callers say of fields and are given of them.

use crate::keyspace::CollectionKey;
use crate::value::ValueType;
use crate::{DbId, Key};

/// Which fields a write sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldMode {
    All,
    /// The one field, if it is not there.
    Absent,
}

/// A field that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldRef<'a> {
    pub field: &'a [u8],
    pub value: &'a [u8],
}

pub(super) fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::Hash }
}

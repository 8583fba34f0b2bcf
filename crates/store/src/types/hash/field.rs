//! What callers say of fields and are given of them.

use super::packed::Pair;
use crate::blobs::Given;
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

/// A field that is there, as it is given to a caller that takes large ones where they lie.
#[derive(Debug)]
pub struct GivenField<'a> {
    pub field: Given<'a>,
    pub value: Given<'a>,
}

impl<'a> GivenField<'a> {
    pub(super) fn of(pair: &Pair<'a>) -> GivenField<'a> {
        GivenField { field: Given::Here(pair.field), value: Given::Here(pair.value) }
    }

    /// As of [`Given::held`].
    pub(super) fn held(self) -> FieldRef<'a> {
        FieldRef { field: self.field.held(), value: self.value.held() }
    }
}

pub(super) fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::Hash }
}

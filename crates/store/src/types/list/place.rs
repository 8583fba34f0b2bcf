//! The list at a key, and places in it.

use std::ops::Range;

use crate::keyspace::{CollectionKey, Opened};
use crate::types::packed::elements;
use crate::value::ValueType;
use crate::worker::Worker;
use crate::{DbId, Key};

/// The list at a key, for operations of one worker: each is an operation of its own.
pub struct ListAt<'w, 'k> {
    pub(super) worker: &'w mut Worker,
    pub(super) at: CollectionKey<'k>,
}

impl Worker {
    /// The list at a key, whether there is one or not.
    #[inline]
    pub fn list_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> ListAt<'_, 'k> {
        ListAt { worker: self, at: at(db, key) }
    }
}

pub(super) fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::List }
}

/// The items that two indices enclose in a list of so many; those below 0 count from the end.
pub(super) fn enclosed(start: i64, stop: i64, len: u64) -> Range<u64> {
    let most = i64::try_from(len).unwrap_or(i64::MAX);
    let from_left = |index: i64| if index < 0 { most.saturating_add(index) } else { index };
    let (start, stop) = (from_left(start).max(0), from_left(stop).min(most - 1));
    if start > stop {
        return 0..0;
    }
    start as u64..stop as u64 + 1
}

/// The index of an item from the left, if the list has it.
pub(super) fn index_in(index: i64, len: u64) -> Option<u64> {
    let index = if index < 0 { i64::try_from(len).ok()?.checked_add(index)? } else { index };
    u64::try_from(index).ok().filter(|index| *index < len)
}

pub(super) fn list_len(opened: &Opened, run: &[u8]) -> u64 {
    opened.grown.map_or_else(|| elements(run).count() as u64, |grown| grown.element_count)
}

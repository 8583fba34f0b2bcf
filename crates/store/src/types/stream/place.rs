//! The key of a stream, and what the stream says of itself.

use crate::entries::Head;
use crate::keyspace::CollectionKey;
use crate::value::ValueType;
use crate::{DbId, Key, StreamId};

pub(super) fn at<'k>(db: DbId, key: &Key<'k>) -> CollectionKey<'k> {
    CollectionKey { db, key: *key, value_type: ValueType::Stream }
}

/// What a stream says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamInfo {
    /// Entries.
    pub len: u64,
    /// The greatest ID that there has been.
    pub last: StreamId,
    /// Of the first entry; `0-0` if there is none.
    pub first: StreamId,
    /// The greatest ID of an entry that was removed by its ID.
    pub max_deleted: StreamId,
    /// Entries that there have been.
    pub added_count: u64,
    /// What Redis would have as many listpacks for.
    pub node_count: u64,
    pub group_count: u64,
}

impl StreamInfo {
    pub(super) fn of(head: &Head) -> StreamInfo {
        let Head { len, last, first, max_deleted, added_count, node_count, group_count, .. } = *head;
        StreamInfo { len, last, first, max_deleted, added_count, node_count, group_count }
    }
}

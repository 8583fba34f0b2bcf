//! What changes in a store, told once, to its listeners.

use crate::blobs::Bytes;
use crate::{DbId, Deadline, Key, NewValue, StreamId, UnixMillis};

/// A change. All times are absolute: applied in this order to an empty store whose clock stands still, effects make the
/// same store again.
#[derive(Clone, Copy, Debug)]
pub enum Effect<'a> {
    /// The key has this value now; a new one was not there before, and keeps no deadline.
    Set { db: DbId, key: Key<'a>, value: NewValue<'a>, deadline: Deadline, is_new: bool },
    /// A part of a string was written; a gap before it is filled with zero bytes, the deadline stays. No bytes: only how the string is
    /// kept has changed, or it is new and empty.
    Write { db: DbId, key: Key<'a>, offset: u64, bytes: &'a [u8], is_new: bool },
    /// An element of a collection has changed, or come with the key, which was not there before then.
    Element { db: DbId, key: Key<'a>, change: Change<'a>, is_new: bool },
    /// The key has another collection, whose elements follow.
    Replace { db: DbId, key: Key<'a> },
    /// The key has this deadline now, or none.
    Deadline { db: DbId, key: Key<'a>, deadline: Option<UnixMillis> },
    /// A command has removed the key.
    Delete { db: DbId, key: Key<'a> },
    /// The key's time was over: it is removed, or about to be replaced by the effect that follows.
    Expire { db: DbId, key: Key<'a> },
    /// The key has been removed to make room, whoever may want it still.
    Evict { db: DbId, key: Key<'a> },
    /// The entry has another name now; whether that takes it from another one.
    Move { from: (DbId, Key<'a>), to: (DbId, Key<'a>), replaces: bool },
    /// The entry is there twice now, over whatever was at `to`.
    Copy { from: (DbId, Key<'a>), to: (DbId, Key<'a>) },
    /// The database is about to be emptied.
    Flush { db: DbId, before: Before<'a> },
    /// Two databases are about to be exchanged.
    Swap { a: DbId, b: DbId, before: Before<'a> },
    /// A function library has this source now, whether it was there before.
    LibrarySet { name: &'a str, source: &'a [u8] },
    /// There is no function library of this name any more.
    LibraryRemoved { name: &'a str },
    /// There is no function library any more.
    LibrariesRemoved,
}

/// What has become of an element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change<'a> {
    /// A field of a hash has this value now, and this deadline or none.
    Field {
        field: Bytes<'a>,
        value: Bytes<'a>,
        deadline: Option<UnixMillis>,
    },
    FieldDeadline {
        field: Bytes<'a>,
        deadline: Option<UnixMillis>,
    },
    FieldRemoved {
        field: Bytes<'a>,
    },
    /// The field's time was over.
    FieldExpired {
        field: Bytes<'a>,
    },
    /// A set has this member now.
    Member {
        member: Bytes<'a>,
    },
    MemberRemoved {
        member: Bytes<'a>,
    },
    /// A sorted set has this member now, with this score.
    Scored {
        member: Bytes<'a>,
        score: f64,
    },
    ScoredRemoved {
        member: Bytes<'a>,
    },
    /// A list has this item at an end now.
    Pushed {
        end: End,
        item: Bytes<'a>,
    },
    Popped {
        end: End,
        item_count: u64,
    },
    /// The item at an index is another one now; indices count from the left, from 0.
    Item {
        index: u64,
        item: Bytes<'a>,
    },
    /// An item has come beside the first one, from the left, that is `pivot`.
    ItemInserted {
        is_before: bool,
        pivot: Bytes<'a>,
        item: Bytes<'a>,
    },
    /// So many of the items that are `item` have gone: the first from the left, or from the right if `count` is below 0.
    ItemsRemoved {
        item: Bytes<'a>,
        count: i64,
    },
    /// A stream has this entry behind all others now: a field, its value, a field, ...
    EntryAdded {
        id: StreamId,
        parts: &'a [&'a [u8]],
    },
    EntryRemoved {
        id: StreamId,
    },
    /// So many entries have gone from a stream's front; `first` is the first now, or there is none.
    EntriesTrimmed {
        first: Option<StreamId>,
        count: u64,
    },
    /// A group of a stream has given out entries up to this ID, so many of them if that is known.
    GroupSet {
        group: &'a [u8],
        last: StreamId,
        read_count: Option<u64>,
        is_new_group: bool,
    },
    GroupRemoved {
        group: &'a [u8],
    },
    ConsumerAdded {
        group: &'a [u8],
        consumer: &'a [u8],
    },
    /// Its pending entries have gone with it.
    ConsumerRemoved {
        group: &'a [u8],
        consumer: &'a [u8],
    },
    /// An entry is pending: a consumer has got it so often, the last time then.
    PendingSet {
        group: &'a [u8],
        consumer: &'a [u8],
        id: StreamId,
        time: UnixMillis,
        count: u64,
    },
    PendingRemoved {
        group: &'a [u8],
        id: StreamId,
    },
    /// A stream says this of itself now.
    StreamMarked {
        last: StreamId,
        added_count: u64,
        max_deleted: StreamId,
    },
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Left,
    Right,
}

/// The store before the change that is announced, while all workers stand between two commands.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    pub(crate) may_have: &'a dyn Fn(DbId, &[u8]) -> bool,
}

impl Before<'_> {
    /// Whether a key is there, or cannot be looked at.
    pub fn may_have(&self, db: DbId, key: &[u8]) -> bool {
        (self.may_have)(db, key)
    }
}

impl std::fmt::Debug for Before<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Before")
    }
}

impl Effect<'_> {
    /// Whether it counts as a change of the data: what expires would not have been found in any case.
    pub(crate) fn counts(&self) -> bool {
        let is_expiry = |change: &Change<'_>| matches!(change, Change::FieldExpired { .. });
        match self {
            Effect::Expire { .. } | Effect::Replace { .. } => false,
            Effect::Element { change, .. } => !is_expiry(change),
            _ => true,
        }
    }
}

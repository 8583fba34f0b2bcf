//! Entries as they are read.

use std::ops::RangeBounds;

use crate::entries::block::Block;
use crate::entries::{base_of, block_key, AFTER_BLOCKS};
use crate::keyspace::{CollectionKey, Op};
use crate::{OpError, StreamId};

use super::place::StreamInfo;
use super::records::{malformed, open_to_read, Records};

/// Which entries, in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryRange {
    /// The least ID.
    pub from: StreamId,
    /// The greatest ID.
    pub to: StreamId,
    /// The last entry comes first.
    pub is_downwards: bool,
    /// So many at most.
    pub most: u64,
}

impl EntryRange {
    /// All entries with these IDs, the first one first.
    pub fn of(ids: impl RangeBounds<StreamId>) -> EntryRange {
        let (from, to) = StreamId::ends_of(&ids);
        EntryRange { from, to, is_downwards: false, most: u64::MAX }
    }

    /// The last entry comes first.
    #[must_use]
    pub fn downwards(self) -> EntryRange {
        EntryRange { is_downwards: true, ..self }
    }

    /// So many at most.
    #[must_use]
    pub fn at_most(self, most: u64) -> EntryRange {
        EntryRange { most, ..self }
    }
}

/// Gets an entry: its ID, and a field, its value, a field, ... Whether it wants more.
pub(super) type GiveEntry<'f> = &'f mut dyn FnMut(StreamId, &[&[u8]]) -> bool;

pub(super) fn info(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    run: &mut Vec<u8>,
) -> Result<Option<StreamInfo>, OpError> {
    open_to_read(op, at, run, |_, records| Ok(StreamInfo::of(&records.head)))
}

pub(super) fn range(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    range: &EntryRange,
    f: GiveEntry<'_>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let found = open_to_read(op, at, run, |op, records| match range.is_downwards {
        false => up(op, records, range, f),
        true => down(op, records, range, f),
    })?;
    Ok(found.is_some())
}

pub(super) fn up(
    op: &mut Op<'_>,
    records: &Records<'_>,
    range: &EntryRange,
    f: GiveEntry<'_>,
) -> Result<(), OpError> {
    let mut left = range.most;
    if left == 0 || range.from > range.to || records.head.len == 0 {
        return Ok(());
    }
    let first = block_key(records.base_of_block(op, range.from)?.unwrap_or(range.from));
    // Of the first block's entries all may be below.
    let mut seen = 0;
    let is_enough = |key: &[u8], bytes: &[u8]| {
        seen += if key == first { 0 } else { Block::new(StreamId::MIN, bytes).count() };
        seen >= range.most
    };
    records.walk_up_together(op, &first, is_enough, |key, bytes| {
        let Some(base) = base_of(key) else { return Ok(false) };
        for entry in Block::new(base, bytes).entries().not_below(range.from) {
            let entry = entry.ok_or_else(malformed)?;
            if entry.id > range.to || left == 0 {
                return Ok(false);
            }
            left -= 1;
            if !f(entry.id, &entry.parts) {
                return Ok(false);
            }
        }
        Ok(left > 0)
    })
}

fn down(op: &mut Op<'_>, records: &Records<'_>, range: &EntryRange, f: GiveEntry<'_>) -> Result<(), OpError> {
    let mut left = range.most;
    if left == 0 || range.from > range.to {
        return Ok(());
    }
    let below = range.to.next().map(block_key);
    let below = below.as_ref().map_or(AFTER_BLOCKS, |key| &key[..]);
    records.walk_down(op, below, |key, bytes| {
        let Some(base) = base_of(key) else { return Ok(false) };
        let entries: Option<Vec<_>> = Block::new(base, bytes).entries().collect();
        for entry in entries.ok_or_else(malformed)?.into_iter().rev() {
            if entry.id > range.to {
                continue;
            }
            if entry.id < range.from || left == 0 {
                return Ok(false);
            }
            left -= 1;
            if !f(entry.id, &entry.parts) {
                return Ok(false);
            }
        }
        Ok(left > 0)
    })
}

//! How far a group is behind its stream, as Redis 7.0 reckons it.

use crate::entries::group::Group;
use crate::entries::Head;
use crate::StreamId;

/// Whether an entry from this one on may have been removed by its ID.
pub(super) fn may_have_gaps(head: &Head, from: StreamId) -> bool {
    // One before the first entry is in no range of entries.
    head.len > 0
        && head.max_deleted != StreamId::MIN
        && head.first <= head.max_deleted
        && from <= head.max_deleted
}

/// How many entries there have been up to this one, if that can be told without counting.
pub(super) fn entries_up_to(head: &Head, id: StreamId) -> Option<u64> {
    if head.added_count == 0 {
        return Some(0);
    }
    if head.len == 0 && id <= head.last || id == head.last {
        return Some(head.added_count);
    }
    if id > head.last {
        return None;
    }
    if head.max_deleted == StreamId::MIN || head.max_deleted < head.first {
        // Nothing is missing from the first on.
        if id < head.first {
            return head.added_count.checked_sub(head.len);
        }
        if id == head.first {
            return head.added_count.checked_sub(head.len).map(|count| count + 1);
        }
    }
    None
}

/// Entries that the group has not given out.
pub(super) fn lag(head: &Head, group: &Group) -> Option<u64> {
    if head.added_count == 0 {
        return Some(0);
    }
    let read_count = match group.read_count {
        Some(count) if !may_have_gaps(head, group.last) => Some(count),
        _ => entries_up_to(head, group.last),
    };
    read_count.map(|count| head.added_count.wrapping_sub(count))
}

/// How many entries the group has given out once it has given out this one.
pub(super) fn after_reading(head: &Head, group: &Group, id: StreamId) -> Option<u64> {
    match group.read_count {
        Some(count) if !may_have_gaps(head, id) => Some(count + 1),
        read_count if head.added_count == 0 => read_count,
        _ => entries_up_to(head, id),
    }
}

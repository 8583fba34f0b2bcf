//! Redis keeps entries in nodes, each a listpack. Here a node is a bit of its first entry; what follows is how Redis would divide them, and
//! how many bytes its listpacks would have.
//!
//! ```text
//! listpack  number of entries | of those that have gone | number of fields | their names | 0 | entries
//! entry     flags | milliseconds since the first's | number since the first's | values, or number of pairs and they | number of these words
//! ```

use crate::entries::{names_hash, LastNode};
use crate::keyspace::Keyspace;
use crate::rdb::{listpack_entry_bytes, listpack_number_bytes, LISTPACK_EMPTY_BYTES};
use crate::StreamId;

/// A listpack has no more bytes, whatever the settings say.
const NODE_MAX_BYTES: u64 = 1 << 30;
/// A count up to this takes a byte.
const SMALL_COUNT_MAX: u32 = 127;

/// How large nodes become: the settings `stream-node-max-bytes` and `stream-node-max-entries`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeLimits {
    most_bytes: u64,
    /// 0: any number.
    most_entries: u64,
}

/// Bytes of an entry in the node that began with `first`.
fn entry_bytes(first: StreamId, id: StreamId, parts: &[&[u8]], is_alike: bool) -> usize {
    let pair_count = parts.len() as i64 / 2;
    let words: usize = match is_alike {
        true => parts.iter().skip(1).step_by(2).map(|value| listpack_entry_bytes(value)).sum(),
        false => {
            let words: usize = parts.iter().map(|part| listpack_entry_bytes(part)).sum();
            words + listpack_number_bytes(pair_count)
        }
    };
    let word_count = if is_alike { pair_count + 3 } else { 2 * pair_count + 4 };
    let flags = i64::from(is_alike) * 2;
    let since = (id.ms.wrapping_sub(first.ms) as i64, id.seq.wrapping_sub(first.seq) as i64);
    [flags, since.0, since.1, word_count].into_iter().map(listpack_number_bytes).sum::<usize>() + words
}

/// Bytes of a listpack without entries, for entries with these fields.
fn begun_bytes(parts: &[&[u8]]) -> usize {
    let names: usize = parts.iter().step_by(2).map(|name| listpack_entry_bytes(name)).sum();
    let counts: usize = [1, 0, parts.len() as i64 / 2, 0].into_iter().map(listpack_number_bytes).sum();
    LISTPACK_EMPTY_BYTES + counts + names
}

impl NodeLimits {
    pub fn of(keyspace: &Keyspace) -> NodeLimits {
        let limits = &keyspace.limits;
        let most_bytes = match limits.stream_node_bytes() as u64 {
            0 => NODE_MAX_BYTES,
            bytes => bytes.min(NODE_MAX_BYTES),
        };
        NodeLimits { most_bytes, most_entries: limits.stream_node_entries() as u64 }
    }

    fn has_room(&self, last: &LastNode, parts: &[&[u8]]) -> bool {
        let more_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let is_counted_in_two = last.entry_count > SMALL_COUNT_MAX;
        let byte_count = u64::from(last.byte_count) + u64::from(is_counted_in_two);
        last.byte_count > 0
            && byte_count + more_bytes < self.most_bytes
            && (self.most_entries == 0 || u64::from(last.entry_count) < self.most_entries)
    }

    /// The last node with one entry more, which begins another if that is full.
    pub fn with_entry(&self, last: &LastNode, id: StreamId, parts: &[&[u8]]) -> LastNode {
        match self.has_room(last, parts) {
            true => longer(last, id, parts),
            false => begun(id, parts),
        }
    }
}

/// A node of one entry.
pub(super) fn begun(id: StreamId, parts: &[&[u8]]) -> LastNode {
    let byte_count = begun_bytes(parts) + entry_bytes(id, id, parts, true);
    let byte_count = u32::try_from(byte_count).unwrap_or(u32::MAX);
    LastNode { id, byte_count, entry_count: 1, names_hash: names_hash(parts.iter().step_by(2).copied()) }
}

/// A node with one entry more.
pub(super) fn longer(node: &LastNode, id: StreamId, parts: &[&[u8]]) -> LastNode {
    let is_alike = node.names_hash == names_hash(parts.iter().step_by(2).copied());
    let byte_count = node.byte_count as usize + entry_bytes(node.id, id, parts, is_alike);
    let byte_count = u32::try_from(byte_count).unwrap_or(u32::MAX);
    LastNode { byte_count, entry_count: node.entry_count.saturating_add(1), ..*node }
}

//! What a stream says of itself: the first of its records.
//!
//! ```text
//! 0  length u64 | 8 last ID 16 | 24 first ID 16 | 40 greatest deleted ID 16 | 56 entries added u64 | 64 nodes u64
//! 72 last node: first ID 16 | 88 bytes u32 | 92 entries, those that have gone included, u32 | 96 hash of its fields' names u64
//! 104 key of the last block: ID 16 | 120 groups u64
//! ```
//! IDs are 16 bytes in whose order they are. A node is what Redis would have in one listpack: how far `~` trims, and what a dump
//! has, depends on where they begin.

use super::id::StreamId;

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    /// Entries.
    pub len: u64,
    /// The greatest ID that there has been, also of an entry that has gone.
    pub last: StreamId,
    /// Of the first entry; `0-0` if there is none.
    pub first: StreamId,
    pub max_deleted: StreamId,
    pub added_count: u64,
    pub node_count: u64,
    pub last_node: LastNode,
    /// The ID in the key of the last block; of no meaning while there is no entry.
    pub last_block: StreamId,
    pub group_count: u64,
}

/// The node that the next entry may go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LastNode {
    /// Its first entry's ID, as it began.
    pub id: StreamId,
    /// Bytes that its entries take in a listpack; 0: there is no such node.
    pub byte_count: u32,
    /// Entries that have come to it.
    pub entry_count: u32,
    /// Of the names of its first entry's fields: entries with the same ones leave them out.
    pub names_hash: u64,
}

/// FNV-1a of the names of fields, with their lengths.
pub(crate) fn names_hash<'n>(names: impl Iterator<Item = &'n [u8]>) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    names.fold(0xcbf2_9ce4_8422_2325, |hash, name| {
        let hash = (name.len() as u64).to_le_bytes().into_iter().fold(hash, add);
        name.iter().copied().fold(hash, add)
    })
}

impl LastNode {
    /// One that another server has filled so far.
    pub fn ended(id: StreamId, byte_count: u32, entry_count: u32, names: &[&[u8]]) -> LastNode {
        LastNode { id, byte_count, entry_count, names_hash: names_hash(names.iter().copied()) }
    }
}

fn id_at(bytes: &[u8], at: usize) -> Option<StreamId> {
    bytes.get(at..)?.first_chunk().copied().map(StreamId::from_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

impl Head {
    pub fn parse(bytes: &[u8]) -> Option<Head> {
        (bytes.len() == HEAD_BYTES).then_some(())?;
        let last_node = LastNode {
            id: id_at(bytes, 72)?,
            byte_count: u32_at(bytes, 88)?,
            entry_count: u32_at(bytes, 92)?,
            names_hash: u64_at(bytes, 96)?,
        };
        Some(Head {
            len: u64_at(bytes, 0)?,
            last: id_at(bytes, 8)?,
            first: id_at(bytes, 24)?,
            max_deleted: id_at(bytes, 40)?,
            added_count: u64_at(bytes, 56)?,
            node_count: u64_at(bytes, 64)?,
            last_node,
            last_block: id_at(bytes, 104)?,
            group_count: u64_at(bytes, 120)?,
        })
    }

    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.len.to_le_bytes());
        put(8, &self.last.to_bytes());
        put(24, &self.first.to_bytes());
        put(40, &self.max_deleted.to_bytes());
        put(56, &self.added_count.to_le_bytes());
        put(64, &self.node_count.to_le_bytes());
        put(72, &self.last_node.id.to_bytes());
        put(88, &self.last_node.byte_count.to_le_bytes());
        put(92, &self.last_node.entry_count.to_le_bytes());
        put(96, &self.last_node.names_hash.to_le_bytes());
        put(104, &self.last_block.to_bytes());
        put(120, &self.group_count.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_as_it_was() {
        let id = |n| StreamId::new(n, n + 1);
        let head = Head {
            len: 1,
            last: id(2),
            first: id(3),
            max_deleted: id(4),
            added_count: 5,
            node_count: 6,
            last_node: LastNode { id: id(7), byte_count: 8, entry_count: 9, names_hash: 11 },
            last_block: id(10),
            group_count: 12,
        };
        assert_eq!(Head::parse(&head.encode()), Some(head));
        assert_eq!(Head::parse(&head.encode()[1..]), None);
    }
}

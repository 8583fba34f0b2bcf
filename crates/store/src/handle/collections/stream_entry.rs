//! Entries that handles on streams give.

use crate::StreamId;

/// An entry of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamEntry {
    pub id: StreamId,
    /// Fields with their values, in the order in which they were appended. A field may come more than once.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl StreamEntry {
    /// `parts` are a field, its value, a field, ...
    pub(super) fn new(id: StreamId, parts: &[&[u8]]) -> StreamEntry {
        let fields = parts.chunks_exact(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect();
        StreamEntry { id, fields }
    }

    /// The value of a field, the first one if it comes more than once.
    pub fn get(&self, field: impl AsRef<[u8]>) -> Option<&[u8]> {
        let field = field.as_ref();
        self.fields.iter().find(|(name, _)| name == field).map(|(_, value)| &value[..])
    }
}

/// Entries that a consumer owns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnedEntries {
    pub entries: Vec<StreamEntry>,
    /// IDs of entries that have been removed from the stream, and are pending still: acknowledging them ends that.
    pub gone: Vec<StreamId>,
}

impl OwnedEntries {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.gone.clear();
    }

    pub(super) fn take(&mut self, id: StreamId, parts: Option<&[&[u8]]>) {
        match parts {
            Some(parts) => self.entries.push(StreamEntry::new(id, parts)),
            None => self.gone.push(id),
        }
    }
}

//! Going through the tree of a stream, to check it: the head says what the blocks have.

use stillframe_pagepool::PageId;

use super::records::bad_stream;
use crate::blobs::Blob;
use crate::entries::block::Block;
use crate::entries::{base_of, Head, StreamId, HEAD_KEY};
use crate::page::Page;
use crate::stop::Stop;
use crate::tree::ordered::{self, Stored, Visitor};
use crate::tree::Tree;

/// Goes through a tree as another visitor does, and counts entries.
struct Entries<'a, V> {
    visitor: &'a mut V,
    head: Option<Head>,
    len: u64,
    node_count: u64,
    last: StreamId,
    /// An entry that lies outside is counted, and not looked at.
    has_outside: bool,
}

impl<V: Visitor> Visitor for Entries<'_, V> {
    fn read(&mut self, pid: PageId, into: &mut Page) -> Result<(), Stop> {
        self.visitor.read(pid, into)
    }

    fn page(&mut self, pid: PageId) -> Result<(), Stop> {
        self.visitor.page(pid)
    }

    fn blob(&mut self, blob: Blob) -> Result<(), Stop> {
        self.visitor.blob(blob)
    }

    fn record(&mut self, key: &[u8], value: Stored<'_>) -> Result<(), Stop> {
        if key == HEAD_KEY {
            self.head = Head::parse(value.bytes);
            return Ok(());
        }
        let Some(base) = base_of(key) else { return Ok(()) };
        if value.is_outside {
            (self.len, self.has_outside) = (self.len + 1, true);
            return Ok(());
        }
        let block = Block::new(base, value.bytes);
        let before = self.len;
        for entry in block.entries() {
            let entry = entry.ok_or_else(bad_stream)?;
            // ST2: they ascend.
            if entry.id < base || entry.id <= self.last {
                return Err(bad_stream());
            }
            (self.len, self.last) = (self.len + 1, entry.id);
        }
        self.node_count += block.node_count();
        match self.len - before == block.count() && block.count() > 0 {
            true => Ok(()),
            false => Err(bad_stream()),
        }
    }
}

/// Returns how many records there are.
pub(super) fn check_tree(tree: Tree, visitor: &mut impl Visitor) -> Result<u64, Stop> {
    let mut entries =
        Entries { visitor, head: None, len: 0, node_count: 0, last: StreamId::MIN, has_outside: false };
    let count = ordered::check_tree(tree.root, tree.tag, &mut entries)?;
    let Entries { head, len, node_count, last, has_outside, .. } = entries;
    // ST1: the head counts what is there.
    match head {
        Some(head)
            if head.len == len && last <= head.last && (has_outside || head.node_count == node_count) =>
        {
            Ok(count)
        }
        _ => Err(bad_stream()),
    }
}

//! Going through the tree of a stream, to check it: the head says what the blocks have.

use stillframe_pagepool::PageId;

use super::records::bad_stream;
use crate::blobs::Blob;
use crate::entries::block::Block;
use crate::entries::group::{self, Consumer, Group, Part, Pending};
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
    group_count: u64,
    group: OfGroup,
}

/// What has been met of a group, and of its consumer.
#[derive(Default)]
struct OfGroup {
    said: Group,
    pending_count: u64,
    owned_count: u64,
    named_count: u32,
    consumer_count: u32,
    /// What the consumer has still to own.
    left_count: u64,
}

impl OfGroup {
    fn take(&mut self, part: Part<'_>, value: &[u8]) -> Result<(), Stop> {
        match part {
            Part::Group => {
                self.end()?;
                *self = OfGroup { said: Group::parse(value).ok_or_else(bad_stream)?, ..OfGroup::default() };
            }
            Part::Pending(_) => {
                Pending::parse(value).ok_or_else(bad_stream)?;
                self.pending_count += 1;
            }
            Part::Named(_) => self.named_count += 1,
            Part::Consumer(_) => {
                let consumer = Consumer::parse(value).ok_or_else(bad_stream)?;
                let left_count = std::mem::replace(&mut self.left_count, consumer.pending_count);
                self.consumer_count += 1;
                return if left_count == 0 { Ok(()) } else { Err(bad_stream()) };
            }
            Part::Owned(..) => {
                self.owned_count += 1;
                self.left_count = self.left_count.checked_sub(1).ok_or_else(bad_stream)?;
            }
        }
        Ok(())
    }

    /// ST1: each pending entry has its owner, and the counts say so.
    fn end(&self) -> Result<(), Stop> {
        let OfGroup { said, pending_count, owned_count, named_count, consumer_count, left_count } = self;
        let is_right = said.pending_count == *pending_count
            && pending_count == owned_count
            && said.consumer_count == *consumer_count
            && named_count == consumer_count
            && *left_count == 0;
        is_right.then_some(()).ok_or_else(bad_stream)
    }
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
        let Some(base) = base_of(key) else {
            let (_, part) = group::of_key(key).ok_or_else(bad_stream)?;
            self.group_count += u64::from(part == Part::Group);
            return self.group.take(part, value.bytes);
        };
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
    let mut entries = Entries {
        visitor,
        head: None,
        len: 0,
        node_count: 0,
        last: StreamId::MIN,
        has_outside: false,
        group_count: 0,
        group: OfGroup::default(),
    };
    let count = ordered::check_tree(tree.root, tree.tag, false, &mut entries)?;
    let Entries { head, len, node_count, last, has_outside, group_count, group, .. } = entries;
    group.end()?;
    // ST1: the head counts what is there.
    let is_right = |head: Head| {
        head.len == len
            && last <= head.last
            && head.group_count == group_count
            && (has_outside || head.node_count == node_count)
    };
    match head.is_some_and(is_right) {
        true => Ok(count),
        false => Err(bad_stream()),
    }
}

//! What is taken from a stream's front.

use super::records::{malformed, Records};
use crate::effect::{Change, Effect};
use crate::entries::block::{self, Block, Dropped};
use crate::entries::{base_of, block_key, LastNode, AFTER_BLOCKS};
use crate::keyspace::{CollectionKey, Op};
use crate::{OpError, StreamId};

/// How much of a stream stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimTo {
    /// So many entries, the last ones.
    Length(u64),
    /// Entries of this ID and of greater ones.
    Id(StreamId),
}

/// What is to be taken from a stream's front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    pub to: TrimTo,
    /// Whole nodes go, and as many more entries may stay; then so many go at most, 0: any number.
    pub approximately: Option<u64>,
}

impl Trim {
    /// So many entries stay, the last ones.
    pub fn max_len(most: u64) -> Trim {
        Trim { to: TrimTo::Length(most), approximately: None }
    }

    /// Entries of this ID and of greater ones stay.
    pub fn min_id(first: StreamId) -> Trim {
        Trim { to: TrimTo::Id(first), approximately: None }
    }

    /// Only whole nodes go, which costs less, and a few more entries may stay (a node has 100 as a rule).
    #[must_use]
    pub fn approximately(self) -> Trim {
        Trim { approximately: Some(0), ..self }
    }
}

/// A place in a stream, everything before which goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// The first entry that stays; `None`: none does.
    first: Option<StreamId>,
    /// Entries that go.
    pub count: u64,
}

impl Cut {
    pub fn change(&self) -> Change<'static> {
        Change::EntriesTrimmed { first: self.first, count: self.count }
    }
}

/// A node on the walk from the front.
#[derive(Default)]
struct Node {
    count: u64,
    last: StreamId,
}

/// Where the walk is.
struct Planning<'t> {
    trim: &'t Trim,
    len: u64,
    /// Entries of whole nodes, or entries, that go.
    count: u64,
    node: Node,
}

impl Planning<'_> {
    /// Whether an entry goes, if entries go one by one.
    fn takes_entry(&self, id: StreamId) -> bool {
        match self.trim.to {
            TrimTo::Length(most) => self.len - self.count > most,
            TrimTo::Id(first) => id < first,
        }
    }

    /// Takes all entries of a block together, if only their number counts.
    fn takes_block(&mut self, block: Block<'_>) -> bool {
        let (TrimTo::Length(most), None) = (self.trim.to, self.trim.approximately) else { return false };
        let goes = self.len - self.count >= most.saturating_add(block.count());
        self.count += if goes { block.count() } else { 0 };
        goes
    }

    /// Takes the whole node behind what goes already; false if it stays.
    fn take_node(&mut self, most: u64) -> bool {
        let Node { count, last } = self.node;
        let after = self.count + count;
        let goes = match self.trim.to {
            TrimTo::Length(length) => self.len - self.count > length && self.len - after >= length,
            TrimTo::Id(first) => last < first,
        };
        if !goes || most > 0 && after > most {
            return false;
        }
        (self.count, self.node) = (after, Node::default());
        true
    }
}

/// Where to cut; `None` if nothing goes.
pub(super) fn plan(op: &mut Op<'_>, stream: &Records<'_>, trim: &Trim) -> Result<Option<Cut>, OpError> {
    let (mut first, mut is_over) = (None, false);
    let len = stream.head.len;
    let mut planning = Planning { trim, len, count: 0, node: Node::default() };
    stream.walk_up(op, &block_key(StreamId::MIN), |key, bytes| {
        let Some(base) = base_of(key) else { return Ok(false) };
        let block = Block::new(base, bytes);
        if planning.takes_block(block) {
            return Ok(true);
        }
        for entry in block.entries() {
            let entry = entry.ok_or_else(malformed)?;
            match trim.approximately {
                None if planning.takes_entry(entry.id) => planning.count += 1,
                None => (first, is_over) = (Some(entry.id), true),
                Some(most) => {
                    if entry.begins_node && planning.node.count > 0 && !planning.take_node(most) {
                        is_over = true;
                    }
                    if planning.node.count == 0 {
                        first = Some(entry.id);
                    }
                    planning.node.count += 1;
                    planning.node.last = entry.id;
                }
            }
            if is_over {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    if let (Some(most), false) = (trim.approximately, is_over) {
        if planning.node.count > 0 && planning.take_node(most) {
            first = None;
        }
    }
    let count = planning.count;
    Ok((count > 0).then_some(Cut { first, count }))
}

pub(super) fn apply(op: &mut Op<'_>, stream: &mut Records<'_>, cut: &Cut) -> Result<(), OpError> {
    let begun = match cut.first {
        Some(first) => stream.base_of_block(op, first)?,
        None => None,
    };
    let until = begun.map(block_key);
    let until = until.as_ref().map_or(AFTER_BLOCKS, |key| &key[..]);
    let node_count = |bytes: &[u8]| Block::new(StreamId::MIN, bytes).node_count();
    let mut nodes_gone = stream.remove_range(op, &block_key(StreamId::MIN), until, node_count)?;
    if let (Some(base), Some(first)) = (begun, cut.first) {
        let (mut bytes, key) = (Vec::new(), block_key(base));
        stream.get(op, &key, |found| bytes.extend_from_slice(found.unwrap_or_default()))?;
        let dropped = block::keep_from(&mut bytes, base, first).ok_or_else(malformed)?;
        nodes_gone += u64::from(dropped.node_count);
        nodes_gone -= u64::from(dropped.hands_over);
        if dropped != Dropped::default() {
            stream.put(op, &key, &bytes)?;
        }
    }
    let head = &mut stream.head;
    head.len -= cut.count;
    head.node_count -= nodes_gone;
    match cut.first {
        Some(first) => head.first = first,
        None => (head.first, head.last_node) = (StreamId::MIN, LastNode::default()),
    }
    Ok(())
}

pub(super) fn trim(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    trim: &Trim,
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let mut stream = Records::open_to_change(op, at, run)?;
    if !stream.is_there() {
        return Ok(0);
    }
    let Some(cut) = plan(op, &stream, trim)? else { return Ok(0) };
    apply(op, &mut stream, &cut)?;
    stream.store(op)?;
    op.announce(Effect::Element { db: at.db, key: at.key, change: cut.change(), is_new: false });
    Ok(cut.count)
}

//! Building a tree from records that come in order: leaves are filled one after the other, and nodes above them.
//!
//! What is unfinished is the right edge: a leaf whose records are in memory, and a node of each level. It can be written to
//! its pages at any time ([`Bulk::seal`]): then these are a whole tree, which can be freed as one.

use stillframe_pagepool::{ExclusiveGuard, PageId, Restart};

use super::leaf::{fits_leaf, OrderedLeafMut, Stored, CAPACITY_BYTES, KEY_MAX_BYTES, SLOT_BYTES};
use super::node::{prefix_bytes, Child, Node, OrderedNode, CHILD_BYTES_MAX};
use super::order::Ordered;
use super::plan::separator;
use crate::page::PAGE_SIZE;
use crate::stop::Stop;
use crate::tree::order::not_a_leaf;
use crate::tree::trees::{Tree, Trees};

/// Some room is left in leaves and nodes, or the next insert would split them.
const LEAF_FULL_BYTES: usize = CAPACITY_BYTES - CAPACITY_BYTES / 16;
const NODE_FULL_BYTES: usize = PAGE_SIZE - PAGE_SIZE / 16;

/// A record of the unfinished leaf.
struct Pending {
    key: Vec<u8>,
    value: Vec<u8>,
    is_outside: bool,
}

impl Pending {
    fn stored(&self) -> Stored<'_> {
        Stored { bytes: &self.value, is_outside: self.is_outside }
    }
}

/// An unfinished node.
struct Edge {
    pid: PageId,
    node: Node,
}

/// A tree that is being built. Nobody else knows its pages.
pub(crate) struct Bulk<'t> {
    trees: &'t Trees<Ordered>,
    tree: Tree,
    /// The unfinished leaf; none after an error.
    leaf: Option<PageId>,
    leaf_lo: Vec<u8>,
    pending: Vec<Pending>,
    /// Bytes that the pending records would take without a prefix.
    pending_bytes: usize,
    /// Unfinished nodes, the one above the leaves first, the root last.
    edge: Vec<Edge>,
}

fn record_bytes(key: &[u8], value: Stored<'_>) -> usize {
    SLOT_BYTES + value.record_bytes(key.len())
}

/// Bytes of a leaf's capacity that records take between bounds.
fn leaf_bytes(lo: &[u8], hi: Option<&[u8]>, records: &[Pending]) -> usize {
    let all: usize = records.iter().map(|record| record_bytes(&record.key, record.stored())).sum();
    lo.len() + hi.map_or(0, <[u8]>::len) + all - records.len() * prefix_bytes(lo, hi)
}

impl<'t> Bulk<'t> {
    /// Begins with an empty tree.
    ///
    /// # Errors
    /// There are no pages for it.
    pub fn begin(trees: &'t Trees<Ordered>, tree: Tree) -> Result<Bulk<'t>, Stop> {
        debug_assert!(!trees.order.counts, "what is built counts nothing");
        let leaf = PageId(trees.pool.optimistic(tree.root)?.child_at(0));
        let edge = vec![Edge { pid: tree.root, node: unfinished(tree, 0, Vec::new(), leaf) }];
        Ok(Bulk {
            trees,
            tree,
            leaf: Some(leaf),
            leaf_lo: Vec::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            edge,
        })
    }

    /// Adds a record. False, and nothing added, if its key is not above all before it.
    ///
    /// # Errors
    /// Key or value are too long, there is no page, one is damaged. The record has not been added then, and none can be:
    /// [`Bulk::abandon`] is to come.
    pub fn add(&mut self, key: &[u8], value: Stored<'_>) -> Result<bool, Stop> {
        if key.len() > KEY_MAX_BYTES || !fits_leaf(key, value.bytes) {
            return Err(Stop::TooLarge);
        }
        let last = self.pending.last().map(|record| &record.key[..]);
        if last.is_some_and(|last| last >= key) {
            return Ok(false);
        }
        // The upper bound is still unknown: it may have less in common with the lower one than the key has.
        let more_bytes = record_bytes(key, value);
        let prefix_bytes = prefix_bytes(&self.leaf_lo, Some(key)) * (self.pending.len() + 1);
        let bounds_bytes = self.leaf_lo.len() + key.len();
        let bytes = (bounds_bytes + self.pending_bytes + more_bytes).saturating_sub(prefix_bytes);
        let hi = last.map(|last| separator(last, key)).filter(|_| bytes > LEAF_FULL_BYTES);
        if let Some(hi) = &hi {
            self.finish_leaves(Some(hi))?;
            self.begin_leaf(hi.clone())?;
        }
        self.pending.push(Pending {
            key: key.into(),
            value: value.bytes.into(),
            is_outside: value.is_outside,
        });
        self.pending_bytes += more_bytes;
        Ok(true)
    }

    /// Writes what is left; the tree is whole.
    ///
    /// # Errors
    /// There is no page, or one is damaged.
    pub fn finish(&mut self) -> Result<(), Stop> {
        self.finish_leaves(None)?;
        self.write_edge()
    }

    /// Writes the right edge, so that the pages are a whole tree with all records so far.
    ///
    /// # Errors
    /// There is no page, or one is damaged.
    pub fn seal(&mut self) -> Result<(), Stop> {
        // A leaf without an upper bound leaves no prefix out of its keys.
        while self.pending.len() > 1 && leaf_bytes(&self.leaf_lo, None, &self.pending) > CAPACITY_BYTES {
            let hi = self.finish_part(None)?;
            self.begin_leaf(hi.unwrap_or_default())?;
        }
        if let Some(leaf) = self.leaf {
            self.write_leaf(leaf, None, &self.pending)?;
        }
        self.write_edge()
    }

    /// Makes the pages a whole tree without the records that are in none of its leaves; gives the values of these.
    pub fn abandon(self, mut f: impl FnMut(Stored<'_>)) {
        self.pending.iter().for_each(|record| f(record.stored()));
        if let Some(leaf) = self.leaf {
            // A page that is damaged is freed as it is.
            let _ = self.write_leaf(leaf, None, &[]);
        }
        let _ = self.write_edge();
    }

    fn write_leaf(&self, pid: PageId, hi: Option<&[u8]>, records: &[Pending]) -> Result<(), Stop> {
        let mut guard = self.latched(pid)?;
        let mut leaf = OrderedLeafMut::init(guard.page_mut(), self.tree.tag, &self.leaf_lo, hi);
        for (index, record) in records.iter().enumerate() {
            let fitted = leaf.insert(index, &record.key, record.stored());
            debug_assert!(fitted, "as many as have room");
        }
        Ok(())
    }

    fn write_edge(&self) -> Result<(), Stop> {
        self.edge.iter().try_for_each(|edge| {
            edge.node.encode(&mut self.latched(edge.pid)?);
            Ok(())
        })
    }

    /// A page of the edge. One that is not in memory is waited for: nobody else can bring the tree into order.
    fn latched(&self, pid: PageId) -> Result<ExclusiveGuard<'t>, Stop> {
        loop {
            match self.trees.pool.exclusive(pid) {
                Err(Restart::Fault(pid)) => self.trees.pool.residency().load_at_once(&[pid]),
                guard => return Ok(guard?),
            }
        }
    }

    /// Writes all pending records, to several leaves if the upper bound has so little in common with the lower one that
    /// they do not fit one.
    fn finish_leaves(&mut self, hi: Option<&[u8]>) -> Result<(), Stop> {
        loop {
            match self.finish_part(hi)? {
                Some(lo) if !self.pending.is_empty() => self.begin_leaf(lo)?,
                _ => return Ok(()),
            }
        }
    }

    /// Writes as many of the pending records as the leaf has room for; its upper bound.
    fn finish_part(&mut self, hi: Option<&[u8]>) -> Result<Option<Vec<u8>>, Stop> {
        let mut count = self.pending.len();
        let bound = |count: usize| match self.pending.get(count) {
            Some(next) => Some(separator(&self.pending[count - 1].key, &next.key)),
            None => hi.map(<[u8]>::to_vec),
        };
        let bytes = |count| leaf_bytes(&self.leaf_lo, bound(count).as_deref(), &self.pending[..count]);
        while count > 1 && bytes(count) > CAPACITY_BYTES {
            count = count.div_ceil(2);
        }
        let part_hi = bound(count);
        let leaf = self.leaf.ok_or_else(|| not_a_leaf(self.tree.root))?;
        self.write_leaf(leaf, part_hi.as_deref(), &self.pending[..count])?;
        self.leaf = None;
        let written = self.pending.drain(..count);
        self.pending_bytes -= written.map(|record| record_bytes(&record.key, record.stored())).sum::<usize>();
        Ok(part_hi)
    }

    fn allocate(&self) -> Result<PageId, Stop> {
        self.trees.pages.admit(1)?;
        Ok(self.trees.pool.allocate()?.id())
    }

    fn free(&self, pid: PageId) {
        if let Ok(page) = self.trees.pool.exclusive(pid) {
            self.trees.pool.free(page, 1);
        }
    }

    fn begin_leaf(&mut self, lo: Vec<u8>) -> Result<(), Stop> {
        let leaf = self.allocate()?;
        if let Err(stop) = self.add_child(0, lo.clone(), leaf) {
            self.free(leaf);
            return Err(stop);
        }
        (self.leaf, self.leaf_lo) = (Some(leaf), lo);
        Ok(())
    }

    /// Adds a child to the unfinished node of a level, which is finished if it is full.
    fn add_child(&mut self, at: usize, separator: Vec<u8>, pid: PageId) -> Result<(), Stop> {
        let child = Child { separator: separator[..].into(), pid: pid.0, records: 0 };
        let node = &self.edge[at].node;
        let has_room = node.encoded_bytes() + CHILD_BYTES_MAX + separator.len() <= NODE_FULL_BYTES;
        if has_room || node.children.len() < 2 {
            self.edge[at].node.children.push(child);
            return Ok(());
        }
        if at + 1 == self.edge.len() {
            self.grow(at)?;
        }
        let whole = Node { hi: Some(separator.clone()), ..self.edge[at].node.clone() };
        whole.encode(&mut self.latched(self.edge[at].pid)?);
        let next = self.allocate()?;
        if let Err(stop) = self.add_child(at + 1, separator.clone(), next) {
            self.free(next);
            return Err(stop);
        }
        self.edge[at] = Edge { pid: next, node: unfinished(self.tree, at, separator, pid) };
        Ok(())
    }

    /// The root gives its content to a node of its own; it keeps its page.
    fn grow(&mut self, at: usize) -> Result<(), Stop> {
        let pid = self.allocate()?;
        self.edge[at].pid = pid;
        let node = unfinished(self.tree, at + 1, Vec::new(), pid);
        self.edge.push(Edge { pid: self.tree.root, node });
        Ok(())
    }
}

/// A node of the edge, with its first child.
fn unfinished(tree: Tree, at: usize, lo: Vec<u8>, child: PageId) -> Node {
    let children = vec![Child { separator: lo[..].into(), pid: child.0, records: 0 }];
    Node { level: at as u8 + 1, tag: tree.tag, counts: false, lo, hi: None, children }
}

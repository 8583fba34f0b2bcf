//! What is done with a tree of byte-string keys. One record is a key and a value, both of a few hundred bytes at most.

use stillframe_pagepool::ExclusiveGuard;

use super::leaf::{OrderedLeaf, OrderedLeafMut, KEY_MAX_BYTES, RECORD_HEADER_BYTES, VALUE_MAX_BYTES};
use super::node::add_records;
use super::order::{Ordered, Seek};
use crate::stop::Stop;
use crate::tree::merge::is_sparse;
use crate::tree::order::{as_leaf, bad_record, not_a_leaf, not_inner, LeafView, Order};
use crate::tree::trees::{Scratch, Tree, Trees};
use crate::tree::words::Words;

/// Where a walk through a tree goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// From this bound on, upwards or downwards.
    From(Vec<u8>),
    End,
}

/// A leaf latched for a write; in a tree that counts, with all nodes above it (invariant T1) and the places of the way in
/// them.
struct Way<'p> {
    nodes: Vec<(ExclusiveGuard<'p>, usize)>,
    leaf: ExclusiveGuard<'p>,
}

impl Way<'_> {
    fn leaf_mut(&mut self) -> Result<OrderedLeafMut<'_>, Stop> {
        let pid = self.leaf.id();
        OrderedLeafMut::new(self.leaf.page_mut()).ok_or_else(|| not_a_leaf(pid))
    }

    fn count(&mut self, delta: i32) {
        for (node, index) in &mut self.nodes {
            add_records(node, *index, delta);
        }
    }
}

impl Trees<Ordered> {
    fn way(&self, tree: Tree, key: &[u8]) -> Result<Way<'_>, Stop> {
        if !self.order.counts {
            let leaf = self.leaf_exclusive(tree, Seek::Key(key), None)?;
            return Ok(Way { nodes: Vec::new(), leaf });
        }
        let mut nodes = Vec::new();
        let mut pid = tree.root;
        loop {
            let node = self.pool.exclusive(pid)?;
            if !Ordered::is_inner(&node, tree.tag) {
                return Err(not_inner(pid));
            }
            let index = Ordered::find_child(&node, Seek::Key(key));
            let is_above_leaves = node.level() <= 1;
            pid = Ordered::child(&node, index);
            nodes.push((node, index));
            if is_above_leaves {
                break;
            }
        }
        let leaf = self.pool.exclusive(pid)?;
        match Ordered::covers(as_leaf::<Ordered>(pid, leaf.page())?, tree.tag, Seek::Key(key)) {
            true => Ok(Way { nodes, leaf }),
            false => Err(not_a_leaf(pid)),
        }
    }

    /// The value of a key, if it is there.
    pub fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let guard = self.leaf_shared(tree, Seek::Key(key), None)?;
        let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
        let Ok(slot) = leaf.find(key) else { return Ok(None) };
        let (_, value) = leaf.record(slot).ok_or_else(|| bad_record(guard.id()))?;
        Ok(Some(value.to_vec()))
    }

    /// Stores a record; whether the key was there before. `None` if there is no room: [`Trees::make_room`] for
    /// [`record_bytes`] is to come first.
    pub fn put(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<Option<bool>, Stop> {
        if key.len() > KEY_MAX_BYTES || value.len() > VALUE_MAX_BYTES {
            return Err(Stop::TooLarge);
        }
        let mut way = self.way(tree, key)?;
        let leaf = as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?;
        let found = leaf.find(key);
        // Before the page is written: a cut may need a copy of it then.
        if !leaf.has_room(found, key, value) {
            return Ok(None);
        }
        let mut leaf = way.leaf_mut()?;
        match found {
            Ok(slot) => Ok(leaf.replace(slot, value).then_some(true)),
            Err(slot) if leaf.insert(slot, key, value) => {
                way.count(1);
                Ok(Some(false))
            }
            Err(_) => Ok(None),
        }
    }

    /// Removes a record; whether it was there.
    pub fn remove(&self, scratch: &mut Scratch, tree: Tree, key: &[u8]) -> Result<bool, Stop> {
        let mut way = self.way(tree, key)?;
        let Ok(slot) = as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?.find(key) else {
            return Ok(false);
        };
        way.leaf_mut()?.remove(slot);
        way.count(-1);
        let sparse = is_sparse::<Ordered>(as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?);
        drop(way);
        if sparse {
            // Joining only saves memory: what stands in its way may stay there.
            let _ = self.join_leaves(scratch, tree, Seek::Key(key));
        }
        Ok(true)
    }

    /// Gives the records of one leaf from `from` on, in order, until `f` says no. Where the walk goes on after them.
    pub fn walk_up(
        &self,
        tree: Tree,
        from: &[u8],
        mut f: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Next, Stop> {
        let guard = self.leaf_shared(tree, Seek::Key(from), None)?;
        let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
        let (Ok(start) | Err(start)) = leaf.find(from);
        match give(leaf, start..leaf.count(), &mut f).ok_or_else(|| bad_record(guard.id()))? {
            true => Ok(leaf.hi().map_or(Next::End, |hi| Next::From(hi.to_vec()))),
            false => Ok(Next::End),
        }
    }

    /// The same downwards, from the greatest key below `below` on, or from the greatest of all.
    pub fn walk_down(
        &self,
        tree: Tree,
        below: Option<&[u8]>,
        mut f: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Next, Stop> {
        if below.is_some_and(<[u8]>::is_empty) {
            return Ok(Next::End);
        }
        let guard = self.leaf_shared(tree, below.map_or(Seek::Last, Seek::Below), None)?;
        let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
        let end = match below.map(|key| leaf.find(key)) {
            Some(Ok(end) | Err(end)) => end,
            None => leaf.count(),
        };
        let goes_on = give(leaf, (0..end).rev(), &mut f).ok_or_else(|| bad_record(guard.id()))?;
        Ok(if goes_on && !leaf.lo().is_empty() { Next::From(leaf.lo().to_vec()) } else { Next::End })
    }
}

/// Bytes to make room for, before a record is put.
pub(crate) fn record_bytes(key: &[u8], value: &[u8]) -> usize {
    RECORD_HEADER_BYTES + key.len() + value.len()
}

/// Gives records until `f` says no; whether it did not. `None` if one is malformed.
fn give(
    leaf: OrderedLeaf<'_>,
    slots: impl Iterator<Item = usize>,
    f: &mut impl FnMut(&[u8], &[u8]) -> bool,
) -> Option<bool> {
    let mut key = leaf.prefix().to_vec();
    for slot in slots {
        let (tail, value) = leaf.record(slot)?;
        key.truncate(leaf.prefix().len());
        key.extend_from_slice(tail);
        if !f(&key, value) {
            return Some(false);
        }
    }
    Some(true)
}

//! What is done with a tree of byte-string keys. One record is a key and a value, both of a few hundred bytes at most; a
//! longer value lies elsewhere, and the record refers to it.

use smallvec::SmallVec;
use stillframe_pagepool::{ExclusiveGuard, PageId, SharedGuard};

use super::leaf::{fits_leaf, OrderedLeaf, OrderedLeafMut, Stored, KEY_AND_VALUE_MAX_BYTES, KEY_MAX_BYTES};
use super::node::add_records;
use super::order::{Ordered, Seek};
use crate::stop::{Follow, Stop};
use crate::tree::merge::Joining;
use crate::tree::order::{as_leaf, bad_record, not_a_leaf, not_inner, LeafView, Order};
use crate::tree::trees::{stop_below, Tree, Trees};
use crate::tree::words::Words;

/// Where a walk through a tree goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// From this bound on, upwards or downwards.
    From(Vec<u8>),
    End,
}

/// What a removal did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Removal {
    WasAbsent,
    Done {
        /// [`Trees::join_leaves`] may save memory.
        is_sparse: bool,
    },
}

/// What a removal of records in a row did in one leaf.
pub(crate) struct RunRemoval {
    pub count: usize,
    /// Where the row may go on.
    pub next: Next,
    /// As of [`Removal`].
    pub is_sparse: bool,
}

/// Nodes on the way to a leaf that are kept without an allocation: those of trees of up to a few hundred million records.
pub(super) const WAY_NODES: usize = 4;

/// A leaf latched for a write; in a tree that counts, with all nodes above it (invariant T1) and the places of the way in
/// them.
struct Way<'p> {
    nodes: SmallVec<[(ExclusiveGuard<'p>, usize); WAY_NODES]>,
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
    fn way(&self, tree: Tree, key: &[u8], hint: Option<PageId>) -> Result<Way<'_>, Stop> {
        if !self.order.counts {
            let leaf = self.leaf_exclusive(tree, Seek::Key(key), hint)?;
            return Ok(Way { nodes: SmallVec::new(), leaf });
        }
        let mut nodes: SmallVec<[(ExclusiveGuard<'_>, usize); WAY_NODES]> = SmallVec::new();
        let mut pid = tree.root;
        loop {
            let node = self.pool.follow_exclusive(pid)?;
            let is_below = nodes.last().is_none_or(|(above, _)| node.level() == above.level() - 1);
            if !Ordered::is_inner(&node, tree.tag) || !is_below {
                return Err(not_inner(pid));
            }
            let index = Ordered::find_child(&node, Seek::Key(key));
            let is_above_leaves = node.level() <= 1;
            pid = Ordered::child(&node, index);
            nodes.push((node, index));
            // Damaged pages may lead back to themselves.
            if nodes.iter().any(|(node, _)| node.id() == pid) {
                return Err(not_inner(pid));
            }
            if is_above_leaves {
                break;
            }
        }
        let leaf = self.pool.follow_exclusive(pid)?;
        match Ordered::covers(as_leaf::<Ordered>(pid, leaf.page())?, tree.tag, Seek::Key(key)) {
            true => Ok(Way { nodes, leaf }),
            false => Err(not_a_leaf(pid)),
        }
    }

    /// Gives `f` what the tree has for a key, under the leaf's shared latch.
    #[inline(always)]
    pub fn look<R>(
        &self,
        tree: Tree,
        key: &[u8],
        f: impl FnOnce(Option<Stored<'_>>) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let (parent, pid) = self.descend(tree, Seek::Key(key), 1)?;
        self.prefetch_slots(pid);
        let guard = self.pool.shared(pid).map_err(|restart| stop_below(&self.pool, &parent, restart))?;
        // As the node above is what it was, the leaf that is latched now is the key's.
        parent.validate()?;
        give_value(&guard, tree, key, usize::MAX, f)
    }

    /// The same for one of several keys that may be close together: looks into the leaf of `near` first, and leaves the key's
    /// there. Good until the thread's next look at the barrier.
    pub fn look_near<R>(
        &self,
        tree: Tree,
        key: &[u8],
        near: &mut Option<PageId>,
        f: impl FnOnce(Option<Stored<'_>>) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let guard = self.leaf_shared(tree, Seek::Key(key), *near)?;
        *near = Some(guard.id());
        give_value(&guard, tree, key, usize::MAX, f)
    }

    /// Stores a record and gives `old` what was there before, as soon as it is sure that it will be replaced. Whether there
    /// was one. `None` if there is no room: [`Trees::make_room`] for [`record_bytes`] is to come first. `near` is as of
    /// [`Trees::look_near`].
    pub fn put(
        &self,
        tree: Tree,
        key: &[u8],
        value: Stored<'_>,
        near: &mut Option<PageId>,
        old: impl FnOnce(Stored<'_>),
    ) -> Result<Option<bool>, Stop> {
        if key.len() > KEY_MAX_BYTES || !fits_leaf(key, value.bytes) {
            return Err(Stop::TooLarge);
        }
        let mut way = self.way(tree, key, *near)?;
        *near = Some(way.leaf.id());
        let leaf = as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?;
        let found = leaf.find(key);
        // Before the page is written: a cut may need a copy of it then.
        if !leaf.has_room(found, key, value) {
            return Ok(None);
        }
        match found {
            Ok(slot) => {
                old(leaf.record(slot).ok_or_else(|| bad_record(way.leaf.id()))?.1);
                Ok(way.leaf_mut()?.replace(slot, value).then_some(true))
            }
            Err(slot) => {
                let mut leaf = way.leaf_mut()?;
                if !leaf.insert(slot, key, value) {
                    return Ok(None);
                }
                leaf.note_run(slot);
                way.count(1);
                Ok(Some(false))
            }
        }
    }

    /// Appends to the value of a record that is there and lies in the leaf: `f` is given the value and where to put what comes behind it,
    /// and says what its first bytes are then, or that nothing is to be done. Whether it has been.
    pub fn extend<const FRONT: usize>(
        &self,
        tree: Tree,
        key: &[u8],
        near: &mut Option<PageId>,
        more: &mut Vec<u8>,
        f: impl FnOnce(&[u8], &mut Vec<u8>) -> Option<[u8; FRONT]>,
    ) -> Result<bool, Stop> {
        let mut way = self.way(tree, key, *near)?;
        *near = Some(way.leaf.id());
        let leaf = as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?;
        let Ok(slot) = leaf.find(key) else { return Ok(false) };
        let value = leaf.record(slot).ok_or_else(|| bad_record(way.leaf.id()))?.1;
        more.clear();
        let front = if value.is_outside { None } else { f(value.bytes, more) };
        let fits = key.len() + value.bytes.len() + more.len() <= KEY_AND_VALUE_MAX_BYTES
            && leaf.free_bytes() >= more.len();
        match front.filter(|_| fits) {
            Some(front) => Ok(way.leaf_mut()?.extend(slot, &front, more)),
            None => Ok(false),
        }
    }

    /// Removes a record and gives `old` what it had. `near` is as of [`Trees::look_near`].
    pub fn remove(
        &self,
        tree: Tree,
        key: &[u8],
        near: &mut Option<PageId>,
        old: impl FnOnce(Stored<'_>),
    ) -> Result<Removal, Stop> {
        let mut way = self.way(tree, key, *near)?;
        *near = Some(way.leaf.id());
        let leaf = as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?;
        let Ok(slot) = leaf.find(key) else { return Ok(Removal::WasAbsent) };
        old(leaf.record(slot).ok_or_else(|| bad_record(way.leaf.id()))?.1);
        way.leaf_mut()?.remove(slot);
        way.count(-1);
        let leaf = as_leaf::<Ordered>(way.leaf.id(), way.leaf.page())?;
        Ok(Removal::Done { is_sparse: Joining::Sparse.is_due::<Ordered>(leaf) })
    }

    /// Removes the records of one leaf from `from` on that are below `until`, and gives `old` what each has; nothing has been removed if it
    /// stops.
    pub fn remove_run(
        &self,
        tree: Tree,
        from: &[u8],
        until: &[u8],
        mut old: impl FnMut(Stored<'_>) -> Result<(), Stop>,
    ) -> Result<RunRemoval, Stop> {
        let mut way = self.way(tree, from, None)?;
        let pid = way.leaf.id();
        let leaf = as_leaf::<Ordered>(pid, way.leaf.page())?;
        let (Ok(start) | Err(start)) = leaf.find(from);
        let (Ok(end) | Err(end)) = leaf.find(until);
        let next = leaf.hi().filter(|hi| *hi < until).map_or(Next::End, |hi| Next::From(hi.to_vec()));
        let slots = start..end.max(start);
        for slot in slots.clone() {
            old(leaf.record(slot).ok_or_else(|| bad_record(pid))?.1)?;
        }
        let count = slots.len();
        if count > 0 {
            way.leaf_mut()?.remove_run(slots);
            way.count(-(count as i32));
        }
        let leaf = as_leaf::<Ordered>(pid, way.leaf.page())?;
        Ok(RunRemoval { count, next, is_sparse: count > 0 && Joining::Sparse.is_due::<Ordered>(leaf) })
    }

    /// Gives the records of one leaf from `from` on, in order, until `f` says no. Where the walk goes on after them.
    pub fn walk_up(
        &self,
        tree: Tree,
        from: &[u8],
        mut f: impl FnMut(&[u8], Stored<'_>) -> Result<bool, Stop>,
    ) -> Result<Next, Stop> {
        let guard = self.leaf_shared(tree, Seek::Key(from), None)?;
        let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
        let (Ok(start) | Err(start)) = leaf.find(from);
        if !give(guard.id(), leaf, start..leaf.count(), &mut f)? {
            return Ok(Next::End);
        }
        let next = leaf.hi().map_or(Next::End, |hi| Next::From(hi.to_vec()));
        self.let_go(guard, start == 0);
        Ok(next)
    }

    /// The same downwards, from the greatest key below `below` on, or from the greatest of all.
    pub fn walk_down(
        &self,
        tree: Tree,
        below: Option<&[u8]>,
        mut f: impl FnMut(&[u8], Stored<'_>) -> Result<bool, Stop>,
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
        if !give(guard.id(), leaf, (0..end).rev(), &mut f)? {
            return Ok(Next::End);
        }
        let next = if leaf.lo().is_empty() { Next::End } else { Next::From(leaf.lo().to_vec()) };
        let is_whole = end == leaf.count();
        self.let_go(guard, is_whole);
        Ok(next)
    }

    /// A walk leaves a leaf behind. One that it has been through whole goes before what others use: a short walk says nothing
    /// of those that come after it, a long one does not come back.
    pub(super) fn let_go(&self, leaf: SharedGuard<'_>, is_whole: bool) {
        let pid = leaf.id();
        drop(leaf);
        if is_whole {
            self.pool.let_go(pid);
        }
    }
}

/// Gives `f` what the key's leaf has for it. Where it is `guess` says, maybe.
#[inline(always)]
pub(super) fn give_value<R>(
    guard: &SharedGuard<'_>,
    tree: Tree,
    key: &[u8],
    guess: usize,
    f: impl FnOnce(Option<Stored<'_>>) -> Result<R, Stop>,
) -> Result<R, Stop> {
    let leaf = as_leaf::<Ordered>(guard.id(), guard.page())?;
    if leaf.tag() != tree.tag {
        return Err(not_a_leaf(guard.id()));
    }
    // Nodes and bounds say the same, unless a page is damaged: then what is not compared here is merely not found.
    if cfg!(debug_assertions) && !Ordered::covers(leaf, tree.tag, Seek::Key(key)) {
        return Err(not_a_leaf(guard.id()));
    }
    let Some(slot) = leaf.get(key, guess) else { return f(None) };
    let (_, value) = leaf.record(slot).ok_or_else(|| bad_record(guard.id()))?;
    f(Some(value))
}

/// Bytes to make room for, before a record is put.
pub(crate) fn record_bytes(key: &[u8], value: Stored<'_>) -> usize {
    value.record_bytes(key.len())
}

/// Gives records until `f` says no; whether it did not.
pub(super) fn give(
    pid: PageId,
    leaf: OrderedLeaf<'_>,
    slots: impl Iterator<Item = usize>,
    f: &mut impl FnMut(&[u8], Stored<'_>) -> Result<bool, Stop>,
) -> Result<bool, Stop> {
    let mut key = [0; KEY_MAX_BYTES];
    let prefix = leaf.prefix();
    let Some(start) = key.get_mut(..prefix.len()) else { return Err(bad_record(pid)) };
    start.copy_from_slice(prefix);
    for slot in slots {
        let (tail, value) = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
        let end = prefix.len() + tail.len();
        let Some(rest) = key.get_mut(prefix.len()..end) else { return Err(bad_record(pid)) };
        rest.copy_from_slice(tail);
        if !f(&key[..end], value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

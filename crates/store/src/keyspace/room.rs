//! Making room: sharing with a neighbour, splitting two or three leaves into one more, splitting inner nodes.
//!
//! Hashes are random, so leaves that only split would be two thirds full. A full leaf first shares with a neighbour
//! that has room; if none has, up to three leaves become one more (0.86 full, 0.78 after churn).

use std::sync::atomic::Ordering;

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::descend::{as_leaf, bad_record, LeafGuard};
use super::{pack, Keyspace, Local, Stop, Tree};
use crate::page::inner::{Words, WordsMut, FANOUT};
use crate::page::leaf::{finest_shift, Leaf, LeafMut, CAPACITY_BYTES, SLOT_BYTES};
use crate::page::spread::{exact_cut, fill_exact, HashOf, Plan, TARGETS_MAX};
use crate::page::Page;
use crate::DbId;

/// A neighbour shares if it has at least this much free: about four records of 100 bytes.
const SHARE_MIN_FREE_BYTES: usize = CAPACITY_BYTES / 8;
/// Leaves that one split or merge takes part in at most.
pub(super) const WINDOW: usize = 3;

/// Neighbouring leaves below one node, latched exclusively, in order.
pub(super) struct Window<'p> {
    /// Index of the first among the node's children.
    pub first: usize,
    pub leaves: Vec<ExclusiveGuard<'p>>,
}

impl<'p> Window<'p> {
    pub fn leaf(&self, i: usize) -> Result<Leaf<'_>, Stop> {
        as_leaf(self.leaves[i].id(), self.leaves[i].page())
    }
}

/// The first copies as leaves; they were leaves when they were taken.
fn copied(copies: &[Page; TARGETS_MAX]) -> [Leaf<'_>; TARGETS_MAX] {
    std::array::from_fn(|i| Leaf { page: &copies[i] })
}

/// Copies leaves: a copy streams through the cache, where a plan would wait for one record after another.
pub(super) fn copy_leaves<'c>(
    copies: &'c mut [Page; TARGETS_MAX],
    leaves: &[ExclusiveGuard<'_>],
) -> [Leaf<'c>; TARGETS_MAX] {
    for (copy, leaf) in copies.iter_mut().zip(leaves) {
        *copy = *leaf.page();
    }
    copied(copies)
}

impl Keyspace {
    /// The tree of a database, made if there is none.
    pub(super) fn tree_or_create(&self, db: DbId) -> Result<Tree, Stop> {
        if let Some(tree) = self.tree(db) {
            return Ok(tree);
        }
        let _creating = self.tree_creation.lock();
        if let Some(tree) = self.tree(db) {
            return Ok(tree);
        }
        self.admit(2)?;
        let mut root = self.pool.allocate()?;
        let mut leaf = self.pool.allocate()?;
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        LeafMut::init(leaf.page_mut(), tag, 0, u64::MAX, finest_shift(0, u64::MAX));
        self.side.set(leaf.id(), None);
        WordsMut::init(&mut root, tag, 1, 0, u64::MAX, leaf.id().0);
        self.trees[db.0 as usize].store(pack(root.id().0, tag), Ordering::Release);
        Ok(Tree { db, root: root.id(), tag })
    }

    /// Latches the node of `level` that is responsible for `hash`, without waiting.
    pub(super) fn inner_exclusive(
        &self,
        tree: Tree,
        hash: u64,
        level: u8,
    ) -> Result<ExclusiveGuard<'_>, Stop> {
        let (node, _) = self.descend(tree, hash, level)?;
        let found_level = node.level();
        let guard = node.upgrade()?;
        // The root may have grown or shrunk since the caller looked.
        if found_level != level {
            return Err(Stop::Contended);
        }
        Ok(guard)
    }

    /// Makes room for a record of `record_bytes` with this hash. The caller tries again afterwards.
    pub(super) fn make_room(
        &self,
        local: &mut Local,
        tree: Tree,
        hash: u64,
        record_bytes: usize,
    ) -> Result<(), Stop> {
        let need_bytes = record_bytes + SLOT_BYTES;
        let mut parent = self.inner_exclusive(tree, hash, 1)?;
        let index = parent.find_child(hash);
        let full = self.pool.exclusive(PageId(parent.child(index)))?;
        let leaf = as_leaf(full.id(), full.page())?;
        if leaf.chain() != 0 {
            return self.divide_exactly(tree, parent, index, full, hash, need_bytes);
        }
        if leaf.free_bytes() >= need_bytes {
            return Ok(());
        }
        let mut window = self.window(&parent, index, full);
        if self.share(local, &mut parent, &mut window, index, hash, need_bytes)? {
            return Ok(());
        }
        let sources = copy_leaves(&mut local.copies, &window.leaves);
        let source_count = window.leaves.len();
        let plan = Plan::even(&sources[..source_count], source_count + 1);
        let plan = plan.filter(|plan| plan.free_bytes_for(hash) >= need_bytes);
        match plan {
            Some(_) if parent.child_count() == FANOUT => {
                drop((window, parent));
                self.split_inner(tree, hash, 1)
            }
            Some(plan) => self.split_leaves(local, parent, window, &plan),
            None => {
                let full = window.leaves.swap_remove(index - window.first);
                drop(window);
                self.divide_exactly(tree, parent, index, full, hash, need_bytes)
            }
        }
    }

    /// The leaf at `index` with its neighbours, as far as they can be had at once and have no chain.
    pub(super) fn window<'p>(
        &'p self,
        parent: &ExclusiveGuard<'p>,
        index: usize,
        leaf: ExclusiveGuard<'p>,
    ) -> Window<'p> {
        let neighbour = |i: usize| {
            let guard = self.pool.try_exclusive(PageId(parent.child(i))).ok()?;
            Leaf::new(guard.page()).is_some_and(|leaf| leaf.chain() == 0).then_some(guard)
        };
        let left = index.checked_sub(1).and_then(neighbour);
        let right = (index + 1 < parent.child_count()).then(|| neighbour(index + 1)).flatten();
        let first = index - usize::from(left.is_some());
        let mut leaves = Vec::with_capacity(WINDOW + 1);
        leaves.extend(left);
        leaves.push(leaf);
        leaves.extend(right);
        Window { first, leaves }
    }

    /// Fills the first leaves of `leaves` as planned from copies of the first `source_count` of them.
    pub(super) fn spread(
        &self,
        local: &Local,
        leaves: &mut [ExclusiveGuard<'_>],
        source_count: usize,
        plan: &Plan,
    ) -> Result<(), Stop> {
        let sources = copied(&local.copies);
        let hash_of: HashOf<'_> = &|record| self.hash_of(record);
        for (target, leaf) in leaves[..plan.target_count].iter_mut().enumerate() {
            plan.fill(target, leaf.page_mut(), &sources[..source_count], hash_of);
            self.side.set(leaf.id(), as_leaf(leaf.id(), leaf.page())?.earliest_deadline());
            self.side.touch(leaf.id(), local.tick);
        }
        Ok(())
    }

    /// Divides the records of the full leaf and a neighbour with room evenly. False if that would not help.
    fn share(
        &self,
        local: &mut Local,
        parent: &mut ExclusiveGuard<'_>,
        window: &mut Window<'_>,
        index: usize,
        hash: u64,
        need_bytes: usize,
    ) -> Result<bool, Stop> {
        let at = index - window.first;
        let mut best = None;
        for i in (0..window.leaves.len()).filter(|i| *i != at) {
            let free = window.leaf(i)?.free_bytes();
            if free >= SHARE_MIN_FREE_BYTES.max(2 * need_bytes) && best.is_none_or(|(most, _)| free > most) {
                best = Some((free, i));
            }
        }
        let Some((_, neighbour)) = best else { return Ok(false) };
        let first = at.min(neighbour);
        let sources = copy_leaves(&mut local.copies, &window.leaves[first..first + 2]);
        let plan = Plan::even(&sources[..2], 2);
        let Some(plan) = plan.filter(|plan| plan.free_bytes_for(hash) >= need_bytes) else {
            return Ok(false);
        };
        self.spread(local, &mut window.leaves[first..first + 2], 2, &plan)?;
        parent.set_separator(window.first + first + 1, plan.lo(1));
        Ok(true)
    }

    /// Makes one leaf more of the window's.
    fn split_leaves<'p>(
        &'p self,
        local: &mut Local,
        mut parent: ExclusiveGuard<'_>,
        mut window: Window<'p>,
        plan: &Plan,
    ) -> Result<(), Stop> {
        self.admit(1)?;
        let new = self.pool.allocate()?;
        let (first, source_count, new_pid) = (window.first, window.leaves.len(), new.id());
        // A new page may hold an old leaf: nobody reads it before `spread` has filled it.
        window.leaves.push(new);
        self.spread(local, &mut window.leaves, source_count, plan)?;
        for i in 1..source_count {
            parent.set_separator(first + i, plan.lo(i));
        }
        parent.insert_child(first + source_count, plan.lo(source_count), new_pid.0);
        Ok(())
    }

    /// Divides a leaf whose keys look alike: by exact hashes, and if those are equal, by a chain.
    fn divide_exactly(
        &self,
        tree: Tree,
        parent: ExclusiveGuard<'_>,
        index: usize,
        full: ExclusiveGuard<'_>,
        hash: u64,
        need_bytes: usize,
    ) -> Result<(), Stop> {
        if parent.child_count() == FANOUT {
            drop((full, parent));
            return self.split_inner(tree, hash, 1);
        }
        let leaf = as_leaf(full.id(), full.page())?;
        if leaf.chain() != 0 {
            let full = self.with_chain(full)?;
            return self.divide_chain(parent, index, full, hash, need_bytes);
        }
        let Some(cut) = exact_cut(leaf, hash, &|record| self.hash_of(record)) else {
            let mut full = LeafGuard { head: full, chain: Vec::new() };
            return self.add_to_chain(&mut full);
        };
        if cut <= leaf.lo() || cut > leaf.hi() {
            return Err(bad_record(full.id()));
        }
        self.admit(1)?;
        let mut right = self.pool.allocate()?;
        let (mut parent, mut left) = (parent, full);
        let source = *left.page();
        let source = as_leaf(left.id(), &source)?;
        let hash_of: HashOf<'_> = &|record| self.hash_of(record);
        let divided = fill_exact(right.page_mut(), source, cut, source.hi(), hash_of)
            && fill_exact(left.page_mut(), source, source.lo(), cut - 1, hash_of);
        if !divided {
            *left.page_mut() = *source.page;
            self.pool.free(right, 1);
            return Err(bad_record(left.id()));
        }
        for leaf in [&left, &right] {
            self.side.set(leaf.id(), as_leaf(leaf.id(), leaf.page())?.earliest_deadline());
        }
        parent.insert_child(index + 1, cut, right.id().0);
        Ok(())
    }

    /// Makes room in a chain, or beside it for a key of another hash.
    fn divide_chain(
        &self,
        mut parent: ExclusiveGuard<'_>,
        index: usize,
        mut full: LeafGuard<'_>,
        hash: u64,
        need_bytes: usize,
    ) -> Result<(), Stop> {
        let chain_hash = full.chain_hash(self)?.unwrap_or(hash);
        if chain_hash == hash {
            return match full.page_with_room(need_bytes - SLOT_BYTES)? {
                Some(_) => Ok(()),
                None => self.add_to_chain(&mut full),
            };
        }
        self.admit(1)?;
        let mut new = self.pool.allocate()?;
        let head = full.leaf(0)?;
        let (tag, lo, hi, head_pid) = (head.tag(), head.lo(), head.hi(), full.head.id());
        if hash > chain_hash {
            let lo_right = chain_hash + 1;
            LeafMut::init(new.page_mut(), tag, lo_right, hi, finest_shift(lo_right, hi));
            full.leaf_mut(0)?.set_range(lo, chain_hash);
            parent.insert_child(index + 1, lo_right, new.id().0);
        } else {
            let hi_left = chain_hash - 1;
            LeafMut::init(new.page_mut(), tag, lo, hi_left, finest_shift(lo, hi_left));
            full.leaf_mut(0)?.set_range(chain_hash, hi);
            parent.set_child(index, new.id().0);
            parent.insert_child(index + 1, chain_hash, head_pid.0);
        }
        self.side.set(new.id(), None);
        Ok(())
    }

    /// Puts an empty leaf behind the head of a chain. Only the head is known to the side array.
    fn add_to_chain(&self, full: &mut LeafGuard<'_>) -> Result<(), Stop> {
        self.admit(1)?;
        let head = full.leaf(0)?;
        let (tag, lo, hi, next) = (head.tag(), head.lo(), head.hi(), head.chain());
        let mut new = self.pool.allocate()?;
        LeafMut::init(new.page_mut(), tag, lo, hi, finest_shift(lo, hi)).set_chain(next);
        full.leaf_mut(0)?.set_chain(new.id().0);
        Ok(())
    }

    /// Splits the full node of `level` on the way to `hash`; the root gives its content to a child instead.
    fn split_inner(&self, tree: Tree, hash: u64, level: u8) -> Result<(), Stop> {
        let root = self.pool.optimistic(tree.root)?;
        let root_level = root.level();
        root.validate()?;
        if root_level == level {
            return self.grow_root(tree, level);
        }
        let mut parent = self.inner_exclusive(tree, hash, level + 1)?;
        if parent.child_count() == FANOUT {
            drop(parent);
            return self.split_inner(tree, hash, level + 1);
        }
        let index = parent.find_child(hash);
        let mut node = self.pool.exclusive(PageId(parent.child(index)))?;
        if node.child_count() < FANOUT {
            return Ok(());
        }
        self.admit(1)?;
        let mut right = self.pool.allocate()?;
        let separator = node.split_off(FANOUT / 2, &mut right);
        parent.insert_child(index + 1, separator, right.id().0);
        Ok(())
    }

    fn grow_root(&self, tree: Tree, level: u8) -> Result<(), Stop> {
        let mut root = self.pool.exclusive(tree.root)?;
        if root.level() != level || root.child_count() < FANOUT {
            return Ok(());
        }
        self.admit(1)?;
        let mut child = self.pool.allocate()?;
        child.copy_from(&root);
        WordsMut::init(&mut root, tree.tag, level + 1, 0, u64::MAX, child.id().0);
        Ok(())
    }
}

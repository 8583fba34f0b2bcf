//! A leaf with its chain: further leaves of keys that all have one hash.

use stillframe_pagepool::{ExclusiveGuard, PageId};

use super::inner::{Inner, InnerMut, FANOUT};
use super::leaf::{finest_shift, Leaf, LeafMut};
use super::order::{as_leaf, Hashed};
use super::record::Record;
use super::shape::SLOT_BYTES;
use super::spread::{exact_cut, fill_exact, HashOf};
use crate::page::Page;
use crate::stop::{Follow, Stop};
use crate::tree::order::{bad_record, not_a_leaf, Order};
use crate::tree::room::{Divide, Full};
use crate::tree::trees::{Tree, Trees};

/// Where a record is: the leaf's page in its chain, and the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub page: usize,
    pub slot: usize,
}

/// A leaf latched exclusively, with all leaves of its chain (usually none).
pub(crate) struct LeafGuard<'p> {
    pub head: ExclusiveGuard<'p>,
    pub chain: Vec<ExclusiveGuard<'p>>,
}

impl<'p> LeafGuard<'p> {
    fn guard(&self, page: usize) -> &ExclusiveGuard<'p> {
        if page == 0 {
            &self.head
        } else {
            &self.chain[page - 1]
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        if page == 0 {
            self.head.page_mut()
        } else {
            self.chain[page - 1].page_mut()
        }
    }

    #[inline(always)]
    pub fn leaf(&self, page: usize) -> Result<Leaf<'_>, Stop> {
        let guard = self.guard(page);
        as_leaf(guard.id(), guard.page())
    }

    pub fn leaf_mut(&mut self, page: usize) -> Result<LeafMut<'_>, Stop> {
        let pid = self.guard(page).id();
        LeafMut::new(self.page_mut(page)).ok_or_else(|| not_a_leaf(pid))
    }

    pub fn page_count(&self) -> usize {
        1 + self.chain.len()
    }

    /// A record that refers to none of the latched pages: whoever followed it would wait for a latch of its own.
    ///
    /// # Errors
    /// [`Stop::Damaged`] if there is none, or it does refer to them.
    #[inline(always)]
    pub fn record(&self, at: At) -> Result<Record<'_>, Stop> {
        match self.leaf(at.page)?.record(at.slot) {
            Some(record) if !record.header().is_outside() || !self.is_referred_to(&record) => Ok(record),
            _ => Err(bad_record(self.guard(at.page).id())),
        }
    }

    fn is_referred_to(&self, record: &Record<'_>) -> bool {
        let mut pages = self.chain.iter().chain([&self.head]);
        pages.any(|page| record.references().any(|reference| reference.leads_to(page.id())))
    }

    /// Looks through the records that a key of this hash may have. The bytes of long keys are followed to tell which one it is.
    ///
    /// # Errors
    /// As [`LeafGuard::record`].
    #[cold]
    pub fn check_candidates(&self, hash: u64) -> Result<(), Stop> {
        for page in 0..self.page_count() {
            let mut stopped = None;
            self.leaf(page)?.find_candidate(hash, |slot| {
                stopped = self.record(At { page, slot }).err();
                stopped.is_some()
            });
            stopped.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// First page of the chain with room for a record of `record_bytes` and its slot.
    pub fn page_with_room(&self, record_bytes: usize) -> Result<Option<usize>, Stop> {
        for page in 0..self.page_count() {
            if self.leaf(page)?.free_bytes() >= record_bytes + SLOT_BYTES {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// The hash of all keys of a chain; `None` for a leaf without one, or for one without keys.
    pub fn chain_hash(&self, order: &Hashed) -> Result<Option<u64>, Stop> {
        if self.chain.is_empty() {
            return Ok(None);
        }
        // The head may be empty, and so may a leaf that has just been added.
        for page in 0..self.page_count() {
            let leaf = self.leaf(page)?;
            if leaf.count() > 0 {
                let record = leaf.record(0).ok_or_else(|| bad_record(self.head.id()))?;
                return Ok(Some(order.hash_of(&record)));
            }
        }
        Ok(None)
    }
}

impl LeafGuard<'_> {
    /// Inserts a record where the leaf has told that it has room.
    #[inline(always)]
    pub fn insert(&mut self, page: usize, hash: u64, record: &Record<'_>) -> Result<(), Stop> {
        match self.leaf_mut(page)?.insert(hash, record) {
            true => Ok(()),
            false => Err(bad_record(self.head.id())),
        }
    }

    /// Replaces a record where the leaf has told that it has room.
    #[inline(always)]
    pub fn replace(&mut self, at: At, record: &Record<'_>) -> Result<(), Stop> {
        match self.leaf_mut(at.page)?.replace(at.slot, record) {
            true => Ok(()),
            false => Err(bad_record(self.head.id())),
        }
    }

    /// As [`LeafMut::replace_body`].
    #[inline(always)]
    pub fn replace_body(&mut self, at: At, body: &[u8]) -> Result<bool, Stop> {
        Ok(self.leaf_mut(at.page)?.replace_body(at.slot, body))
    }

    /// Removes a record; an emptied leaf of a chain is unlinked and returned, to be freed.
    pub fn remove(&mut self, at: At) -> Result<Option<usize>, Stop> {
        let mut leaf = self.leaf_mut(at.page)?;
        leaf.remove(at.slot);
        if at.page == 0 || leaf.leaf().count() > 0 {
            return Ok(None);
        }
        let next = leaf.leaf().chain();
        self.leaf_mut(at.page - 1)?.set_chain(next);
        Ok(Some(at.page - 1))
    }
}

impl Trees<Hashed> {
    /// Latches the leaf of a hash and its chain, exclusive.
    #[inline(always)]
    pub fn chain_exclusive(
        &self,
        tree: Tree,
        hash: u64,
        hint: Option<PageId>,
    ) -> Result<LeafGuard<'_>, Stop> {
        let head = self.leaf_exclusive(tree, hash, hint)?;
        self.with_chain(head, &[])
    }

    /// The same of a leaf that is latched, with the nodes `above` it.
    #[inline(always)]
    pub fn with_chain<'p>(
        &'p self,
        head: ExclusiveGuard<'p>,
        above: &[ExclusiveGuard<'p>],
    ) -> Result<LeafGuard<'p>, Stop> {
        let mut next = as_leaf(head.id(), head.page())?.chain();
        let mut chain: Vec<ExclusiveGuard<'p>> = Vec::new();
        while next != 0 {
            // A damaged chain may be a circle, or lead upwards.
            if next == head.id().0 || chain.iter().chain(above).any(|page| page.id().0 == next) {
                return Err(not_a_leaf(PageId(next)));
            }
            let guard = self.pool.follow_exclusive(PageId(next))?;
            next = as_leaf(guard.id(), guard.page())?.chain();
            chain.push(guard);
        }
        Ok(LeafGuard { head, chain })
    }

    /// First page of a leaf and its chain where a new key of this hash may go.
    #[inline(always)]
    pub fn page_for(
        &self,
        leaf: &LeafGuard<'_>,
        hash: u64,
        record_bytes: usize,
    ) -> Result<Option<usize>, Stop> {
        if !leaf.chain.is_empty() && leaf.chain_hash(&self.order)?.is_some_and(|of_chain| of_chain != hash) {
            return Ok(None);
        }
        leaf.page_with_room(record_bytes)
    }

    /// Divides a leaf whose keys look alike: by exact hashes, and if those are equal, by a chain.
    fn divide_exactly(&self, tree: Tree, full: Full<'_>, hash: u64, need_bytes: usize) -> Result<(), Stop> {
        let Full { parent, index, leaf: full } = full;
        if parent.child_count() == FANOUT {
            drop((full, parent));
            return self.split_inner(tree, hash, 1);
        }
        let leaf = as_leaf(full.id(), full.page())?;
        if leaf.chain() != 0 {
            let full = self.with_chain(full, &[])?;
            return self.divide_chain(parent, index, full, hash, need_bytes);
        }
        let Some(cut) = exact_cut(leaf, hash, &|record| self.order.hash_of(record)) else {
            let mut full = LeafGuard { head: full, chain: Vec::new() };
            return self.add_to_chain(&mut full);
        };
        if cut <= leaf.lo() || cut > leaf.hi() {
            return Err(bad_record(full.id()));
        }
        self.pages.admit(1)?;
        let mut right = self.pool.allocate()?;
        let (mut parent, mut left) = (parent, full);
        let source = *left.page();
        let source = as_leaf(left.id(), &source)?;
        let hash_of: HashOf<'_> = &|record| self.order.hash_of(record);
        let divided = fill_exact(right.page_mut(), source, cut, source.hi(), hash_of)
            && fill_exact(left.page_mut(), source, source.lo(), cut - 1, hash_of);
        if !divided {
            *left.page_mut() = *source.page;
            self.pool.free(right, 1);
            return Err(bad_record(left.id()));
        }
        for leaf in [&left, &right] {
            self.order.register(leaf.id(), as_leaf(leaf.id(), leaf.page())?, None);
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
        let chain_hash = full.chain_hash(&self.order)?.unwrap_or(hash);
        let (lo, hi) = (full.leaf(0)?.lo(), full.leaf(0)?.hi());
        if !(lo..=hi).contains(&chain_hash) {
            return Err(bad_record(full.head.id()));
        }
        if chain_hash == hash {
            return match full.page_with_room(need_bytes - SLOT_BYTES)? {
                Some(_) => Ok(()),
                None => self.add_to_chain(&mut full),
            };
        }
        self.pages.admit(1)?;
        let mut new = self.pool.allocate()?;
        let head = full.leaf(0)?;
        let (tag, head_pid) = (head.tag(), full.head.id());
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
        self.order.side.set(new.id(), None);
        Ok(())
    }

    /// Puts an empty leaf behind the head of a chain. Only the head is known to the side array.
    fn add_to_chain(&self, full: &mut LeafGuard<'_>) -> Result<(), Stop> {
        self.pages.admit(1)?;
        let head = full.leaf(0)?;
        let (tag, lo, hi, next) = (head.tag(), head.lo(), head.hi(), head.chain());
        let mut new = self.pool.allocate()?;
        LeafMut::init(new.page_mut(), tag, lo, hi, finest_shift(lo, hi)).set_chain(next);
        full.leaf_mut(0)?.set_chain(new.id().0);
        Ok(())
    }
}

impl Divide for Hashed {
    fn divide(
        trees: &Trees<Self>,
        tree: Tree,
        full: Full<'_>,
        hash: u64,
        need_bytes: usize,
    ) -> Result<(), Stop> {
        trees.divide_exactly(tree, full, hash, need_bytes)
    }
}

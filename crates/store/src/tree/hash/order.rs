//! The order by keyed hash: hashes are uniform, so nodes and leaves are searched where a key should be.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use stillframe_pagepool::{ExclusiveGuard, PageId, Pool};

use super::inner::{Inner, InnerMut, FANOUT};
use super::leaf::{finest_shift, Leaf, LeafMut, CAPACITY_BYTES};
use super::links::Links;
use super::record::{Record, RecordKey};
use super::shape::SLOT_BYTES;
use super::side::Side;
use super::spread::Plan;
use crate::key::UnixMillis;
use crate::page::{Page, KIND_INNER};
use crate::stop::{Follow, Stop};
use crate::tree::order::{not_a_leaf, LeafView, Order};
use crate::tree::words::Words;

/// A node with fewer children is joined with a neighbour.
const SPARSE_CHILDREN: usize = FANOUT / 4;
const JOINED_MAX_CHILDREN: usize = FANOUT - FANOUT / 4;

pub(crate) struct Hashed {
    pub seed: (u64, u64),
    /// Bits of a hash that are kept.
    mask: u64,
    /// What is known of leaves beside their pages.
    pub side: Side,
}

impl Hashed {
    /// Hashes with the secret seed, of which so many bits are kept.
    pub fn new(seed: (u64, u64), hash_bits: u32, side: Side) -> Hashed {
        let mask = !(u64::MAX.checked_shr(hash_bits.clamp(1, 64)).unwrap_or(0));
        Hashed { seed, mask, side }
    }

    /// Hashes a key with the secret seed.
    #[inline(always)]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write(bytes);
        hasher.finish() & self.mask
    }

    /// The same, for a key that comes in parts: what it gives is to be [`Hashed::masked`].
    pub fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.seed.0, self.seed.1)
    }

    pub fn masked(&self, hash: u64) -> u64 {
        hash & self.mask
    }

    pub fn hash_of(&self, record: &Record<'_>) -> u64 {
        match record.key {
            RecordKey::Inline(key) => self.hash(key),
            RecordKey::Out { hash, .. } | RecordKey::Hash(hash) => hash,
        }
    }
}

impl LeafView for Leaf<'_> {
    fn count(&self) -> usize {
        Leaf::count(self)
    }

    fn live_bytes(&self) -> usize {
        Leaf::live_bytes(self)
    }

    fn free_bytes(&self) -> usize {
        Leaf::free_bytes(self)
    }

    fn is_alone(&self) -> bool {
        self.chain() == 0
    }
}

impl Order for Hashed {
    type Key<'k> = u64;
    type Leaf<'p> = Leaf<'p>;
    type Plan = Plan;

    const KIND_INNER: u8 = KIND_INNER;
    const CAPACITY_BYTES: usize = CAPACITY_BYTES;
    const SLOT_BYTES: usize = SLOT_BYTES;
    const SEARCH_BYTES: usize = 0;
    const LEAVES_LINGER: bool = false;

    #[inline(always)]
    fn is_inner(node: &impl Words, tag: u32) -> bool {
        node.is_inner(tag)
    }

    fn child_count(node: &impl Words) -> usize {
        node.child_count()
    }

    #[inline(always)]
    fn child(node: &impl Words, index: usize) -> PageId {
        PageId(node.child(index))
    }

    fn is_whole(node: &ExclusiveGuard<'_>) -> bool {
        node.is_whole()
    }

    #[inline(always)]
    fn find_child(node: &impl Words, hash: u64) -> usize {
        node.find_child(hash)
    }

    fn init_root(&self, node: &mut ExclusiveGuard<'_>, tag: u32, level: u8, child: &ExclusiveGuard<'_>) {
        node.init(tag, level, 0, u64::MAX, child.id().0);
    }

    fn init_leaf(&self, page: &mut Page, tag: u32) {
        LeafMut::init(page, tag, 0, u64::MAX, finest_shift(0, u64::MAX));
    }

    #[inline(always)]
    fn leaf(page: &Page) -> Option<Leaf<'_>> {
        Leaf::new(page)
    }

    #[inline(always)]
    fn covers(leaf: Leaf<'_>, tag: u32, hash: u64) -> bool {
        leaf.covers(tag, hash)
    }

    #[inline(always)]
    fn is_known(&self, pid: PageId) -> bool {
        self.side.is_leaf(pid)
    }

    fn register(&self, pid: PageId, leaf: Leaf<'_>, tick: Option<u32>) {
        self.side.set(pid, leaf.earliest_deadline());
        if let Some(tick) = tick {
            self.side.touch(pid, tick);
        }
    }

    fn meet(&self, pool: &Pool, pid: PageId, leaf: Leaf<'_>) -> Result<(), Stop> {
        let deadline = chain_deadline(pool, pid, leaf)?;
        self.side.set(pid, deadline);
        Ok(())
    }

    fn forget(&self, pid: PageId) {
        self.side.forget(pid);
    }

    fn plan(&self, sources: &[Leaf<'_>], target_count: usize) -> Option<Plan> {
        Plan::even(sources, target_count)
    }

    fn target_count(plan: &Plan) -> usize {
        plan.target_count
    }

    fn free_bytes_for(plan: &Plan, hash: u64) -> usize {
        plan.free_bytes_for(hash)
    }

    fn fill(&self, plan: &Plan, target: usize, page: &mut Page, sources: &[Leaf<'_>]) {
        plan.fill(target, page, sources, &|record| self.hash_of(record));
    }

    fn has_room(node: &ExclusiveGuard<'_>, _first: usize, source_count: usize, plan: &Plan) -> bool {
        node.child_count() + plan.target_count <= FANOUT + source_count
    }

    fn respread(
        &self,
        node: &mut ExclusiveGuard<'_>,
        first: usize,
        source_count: usize,
        plan: &Plan,
        leaves: &[ExclusiveGuard<'_>],
    ) {
        for i in 1..source_count.min(leaves.len()) {
            node.set_separator(first + i, plan.lo(i));
        }
        for (i, leaf) in leaves.iter().enumerate().skip(source_count) {
            node.insert_child(first + i, plan.lo(i), leaf.id().0);
        }
        for _ in leaves.len()..source_count {
            node.remove_child(first + leaves.len());
        }
    }

    fn can_grow(node: &ExclusiveGuard<'_>) -> bool {
        node.child_count() < FANOUT
    }

    fn split(
        &self,
        parent: &mut ExclusiveGuard<'_>,
        index: usize,
        node: &mut ExclusiveGuard<'_>,
        right: &mut ExclusiveGuard<'_>,
    ) {
        let separator = node.split_off(FANOUT / 2, right);
        parent.insert_child(index + 1, separator, right.id().0);
    }

    fn truncate(node: &mut ExclusiveGuard<'_>, child_count: usize) {
        InnerMut::truncate(node, child_count);
    }

    fn is_sparse(node: &ExclusiveGuard<'_>) -> bool {
        node.child_count() < SPARSE_CHILDREN
    }

    fn absorb(
        &self,
        parent: &mut ExclusiveGuard<'_>,
        index: usize,
        left: &mut ExclusiveGuard<'_>,
        right: &ExclusiveGuard<'_>,
    ) -> bool {
        let fit = left.child_count() + right.child_count() <= JOINED_MAX_CHILDREN;
        if fit {
            left.absorb(right);
            parent.remove_child(index + 1);
        }
        fit
    }
}

/// Earliest deadline in a latched leaf and its chain.
pub(crate) fn chain_deadline(pool: &Pool, pid: PageId, head: Leaf<'_>) -> Result<Option<UnixMillis>, Stop> {
    let (mut earliest, mut links) = (head.earliest_deadline(), Links::default());
    let mut next = links.after(pid, head)?;
    while let Some(link) = next {
        let guard = pool.follow_shared(link)?;
        let leaf = as_leaf(guard.id(), guard.page())?;
        earliest = earliest.into_iter().chain(leaf.earliest_deadline()).min();
        next = links.after(link, leaf)?;
    }
    Ok(earliest)
}

#[inline(always)]
pub(crate) fn as_leaf(pid: PageId, page: &Page) -> Result<Leaf<'_>, Stop> {
    Leaf::new(page).ok_or_else(|| not_a_leaf(pid))
}

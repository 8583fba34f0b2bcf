//! What a page tree is ordered by: the formats of its pages, and how its leaves are divided.

use stillframe_pagepool::{ExclusiveGuard, PageId, Pool};

use super::words::Words;
use crate::page::Page;
use crate::stop::Stop;

/// Leaves that one operation fills at most.
pub(crate) const TARGETS_MAX: usize = 4;

/// A leaf whose header has been checked.
pub(crate) trait LeafView: Copy {
    fn count(&self) -> usize;
    /// Bytes that records and their slots take.
    fn live_bytes(&self) -> usize;
    /// Bytes free for a record and its slot, after compaction.
    fn free_bytes(&self) -> usize;
    /// Whether no other page belongs to the leaf, so that it can be divided with its neighbours.
    fn is_alone(&self) -> bool;
}

pub(crate) trait Order: Sized {
    /// What is looked for.
    type Key<'k>: Copy;
    type Leaf<'p>: LeafView;
    /// How the records of some neighbouring leaves are divided anew.
    type Plan;

    /// First byte of an inner node.
    const KIND_INNER: u8;
    /// Bytes of a leaf for slots and records, at most.
    const CAPACITY_BYTES: usize;
    /// Bytes of a slot.
    const SLOT_BYTES: usize;
    /// Bytes at the beginning of a node that a search looks at before it knows where to look.
    const SEARCH_BYTES: usize;
    /// Whether others may still know a leaf by its number when it is freed (P8).
    const LEAVES_LINGER: bool;

    fn is_inner(node: &impl Words, tag: u32) -> bool;
    fn child_count(node: &impl Words) -> usize;
    fn child(node: &impl Words, index: usize) -> PageId;
    /// Whether what a latched node says of itself holds together, so that it may be changed: its bytes may have been made up.
    fn is_whole(node: &ExclusiveGuard<'_>) -> bool;
    /// Index of the child that is responsible for a key.
    fn find_child(node: &impl Words, key: Self::Key<'_>) -> usize;

    /// Makes a node of one child that covers everything.
    fn init_root(&self, node: &mut ExclusiveGuard<'_>, tag: u32, level: u8, child: &ExclusiveGuard<'_>);
    /// Makes an empty leaf that covers everything.
    fn init_leaf(&self, page: &mut Page, tag: u32);

    fn leaf(page: &Page) -> Option<Self::Leaf<'_>>;
    /// Whether keys like this belong to the leaf.
    fn covers(leaf: Self::Leaf<'_>, tag: u32, key: Self::Key<'_>) -> bool;

    /// Whether the page, which the caller has latched, has been registered as a leaf.
    fn is_known(&self, pid: PageId) -> bool;
    /// Registers a leaf without other pages, which the caller has latched; `tick` is when it was accessed.
    fn register(&self, pid: PageId, leaf: Self::Leaf<'_>, tick: Option<u32>);
    /// The same for a leaf that has been found on the way down.
    fn meet(&self, pool: &Pool, pid: PageId, leaf: Self::Leaf<'_>) -> Result<(), Stop>;
    /// The leaf is about to be freed.
    fn forget(&self, pid: PageId);

    /// Divides the records of neighbouring leaves evenly by bytes. `None` if that cannot be done.
    fn plan(&self, sources: &[Self::Leaf<'_>], target_count: usize) -> Option<Self::Plan>;
    fn target_count(plan: &Self::Plan) -> usize;
    /// Bytes that remain free where a key will belong.
    fn free_bytes_for(plan: &Self::Plan, key: Self::Key<'_>) -> usize;
    /// Fills a target's page from copies of what was planned with.
    fn fill(&self, plan: &Self::Plan, target: usize, page: &mut Page, sources: &[Self::Leaf<'_>]);

    /// Whether a node has room for what [`Order::respread`] would make of it.
    fn has_room(node: &ExclusiveGuard<'_>, first: usize, source_count: usize, plan: &Self::Plan) -> bool;
    /// The children from `first` on, so many as the plan has sources, become these leaves, divided as planned.
    fn respread(
        &self,
        node: &mut ExclusiveGuard<'_>,
        first: usize,
        source_count: usize,
        plan: &Self::Plan,
        leaves: &[ExclusiveGuard<'_>],
    );

    /// Whether a child of the node can be split, or its range narrowed, whatever the separator.
    fn can_grow(node: &ExclusiveGuard<'_>) -> bool;
    /// Moves the upper half of the node at `index` below `parent` to the new node `right`.
    fn split(
        &self,
        parent: &mut ExclusiveGuard<'_>,
        index: usize,
        node: &mut ExclusiveGuard<'_>,
        right: &mut ExclusiveGuard<'_>,
    );
    /// Drops the last children until so many are left, at least one; the node's range stays as it is.
    fn truncate(node: &mut ExclusiveGuard<'_>, child_count: usize);
    /// Whether a node has so little that it should be joined with a neighbour.
    fn is_sparse(node: &ExclusiveGuard<'_>) -> bool;
    /// Joins the nodes at `index` and after it below `parent` in the left one, if they fit well.
    fn absorb(
        &self,
        parent: &mut ExclusiveGuard<'_>,
        index: usize,
        left: &mut ExclusiveGuard<'_>,
        right: &ExclusiveGuard<'_>,
    ) -> bool;
}

/// A page that is not what its parent says.
#[cold]
pub(crate) fn not_a_leaf(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a leaf was expected", pid.0).into())
}

#[cold]
pub(crate) fn bad_record(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: a record is malformed", pid.0).into())
}

/// A record of an index among keys.
#[cold]
pub(crate) fn no_key() -> Stop {
    Stop::Damaged("a record has no key".into())
}

#[cold]
pub(crate) fn not_inner(pid: PageId) -> Stop {
    Stop::Damaged(format!("page {}: an inner node was expected", pid.0).into())
}

#[inline(always)]
pub(crate) fn as_leaf<O: Order>(pid: PageId, page: &Page) -> Result<O::Leaf<'_>, Stop> {
    O::leaf(page).ok_or_else(|| not_a_leaf(pid))
}

//! The order by byte strings.

use stillframe_pagepool::{ExclusiveGuard, PageId, Pool};

use super::leaf::{OrderedLeaf, OrderedLeafMut, CAPACITY_BYTES, KEY_MAX_BYTES, SLOT_BYTES};
use super::node::{Child, Node, OrderedNode, Separator, CHILD_BYTES_MAX, HINTS_END};
use super::plan::Plan;
use crate::page::{Page, KIND_ORDERED_INNER, PAGE_SIZE};
use crate::stop::Stop;
use crate::tree::order::{bad_record, not_a_leaf, LeafView, Order};
use crate::tree::room::{Divide, Full};
use crate::tree::trees::{Tree, Trees};
use crate::tree::words::Words;

/// Room for what one operation may add to a node: a child, and three separators that get longer.
const GROWTH_BYTES: usize = CHILD_BYTES_MAX + 3 * KEY_MAX_BYTES;
/// Nodes with less are joined with a neighbour, and may be so full then.
const SPARSE_BYTES: usize = PAGE_SIZE / 4;
const JOINED_MAX_BYTES: usize = PAGE_SIZE - GROWTH_BYTES;

/// What is looked for in a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seek<'k> {
    /// Where this key belongs.
    Key(&'k [u8]),
    /// Where the greatest key below this one would be, which is not empty.
    Below(&'k [u8]),
    /// Where the greatest key is.
    Last,
}

pub(crate) struct Ordered {
    /// Whether nodes count the records below their children, so that there are ranks. A write latches the whole way from
    /// the root then.
    pub counts: bool,
}

impl Ordered {
    fn records(&self, leaf: OrderedLeaf<'_>) -> u32 {
        if self.counts {
            leaf.count() as u32
        } else {
            0
        }
    }
}

/// What a node would be after [`Order::respread`], but for the new children.
fn respread_node(node: &impl Words, first: usize, source_count: usize, plan: &Plan) -> Node {
    let mut node = node.decode();
    let separator = |target: usize| match target {
        0 => node.children[first].separator.clone(),
        _ => plan.lo(target).into(),
    };
    let child = |target| Child { separator: separator(target), pid: 0, records: 0 };
    let children: Vec<Child> = (0..plan.target_count()).map(child).collect();
    node.children.splice(first..first + source_count, children);
    node
}

/// Two neighbours as one node.
fn joined(left: &impl Words, right: &impl Words) -> Node {
    let (mut left, right) = (left.decode(), right.decode());
    left.hi = right.hi;
    left.children.extend(right.children);
    left
}

impl Order for Ordered {
    type Key<'k> = Seek<'k>;
    type Leaf<'p> = OrderedLeaf<'p>;
    type Plan = Plan;

    const KIND_INNER: u8 = KIND_ORDERED_INNER;
    const CAPACITY_BYTES: usize = CAPACITY_BYTES;
    const SLOT_BYTES: usize = SLOT_BYTES;
    const SEARCH_BYTES: usize = HINTS_END;
    const LEAVES_LINGER: bool = true;

    #[inline(always)]
    fn is_inner(node: &impl Words, tag: u32) -> bool {
        node.is_ordered_inner(tag)
    }

    fn child_count(node: &impl Words) -> usize {
        node.count()
    }

    #[inline(always)]
    fn child(node: &impl Words, index: usize) -> PageId {
        PageId(node.child_at(index))
    }

    fn is_whole(node: &ExclusiveGuard<'_>) -> bool {
        node.is_whole()
    }

    #[inline(always)]
    fn find_child(node: &impl Words, key: Seek<'_>) -> usize {
        match key {
            Seek::Key(key) => node.search(key, false),
            Seek::Below(key) => node.search(key, true),
            Seek::Last => node.count() - 1,
        }
    }

    fn init_root(&self, node: &mut ExclusiveGuard<'_>, tag: u32, level: u8, child: &ExclusiveGuard<'_>) {
        let records = match OrderedLeaf::new(child.page()) {
            Some(leaf) if level == 1 => self.records(leaf),
            _ => child.decode().records(),
        };
        let children = vec![Child { separator: Separator::new(), pid: child.id().0, records }];
        Node { level, tag, counts: self.counts, lo: Vec::new(), hi: None, children }.encode(node);
    }

    fn init_leaf(&self, page: &mut Page, tag: u32) {
        OrderedLeafMut::init(page, tag, &[], None);
    }

    #[inline(always)]
    fn leaf(page: &Page) -> Option<OrderedLeaf<'_>> {
        OrderedLeaf::new(page)
    }

    fn covers(leaf: OrderedLeaf<'_>, tag: u32, key: Seek<'_>) -> bool {
        let is_inside = match key {
            Seek::Key(key) => leaf.lo() <= key && leaf.hi().is_none_or(|hi| key < hi),
            Seek::Below(key) => leaf.lo() < key && leaf.hi().is_none_or(|hi| key <= hi),
            Seek::Last => leaf.hi().is_none(),
        };
        leaf.tag() == tag && is_inside
    }

    /// Nothing is known of these leaves beside their pages. A hint is good until the thread's next look at the barrier:
    /// leaves are freed as nodes are.
    fn is_known(&self, _pid: PageId) -> bool {
        true
    }

    fn register(&self, _pid: PageId, _leaf: OrderedLeaf<'_>, _tick: Option<u32>) {}

    fn meet(&self, _pool: &Pool, _pid: PageId, _leaf: OrderedLeaf<'_>) -> Result<(), Stop> {
        Ok(())
    }

    fn forget(&self, _pid: PageId) {}

    fn plan(&self, sources: &[OrderedLeaf<'_>], target_count: usize) -> Option<Plan> {
        Plan::even(sources, target_count)
    }

    fn target_count(plan: &Plan) -> usize {
        plan.target_count()
    }

    fn free_bytes_for(plan: &Plan, key: Seek<'_>) -> usize {
        match key {
            Seek::Key(key) => plan.free_bytes(plan.target_of(key)),
            // Nothing is put there.
            Seek::Below(_) | Seek::Last => plan.free_bytes(plan.target_count() - 1),
        }
    }

    fn fill(&self, plan: &Plan, target: usize, page: &mut Page, sources: &[OrderedLeaf<'_>]) {
        plan.fill(target, page, sources);
    }

    fn has_room(node: &ExclusiveGuard<'_>, first: usize, source_count: usize, plan: &Plan) -> bool {
        let separator_lens = (1..plan.target_count()).map(|target| plan.lo(target).len());
        let bytes = node.bytes_with(first..first + source_count, separator_lens);
        debug_assert_eq!(bytes, respread_node(node, first, source_count, plan).encoded_bytes());
        bytes <= PAGE_SIZE
    }

    fn respread(
        &self,
        node: &mut ExclusiveGuard<'_>,
        first: usize,
        source_count: usize,
        plan: &Plan,
        leaves: &[ExclusiveGuard<'_>],
    ) {
        let mut changed = respread_node(node, first, source_count, plan);
        for (child, leaf) in changed.children[first..].iter_mut().zip(leaves) {
            child.pid = leaf.id().0;
            child.records = OrderedLeaf::new(leaf.page()).map_or(0, |leaf| self.records(leaf));
        }
        changed.encode(node);
    }

    fn can_grow(node: &ExclusiveGuard<'_>) -> bool {
        node.used_bytes() + GROWTH_BYTES <= PAGE_SIZE
    }

    fn split(
        &self,
        parent: &mut ExclusiveGuard<'_>,
        index: usize,
        node: &mut ExclusiveGuard<'_>,
        right: &mut ExclusiveGuard<'_>,
    ) {
        let (mut above, mut left) = (parent.decode(), node.decode());
        let half = left.split_off();
        above.children[index].records = left.records();
        let child = Child { separator: half.lo[..].into(), pid: right.id().0, records: half.records() };
        above.children.insert(index + 1, child);
        half.encode(right);
        left.encode(node);
        above.encode(parent);
    }

    fn truncate(node: &mut ExclusiveGuard<'_>, child_count: usize) {
        let mut rest = node.decode();
        rest.children.truncate(child_count);
        rest.encode(node);
    }

    fn is_sparse(node: &ExclusiveGuard<'_>) -> bool {
        node.children_bytes() < SPARSE_BYTES
    }

    fn absorb(
        &self,
        parent: &mut ExclusiveGuard<'_>,
        index: usize,
        left: &mut ExclusiveGuard<'_>,
        right: &ExclusiveGuard<'_>,
    ) -> bool {
        let whole = joined(left, right);
        let fits = whole.encoded_bytes() <= JOINED_MAX_BYTES;
        if fits {
            let mut above = parent.decode();
            above.children.remove(index + 1);
            above.children[index].records = whole.records();
            above.encode(parent);
            whole.encode(left);
        }
        fits
    }
}

/// The plan that makes room for a key in a leaf of its own: as a run goes on, or as evenly as its records allow.
fn plan_alone(leaf: OrderedLeaf<'_>, key: Seek<'_>, need_bytes: usize) -> Option<Plan> {
    let has_room = |plan: &Plan| Ordered::free_bytes_for(plan, key) >= need_bytes;
    let of_run = run_slot(leaf, key).and_then(|(key, slot)| Plan::of_run(leaf, slot, key, need_bytes));
    of_run.filter(has_room).or_else(|| {
        let plans = (1..leaf.count()).filter_map(|at| Plan::at(&[leaf], &[(0, 0), (0, at)]));
        plans.filter(has_room).max_by_key(|plan| plan.free_bytes(0).min(plan.free_bytes(1)))
    })
}

/// A key that is the next of a run, and its slot.
fn run_slot<'k>(leaf: OrderedLeaf<'_>, key: Seek<'k>) -> Option<(&'k [u8], usize)> {
    let Seek::Key(key) = key else { return None };
    leaf.find(key).err().filter(|slot| leaf.is_next_of_run(*slot)).map(|slot| (key, slot))
}

impl Divide for Ordered {
    /// Leaves that share with a neighbour are full again after a few more keys of a run.
    fn is_in_run(leaf: OrderedLeaf<'_>, key: Seek<'_>) -> bool {
        run_slot(leaf, key).is_some()
    }

    /// Splits the leaf where the record fits: there is such a place, as no record is larger than a third of a leaf.
    fn divide(
        trees: &Trees<Self>,
        tree: Tree,
        full: Full<'_>,
        key: Seek<'_>,
        need_bytes: usize,
    ) -> Result<(), Stop> {
        let Full { mut parent, index, leaf: mut left } = full;
        let source = *left.page();
        let Some(leaf) = OrderedLeaf::new(&source) else { return Err(bad_record(left.id())) };
        let Some(plan) = plan_alone(leaf, key, need_bytes) else { return Err(bad_record(left.id())) };
        if !Ordered::has_room(&parent, index, 1, &plan) {
            drop((left, parent));
            return trees.split_inner(tree, key, 1);
        }
        trees.pages.admit(1)?;
        let mut right = trees.pool.allocate()?;
        plan.fill(0, left.page_mut(), &[leaf]);
        plan.fill(1, right.page_mut(), &[leaf]);
        trees.order.respread(&mut parent, index, 1, &plan, &[left, right]);
        Ok(())
    }
}

/// A page as a leaf.
///
/// # Errors
/// [`Stop::Damaged`]: it is none.
pub(crate) fn as_leaf(pid: PageId, page: &Page) -> Result<OrderedLeaf<'_>, Stop> {
    OrderedLeaf::new(page).ok_or_else(|| not_a_leaf(pid))
}

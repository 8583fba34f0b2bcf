//! Working off what nothing refers to any more. For a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use stillframe_pagepool::{sched, ExclusiveGuard, Member, PageId};

use super::state::Keyspace;
use super::{sweep, write};
use crate::blobs::{Collected, Discarded, OtherWork, PAUSE_MAX, PAUSE_MIN};
use crate::page::{KIND_INNER, KIND_LIST_INNER, KIND_ORDERED_INNER};
use crate::stop::{Follow, Stop};
use crate::tree::hash::Leaf;
use crate::tree::ordered;
use crate::tree::LeafView;

/// Leaves, slots of slabs and objects freed between two looks at the barrier: a few dozen microseconds.
const STEP_UNITS: usize = 128;
/// Nodes are freed in bursts: so long the memory of the first waits for others.
const NODES_PAUSE: Duration = Duration::from_millis(100);
/// So long the collector waits for an operation to end that may be reading them, before it does other things.
const NODES_PATIENCE: Duration = Duration::from_secs(1);

/// Whether there is no garbage, nor any that is being freed or looked for.
pub fn is_tidy(keyspace: &Keyspace) -> bool {
    !keyspace.pages.leaks.may_leak() && keyspace.garbage.is_empty()
}

/// Frees garbage until the store closes. For a thread of its own, a member of the barrier.
pub fn collect(keyspace: &Arc<Keyspace>, member: &Member) {
    let mut pause = PAUSE_MIN;
    while member.idle(|| keyspace.garbage.await_work(|| other_work(keyspace))) {
        let mut has_freed = false;
        while !keyspace.garbage.is_stopping() {
            let (collected, missing) = collect_garbage(keyspace);
            match collected {
                Collected::Nothing => break,
                collected => has_freed |= collected == Collected::Freed,
            }
            match missing {
                Some(page) => member.idle(|| keyspace.pool.residency().load(&[page])),
                // A cut does not wait for a thread that lets others go first.
                None if sched::gives_way() => member.idle(|| give_way(keyspace)),
                None => member.quiesce(),
            }
        }
        sweep::sweep_if_due(keyspace, member);
        member.idle(|| settle_nodes(keyspace));
        pause = if has_freed { PAUSE_MIN } else { (2 * pause).min(PAUSE_MAX) };
        member.idle(|| keyspace.garbage.pause(pause));
    }
}

/// Makes the memory of freed nodes available once nobody reads them any more.
fn settle_nodes(keyspace: &Keyspace) {
    if keyspace.pool.has_freed_nodes() {
        keyspace.garbage.rest(NODES_PAUSE);
        keyspace.pool.settle_nodes(NODES_PATIENCE);
    }
}

fn give_way(keyspace: &Keyspace) {
    sched::set_urgent(keyspace.pool.is_full());
    sched::give_way();
}

/// What there is to do but garbage.
fn other_work(keyspace: &Keyspace) -> OtherWork {
    if keyspace.pool.has_freed_nodes() {
        OtherWork::Now
    } else if !keyspace.pages.leaks.is_due() {
        OtherWork::None
    } else if keyspace.pool.residency().is_warming_up() {
        OtherWork::Later
    } else {
        OtherWork::Now
    }
}

/// Frees a bounded part of the garbage, or says which page that needs which is not in memory. Between two calls the
/// pages that remain are consistent, so that a cut may come.
pub(crate) fn collect_garbage(keyspace: &Keyspace) -> (Collected, Option<PageId>) {
    let mut missing = None;
    let collected = keyspace.garbage.work_off(&keyspace.pool, |entry| {
        let freed = match entry {
            Discarded::Blob { pid, place } => keyspace.blobs.free(pid, place).map(|()| true),
            Discarded::Tree { root } => free_tree_part(keyspace, root),
        };
        if let Err(Stop::Fault(page)) = freed {
            missing = Some(page);
            // It comes again once the page is there.
            return Err(Stop::Contended);
        }
        freed
    });
    (collected, missing)
}

fn free_tree_part(keyspace: &Keyspace, root: PageId) -> Result<bool, Stop> {
    let kind = match keyspace.pool.follow_shared(root) {
        Ok(guard) => guard.page()[0],
        // A root that cannot be read is freed alike, whatever tree it is of.
        Err(Stop::Damaged(_)) => KIND_INNER,
        Err(stop) => return Err(stop),
    };
    match kind {
        KIND_ORDERED_INNER => {
            keyspace.named.trees.free_part(root, STEP_UNITS, |leaf, _| free_named_leaf(keyspace, leaf))
        }
        KIND_LIST_INNER => keyspace.lists.free_part(root, STEP_UNITS, |blob| keyspace.blobs.discard(&blob)),
        _ => keyspace.trees.free_part(root, STEP_UNITS, |leaf, above| free_leaf(keyspace, leaf, above)),
    }
}

/// Frees a leaf of a named tree and everything that its records refer to; returns how many things.
fn free_named_leaf(keyspace: &Keyspace, guard: ExclusiveGuard<'_>) -> Result<usize, Stop> {
    let leaf = ordered::as_leaf(guard.id(), guard.page())?;
    let values = (0..leaf.count()).filter_map(|slot| leaf.record(slot)?.1.blob());
    let freed = 1 + values.map(|blob| keyspace.blobs.discard(&blob)).count();
    keyspace.pool.free(guard, 1);
    Ok(freed)
}

/// Frees a leaf, below these nodes, with its chain and everything that its records refer to; returns how many things.
fn free_leaf<'p>(
    keyspace: &'p Keyspace,
    head: ExclusiveGuard<'p>,
    above: &[ExclusiveGuard<'p>],
) -> Result<usize, Stop> {
    let pid = head.id();
    let leaf = keyspace.trees.with_chain(head, above)?;
    // Errors come before the first change.
    let pages = (0..leaf.page_count()).map(|page| leaf.leaf(page)).collect::<Result<Vec<_>, _>>()?;
    let freed = pages.iter().map(|page| 1 + page.outside_count()).sum();
    pages.into_iter().for_each(|page| discard_blobs(keyspace, page));
    keyspace.trees.order.side.forget(pid);
    for guard in leaf.chain {
        keyspace.pool.free(guard, 1);
    }
    keyspace.pool.free(leaf.head, 1);
    Ok(freed)
}

fn discard_blobs(keyspace: &Keyspace, leaf: Leaf<'_>) {
    if leaf.outside_count() == 0 {
        return;
    }
    for record in (0..leaf.count()).filter_map(|slot| leaf.record(slot)) {
        write::discard_references(keyspace, record.references());
    }
}

//! Going on beside pages that cannot be read.
//!
//! With `skips_damage` a walk over keys, not one through a collection, passes a leaf that is lost, and a write to one of its keys puts an empty leaf in
//! its place: what was in it is given up then, and the store says so. Without, both are errors.

use stillframe_pagepool::{is_looking, ExclusiveGuard, PageId, Reason, Restart};

use super::state::Keyspace;
use crate::stop::{retry, Stop};
use crate::tree::hash::{finest_shift, Inner, InnerMut, LeafMut};
use crate::tree::{not_inner, stop_below, Tree, Words};
use crate::OpError;

/// A page on the way to a hash that cannot be read, and the hashes below it.
pub(super) struct LostPart {
    pid: PageId,
    /// Level of the lost node; 0 for a leaf.
    level: u8,
    lo: u64,
    pub hi: u64,
    reason: Reason,
}

/// The page on the way to `hash` that cannot be read, if there is one.
pub(super) fn lost_part(keyspace: &Keyspace, tree: Tree, hash: u64) -> Result<Option<LostPart>, Stop> {
    let lost = |pid, level, lo, hi, reason: Reason| Ok(Some(LostPart { pid, level, lo, hi, reason }));
    let mut node = match keyspace.pool.optimistic(tree.root) {
        // Of what level it was nobody knows.
        Err(Restart::Damaged(reason)) => return lost(tree.root, u8::MAX, 0, u64::MAX, reason),
        node => node?,
    };
    loop {
        if !node.is_inner(tree.tag) {
            node.validate()?;
            return Err(not_inner(node.id()));
        }
        let (level, index) = (node.level(), node.find_child(hash));
        let (lo, hi) = (node.separator(index), node.child_hi(index));
        let child = PageId(node.child(index));
        node.validate()?;
        let next = match keyspace.pool.optimistic(child) {
            Err(Restart::Damaged(reason)) => {
                node.validate()?;
                return lost(child, level.saturating_sub(1), lo, hi, reason);
            }
            Err(restart) => return Err(stop_below(&keyspace.pool, &node, restart)),
            Ok(_) if level <= 1 => return Ok(None),
            Ok(next) => next,
        };
        node.validate()?;
        node = next;
    }
}

/// Whether walks through a tree pass over what is lost. Walks over keys do; what is told of a collection is all of it.
pub(super) fn passes_over(keyspace: &Keyspace, tree: Tree) -> bool {
    tree.has_keys() && keyspace.skips.is_on()
}

/// A walk has met `reason` at `hash`: where it goes on behind that, if it may.
pub(super) fn pass_over(
    keyspace: &Keyspace,
    tree: Tree,
    hash: u64,
    reason: &str,
) -> Result<Option<u64>, OpError> {
    if !passes_over(keyspace, tree) {
        return Ok(None);
    }
    let lost = retry(|| lost_part(keyspace, tree, hash))?;
    Ok(lost.map(|part| {
        keyspace.skips.note_passed(tree, part.lo, reason);
        part.hi
    }))
}

/// Puts an empty leaf in the place of the part of a tree on the way to `hash` that is lost, if that is allowed and it
/// is. What it referred to is found later (`sweep.rs`). Whether the operation is worth another try.
pub(super) fn give_up_lost(keyspace: &Keyspace, tree: Tree, hash: u64) -> Result<bool, OpError> {
    if !keyspace.skips.is_on() || is_looking() {
        return Ok(false);
    }
    let replaced = retry(|| replace_lost(keyspace, tree, hash))?;
    if let Some(part) = &replaced {
        keyspace.skips.note_given_up(tree, &part.reason);
        keyspace.pages.leaks.ask();
        keyspace.garbage.wake();
    }
    Ok(replaced.is_some())
}

fn replace_lost(keyspace: &Keyspace, tree: Tree, hash: u64) -> Result<Option<LostPart>, Stop> {
    let Some(part) = lost_part(keyspace, tree, hash)? else { return Ok(None) };
    // A root keeps its page for the life of its tree: only `FLUSHDB` ends it.
    if part.pid == tree.root || !keyspace.pool.residency().give_up(part.pid) {
        return Ok(None);
    }
    let mut parent = keyspace.trees.inner_exclusive(tree, hash, part.level + 1)?;
    let index = parent.find_child(hash);
    if parent.child(index) != part.pid.0 {
        return Err(Stop::Contended);
    }
    let (lo, hi) = (parent.separator(index), parent.child_hi(index));
    let branch = empty_branch(keyspace, tree.tag, part.level, lo, hi)?;
    parent.set_child(index, branch.0);
    drop(parent);
    keyspace.trees.order.side.forget(part.pid);
    // It was there a moment ago, and nobody else takes it out of the tree.
    let _ = keyspace.pool.free_unread(part.pid, 1);
    Ok(Some(part))
}

/// An empty leaf below as many nodes as `level` says.
fn empty_branch(keyspace: &Keyspace, tag: u32, level: u8, lo: u64, hi: u64) -> Result<PageId, Stop> {
    // All pages first: nothing is left behind if there are too few.
    let mut pages: Vec<ExclusiveGuard<'_>> = Vec::with_capacity(usize::from(level) + 1);
    for _ in 0..=level {
        match keyspace.pool.allocate() {
            Ok(page) => pages.push(page),
            Err(error) => {
                pages.into_iter().for_each(|page| keyspace.pool.free(page, 1));
                return Err(error.into());
            }
        }
    }
    let mut top = PageId(0);
    for (level, mut page) in (0u8..).zip(pages) {
        match level {
            0 => {
                LeafMut::init(page.page_mut(), tag, lo, hi, finest_shift(lo, hi));
                keyspace.trees.order.side.set(page.id(), None);
            }
            _ => InnerMut::init(&mut page, tag, level, lo, hi, top.0),
        }
        top = page.id();
    }
    Ok(top)
}

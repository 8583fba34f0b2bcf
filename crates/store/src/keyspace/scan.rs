//! Walking the keys of a database in the order of their hashes.

use stillframe_pagepool::{PageId, SharedGuard};

use super::op::Op;
use super::state::Keyspace;
use super::write::Remains;
use super::{damage, read, resolve};
use crate::blobs::{Given, Taking};
use crate::error::Fault;
use crate::stop::{retry, Follow, Stop};
use crate::tree::hash::{as_leaf, Leaf, Links, Record, RecordKey, RecordValue};
use crate::tree::{bad_record, no_key, Tree};
use crate::{DbId, EntryInfo, OpError};

/// Bits of a hash that a cursor leaves out: clients take cursors above 2^53 for floating-point numbers.
pub(super) const CURSOR_SHIFT: u32 = 12;
/// Leaves that are brought in together, and keys that a leaf is expected to have: few rather than many.
const AHEAD_LEAVES_MAX: usize = 64;
const KEYS_A_LEAF: usize = 16;

/// How far a walk through a leaf came.
enum Walked {
    /// To the next cursor, on a boundary of prefixes.
    Until(u64),
    /// To the leaf's end; the greatest hash of the leaf.
    Through(u64),
}

struct Walk<'a, F> {
    from_hash: u64,
    given: usize,
    count: usize,
    f: &'a mut F,
}

/// One step of an iteration; see [`crate::Database::scan`].
pub fn scan(
    op: &mut Op<'_>,
    db: DbId,
    cursor: u64,
    count: usize,
    mut f: impl FnMut(&[u8], &EntryInfo),
) -> Result<u64, OpError> {
    let Some(tree) = op.keyspace.tree(db) else {
        op.keyspace.check_database(db)?;
        return Ok(0);
    };
    scan_tree(op, tree, cursor, count, |op, record, head| {
        if record.deadline.is_some_and(|deadline| deadline <= op.local.now) {
            return Ok(());
        }
        let info = read::entry_info(op, record, head);
        with_key(op.keyspace, record, &mut op.local.bytes, |key| f(key, &info))
    })
}

/// The same in a tree of keys or of elements: `f` gets each record, and the head of its leaf's chain, under its latch.
pub(super) fn scan_tree(
    op: &mut Op<'_>,
    tree: Tree,
    cursor: u64,
    count: usize,
    mut f: impl FnMut(&mut Op<'_>, &Record<'_>, PageId) -> Result<(), Stop>,
) -> Result<u64, OpError> {
    let Some(from_hash) = cursor.checked_mul(1 << CURSOR_SHIFT) else { return Ok(0) };
    let mut walk = Walk { from_hash, given: 0, count: count.max(1), f: &mut f };
    loop {
        let from_hash = walk.from_hash;
        let hi = match retry(|| walk_leaf(op, tree, &mut walk)) {
            Ok(Walked::Until(next)) => return Ok(next),
            Ok(Walked::Through(u64::MAX)) => return Ok(0),
            Ok(Walked::Through(hi)) => hi,
            // What has been given stands; the rest comes with the next cursor. A leaf that nobody wrote like this may have
            // given some before the error: then there is no next one.
            Err(OpError::Fault(_))
                if walk.given > 0
                    && on_boundary(walk.from_hash)
                    && walk.from_hash >> CURSOR_SHIFT > cursor =>
            {
                return Ok(walk.from_hash >> CURSOR_SHIFT)
            }
            Err(OpError::Fault(fault)) => {
                return Err(OpError::Fault(fault.and(leaves_ahead(op.keyspace, tree, &walk))))
            }
            Err(OpError::Damaged(reason)) => {
                match damage::pass_over(op.keyspace, tree, from_hash, &reason)? {
                    Some(u64::MAX) => return Ok(0),
                    Some(hi) => hi,
                    None => return Err(OpError::Damaged(reason)),
                }
            }
            Err(error) => return Err(error),
        };
        walk.from_hash = hi + 1;
        if walk.given >= walk.count && on_boundary(walk.from_hash) {
            return Ok(walk.from_hash >> CURSOR_SHIFT);
        }
    }
}

/// The leaves that the rest of a walk is going to need.
#[cold]
fn leaves_ahead<F>(keyspace: &Keyspace, tree: Tree, walk: &Walk<'_, F>) -> Fault {
    let count = walk.count / KEYS_A_LEAF + 1;
    let count = keyspace.pages.ahead_pages(count.min(AHEAD_LEAVES_MAX));
    let mut missing = Vec::new();
    // What stands in the way is met again.
    if let Ok(leaves) = keyspace.trees.leaves_ahead(tree, walk.from_hash, true, count) {
        resolve::add_missing(keyspace, leaves.into_iter(), &mut missing);
    }
    Fault::of(missing)
}

/// Gives the keys of one leaf from the walk's hash on. An error comes before the first key is given.
fn walk_leaf<F: FnMut(&mut Op<'_>, &Record<'_>, PageId) -> Result<(), Stop>>(
    op: &mut Op<'_>,
    tree: Tree,
    walk: &mut Walk<'_, F>,
) -> Result<Walked, Stop> {
    let mut guard = op.keyspace.trees.leaf_shared(tree, walk.from_hash, None)?;
    let (head, mut links) = (guard.id(), Links::default());
    let hi = as_leaf(head, guard.page())?.hi();
    check_long_keys(op.keyspace, tree, &guard)?;
    loop {
        let leaf = as_leaf(guard.id(), guard.page())?;
        let mut previous = None;
        for slot in leaf.first_at_or_above(walk.from_hash)..leaf.count() {
            let prefix = leaf.least_hash(slot) >> CURSOR_SHIFT;
            // Slots of a leaf that nobody wrote like this may be out of order.
            let is_ahead = previous.is_some_and(|p| p < prefix) && prefix > walk.from_hash >> CURSOR_SHIFT;
            if walk.given >= walk.count && is_ahead && leaf.chain() == 0 {
                return Ok(Walked::Until(prefix));
            }
            previous = Some(prefix);
            let record = leaf.record(slot).ok_or_else(|| bad_record(guard.id()))?;
            if leaf.least_hash(slot) < walk.from_hash
                && op.keyspace.trees.order.hash_of(&record) < walk.from_hash
            {
                continue;
            }
            walk.given += 1;
            if let Err(stop) = (walk.f)(op, &record, head) {
                unless_skipped(
                    op.keyspace,
                    tree,
                    op.keyspace.trees.order.hash_of(&record),
                    Err::<(), _>(stop),
                )?;
            }
        }
        match links.after(guard.id(), leaf)? {
            None => {
                drop(guard);
                // It does not come back before it has been round.
                op.keyspace.pool.let_go(head);
                return Ok(Walked::Through(hi));
            }
            Some(next) => {
                match unless_skipped(op.keyspace, tree, hi, op.keyspace.pool.follow_shared(next))? {
                    Some(next) => guard = next,
                    None => return Ok(Walked::Through(hi)),
                }
            }
        }
    }
}

/// What has been had; `None` if it is damaged and walks pass over that.
fn unless_skipped<T>(
    keyspace: &Keyspace,
    tree: Tree,
    hash: u64,
    result: Result<T, Stop>,
) -> Result<Option<T>, Stop> {
    match result {
        Err(Stop::Damaged(reason)) if damage::passes_over(keyspace, tree) => {
            keyspace.skips.note_passed(tree, hash, &reason);
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Makes sure that keys out of line, and the leaves of a chain, are in memory, unless they are passed over.
fn check_long_keys(keyspace: &Keyspace, tree: Tree, head: &SharedGuard<'_>) -> Result<(), Stop> {
    let (mut link, mut links) = (None, Links::default());
    loop {
        let guard = link.as_ref().unwrap_or(head);
        let leaf = as_leaf(guard.id(), guard.page())?;
        check_long_keys_of(keyspace, tree, leaf)?;
        let (next, hi) = (links.after(guard.id(), leaf)?, leaf.hi());
        let Some(next) = next else { return Ok(()) };
        link = unless_skipped(keyspace, tree, hi, keyspace.pool.follow_shared(next))?;
        if link.is_none() {
            return Ok(());
        }
    }
}

fn check_long_keys_of(keyspace: &Keyspace, tree: Tree, leaf: Leaf<'_>) -> Result<(), Stop> {
    let slots = 0..if leaf.outside_count() > 0 { leaf.count() } else { 0 };
    if !tree.has_keys() && !keyspace.pages.all_resident() {
        // All at once: each would be waited for alone.
        let mut missing = Vec::new();
        let records = slots.clone().filter_map(|slot| leaf.record(slot));
        for blob in records.flat_map(|record| Remains::of(&record).blobs()) {
            keyspace.blobs.resolve_element(&blob, &mut missing);
        }
        if !missing.is_empty() {
            return Err(Stop::Missing(missing));
        }
    }
    for slot in slots {
        let Some(record) = leaf.record(slot) else { continue };
        if let RecordKey::Out { hash, blob } = record.key {
            unless_skipped(keyspace, tree, hash, keyspace.blobs.check_resident(&blob))?;
        }
        // Of an element the value is looked at, too. What is long is read past memory, or not at all.
        if let (false, RecordValue::Blob(blob)) = (tree.has_keys(), record.value) {
            keyspace.blobs.check_resident(&blob)?;
        }
    }
    Ok(())
}

/// Gives an element's name to `f`, a large one by reference if that is wanted; `buffer` is for one that lies out of line.
pub(super) fn give_key<R>(
    keyspace: &Keyspace,
    record: &Record<'_>,
    taking: Taking,
    buffer: &mut Vec<u8>,
    f: impl FnOnce(Given<'_>) -> R,
) -> Result<R, Stop> {
    match record.key {
        RecordKey::Inline(key) => Ok(f(Given::Here(key))),
        RecordKey::Out { blob, .. } => keyspace.blobs.give(&blob, taking, buffer, f),
        RecordKey::Hash(_) => Err(no_key()),
    }
}

/// Gives a record's key to `f`; `buffer` is for one that lies out of line.
pub(super) fn with_key<R>(
    keyspace: &Keyspace,
    record: &Record<'_>,
    buffer: &mut Vec<u8>,
    f: impl FnOnce(&[u8]) -> R,
) -> Result<R, Stop> {
    match record.key {
        RecordKey::Inline(key) => Ok(f(key)),
        RecordKey::Out { blob, .. } => {
            buffer.clear();
            keyspace.blobs.read(&blob, buffer)?;
            Ok(f(buffer))
        }
        RecordKey::Hash(_) => Err(no_key()),
    }
}

fn on_boundary(hash: u64) -> bool {
    hash.trailing_zeros() >= CURSOR_SHIFT
}

//! Removing what has expired, without being asked for it.

use std::time::{Duration, Instant};

use stillframe_pagepool::{PageId, SharedGuard};

use super::op::Op;
use super::state::Keyspace;
use super::steps::Because;
use super::{damage, scan, write};
use crate::stop::{retry, Follow, Stop};
use crate::tree::hash::{as_leaf, chain_deadline, Leaf, Links};
use crate::tree::Tree;
use crate::value::ValueType;
use crate::{Cause, DbId, Key, OpError};

/// As long as a cycle may take at most.
const LIMIT_MAX: Duration = Duration::from_secs(3600);

/// Keys taken from a leaf at a time, by their hashes, with the types of their values.
type Batch = Vec<(u64, Vec<u8>, ValueType)>;

/// Removes elements whose time is over from the collection of a key that the caller has locked, and that was of this type.
/// Whether there is more to do at once.
pub(super) type ExpireElements = fn(&mut Op<'_>, ValueType, (DbId, &Key<'_>)) -> Result<bool, OpError>;

/// What has been done in a leaf.
#[derive(Default)]
struct Done {
    removed_count: u64,
    is_unfinished: bool,
}

/// Removes expired entries and elements for at most about `limit`; see [`crate::Upkeep::expire_cycle`].
pub fn expire_cycle(
    op: &mut Op<'_>,
    limit: Duration,
    expire_elements: ExpireElements,
    mut f: impl FnMut(DbId, &[u8]),
) -> Result<u64, OpError> {
    let started = Instant::now();
    // More than an hour is as long as wanted.
    let limit = limit.min(LIMIT_MAX);
    register_leaves(op.keyspace, started + limit / 2);
    let (mut removed, mut failure) = (0, None);
    let mut at = op.keyspace.expiry.at();
    // Joining leaves may move due keys behind the sweep: it ends after a whole pass that removes nothing.
    let mut useful = at.0 != 0;
    loop {
        let Some(pid) = op.keyspace.trees.order.side.next_due(at, op.local.now) else {
            at = PageId(0);
            if !std::mem::take(&mut useful) {
                break;
            }
            continue;
        };
        // A leaf that cannot be read does not keep the others.
        let done = expire_leaf(op, pid, expire_elements, &mut f).unwrap_or_else(|error| {
            failure = Some(error);
            Done::default()
        });
        removed += done.removed_count;
        useful |= done.removed_count > 0 || done.is_unfinished;
        at = PageId(pid.0 + 1);
        if started.elapsed() >= limit {
            break;
        }
    }
    op.keyspace.expiry.go_on_at(at);
    failure.map_or(Ok(removed), Err)
}

/// Removes the entries that were found expired under a shared lock set, which the worker has released since: other
/// holders of the keys may have an older clock.
#[inline(always)]
pub fn remove_left_expired(op: &mut Op<'_>) -> Result<(), OpError> {
    if op.local.left_expired.is_empty() || !op.keyspace.locks.may_remove(&op.local.holder) {
        return Ok(());
    }
    remove_left_expired_now(op)
}

#[cold]
fn remove_left_expired_now(op: &mut Op<'_>) -> Result<(), OpError> {
    let mut left = std::mem::take(&mut op.local.left_expired);
    for (db, bytes) in left.drain(..) {
        let key = Key::new(&bytes, op.keyspace.trees.order.hash(&bytes));
        let _lock = op.keyspace.locks.lock_key(&op.local.holder, db, key.hash);
        write::expire(op, db, &key)?;
    }
    op.local.left_expired = left;
    Ok(())
}

/// After a restart: walks the leaves that the side array does not know yet, as far as they are in memory.
pub(super) fn register_leaves(keyspace: &Keyspace, until: Instant) {
    let Some(mut unregistered) = keyspace.expiry.unregistered() else { return };
    while let Some((db, hash)) = *unregistered {
        let next_db = (db.0 as usize + 1 < keyspace.database_count()).then_some((DbId(db.0 + 1), 0));
        let Some(tree) = keyspace.tree(db) else {
            *unregistered = next_db;
            continue;
        };
        // The descent registers the leaf.
        let hi = retry(|| keyspace.trees.leaf_shared(tree, hash, None).and_then(leaf_hi));
        match hi {
            Ok(u64::MAX) => *unregistered = next_db,
            Ok(hi) => *unregistered = Some((db, hi + 1)),
            Err(OpError::Damaged(_)) => match retry(|| damage::lost_part(keyspace, tree, hash)) {
                Ok(Some(part)) if part.hi == u64::MAX => *unregistered = next_db,
                Ok(Some(part)) => *unregistered = Some((db, part.hi + 1)),
                _ => return,
            },
            Err(_) => return,
        }
        if Instant::now() >= until {
            return;
        }
    }
}

/// Removes the expired entries and elements of one leaf and registers its next deadline.
fn expire_leaf(
    op: &mut Op<'_>,
    pid: PageId,
    expire_elements: ExpireElements,
    f: &mut impl FnMut(DbId, &[u8]),
) -> Result<Done, OpError> {
    let found = retry(|| expired_keys(op, pid))?;
    let Some((tree, batch)) = found else { return Ok(Done::default()) };
    let mut done = Done::default();
    for (hash, bytes, value_type) in &batch {
        let key = Key { leaf_hint: Some(pid), ..Key::new(bytes, *hash) };
        let Some(_lock) = op.keyspace.locks.try_lock_key(&op.local.holder, tree.db, key.hash) else {
            continue;
        };
        if write::expire(op, tree.db, &key)? {
            done.removed_count += 1;
            f(tree.db, bytes);
        } else {
            let _because = Because::of(&op.local.holder.acting, Cause::Expiry);
            let is_unfinished = expire_elements(op, *value_type, (tree.db, &key));
            op.local.holder.acting.end_operation();
            done.is_unfinished |= is_unfinished?;
        }
    }
    register_deadline(op.keyspace, pid);
    Ok(done)
}

/// Registers a leaf's earliest deadline anew.
pub(super) fn register_deadline(keyspace: &Keyspace, pid: PageId) {
    // The leaf may be gone by now; then nobody latches it.
    let _ = retry(|| {
        let guard = keyspace.pool.shared(pid)?;
        if keyspace.trees.order.side.is_leaf(pid) {
            let deadline = chain_deadline(&keyspace.pool, pid, as_leaf(pid, guard.page())?)?;
            keyspace.trees.order.side.set(pid, deadline);
        }
        Ok(())
    });
}

/// The expired keys of a leaf, and those with expired elements, if the page is one.
fn expired_keys(op: &mut Op<'_>, pid: PageId) -> Result<Option<(Tree, Batch)>, Stop> {
    let Ok(mut guard) = op.keyspace.pool.shared(pid) else { return Ok(None) };
    if !op.keyspace.trees.order.side.is_leaf(pid) {
        return Ok(None);
    }
    let tag = as_leaf(pid, guard.page())?.tag();
    let tree = (0..op.keyspace.database_count()).filter_map(|db| op.keyspace.tree(DbId(db as u32)));
    let Some(tree) = tree.into_iter().find(|tree| tree.tag == tag) else {
        // Elements go by what their key says.
        op.keyspace.trees.order.side.set(pid, None);
        return Ok(None);
    };
    let (mut batch, mut links) = (Batch::new(), Links::default());
    loop {
        let leaf = as_leaf(guard.id(), guard.page())?;
        collect_expired(op, leaf, &mut batch)?;
        match links.after(guard.id(), leaf)? {
            None => return Ok(Some((tree, batch))),
            Some(next) => guard = op.keyspace.pool.follow_shared(next)?,
        }
    }
}

fn collect_expired(op: &mut Op<'_>, leaf: Leaf<'_>, batch: &mut Batch) -> Result<(), Stop> {
    if leaf.deadline_count() == 0 {
        return Ok(());
    }
    for record in (0..leaf.count()).filter_map(|slot| leaf.record(slot)) {
        if record.earliest_deadline().is_some_and(|deadline| deadline <= op.local.now) {
            let (hash, value_type) = (op.keyspace.trees.order.hash_of(&record), record.value_type());
            let mut add = |key: &[u8]| batch.push((hash, key.to_vec(), value_type));
            scan::with_key(op.keyspace, &record, &mut op.local.bytes, &mut add)?;
        }
    }
    Ok(())
}

fn leaf_hi(guard: SharedGuard<'_>) -> Result<u64, Stop> {
    Ok(as_leaf(guard.id(), guard.page())?.hi())
}

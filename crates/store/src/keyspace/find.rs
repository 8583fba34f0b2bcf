//! From a latched leaf to a key's record.

use stillframe_pagepool::{PageId, SharedGuard};

use super::state::Keyspace;
use crate::key::Key;
use crate::stop::{Follow, Stop};
use crate::tree::hash::{as_leaf, At, Leaf, LeafGuard, Links, RecordKey, KEY_INLINE_MAX_BYTES};
use crate::tree::Tree;

/// Slot of a key in one leaf.
#[inline(always)]
pub(crate) fn find_slot(keyspace: &Keyspace, leaf: Leaf<'_>, key: &Key<'_>) -> Result<Option<usize>, Stop> {
    if key.bytes.len() <= KEY_INLINE_MAX_BYTES {
        let hint = usize::from(key.slot_hint);
        if hint < leaf.count() && leaf.key_is(hint, key.bytes) {
            return Ok(Some(hint));
        }
        Ok(leaf.find(key.hash, key.bytes))
    } else {
        find_long(keyspace, leaf, key)
    }
}

#[cold]
fn find_long(keyspace: &Keyspace, leaf: Leaf<'_>, key: &Key<'_>) -> Result<Option<usize>, Stop> {
    let mut stopped = None;
    let found = leaf.find_candidate(key.hash, |slot| match leaf.record(slot).map(|r| r.key) {
        Some(RecordKey::Out { hash, blob }) if hash == key.hash => {
            let equals = match key.large {
                Some(bytes) => keyspace.blobs.is_same(&blob, bytes),
                None => keyspace.blobs.equals(&blob, key.bytes),
            };
            match equals {
                Ok(equal) => equal,
                // All 64 bits of a secret hash and the length agree: it can be removed or overwritten.
                Err(Stop::Damaged(_)) if keyspace.skips.is_on() => true,
                Err(stop) => {
                    stopped = Some(stop);
                    false
                }
            }
        }
        _ => false,
    });
    match stopped {
        Some(stop) => Err(stop),
        None => Ok(found),
    }
}

/// Latches, shared, the leaf that holds a key's record.
#[inline(always)]
pub(crate) fn find_shared<'k>(
    keyspace: &'k Keyspace,
    tree: Tree,
    key: &Key<'_>,
) -> Result<Option<(PageId, SharedGuard<'k>, usize)>, Stop> {
    let mut guard = keyspace.trees.leaf_shared(tree, key.hash, key.leaf_hint)?;
    let (head, mut links) = (guard.id(), Links::default());
    loop {
        let leaf = as_leaf(guard.id(), guard.page())?;
        if let Some(slot) = find_slot(keyspace, leaf, key)? {
            return Ok(Some((head, guard, slot)));
        }
        match links.after(guard.id(), leaf)? {
            None => return Ok(None),
            Some(next) => guard = keyspace.pool.follow_shared(next)?,
        }
    }
}

/// Where a key's record is in a leaf and its chain.
#[inline(always)]
pub(crate) fn find_exclusive(
    keyspace: &Keyspace,
    leaf: &LeafGuard<'_>,
    key: &Key<'_>,
) -> Result<Option<At>, Stop> {
    if key.bytes.len() > KEY_INLINE_MAX_BYTES {
        leaf.check_candidates(key.hash)?;
    }
    for page in 0..leaf.page_count() {
        if let Some(slot) = find_slot(keyspace, leaf.leaf(page)?, key)? {
            return Ok(Some(At { page, slot }));
        }
    }
    Ok(None)
}

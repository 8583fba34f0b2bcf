//! Before a command is applied, while pages are missing: which of them it may need (invariant C1).
//!
//! An operation on a key needs the nodes above its leaf, the leaf with its chain, the whole place of the key that is there,
//! and as much of the value as it reaches for. What it stores anew goes to leaves that have room, to new pages, and to slabs with free slots:
//! of the list of its class it takes the first, and looks at the one behind it when the first becomes full. Neighbours
//! that are not in memory take no part when leaves are divided or joined, and what cannot be freed at once is left to the
//! background: what only goes needs no slab. So this is all.

use std::ops::Range;

use stillframe_pagepool::{PageId, PAGE_SIZE};

use super::find;
use super::state::Keyspace;
use super::write::Remains;
use crate::blobs::{Blob, Reach, SlabNeeds};
use crate::stop::{retry, Follow, Stop};
use crate::tree::bad_record;
use crate::tree::hash::{as_leaf, Leaf, Links, Record, RecordKey, Reference};
use crate::{DbId, Fault, Key, OpError};

/// The pages of values that are needed together.
#[derive(Default)]
struct Runs {
    pages: Vec<Range<u32>>,
    /// Those that are needed several times count as often.
    page_count: u64,
}

impl Runs {
    fn add(&mut self, value: &Blob, reach: Reach) {
        let indices = reach.pages(value);
        self.page_count += indices.len() as u64;
        self.pages.push(value.pid.0.saturating_add(indices.start)..value.pid.0.saturating_add(indices.end));
    }

    fn distinct_page_count(&mut self) -> u64 {
        self.pages.sort_unstable_by_key(|run| run.start);
        let (mut count, mut counted_to) = (0, 0);
        for run in &self.pages {
            count += u64::from(run.end.saturating_sub(run.start.max(counted_to)));
            counted_to = counted_to.max(run.end);
        }
        count
    }
}

/// Whether every page that operations on these keys, which reach so far into their values, may touch is in memory. The slabs that take what
/// may be stored outside of leaves are looked at, too: as long as nobody else runs, no operation of a command then meets a
/// page that is missing.
///
/// # Errors
/// [`Fault`] with the pages that are missing, as far as they are known. A damaged page is left to the operation.
/// [`OpError::LargerThanMemory`] if there is no room for the values together.
pub fn resolve<'k>(
    keyspace: &Keyspace,
    keys: impl Iterator<Item = (DbId, Key<'k>, Reach)>,
    stored: &SlabNeeds,
) -> Result<(), OpError> {
    if keyspace.pages.all_resident() {
        return Ok(());
    }
    let (mut pages, mut runs) = (Vec::new(), Runs::default());
    for (db, key, reach) in keys {
        let resolved = retry(|| resolve_key(keyspace, db, &key, reach, &mut pages, &mut runs));
        if let Err(OpError::Fault(fault)) = resolved {
            fault.add_to(&mut pages);
        }
    }
    if keyspace.pages.is_too_large(runs.page_count * PAGE_SIZE as u64) {
        keyspace.pages.check_together(runs.distinct_page_count() * PAGE_SIZE as u64)?;
    }
    // What is damaged is left to the operation.
    let _ = keyspace.blobs.slabs.resolve(stored, &mut pages);
    pages.sort_unstable();
    pages.dedup();
    if pages.is_empty() {
        Ok(())
    } else {
        Err(Fault::of(pages).into())
    }
}

fn resolve_key(
    keyspace: &Keyspace,
    db: DbId,
    key: &Key<'_>,
    reach: Reach,
    missing: &mut Vec<PageId>,
    runs: &mut Runs,
) -> Result<(), Stop> {
    let Some(tree) = keyspace.tree(db) else { return keyspace.check_database(db) };
    let mut guard = keyspace.trees.leaf_shared(tree, key.hash, key.leaf_hint)?;
    let mut links = Links::default();
    loop {
        let leaf = as_leaf(guard.id(), guard.page())?;
        if let Some(value) = resolve_in(keyspace, guard.id(), leaf, key, missing)? {
            runs.add(&value, reach);
            keyspace.blobs.resolve(&value, reach, missing);
        }
        match links.after(guard.id(), leaf)? {
            None => return Ok(()),
            Some(next) => guard = keyspace.pool.follow_shared(next)?,
        }
    }
}

/// Returns the value that lies outside of the leaf, if the key is in this one and has such a value.
fn resolve_in(
    keyspace: &Keyspace,
    pid: PageId,
    leaf: Leaf<'_>,
    key: &Key<'_>,
    missing: &mut Vec<PageId>,
) -> Result<Option<Blob>, Stop> {
    let Some(slot) = find::find_slot(keyspace, leaf, key)? else { return Ok(None) };
    let record = leaf.record(slot).ok_or_else(|| bad_record(pid))?;
    if let RecordKey::Out { blob, .. } = record.key {
        keyspace.blobs.resolve_element(&blob, missing);
    }
    Ok(record.value_references().find_map(|reference| match reference {
        Reference::Blob(blob) => Some(blob),
        // Which of its pages are needed the operation finds out before its first change.
        Reference::Tree(_) => None,
    }))
}

/// Makes sure that whatever a record has outside of its leaf can be freed, or written over where it lies.
pub(super) fn resolve_outside(keyspace: &Keyspace, record: &Record<'_>) -> Result<(), Stop> {
    let (remains, mut missing) = (Remains::of(record), Vec::new());
    for blob in [remains.key, remains.value].into_iter().flatten() {
        keyspace.blobs.resolve(&blob, Reach::Nothing, &mut missing);
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Stop::Missing(missing)),
    }
}

/// All of a blob.
pub(crate) fn resolve_blob(keyspace: &Keyspace, blob: &Blob, missing: &mut Vec<PageId>) {
    keyspace.blobs.resolve(blob, Reach::WHOLE, missing);
}

pub(crate) fn add_missing(
    keyspace: &Keyspace,
    pages: impl Iterator<Item = PageId>,
    missing: &mut Vec<PageId>,
) {
    missing.extend(pages.filter(|pid| keyspace.pool.residency().is_missing(*pid)));
}

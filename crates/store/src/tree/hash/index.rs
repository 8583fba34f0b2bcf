//! An index: for each member of a collection whose members lie in another tree, its hash and a value of 8 bytes that leads
//! to it. A member costs 18 bytes here, its slot included, however long it is.
//!
//! An index does not know members. Several may have one hash, as it keeps 40 bits, or even hash and value alike: it is a bag
//! of pairs. Who looks a member up gets the values of all that have its hash, and finds out where they lead.

use smallvec::SmallVec;
use stillframe_pagepool::PageId;

use super::chain::{At, LeafGuard};
use super::leaf::Leaf;
use super::links::Links;
use super::order::{as_leaf, Hashed};
use super::record::{index_hash, Record, RecordKey, RecordValue, INDEX_RECORD_BYTES};
use super::shape::SLOT_BYTES;
use crate::stop::{Follow, Stop};
use crate::tree::merge::Joining;
use crate::tree::order::bad_record;
use crate::tree::trees::{Tree, Trees};

/// What an index has for a hash.
pub(crate) struct Indexed {
    pub values: SmallVec<[u64; 2]>,
    /// The leaf of the hash: a hint, good until the thread's next look at the barrier.
    pub leaf: PageId,
    /// Whether the leaf has room for one more pair of this hash.
    pub has_room: bool,
}

impl Leaf<'_> {
    /// The value of a slot if its record is of this hash.
    #[inline(always)]
    pub(super) fn indexed(&self, slot: usize, hash: u64) -> Option<u64> {
        match self.record(slot)? {
            Record { key: RecordKey::Hash(found), value: RecordValue::Int(value), .. } if found == hash => {
                Some(value as u64)
            }
            _ => None,
        }
    }
}

/// Where a pair is in a leaf and its chain.
fn find(leaf: &LeafGuard<'_>, hash: u64, value: u64) -> Result<Option<At>, Stop> {
    for page in 0..leaf.page_count() {
        let one = leaf.leaf(page)?;
        if let Some(slot) = one.find_candidate(hash, |slot| one.indexed(slot, hash) == Some(value)) {
            return Ok(Some(At { page, slot }));
        }
    }
    Ok(None)
}

impl Trees<Hashed> {
    /// The values of all pairs with this hash, of which the leaf may be known.
    pub fn indexed(&self, tree: Tree, hash: u64, hint: Option<PageId>) -> Result<Indexed, Stop> {
        let hash = index_hash(hash);
        let mut guard = self.leaf_shared(tree, hash, hint)?;
        let mut found = Indexed { values: SmallVec::new(), leaf: guard.id(), has_room: false };
        let mut links = Links::default();
        loop {
            let leaf = as_leaf(guard.id(), guard.page())?;
            leaf.find_candidate(hash, |slot| {
                // A slot may be seen twice, and pairs may be alike.
                let value = leaf.indexed(slot, hash).filter(|value| !found.values.contains(value));
                found.values.extend(value);
                false
            });
            let Some(next) = links.after(guard.id(), leaf)? else {
                let is_alone = guard.id() == found.leaf;
                found.has_room = is_alone && leaf.free_bytes() >= INDEX_RECORD_BYTES + SLOT_BYTES;
                return Ok(found);
            };
            guard = self.pool.follow_shared(next)?;
        }
    }

    /// Adds the pairs of the leaf that is responsible for a hash, from that hash on, to `pairs`. The least hash that belongs to
    /// the leaves after it, if there are any.
    pub fn walk_index(
        &self,
        tree: Tree,
        from: u64,
        pairs: &mut Vec<(u64, u64)>,
    ) -> Result<Option<u64>, Stop> {
        let (before, mut links) = (pairs.len(), Links::default());
        let mut guard = self.leaf_shared(tree, from, None)?;
        loop {
            let leaf = as_leaf(guard.id(), guard.page())?;
            for slot in leaf.first_at_or_above(from)..leaf.count() {
                match leaf.record(slot) {
                    Some(Record { key: RecordKey::Hash(hash), value: RecordValue::Int(value), .. }) => {
                        pairs.extend((hash >= from).then_some((hash, value as u64)));
                    }
                    _ => {
                        pairs.truncate(before);
                        return Err(bad_record(guard.id()));
                    }
                }
            }
            let next = links.after(guard.id(), leaf).inspect_err(|_| pairs.truncate(before))?;
            let Some(next) = next else { return Ok(leaf.hi().checked_add(1)) };
            guard = self.pool.follow_shared(next).inspect_err(|_| pairs.truncate(before))?;
        }
    }

    /// Whether there is room for one more pair of a hash; if not, [`Trees::make_room`] for [`INDEX_RECORD_BYTES`] is to come.
    pub fn has_index_room(&self, tree: Tree, hash: u64) -> Result<bool, Stop> {
        let hash = index_hash(hash);
        let leaf = self.chain_exclusive(tree, hash, None)?;
        Ok(self.page_for(&leaf, hash, INDEX_RECORD_BYTES)?.is_some())
    }

    /// Adds a pair; false if there is no room.
    pub fn insert_indexed(
        &self,
        tree: Tree,
        hash: u64,
        value: u64,
        hint: Option<PageId>,
    ) -> Result<bool, Stop> {
        let hash = index_hash(hash);
        let mut leaf = self.chain_exclusive(tree, hash, hint)?;
        let Some(page) = self.page_for(&leaf, hash, INDEX_RECORD_BYTES)? else { return Ok(false) };
        leaf.insert(page, hash, &Record::of_index(hash, value))?;
        Ok(true)
    }

    /// Gives a pair another value; whether it was there.
    pub fn replace_indexed(
        &self,
        tree: Tree,
        hash: u64,
        values: (u64, u64),
        hint: Option<PageId>,
    ) -> Result<bool, Stop> {
        let hash = index_hash(hash);
        let mut leaf = self.chain_exclusive(tree, hash, hint)?;
        let Some(at) = find(&leaf, hash, values.0)? else { return Ok(false) };
        leaf.replace(at, &Record::of_index(hash, values.1))?;
        Ok(true)
    }

    /// Removes a pair; whether it was there, and whether [`Trees::join_leaves`] may save memory.
    pub fn remove_indexed(
        &self,
        tree: Tree,
        hash: u64,
        value: u64,
        hint: Option<PageId>,
    ) -> Result<Option<bool>, Stop> {
        let hash = index_hash(hash);
        let mut leaf = self.chain_exclusive(tree, hash, hint)?;
        let Some(at) = find(&leaf, hash, value)? else { return Ok(None) };
        if let Some(emptied) = leaf.remove(at)? {
            let guard = leaf.chain.remove(emptied);
            self.pool.free(guard, 1);
        }
        Ok(Some(Joining::Sparse.is_due::<Hashed>(leaf.leaf(0)?)))
    }
}

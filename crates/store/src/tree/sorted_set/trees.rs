//! Single members: looking one up, giving it a score, removing it.
//!
//! A change begins with [`SortedTrees::find`], which makes sure of all pages that are there to be changed. [`SortedTrees::put`]
//! makes room in both trees before it changes either (invariant C1); what it then does meets no page that may be missing.

use std::hash::Hasher;

use stillframe_pagepool::PageId;

use super::key::{
    is_long, long_key, number_among, parse, sortable, whole_key, whole_value, OrderKey, NUMBER_MAX,
};
use crate::blobs::{Blob, Blobs, Bytes, Given, Taking, BLOB_BYTES};
use crate::error::OpError;
use crate::key::Key;
use crate::stop::{retry, Stop};
use crate::tree::hash::{index_hash, Hashed, INDEX_RECORD_BYTES};
use crate::tree::merge::Joining;
use crate::tree::ordered::{record_bytes, Next, Ordered, Removal, Seek, Stored};
use crate::tree::trees::{Scratch, Tree, Trees, NO_DATABASE};

/// The trees of one sorted set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Roots {
    pub index: Tree,
    pub order: Tree,
}

/// What is done with the trees of sorted sets. The caller has locked the key.
#[derive(Clone, Copy)]
pub(crate) struct SortedTrees<'a> {
    pub index: &'a Trees<Hashed>,
    pub order: &'a Trees<Ordered>,
    pub blobs: &'a Blobs,
    /// Whether the caller takes large members by reference.
    pub taking: Taking,
}

/// A member that a walk has met.
pub(crate) struct MetMember<'a> {
    pub member: Given<'a>,
    pub score: f64,
    /// If the order has it.
    pub hash: Option<u64>,
}

/// Where a member is in the order.
struct OrderPlace {
    score: f64,
    key: OrderKey,
    /// Where the member lies, if it is long.
    blob: Option<Blob>,
}

/// Where in the order a member seems to be: a hint between two stages of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceAhead {
    score: f64,
    leaf: PageId,
}

/// What there is of a member. Good until the set is changed, or the thread looks at the barrier.
pub(crate) struct Found {
    hash: u64,
    /// The index's leaf of the hash.
    leaf: PageId,
    has_index_room: bool,
    place: Option<OrderPlace>,
}

impl Found {
    pub fn score(&self) -> Option<f64> {
        self.place.as_ref().map(|place| place.score)
    }
}

/// What the order has of the long members with one score, start and hash.
struct Alike {
    place: Option<OrderPlace>,
    /// A number that none of them has.
    free_number: u16,
}

pub(super) fn disagree() -> OpError {
    OpError::Damaged("the trees of a sorted set contradict each other".into())
}

impl SortedTrees<'_> {
    /// An empty set, with two tags that are used nowhere else. If there is no room for both trees, `give_up` gets the root of
    /// the one that has been made.
    pub fn create(&self, tags: (u32, u32), give_up: impl FnOnce(PageId)) -> Result<Roots, OpError> {
        let tree = |root, tag| Tree { db: NO_DATABASE, root, tag };
        let index = retry(|| self.index.create(tags.0))?;
        match retry(|| self.order.create(tags.1)) {
            Ok(order) => Ok(Roots { index: tree(index, tags.0), order: tree(order, tags.1) }),
            Err(error) => {
                give_up(index);
                Err(error)
            }
        }
    }

    /// Looks a member up that a walk has met.
    pub fn find_met(&self, roots: Roots, met: &MetMember<'_>) -> Result<Found, OpError> {
        let (bytes, order) = (met.member.as_bytes(), &self.index.order);
        let hash = match (met.hash, bytes) {
            (Some(hash), _) => hash,
            (None, Bytes::Here(member)) => order.hash(member),
            (None, bytes) => {
                let mut hasher = order.hasher();
                bytes.for_each(|part| hasher.write(part))?;
                order.masked(hasher.finish())
            }
        };
        match &met.member {
            Given::Here(member) => self.find_hashed(roots, &Key::new(member, hash)),
            Given::Large(sending) => {
                self.find_hashed(roots, &Key { large: Some(&bytes), ..Key::new(sending.head()?, hash) })
            }
        }
    }

    /// Looks a member up.
    #[cfg(test)]
    pub fn find(&self, roots: Roots, member: &[u8]) -> Result<Found, OpError> {
        self.find_hashed(roots, &Key::new(member, self.index.order.hash(member)))
    }

    /// The same for one with its hash, of which a batch may know the index's leaf.
    pub fn find_hashed(&self, roots: Roots, member: &Key<'_>) -> Result<Found, OpError> {
        let hash = member.hash;
        let indexed = retry(|| self.index.indexed(roots.index, hash, member.leaf_hint))?;
        let mut place = None;
        for value in &indexed.values {
            place = self.place(roots, member, f64::from_bits(*value))?;
            if place.is_some() {
                break;
            }
        }
        Ok(Found { hash, leaf: indexed.leaf, has_index_room: indexed.has_room, place })
    }

    /// A stage of a batch: what the stages of the index have found says where in the order the member is. Its leaf is asked for.
    #[inline(always)]
    pub fn prefetch_place(&self, order: Tree, indexed: &Key<'_>, member: &[u8]) -> Option<PlaceAhead> {
        let score = f64::from_bits(self.index.peek_indexed(indexed).filter(|_| !is_long(member))?);
        let leaf = self.order.prefetch_leaf(order, &whole_key(score, member))?;
        Some(PlaceAhead { score, leaf })
    }

    /// The stage after it: the record is asked for.
    #[inline(always)]
    pub fn prefetch_in_order(&self, place: PlaceAhead, member: &[u8]) {
        self.order.prefetch_record(place.leaf, &whole_key(place.score, member));
    }

    /// Where a member is, if it has this score.
    fn place(&self, roots: Roots, member: &Key<'_>, score: f64) -> Result<Option<OrderPlace>, OpError> {
        if is_long(member.bytes) {
            return Ok(self.alike(roots, member, score)?.place);
        }
        let key = whole_key(score, member.bytes);
        // Of another member the index may have zero, where this one has the negative zero.
        let of_zero = |value: Stored<'_>| if value.bytes.is_empty() { 0.0 } else { -0.0 };
        let found = retry(|| self.order.look(roots.order, &key, |value| Ok(value.map(of_zero))))?;
        Ok(found.map(|zero| OrderPlace { score: if score == 0.0 { zero } else { score }, key, blob: None }))
    }

    /// Looks for a long member among those that share score, start and hash.
    #[cold]
    fn alike(&self, roots: Roots, member: &Key<'_>, score: f64) -> Result<Alike, OpError> {
        let (first, bytes) = (long_key(score, member.bytes, member.hash, 0), Bytes::Here(member.bytes));
        let bytes = member.large.unwrap_or(&bytes);
        let mut from = Next::From(first.to_vec());
        let mut alike = Alike { place: None, free_number: 0 };
        while let Next::From(bound) = from {
            from = retry(|| {
                self.order.walk_up(roots.order, &bound, |key, value| {
                    let Some(number) = number_among(key, &first) else { return Ok(false) };
                    let Some(blob) = value.blob() else { return Ok(true) };
                    if alike.free_number == number {
                        alike.free_number = (number + 1).min(NUMBER_MAX);
                    }
                    if self.blobs.is_same(&blob, bytes)? {
                        let score = parse(key, value).ok_or_else(malformed)?.score;
                        alike.place = Some(OrderPlace { score, key: key.into(), blob: Some(blob) });
                    }
                    Ok(true)
                })
            })?;
        }
        Ok(alike)
    }

    /// Records of a member with a score below that of a member, and the member's own rank: how many are before it.
    pub fn rank(&self, roots: Roots, found: &Found) -> Result<Option<u64>, OpError> {
        let Some(place) = &found.place else { return Ok(None) };
        retry(|| self.order.rank(roots.order, &place.key)).map(|(rank, _)| Some(rank))
    }

    /// Makes sure of the pages that [`SortedTrees::put`] will change for this score.
    pub fn resolve(&self, roots: Roots, member: &Key<'_>, score: f64) -> Result<(), OpError> {
        self.place(roots, member, score).map(drop)
    }

    /// Gives a member, which has just been looked up, a score that is no NaN: adds it, or moves it. Whether it is new.
    pub fn put(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        member: &Key<'_>,
        found: &Found,
        score: f64,
    ) -> Result<bool, OpError> {
        let Some(old) = &found.place else {
            self.add(scratch, roots, member, found, score)?;
            return Ok(true);
        };
        if sortable(old.score) == sortable(score) {
            return Ok(false);
        }
        match old.blob {
            None => self.put_in_order(scratch, roots, &whole_key(score, member.bytes), whole_value(score))?,
            Some(blob) => self.put_long(scratch, roots, member, score, blob)?,
        }
        let values = (old.score.to_bits(), score.to_bits());
        if !retry(|| self.index.replace_indexed(roots.index, found.hash, values, Some(found.leaf)))? {
            return Err(disagree());
        }
        self.remove_from_order(scratch, roots, &old.key)?;
        Ok(false)
    }

    fn add(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        member: &Key<'_>,
        found: &Found,
        score: f64,
    ) -> Result<(), OpError> {
        let mut hint = Some(found.leaf);
        if !found.has_index_room {
            self.make_index_room(scratch, roots, found.hash)?;
            hint = None;
        }
        match is_long(member.bytes) {
            false => {
                self.put_in_order(scratch, roots, &whole_key(score, member.bytes), whole_value(score))?
            }
            true => self.add_long(scratch, roots, member, score)?,
        }
        match retry(|| self.index.insert_indexed(roots.index, found.hash, score.to_bits(), hint))? {
            true => Ok(()),
            false => Err(disagree()),
        }
    }

    #[cold]
    fn add_long(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        member: &Key<'_>,
        score: f64,
    ) -> Result<(), OpError> {
        let blob = retry(|| member.outside(self.blobs))?;
        let put = self.put_long(scratch, roots, member, score, blob);
        match (&put, member.large) {
            (Ok(()), Some(Bytes::Incoming(incoming))) => incoming.note_used(),
            (Err(_), Some(Bytes::Incoming(_))) | (Ok(()), _) => {}
            (Err(_), _) => self.blobs.discard(&blob),
        }
        put
    }

    fn make_index_room(&self, scratch: &mut Scratch, roots: Roots, hash: u64) -> Result<(), OpError> {
        while !retry(|| self.index.has_index_room(roots.index, hash))? {
            let hash = index_hash(hash);
            retry(|| self.index.make_room(scratch, roots.index, hash, INDEX_RECORD_BYTES))?;
        }
        Ok(())
    }

    /// Refers to a long member by a new key.
    #[cold]
    fn put_long(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        member: &Key<'_>,
        score: f64,
        blob: Blob,
    ) -> Result<(), OpError> {
        let number = self.alike(roots, member, score)?.free_number;
        let mut reference = [0; BLOB_BYTES];
        blob.encode(&mut reference);
        let value = Stored { bytes: &reference, is_outside: true };
        self.put_in_order(scratch, roots, &long_key(score, member.bytes, member.hash, number), value)
    }

    fn put_in_order(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        key: &[u8],
        value: Stored<'_>,
    ) -> Result<(), OpError> {
        while retry(|| self.order.put(roots.order, key, value, &mut None, |_| ()))?.is_none() {
            let bytes = record_bytes(key, value);
            retry(|| self.order.make_room(scratch, roots.order, Seek::Key(key), bytes))?;
        }
        Ok(())
    }

    fn remove_from_order(&self, scratch: &mut Scratch, roots: Roots, key: &[u8]) -> Result<(), OpError> {
        match retry(|| self.order.remove(roots.order, key, &mut None, |_| ()))? {
            Removal::WasAbsent => Err(disagree()),
            Removal::Done { is_sparse } => {
                if is_sparse {
                    // Joining only saves memory: what stands in its way may stay there.
                    let _ = self.order.join_leaves(scratch, roots.order, Seek::Key(key), Joining::Sparse);
                }
                Ok(())
            }
        }
    }

    /// Removes a member that has just been looked up; whether it was there.
    pub fn remove(&self, scratch: &mut Scratch, roots: Roots, found: &Found) -> Result<bool, OpError> {
        let Some(place) = &found.place else { return Ok(false) };
        self.remove_from_order(scratch, roots, &place.key)?;
        let value = place.score.to_bits();
        let removed = retry(|| self.index.remove_indexed(roots.index, found.hash, value, Some(found.leaf)))?;
        let is_sparse = removed.ok_or_else(disagree)?;
        if is_sparse {
            let hash = index_hash(found.hash);
            let _ = self.index.join_leaves(scratch, roots.index, hash, Joining::Sparse);
        }
        if let Some(blob) = &place.blob {
            self.blobs.discard(blob);
        }
        Ok(true)
    }
}

/// A record of the order that is not what one should be.
#[cold]
pub(super) fn malformed() -> Stop {
    Stop::Damaged("a member of a sorted set is malformed".into())
}

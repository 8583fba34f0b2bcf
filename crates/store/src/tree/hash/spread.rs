//! Dividing the records of neighbouring leaves anew: sharing, splitting and merging are one operation.

use super::leaf::{finest_shift, shift_is_good, Leaf, LeafBuilder, LeafMut};
use super::record::Record;
use super::shape::SLOT_BYTES;
use crate::page::*;
use crate::tree::order::TARGETS_MAX;

/// The exact hash of a record's key.
pub(crate) type HashOf<'a> = &'a dyn Fn(&Record<'_>) -> u64;

/// How the records of some neighbouring leaves are divided among `target_count` leaves.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub target_count: usize,
    /// Least hash of each target; the first is that of the first source.
    lows: [u64; TARGETS_MAX],
    /// First record of each target: source and slot.
    starts: [(usize, usize); TARGETS_MAX + 1],
    /// Bytes of records and slots that each target gets.
    bytes: [usize; TARGETS_MAX],
    hi: u64,
}

impl Plan {
    /// Divides the sources' records (neighbours in order, no chains) evenly by bytes. `None` if fingerprints
    /// do not allow it: too many keys look alike, or there are too few of them.
    pub fn even(sources: &[Leaf<'_>], target_count: usize) -> Option<Plan> {
        debug_assert!((1..=TARGETS_MAX).contains(&target_count));
        // Damaged nodes may have neighbours that are none.
        let are_neighbours = sources
            .windows(2)
            .all(|pair| pair[0].tag() == pair[1].tag() && pair[0].hi().checked_add(1) == Some(pair[1].lo()));
        are_neighbours.then_some(())?;
        let total_bytes: usize = sources.iter().map(|leaf| leaf.live_bytes()).sum();
        let mut plan = Plan {
            target_count,
            lows: [sources.first()?.lo(); TARGETS_MAX],
            starts: [(0, 0); TARGETS_MAX + 1],
            bytes: [0; TARGETS_MAX],
            hi: sources.last()?.hi(),
        };
        let (mut target, mut bytes_before, mut previous) = (0, 0, None);
        for (s, leaf) in sources.iter().enumerate() {
            for i in 0..leaf.count() {
                let (least, bytes) = (leaf.least_hash(i), leaf.record_bytes(i) + SLOT_BYTES);
                if least > leaf.hi() {
                    return None;
                }
                let due = total_bytes * (target + 1) / target_count;
                let apart = previous.is_some_and(|p| p < least);
                if target + 1 < target_count && bytes_before + bytes / 2 >= due && apart {
                    target += 1;
                    plan.lows[target] = least;
                    plan.starts[target] = (s, i);
                }
                plan.bytes[target] += bytes;
                bytes_before += bytes;
                previous = Some(least);
            }
        }
        plan.starts[target_count] = (sources.len(), 0);
        let fits = plan.bytes[..target_count].iter().all(|b| *b <= super::leaf::CAPACITY_BYTES);
        // Fingerprints of a leaf that nobody wrote like this may be out of order.
        let ascends = plan.lows[..target_count].is_sorted() && plan.lows[target_count - 1] <= plan.hi;
        (target + 1 == target_count && fits && ascends).then_some(plan)
    }

    /// Least hash of a target.
    pub fn lo(&self, target: usize) -> u64 {
        self.lows[target]
    }

    /// Greatest hash of a target, inclusive.
    pub fn hi(&self, target: usize) -> u64 {
        if target + 1 < self.target_count {
            self.lows[target + 1] - 1
        } else {
            self.hi
        }
    }

    /// Bytes that remain free where a key of this hash will belong.
    pub fn free_bytes_for(&self, hash: u64) -> usize {
        let target = self.lows[..self.target_count].partition_point(|lo| *lo <= hash).max(1) - 1;
        super::leaf::CAPACITY_BYTES - self.bytes[target]
    }

    /// Fills a target's page from the sources, which must be copies of what was planned with.
    pub fn fill(&self, target: usize, page: &mut Page, sources: &[Leaf<'_>], hash_of: HashOf<'_>) {
        let (lo, hi, tag) = (self.lo(target), self.hi(target), sources[0].tag());
        let finest = finest_shift(lo, hi);
        let shift = sources.iter().map(|leaf| leaf.fp_shift()).fold(finest, u8::max);
        let (start, end) = (self.starts[target], self.starts[target + 1]);
        if !shift_is_good(lo, hi, shift) {
            let mut out = LeafMut::init(page, tag, lo, hi, finest);
            for_each_record(sources, start, end, |leaf, i| {
                let fitted = leaf.record(i).is_none_or(|record| out.insert(hash_of(&record), &record));
                assert!(fitted, "the plan has room for every record");
            });
            return;
        }
        let mut out = LeafBuilder::new(page, tag, lo, hi, shift);
        for_each_record(sources, start, end, |leaf, i| {
            let encoded = &leaf.record_tail(i)[..leaf.record_bytes(i)];
            let fitted = out.push((leaf.least_hash(i) >> shift) as u16, encoded);
            assert!(fitted || encoded.is_empty(), "the plan has room for every record");
        });
        out.finish();
    }
}

/// Calls `f` for the records from `start` up to `end`, each given by source and slot.
#[inline(always)]
fn for_each_record(
    sources: &[Leaf<'_>],
    start: (usize, usize),
    end: (usize, usize),
    mut f: impl FnMut(&Leaf<'_>, usize),
) {
    for (s, leaf) in sources.iter().enumerate().take(end.0 + 1).skip(start.0) {
        let from = if s == start.0 { start.1 } else { 0 };
        let to = if s == end.0 { end.1 } else { leaf.count() };
        (from..to).for_each(|i| f(leaf, i));
    }
}

/// Where to cut a leaf that fingerprints cannot divide, so that a key of `new_hash` fits in: the least hash of
/// the right part, as near to the middle as equal hashes allow. `None` if all keys have the same hash.
pub(crate) fn exact_cut(source: Leaf<'_>, new_hash: u64, hash_of: HashOf<'_>) -> Option<u64> {
    let mut hashes: Vec<u64> =
        (0..source.count()).filter_map(|i| source.record(i)).map(|record| hash_of(&record)).collect();
    hashes.push(new_hash);
    hashes.sort_unstable();
    let middle = hashes.len() / 2;
    let boundary = |i: &usize| hashes[*i - 1] < hashes[*i];
    let below = (1..=middle).rev().find(boundary);
    let above = (middle + 1..hashes.len()).find(boundary);
    let cut = match (below, above) {
        (Some(b), Some(a)) if a - middle < middle - b => a,
        (Some(b), _) => b,
        (None, Some(a)) => a,
        (None, None) => return None,
    };
    Some(hashes[cut])
}

/// Fills a page with the records of `source` whose hashes are in `lo..=hi`. False if they do not fit, which the
/// records of a leaf do unless they overlap.
#[must_use]
pub(crate) fn fill_exact(page: &mut Page, source: Leaf<'_>, lo: u64, hi: u64, hash_of: HashOf<'_>) -> bool {
    let mut out = LeafMut::init(page, source.tag(), lo, hi, finest_shift(lo, hi));
    for record in (0..source.count()).filter_map(|i| source.record(i)) {
        let hash = hash_of(&record);
        if (lo..=hi).contains(&hash) && !out.insert(hash, &record) {
            return false;
        }
    }
    true
}

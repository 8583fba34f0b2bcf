//! Dividing the records of neighbouring leaves anew, by bytes.

use super::leaf::{OrderedLeaf, OrderedLeafMut, CAPACITY_BYTES, KEY_MAX_BYTES, SLOT_BYTES};
use super::node::{common_prefix, prefix_bytes};
use crate::page::Page;
use crate::tree::order::LeafView;

/// A target of a division.
struct Target {
    /// Its first record: source and slot.
    start: (usize, usize),
    /// The least key that belongs there.
    lo: Vec<u8>,
    /// Bytes of bounds, records and slots.
    bytes: usize,
}

pub(crate) struct Plan {
    targets: Vec<Target>,
    hi: Option<Vec<u8>>,
}

/// The shortest key that is above `left` and not above `right`.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    right[..(common_prefix(left, right) + 1).min(right.len())].to_vec()
}

/// A bound above `key` that shares with it what the keys from `first` on do, or nearly so: between such bounds keys leave that out. There is
/// room below it for half as many keys again, if they go on as they have come. `None` if there is none.
fn bound_close_above(first: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let has_room = |at: &usize| {
        let Some(byte) = key.get(*at) else { return false };
        let used = byte.saturating_sub(first.get(*at).copied().unwrap_or(0));
        *byte < u8::MAX && u8::MAX - byte >= used / 2
    };
    let at = (0..=common_prefix(first, key)).rev().find(has_room)?;
    Some([&key[..at], &[u8::MAX]].concat())
}

/// All records of the sources, in order.
fn records<'s>(sources: &'s [OrderedLeaf<'_>]) -> impl Iterator<Item = (usize, usize)> + 's {
    sources.iter().enumerate().flat_map(|(s, leaf)| (0..leaf.count()).map(move |i| (s, i)))
}

impl Plan {
    /// Divides the records evenly. `None` if they are too few, or do not fit.
    pub fn even(sources: &[OrderedLeaf<'_>], target_count: usize) -> Option<Plan> {
        let total: usize = sources.iter().map(|leaf| leaf.live_bytes()).sum();
        let (mut starts, mut seen) = (vec![(0, 0)], 0);
        for (number, (s, i)) in records(sources).enumerate() {
            let bytes = sources[s].record_bytes(i) + SLOT_BYTES;
            let due = total * starts.len() / target_count;
            if number > 0 && starts.len() < target_count && seen + bytes / 2 >= due {
                starts.push((s, i));
            }
            seen += bytes;
        }
        (starts.len() == target_count).then_some(())?;
        Plan::at(sources, &starts)
    }

    /// Divides the records so that targets begin with these.
    pub fn at(sources: &[OrderedLeaf<'_>], starts: &[(usize, usize)]) -> Option<Plan> {
        let mut targets: Vec<Target> = Vec::with_capacity(starts.len());
        let mut previous: Option<(usize, usize)> = None;
        for (s, i) in records(sources) {
            if starts.get(targets.len()) == Some(&(s, i)) || targets.is_empty() {
                let lo = match previous {
                    None => sources[0].lo().to_vec(),
                    Some((s_before, i_before)) => {
                        separator(&sources[s_before].key(i_before), &sources[s].key(i))
                    }
                };
                targets.push(Target { start: (s, i), lo, bytes: 0 });
            }
            previous = Some((s, i));
        }
        if targets.is_empty() {
            targets.push(Target { start: (0, 0), lo: sources[0].lo().to_vec(), bytes: 0 });
        }
        let hi = sources.last()?.hi().map(<[u8]>::to_vec);
        Plan { targets, hi }.measured(sources).filter(|plan| plan.targets.len() == starts.len())
    }

    /// The plan with the bytes of its targets, if everything fits, and the bounds ascend: records of a leaf that somebody has
    /// made up may be in any order.
    fn measured(mut self, sources: &[OrderedLeaf<'_>]) -> Option<Plan> {
        // Damaged nodes may have neighbours that are none.
        let are_neighbours = sources
            .windows(2)
            .all(|pair| pair[0].tag() == pair[1].tag() && pair[0].hi() == Some(pair[1].lo()));
        are_neighbours.then_some(())?;
        for target in 0..self.targets.len() {
            let is_above = self.hi(target).is_none_or(|hi| self.lo(target) < hi);
            self.targets[target].bytes = self.bytes_of(target, sources).filter(|_| is_above)?;
        }
        self.targets.iter().all(|target| target.bytes <= CAPACITY_BYTES).then_some(self)
    }

    /// Divides a leaf where a run of new keys has come to `slot` with this one: what is before is left as full as it is, or,
    /// where that has room again without the rest, or between closer bounds, goes on. `None` if nothing is before.
    pub fn of_run(source: OrderedLeaf<'_>, slot: usize, key: &[u8], need_bytes: usize) -> Option<Plan> {
        let before = source.key(slot.checked_sub(1)?);
        let divided = |lo: Vec<u8>| {
            let first = Target { start: (0, 0), lo: source.lo().to_vec(), bytes: 0 };
            let targets = vec![first, Target { start: (0, slot), lo, bytes: 0 }];
            Plan { targets, hi: source.hi().map(<[u8]>::to_vec) }.measured(&[source])
        };
        let next = (slot < source.count()).then(|| source.key(slot));
        let is_below = |bound: &Vec<u8>| {
            next.as_ref().is_none_or(|next| bound <= next) && source.hi().is_none_or(|hi| &bound[..] < hi)
        };
        let close = bound_close_above(&source.key(0), key).filter(is_below);
        let goes_on = close.or_else(|| next.as_ref().map(|next| separator(key, next))).and_then(divided);
        let has_room = |plan: &Plan| plan.free_bytes(0) >= need_bytes.max(CAPACITY_BYTES / 4);
        goes_on.filter(has_room).or_else(|| divided(separator(&before, key)))
    }

    pub fn target_count(&self) -> usize {
        self.targets.len()
    }

    pub fn lo(&self, target: usize) -> &[u8] {
        &self.targets[target].lo
    }

    fn hi(&self, target: usize) -> Option<&[u8]> {
        self.targets.get(target + 1).map(|next| &next.lo[..]).or(self.hi.as_deref())
    }

    /// The records that a target gets.
    fn records_of<'s>(
        &self,
        target: usize,
        sources: &'s [OrderedLeaf<'_>],
    ) -> impl Iterator<Item = (usize, usize)> + 's {
        let start = self.targets[target].start;
        let end = self.targets.get(target + 1).map_or((sources.len(), 0), |next| next.start);
        (start.0..sources.len().min(end.0 + 1)).flat_map(move |s| {
            let first = if s == start.0 { start.1 } else { 0 };
            let last = if s == end.0 { end.1 } else { sources[s].count() };
            (first..last).map(move |i| (s, i))
        })
    }

    /// `None` if a record is malformed, or its key can be none of this target's.
    fn bytes_of(&self, target: usize, sources: &[OrderedLeaf<'_>]) -> Option<usize> {
        let (lo, hi) = (self.lo(target), self.hi(target));
        let prefix_bytes = prefix_bytes(lo, hi);
        let record = |(s, i): (usize, usize)| {
            let (tail, value) = sources[s].record(i)?;
            let key_bytes = sources[s].prefix().len() + tail.len();
            let is_key = (prefix_bytes..=KEY_MAX_BYTES).contains(&key_bytes);
            is_key.then(|| SLOT_BYTES + value.record_bytes(key_bytes - prefix_bytes))
        };
        let records: Option<usize> = self.records_of(target, sources).map(record).sum();
        Some(lo.len() + hi.map_or(0, <[u8]>::len) + records?)
    }

    /// The target of a key.
    pub fn target_of(&self, key: &[u8]) -> usize {
        self.targets.partition_point(|target| target.lo[..] <= *key).max(1) - 1
    }

    /// Bytes that remain free in a target.
    pub fn free_bytes(&self, target: usize) -> usize {
        CAPACITY_BYTES - self.targets[target].bytes
    }

    /// Fills a target's page from the sources, which must be copies of what was planned with.
    pub fn fill(&self, target: usize, page: &mut Page, sources: &[OrderedLeaf<'_>]) {
        let mut out = OrderedLeafMut::init(page, sources[0].tag(), self.lo(target), self.hi(target));
        let mut key = [0; KEY_MAX_BYTES];
        let mut source = None;
        for (index, (s, i)) in self.records_of(target, sources).enumerate() {
            let (leaf, prefix_bytes) = (sources[s], sources[s].prefix().len());
            // Both have been found to be so by the plan.
            let Some((tail, value)) = leaf.record(i) else { continue };
            let Some(place) = key.get_mut(..prefix_bytes + tail.len()) else { continue };
            if source.replace(s) != Some(s) {
                place[..prefix_bytes].copy_from_slice(leaf.prefix());
            }
            place[prefix_bytes..].copy_from_slice(tail);
            let fitted = out.insert(index.min(out.leaf().count()), place, value);
            debug_assert!(fitted, "the plan has room for every record");
        }
    }
}

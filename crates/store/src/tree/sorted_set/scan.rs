//! Iterating with a cursor: members by their hashes, so that one that is there throughout is given once, however its score
//! changes meanwhile.
//!
//! The index says which hashes come next, and their scores; members with these scores are looked through in the order for
//! the hashes. Where many have one score that is much for a few members: a step gives more of them then.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::bounds::{Ranking, ScoreBound};
use super::trees::{Roots, SortedTrees};
use crate::blobs::Given;
use crate::error::OpError;
use crate::stop::retry;
use crate::tree::hash::{index_hash, INDEX_HASH_SHIFT};

/// Cursors are hashes as the index has them, and 1 more than the last.
const CURSOR_MAX: u64 = u64::MAX >> INDEX_HASH_SHIFT;
/// Members that are looked through for each that is given, at most.
const LOOKED_THROUGH_MAX: u64 = 64;

/// A member as the index knows it: its hash, and the bits of its score.
type Pair = (u64, u64);

impl SortedTrees<'_> {
    /// One step of an iteration: gives about `count` members to `f`; the next cursor, 0 at the end.
    ///
    /// # Errors
    /// A page is missing or damaged; what has been given does not count.
    pub fn scan(
        &self,
        roots: Roots,
        cursor: u64,
        count: u64,
        mut f: impl FnMut(Given<'_>, f64),
    ) -> Result<u64, OpError> {
        if cursor > CURSOR_MAX {
            return Ok(0);
        }
        let (mut pairs, mut next) = self.pairs_from(roots, cursor, count)?;
        let groups = self.groups(roots, &pairs)?;
        let largest = groups.iter().map(|group| group.end - group.start).max().unwrap_or(0);
        if largest / LOOKED_THROUGH_MAX > pairs.len() as u64 {
            (pairs, next) = self.pairs_from(roots, cursor, largest / LOOKED_THROUGH_MAX)?;
        }
        let wanted: BTreeSet<Pair> = pairs.iter().copied().collect();
        for group in self.groups(roots, &pairs)? {
            self.give_range(roots, group, false, |member, score| {
                let member = member.held();
                let hash = index_hash(self.index.order.hash(member));
                if wanted.contains(&(hash, score.to_bits())) {
                    f(Given::Here(member), score);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(next)
    }

    /// At least `count` pairs from a cursor on, if there are so many, and the cursor after them.
    fn pairs_from(&self, roots: Roots, cursor: u64, count: u64) -> Result<(Vec<Pair>, u64), OpError> {
        let (mut pairs, mut from) = (Vec::new(), Some(cursor << INDEX_HASH_SHIFT));
        while let Some(hash) = from.filter(|_| (pairs.len() as u64) < count) {
            from = retry(|| self.index.walk_index(roots.index, hash, &mut pairs))?;
        }
        pairs.sort_unstable();
        // A leaf has more than one step wants; those with one hash stay together.
        let last =
            usize::try_from(count.max(1) - 1).ok().and_then(|index| pairs.get(index)).map(|pair| pair.0);
        let end = last.map_or(pairs.len(), |last| pairs.partition_point(|pair| pair.0 <= last));
        let is_at_end = end == pairs.len() && from.is_none();
        pairs.truncate(end);
        let next = match (is_at_end, pairs.last()) {
            (true, _) | (_, None) => 0,
            (false, Some((hash, _))) => (hash >> INDEX_HASH_SHIFT) + 1,
        };
        Ok((pairs, if next > CURSOR_MAX { 0 } else { next }))
    }

    /// The ranks of all members that have one of these scores.
    fn groups(&self, roots: Roots, pairs: &[Pair]) -> Result<Vec<std::ops::Range<u64>>, OpError> {
        // Zero and negative zero are one group.
        let scores: BTreeSet<u64> =
            pairs.iter().map(|pair| (f64::from_bits(pair.1) + 0.0).to_bits()).collect();
        let group = |bits: u64| {
            let score = ScoreBound::Included(f64::from_bits(bits));
            self.ranks(roots).ranks_by_score(score, score)
        };
        scores.into_iter().map(group).collect()
    }
}

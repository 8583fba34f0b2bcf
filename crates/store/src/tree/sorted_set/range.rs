//! Members by rank: every range, by score or by name, is one of ranks.

use std::ops::{ControlFlow, Range};

use super::bounds::{Ranking, ScoreStart};
use super::key::{hash_in, parse, Member, SCORE_BYTES};
use super::trees::{disagree, malformed, MetMember, Roots, SortedTrees};
use crate::blobs::{Blob, Given};
use crate::error::{Fault, OpError};
use crate::stop::{retry, Stop};
use crate::tree::ordered::{Next, Seek, Stored};
use crate::tree::trees::Scratch;

/// Members of a leaf, at least, as a rule.
const MEMBERS_A_LEAF: u64 = 64;
/// Leaves that are brought in together ahead of a walk.
const AHEAD_LEAVES_MAX: usize = 1024;

/// Members of one leaf, copied, so that nothing is latched while they are looked at.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    members: Vec<Copied>,
}

struct Copied {
    score: f64,
    /// Where its bytes end in the batch; they begin where those before it end.
    end: usize,
    /// Where they lie, if they are not in the batch, and the member's hash.
    long: Option<(Blob, Option<u64>)>,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.members.clear();
    }

    fn push(&mut self, key: &[u8], value: Stored<'_>) -> Result<(), Stop> {
        let scored = parse(key, value).ok_or_else(malformed)?;
        let long = match scored.member {
            Member::Whole(bytes) => {
                self.bytes.extend_from_slice(bytes);
                None
            }
            Member::Long(blob) => Some((blob, hash_in(key))),
        };
        self.members.push(Copied { score: scored.score, end: self.bytes.len(), long });
        Ok(())
    }
}

/// Where a walk goes on.
enum Position {
    Rank(u64),
    Bound(Vec<u8>),
}

impl Position {
    /// Where a walk through these ranks begins.
    fn first_of(ranks: &Range<u64>, is_downwards: bool) -> Position {
        Position::Rank(if is_downwards { ranks.end.saturating_sub(1) } else { ranks.start })
    }

    /// Where it goes on behind a key.
    fn behind(mut key: Vec<u8>, is_downwards: bool) -> Position {
        if !is_downwards {
            key.push(0);
        }
        Position::Bound(key)
    }
}

/// A long member that a walk has met.
struct MetLong {
    key: Vec<u8>,
    blob: Blob,
    score: f64,
}

impl SortedTrees<'_> {
    /// Gives `f` the members of these ranks, which the set has, with their scores, the greatest first if `is_downwards`, until it
    /// says no.
    ///
    /// # Errors
    /// Those of `f`; a page is missing or damaged; there are fewer members than ranks.
    pub fn range(
        &self,
        roots: Roots,
        ranks: Range<u64>,
        is_downwards: bool,
        mut f: impl FnMut(MetMember<'_>) -> Result<bool, OpError>,
    ) -> Result<(), OpError> {
        let mut batch = Batch::default();
        let mut left = ranks.end.saturating_sub(ranks.start);
        let mut position = Position::first_of(&ranks, is_downwards);
        while left > 0 {
            let next = self
                .next_batch(roots, &position, is_downwards, left, &mut batch)
                .map_err(|error| self.with_leaves_ahead(error, roots, &position, is_downwards, left))?;
            if !self.give(&batch, &mut f)? {
                return Ok(());
            }
            left = left.saturating_sub(batch.members.len() as u64);
            match next {
                Next::From(bound) => position = Position::Bound(bound),
                // Before as many as the nodes count.
                Next::End if left > 0 => return Err(disagree()),
                Next::End => {}
            }
        }
        Ok(())
    }

    /// As of [`SortedTrees::range`], without copies: `f` is called under a leaf's latch, and must not use the store.
    ///
    /// # Errors
    /// A page is missing or damaged; there are fewer members than ranks.
    pub fn give_range(
        &self,
        roots: Roots,
        ranks: Range<u64>,
        is_downwards: bool,
        mut f: impl FnMut(Given<'_>, f64) -> ControlFlow<()>,
    ) -> Result<(), OpError> {
        let mut left = ranks.end.saturating_sub(ranks.start);
        let mut position = Position::first_of(&ranks, is_downwards);
        let (mut bytes, mut flow) = (Vec::new(), ControlFlow::Continue(()));
        while left > 0 && flow.is_continue() {
            let mut long = None;
            // What has been given is not given again: a leaf that is latched is gone through to its end.
            let walked = self.walk(roots, &position, is_downwards, |key, value| {
                let scored = parse(key, value).ok_or_else(malformed)?;
                left -= 1;
                match scored.member {
                    Member::Whole(member) => flow = f(Given::Here(member), scored.score),
                    // Its bytes are other pages, which are not looked at under the latch.
                    Member::Long(blob) => {
                        long = Some(MetLong { key: key.to_vec(), blob, score: scored.score });
                    }
                }
                Ok(left > 0 && long.is_none() && flow.is_continue())
            });
            let next = walked
                .map_err(|error| self.with_leaves_ahead(error, roots, &position, is_downwards, left))?;
            position = match (long, next) {
                (Some(met), _) => {
                    let mut give = |member: Given<'_>| f(member, met.score);
                    let given = retry(|| self.blobs.give(&met.blob, self.taking, &mut bytes, &mut give));
                    flow =
                        given.map_err(|error| self.with_long_ahead(error, roots, &met.key, is_downwards))?;
                    Position::behind(met.key, is_downwards)
                }
                (None, Next::From(bound)) => Position::Bound(bound),
                (None, Next::End) if left > 0 && flow.is_continue() => return Err(disagree()),
                (None, Next::End) => return Ok(()),
            };
        }
        Ok(())
    }

    /// An error of a walk, with what it is going to need after a page that is missing.
    #[cold]
    fn with_leaves_ahead(
        &self,
        error: OpError,
        roots: Roots,
        position: &Position,
        is_downwards: bool,
        left: u64,
    ) -> OpError {
        match error {
            OpError::Fault(fault) => {
                OpError::Fault(fault.and(self.ahead(roots, position, is_downwards, left)))
            }
            other => other,
        }
    }

    /// An error of a walk at a long member, with what those that follow it in its leaf lack.
    #[cold]
    fn with_long_ahead(&self, error: OpError, roots: Roots, key: &[u8], is_downwards: bool) -> OpError {
        let OpError::Fault(fault) = error else { return error };
        let (position, mut missing) = (Position::behind(key.to_vec(), is_downwards), Vec::new());
        // What stands in the way is met again.
        let _ = self.walk(roots, &position, is_downwards, |key, value| {
            if let Some(Member::Long(blob)) = parse(key, value).map(|scored| scored.member) {
                self.blobs.resolve_element(&blob, &mut missing);
            }
            Ok(true)
        });
        OpError::Fault(fault.and(Fault::of(missing)))
    }

    /// Gives `take` the records of the leaf that a walk has got to, until it says no; where it goes on.
    #[inline(always)]
    fn walk(
        &self,
        roots: Roots,
        position: &Position,
        is_downwards: bool,
        mut take: impl FnMut(&[u8], Stored<'_>) -> Result<bool, Stop>,
    ) -> Result<Next, OpError> {
        retry(|| match (position, is_downwards) {
            (Position::Rank(rank), false) => self.order.walk_up_from(roots.order, *rank, &mut take),
            (Position::Rank(rank), true) => self.order.walk_down_from(roots.order, *rank, &mut take),
            (Position::Bound(bound), false) => self.order.walk_up(roots.order, bound, &mut take),
            (Position::Bound(bound), true) => self.order.walk_down(roots.order, Some(bound), &mut take),
        })
    }

    /// The leaves that a walk is going to need, as far as they have one parent.
    #[cold]
    fn ahead(&self, roots: Roots, position: &Position, is_downwards: bool, left: u64) -> Fault {
        let Position::Bound(bound) = position else { return Fault::of(Vec::new()) };
        let count = usize::try_from(left / MEMBERS_A_LEAF).unwrap_or(usize::MAX).min(AHEAD_LEAVES_MAX) + 1;
        let seek = if is_downwards { Seek::Below(bound) } else { Seek::Key(bound) };
        let count = self.order.pages.ahead_pages(count);
        // What stands in the way is met again.
        let mut leaves = self.order.leaves_ahead(roots.order, seek, !is_downwards, count).unwrap_or_default();
        leaves.retain(|leaf| !self.order.pool.is_resident(*leaf));
        Fault::of(leaves)
    }

    /// Copies the members of the leaf that a walk has got to, at most `most` of them; where it goes on.
    fn next_batch(
        &self,
        roots: Roots,
        position: &Position,
        is_downwards: bool,
        most: u64,
        batch: &mut Batch,
    ) -> Result<Next, OpError> {
        batch.clear();
        self.walk(roots, position, is_downwards, |key, value| {
            batch.push(key, value)?;
            Ok((batch.members.len() as u64) < most)
        })
    }

    fn give(
        &self,
        batch: &Batch,
        f: &mut impl FnMut(MetMember<'_>) -> Result<bool, OpError>,
    ) -> Result<bool, OpError> {
        let (mut start, mut long) = (0, Vec::new());
        for member in &batch.members {
            let mut met = |given: Given<'_>, hash| f(MetMember { member: given, score: member.score, hash });
            let goes_on = match &member.long {
                None => met(Given::Here(&batch.bytes[start..member.end]), None),
                Some((blob, hash)) => {
                    retry(|| self.blobs.give(blob, self.taking, &mut long, |given| met(given, *hash)))?
                }
            };
            start = member.end;
            if !goes_on? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the members of these ranks and gives them to `f`; how many were removed. The caller has looked each of them up, so
    /// that no page is missing.
    pub fn remove_range(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        ranks: Range<u64>,
        mut f: impl FnMut(Given<'_>, f64),
    ) -> Result<u64, OpError> {
        let (mut batch, mut removed_count) = (Batch::default(), 0);
        let count = ranks.end.saturating_sub(ranks.start);
        while removed_count < count {
            let position = Position::Rank(ranks.start);
            self.next_batch(roots, &position, false, count - removed_count, &mut batch)?;
            let before = removed_count;
            self.give(&batch, &mut |met| {
                let found = self.find_met(roots, &met)?;
                removed_count += u64::from(self.remove(scratch, roots, &found)?);
                f(met.member, met.score);
                Ok(true)
            })?;
            if removed_count == before {
                return Err(disagree());
            }
        }
        Ok(removed_count)
    }
}

/// The members of one set.
pub(crate) struct Ranks<'a> {
    trees: SortedTrees<'a>,
    roots: Roots,
}

impl<'a> SortedTrees<'a> {
    /// The members of one set, for their ranks.
    pub fn ranks(self, roots: Roots) -> Ranks<'a> {
        Ranks { trees: self, roots }
    }
}

impl Ranking for Ranks<'_> {
    type Error = OpError;

    fn rank(&self, key: &[u8]) -> Result<u64, OpError> {
        retry(|| self.trees.order.rank(self.roots.order, key)).map(|(below, _)| below)
    }

    fn end_scores(&self) -> Result<Option<(ScoreStart, ScoreStart)>, OpError> {
        let (order, root) = (self.trees.order, self.roots.order);
        let (mut least, mut greatest) = (None, None);
        let score_of = |key: &[u8]| key.first_chunk::<SCORE_BYTES>().copied().ok_or_else(malformed);
        retry(|| {
            order.walk_up_from(root, 0, |key, _| {
                least = Some(score_of(key)?);
                Ok(false)
            })
        })?;
        let mut take = |key: &[u8], _: Stored<'_>| {
            greatest = Some(score_of(key)?);
            Ok(false)
        };
        let mut next = retry(|| order.walk_down_from(root, u64::MAX, &mut take))?;
        // The last leaf may be empty until it is joined with its neighbour. A walk that has given one ends.
        while let Next::From(below) = next {
            next = retry(|| order.walk_down(root, Some(&below), &mut take))?;
        }
        Ok(least.zip(greatest))
    }
}

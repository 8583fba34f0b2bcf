//! Members by rank: every range, by score or by name, is one of ranks.

use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;

use super::key::{parse, sortable, Member, SCORE_BYTES, START_BYTES};
use super::trees::{disagree, malformed, Roots, SortedTrees};
use crate::blobs::Blob;
use crate::error::{Fault, OpError};
use crate::stop::{retry, Stop};
use crate::tree::ordered::{Next, Seek, Stored, KEY_MAX_BYTES};
use crate::tree::trees::Scratch;

/// Members of a leaf, at least, as a rule.
const MEMBERS_A_LEAF: u64 = 64;
/// Leaves that are brought in together ahead of a walk.
const AHEAD_LEAVES_MAX: usize = 1024;

/// An end of a range of scores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoreBound {
    Included(f64),
    Excluded(f64),
}

/// An end of a range of members that have one score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LexBound<'a> {
    /// Below all members.
    Min,
    /// Above all members.
    Max,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl ScoreBound {
    /// The least key that is not below a range that begins here.
    fn start(self) -> [u8; SCORE_BYTES] {
        match self {
            ScoreBound::Included(score) => sortable(score).to_be_bytes(),
            // No score is the greatest of these numbers.
            ScoreBound::Excluded(score) => (sortable(score) + 1).to_be_bytes(),
        }
    }

    /// The least key that is above a range that ends here.
    fn end(self) -> [u8; SCORE_BYTES] {
        match self {
            ScoreBound::Included(score) => ScoreBound::Excluded(score).start(),
            ScoreBound::Excluded(score) => ScoreBound::Included(score).start(),
        }
    }
}

type Bound = SmallVec<[u8; 64]>;

/// The least key that is not below a member of this score; with `is_after`, the least above it.
fn member_bound(score: [u8; SCORE_BYTES], member: &[u8], is_after: bool) -> Bound {
    let mut key = Bound::from_slice(&score);
    key.extend_from_slice(&member[..member.len().min(START_BYTES)]);
    match is_after {
        // Long members that begin alike are not told apart.
        true if member.len() >= START_BYTES => key.resize(KEY_MAX_BYTES, 0xff),
        true => key.push(0),
        false => {}
    }
    key
}

impl LexBound<'_> {
    /// The least key that is not below a range that begins here, among members of a score.
    fn start(self, score: [u8; SCORE_BYTES]) -> Bound {
        match self {
            LexBound::Min => Bound::from_slice(&score),
            LexBound::Max => after_score(score),
            LexBound::Included(member) => member_bound(score, member, false),
            LexBound::Excluded(member) => member_bound(score, member, true),
        }
    }

    /// The least key that is above a range that ends here.
    fn end(self, score: [u8; SCORE_BYTES]) -> Bound {
        match self {
            LexBound::Included(member) => LexBound::Excluded(member).start(score),
            LexBound::Excluded(member) => LexBound::Included(member).start(score),
            other => other.start(score),
        }
    }
}

fn after_score(score: [u8; SCORE_BYTES]) -> Bound {
    Bound::from_slice(&u64::from_be_bytes(score).saturating_add(1).to_be_bytes())
}

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
    /// Where they lie, if they are not in the batch.
    blob: Option<Blob>,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.members.clear();
    }

    fn push(&mut self, key: &[u8], value: Stored<'_>) -> Result<(), Stop> {
        let scored = parse(key, value).ok_or_else(malformed)?;
        let blob = match scored.member {
            Member::Whole(bytes) => {
                self.bytes.extend_from_slice(bytes);
                None
            }
            Member::Long(blob) => Some(blob),
        };
        self.members.push(Copied { score: scored.score, end: self.bytes.len(), blob });
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
    /// Gives `f` the members of these ranks, with their scores, the greatest first if `is_downwards`, until it says no.
    ///
    /// # Errors
    /// Those of `f`; a page is missing or damaged.
    pub fn range(
        &self,
        roots: Roots,
        ranks: Range<u64>,
        is_downwards: bool,
        mut f: impl FnMut(&[u8], f64) -> Result<bool, OpError>,
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
                Next::End => return Ok(()),
            }
        }
        Ok(())
    }

    /// As of [`SortedTrees::range`], without copies: `f` is called under a leaf's latch, and must not use the store.
    ///
    /// # Errors
    /// A page is missing or damaged.
    pub fn give_range(
        &self,
        roots: Roots,
        ranks: Range<u64>,
        is_downwards: bool,
        mut f: impl FnMut(&[u8], f64) -> ControlFlow<()>,
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
                    Member::Whole(member) => flow = f(member, scored.score),
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
                    bytes.clear();
                    retry(|| self.blobs.read(&met.blob, &mut bytes))?;
                    flow = f(&bytes, met.score);
                    Position::behind(met.key, is_downwards)
                }
                (None, Next::From(bound)) => Position::Bound(bound),
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
        f: &mut impl FnMut(&[u8], f64) -> Result<bool, OpError>,
    ) -> Result<bool, OpError> {
        let (mut start, mut long) = (0, Vec::new());
        for member in &batch.members {
            let bytes = match &member.blob {
                None => &batch.bytes[start..member.end],
                Some(blob) => {
                    retry(|| {
                        long.clear();
                        self.blobs.read(blob, &mut long)
                    })?;
                    &long
                }
            };
            start = member.end;
            if !f(bytes, member.score)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The ranks of the members whose scores are between two bounds.
    pub fn ranks_by_score(
        &self,
        roots: Roots,
        min: ScoreBound,
        max: ScoreBound,
    ) -> Result<Range<u64>, OpError> {
        self.ranks_between(roots, &min.start(), &max.end())
    }

    /// The ranks of the members between two others, if all have one score. If they have not, those with the least score are
    /// compared with `min` alone, and those with the greatest with `max`.
    pub fn ranks_by_lex(
        &self,
        roots: Roots,
        min: LexBound<'_>,
        max: LexBound<'_>,
    ) -> Result<Range<u64>, OpError> {
        let (mut least, mut greatest) = (None, None);
        let score_of = |key: &[u8]| key.first_chunk::<SCORE_BYTES>().copied().ok_or_else(malformed);
        retry(|| {
            self.order.walk_up_from(roots.order, 0, |key, _| {
                least = Some(score_of(key)?);
                Ok(false)
            })
        })?;
        retry(|| {
            self.order.walk_down_from(roots.order, u64::MAX, |key, _| {
                greatest = Some(score_of(key)?);
                Ok(false)
            })
        })?;
        match (least, greatest) {
            (Some(least), Some(greatest)) => self.ranks_between(roots, &min.start(least), &max.end(greatest)),
            _ => Ok(0..0),
        }
    }

    fn ranks_between(&self, roots: Roots, start: &[u8], end: &[u8]) -> Result<Range<u64>, OpError> {
        if start >= end {
            return Ok(0..0);
        }
        let (first, _) = retry(|| self.order.rank(roots.order, start))?;
        let (last, _) = retry(|| self.order.rank(roots.order, end))?;
        Ok(first..last.max(first))
    }

    /// Removes the members of these ranks and gives them to `f`; how many were removed. All pages are made sure of before
    /// the first is removed.
    pub fn remove_range(
        &self,
        scratch: &mut Scratch,
        roots: Roots,
        ranks: Range<u64>,
        mut f: impl FnMut(&[u8], f64),
    ) -> Result<u64, OpError> {
        if !self.index.pages.all_resident() {
            self.range(roots, ranks.clone(), false, |member, _| self.find(roots, member).map(|_| true))?;
        }
        let (mut batch, mut removed_count) = (Batch::default(), 0);
        let count = ranks.end.saturating_sub(ranks.start);
        while removed_count < count {
            let position = Position::Rank(ranks.start);
            self.next_batch(roots, &position, false, count - removed_count, &mut batch)?;
            let before = removed_count;
            self.give(&batch, &mut |member, score| {
                let found = self.find(roots, member)?;
                removed_count += u64::from(self.remove(scratch, roots, &found)?);
                f(member, score);
                Ok(true)
            })?;
            if removed_count == before {
                return Err(disagree());
            }
        }
        Ok(removed_count)
    }
}

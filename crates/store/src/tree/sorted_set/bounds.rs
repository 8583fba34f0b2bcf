//! Bounds as keys of the order, and the ranks of the members between two, whoever reads the pages.

use std::ops::Range;

use smallvec::SmallVec;

use super::key::{sortable, SCORE_BYTES, START_BYTES};
use crate::tree::ordered::KEY_MAX_BYTES;

/// What the keys of all members with a score begin with.
pub(super) type ScoreStart = [u8; SCORE_BYTES];

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
    pub(crate) fn is_nan(self) -> bool {
        let (ScoreBound::Included(score) | ScoreBound::Excluded(score)) = self;
        score.is_nan()
    }

    /// The least key that is not below a range that begins here.
    fn start(self) -> ScoreStart {
        match self {
            ScoreBound::Included(score) => sortable(score).to_be_bytes(),
            // No score is the greatest of these numbers; what is no number may be.
            ScoreBound::Excluded(score) => sortable(score).saturating_add(1).to_be_bytes(),
        }
    }

    /// The least key that is above a range that ends here.
    fn end(self) -> ScoreStart {
        match self {
            ScoreBound::Included(score) => ScoreBound::Excluded(score).start(),
            ScoreBound::Excluded(score) => ScoreBound::Included(score).start(),
        }
    }
}

type Bound = SmallVec<[u8; 64]>;

/// The least key that is not below a member of this score; with `is_after`, the least above it.
fn member_bound(score: ScoreStart, member: &[u8], is_after: bool) -> Bound {
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

impl<'a> LexBound<'a> {
    /// The member that it is at, if it is at one.
    pub(crate) fn name(self) -> Option<&'a [u8]> {
        match self {
            LexBound::Min | LexBound::Max => None,
            LexBound::Included(member) | LexBound::Excluded(member) => Some(member),
        }
    }

    /// The same at another member, if it is at one.
    pub(crate) fn with_name<'n>(self, member: &'n [u8]) -> LexBound<'n> {
        match self {
            LexBound::Min => LexBound::Min,
            LexBound::Max => LexBound::Max,
            LexBound::Included(_) => LexBound::Included(member),
            LexBound::Excluded(_) => LexBound::Excluded(member),
        }
    }

    /// The least key that is not below a range that begins here, among members of a score.
    fn start(self, score: ScoreStart) -> Bound {
        match self {
            LexBound::Min => Bound::from_slice(&score),
            LexBound::Max => after_score(score),
            LexBound::Included(member) => member_bound(score, member, false),
            LexBound::Excluded(member) => member_bound(score, member, true),
        }
    }

    /// The least key that is above a range that ends here.
    fn end(self, score: ScoreStart) -> Bound {
        match self {
            LexBound::Included(member) => LexBound::Excluded(member).start(score),
            LexBound::Excluded(member) => LexBound::Included(member).start(score),
            other => other.start(score),
        }
    }
}

fn after_score(score: ScoreStart) -> Bound {
    Bound::from_slice(&u64::from_be_bytes(score).saturating_add(1).to_be_bytes())
}

/// The members of a sorted set, in the order of their keys.
pub(crate) trait Ranking {
    type Error;

    /// Members with a key below this one.
    fn rank(&self, key: &[u8]) -> Result<u64, Self::Error>;

    /// The scores of the first member and of the last; `None` if there are none.
    fn end_scores(&self) -> Result<Option<(ScoreStart, ScoreStart)>, Self::Error>;

    /// The ranks of the members whose scores are between two bounds.
    fn ranks_by_score(&self, min: ScoreBound, max: ScoreBound) -> Result<Range<u64>, Self::Error> {
        self.ranks_between(&min.start(), &max.end())
    }

    /// The ranks of the members between two others, if all have one score. If they have not, those with the least score are
    /// compared with `min` alone, and those with the greatest with `max`.
    fn ranks_by_lex(&self, min: LexBound<'_>, max: LexBound<'_>) -> Result<Range<u64>, Self::Error> {
        match self.end_scores()? {
            Some((least, greatest)) => self.ranks_between(&min.start(least), &max.end(greatest)),
            None => Ok(0..0),
        }
    }

    fn ranks_between(&self, start: &[u8], end: &[u8]) -> Result<Range<u64>, Self::Error> {
        if start >= end {
            return Ok(0..0);
        }
        let first = self.rank(start)?;
        Ok(first..self.rank(end)?.max(first))
    }
}

//! Which members an operation is about: by rank, by score or by name. All of them come to ranks.

use std::ops::Range;

use super::packed::{self, Scored};
use crate::error::OpError;
use crate::tree::sorted_set::{LexBound, Ranking, ScoreBound};

/// Members of a sorted set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoredRange<'a> {
    /// From one place to another, both included, in the direction of the walk. Negative ones count from the end: -1 is the last.
    Ranks {
        first: i64,
        last: i64,
    },
    Scores {
        min: ScoreBound,
        max: ScoreBound,
    },
    /// By name, if all have one score.
    Lex {
        min: LexBound<'a>,
        max: LexBound<'a>,
    },
}

impl ScoredRange<'_> {
    pub const ALL: ScoredRange<'static> = ScoredRange::Ranks { first: 0, last: -1 };

    /// # Errors
    /// [`OpError::NotANumber`]: a bound is no score.
    pub(super) fn check(&self) -> Result<(), OpError> {
        match self {
            ScoredRange::Scores { min, max } if min.is_nan() || max.is_nan() => Err(OpError::NotANumber),
            _ => Ok(()),
        }
    }
}

/// A range that owns its names, for who outlives the words of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnedRange {
    /// Without the names.
    range: ScoredRange<'static>,
    names: [Vec<u8>; 2],
}

impl From<&ScoredRange<'_>> for OwnedRange {
    fn from(range: &ScoredRange<'_>) -> OwnedRange {
        let mut names = [Vec::new(), Vec::new()];
        let range = match *range {
            ScoredRange::Ranks { first, last } => ScoredRange::Ranks { first, last },
            ScoredRange::Scores { min, max } => ScoredRange::Scores { min, max },
            ScoredRange::Lex { min, max } => {
                names = [min, max].map(|bound| bound.name().unwrap_or_default().to_vec());
                ScoredRange::Lex { min: min.with_name(&[]), max: max.with_name(&[]) }
            }
        };
        OwnedRange { range, names }
    }
}

impl OwnedRange {
    pub fn as_range(&self) -> ScoredRange<'_> {
        let [low, high] = &self.names;
        match self.range {
            ScoredRange::Lex { min, max } => {
                ScoredRange::Lex { min: min.with_name(low), max: max.with_name(high) }
            }
            other => other,
        }
    }
}

/// The part of a range that is wanted, in the direction of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeLimit {
    pub skipped: u64,
    pub most: u64,
}

impl RangeLimit {
    pub const NONE: RangeLimit = RangeLimit { skipped: 0, most: u64::MAX };

    fn apply(self, ranks: Range<u64>, is_downwards: bool) -> Range<u64> {
        let left = (ranks.end.saturating_sub(ranks.start)).saturating_sub(self.skipped);
        let count = left.min(self.most);
        match is_downwards {
            false => {
                let start = ranks.end.max(ranks.start) - left;
                start..start + count
            }
            true => {
                let end = ranks.start + left;
                end - count..end
            }
        }
    }
}

/// Places among so many, as ranks.
fn ranks_of_places(first: i64, last: i64, count: u64, is_downwards: bool) -> Range<u64> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let from_start = |place: i64| if place < 0 { place.saturating_add(count) } else { place };
    let (first, last) = (from_start(first).max(0), from_start(last).min(count - 1));
    if first > last {
        return 0..0;
    }
    match is_downwards {
        false => first as u64..last as u64 + 1,
        true => (count - 1 - last) as u64..(count - first) as u64,
    }
}

fn is_above(score: f64, min: ScoreBound) -> bool {
    match min {
        ScoreBound::Included(min) => score >= min,
        ScoreBound::Excluded(min) => score > min,
    }
}

fn is_below(score: f64, max: ScoreBound) -> bool {
    match max {
        ScoreBound::Included(max) => score <= max,
        ScoreBound::Excluded(max) => score < max,
    }
}

fn is_after(member: &[u8], min: LexBound<'_>) -> bool {
    match min {
        LexBound::Min => true,
        LexBound::Max => false,
        LexBound::Included(min) => member >= min,
        LexBound::Excluded(min) => member > min,
    }
}

fn is_before(member: &[u8], max: LexBound<'_>) -> bool {
    match max {
        LexBound::Min => false,
        LexBound::Max => true,
        LexBound::Included(max) => member <= max,
        LexBound::Excluded(max) => member < max,
    }
}

/// Whether no member can be in the range, whatever the members are.
fn is_empty_lex(min: LexBound<'_>, max: LexBound<'_>) -> bool {
    let bytes = |bound| match bound {
        LexBound::Included(bytes) => Some((bytes, true)),
        LexBound::Excluded(bytes) => Some((bytes, false)),
        LexBound::Min | LexBound::Max => None,
    };
    match (bytes(min), bytes(max)) {
        (Some((low, is_low_in)), Some((high, is_high_in))) => {
            low > high || low == high && !(is_low_in && is_high_in)
        }
        _ => min == LexBound::Max || max == LexBound::Min || min == max && min == LexBound::Min,
    }
}

/// Places of members that are compared one after the other from one end, as Redis does in a small set: where scores differ,
/// members that are compared by name are in no order.
fn ranks_met<'m>(
    members: &[Scored<'m>],
    is_downwards: bool,
    is_above: impl Fn(&Scored<'m>) -> bool,
    is_below: impl Fn(&Scored<'m>) -> bool,
) -> Range<u64> {
    let count = members.len();
    if is_downwards {
        let Some(last) = members.iter().rposition(&is_below) else { return 0..0 };
        let start =
            members[..=last].iter().rposition(|scored| !is_above(scored)).map_or(0, |before| before + 1);
        return start as u64..last as u64 + 1;
    }
    let Some(first) = members.iter().position(&is_above) else { return 0..0 };
    let end =
        members[first..].iter().position(|scored| !is_below(scored)).map_or(count, |after| first + after);
    first as u64..end as u64
}

impl ScoredRange<'_> {
    /// The ranks of a range of packed members.
    pub(super) fn ranks_in(
        &self,
        members: &[Scored<'_>],
        is_downwards: bool,
        limit: RangeLimit,
    ) -> Range<u64> {
        let ranks = match *self {
            ScoredRange::Ranks { first, last } => {
                ranks_of_places(first, last, members.len() as u64, is_downwards)
            }
            ScoredRange::Scores { min, max } => {
                let first = members.partition_point(|scored| !is_above(scored.score, min));
                let end = members.partition_point(|scored| is_below(scored.score, max));
                first as u64..end.max(first) as u64
            }
            ScoredRange::Lex { min, max } if is_empty_lex(min, max) => 0..0,
            ScoredRange::Lex { min, max } => {
                let (first, last) = (members.first(), members.last());
                let may_be = last.is_some_and(|last| is_after(last.member, min))
                    && first.is_some_and(|first| is_before(first.member, max));
                let above = |scored: &Scored<'_>| is_after(scored.member, min);
                match may_be {
                    true => ranks_met(members, is_downwards, above, |scored| is_before(scored.member, max)),
                    false => 0..0,
                }
            }
        };
        limit.apply(ranks, is_downwards)
    }

    /// The same of a packed sorted set.
    pub(in crate::types) fn ranks_in_run(
        &self,
        run: &[u8],
        is_downwards: bool,
        limit: RangeLimit,
    ) -> Range<u64> {
        let members = packed::all(run);
        self.ranks_in(&members, is_downwards, limit)
    }

    /// The ranks of a range of a large sorted set, which has so many members.
    pub(in crate::types) fn ranks_of<R: Ranking>(
        &self,
        order: &R,
        count: u64,
        is_downwards: bool,
        limit: RangeLimit,
    ) -> Result<Range<u64>, R::Error> {
        let ranks = match *self {
            ScoredRange::Ranks { first, last } => ranks_of_places(first, last, count, is_downwards),
            ScoredRange::Scores { min, max } => order.ranks_by_score(min, max)?,
            ScoredRange::Lex { min, max } if is_empty_lex(min, max) => 0..0,
            ScoredRange::Lex { min, max } => order.ranks_by_lex(min, max)?,
        };
        Ok(limit.apply(ranks, is_downwards))
    }
}

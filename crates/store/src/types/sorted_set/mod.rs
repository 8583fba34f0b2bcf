//! Sorted sets: members with scores. A small one is a run of members and scores in order; a large one is two trees
//! ([`crate::tree::sorted_set`]).

mod change;
mod kind;
mod packed;
mod place;
mod range;
mod read;
mod replace;
mod viewed;

use std::ops::ControlFlow;

pub use change::{NegativeZero, ScoreChanges, ScoreRule};
pub use place::Rank;
pub use range::{OwnedRange, RangeLimit, ScoredRange};

pub(in crate::types) use kind::SortedSets;

use smallvec::SmallVec;

use self::place::at;
use crate::blobs::{Bytes, Given};
use crate::keyspace::{elements, CollectionKey};
use crate::worker::Worker;
use crate::{DbId, Key, OpError};

/// # Errors
/// [`OpError::NotANumber`]: no order has a place for it.
#[inline]
fn check_scores(mut scores: impl Iterator<Item = f64>) -> Result<(), OpError> {
    match scores.any(f64::is_nan) {
        true => Err(OpError::NotANumber),
        false => Ok(()),
    }
}

/// The sorted set at a key, for operations of one worker: each is an operation of its own.
pub struct SortedSetAt<'w, 'k> {
    worker: &'w mut Worker,
    at: CollectionKey<'k>,
}

impl Worker {
    /// The sorted set at a key, whether there is one or not.
    #[inline]
    pub fn sorted_set_at<'k>(&mut self, db: DbId, key: &Key<'k>) -> SortedSetAt<'_, 'k> {
        SortedSetAt { worker: self, at: at(db, key) }
    }
}

#[allow(clippy::len_without_is_empty, reason = "a length is an operation, which may miss pages")]
impl SortedSetAt<'_, '_> {
    /// Gives members scores, as the rule says, in a sorted set that is made if there is none.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`], [`OpError::NotANumber`] among them; nothing has been changed. Whether there is memory for several together is decided before the first.
    pub fn put<'b>(
        &mut self,
        scored: &[(f64, impl Into<Bytes<'b>> + Copy)],
        rule: &ScoreRule,
    ) -> Result<ScoreChanges, OpError> {
        let at = self.at;
        let scored: SmallVec<[(f64, Bytes<'_>); 2]> =
            scored.iter().map(|(score, member)| (*score, (*member).into())).collect();
        check_scores(scored.iter().map(|(score, _)| *score))?;
        elements::check_given(self.worker.keyspace(), scored.iter().map(|(_, member)| member))?;
        self.worker.with_run(|op, run| change::put(op, &at, &scored, rule, run))
    }

    /// Removes members; with the last one the key goes. Returns how many were there.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed.
    pub fn remove<'b>(&mut self, members: &[impl Into<Bytes<'b>> + Copy]) -> Result<u64, OpError> {
        let at = self.at;
        let members: SmallVec<[_; 2]> = members.iter().map(|member| (*member).into()).collect();
        self.worker.with_run(|op, run| change::remove(op, &at, &members, run))
    }

    /// Removes the members of a range and gives them to `f`, the greatest first if `is_downwards`; `begin` is told before how
    /// many. Returns how many, or `None` if there is no such sorted set.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`]; nothing has been changed, and what was given does not count.
    #[allow(clippy::too_many_arguments)]
    pub fn remove_range(
        &mut self,
        range: &ScoredRange<'_>,
        is_downwards: bool,
        limit: RangeLimit,
        mut f: impl FnMut(&[u8], f64),
    ) -> Result<Option<u64>, OpError> {
        let at = self.at;
        range.check()?;
        let mut give = |member: Given<'_>, score| f(member.held(), score);
        self.worker
            .with_run(|op, run| change::remove_range(op, &at, range, is_downwards, limit, &mut give, run))
    }

    /// The same for a caller that takes large members where they lie: their pages are freed once the last byte has been read.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// As of [`SortedSetAt::remove_range`].
    #[allow(clippy::too_many_arguments)]
    pub fn send_removed(
        &mut self,
        range: &ScoredRange<'_>,
        is_downwards: bool,
        limit: RangeLimit,
        mut f: impl FnMut(Given<'_>, f64),
    ) -> Result<Option<u64>, OpError> {
        let at = self.at;
        range.check()?;
        self.worker
            .with_run_taking(|op, run| change::remove_range(op, &at, range, is_downwards, limit, &mut f, run))
    }

    /// Gives `f` the score of each member, by the member's index, or `None`. Whether the sorted set is there.
    ///
    /// # Errors
    /// [`OpError`]; what `f` was given does not count then.
    pub fn scores<'m>(
        &mut self,
        members: impl Iterator<Item = impl Into<Bytes<'m>>> + Clone,
        mut f: impl FnMut(usize, Option<f64>),
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run(|op, run| read::scores(op, &at, members.clone(), &mut f, run))
    }

    /// A member's place, counted from the greatest if `is_downwards`; and whether the sorted set is there.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn rank<'b>(
        &mut self,
        member: impl Into<Bytes<'b>>,
        is_downwards: bool,
    ) -> Result<(bool, Option<Rank>), OpError> {
        let at = self.at;
        let member = member.into();
        self.worker.with_run(|op, run| read::rank(op, &at, &member, is_downwards, run))
    }

    /// Members of a sorted set; 0 if there is none.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn len(&mut self) -> Result<u64, OpError> {
        Ok(self.count(&ScoredRange::ALL)?.unwrap_or(0))
    }

    /// Members of a range; `None` if there is no such sorted set.
    ///
    /// # Errors
    /// [`OpError`].
    pub fn count(&mut self, range: &ScoredRange<'_>) -> Result<Option<u64>, OpError> {
        let at = self.at;
        range.check()?;
        self.worker.with_run(|op, run| read::count(op, &at, range, run))
    }

    /// Gives the members of a range to `f`, the greatest first if `is_downwards`, after how many there are to `begin`, until
    /// `f` breaks. Whether the sorted set is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    #[allow(clippy::too_many_arguments)]
    pub fn range(
        &mut self,
        range: &ScoredRange<'_>,
        is_downwards: bool,
        limit: RangeLimit,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        range.check()?;
        let mut give = |member: Given<'_>, score| f(member.held(), score);
        self.worker.with_run(|op, run| {
            read::range(op, &at, range, is_downwards, limit, (&mut begin, &mut give), run)
        })
    }

    /// The same for a caller that takes large members where they lie.
    ///
    /// # Errors
    /// As of [`SortedSetAt::range`].
    #[allow(clippy::too_many_arguments)]
    pub fn send_range(
        &mut self,
        range: &ScoredRange<'_>,
        is_downwards: bool,
        limit: RangeLimit,
        mut begin: impl FnMut(u64),
        mut f: impl FnMut(Given<'_>, f64) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        range.check()?;
        self.worker.with_run_taking(|op, run| {
            read::range(op, &at, range, is_downwards, limit, (&mut begin, &mut f), run)
        })
    }

    /// Gives `f` the members that `choose` picks by their ranks, told how many there are, until it breaks. Whether the sorted set
    /// is there.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn pick(
        &mut self,
        mut choose: impl FnMut(u64) -> Vec<u64>,
        mut f: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        let mut give = |member: Given<'_>, score| f(member.held(), score);
        self.worker.with_run(|op, run| read::pick(op, &at, &mut choose, &mut give, run))
    }

    /// The same for a caller that takes large members where they lie.
    ///
    /// # Errors
    /// As of [`SortedSetAt::pick`].
    pub fn send_picked(
        &mut self,
        mut choose: impl FnMut(u64) -> Vec<u64>,
        mut f: impl FnMut(Given<'_>, f64) -> ControlFlow<()>,
    ) -> Result<bool, OpError> {
        let at = self.at;
        self.worker.with_run_taking(|op, run| read::pick(op, &at, &mut choose, &mut f, run))
    }

    /// One step of an iteration: gives about `count` members to `f`; the next cursor, 0 at the end, or `None` if there is no
    /// such sorted set. A member that is there throughout is given once.
    ///
    /// # Errors
    /// [`OpError`]; what was given does not count then.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: u64,
        mut f: impl FnMut(&[u8], f64),
    ) -> Result<Option<u64>, OpError> {
        let at = self.at;
        let step = (cursor, count);
        if !self.worker.waits() {
            let mut give = |member: Given<'_>, score| f(member.held(), score);
            return self.worker.with_run(|op, run| read::scan(op, &at, step, &mut give, run));
        }
        let mut kept: Vec<(Vec<u8>, f64)> = Vec::new();
        let next = self.worker.with_run(|op, run| {
            kept.clear();
            let keep = |member: Given<'_>, score| kept.push((member.held().to_vec(), score));
            read::scan(op, &at, step, keep, run)
        })?;
        kept.iter().for_each(|(member, score)| f(member, *score));
        Ok(next)
    }

    /// Stores a sorted set of these members, no two of them alike, over whatever is there, without a deadline. Without members the
    /// key goes.
    /// Durable from the next checkpoint on ([`Store`](crate::Store#durability)).
    ///
    /// # Errors
    /// [`OpError`], [`OpError::NotANumber`] and [`OpError::Twice`] among them; nothing has been changed.
    pub fn replace(&mut self, members: &mut [(Vec<u8>, f64)]) -> Result<(), OpError> {
        let at = self.at;
        if members.is_empty() {
            return self.worker.remove(at.db, &at.key).map(drop);
        }
        check_scores(members.iter().map(|(_, score)| *score))?;
        self.worker.with_run(|op, run| replace::replace(op, &at, members, run))
    }
}

//! Members that get scores, and members that are removed.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::packed::{self, Scored};
use super::place::{grown, roots};
use super::range::{RangeLimit, ScoredRange};
use crate::blobs::{Bytes, Given, Sending, Taking};
use crate::effect::{Change, Effect};
use crate::keyspace::{collections, elements, CollectionKey, Keyspace, Missed, Op, Opened, Rest};
use crate::tree::hash::Grown;
use crate::tree::sorted_set::Roots;
use crate::types::packed::PACKED_MAX_BYTES;
use crate::value::Encoding;
use crate::{Deadline, OpError};

/// What becomes of a score that is the negative zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NegativeZero {
    /// Zero, as long as the sorted set has Redis's small encoding: that has none.
    #[default]
    AsAdded,
    /// Zero if the sorted set has that encoding with all of the members.
    AsLoaded,
    /// It stays: another server has it in its small encoding.
    Kept,
}

/// Which members get their scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScoreRule {
    /// Those that are not there.
    pub only_new: bool,
    /// Those that are there.
    pub only_present: bool,
    /// Of those that are there, those whose score rises.
    pub only_greater: bool,
    /// Of those that are there, those whose score falls.
    pub only_less: bool,
    /// The scores are added to those that are there.
    pub adds: bool,
    pub negative_zero: NegativeZero,
}

/// What has become of members that were given scores.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ScoreChanges {
    pub added: u64,
    /// Those whose score is another one now.
    pub updated: u64,
    /// The score of the last member, unless the rule left it out.
    pub score: Option<f64>,
    /// A sum would be no number: nothing has been changed.
    pub is_nan: bool,
}

/// What a rule makes of a member.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Decision {
    LeftOut,
    Nan,
    /// It has this score already.
    Same(f64),
    Set(f64),
}

impl ScoreRule {
    fn decide(&self, old: Option<f64>, given: f64) -> Decision {
        let Some(old) = old else {
            return if self.only_present { Decision::LeftOut } else { Decision::Set(given) };
        };
        if self.only_new {
            return Decision::LeftOut;
        }
        let score = if self.adds { old + given } else { given };
        if score.is_nan() {
            Decision::Nan
        } else if self.only_less && score >= old || self.only_greater && score <= old {
            Decision::LeftOut
        } else if score == old {
            Decision::Same(score)
        } else {
            Decision::Set(score)
        }
    }
}

/// A member that has been given, kept.
pub(super) enum Kept {
    Here(Vec<u8>),
    Large(Sending),
}

impl Kept {
    pub fn of(member: Given<'_>) -> Kept {
        match member {
            Given::Here(member) => Kept::Here(member.to_vec()),
            Given::Large(member) => Kept::Large(member),
        }
    }

    fn as_bytes(&self) -> Bytes<'_> {
        match self {
            Kept::Here(member) => Bytes::Here(member),
            Kept::Large(member) => Bytes::Stored(member),
        }
    }
}

/// Members that have changed, by their places among those given, and their scores.
type Changed = SmallVec<[(usize, f64); 4]>;

/// What a sorted set is called, member by member.
pub(super) struct Naming {
    pub encoding: Encoding,
    len: u64,
    most_members: u64,
    most_bytes: u64,
    keeps_negative_zero: bool,
}

impl Naming {
    fn keeping(mut self, rule: &ScoreRule, scored: &[(f64, Bytes<'_>)]) -> Naming {
        self.keeps_negative_zero = match rule.negative_zero {
            NegativeZero::AsAdded => false,
            NegativeZero::AsLoaded => {
                self.len + scored.len() as u64 > self.most_members
                    || scored.iter().any(|(_, member)| member.len() > self.most_bytes)
            }
            NegativeZero::Kept => true,
        };
        self
    }

    /// A member gets a score; as it is kept: in Redis's small encoding there comes to be no negative zero.
    pub fn take(&mut self, member_bytes: u64, score: f64, is_new: bool) -> f64 {
        self.len += u64::from(is_new);
        if is_new && (self.len > self.most_members || member_bytes > self.most_bytes) {
            self.encoding = Encoding::SkipList;
        }
        match self.encoding {
            Encoding::ListPack if !self.keeps_negative_zero => score + 0.0,
            _ => score,
        }
    }
}

/// How far an operation has got.
struct Progress {
    changes: ScoreChanges,
    changed: Changed,
    naming: Naming,
}

impl Progress {
    fn new(naming: Naming) -> Progress {
        Progress { changes: ScoreChanges::default(), changed: Changed::new(), naming }
    }

    /// Counts a decision in; the score that the member is to be given, if it is.
    fn count(&mut self, decision: Decision, member: &Bytes<'_>, is_new: bool) -> Option<f64> {
        self.changes.score = match decision {
            Decision::LeftOut | Decision::Nan => None,
            Decision::Same(score) | Decision::Set(score) => Some(score),
        };
        let Decision::Set(score) = decision else { return None };
        match is_new {
            true => self.changes.added += 1,
            false => self.changes.updated += 1,
        }
        Some(self.naming.take(member.len(), score, is_new))
    }
}

pub(super) fn put(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    scored: &[(f64, Bytes<'_>)],
    rule: &ScoreRule,
    run: &mut Vec<u8>,
) -> Result<ScoreChanges, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let opened = collections::open_to_change(op, at, run)?;
    match opened.as_ref().and_then(|opened| Some((opened, opened.grown?))) {
        Some((opened, grown)) => put_grown(op, at, opened, grown, scored, rule),
        None => put_packed(op, at, opened.as_ref(), scored, rule, run),
    }
}

fn put_packed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    scored: &[(f64, Bytes<'_>)],
    rule: &ScoreRule,
    run: &mut Vec<u8>,
) -> Result<ScoreChanges, OpError> {
    let most_bytes: usize = scored.iter().map(|(_, member)| packed::most_bytes_of(member)).sum();
    if run.len() + most_bytes > PACKED_MAX_BYTES {
        return grow(op, at, opened, scored, rule, run);
    }
    let mut progress = Progress::new(naming(op.keyspace, opened, packed::len(run)).keeping(rule, scored));
    for (index, (given, member)) in scored.iter().enumerate() {
        // None of so few bytes lie in pages.
        let name = member.here().unwrap_or_default();
        let old = packed::find(run, name).map(|found| found.score);
        let decision = rule.decide(old, *given);
        if decision == Decision::Nan {
            return Ok(ScoreChanges { is_nan: true, ..ScoreChanges::default() });
        }
        if let Some(score) = progress.count(decision, member, old.is_none()) {
            packed::put(run, name, score);
            progress.changed.push((index, score));
        }
    }
    if !progress.changed.is_empty() {
        collections::put_packed(op, at, progress.naming.encoding, None, run, Deadline::Keep)?;
        announce_scores(op, at, opened.is_none(), scored, &progress.changed);
    }
    Ok(progress.changes)
}

/// What a sorted set that has so many members is called.
pub(super) fn naming(keyspace: &Keyspace, opened: Option<&Opened>, len: u64) -> Naming {
    Naming {
        encoding: opened.map_or(Encoding::ListPack, |opened| opened.encoding),
        len,
        most_members: keyspace.limits.sorted_set_entries() as u64,
        most_bytes: keyspace.limits.sorted_set_value_bytes() as u64,
        keeps_negative_zero: false,
    }
}

/// Makes trees of a packed sorted set, or of none, and gives the members their scores there.
fn grow(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    scored: &[(f64, Bytes<'_>)],
    rule: &ScoreRule,
    run: &[u8],
) -> Result<ScoreChanges, OpError> {
    let old = packed::members(run).map(|scored| scored.member.len());
    collections::resolve_stored(
        op.keyspace,
        old.chain(scored.iter().map(|(_, member)| member.unstored_bytes())),
    )?;
    let roots = create_trees(op.keyspace)?;
    let give_up = |_: &OpError| collections::drop_trees(op.keyspace, &grown(roots, 0));
    let mut packed = packed::members(run);
    let moved =
        packed.try_for_each(|scored| put_one(op, roots, &scored.member.into(), scored.score).map(drop));
    moved.inspect_err(give_up)?;
    let before = packed::len(run);
    let mut progress = Progress::new(naming(op.keyspace, opened, before).keeping(rule, scored));
    fill(op, roots, scored, rule, &mut progress).inspect_err(give_up)?;
    let Progress { changes, changed, naming } = progress;
    if changed.is_empty() || changes.is_nan {
        collections::drop_trees(op.keyspace, &grown(roots, 0));
        return Ok(changes);
    }
    let trees = grown(roots, before + changes.added);
    collections::put_grown(op, at, naming.encoding, None, trees, Deadline::Keep)?;
    announce_scores(op, at, opened.is_none(), scored, &changed);
    Ok(changes)
}

pub(super) fn create_trees(keyspace: &Keyspace) -> Result<Roots, OpError> {
    let tags = (keyspace.take_tag(), keyspace.take_tag());
    keyspace.sorted().create(tags, |root| keyspace.garbage.push_tree(&keyspace.pool, root))
}

/// Gives a member a score; whether it is new.
pub(super) fn put_one(
    op: &mut Op<'_>,
    roots: Roots,
    member: &Bytes<'_>,
    score: f64,
) -> Result<bool, OpError> {
    let member = elements::hashed_bytes(op, member)?;
    let found = op.keyspace.sorted().find_hashed(roots, &member)?;
    op.keyspace.sorted().put(&mut op.local.scratch, roots, &member, &found, score)
}

/// Gives members their scores as the rule says. What has been set counts, too, if it ends with an error.
fn fill(
    op: &mut Op<'_>,
    roots: Roots,
    scored: &[(f64, Bytes<'_>)],
    rule: &ScoreRule,
    progress: &mut Progress,
) -> Result<(), OpError> {
    let trees = op.keyspace.sorted();
    for (index, (given, member)) in scored.iter().enumerate() {
        let name = elements::hashed_bytes(op, member)?;
        let found = trees.find_hashed(roots, &name)?;
        let decision = rule.decide(found.score(), *given);
        if decision == Decision::Nan {
            progress.changes.is_nan = true;
            return Ok(());
        }
        let before = progress.changes;
        if let Some(score) = progress.count(decision, member, found.score().is_none()) {
            let has_begun = !progress.changed.is_empty();
            collections::step_of_many(op, has_begun, |op| {
                trees.put(&mut op.local.scratch, roots, &name, &found, score)
            })
            .inspect_err(|_| progress.changes = before)?;
            progress.changed.push((index, score));
        }
    }
    Ok(())
}

fn put_grown(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    trees: Grown,
    scored: &[(f64, Bytes<'_>)],
    rule: &ScoreRule,
) -> Result<ScoreChanges, OpError> {
    let roots = roots(&trees)?;
    // Nothing that is missing is met after the first change (C1).
    if !op.keyspace.pages.all_resident() {
        let mut missed = Missed::default();
        for (given, member) in scored {
            let name = elements::hashed_bytes(op, member)?;
            let Some(found) = missed.look(op.keyspace.sorted().find_hashed(roots, &name))? else { continue };
            if let Decision::Set(score) = rule.decide(found.score(), *given) {
                missed.look(op.keyspace.sorted().resolve(roots, &name, score))?;
            }
        }
        missed.end()?;
        collections::resolve_stored(op.keyspace, scored.iter().map(|(_, member)| member.unstored_bytes()))?;
    }
    if rule.adds && scored.len() > 1 && sums_are_nan(op, roots, scored, rule)? {
        return Ok(ScoreChanges { is_nan: true, ..ScoreChanges::default() });
    }
    let lengths = scored.iter().map(|(_, member)| member.unstored_bytes());
    let _admitted = collections::admit_elements(op.keyspace, scored.len(), lengths)?;
    let mut progress =
        Progress::new(naming(op.keyspace, Some(opened), trees.element_count).keeping(rule, scored));
    let filled = fill(op, roots, scored, rule, &mut progress);
    let Progress { changes, changed, naming } = progress;
    if changed.is_empty() {
        return filled.map(|()| changes);
    }
    let (encoding, mut noted) = (naming.encoding, Ok(()));
    if changes.added > 0 || encoding != opened.encoding {
        let len = trees.element_count + changes.added;
        let opened = Opened { encoding, grown: Some(grown(roots, len)), ..*opened };
        noted = collections::set_grown(op, at, &opened);
    }
    announce_scores(op, at, false, scored, &changed);
    filled.and(noted).map(|()| changes)
}

/// Whether scores that are added, one after the other, would come to one that is no number.
#[cold]
fn sums_are_nan(
    op: &Op<'_>,
    roots: Roots,
    scored: &[(f64, Bytes<'_>)],
    rule: &ScoreRule,
) -> Result<bool, OpError> {
    // Of names that lie in pages none is twice the same to this: a sum of two scores of one is met later.
    let mut scores: HashMap<&[u8], Option<f64>> = HashMap::with_capacity(scored.len());
    for (given, member) in scored {
        let before = match member.here().and_then(|name| scores.get(name)) {
            Some(score) => *score,
            None => op.keyspace.sorted().find_hashed(roots, &elements::hashed_bytes(op, member)?)?.score(),
        };
        let after = match rule.decide(before, *given) {
            Decision::Nan => return Ok(true),
            Decision::Set(score) => Some(score),
            Decision::Same(_) | Decision::LeftOut => before,
        };
        member.here().map(|name| scores.insert(name, after));
    }
    Ok(false)
}

fn announce_scores(
    op: &Op<'_>,
    at: &CollectionKey<'_>,
    is_new: bool,
    scored: &[(f64, Bytes<'_>)],
    changed: &Changed,
) {
    let mut is_new = is_new;
    for (index, score) in changed {
        if let Some(&(_, member)) = scored.get(*index) {
            let change = Change::Scored { member, score: *score };
            op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
            is_new = false;
        }
    }
}

fn announce_removed(op: &Op<'_>, at: &CollectionKey<'_>, member: Bytes<'_>) {
    let change = Change::ScoredRemoved { member };
    op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
}

pub(super) fn remove(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: &[Bytes<'_>],
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(0) };
    let mut removed: SmallVec<[Bytes<'_>; 4]> = SmallVec::new();
    let mut ended = Ok(());
    match &opened.grown {
        None => {
            let mut remove = |member: &Bytes<'_>| member.here().is_some_and(|name| packed::remove(run, name));
            removed.extend(members.iter().copied().filter(|member| remove(member)));
        }
        Some(trees) => {
            let (sorted, roots) = (op.keyspace.sorted(), roots(trees)?);
            if !op.keyspace.pages.all_resident() {
                let mut missed = Missed::default();
                for member in members {
                    missed.look(sorted.find_hashed(roots, &elements::hashed_bytes(op, member)?))?;
                }
                missed.end()?;
            }
            ended = members.iter().try_for_each(|member| {
                let found = sorted.find_hashed(roots, &elements::hashed_bytes(op, member)?)?;
                if sorted.remove(&mut op.local.scratch, roots, &found)? {
                    removed.push(*member);
                }
                Ok(())
            });
        }
    }
    if removed.is_empty() {
        return ended.map(|()| 0);
    }
    shrunk(op, at, &opened, removed.len() as u64, run, |op| {
        removed.iter().for_each(|member| announce_removed(op, at, *member));
    })?;
    ended.map(|()| removed.len() as u64)
}

/// Puts back what is left after members have been removed, which `tell` announces.
fn shrunk(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    removed_count: u64,
    run: &[u8],
    tell: impl FnOnce(&Op<'_>),
) -> Result<(), OpError> {
    let left = opened
        .grown
        .map_or_else(|| packed::len(run), |trees| trees.element_count.saturating_sub(removed_count));
    let rest = match opened.grown {
        _ if left == 0 => Rest::Nothing,
        None => Rest::Packed { encoding: opened.encoding, earliest: None, run },
        Some(trees) => Rest::Grown(Opened { grown: Some(Grown { element_count: left, ..trees }), ..*opened }),
    };
    collections::put_rest(op, at, rest, tell)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn remove_range(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    range: &ScoredRange<'_>,
    is_downwards: bool,
    limit: RangeLimit,
    mut f: impl FnMut(Given<'_>, f64),
    run: &mut Vec<u8>,
) -> Result<Option<u64>, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(None) };
    let Some(trees) = opened.grown else {
        return remove_packed_range(op, at, &opened, range, (is_downwards, limit), f, run).map(Some);
    };
    let (sorted, roots) = (op.keyspace.sorted_taking(op.local.taking), roots(&trees)?);
    let ranks = range.ranks_of(&sorted.ranks(roots), trees.element_count, is_downwards, limit)?;
    if ranks.end - ranks.start < trees.element_count {
        return remove_ranks(op, at, &opened, roots, ranks, is_downwards, f).map(Some);
    }
    sorted.range(roots, ranks.clone(), is_downwards, |met| {
        f(met.member, met.score);
        Ok(true)
    })?;
    // The trees go with the key, as a whole. Its removal ends what is told, so nothing is wrong if less of them can be read.
    collections::put_rest(op, at, Rest::Nothing, |op| {
        let _ = sorted.range(roots, ranks, is_downwards, |met| {
            announce_removed(op, at, met.member.as_bytes());
            Ok(true)
        });
    })?;
    Ok(Some(trees.element_count))
}

#[allow(clippy::too_many_arguments)]
fn remove_packed_range(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    range: &ScoredRange<'_>,
    (is_downwards, limit): (bool, RangeLimit),
    mut f: impl FnMut(Given<'_>, f64),
    run: &[u8],
) -> Result<u64, OpError> {
    let members = packed::all(run);
    let ranks = range.ranks_in(&members, is_downwards, limit);
    let mut wanted: Vec<&Scored<'_>> = members[ranks.start as usize..ranks.end as usize].iter().collect();
    if is_downwards {
        wanted.reverse();
    }
    if !wanted.is_empty() {
        let mut left = run.to_vec();
        packed::remove_ranks(&mut left, &ranks);
        shrunk(op, at, opened, wanted.len() as u64, &left, |op| {
            wanted.iter().for_each(|scored| announce_removed(op, at, scored.member.into()));
        })?;
    }
    wanted.iter().for_each(|scored| f(Given::Here(scored.member), scored.score));
    Ok(wanted.len() as u64)
}

#[allow(clippy::too_many_arguments)]
fn remove_ranks(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    roots: Roots,
    ranks: std::ops::Range<u64>,
    is_downwards: bool,
    mut f: impl FnMut(Given<'_>, f64),
) -> Result<u64, OpError> {
    if !op.keyspace.pages.all_resident() {
        // Nothing that is missing is met after the first change (C1).
        let (sorted, mut missed) = (op.keyspace.sorted_taking(Taking::Large), Missed::default());
        let walked = sorted.range(roots, ranks.clone(), false, |met| {
            missed.look(sorted.find_met(roots, &met)).map(|_| true)
        });
        missed.look(walked)?;
        missed.end()?;
    }
    let mut removed = Vec::new();
    let note = |member: Given<'_>, score: f64| removed.push((Kept::of(member), score));
    let ended =
        op.keyspace.sorted_taking(op.local.taking).remove_range(&mut op.local.scratch, roots, ranks, note);
    if is_downwards {
        removed.reverse();
    }
    if !removed.is_empty() {
        shrunk(op, at, opened, removed.len() as u64, &[], |op| {
            removed.iter().for_each(|(member, _)| announce_removed(op, at, member.as_bytes()));
        })?;
    }
    for (member, score) in removed {
        match member {
            Kept::Here(member) => f(Given::Here(&member), score),
            Kept::Large(member) => f(Given::Large(member), score),
        }
    }
    ended
}

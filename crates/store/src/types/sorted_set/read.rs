//! What changes nothing.

use std::ops::ControlFlow;

use super::packed::{self, Scored};
use super::place::{roots, Rank};
use super::range::{RangeLimit, ScoredRange};
use crate::blobs::{Bytes, Given};
use crate::keyspace::{collections, elements, CollectionKey, Missed, Op};
use crate::OpError;

pub(super) fn scores<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: impl Iterator<Item = impl Into<Bytes<'m>>>,
    mut f: impl FnMut(usize, Option<f64>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else {
        members.enumerate().for_each(|(index, _)| f(index, None));
        return Ok(false);
    };
    let mut missed = Missed::default();
    for (index, member) in members.enumerate() {
        let member: Bytes<'m> = member.into();
        match &opened.grown {
            None => {
                let found = member.here().and_then(|member| packed::find(run, member));
                f(index, found.map(|scored| scored.score));
            }
            Some(grown) => {
                let member = elements::hashed_bytes(op, &member)?;
                let found = missed.look(op.keyspace.sorted().find_hashed(roots(grown)?, &member))?;
                found.into_iter().for_each(|found| f(index, found.score()));
            }
        }
    }
    missed.end()?;
    Ok(true)
}

pub(super) fn rank(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    member: &Bytes<'_>,
    is_downwards: bool,
    run: &mut Vec<u8>,
) -> Result<(bool, Option<Rank>), OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok((false, None)) };
    let (rank, count) = match &opened.grown {
        None => {
            let place =
                packed::members(run).enumerate().find(|(_, scored)| member.here() == Some(scored.member));
            let rank = place.map(|(rank, scored)| Rank { rank: rank as u64, score: scored.score });
            (rank, packed::len(run))
        }
        Some(grown) => {
            let (trees, roots) = (op.keyspace.sorted(), roots(grown)?);
            let found = trees.find_hashed(roots, &elements::hashed_bytes(op, member)?)?;
            let rank = trees.rank(roots, &found)?.zip(found.score());
            (rank.map(|(rank, score)| Rank { rank, score }), grown.element_count)
        }
    };
    let from_end = |rank: Rank| Rank { rank: (count - 1).saturating_sub(rank.rank), ..rank };
    Ok((true, if is_downwards { rank.map(from_end) } else { rank }))
}

pub(super) fn count(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    range: &ScoredRange<'_>,
    run: &mut Vec<u8>,
) -> Result<Option<u64>, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(None) };
    let ranks = match &opened.grown {
        None => range.ranks_in_run(run, false, RangeLimit::NONE),
        Some(grown) => {
            let order = op.keyspace.sorted().ranks(roots(grown)?);
            range.ranks_of(&order, grown.element_count, false, RangeLimit::NONE)?
        }
    };
    Ok(Some(ranks.end - ranks.start))
}

#[allow(clippy::too_many_arguments)]
pub(super) fn range(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    range: &ScoredRange<'_>,
    is_downwards: bool,
    limit: RangeLimit,
    (begin, mut f): (impl FnOnce(u64), impl FnMut(Given<'_>, f64) -> ControlFlow<()>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    let Some(grown) = &opened.grown else {
        let members = packed::all(run);
        let ranks = range.ranks_in(&members, is_downwards, limit);
        begin(ranks.end - ranks.start);
        let wanted = members[ranks.start as usize..ranks.end as usize].iter();
        let mut give = |scored: &Scored<'_>| f(Given::Here(scored.member), scored.score);
        let _ = match is_downwards {
            false => wanted.into_iter().try_for_each(&mut give),
            true => wanted.rev().try_for_each(&mut give),
        };
        return Ok(true);
    };
    let (trees, roots) = (op.keyspace.sorted_taking(op.local.taking), roots(grown)?);
    let ranks = range.ranks_of(&trees.ranks(roots), grown.element_count, is_downwards, limit)?;
    begin(ranks.end - ranks.start);
    trees.give_range(roots, ranks, is_downwards, f)?;
    Ok(true)
}

pub(super) fn pick(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    choose: impl FnOnce(u64) -> Vec<u64>,
    mut f: impl FnMut(Given<'_>, f64) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    match &opened.grown {
        None => {
            let members = packed::all(run);
            let ranks = choose(members.len() as u64);
            let mut picked = ranks.into_iter().filter_map(|rank| members.get(rank as usize));
            let _ = picked.try_for_each(|scored| f(Given::Here(scored.member), scored.score));
        }
        Some(grown) => {
            let roots = roots(grown)?;
            let (mut missed, mut flow) = (Missed::default(), ControlFlow::Continue(()));
            for rank in choose(grown.element_count) {
                let one = rank..rank.saturating_add(1);
                let given = op.keyspace.sorted_taking(op.local.taking).give_range(
                    roots,
                    one,
                    false,
                    |member, score| {
                        flow = f(member, score);
                        ControlFlow::Break(())
                    },
                );
                missed.look(given)?;
                if flow.is_break() {
                    break;
                }
            }
            missed.end()?;
        }
    }
    Ok(true)
}

pub(super) fn scan(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (cursor, count): (u64, u64),
    mut f: impl FnMut(Given<'_>, f64),
    run: &mut Vec<u8>,
) -> Result<Option<u64>, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(None) };
    match &opened.grown {
        // All at once, as Redis does.
        None => {
            packed::members(run).for_each(|scored| f(Given::Here(scored.member), scored.score));
            Ok(Some(0))
        }
        Some(grown) => op.keyspace.sorted().scan(roots(grown)?, cursor, count, f).map(Some),
    }
}

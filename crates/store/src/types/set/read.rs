//! Members that are looked at, and members drawn at random.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::packed;
use crate::blobs::{Bytes, Given, Taking};
use crate::keyspace::{collections, elements, random, CollectionKey, Draws, Missed, Op, Opened};
use crate::tree::hash::Grown;
use crate::types::hash::Draw;
use crate::types::packed::elements;
use crate::OpError;

/// Of more than one member in so many a large set is walked through, instead of drawing them one by one.
const WALKED_SHARE: u64 = 3;

pub(super) const FEWER_MEMBERS: &str = "a set has fewer members than its key says";

/// Whether so many members of a large set are drawn one by one.
pub(super) fn is_drawn(count: u64, grown: &Grown) -> bool {
    count.saturating_mul(WALKED_SHARE) <= grown.element_count
}

pub(super) fn set_count(opened: &Opened, run: &[u8]) -> u64 {
    opened.grown.map_or_else(|| packed::len(run), |grown| grown.element_count)
}

pub(super) fn contains<'m>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: impl Iterator<Item = impl Into<Bytes<'m>>>,
    mut f: impl FnMut(usize, bool),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else {
        members.enumerate().for_each(|(index, _)| f(index, false));
        return Ok(false);
    };
    let mut missed = Missed::default();
    for (index, member) in members.enumerate() {
        let has = missed.look(has(op, &opened, run, &member.into()))?;
        has.into_iter().for_each(|has| f(index, has));
    }
    missed.end()?;
    Ok(true)
}

pub(super) fn has(op: &Op<'_>, opened: &Opened, run: &[u8], member: &Bytes<'_>) -> Result<bool, OpError> {
    match opened.grown {
        None => Ok(member.here().is_some_and(|member| packed::contains(run, member))),
        Some(grown) => elements::has_element(op.keyspace, grown.first, &elements::hashed_bytes(op, member)?),
    }
}

pub(super) fn len(op: &mut Op<'_>, at: &CollectionKey<'_>, run: &mut Vec<u8>) -> Result<u64, OpError> {
    let opened = collections::open_to_read(op, at, run)?;
    Ok(opened.map_or(0, |(opened, _lock)| set_count(&opened, run)))
}

pub(super) fn for_each(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    begin: impl FnOnce(u64),
    f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    begin(set_count(&opened, run));
    each_member(op, &opened, run, f)?;
    Ok(true)
}

/// Gives all members to `f` until it breaks.
pub(super) fn each_member(
    op: &mut Op<'_>,
    opened: &Opened,
    run: &[u8],
    mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
) -> Result<(), OpError> {
    match opened.grown {
        None => {
            let _ = elements(run).try_for_each(|member| f(Given::Here(member.bytes)));
            Ok(())
        }
        Some(grown) => elements::for_each_element(op, &grown, |member, _, _| f(member)),
    }
}

pub(super) fn scan(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (cursor, count): (u64, usize),
    mut f: impl FnMut(&[u8]),
    run: &mut Vec<u8>,
) -> Result<Option<u64>, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(None) };
    match opened.grown {
        None => {
            elements(run).for_each(|member| f(member.bytes));
            Ok(Some(0))
        }
        Some(grown) => {
            elements::scan_elements(op, grown.first, cursor, count, |member, _| f(member)).map(Some)
        }
    }
}

pub(super) fn random(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    draw: Draw,
    begin: impl FnOnce(u64),
    mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    let len = set_count(&opened, run);
    match (draw, opened.grown) {
        (Draw::Distinct(1), Some(grown)) if len > 0 => {
            begin(1);
            let _ = give_random_member(op, &grown, f)?;
        }
        (Draw::Distinct(count), _) => {
            begin(count.min(len));
            // They are remembered by their bytes.
            op.local.taking = Taking::Bytes;
            let give = |member: &[u8]| f(Given::Here(member));
            draw_members(op, &opened, run, count.min(len), give)?;
        }
        (Draw::Repeated(count), None) => {
            begin(count);
            let all: Vec<&[u8]> = elements(run).map(|member| member.bytes).collect();
            let _ = (0..count).try_for_each(|_| f(Given::Here(all[fastrand::usize(..all.len())])));
        }
        (Draw::Repeated(count), Some(grown)) => {
            begin(count);
            let mut draws = Draws::begin(op.keyspace.pages.all_resident());
            for _ in 0..count {
                let given = draws.next(op, |op| give_random_member(op, &grown, &mut f))?;
                if given.is_some_and(|flow| flow.is_break()) {
                    break;
                }
            }
            draws.end()?;
        }
    }
    Ok(true)
}

/// Gives a member of a large set to `f`.
fn give_random_member(
    op: &mut Op<'_>,
    grown: &Grown,
    mut f: impl FnMut(Given<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, OpError> {
    let drawn = random::give_random_element(op, grown.first, grown.element_count, &mut f)?;
    match drawn {
        Some(flow) => Ok(flow),
        None => match random::element_from_anywhere(op, grown.first)? {
            Some(member) => Ok(f(Given::Here(&member))),
            None => Err(OpError::Damaged(FEWER_MEMBERS.into())),
        },
    }
}

/// A member of a large set.
fn draw_member(op: &mut Op<'_>, grown: &Grown) -> Result<Vec<u8>, OpError> {
    let drawn = match random::random_element(op, grown.first, grown.element_count)? {
        None => random::element_from_anywhere(op, grown.first)?,
        drawn => drawn,
    };
    drawn.ok_or_else(|| OpError::Damaged(FEWER_MEMBERS.into()))
}

/// Gives so many members, none of them twice, of which there are as many, to `f`.
pub(super) fn draw_members(
    op: &mut Op<'_>,
    opened: &Opened,
    run: &[u8],
    count: u64,
    mut f: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), OpError> {
    if let Some(grown) = opened.grown.filter(|grown| is_drawn(count, grown)) {
        let mut drawn = HashSet::with_capacity(count as usize);
        let mut draws = Draws::begin(op.keyspace.pages.all_resident());
        while drawn.len() as u64 + draws.missed_count < count {
            let drawn_now = draws.next(op, |op| draw_member(op, &grown))?;
            let Some(member) = drawn_now else { continue };
            if !drawn.contains(&member) {
                if f(&member).is_break() {
                    break;
                }
                drawn.insert(member);
            }
        }
        return draws.end();
    }
    let mut choice = packed::Choice::new(count, set_count(opened, run));
    each_member(op, opened, run, |member| {
        let member = member.held();
        if choice.is_made() {
            return ControlFlow::Break(());
        }
        if choice.takes_next() {
            f(member)
        } else {
            ControlFlow::Continue(())
        }
    })
}

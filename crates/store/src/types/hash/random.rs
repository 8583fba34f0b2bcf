//! Random fields.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::field::GivenField;
use super::packed::{Fields, Pair};
use super::read::{self, is_live};
use crate::blobs::Given;
use crate::keyspace::{collections, elements, random, CollectionKey, Draws, Op, Opened};
use crate::tree::hash::Grown;
use crate::OpError;

/// Which fields are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draw {
    /// So many, none of them twice, as far as there are.
    Distinct(u64),
    /// So many, each drawn from all.
    Repeated(u64),
}

/// Of more than one field in so many the hash is walked through, instead of drawing them one by one.
const WALKED_SHARE: u64 = 3;
/// The same if the time of more than all but one in so many is over.
const EXPIRED_SHARE: u64 = 8;
/// Fields that are looked at together for one whose time is not over, if draws have met none.
const LOOKED_AT: usize = 64;

const FEWER_FIELDS: &str = "a hash has fewer fields than its key says";

pub(super) fn random(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    draw: Draw,
    begin: impl FnOnce(u64),
    f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    let packed = opened.fields(run);
    match draw {
        Draw::Distinct(count) => {
            let live_count = read::live_count(op, &opened, &packed)?;
            let count = count.min(live_count);
            begin(count);
            draw_distinct(op, &opened, &packed, (count, live_count), f)?;
        }
        Draw::Repeated(count) => {
            let count = if has_live(op, &opened, &packed)? { count } else { 0 };
            begin(count);
            draw_repeated(op, &opened, &packed, count, f)?;
        }
    }
    Ok(true)
}

/// Whether the time of some field is not over. Those of a large hash are not counted for that.
fn has_live(op: &mut Op<'_>, opened: &Opened, packed: &Fields<'_>) -> Result<bool, OpError> {
    let Some(grown) = opened.grown.filter(|_| opened.may_have_expired(op.local.now)) else {
        return Ok(read::live_count(op, opened, packed)? > 0);
    };
    let (now, mut cursor, mut has_live) = (op.local.now, 0, false);
    loop {
        cursor = elements::scan_elements(op, grown.first, cursor, LOOKED_AT, |_, record| {
            has_live |= is_live(record, now);
        })?;
        if has_live || cursor == 0 {
            return Ok(has_live);
        }
    }
}

fn draw_distinct(
    op: &mut Op<'_>,
    opened: &Opened,
    packed: &Fields<'_>,
    (count, live_count): (u64, u64),
    mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
) -> Result<(), OpError> {
    let is_drawn = |grown: &Grown| {
        count.saturating_mul(WALKED_SHARE) <= live_count && grown.element_count / EXPIRED_SHARE <= live_count
    };
    if let Some(grown) = opened.grown.filter(is_drawn) {
        let mut drawn = HashSet::with_capacity(count as usize);
        let mut draws = Draws::begin(op.keyspace.pages.all_resident());
        while drawn.len() as u64 + draws.missed_count < count {
            let drawn_now = draws.next(op, |op| draw_whole(op, grown))?;
            let Some(field) = drawn_now else { continue };
            if !drawn.contains(&field) {
                if give_field(op, grown, &field, &mut f)?.is_break() {
                    break;
                }
                drawn.insert(field);
            }
        }
        return draws.end();
    }
    // Each field is taken with the probability that makes all choices of so many equally likely.
    let (mut wanted, mut left) = (count, live_count);
    read::each_live(op, opened, packed, |field, value, _| {
        if wanted == 0 {
            return ControlFlow::Break(());
        }
        let is_taken = fastrand::u64(..left.max(1)) < wanted;
        left = left.saturating_sub(1);
        if !is_taken {
            return ControlFlow::Continue(());
        }
        wanted -= 1;
        f(GivenField { field, value })
    })
}

fn draw_repeated(
    op: &mut Op<'_>,
    opened: &Opened,
    packed: &Fields<'_>,
    count: u64,
    mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
) -> Result<(), OpError> {
    let now = op.local.now;
    let live: Vec<Pair<'_>> = packed.pairs().filter(|pair| !pair.has_expired(now)).collect();
    let mut draws = Draws::begin(op.keyspace.pages.all_resident());
    for _ in 0..count {
        let flow = match opened.grown {
            None => {
                let pair = &live[fastrand::usize(..live.len())];
                f(GivenField::of(pair))
            }
            Some(grown) => match draws.next(op, |op| draw_whole(op, grown))? {
                Some(field) => give_field(op, grown, &field, &mut f)?,
                None => ControlFlow::Continue(()),
            },
        };
        if flow.is_break() {
            break;
        }
    }
    draws.end()
}

/// A random field, as of [`draw_field`], with its value in memory.
fn draw_whole(op: &mut Op<'_>, grown: Grown) -> Result<Vec<u8>, OpError> {
    let field = draw_field(op, grown)?;
    if !op.keyspace.pages.all_resident() {
        let _ = give_field(op, grown, &field, &mut |_| ControlFlow::Continue(()))?;
    }
    Ok(field)
}

/// A random field whose time is not over, of a hash that has some.
fn draw_field(op: &mut Op<'_>, grown: Grown) -> Result<Vec<u8>, OpError> {
    if let Some(field) = random::random_element(op, grown.first, grown.element_count)? {
        return Ok(field);
    }
    // The time of most of them is over: one of the next from anywhere, round the end.
    let (now, mut live, mut is_round) = (op.local.now, Vec::new(), false);
    let mut cursor = fastrand::u64(..1 << 52);
    loop {
        cursor = elements::scan_elements(op, grown.first, cursor, LOOKED_AT, |field, record| {
            if is_live(record, now) {
                live.push(field.to_vec());
            }
        })?;
        let is_over = cursor == 0 && std::mem::replace(&mut is_round, true);
        match fastrand::choice(std::mem::take(&mut live)) {
            Some(field) => return Ok(field),
            None if is_over => return Err(OpError::Damaged(FEWER_FIELDS.into())),
            None => {}
        }
    }
}

fn give_field(
    op: &mut Op<'_>,
    grown: Grown,
    field: &[u8],
    f: &mut impl FnMut(GivenField<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, OpError> {
    let taking = op.local.taking;
    let given =
        elements::find_element(op.keyspace, grown.first, &elements::hashed(op.keyspace, field), |record| {
            let give = |value: Given<'_>| f(GivenField { field: Given::Here(field), value });
            elements::give_element_value(op.keyspace, record, taking, &mut op.local.bytes, give)
        })?;
    given.ok_or_else(|| OpError::Damaged(FEWER_FIELDS.into()))
}

//! Members that are drawn and removed.
//!
//! ```text
//!   packed        those that are drawn go behind the others, and the record is put back without them
//!   large, one or few      each is drawn from its leaf and removed there
//!   large, up to a third   all are drawn, then removed
//!   large, more            a walk parts those that go from those that stay; if these are few, they become a new set
//! ```

use std::ops::ControlFlow;

use super::packed;
use super::read::{self, is_drawn, set_count, FEWER_MEMBERS};
use super::{change, replace};
use crate::blobs::{Bytes, Given, Sending, Taking};
use crate::keyspace::{collections, random, CollectionKey, Op, Opened};
use crate::types::packed::{elements, push as push_element};
use crate::{Deadline, OpError};

/// What a pop leaves is little if it is not more than one in so many of what goes: Redis makes a new set of it then.
const KEPT_SHARE: u64 = 5;

fn is_little(left: u64, count: u64) -> bool {
    left.saturating_mul(KEPT_SHARE) <= count
}

pub(super) fn pop(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    count: u64,
    begin: impl FnOnce(u64),
    mut f: impl FnMut(Given<'_>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(false) };
    let count = count.min(set_count(&opened, run));
    begin(count);
    if count == 0 {
        return Ok(true);
    }
    let mut large = Vec::new();
    match opened.grown {
        None => pop_packed(op, at, &opened, count, run)?,
        // What is drawn one by one must not meet a page that is missing after the first (C1).
        Some(grown) if count == 1 || (op.keyspace.pages.all_resident() && is_drawn(count, &grown)) => {
            draw_out(op, at, &opened, count, (run, &mut large))?;
        }
        Some(grown) if is_drawn(count, &grown) => {
            op.local.taking = Taking::Bytes;
            read::draw_members(op, &opened, &[], count, |member| {
                push_element(run, member);
                ControlFlow::Continue(())
            })?;
            let members: Vec<Bytes<'_>> = members_of(run).collect();
            change::take_member(op, at, &opened, &members, &mut Vec::new())?;
        }
        Some(_) => {
            op.local.taking = Taking::Bytes;
            pop_most(op, at, &opened, count, run)?;
        }
    }
    elements(run).for_each(|member| f(Given::Here(member.bytes)));
    large.into_iter().for_each(|member| f(Given::Large(member)));
    Ok(true)
}

/// Removes `count` members; they are what is left in the run then.
fn pop_packed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    count: u64,
    run: &mut Vec<u8>,
) -> Result<(), OpError> {
    let len = packed::len(run);
    let kept_bytes = packed::part(run, count, len);
    let (kept, popped) = run.split_at(kept_bytes);
    let left = len - count;
    let is_anew = left > 0 && is_little(left, count) && keep(op, at, kept, popped)?;
    if !is_anew {
        change::put_rest(op, at, opened, left, kept, members_of(popped))?;
    }
    run.drain(..kept_bytes);
    Ok(())
}

/// Removes members of a large set as they are drawn, and appends them to `popped`, or large ones to `large`.
fn draw_out(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    count: u64,
    (popped, large): (&mut Vec<u8>, &mut Vec<Sending>),
) -> Result<(), OpError> {
    let Some(mut grown) = opened.grown else { return Ok(()) };
    let mut done = Ok(true);
    for _ in 0..count {
        let before = (popped.len(), large.len());
        done = random::take_random_element(op, grown.first, grown.element_count, |member| {
            popped.truncate(before.0);
            large.truncate(before.1);
            match member {
                Given::Here(member) => push_element(popped, member),
                Given::Large(member) => large.push(member),
            }
        });
        if !matches!(done, Ok(true)) {
            popped.truncate(before.0);
            large.truncate(before.1);
            break;
        }
        grown.element_count -= 1;
    }
    if popped.is_empty() && large.is_empty() {
        return done.and(Err(OpError::Damaged(FEWER_MEMBERS.into())));
    }
    let left = grown.element_count;
    let removed = members_of(popped).chain(large.iter().map(Bytes::Stored));
    change::put_rest(op, at, opened, left, &[], removed)?;
    match done? {
        true => Ok(()),
        false => Err(OpError::Damaged(FEWER_MEMBERS.into())),
    }
}

/// Removes more than a few members of a large set, and appends them to `popped`.
fn pop_most(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    count: u64,
    popped: &mut Vec<u8>,
) -> Result<(), OpError> {
    let len = set_count(opened, &[]);
    let (left, mut kept, mut choice) = (len - count, Vec::new(), packed::Choice::new(count, len));
    read::each_member(op, opened, &[], |member| {
        let member = member.held();
        if choice.takes_next() {
            push_element(popped, member);
        } else if is_little(left, count) {
            push_element(&mut kept, member);
        }
        ControlFlow::Continue(())
    })?;
    if left == 0 {
        return change::put_rest(op, at, opened, 0, &[], members_of(popped));
    }
    if is_little(left, count) && keep(op, at, &kept, popped)? {
        return Ok(());
    }
    let members: Vec<Bytes<'_>> = members_of(popped).collect();
    change::take_member(op, at, opened, &members, &mut Vec::new()).map(drop)
}

/// Makes a new set of the little that is left; false if there is no memory for that.
fn keep(op: &mut Op<'_>, at: &CollectionKey<'_>, kept: &[u8], popped: &[u8]) -> Result<bool, OpError> {
    let members: Vec<&[u8]> = elements(kept).map(|member| member.bytes).collect();
    let names: Vec<Bytes<'_>> = members_of(kept).collect();
    let encoding = change::encoding(op.keyspace, None, members.len() as u64, &names);
    match replace::put_whole(op, at, encoding, &members, Deadline::Keep) {
        Err(OpError::OutOfMemory { .. } | OpError::NoRoom) => return Ok(false),
        stored => stored?,
    };
    members_of(popped).for_each(|member| change::announce_removed(op, at, member));
    Ok(true)
}

fn members_of(run: &[u8]) -> impl Iterator<Item = Bytes<'_>> {
    elements(run).map(|member| Bytes::Here(member.bytes))
}

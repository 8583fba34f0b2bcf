//! Whole sorted sets: the result of a combination, and copies.

use super::change::{self, Kept};
use super::packed;
use super::place::{grown, roots};
use std::ops::ControlFlow;

use crate::blobs::{Bytes, Given, Made, Taking};
use crate::effect::{Change, Effect};
use crate::keyspace::{collections, CollectionKey, Op, Was};
use crate::tree::hash::Grown;
use crate::tree::sorted_set::Roots;
use crate::types::packed::{check_twins, PACKED_MAX_BYTES};
use crate::{Deadline, Encoding, OpError};

/// Members that are copied together.
const COPIED_TOGETHER: u64 = 256;

pub(super) fn replace(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    members: &mut [(Vec<u8>, f64)],
    run: &mut Vec<u8>,
) -> Result<(), OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    members.sort_unstable_by(|a, b| packed::compare((a.1, &a.0), (b.1, &b.0)));
    let mut naming = change::naming(op.keyspace, None, 0);
    for (member, score) in members.iter() {
        naming.take(member.len() as u64, *score, true);
    }
    let encoding = naming.encoding;
    if encoding == Encoding::ListPack {
        members.iter_mut().for_each(|(_, score)| *score += 0.0);
    }
    let most_bytes: usize = members.iter().map(|(member, _)| packed::most_bytes(member)).sum();
    let was = if most_bytes <= PACKED_MAX_BYTES {
        check_twins(members.iter().map(|(member, _)| &member[..]))?;
        run.clear();
        members.iter().for_each(|(member, score)| packed::push(run, member, *score));
        collections::put_packed(op, at, encoding, None, run, Deadline::Clear)?
    } else {
        let trees = trees_of(op, members)?;
        collections::put_grown(op, at, encoding, None, trees, Deadline::Clear)?
    };
    op.announce(Effect::Replace { db: at.db, key: at.key });
    let mut is_new = was != Was::There;
    for (member, score) in members.iter() {
        let change = Change::Scored { member: member.into(), score: *score };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
        is_new = false;
    }
    Ok(())
}

fn trees_of(op: &mut Op<'_>, members: &[(Vec<u8>, f64)]) -> Result<Grown, OpError> {
    let roots = change::create_trees(op.keyspace)?;
    let filled = members.iter().try_for_each(|(member, score)| {
        match change::put_one(op, roots, &member.into(), *score)? {
            true => Ok(()),
            false => Err(OpError::Twice),
        }
    });
    filled.inspect_err(|_| collections::drop_trees(op.keyspace, &grown(roots, 0)))?;
    Ok(grown(roots, members.len() as u64))
}

/// A copy of a large sorted set in trees of its own.
pub(crate) fn copy(op: &mut Op<'_>, from: &Grown, made: Made<'_>) -> Result<Grown, OpError> {
    let source = roots(from)?;
    if !op.keyspace.pages.all_resident() {
        // Everything is there before anything is made, but for what is long.
        let all = 0..from.element_count;
        op.keyspace
            .sorted_taking(Taking::Large)
            .give_range(source, all, false, |_, _| ControlFlow::Continue(()))?;
    }
    let copy = change::create_trees(op.keyspace)?;
    let copied = copy_members(op, source, copy, from.element_count, made);
    copied.inspect_err(|_| collections::drop_trees(op.keyspace, &grown(copy, 0)))?;
    Ok(grown(copy, from.element_count))
}

fn copy_members(op: &mut Op<'_>, from: Roots, to: Roots, count: u64, made: Made<'_>) -> Result<(), OpError> {
    let (mut at, mut members) = (0, Vec::new());
    while at < count {
        members.clear();
        let ranks = at..count.min(at + COPIED_TOGETHER);
        op.keyspace.sorted_taking(Taking::Large).give_range(from, ranks, false, |member, score| {
            let kept = match member {
                Given::Here(member) => Kept::Here(member.to_vec()),
                Given::Large(member) => Kept::Large(member),
            };
            members.push((kept, score));
            ControlFlow::Continue(())
        })?;
        for (member, score) in &members {
            let member = match member {
                Kept::Here(member) => Bytes::Here(member),
                Kept::Large(member) => {
                    made.copy_of(&member.blob()).map_or(Bytes::Stored(member), Bytes::Incoming)
                }
            };
            change::put_one(op, to, &member, *score)?;
        }
        at += COPIED_TOGETHER;
    }
    Ok(())
}

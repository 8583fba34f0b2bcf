//! Deadlines of fields: set, taken away, and what happens when they have passed.
//!
//! ```text
//!              hash_set_deadline                     earliest passes
//!   no deadline ──────────────▶ earliest: some time ────────────────▶ fields are due ─┐ a step through the tree,
//!        ▲                           ▲                                    │       ▲──┘ which removes what is due
//!        │        no field has any   │        the next earliest           │
//!        └───────────────────────────┴────────────────────────────────────┘
//! ```
//! A packed hash knows its earliest deadline. That of a large one is a lower bound: to find the next, all of its fields are
//! walked through in steps, after which it rests for many times as long as the walk took.

use std::time::Instant;

use super::field::at;
use super::packed::Fields;
use super::read::is_live;
use super::write::{self, earlier, FieldWrite};
use crate::blobs::Bytes;
use crate::effect::{Change, Effect};
use crate::keyspace::{collections, elements, CollectionKey, Op, Opened, Was};
use crate::tree::hash::Grown;
use crate::tree::Tree;
use crate::types::packed::PACKED_MAX_BYTES;
use crate::{DbId, Deadline, Key, OpError, UnixMillis};

/// Bytes that a deadline adds to the record of a field.
const DEADLINE_BYTES: usize = 8;
/// Fields of a large hash that a step of the active expiry looks at: some 50 microseconds.
const STEP_FIELDS: usize = 1024;

/// Removes fields whose time is over: of a large hash in steps. Whether there is more to do at once.
///
/// # Errors
/// [`OpError`]; it is tried again later.
pub(super) fn expire_fields(op: &mut Op<'_>, db: DbId, key: &Key<'_>) -> Result<bool, OpError> {
    let mut run = std::mem::take(&mut op.local.run);
    let is_unfinished = expire(op, &at(db, key), &mut run);
    op.local.run = run;
    is_unfinished
}

pub(super) fn set_deadline(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    fields: &[Bytes<'_>],
    deadline: Option<UnixMillis>,
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(0) };
    let (mut set, now) = (Vec::with_capacity(fields.len()), op.local.now);
    let ended = match opened.grown {
        None => {
            let mut packed = opened.fields(run);
            let mut set_one = |field: &&Bytes<'_>| {
                field.here().is_some_and(|field| packed.set_deadline(field, deadline, now))
            };
            set.extend(fields.iter().filter(|field| set_one(field)).copied());
            if !set.is_empty() {
                put_timed(op, at, &opened, &mut packed, deadline)?;
            }
            Ok(())
        }
        Some(grown) => {
            elements::resolve_elements(op, grown.first, fields)?;
            let more_bytes = if deadline.is_some() { DEADLINE_BYTES } else { 0 };
            let _admitted =
                collections::admit_elements(op.keyspace, fields.len(), fields.iter().map(|_| more_bytes))?;
            let ended = set_deadlines(op, grown.first, fields, deadline, &mut set);
            let mut noted = Ok(());
            if !set.is_empty() {
                write::note_field_deadline(op.keyspace, grown.first, deadline);
                let earliest = earlier(opened.earliest, deadline);
                noted = collections::set_grown(op, at, &Opened { earliest, ..opened });
            }
            ended.and(noted)
        }
    };
    for field in set.iter().copied() {
        let change = Change::FieldDeadline { field, deadline };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
    }
    ended.map(|()| set.len() as u64)
}

/// Stores packed fields whose deadlines have changed.
fn put_timed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    packed: &mut Fields<'_>,
    deadline: Option<UnixMillis>,
) -> Result<(), OpError> {
    let earliest = packed.settle();
    if deadline.is_none() {
        return collections::put_shrunk(op, at, opened.encoding, earliest, packed.run);
    }
    if packed.run.len() > PACKED_MAX_BYTES {
        return write::grow(op, at, Some(opened), &FieldWrite::NOTHING, packed).map(drop);
    }
    collections::put_packed(op, at, opened.encoding, earliest, packed.run, Deadline::Keep).map(drop)
}

fn set_deadlines<'f>(
    op: &mut Op<'_>,
    tree: Tree,
    fields: &'f [Bytes<'f>],
    deadline: Option<UnixMillis>,
    set: &mut Vec<Bytes<'f>>,
) -> Result<(), OpError> {
    for field in fields {
        let element = elements::hashed_bytes(op, field)?;
        let was = collections::step_of_many(op, !set.is_empty(), |op| {
            elements::set_element_deadline(op, tree, &element, deadline)
        })?;
        if was == Was::There {
            set.push(*field);
        }
    }
    Ok(())
}

fn expire(op: &mut Op<'_>, at: &CollectionKey<'_>, run: &mut Vec<u8>) -> Result<bool, OpError> {
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(false) };
    if !opened.may_have_expired(op.local.now) {
        return Ok(false);
    }
    match opened.grown {
        None => expire_packed(op, at, &opened, run).map(|()| false),
        Some(grown) => expire_step(op, at, &opened, grown),
    }
}

fn expire_packed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    run: &mut Vec<u8>,
) -> Result<(), OpError> {
    let (now, mut packed) = (op.local.now, opened.fields(run));
    let due = packed.pairs().filter(|pair| pair.has_expired(now)).map(|pair| pair.field.to_vec());
    let due: Vec<Vec<u8>> = due.collect();
    for field in &due {
        packed.remove(field, now);
    }
    let (left, due): (u64, Vec<_>) = (packed.len(), due.iter().map(|field| (field.into(), true)).collect());
    write::put_rest(op, at, opened, left, &mut packed, &due)
}

/// A step of the walk through a large hash. Whether it is to go on.
fn expire_step(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    grown: Grown,
) -> Result<bool, OpError> {
    let (tree, now, started) = (grown.first, op.local.now, Instant::now());
    let Some(cursor) = op.keyspace.expiry.walks.begin_step(tree.tag) else { return Ok(false) };
    let (mut due, mut earliest) = (Vec::new(), None);
    let next =
        elements::scan_elements(op, tree, cursor, STEP_FIELDS, |field, record| match is_live(record, now) {
            true => earliest = earlier(earliest, record.deadline),
            false => due.push(field.to_vec()),
        })?;
    let fields: Vec<Bytes<'_>> = due.iter().map(Bytes::from).collect();
    elements::resolve_elements(op, tree, &fields)?;
    let mut removed = Vec::with_capacity(due.len());
    let ended = fields.iter().try_for_each(|field| {
        let element = elements::hashed_bytes(op, field)?;
        if elements::remove_element(op, tree, &element)? {
            removed.push((*field, true));
        }
        Ok(())
    });
    let left = grown.element_count.saturating_sub(removed.len() as u64);
    let mut opened = *opened;
    // A step that did not end is made again.
    let walked =
        ended.is_ok().then(|| op.keyspace.expiry.walks.end_step(tree.tag, next, earliest, started.elapsed()));
    match walked.flatten() {
        Some(found) => opened.earliest = found,
        None if removed.is_empty() => return ended.map(|()| true),
        None => {}
    }
    let mut nothing = Vec::new();
    let mut packed = Fields { run: &mut nothing, is_timed: false };
    write::put_rest(op, at, &opened, left, &mut packed, &removed)?;
    ended.map(|()| next != 0 && left > 0)
}

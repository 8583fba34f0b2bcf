//! Fields that are read. Those whose time is over are passed over and stay.

use std::ops::ControlFlow;

use super::field::GivenField;
use super::packed::Fields;
use crate::blobs::{Bytes, Given};
use crate::keyspace::{collections, elements, CollectionKey, Keyspace, Missed, Op, Opened};
use crate::tree::hash::Record;
use crate::tree::Tree;
use crate::value::Encoding;
use crate::{Key, OpError, UnixMillis};

impl Opened {
    /// The run of a packed hash as fields.
    #[inline]
    pub(super) fn fields<'r>(&self, run: &'r mut Vec<u8>) -> Fields<'r> {
        Fields { run, is_timed: self.earliest.is_some() }
    }

    /// Whether the time of some field may be over.
    pub(super) fn may_have_expired(&self, now: UnixMillis) -> bool {
        self.earliest.is_some_and(|earliest| earliest <= now)
    }
}

#[inline]
pub(super) fn is_live(record: &Record<'_>, now: UnixMillis) -> bool {
    record.deadline.is_none_or(|deadline| deadline > now)
}

pub(super) fn get<'f>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    fields: impl Iterator<Item = impl Into<Bytes<'f>>>,
    mut f: impl FnMut(usize, Option<Given<'_>>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else {
        fields.enumerate().for_each(|(index, _)| f(index, None));
        return Ok(false);
    };
    let (packed, now, mut missed) = (opened.fields(run), op.local.now, Missed::default());
    for (index, field) in fields.enumerate() {
        let field: Bytes<'f> = field.into();
        let Some(grown) = opened.grown else {
            let pair = field.here().and_then(|field| packed.find_live(field, now));
            f(index, pair.map(|pair| Given::Here(pair.value)));
            continue;
        };
        let (key, taking) = (elements::hashed_bytes(op, &field)?, op.local.taking);
        let found =
            elements::find_element(op.keyspace, grown.first, &key, |record| match is_live(record, now) {
                true => {
                    let give = |value: Given<'_>| f(index, Some(value));
                    elements::give_element_value(op.keyspace, record, taking, &mut op.local.bytes, give)?;
                    Ok(true)
                }
                false => Ok(false),
            });
        if missed.look(found)?.is_some_and(|found| found != Some(true)) {
            f(index, None);
        }
    }
    missed.end()?;
    Ok(true)
}

pub(super) fn value_len(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    field: &Bytes<'_>,
    run: &mut Vec<u8>,
) -> Result<(Option<u64>, bool), OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok((None, false)) };
    let Some(grown) = opened.grown else {
        let packed = opened.fields(run);
        let pair = field.here().and_then(|field| packed.find_live(field, op.local.now));
        return Ok((pair.map(|pair| pair.value.len() as u64), true));
    };
    let (key, now) = (elements::hashed_bytes(op, field)?, op.local.now);
    let len = elements::find_element(op.keyspace, grown.first, &key, |record| match is_live(record, now) {
        true => elements::element_value_bytes(record).map(Some),
        false => Ok(None),
    })?;
    Ok((len.flatten(), true))
}

pub(super) fn deadlines<'f>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    fields: impl Iterator<Item = &'f [u8]>,
    mut f: impl FnMut(usize, Option<Option<UnixMillis>>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else {
        fields.enumerate().for_each(|(index, _)| f(index, None));
        return Ok(false);
    };
    let (packed, now, mut missed) = (opened.fields(run), op.local.now, Missed::default());
    for (index, field) in fields.enumerate() {
        let deadline = match opened.grown {
            None => Some(packed.find_live(field, now).map(|pair| pair.deadline)),
            Some(grown) => missed.look(live_deadline(
                op.keyspace,
                grown.first,
                &elements::hashed(op.keyspace, field),
                now,
            ))?,
        };
        deadline.into_iter().for_each(|deadline| f(index, deadline));
    }
    missed.end()?;
    Ok(true)
}

/// The deadline of a field of a tree, if the field is there and its time not over. After it, a change of this field meets no
/// page that is missing, but for slabs.
pub(super) fn live_deadline(
    keyspace: &Keyspace,
    tree: Tree,
    field: &Key<'_>,
    now: UnixMillis,
) -> Result<Option<Option<UnixMillis>>, OpError> {
    let found = elements::find_element(keyspace, tree, field, |record| {
        Ok(if is_live(record, now) { Some(record.deadline) } else { None })
    })?;
    Ok(found.flatten())
}

pub(super) fn len(op: &mut Op<'_>, at: &CollectionKey<'_>, run: &mut Vec<u8>) -> Result<u64, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(0) };
    Ok(opened.grown.map_or_else(|| opened.fields(run).len(), |grown| grown.element_count))
}

/// Fields whose time is not over.
pub(super) fn live_count(op: &mut Op<'_>, opened: &Opened, packed: &Fields<'_>) -> Result<u64, OpError> {
    let now = op.local.now;
    match opened.grown {
        None => Ok(packed.pairs().filter(|pair| !pair.has_expired(now)).count() as u64),
        Some(grown) if opened.may_have_expired(now) => elements::count_live_elements(op, grown.first, now),
        Some(grown) => Ok(grown.element_count),
    }
}

pub(super) fn for_each(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    begin: impl FnOnce(u64),
    mut f: impl FnMut(GivenField<'_>) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    for_each_timed(op, at, begin, |field, value, _| f(GivenField { field, value }), run)
}

/// The same with deadlines.
pub(super) fn for_each_timed(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    begin: impl FnOnce(u64),
    f: impl FnMut(Given<'_>, Given<'_>, Option<UnixMillis>) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    let packed = opened.fields(run);
    begin(live_count(op, &opened, &packed)?);
    each_live(op, &opened, &packed, f)?;
    Ok(true)
}

pub(super) fn each_live(
    op: &mut Op<'_>,
    opened: &Opened,
    packed: &Fields<'_>,
    mut f: impl FnMut(Given<'_>, Given<'_>, Option<UnixMillis>) -> ControlFlow<()>,
) -> Result<(), OpError> {
    let now = op.local.now;
    let Some(grown) = opened.grown else {
        let mut live = packed.pairs().filter(|pair| !pair.has_expired(now));
        let _ = live.try_for_each(|pair| f(Given::Here(pair.field), Given::Here(pair.value), pair.deadline));
        return Ok(());
    };
    elements::for_each_element(op, &grown, |field, value, record| match is_live(record, now) {
        true => f(field, value, record.deadline),
        false => ControlFlow::Continue(()),
    })
}

pub(super) fn scan(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (cursor, count): (u64, usize),
    mut f: impl FnMut(GivenField<'_>),
    run: &mut Vec<u8>,
) -> Result<Option<u64>, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(None) };
    let mut give = |found: GivenField<'_>| {
        f(found);
        ControlFlow::Continue(())
    };
    let Some(grown) = opened.grown.filter(|_| opened.encoding == Encoding::HashTable) else {
        let give_one = |field: Given<'_>, value: Given<'_>, _| give(GivenField { field, value });
        each_live(op, &opened, &opened.fields(run), give_one)?;
        return Ok(Some(0));
    };
    let now = op.local.now;
    let next =
        elements::scan_element_values(op, grown.first, cursor, count, |field, value, record| match is_live(
            record, now,
        ) {
            true => give(GivenField { field, value }),
            false => ControlFlow::Continue(()),
        })?;
    Ok(Some(next))
}

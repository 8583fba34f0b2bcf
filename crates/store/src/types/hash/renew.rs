//! A field whose new value depends on its old one, as a counter's does.

use super::field::FieldMode;
use super::packed::Fields;
use super::read::is_live;
use super::write::{self, FieldWrite};
use crate::blobs::{Bytes, Given, Taking};
use crate::keyspace::{collections, elements, CollectionKey, Op, Opened};
use crate::tree::hash::Grown;
use crate::{Deadline, OpError};

fn one<'a>(pair: &'a [(Bytes<'a>, Bytes<'a>)]) -> FieldWrite<'a> {
    FieldWrite { pairs: pair, mode: FieldMode::All, deadline: Deadline::Keep }
}

pub(super) fn renew<T: AsRef<[u8]>, E>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    field: &[u8],
    mut renew: impl FnMut(Option<&[u8]>) -> Result<T, E>,
    run: &mut Vec<u8>,
) -> Result<Result<(), E>, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let opened = collections::open_to_change(op, at, run)?;
    if let Some((opened, grown)) = opened.as_ref().and_then(|opened| Some((opened, opened.grown?))) {
        return renew_grown(op, at, opened, grown, field, renew);
    }
    let is_timed = opened.as_ref().is_some_and(|opened| opened.earliest.is_some());
    let packed = Fields { run, is_timed };
    let value = match renew(packed.find_live(field, op.local.now).map(|pair| pair.value)) {
        Ok(value) => value,
        Err(refused) => return Ok(Err(refused)),
    };
    write::set_packed(op, at, opened.as_ref(), &one(&[(field.into(), value.as_ref().into())]), run)?;
    Ok(Ok(()))
}

fn renew_grown<T: AsRef<[u8]>, E>(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    grown: Grown,
    field: &[u8],
    mut renew: impl FnMut(Option<&[u8]>) -> Result<T, E>,
) -> Result<Result<(), E>, OpError> {
    // Nothing that is missing is met after the first change (C1).
    elements::resolve_elements(op, grown.first, &[field.into()])?;
    collections::resolve_stored(op.keyspace, [field.len()].into_iter())?;
    let (element, mut refused) = (elements::hashed_ahead(op, field), None);
    let renewed = elements::renew_element(op, grown.first, &element, |old| {
        renew(Some(old)).map_err(|error| refused = Some(error)).ok()
    })?;
    if let Some(refused) = refused {
        return Ok(Err(refused));
    }
    if let Some(value) = renewed {
        let pair = [(field.into(), value.as_ref().into())];
        return write::note_renewed(op, at, opened, grown, &one(&pair)).map(Ok);
    }
    let (now, mut made) = (op.local.now, None);
    elements::find_element(op.keyspace, grown.first, &element, |record| {
        if is_live(record, now) {
            let give = |value: Given<'_>| made = Some(renew(Some(value.held())));
            elements::give_element_value(op.keyspace, record, Taking::Bytes, &mut op.local.bytes, give)?;
        }
        Ok(())
    })?;
    let value = match made.unwrap_or_else(|| renew(None)) {
        Ok(value) => value,
        Err(refused) => return Ok(Err(refused)),
    };
    write::set_grown(op, at, opened, grown, &one(&[(field.into(), value.as_ref().into())]))?;
    Ok(Ok(()))
}

//! A packed hash: fields and values in turn, in the order in which the fields came.

use std::ops::Range;

use crate::types::packed::{elements, push as push_element, splice, Element};
use crate::UnixMillis;

/// A field with its value, and where both lie.
#[derive(Clone, Debug)]
pub(super) struct Pair<'a> {
    pub field: &'a [u8],
    pub value: &'a [u8],
    /// From the field's first byte to the value's last.
    range: Range<usize>,
    value_range: Range<usize>,
}

/// The pairs of a run.
pub(super) fn pairs(run: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    let mut elements = elements(run);
    std::iter::from_fn(move || {
        let (field, value): (Element<'_>, Element<'_>) = (elements.next()?, elements.next()?);
        Some(Pair {
            field: field.bytes,
            value: value.bytes,
            range: field.range.start..value.range.end,
            value_range: value.range,
        })
    })
}

pub(super) fn len(run: &[u8]) -> u64 {
    pairs(run).count() as u64
}

#[inline]
pub(super) fn find<'a>(run: &'a [u8], field: &[u8]) -> Option<Pair<'a>> {
    pairs(run).find(|pair| pair.field == field)
}

/// Sets a field, if it is absent or `overwrites`; whether it was absent.
pub(super) fn set(run: &mut Vec<u8>, field: &[u8], value: &[u8], overwrites: bool) -> bool {
    match find(run, field).map(|pair| pair.value_range) {
        Some(place) if overwrites => splice(run, place, &[value]),
        Some(_) => {}
        None => {
            push_element(run, field);
            push_element(run, value);
            return true;
        }
    }
    false
}

/// Removes a field; whether it was there.
pub(super) fn remove(run: &mut Vec<u8>, field: &[u8]) -> bool {
    let place = find(run, field).map(|pair| pair.range);
    place.map(|place| run.drain(place)).is_some()
}

/// Fields with values and deadlines, those that have one.
pub(crate) fn packed_fields(
    run: &[u8],
    is_timed: bool,
) -> impl Iterator<Item = (&[u8], &[u8], Option<UnixMillis>)> {
    let mut elements = elements(run);
    std::iter::from_fn(move || {
        let (field, value) = (elements.next()?, elements.next()?);
        let deadline = if is_timed { elements.next()?.bytes.try_into().ok() } else { None };
        Some((field.bytes, value.bytes, deadline.map(i64::from_le_bytes)))
    })
}

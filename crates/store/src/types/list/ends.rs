//! Items that are put to an end of a list, and taken from there.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::grown::{self, Linking};
use super::packed;
use super::place::list_len;
use crate::blobs::{Bytes, Given};
use crate::effect::{Change, Effect, End};
use crate::keyspace::{collections, CollectionKey, Op, Opened};
use crate::types::packed::{elements, packed_bytes_of, PACKED_MAX_BYTES};
use crate::value::Encoding;
use crate::{Deadline, OpError};

pub(super) fn pop_some(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (end, count): (End, u64),
    begin: impl FnOnce(u64),
    f: impl FnMut(Given<'_>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let _lock = op.keyspace.locks.lock_key(&op.local.holder, at.db, at.key.hash);
    let Some(opened) = collections::open_to_change(op, at, run)? else { return Ok(false) };
    let popped = count.min(list_len(&opened, run));
    begin(popped);
    pop(op, at, &opened, end, popped, f, run)?;
    Ok(true)
}

pub(super) fn push(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: Option<&Opened>,
    end: End,
    (items, linking): (&[Bytes<'_>], Linking),
    run: &mut Vec<u8>,
) -> Result<u64, OpError> {
    let more_bytes: usize = items.iter().map(packed_bytes_of).sum();
    let len = match opened.and_then(|opened| opened.grown) {
        Some(grown) => grown::grown_push(op, at, grown, end, items, linking)?,
        None if run.len() + more_bytes > PACKED_MAX_BYTES => {
            grown::grow(op, at, end, items, linking, run)?.element_count
        }
        None => {
            // None of so few bytes lie in pages.
            let short: SmallVec<[&[u8]; 2]> = items.iter().filter_map(Bytes::here).collect();
            packed::push(run, end, &short);
            collections::put_packed(op, at, Encoding::QuickList, None, run, Deadline::Keep)?;
            elements(run).count() as u64
        }
    };
    for (index, &item) in items.iter().enumerate() {
        let is_new = opened.is_none() && index == 0;
        let change = Change::Pushed { end, item };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new });
    }
    Ok(len)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn pop(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    opened: &Opened,
    end: End,
    count: u64,
    mut f: impl FnMut(Given<'_>),
    run: &mut Vec<u8>,
) -> Result<(), OpError> {
    if count == 0 {
        return Ok(());
    }
    let len = list_len(opened, run);
    let range = if end == End::Left { 0..count } else { len - count..len };
    let tell = |op: &Op<'_>| {
        let change = Change::Popped { end, item_count: count };
        op.announce(Effect::Element { db: at.db, key: at.key, change, is_new: false });
    };
    match (opened.grown, end) {
        (Some(grown), _) if count == 1 && len > 1 => {
            return grown::grown_pop(op, at, grown, end, f, tell);
        }
        (_, End::Left) => grown::give(op, opened, range.clone(), run, |item| {
            f(item);
            ControlFlow::Continue(())
        })?,
        (_, End::Right) => grown::give_down(op, opened, range.clone(), run, f)?,
    }
    grown::take(op, at, opened, range, run, tell).map(drop)
}

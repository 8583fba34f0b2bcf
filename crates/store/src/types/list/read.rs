//! Items that are read where they lie.

use std::ops::ControlFlow;

use super::grown;
use super::place::{enclosed, index_in, list_len};
use crate::blobs::Given;
use crate::keyspace::{collections, CollectionKey, Op};
use crate::OpError;

pub(super) fn range(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    (start, stop): (i64, i64),
    begin: impl FnOnce(u64),
    f: impl FnMut(Given<'_>) -> ControlFlow<()>,
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    let range = enclosed(start, stop, list_len(&opened, run));
    begin(range.end - range.start);
    grown::give(op, &opened, range, run, f)?;
    Ok(true)
}

pub(super) fn give_at(
    op: &mut Op<'_>,
    at: &CollectionKey<'_>,
    index: i64,
    mut f: impl FnMut(Given<'_>),
    run: &mut Vec<u8>,
) -> Result<bool, OpError> {
    let Some((opened, _lock)) = collections::open_to_read(op, at, run)? else { return Ok(false) };
    if let Some(index) = index_in(index, list_len(&opened, run)) {
        grown::give(op, &opened, index..index + 1, run, |item| {
            f(item);
            ControlFlow::Break(())
        })?;
    }
    Ok(true)
}

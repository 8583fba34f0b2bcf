//! Going over a large value part by part: its pages come as they are needed, and others are served in between.
//!
//! ```text
//!            begin, the value is pinned        the last part
//!   (none) ───────────────────────────▶ paused ────────────▶ (none): the command is answered
//!                                        │  ▲
//!                                        └──┘ pages are there, others have had their turn
//! ```
//! The command runs anew after each pause and goes on where the client's session says.

use std::io::IoSlice;
use std::ops::Range;

use stillframe_store::{Duplicate, Fault, Key, OpError};

use crate::command::{CmdError, CmdResult};
use crate::dispatch::ctx::Ctx;
use crate::protocol::args::Args;
use crate::state::session::{Ahead, ValueWalk};

/// Bytes that are looked at between two pauses.
const STEP_BYTES: usize = 1 << 20;

/// What a walk is at.
pub struct At<'w> {
    /// Bytes of the whole value.
    pub value_bytes: u64,
    /// Bytes that are wanted and have been given before.
    pub done_bytes: u64,
    pub count: &'w mut u64,
}

/// Gives the bytes that `wanted` chooses of a large value to `look`, part by part, until it says that it has seen enough.
/// Returns the value's length in bytes and what has been counted. `None` if the value is short, or all pages are in memory: it is
/// to be looked at as a whole.
///
/// # Errors
/// A pause among others: the command begins anew.
pub fn walk(
    ctx: &mut Ctx<'_>,
    key: &Key<'_>,
    wanted: impl Fn(u64) -> Range<u64>,
    mut look: impl FnMut(At<'_>, &[u8]) -> bool,
) -> Result<Option<(u64, u64)>, CmdError> {
    let mut walk = match ctx.client.value_walk.take() {
        Some(walk) => walk,
        None if !ctx.server.store.may_miss_pages() => return Ok(None),
        None => match ctx.worker.string_at(ctx.client.db, key).begin_sending(wanted)? {
            Some(value) => Box::new(ValueWalk { value, done_bytes: 0, count: 0 }),
            None => return Ok(None),
        },
    };
    if ctx.client.within.is_transaction() {
        return walk_at_once(&mut walk, look).map(Some);
    }
    let ValueWalk { value, done_bytes, count } = &mut *walk;
    let (start, value_bytes, mut has_enough) = (*done_bytes, value.value_bytes(), false);
    let take = |parts: &[IoSlice<'_>]| {
        for part in parts {
            has_enough = has_enough || look(At { value_bytes, done_bytes: *done_bytes, count }, part);
            *done_bytes += part.len() as u64;
        }
    };
    let fault = match value.with_parts(start, STEP_BYTES, take) {
        Ok(()) if has_enough || walk.done_bytes == walk.value.len_bytes() => {
            return Ok(Some((value_bytes, walk.count)));
        }
        Ok(()) => Fault::pause(),
        Err(OpError::Fault(fault)) => fault,
        Err(error) => return Err(error.into()),
    };
    if let Some(ahead) = walk.value.ahead(walk.done_bytes) {
        ctx.server.store.load(ahead, Box::new(|| ()));
    }
    ctx.client.value_walk = Some(walk);
    Err(fault.into())
}

/// Goes over a value in one step, in a transaction: what is not in memory is read past it, while all others wait.
fn walk_at_once(
    walk: &mut ValueWalk,
    mut look: impl FnMut(At<'_>, &[u8]) -> bool,
) -> Result<(u64, u64), CmdError> {
    let ValueWalk { value, done_bytes, count } = walk;
    let (value_bytes, mut has_enough) = (value.value_bytes(), false);
    while !has_enough && *done_bytes < value.len_bytes() {
        value.with_copies(*done_bytes, STEP_BYTES, |part| {
            has_enough = has_enough || look(At { value_bytes, done_bytes: *done_bytes, count }, part);
            *done_bytes += part.len() as u64;
        })?;
    }
    Ok((value_bytes, *count))
}

/// Copies a large value, of which the command needs a copy, into the session; with `only_if_sent`, unless nobody is reading
/// the value, so that it can be changed where it is.
///
/// # Errors
/// A pause among others: the command begins anew.
pub fn duplicate(ctx: &mut Ctx<'_>, key: &Key<'_>, only_if_sent: bool) -> CmdResult {
    let db = ctx.client.db;
    let is_begun = match ctx.client.ahead.as_deref() {
        Some(Ahead::Copy(copy)) => ctx.worker.string_at(db, key).is_source(copy)?,
        _ => false,
    };
    if !is_begun {
        // Of the value as it was; that of the value as it is takes its place.
        ctx.client.ahead = None;
        let begun = ctx.worker.string_at(db, key).begin_duplicate(only_if_sent)?;
        ctx.client.ahead = begun.map(|copy| Box::new(Ahead::Copy(copy)));
    }
    match ctx.client.ahead.as_deref_mut() {
        Some(Ahead::Copy(copy)) => go_on(copy.step()),
        _ => Ok(()),
    }
}

/// After a step, which may have been the last: others have their turn before the next.
pub fn go_on(is_done: Result<bool, OpError>) -> CmdResult {
    match is_done {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::pause().into()),
        Err(error) => Err(error.into()),
    }
}

/// The copy that the command has made before.
fn take_copy(ctx: &mut Ctx<'_>) -> Option<Duplicate> {
    match ctx.client.ahead.take().map(|ahead| *ahead) {
        Some(Ahead::Copy(copy)) => Some(copy),
        _ => None,
    }
}

/// Before a part of the value of the first key is changed: if others are reading the value, they keep it and the key gets a copy.
pub fn leave_to_readers(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if !ctx.worker.store().is_any_sent() && ctx.client.ahead.is_none() {
        return Ok(());
    }
    let key = ctx.key(args, 1);
    duplicate(ctx, &key, true)?;
    let db = ctx.db();
    match take_copy(ctx) {
        Some(copy) if !ctx.worker.string_at(db, &key).replace_by_duplicate(&copy)? => {
            Err(Fault::pause().into())
        }
        _ => Ok(()),
    }
}

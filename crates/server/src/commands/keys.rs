//! Keys as such: presence, removal, copies, moves.

use stillframe_store::DbId;

use super::database::db_argument;
use crate::command::{Args, CmdError, CmdResult};
use crate::ctx::Ctx;
use crate::errors;

const SAME_OBJECT: &str = "ERR source and destination objects are the same";

/// `DEL` and `UNLINK`: the store frees large values in the background in any case.
pub fn del(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let db = ctx.db();
    let mut count = 0;
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        if ctx.worker.remove(db, &key)? {
            ctx.modified(db, &key);
            count += 1;
        }
    }
    ctx.reply.int(count);
    Ok(())
}

pub fn exists(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut count = 0;
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        let found = ctx.worker.entry(ctx.client.db, &key)?.is_some();
        ctx.stats.looked_up(found);
        count += i64::from(found);
    }
    ctx.reply.int(count);
    Ok(())
}

pub fn touch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut count = 0;
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        let found = ctx.worker.touch(ctx.client.db, &key)?;
        ctx.stats.looked_up(found);
        count += i64::from(found);
    }
    ctx.reply.int(count);
    Ok(())
}

pub fn type_of(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let found = ctx.worker.entry(ctx.client.db, &key)?.is_some();
    ctx.stats.looked_up(found);
    ctx.reply.simple(if found { "string" } else { "none" });
    Ok(())
}

pub fn rename(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    move_within(ctx, args, true)?;
    ctx.reply.ok();
    Ok(())
}

pub fn renamenx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let is_moved = move_within(ctx, args, false)?;
    ctx.reply.int(i64::from(is_moved));
    Ok(())
}

/// Renames the first key to the second; returns whether it did, which it does not over another key unless
/// `overwrites`, nor onto itself.
fn move_within(ctx: &mut Ctx<'_>, args: &Args<'_>, overwrites: bool) -> Result<bool, CmdError> {
    let db = ctx.db();
    let (from, to) = (ctx.key(args, 1), ctx.key(args, 2));
    if ctx.worker.entry(db, &from)?.is_none() {
        return Err(errors::NO_SUCH_KEY.into());
    }
    if from.bytes == to.bytes || (!overwrites && ctx.worker.entry(db, &to)?.is_some()) {
        return Ok(false);
    }
    ctx.worker.rename((db, &from), (db, &to))?;
    ctx.modified(db, &from);
    ctx.touched(db, &to);
    Ok(true)
}

pub fn move_key(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (from, to) = (ctx.db(), db_argument(ctx, args.at(2))?);
    if from == to {
        return Err(SAME_OBJECT.into());
    }
    let key = ctx.key(args, 1);
    let can_move = ctx.worker.entry(from, &key)?.is_some() && ctx.worker.entry(to, &key)?.is_none();
    if can_move {
        ctx.worker.rename((from, &key), (to, &key))?;
        ctx.modified(from, &key);
        ctx.touched(to, &key);
    }
    ctx.reply.int(i64::from(can_move));
    Ok(())
}

/// The database that `MOVE` names, for its locks; a bad one is reported by the command itself.
pub fn move_other_keys(_: DbId, args: &Args<'_>, give: &mut dyn FnMut(DbId, usize)) {
    if let Some(db) = db_number(args.at(2)) {
        give(db, 1);
    }
}

fn db_number(text: &[u8]) -> Option<DbId> {
    crate::number::parse_i64(text).and_then(|n| u32::try_from(n).ok()).map(DbId)
}

pub fn copy(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (from_db, mut to_db) = (ctx.db(), ctx.db());
    let mut replaces = false;
    let mut index = 3;
    while index < args.len() {
        if args.is(index, "REPLACE") {
            replaces = true;
        } else if args.is(index, "DB") && index + 1 < args.len() {
            to_db = db_argument(ctx, args.at(index + 1))?;
            index += 1;
        } else {
            return Err(errors::SYNTAX.into());
        }
        index += 1;
    }
    let (from, to) = (ctx.key(args, 1), ctx.key(args, 2));
    if from_db == to_db && from.bytes == to.bytes {
        return Err(SAME_OBJECT.into());
    }
    let found = ctx.worker.entry(from_db, &from)?.is_some();
    ctx.stats.looked_up(found);
    let can_copy = found && (replaces || ctx.worker.entry(to_db, &to)?.is_none());
    if can_copy {
        ctx.worker.copy((from_db, &from), (to_db, &to))?;
        ctx.modified(to_db, &to);
    }
    ctx.reply.int(i64::from(can_copy));
    Ok(())
}

/// The target of `COPY ... DB n`, for its locks.
pub fn copy_other_keys(_: DbId, args: &Args<'_>, give: &mut dyn FnMut(DbId, usize)) {
    for index in 3..args.len().saturating_sub(1) {
        if args.is(index, "DB") {
            if let Some(db) = db_number(args.at(index + 1)) {
                give(db, 2);
            }
        }
    }
}

//! `SORT`. Lists and sets are not stored yet, so there is nothing to sort but absent keys.

use crate::command::{key_flag, Args, CmdError, CmdResult};
use crate::ctx::Ctx;
use crate::errors;
use crate::number::integer;

pub fn sort(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let store_index = parse(args, true)?;
    check_absent(ctx, args)?;
    let Some(index) = store_index else {
        ctx.reply.array(0);
        return Ok(());
    };
    let (db, target) = (ctx.db(), ctx.key(args, index));
    if ctx.worker.remove(db, &target)? {
        ctx.modified(db, &target);
    }
    ctx.reply.int(0);
    Ok(())
}

pub fn sort_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    parse(args, false)?;
    check_absent(ctx, args)?;
    ctx.reply.array(0);
    Ok(())
}

fn check_absent(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let found = ctx.worker.entry(ctx.client.db, &key)?.is_some();
    ctx.stats.looked_up(found);
    if found {
        Err(errors::WRONG_TYPE.into())
    } else {
        Ok(())
    }
}

/// Checks the options; returns the index of `STORE`'s argument.
fn parse(args: &Args<'_>, can_store: bool) -> Result<Option<usize>, CmdError> {
    let mut store_index = None;
    let mut index = 2;
    while index < args.len() {
        let left = args.len() - index - 1;
        if args.is(index, "ASC") || args.is(index, "DESC") || args.is(index, "ALPHA") {
            index += 1;
        } else if args.is(index, "LIMIT") && left >= 2 {
            integer(args.at(index + 1))?;
            integer(args.at(index + 2))?;
            index += 3;
        } else if can_store && args.is(index, "STORE") && left >= 1 {
            store_index = Some(index + 1);
            index += 2;
        } else if (args.is(index, "BY") || args.is(index, "GET")) && left >= 1 {
            index += 2;
        } else {
            return Err(errors::SYNTAX.into());
        }
    }
    Ok(store_index)
}

/// The keys of a `SORT`: what is sorted, and where the result goes. The last `STORE` counts.
pub fn sort_keys(args: &Args<'_>, give: &mut dyn FnMut(usize, u32)) {
    give(1, key_flag::RO | key_flag::ACCESS);
    let mut store_index = None;
    let mut index = 2;
    while index < args.len() {
        let left = args.len() - index - 1;
        if args.is(index, "LIMIT") && left >= 2 {
            index += 3;
        } else if (args.is(index, "BY") || args.is(index, "GET")) && left >= 1 {
            index += 2;
        } else if args.is(index, "STORE") && left >= 1 {
            store_index = Some(index + 1);
            index += 2;
        } else {
            index += 1;
        }
    }
    if let Some(index) = store_index {
        give(index, key_flag::OW | key_flag::UPDATE);
    }
}

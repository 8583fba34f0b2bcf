//! Databases as a whole.

use stillframe_store::DbId;

use crate::command::operand::int;
use crate::command::{acl, flag, CmdError, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::persistence::{default_target, When};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::session::Within;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("flushall", -1, flag::WRITE, Touch::Flush, flushall).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Remove all keys from all databases", "O(N) where N is the total number of keys in all databases")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("flushdb", -1, flag::WRITE, Touch::Flush, flushdb).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Remove all keys from the current database", "O(N) where N is the number of keys in the selected database")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("dbsize", 1, flag::READONLY | flag::FAST, Touch::Counters, dbsize).acl(acl::KEYSPACE)
        .doc(Group::Server, "1.0.0", "Return the number of keys in the selected database", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    Command::new("swapdb", 3, flag::WRITE | flag::FAST, Touch::Swap, swapdb).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Server, "4.0.0", "Swaps two Redis databases", "O(N) where N is the count of clients watching or blocking on keys from both databases."),
];

/// The database that an argument names.
pub(super) fn db_argument(ctx: &Ctx<'_>, text: &[u8]) -> Result<DbId, CmdError> {
    let number = int(text)?;
    checked_db(ctx, number)
}

fn checked_db(ctx: &Ctx<'_>, number: i64) -> Result<DbId, CmdError> {
    match u32::try_from(number) {
        Ok(number) if number < ctx.server.database_count => Ok(DbId(number)),
        _ => Err(errors::DB_OUT_OF_RANGE.into()),
    }
}

pub fn dbsize(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    let key_count = ctx.server.store.db_stats(ctx.client.db).key_count;
    ctx.reply.int(key_count as i64);
    Ok(())
}

pub fn flushdb(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    check_flush_mode(args)?;
    let db = ctx.db();
    flush(ctx, db)?;
    ctx.reply.ok();
    Ok(())
}

pub fn flushall(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    check_flush_mode(args)?;
    for db in 0..ctx.server.database_count {
        flush(ctx, DbId(db))?;
    }
    ctx.count_more(1);
    let settings = &ctx.config.settings;
    if settings.save_points.is_empty() {
        ctx.reply.ok();
        return Ok(());
    }
    // Saved at once, as in Redis: a crash does not bring the old keys back.
    let target = default_target(settings);
    if ctx.client.within == Within::Script {
        // A script waits for nothing.
        ctx.server.saver.schedule(target);
        ctx.reply.ok();
        return Ok(());
    }
    let waiter = ctx.wait_for_save(When::EndInAnyCase);
    ctx.server.saver.save_from_now_on(target, waiter);
    Ok(())
}

/// `ASYNC` or `SYNC`: the store unlinks the data at once and frees its pages in the background either way.
fn check_flush_mode(args: &Args<'_>) -> CmdResult {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "ASYNC") || args.is(1, "SYNC") => Ok(()),
        _ => Err(errors::SYNTAX.into()),
    }
}

fn flush(ctx: &mut Ctx<'_>, db: DbId) -> CmdResult {
    if ctx.server.store.db_stats(db).key_count > 0 {
        ctx.worker.database(db).flush()?;
    }
    Ok(())
}

pub fn swapdb(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let first = int(args.at(1)).map_err(|_| CmdError::from("ERR invalid first DB index"))?;
    let second = int(args.at(2)).map_err(|_| CmdError::from("ERR invalid second DB index"))?;
    let (first, second) = (checked_db(ctx, first)?, checked_db(ctx, second)?);
    if first != second {
        ctx.worker.database(first).swap_with(second)?;
    } else {
        ctx.count_more(1);
    }
    ctx.reply.ok();
    Ok(())
}

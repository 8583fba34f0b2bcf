//! Keys as such: presence, removal, copies, moves.

use stillframe_store::{DbId, Fault, Key, OpError, Reach, ValueType};

use super::database::db_argument;
use super::walk::{duplicate, go_on};
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::session::Ahead;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("copy", -3, flag::WRITE | flag::DENYOOM, Touch::OneOperation, copy).beyond_keys().acl(acl::KEYSPACE).ahead_of_exec(copy_large).reaching(copied)
        .doc(Group::Generic, "6.2.0", "Copy a key", "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS), KeySpec::range(2, 0, 1, key_flag::OW | key_flag::UPDATE)])
        .other_keys(copy_other_keys),
    Command::new("del", -2, flag::WRITE, Touch::EachKey, del).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Delete a key", "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RM | key_flag::DELETE)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .quick(),
    Command::new("exists", -2, flag::READONLY | flag::FAST, Touch::EachKey, exists).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Determine if a key exists", "O(N) where N is the number of keys to check.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    Command::new("move", 3, flag::WRITE | flag::FAST, Touch::Steps, move_key).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Move a key to another database", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)])
        .other_keys(move_other_keys),
    Command::new("rename", 3, flag::WRITE, Touch::Steps, rename).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Rename a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::OW | key_flag::UPDATE)]),
    Command::new("renamenx", 3, flag::WRITE | flag::FAST, Touch::Steps, renamenx).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Rename a key, only if the new key does not exist", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE), KeySpec::range(2, 0, 1, key_flag::OW | key_flag::INSERT)]),
    Command::new("touch", -2, flag::READONLY | flag::FAST, Touch::EachKey, touch).acl(acl::KEYSPACE)
        .doc(Group::Generic, "3.2.1", "Alters the last access time of a key(s). Returns the number of existing keys specified.", "O(N) where N is the number of keys that will be touched.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"]),
    Command::new("type", 2, flag::READONLY | flag::FAST, Touch::OneOperation, type_of).acl(acl::KEYSPACE)
        .doc(Group::Generic, "1.0.0", "Determine the type stored at key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("unlink", -2, flag::WRITE | flag::FAST, Touch::EachKey, del).acl(acl::KEYSPACE)
        .doc(Group::Generic, "4.0.0", "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.", "O(1) for each key removed regardless of its size. Then the command does O(N) work in a different thread in order to reclaim memory, where N is the number of allocations the deleted objects where composed of.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RM | key_flag::DELETE)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .quick(),
];

const SAME_OBJECT: &str = "ERR source and destination objects are the same";

/// `DEL` and `UNLINK`: the store frees large values in the background in any case.
pub fn del(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let db = ctx.db();
    let mut count = 0;
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        if ctx.worker.remove(db, &key)? {
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
        ctx.looked_up(&key, found);
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
        ctx.looked_up(&key, found);
        count += i64::from(found);
    }
    ctx.reply.int(count);
    Ok(())
}

pub fn type_of(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let found = ctx.worker.entry(ctx.client.db, &key)?;
    ctx.looked_up(&key, found.is_some());
    ctx.reply.simple(found.map_or("none", |entry| entry.value_type.name()));
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
    crate::text::number::parse_i64(text).and_then(|n| u32::try_from(n).ok()).map(DbId)
}

/// What a `COPY` asks for.
struct CopyOptions {
    to_db: DbId,
    replaces: bool,
}

impl CopyOptions {
    fn parse(ctx: &Ctx<'_>, args: &Args<'_>) -> Result<CopyOptions, CmdError> {
        let mut options = CopyOptions { to_db: ctx.db(), replaces: false };
        let mut index = 3;
        while index < args.len() {
            if args.is(index, "REPLACE") {
                options.replaces = true;
            } else if args.is(index, "DB") && index + 1 < args.len() {
                options.to_db = db_argument(ctx, args.at(index + 1))?;
                index += 1;
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

/// Before a `COPY`: copies a large value, part by part.
pub fn copy_large(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let CopyOptions { to_db, replaces } = CopyOptions::parse(ctx, args)?;
    let to = ctx.key(args, 2);
    if !replaces && ctx.worker.entry(to_db, &to)?.is_some() {
        ctx.client.ahead = None;
        return Ok(());
    }
    let from = ctx.key(args, 1);
    match ctx.worker.entry(ctx.client.db, &from)? {
        Some(entry) if entry.value_type != ValueType::String => copy_long_elements(ctx, &from),
        _ => duplicate(ctx, &from, false),
    }
}

/// Copies the long elements of a collection into the session.
fn copy_long_elements(ctx: &mut Ctx<'_>, from: &Key<'_>) -> CmdResult {
    if !matches!(ctx.client.ahead.as_deref(), Some(Ahead::Elements(_))) {
        let begun = ctx.worker.collection_at(ctx.client.db, from).begin_copies()?;
        ctx.client.ahead = begun.map(|copies| Box::new(Ahead::Elements(copies)));
    }
    match ctx.client.ahead.as_deref_mut() {
        Some(Ahead::Elements(copies)) => go_on(copies.step(ctx.worker)),
        _ => Ok(()),
    }
}

pub fn copy(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let from_db = ctx.db();
    let CopyOptions { to_db, replaces } = CopyOptions::parse(ctx, args)?;
    let (from, to) = (ctx.key(args, 1), ctx.key(args, 2));
    if from_db == to_db && from.bytes == to.bytes {
        return Err(SAME_OBJECT.into());
    }
    let found = ctx.worker.entry(from_db, &from)?.is_some();
    ctx.looked_up(&from, found);
    let can_copy = found && (replaces || ctx.worker.entry(to_db, &to)?.is_none());
    if can_copy {
        match ctx.client.ahead.take().map(|ahead| *ahead) {
            Some(Ahead::Copy(copy)) if ctx.worker.string_at(from_db, &from).is_source(&copy)? => {
                ctx.worker.copy_duplicate((from_db, &from), (to_db, &to), &copy)?;
            }
            // Somebody has changed it just now.
            Some(Ahead::Copy(_)) if !ctx.client.within.is_transaction() => return Err(Fault::pause().into()),
            Some(Ahead::Elements(copies)) => {
                let copied = ctx.worker.copy_collection((from_db, &from), (to_db, &to), &copies);
                if let Err(OpError::Fault(fault)) = copied {
                    // It begins anew, with what has been made.
                    ctx.client.ahead = Some(Box::new(Ahead::Elements(copies)));
                    return Err(fault.into());
                }
                copied?;
            }
            _ => drop(ctx.worker.copy((from_db, &from), (to_db, &to))?),
        }
    }
    ctx.reply.int(i64::from(can_copy));
    Ok(())
}

fn copied(_: &Args<'_>, index: usize) -> Reach {
    if index == 1 {
        Reach::WHOLE
    } else {
        Reach::Nothing
    }
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

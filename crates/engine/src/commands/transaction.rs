//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`.

use crate::command::{acl, flag, key_flag, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::exec;
use crate::dispatch::talk::Talk;
use crate::protocol::args::Args;
use crate::state::session::{Session, Transaction, Watched};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("multi", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY | flag::INSIDE_MULTI, Touch::Nothing, multi)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "1.2.0", "Mark the start of a transaction block", "O(1)"),
    Command::new("exec", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::SKIP_SLOWLOG | flag::EXEC | flag::INSIDE_MULTI, Touch::Queued, exec)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "1.2.0", "Execute all commands issued after MULTI", "Depends on commands in the transaction"),
    Command::new("discard", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY | flag::INSIDE_MULTI, Touch::Nothing, discard)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "2.0.0", "Discard all commands issued after MULTI", "O(N), when N is the number of queued commands"),
    Command::new("watch", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY | flag::INSIDE_MULTI, Touch::EachKey, watch)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "2.2.0", "Watch the given keys to determine execution of the MULTI/EXEC block", "O(1) for every key.")
        .keys(&[KeySpec::range(1, -1, 1, key_flag::RO)]),
    Command::new("unwatch", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::ALLOW_BUSY, Touch::Nothing, unwatch)
        .acl(acl::TRANSACTION)
        .doc(Group::Transactions, "2.2.0", "Forget about all watched keys", "O(1)"),
];

pub fn multi(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    begin(&mut ctx.talk())
}

pub fn begin(ctx: &mut Talk<'_, '_>) -> CmdResult {
    if ctx.client.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    ctx.client.transaction = Some(Box::new(Transaction::default()));
    ctx.reply.ok();
    Ok(())
}

pub fn discard(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    give_up(&mut ctx.talk())
}

pub fn give_up(ctx: &mut Talk<'_, '_>) -> CmdResult {
    if ctx.client.transaction.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    ctx.end_transaction();
    ctx.reply.ok();
    Ok(())
}

/// Whether keys may be watched now.
///
/// # Errors
/// Redis's.
pub fn admit_watch(client: &Session) -> CmdResult {
    match &client.transaction {
        Some(_) => Err("ERR WATCH inside MULTI is not allowed".into()),
        None => Ok(()),
    }
}

pub fn watch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    admit_watch(ctx.client)?;
    let db = ctx.db();
    let mut found = Vec::with_capacity(args.len() - 1);
    for index in 1..args.len() {
        let key = ctx.key(args, index);
        let entry = ctx.worker.entry(db, &key)?;
        let deadline = entry.and_then(|entry| entry.deadline);
        found.push(Watched {
            db,
            key: key.bytes.to_vec(),
            hash: key.hash,
            was_there: entry.is_some(),
            deadline,
        });
    }
    for watched in found {
        if !ctx.client.watched.contains(&watched) {
            ctx.server.watches.watch(ctx.client.id, &ctx.client.watch_flag, &watched);
            ctx.client.watched_bytes += watched.byte_count();
            ctx.client.watched.insert(watched);
        }
    }
    ctx.reply.ok();
    Ok(())
}

pub fn unwatch(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    forget(&mut ctx.talk())
}

pub fn forget(ctx: &mut Talk<'_, '_>) -> CmdResult {
    ctx.unwatch_all();
    ctx.reply.ok();
    Ok(())
}

pub fn exec(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    exec::run(ctx)
}

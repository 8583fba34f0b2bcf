//! Hashes: fields that are set, read and removed.

use std::ops::ControlFlow;

use stillframe_store::FieldMode;

use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::stream::{self, Shape};
use crate::protocol::args::Args;
use crate::protocol::errors;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("hdel", -3, flag::WRITE | flag::FAST, hdel).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Delete one or more hash fields", "O(N) where N is the number of fields to be removed.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("hget", 3, flag::READONLY | flag::FAST, hget).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get the value of a hash field", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("hgetall", 2, flag::READONLY, hgetall).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get all the fields and values in a hash", "O(N) where N is the size of the hash.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("hlen", 2, flag::READONLY | flag::FAST, hlen).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get the number of fields in a hash", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("hmget", -3, flag::READONLY | flag::FAST, hmget).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get the values of all the given hash fields", "O(N) where N is the number of fields being requested.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("hset", -4, flag::WRITE | flag::DENYOOM | flag::FAST, hset).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Set the string value of a hash field", "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
];

/// Sets the pairs of the arguments; how many fields are new.
fn set_pairs(ctx: &mut Ctx<'_>, args: &Args<'_>, command: &str) -> Result<u64, CmdError> {
    if args.len() % 2 != 0 {
        return Err(errors::wrong_arity(command).into());
    }
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let pairs: Vec<(&[u8], &[u8])> =
        (2..args.len()).step_by(2).map(|index| (args.at(index), args.at(index + 1))).collect();
    Ok(ctx.worker.hash_set(db, &key, &pairs, FieldMode::All)?)
}

pub fn hset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let added = set_pairs(ctx, args, "hset")?;
    ctx.reply.int(added as i64);
    Ok(())
}

pub fn hget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    let mut is_missing = true;
    let found = worker.hash_get(client.db, &key, [args.at(2)].into_iter(), |_, value| {
        if let Some(value) = value {
            is_missing = false;
            reply.bulk(value);
        }
    })?;
    if is_missing {
        ctx.reply.null();
    }
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn hmget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    reply.array(args.len() - 2);
    let found = worker.hash_get(client.db, &key, args.from(2), |_, value| match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    })?;
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn hdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let fields: Vec<&[u8]> = args.from(2).collect();
    let removed = ctx.worker.hash_remove(db, &key, &fields)?;
    ctx.reply.int(removed as i64);
    Ok(())
}

pub fn hlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.hash_len(ctx.client.db, &key)?;
    ctx.looked_up(&key, len > 0);
    ctx.reply.int(len as i64);
    Ok(())
}

pub fn hgetall(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let field_count = ctx.worker.hash_len(ctx.client.db, &key)?;
    if stream::begin(ctx, key.bytes, field_count, Shape::Pairs) {
        return Ok(());
    }
    let Ctx { worker, reply, client, .. } = ctx;
    let reply = std::cell::RefCell::new(reply);
    let found = worker.hash_for_each(
        client.db,
        &key,
        |count| reply.borrow_mut().map(count as usize),
        |field, value| {
            let mut reply = reply.borrow_mut();
            reply.bulk(field);
            reply.bulk(value);
            if reply.out.is_over() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    )?;
    if !found {
        ctx.reply.map(0);
    }
    ctx.looked_up(&key, found);
    Ok(())
}

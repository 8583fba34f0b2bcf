//! Hashes: fields that are set, read and removed. Their deadlines are in `hash_deadlines`.

use std::cell::RefCell;
use std::ops::ControlFlow;

use stillframe_store::{Bytes, Deadline, Draw, FieldMode, GivenField};

use super::random::{drawn, reply_drawn};
use super::scan::{ScanOptions, MAX_CURSOR};
use crate::command::operand::{integer, integer_in};
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::stream::{self, Shape};
use crate::protocol::args::Args;
use crate::protocol::collected::Collected;
use crate::protocol::errors;
use crate::protocol::reply::Decimal;
use crate::state::drawing::Drawn;
use crate::text::long_double::{parse, LongDouble, Parsed};
use crate::text::number::{parse_cursor, parse_i64};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("hdel", -3, flag::WRITE | flag::FAST, Touch::OneOperation, hdel).element(2).acl(acl::HASH).receives_names(|index| index >= 2)
        .doc(Group::Hash, "2.0.0", "Delete one or more hash fields", "O(N) where N is the number of fields to be removed.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::DELETE)]),
    Command::new("hexists", 3, flag::READONLY | flag::FAST, Touch::OneOperation, hexists).element(2).acl(acl::HASH).receives_names(|index| index >= 2)
        .doc(Group::Hash, "2.0.0", "Determine if a hash field exists", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("hget", 3, flag::READONLY | flag::FAST, Touch::OneOperation, hget).element(2).acl(acl::HASH).receives_names(|index| index >= 2)
        .doc(Group::Hash, "2.0.0", "Get the value of a hash field", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("hgetall", 2, flag::READONLY, Touch::OneOperation, hgetall).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get all the fields and values in a hash", "O(N) where N is the size of the hash.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("hincrby", 4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hincrby).element(2).event("hincrby").acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Increment the integer value of a hash field by the given number", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("hincrbyfloat", 4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hincrbyfloat).element(2).event("hincrbyfloat").acl(acl::HASH)
        .doc(Group::Hash, "2.6.0", "Increment the float value of a hash field by the given amount", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("hkeys", 2, flag::READONLY, Touch::OneOperation, hkeys).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get all the fields in a hash", "O(N) where N is the size of the hash.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
    Command::new("hlen", 2, flag::READONLY | flag::FAST, Touch::OneOperation, hlen).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get the number of fields in a hash", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("hmget", -3, flag::READONLY | flag::FAST, Touch::OneOperation, hmget).element(2).acl(acl::HASH).receives_names(|index| index >= 2)
        .doc(Group::Hash, "2.0.0", "Get the values of all the given hash fields", "O(N) where N is the number of fields being requested.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("hmset", -4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hmset).element(2).acl(acl::HASH).receives(is_value).receives_names(is_field)
        .doc(Group::Hash, "2.0.0", "Set multiple hash fields to multiple values", "O(N) where N is the number of fields being set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hrandfield", -2, flag::READONLY, Touch::Of(drawn), hrandfield).acl(acl::HASH)
        .doc(Group::Hash, "6.2.0", "Get one or multiple random fields from a hash", "O(N) where N is the number of fields returned")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("hscan", -3, flag::READONLY, Touch::OneOperation, hscan).acl(acl::HASH)
        .doc(Group::Hash, "2.8.0", "Incrementally iterate hash fields and associated values", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("hset", -4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hset).element(2).acl(acl::HASH).receives(is_value).receives_names(is_field)
        .doc(Group::Hash, "2.0.0", "Set the string value of a hash field", "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hsetnx", 4, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hsetnx).element(2).acl(acl::HASH).receives(is_value).receives_names(is_field)
        .doc(Group::Hash, "2.0.0", "Set the value of a hash field, only if the field does not exist", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::INSERT)]),
    Command::new("hstrlen", 3, flag::READONLY | flag::FAST, Touch::OneOperation, hstrlen).element(2).acl(acl::HASH).receives_names(|index| index >= 2)
        .doc(Group::Hash, "3.2.0", "Get the length of the value of a hash field", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO)]),
    Command::new("hvals", 2, flag::READONLY, Touch::OneOperation, hvals).acl(acl::HASH)
        .doc(Group::Hash, "2.0.0", "Get all the values in a hash", "O(N) where N is the size of the hash.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output_order"]),
];

/// Whether an argument of `HSET` is a value.
fn is_value(index: usize) -> bool {
    index >= 3 && index % 2 == 1
}

fn is_field(index: usize) -> bool {
    index >= 2 && index % 2 == 0
}

/// No number is longer.
const NUMBER_MAX_BYTES: usize = 8192;

/// Sets the pairs of the arguments; how many fields are new.
fn set_pairs(ctx: &mut Ctx<'_>, args: &Args<'_>, command: &str) -> Result<u64, CmdError> {
    if args.len() % 2 != 0 {
        return Err(errors::wrong_arity(command).into());
    }
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if args.len() == 4 {
        let pair = [(args.bytes(2), args.bytes(3))];
        return Ok(ctx.worker.hash_at(db, &key).set(&pair, FieldMode::All, Deadline::Clear)?);
    }
    let pairs: Vec<(Bytes<'_>, Bytes<'_>)> =
        (2..args.len()).step_by(2).map(|index| (args.bytes(index), args.bytes(index + 1))).collect();
    Ok(ctx.worker.hash_at(db, &key).set(&pairs, FieldMode::All, Deadline::Clear)?)
}

pub fn hset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let added = set_pairs(ctx, args, "hset")?;
    ctx.reply.int(added as i64);
    Ok(())
}

pub fn hmset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_pairs(ctx, args, "hmset")?;
    ctx.reply.ok();
    Ok(())
}

pub fn hsetnx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let pair = [(args.bytes(2), args.bytes(3))];
    let added = ctx.worker.hash_at(db, &key).set(&pair, FieldMode::Absent, Deadline::Clear)?;
    ctx.reply.int(added as i64);
    Ok(())
}

/// Bytes of the value of the field at argument 2, if it is there.
fn value_len(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<Option<u64>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let (len, found) = ctx.worker.hash_at(db, &key).value_len(args.bytes(2))?;
    ctx.looked_up(&key, found);
    Ok(len)
}

/// Sets the field at argument 2, which keeps its deadline, to what `renew` makes of its value.
fn renew<T: AsRef<[u8]>>(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    renew: impl FnMut(Option<&[u8]>) -> Result<T, CmdError>,
) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.hash_at(db, &key).renew(args.at(2), renew)?
}

pub fn hincrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (increment, mut new) = (integer(args.at(3))?, 0);
    renew(ctx, args, |old| {
        let old = old.map_or(Some(0), parse_i64).ok_or("ERR hash value is not an integer")?;
        new = old.checked_add(increment).ok_or("ERR increment or decrement would overflow")?;
        Ok(Decimal::of(new))
    })?;
    ctx.reply.int(new);
    Ok(())
}

pub fn hincrbyfloat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let increment = match parse(args.at(3)) {
        None => return Err("ERR value is not a valid float".into()),
        Some(Parsed::Infinite) => return Err("ERR value is NaN or Infinity".into()),
        Some(Parsed::Finite(increment)) => increment,
    };
    let number = |value: &[u8]| if value.len() > NUMBER_MAX_BYTES { None } else { parse(value) };
    let mut text = String::new();
    renew(ctx, args, |old| {
        let zero = Parsed::Finite(LongDouble::from_i64(0));
        let new = match old.map_or(Some(zero), number).ok_or("ERR hash value is not a float")? {
            Parsed::Finite(old) => old.plus(increment),
            Parsed::Infinite => None,
        };
        text = new.ok_or("ERR increment would produce NaN or Infinity")?.to_text();
        Ok(text.clone())
    })?;
    ctx.reply.bulk(text.as_bytes());
    Ok(())
}

pub fn hget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    let mut is_missing = true;
    let found = worker.hash_at(client.db, &key).send([args.bytes(2)].into_iter(), |_, value| {
        if let Some(value) = value {
            is_missing = false;
            reply.bulk_given(value);
        }
    })?;
    if is_missing {
        ctx.reply.null();
    }
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn hexists(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let len = value_len(ctx, args)?;
    ctx.reply.int(i64::from(len.is_some()));
    Ok(())
}

pub fn hstrlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let len = value_len(ctx, args)?;
    ctx.reply.int(len.unwrap_or(0) as i64);
    Ok(())
}

pub fn hmget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    reply.array(args.len() - 2);
    let found = worker.hash_at(client.db, &key).send(args.bytes_from(2), |_, value| match value {
        Some(value) => reply.bulk_given(value),
        None => reply.null(),
    })?;
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn hdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key, before) = (ctx.db(), ctx.key(args, 1), ctx.worker.change_count());
    let removed = match args.len() {
        3 => ctx.worker.hash_at(db, &key).remove(&[args.bytes(2)])?,
        _ => ctx.worker.hash_at(db, &key).remove(&args.bytes_from(2).collect::<Vec<_>>())?,
    };
    // The key, if it goes with the last field, is no change of its own.
    ctx.count_as(before, removed);
    ctx.reply.int(removed as i64);
    Ok(())
}

pub fn hlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let len = ctx.worker.hash_at(ctx.client.db, &key).len()?;
    ctx.looked_up(&key, len > 0);
    ctx.reply.int(len as i64);
    Ok(())
}

/// Which parts of the fields a reply has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Fields,
    Values,
    Pairs,
}

pub fn hgetall(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_all(ctx, args, Parts::Pairs)
}

pub fn hkeys(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_all(ctx, args, Parts::Fields)
}

pub fn hvals(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_all(ctx, args, Parts::Values)
}

fn reply_all(ctx: &mut Ctx<'_>, args: &Args<'_>, parts: Parts) -> CmdResult {
    let key = ctx.key(args, 1);
    let field_count = ctx.worker.hash_at(ctx.client.db, &key).len()?;
    let shape = match parts {
        Parts::Pairs => Shape::Pairs,
        Parts::Fields => Shape::Fields,
        Parts::Values => Shape::Values,
    };
    if stream::begin(ctx, key.bytes, field_count, shape) {
        return Ok(());
    }
    let Ctx { worker, reply, client, .. } = ctx;
    worker.counting().look_anew();
    let reply = RefCell::new(reply);
    let begin = |count| match parts {
        Parts::Pairs => reply.borrow_mut().map(count as usize),
        Parts::Fields | Parts::Values => reply.borrow_mut().array(count as usize),
    };
    let found = worker.hash_at(client.db, &key).send_all(begin, |found| {
        let mut reply = reply.borrow_mut();
        if parts != Parts::Values {
            reply.bulk_given(found.field);
        }
        if parts != Parts::Fields {
            reply.bulk_given(found.value);
        }
        if reply.out.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if !found {
        begin(0);
    }
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn hrandfield(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() == 2 {
        return one_random(ctx, args);
    }
    let count = integer_in(args.at(2), -i64::MAX..=i64::MAX)?;
    let with_values = match args.len() {
        3 => false,
        4 if args.is(3, "WITHVALUES") => true,
        _ => return Err(errors::SYNTAX.into()),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err("ERR value is out of range".into());
    }
    let key = ctx.key(args, 1);
    if count < 0 {
        let mut has_fields = false;
        let found = ctx.worker.hash_at(ctx.client.db, &key).random(
            Draw::Repeated(1),
            |_| (),
            |_| {
                has_fields = true;
                ControlFlow::Break(())
            },
        )?;
        ctx.looked_up(&key, found);
        let count = if has_fields { count.unsigned_abs() } else { 0 };
        return reply_drawn(ctx, key.bytes, Drawn::Fields { with_values }, count);
    }
    let draw = Draw::Distinct(count as u64);
    let Ctx { worker, reply, client, .. } = ctx;
    let reply = RefCell::new(reply);
    let begin = |count: u64| {
        let mut reply = reply.borrow_mut();
        let is_flat = with_values && !reply.resp3;
        reply.array(if is_flat { 2 * count as usize } else { count as usize });
    };
    let found = worker.hash_at(client.db, &key).send_random(draw, begin, |found| {
        let mut reply = reply.borrow_mut();
        if with_values && reply.resp3 {
            reply.array(2);
        }
        reply.bulk_given(found.field);
        if with_values {
            reply.bulk_given(found.value);
        }
        if reply.out.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if !found {
        begin(0);
    }
    ctx.looked_up(&key, found);
    Ok(())
}

fn one_random(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, .. } = ctx;
    let mut is_missing = true;
    let give = |found: GivenField<'_>| {
        is_missing = false;
        reply.bulk_given(found.field);
        ControlFlow::Break(())
    };
    let found = worker.hash_at(client.db, &key).send_random(Draw::Distinct(1), |_| (), give)?;
    if is_missing {
        ctx.reply.null();
    }
    ctx.looked_up(&key, found);
    Ok(())
}

pub fn hscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let Some(cursor) = parse_cursor(args.at(2)) else { return Err("ERR invalid cursor".into()) };
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    // Whether the options are right is only looked at where there is a hash.
    let options = ScanOptions::parse(args, 3, true);
    let (count, has_values) =
        options.as_ref().map_or((1, true), |options| (options.count, !options.without_values));
    let is_wanted = |name: &[u8]| options.as_ref().is_ok_and(|options| options.pattern.matches(name));
    let mut found = Collected::new(&ctx.reply);
    let cursor = cursor.min(MAX_CURSOR);
    let next = ctx.worker.hash_at(db, &key).scan(cursor, count, |given| {
        if is_wanted(given.field) {
            found.push(given.field);
            if has_values {
                found.push(given.value);
            }
        }
    })?;
    if next.is_some() {
        options?;
    }
    ctx.looked_up(&key, next.is_some());
    ctx.reply.array(2);
    ctx.reply.bulk_int(next.unwrap_or(0) as i64);
    found.reply(&mut ctx.reply);
    Ok(())
}

//! Strings as numbers.

use std::ops::Range;

use stillframe_store::{Deadline, NewValue, Reach};

use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::long_double::{parse, LongDouble, Parsed};
use crate::text::number::value_i64;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("decr", 2, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, decr).event("incrby").acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.0", "Decrement the integer value of a key by one", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("decrby", 3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, decrby).event("incrby").acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.0", "Decrement the integer value of a key by the given number", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("incr", 2, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, incr).event("incrby").acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.0", "Increment the integer value of a key by one", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("incrby", 3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, incrby).event("incrby").acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.0", "Increment the integer value of a key by the given amount", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
    Command::new("incrbyfloat", 3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, incrbyfloat).event("incrbyfloat").acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "2.6.0", "Increment the float value of a key by the given amount", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)]),
];

const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// No number is longer.
const NUMBER_MAX_BYTES: u64 = 8192;
const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";

pub fn incr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    add(ctx, args, 1)
}

pub fn decr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    add(ctx, args, -1)
}

pub fn incrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let increment = integer(args.at(2))?;
    add(ctx, args, increment)
}

pub fn decrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    match integer(args.at(2))?.checked_neg() {
        Some(increment) => add(ctx, args, increment),
        None => Err("ERR decrement would overflow".into()),
    }
}

/// What of a value is looked at: nothing if it can be no number.
fn number_bytes(len: u64) -> Range<u64> {
    if len > NUMBER_MAX_BYTES {
        0..0
    } else {
        0..len
    }
}

fn add(ctx: &mut Ctx<'_>, args: &Args<'_>, increment: i64) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let old = match ctx.worker.string_at(db, &key).get_part(number_bytes, |value| value_i64(&value))? {
        None => 0,
        Some(Some(old)) => old,
        Some(None) => return Err(errors::NOT_AN_INTEGER.into()),
    };
    let Some(new) = old.checked_add(increment) else {
        return Err("ERR increment or decrement would overflow".into());
    };
    ctx.worker.set(db, &key, NewValue::Int(new), Deadline::Keep)?;
    ctx.reply.int(new);
    Ok(())
}

pub fn incrbyfloat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let old = ctx.worker.string_at(db, &key).get_part(number_bytes, |value| match value.as_int() {
        Some(int) => Some(Parsed::Finite(LongDouble::from_i64(int))),
        None if value.len() > NUMBER_MAX_BYTES => None,
        None => parse(&value.to_vec()),
    })?;
    let old = match old {
        None => Parsed::Finite(LongDouble::from_i64(0)),
        Some(Some(old)) => old,
        Some(None) => return Err(NOT_A_FLOAT.into()),
    };
    let Some(increment) = parse(args.at(2)) else { return Err(NOT_A_FLOAT.into()) };
    let (Parsed::Finite(old), Parsed::Finite(increment)) = (old, increment) else {
        return Err(NOT_FINITE.into());
    };
    let Some(new) = old.plus(increment) else { return Err(NOT_FINITE.into()) };
    let text = new.to_text();
    let value = NewValue::Bytes { bytes: text.as_bytes(), raw: false };
    ctx.worker.set(db, &key, value, Deadline::Keep)?;
    ctx.reply.bulk(text.as_bytes());
    Ok(())
}

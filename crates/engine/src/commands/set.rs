//! Setting whole strings, with conditions and deadlines.

use stillframe_store::{Deadline, NewValue, Reach, UnixMillis};

use super::string::{reply_value, sends_whole};
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::encode;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("getdel", 2, flag::WRITE | flag::FAST, Touch::OneOperation, getdel).reading().acl(acl::STRING).reaching(sends_whole)
        .doc(Group::String, "6.2.0", "Get the value of a key and delete the key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("getex", -2, flag::WRITE | flag::FAST, Touch::OneOperation, getex).reading().acl(acl::STRING).reaching(sends_whole)
        .doc(Group::String, "6.2.0", "Get the value of a key and optionally set its expiration", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE).notes("RW and UPDATE because it changes the TTL")])
        .quick(),
    Command::new("getset", 3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, getset).reading().acl(acl::STRING).reaching(sends_whole)
        .doc(Group::String, "1.0.0", "Set the string value of a key and return its old value", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE)])
        .receives(|index| index == 2),
    Command::new("mset", -3, flag::WRITE | flag::DENYOOM, Touch::EachKey, mset).acl(acl::STRING).receives(is_value_of_pair).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.1", "Set multiple keys to multiple values", "O(N) where N is the number of keys to set.")
        .keys(&[KeySpec::range(1, -1, 2, key_flag::OW | key_flag::UPDATE)])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    Command::new("msetnx", -3, flag::WRITE | flag::DENYOOM, Touch::EachKey, msetnx).acl(acl::STRING).receives(is_value_of_pair).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.1", "Set multiple keys to multiple values, only if none of the keys exist", "O(N) where N is the number of keys to set.")
        .keys(&[KeySpec::range(1, -1, 2, key_flag::OW | key_flag::INSERT)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"]),
    Command::new("psetex", 4, flag::WRITE | flag::DENYOOM, Touch::OneOperation, psetex).acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "2.6.0", "Set the value and expiration in milliseconds of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)])
        .quick()
        .receives(|index| index == 3),
    Command::new("set", -3, flag::WRITE | flag::DENYOOM, Touch::OneOperation, set).reading().acl(acl::STRING).reaching(sends_old)
        .doc(Group::String, "1.0.0", "Set the string value of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE | key_flag::VARIABLE_FLAGS).notes("RW and ACCESS due to the optional `GET` argument")])
        .flags_fn(key_flags)
        .quick()
        .receives(|index| index == 2),
    Command::new("setex", 4, flag::WRITE | flag::DENYOOM, Touch::OneOperation, setex).acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "2.0.0", "Set the value and expiration of a key", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)])
        .quick()
        .receives(|index| index == 3),
    Command::new("setnx", 3, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, setnx).acl(acl::STRING).reaching(|_, _| Reach::Nothing)
        .doc(Group::String, "1.0.0", "Set the value of a key, only if the key does not exist", "O(1)")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::INSERT)])
        .receives(|index| index == 2),
];

/// The unit and the origin of a deadline argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeFormat {
    Seconds,
    Millis,
    UnixSeconds,
    UnixMillis,
}

impl TimeFormat {
    pub fn of_option(word: &[u8]) -> Option<TimeFormat> {
        match word {
            _ if word.eq_ignore_ascii_case(b"EX") => Some(TimeFormat::Seconds),
            _ if word.eq_ignore_ascii_case(b"PX") => Some(TimeFormat::Millis),
            _ if word.eq_ignore_ascii_case(b"EXAT") => Some(TimeFormat::UnixSeconds),
            _ if word.eq_ignore_ascii_case(b"PXAT") => Some(TimeFormat::UnixMillis),
            _ => None,
        }
    }

    pub fn is_absolute(self) -> bool {
        matches!(self, TimeFormat::UnixSeconds | TimeFormat::UnixMillis)
    }

    pub fn is_in_seconds(self) -> bool {
        matches!(self, TimeFormat::Seconds | TimeFormat::UnixSeconds)
    }
}

pub(super) fn invalid_expire_time(command: &str) -> CmdError {
    format!("ERR invalid expire time in '{command}' command").into()
}

/// A deadline that must be positive, as `SET` and its kin take it.
fn deadline(text: &[u8], format: TimeFormat, now: UnixMillis, command: &str) -> Result<UnixMillis, CmdError> {
    let number = integer(text)?;
    let factor = if format.is_in_seconds() { 1000 } else { 1 };
    let origin = if format.is_absolute() { 0 } else { now };
    number
        .checked_mul(factor)
        .filter(|&ms| ms > 0)
        .and_then(|ms| ms.checked_add(origin))
        .ok_or_else(|| invalid_expire_time(command))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// The options of `SET`.
struct SetOptions<'a> {
    condition: Condition,
    returns_old: bool,
    keeps_deadline: bool,
    deadline: Option<(TimeFormat, &'a [u8])>,
}

impl<'a> SetOptions<'a> {
    const NONE: SetOptions<'static> = SetOptions {
        condition: Condition::Always,
        returns_old: false,
        keeps_deadline: false,
        deadline: None,
    };

    fn parse(args: &Args<'a>) -> Result<SetOptions<'a>, CmdError> {
        let mut options = SetOptions::NONE;
        let mut index = 3;
        while index < args.len() {
            if args.is(index, "NX") && options.condition != Condition::IfPresent {
                options.condition = Condition::IfAbsent;
            } else if args.is(index, "XX") && options.condition != Condition::IfAbsent {
                options.condition = Condition::IfPresent;
            } else if args.is(index, "GET") {
                options.returns_old = true;
            } else if args.is(index, "KEEPTTL") && options.deadline.is_none() {
                options.keeps_deadline = true;
            } else if let (Some(format), false) =
                (TimeFormat::of_option(args.at(index)), options.keeps_deadline)
            {
                options.deadline = Some(time_argument(args, index, format, options.deadline)?);
                index += 1;
            } else {
                return Err(errors::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

/// The argument of `EX` and its kin. The same option may be given again, another one may not.
fn time_argument<'a>(
    args: &Args<'a>,
    index: usize,
    format: TimeFormat,
    earlier: Option<(TimeFormat, &'a [u8])>,
) -> Result<(TimeFormat, &'a [u8]), CmdError> {
    match args.get(index + 1) {
        Some(text) if earlier.is_none_or(|(other, _)| other == format) => Ok((format, text)),
        _ => Err(errors::SYNTAX.into()),
    }
}

/// What a call of `SET` does with its key, as `COMMAND GETKEYSANDFLAGS` tells it.
pub fn key_flags(args: &Args<'_>) -> u32 {
    if (3..args.len()).any(|index| args.is(index, "GET")) {
        key_flag::RW | key_flag::ACCESS | key_flag::UPDATE
    } else {
        key_flag::OW | key_flag::UPDATE
    }
}

fn sends_old(args: &Args<'_>, _: usize) -> Reach {
    if (3..args.len()).any(|index| args.is(index, "GET")) {
        Reach::SENT
    } else {
        Reach::Nothing
    }
}

pub fn set(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = if args.len() == 3 { SetOptions::NONE } else { SetOptions::parse(args)? };
    let deadline = match options.deadline {
        Some((format, text)) => Deadline::At(deadline(text, format, ctx.worker.now(), "set")?),
        None if options.keeps_deadline => Deadline::Keep,
        None => Deadline::Clear,
    };
    if options.returns_old {
        let found = reply_value(ctx, args, 1)?;
        if is_met(options.condition, found) {
            store(ctx, args, 2, deadline)?;
        }
        return Ok(());
    }
    if options.condition != Condition::Always {
        let key = ctx.key(args, 1);
        let found = ctx.worker.entry(ctx.client.db, &key)?.is_some();
        if !is_met(options.condition, found) {
            ctx.reply.null();
            return Ok(());
        }
    }
    store(ctx, args, 2, deadline)?;
    ctx.reply.ok();
    Ok(())
}

fn is_met(condition: Condition, is_present: bool) -> bool {
    match condition {
        Condition::Always => true,
        Condition::IfAbsent => !is_present,
        Condition::IfPresent => is_present,
    }
}

/// Stores the argument at `value_index` under the first key.
fn store(ctx: &mut Ctx<'_>, args: &Args<'_>, value_index: usize, deadline: Deadline) -> CmdResult {
    store_at(ctx, args, 1, value_index, deadline)
}

/// The same under the key at `key_index`.
fn store_at(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    key_index: usize,
    value_index: usize,
    deadline: Deadline,
) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, key_index));
    let value = match args.incoming(value_index) {
        // Stored already by a command that met a missing page after that, and runs once more.
        Some(value) if value.is_used() => return Ok(()),
        Some(value) => NewValue::Incoming(value),
        None => encode(args.at(value_index)),
    };
    match deadline {
        Deadline::At(deadline) => ctx.worker.string_at(db, &key).set_until(value, deadline)?,
        deadline => ctx.worker.set(db, &key, value, deadline)?,
    };
    Ok(())
}

pub fn setnx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let is_absent = ctx.worker.entry(ctx.client.db, &key)?.is_none();
    if is_absent {
        store(ctx, args, 2, Deadline::Clear)?;
    }
    ctx.reply.int(i64::from(is_absent));
    Ok(())
}

pub fn setex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_with_deadline(ctx, args, TimeFormat::Seconds, "setex")
}

pub fn psetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_with_deadline(ctx, args, TimeFormat::Millis, "psetex")
}

fn set_with_deadline(ctx: &mut Ctx<'_>, args: &Args<'_>, format: TimeFormat, name: &str) -> CmdResult {
    let deadline = deadline(args.at(2), format, ctx.worker.now(), name)?;
    store(ctx, args, 3, Deadline::At(deadline))?;
    ctx.reply.ok();
    Ok(())
}

pub fn getset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_value(ctx, args, 1)?;
    store(ctx, args, 2, Deadline::Clear)
}

pub fn getdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if reply_value(ctx, args, 1)? {
        remove(ctx, args)?;
    }
    Ok(())
}

fn remove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    ctx.worker.remove(db, &key)?;
    Ok(())
}

pub fn getex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (mut is_persist, mut time) = (false, None);
    let mut index = 2;
    while index < args.len() {
        if args.is(index, "PERSIST") && time.is_none() {
            is_persist = true;
        } else if let (Some(format), false) = (TimeFormat::of_option(args.at(index)), is_persist) {
            time = Some(time_argument(args, index, format, time)?);
            index += 1;
        } else {
            return Err(errors::SYNTAX.into());
        }
        index += 1;
    }
    if !reply_value(ctx, args, 1)? {
        return Ok(());
    }
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if let Some((format, text)) = time {
        let deadline = deadline(text, format, ctx.worker.now(), "getex")?;
        if deadline <= ctx.worker.now() {
            return remove(ctx, args);
        }
        ctx.worker.set_deadline(db, &key, Some(deadline))?;
    } else if is_persist && ctx.worker.entry(db, &key)?.is_some_and(|entry| entry.deadline.is_some()) {
        ctx.worker.set_deadline(db, &key, None)?;
    }
    Ok(())
}

pub fn mset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    check_pairs(args, "mset")?;
    store_pairs(ctx, args)?;
    ctx.reply.ok();
    Ok(())
}

pub fn msetnx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    check_pairs(args, "msetnx")?;
    for index in (1..args.len()).step_by(2) {
        let key = ctx.key(args, index);
        if ctx.worker.entry(ctx.client.db, &key)?.is_some() {
            ctx.reply.int(0);
            return Ok(());
        }
    }
    store_pairs(ctx, args)?;
    ctx.reply.int(1);
    Ok(())
}

fn check_pairs(args: &Args<'_>, name: &str) -> CmdResult {
    if args.len() % 2 == 0 {
        return Err(errors::wrong_arity(name).into());
    }
    Ok(())
}

fn is_value_of_pair(index: usize) -> bool {
    index >= 2 && index % 2 == 0
}

fn store_pairs(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    for index in (1..args.len()).step_by(2) {
        store_at(ctx, args, index, index + 1, Deadline::Clear)?;
    }
    Ok(())
}

//! Deadlines of fields, as Redis has them since 7.4, and the commands of Redis 8.0 that read or write a field together with its
//! deadline.

use std::collections::{BTreeMap, BTreeSet};

use stillframe_store::{Deadline, FieldMode, UnixMillis};

use super::expire::Condition;
use super::set::{invalid_expire_time, TimeFormat};
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::parse_i64;

const O_FIELDS: &str = "O(N) where N is the number of specified fields";

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("hexpire", -6, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hexpire).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Set expiry for hash field using relative time to expire (seconds)", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hexpireat", -6, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hexpireat).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Set expiry for hash field using an absolute Unix timestamp (seconds)", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hexpiretime", -5, flag::READONLY | flag::FAST, Touch::OneOperation, hexpiretime).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Returns the expiration time of a hash field as a Unix timestamp, in seconds.", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("hgetdel", -5, flag::WRITE | flag::FAST, Touch::OneOperation, hgetdel).acl(acl::HASH)
        .doc(Group::Hash, "8.0.0", "Returns the value of a field and deletes it from the hash.", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::DELETE)]),
    Command::new("hgetex", -5, flag::WRITE | flag::FAST, Touch::OneOperation, hgetex).acl(acl::HASH)
        .doc(Group::Hash, "8.0.0", "Get the value of one or more fields of a given hash key, and optionally set their expiration.", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::ACCESS | key_flag::UPDATE).notes("RW and UPDATE because it changes the TTL")]),
    Command::new("hpersist", -5, flag::WRITE | flag::FAST, Touch::OneOperation, hpersist).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Removes the expiration time for each specified field", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hpexpire", -6, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hpexpire).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Set expiry for hash field using relative time to expire (milliseconds)", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hpexpireat", -6, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hpexpireat).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Set expiry for hash field using an absolute Unix timestamp (milliseconds)", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("hpexpiretime", -5, flag::READONLY | flag::FAST, Touch::OneOperation, hpexpiretime).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Returns the expiration time of a hash field as a Unix timestamp, in msec.", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)]),
    Command::new("hpttl", -5, flag::READONLY | flag::FAST, Touch::OneOperation, hpttl).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Returns the TTL in milliseconds of a hash field.", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("hsetex", -6, flag::WRITE | flag::DENYOOM | flag::FAST, Touch::OneOperation, hsetex).acl(acl::HASH)
        .doc(Group::Hash, "8.0.0", "Set the value of one or more fields of a given hash key, and optionally set their expiration.", "O(N) where N is the number of fields being set.")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RW | key_flag::UPDATE)]),
    Command::new("httl", -5, flag::READONLY | flag::FAST, Touch::OneOperation, httl).acl(acl::HASH)
        .doc(Group::Hash, "7.4.0", "Returns the TTL in seconds of a hash field.", O_FIELDS)
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
];

/// The latest deadline that Redis takes: 46 bits of milliseconds.
const DEADLINE_MAX_MS: i64 = 0xffff_ffff_ffff >> 2;

const FIELDS_MISSING: &str = "ERR Mandatory argument FIELDS is missing or not at the right position";
const COUNT_DIFFERS: &str = "ERR The `numfields` parameter must match the number of arguments";
const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// There is no such field.
const NO_FIELD: i64 = -2;
/// It has no deadline.
const NO_DEADLINE: i64 = -1;
const UNCHANGED: i64 = 0;
const CHANGED: i64 = 1;
/// The deadline had passed.
const REMOVED: i64 = 2;

/// What a field has: nothing if it is not there, else its deadline.
type State = Option<Option<UnixMillis>>;

/// The fields behind `FIELDS numfields`, which is at an argument index; nothing follows them.
fn fields<'a>(args: &Args<'a>, at: usize, not_positive: &str) -> Result<Vec<&'a [u8]>, CmdError> {
    if !args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"FIELDS")) {
        return Err(FIELDS_MISSING.into());
    }
    let count = args.get(at + 1).and_then(parse_i64).filter(|count| *count > 0);
    let Some(count) = count else { return Err(not_positive.to_owned().into()) };
    if count as u64 != args.len() as u64 - (at as u64 + 2) {
        return Err(COUNT_DIFFERS.into());
    }
    Ok(args.from(at + 2).collect())
}

/// A deadline, as the commands on fields take it.
fn deadline(text: &[u8], format: TimeFormat, now: UnixMillis, command: &str) -> Result<UnixMillis, CmdError> {
    let number = integer(text)?;
    if number < 0 {
        return Err("ERR invalid expire time, must be >= 0".into());
    }
    let factor = if format.is_in_seconds() { 1000 } else { 1 };
    let origin = if format.is_absolute() { 0 } else { now };
    let deadline = number.checked_mul(factor).and_then(|ms| ms.checked_add(origin));
    deadline.filter(|deadline| *deadline <= DEADLINE_MAX_MS).ok_or_else(|| invalid_expire_time(command))
}

/// An operation on a value of another type ends with an error before its arguments are looked at.
fn must_be_hash(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let entry = ctx.worker.entry(db, &key)?;
    entry.map_or(Ok(()), |entry| entry.must_be(stillframe_store::ValueType::Hash))?;
    Ok(())
}

/// What the fields have now. Whether the hash is there is the second.
fn states(ctx: &mut Ctx<'_>, args: &Args<'_>, fields: &[&[u8]]) -> Result<(Vec<State>, bool), CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let mut states = Vec::with_capacity(fields.len());
    let found =
        ctx.worker.hash_at(db, &key).deadlines(fields.iter().copied(), |_, state| states.push(state))?;
    Ok((states, found))
}

pub fn hexpire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::Seconds, "hexpire")
}

pub fn hpexpire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::Millis, "hpexpire")
}

pub fn hexpireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::UnixSeconds, "hexpireat")
}

pub fn hpexpireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_deadline(ctx, args, TimeFormat::UnixMillis, "hpexpireat")
}

fn set_deadline(ctx: &mut Ctx<'_>, args: &Args<'_>, format: TimeFormat, command: &str) -> CmdResult {
    must_be_hash(ctx, args)?;
    let now = ctx.worker.now();
    let deadline = deadline(args.at(2), format, now, command)?;
    let condition = Condition::one(args.at(3));
    let fields_at = if condition.is_some() { 4 } else { 3 };
    let fields = fields(args, fields_at, "ERR Parameter `numFields` should be greater than 0")?;
    let condition = condition.unwrap_or_default();
    let (states, _) = states(ctx, args, &fields)?;
    let (mut changed, mut seen, mut codes) = (Vec::new(), BTreeMap::new(), Vec::with_capacity(fields.len()));
    for (field, state) in fields.iter().zip(states) {
        // A field may be named twice.
        let state = seen.entry(*field).or_insert(state);
        codes.push(match *state {
            None => NO_FIELD,
            Some(before) if !condition.is_met(deadline, before) => UNCHANGED,
            Some(_) => {
                changed.push(*field);
                let is_over = deadline <= now;
                *state = if is_over { None } else { Some(Some(deadline)) };
                if is_over {
                    REMOVED
                } else {
                    CHANGED
                }
            }
        });
    }
    expire_or_remove(ctx, args, &changed, Some(deadline))?;
    reply_codes(ctx, &codes);
    Ok(())
}

/// Gives fields a deadline, or takes it away; one that has passed removes them.
fn expire_or_remove(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    fields: &[&[u8]],
    deadline: Option<UnixMillis>,
) -> CmdResult {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    match deadline {
        _ if fields.is_empty() => 0,
        Some(deadline) if deadline <= ctx.worker.now() => ctx.worker.hash_at(db, &key).remove(fields)?,
        deadline => ctx.worker.hash_at(db, &key).set_deadline(fields, deadline)?,
    };
    Ok(())
}

fn reply_codes(ctx: &mut Ctx<'_>, codes: &[i64]) {
    ctx.reply.array(codes.len());
    codes.iter().for_each(|code| ctx.reply.int(*code));
}

pub fn hpersist(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    must_be_hash(ctx, args)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let (states, _) = states(ctx, args, &fields)?;
    let (mut changed, mut codes) = (BTreeSet::new(), Vec::with_capacity(fields.len()));
    for (field, state) in fields.iter().zip(states) {
        codes.push(match state {
            None => NO_FIELD,
            Some(Some(_)) if changed.insert(*field) => CHANGED,
            Some(_) => NO_DEADLINE,
        });
    }
    let changed: Vec<&[u8]> = changed.into_iter().collect();
    expire_or_remove(ctx, args, &changed, None)?;
    reply_codes(ctx, &codes);
    Ok(())
}

pub fn httl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadlines(ctx, args, TimeFormat::Seconds)
}

pub fn hpttl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadlines(ctx, args, TimeFormat::Millis)
}

pub fn hexpiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadlines(ctx, args, TimeFormat::UnixSeconds)
}

pub fn hpexpiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    reply_deadlines(ctx, args, TimeFormat::UnixMillis)
}

fn reply_deadlines(ctx: &mut Ctx<'_>, args: &Args<'_>, format: TimeFormat) -> CmdResult {
    must_be_hash(ctx, args)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    ctx.worker.counting().look_anew();
    let (states, found) = states(ctx, args, &fields)?;
    let origin = if format.is_absolute() { 0 } else { ctx.worker.now() };
    let number = |state: State| match state {
        None => NO_FIELD,
        Some(None) => NO_DEADLINE,
        // Seconds are rounded up.
        Some(Some(deadline)) if format.is_in_seconds() => (deadline - origin).saturating_add(999) / 1000,
        Some(Some(deadline)) => deadline - origin,
    };
    let numbers: Vec<i64> = states.into_iter().map(number).collect();
    ctx.looked_up(&ctx.key(args, 1), found);
    reply_codes(ctx, &numbers);
    Ok(())
}

/// Replies with the values of fields, and gives those that are there. One that is named again counts as gone if `takes` them.
fn reply_values<'a>(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    fields: &[&'a [u8]],
    takes: bool,
) -> Result<Vec<&'a [u8]>, CmdError> {
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    let (mut seen, mut there) = (BTreeSet::new(), Vec::new());
    let Ctx { worker, reply, .. } = ctx;
    reply.array(fields.len());
    worker.hash_at(db, &key).send(fields.iter().copied(), |index, value| match value {
        Some(value) if !takes || seen.insert(fields[index]) => {
            there.push(fields[index]);
            reply.bulk_given(value);
        }
        _ => reply.null(),
    })?;
    Ok(there)
}

pub fn hgetdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    must_be_hash(ctx, args)?;
    let fields = fields(args, 2, NOT_POSITIVE)?;
    let there = reply_values(ctx, args, &fields, true)?;
    if !there.is_empty() {
        let (db, key) = (ctx.db(), ctx.key(args, 1));
        ctx.worker.hash_at(db, &key).remove(&there)?;
    }
    Ok(())
}

pub fn hgetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    must_be_hash(ctx, args)?;
    let (now, format) = (ctx.worker.now(), TimeFormat::of_option(args.at(2)));
    let (deadline, fields_at) = match format {
        Some(format) => (Some(Some(deadline(args.at(3), format, now, "hgetex")?)), 4),
        None if args.is(2, "PERSIST") => (Some(None), 3),
        None => (None, 2),
    };
    let fields = fields(args, fields_at, NOT_POSITIVE)?;
    let takes = deadline.flatten().is_some_and(|deadline| deadline <= now);
    let mut there = reply_values(ctx, args, &fields, takes)?;
    if deadline == Some(None) {
        // Of those without a deadline nothing changes.
        let (states, _) = states(ctx, args, &there)?;
        let mut states = states.into_iter();
        there.retain(|_| states.next().flatten().flatten().is_some());
    }
    match deadline {
        Some(deadline) => expire_or_remove(ctx, args, &there, deadline),
        None => Ok(()),
    }
}

/// When `HSETEX` sets anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldCondition {
    AllThere,
    NoneThere,
}

/// The arguments of `HSETEX`.
struct SetExpiring<'a> {
    condition: Option<FieldCondition>,
    deadline: Option<Deadline>,
    pairs: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> SetExpiring<'a> {
    fn parse(args: &Args<'a>, now: UnixMillis) -> Result<SetExpiring<'a>, CmdError> {
        let mut options = SetExpiring { condition: None, deadline: None, pairs: Vec::new() };
        let mut index = 2;
        while !args.get(index).ok_or_else(|| errors::wrong_arity("hsetex"))?.eq_ignore_ascii_case(b"FIELDS") {
            index += options.option(args, index, now)?;
        }
        let count = args.get(index + 1).ok_or_else(|| errors::wrong_arity("hsetex"))?;
        let count = parse_i64(count).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
        let Some(count) = count else { return Err("ERR invalid number of fields".into()) };
        let words: Vec<&[u8]> = args.from(index + 2).collect();
        if words.len() as i64 != 2 * count {
            return Err(errors::wrong_arity("hsetex").into());
        }
        options.pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Ok(options)
    }

    /// Takes one option; of how many arguments.
    fn option(&mut self, args: &Args<'_>, index: usize, now: UnixMillis) -> Result<usize, CmdError> {
        let word = args.at(index);
        let condition = match word {
            _ if word.eq_ignore_ascii_case(b"FXX") => Some(FieldCondition::AllThere),
            _ if word.eq_ignore_ascii_case(b"FNX") => Some(FieldCondition::NoneThere),
            _ => None,
        };
        if condition.is_some() {
            if self.condition.is_some() {
                return Err("ERR Only one of FXX or FNX arguments can be specified".into());
            }
            self.condition = condition;
            return Ok(1);
        }
        let format = TimeFormat::of_option(word);
        if format.is_none() && !word.eq_ignore_ascii_case(b"KEEPTTL") {
            return Err([b"ERR unknown argument: ", errors::printed(word)].concat().into());
        }
        if self.deadline.is_some() {
            return Err("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified".into());
        }
        let Some(format) = format else {
            self.deadline = Some(Deadline::Keep);
            return Ok(1);
        };
        let Some(time) = args.get(index + 1) else { return Err("ERR missing expire time".into()) };
        self.deadline = Some(Deadline::At(deadline(time, format, now, "hsetex")?));
        Ok(2)
    }
}

pub fn hsetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let now = ctx.worker.now();
    let SetExpiring { condition, deadline, pairs } = SetExpiring::parse(args, now)?;
    must_be_hash(ctx, args)?;
    let fields: Vec<&[u8]> = pairs.iter().map(|(field, _)| *field).collect();
    if let Some(condition) = condition {
        let (states, _) = states(ctx, args, &fields)?;
        let is_there = condition == FieldCondition::AllThere;
        if states.iter().any(|state| state.is_some() != is_there) {
            ctx.reply.int(0);
            return Ok(());
        }
    }
    match deadline {
        // Set and gone at once.
        Some(Deadline::At(deadline)) if deadline <= now => {
            expire_or_remove(ctx, args, &fields, Some(deadline))?;
        }
        deadline => {
            let (db, key) = (ctx.db(), ctx.key(args, 1));
            let deadline = deadline.unwrap_or(Deadline::Clear);
            ctx.worker.hash_at(db, &key).set(&pairs, FieldMode::All, deadline)?;
        }
    }
    ctx.reply.int(1);
    Ok(())
}

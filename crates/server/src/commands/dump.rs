//! `DUMP` and `RESTORE`: a value as the payload that Redis servers exchange.

use stillframe_store::rdb::{self, PayloadError, RdbString, RdbValue, StringRef};
use stillframe_store::{Access, Deadline, NewValue, OpError, Reach, UnixMillis};

use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::text::number::encode;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("dump", 2, flag::READONLY, dump).acl(acl::KEYSPACE).reaching(|_, _| Reach::WHOLE)
        .doc(Group::Generic, "2.6.0", "Return a serialized version of the value stored at the specified key.", "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::RO | key_flag::ACCESS)])
        .tips(&["nondeterministic_output"]),
    Command::new("restore", -4, flag::WRITE | flag::DENYOOM, restore).acl(acl::KEYSPACE | acl::DANGEROUS)
        .doc(Group::Generic, "2.6.0", "Create a key using the provided serialized value, previously obtained using DUMP.", "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).")
        .keys(&[KeySpec::range(1, 0, 1, key_flag::OW | key_flag::UPDATE)]),
];

pub fn dump(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let value = ctx.worker.get(ctx.client.db, &key, |value| match value.as_int() {
        Some(int) => RdbString::Int(int),
        None => RdbString::Bytes(value.to_vec()),
    });
    let value = match value {
        Err(OpError::WrongType) => return Err("ERR values of this type cannot be serialized yet".into()),
        value => value?,
    };
    ctx.stats.looked_up(value.is_some());
    match value {
        None => ctx.reply.null(),
        Some(value) => {
            let string: StringRef<'_> = value.as_ref();
            ctx.reply.bulk(&rdb::dump_string(string, Some(&mut rdb::Compressor::new())));
        }
    }
    Ok(())
}

/// The options of `RESTORE`. `IDLETIME` and `FREQ` are used if `maxmemory-policy` asks for them.
#[derive(Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
    idle_time: Option<Access>,
    frequency: Option<Access>,
}

fn parse(args: &Args<'_>) -> Result<Options, CmdError> {
    let mut options = Options::default();
    let mut index = 4;
    while index < args.len() {
        let has_value = index + 1 < args.len();
        if args.is(index, "REPLACE") {
            options.replaces = true;
        } else if args.is(index, "ABSTTL") {
            options.is_absolute = true;
        } else if args.is(index, "IDLETIME") && has_value && options.frequency.is_none() {
            let Ok(seconds) = u64::try_from(integer(args.at(index + 1))?) else {
                return Err("ERR Invalid IDLETIME value, must be >= 0".into());
            };
            options.idle_time = Some(Access::Idle { seconds });
            index += 1;
        } else if args.is(index, "FREQ") && has_value && options.idle_time.is_none() {
            let Ok(count) = u8::try_from(integer(args.at(index + 1))?) else {
                return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
            };
            options.frequency = Some(Access::Frequency { count });
            index += 1;
        } else {
            return Err(errors::SYNTAX.into());
        }
        index += 1;
    }
    Ok(options)
}

pub fn restore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let options = parse(args)?;
    let (db, key) = (ctx.db(), ctx.key(args, 1));
    if !options.replaces && ctx.worker.entry(db, &key)?.is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = integer(args.at(2))?;
    if ttl < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let RdbValue::String(value) = rdb::parse_payload(args.at(3)).map_err(payload_error)? else {
        return Err(payload_error(PayloadError::BadData));
    };
    let now = ctx.worker.now();
    let deadline = deadline(ttl, options.is_absolute, now);
    if deadline.is_some_and(|deadline| deadline <= now) {
        if options.replaces {
            ctx.worker.remove(db, &key)?;
        }
    } else {
        let value = match &value {
            RdbString::Int(int) => NewValue::Int(*int),
            RdbString::Bytes(bytes) => encode(bytes),
        };
        ctx.worker.set(db, &key, value, deadline.map_or(Deadline::Clear, Deadline::At))?;
        if let Some(access) = options.idle_time.or(options.frequency) {
            ctx.worker.set_access(db, &key, access);
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// A sum that overflows lies in the past, as in Redis.
fn deadline(ttl: i64, is_absolute: bool, now: UnixMillis) -> Option<UnixMillis> {
    match ttl {
        0 => None,
        _ if is_absolute => Some(ttl),
        _ => Some(ttl.wrapping_add(now)),
    }
}

fn payload_error(error: PayloadError) -> CmdError {
    format!("ERR {error}").into()
}

//! `DEBUG`: what tests and benchmarks need.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stillframe_store::rdb::{dump_string, StringRef};
use stillframe_store::{DbId, Deadline, NewValue, OpError};

use super::object::{encoding_name, ref_count};
use crate::command::operand::positive;
use crate::command::{flag, CmdError, CmdResult, Group, Scope};
use crate::dispatch::ctx::{Command, Ctx};
use crate::persistence::{load_dump, write_dump};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::push_decimal;
use crate::scrub::pass;
use crate::text::glob;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("debug", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, debug).scope(Scope::Of(scope))
        .doc(Group::Server, "1.0.0", "A container for debugging commands", "Depends on subcommand."),
];

/// Bytes of a payload of `DUMP` besides the serialized value: type, version and checksum.
const DUMP_FRAME_BYTES: usize = 11;
/// Longest `DEBUG SLEEP`: an hour.
const MAX_SLEEP_SECONDS: f64 = 3600.0;
/// Longest key that `DEBUG POPULATE` makes, as in Redis.
const MAX_POPULATED_KEY_BYTES: usize = 127;

/// What a subcommand touches.
pub fn scope(args: &Args<'_>) -> Scope {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"populate" | b"reload" => Scope::Data,
        b"object" => Scope::Walk,
        _ => Scope::Keys,
    }
}

pub fn debug(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let sub = args.at(1).to_ascii_lowercase();
    if ctx.server.loading.is_on() && matches!(sub.as_slice(), b"populate" | b"reload") {
        return Err(errors::LOADING.into());
    }
    match (sub.as_slice(), args.len()) {
        (b"sleep", 3) => sleep(ctx, args.at(2)),
        (b"populate", 3..=5) => populate(ctx, args),
        (b"object", 3) => object(ctx, args),
        (b"set-active-expire", 3) => {
            ctx.server.active_expire.store(c_int(args.at(2)) != 0, Ordering::Relaxed);
            ctx.reply.ok();
            Ok(())
        }
        (b"stringmatch-len", 4) => {
            let is_match = glob::matches(args.at(2), args.at(3), false);
            ctx.reply.int(i64::from(is_match));
            Ok(())
        }
        (b"error", 3) => Err(args.at(2).to_vec().into()),
        (b"scrub", 2) => scrub(ctx),
        (b"reload", 2..) => reload(ctx, args),
        (b"change-repl-id", 2) => {
            ctx.reply.ok();
            Ok(())
        }
        (b"help", 2) => {
            help(ctx);
            Ok(())
        }
        _ => Err(unknown_subcommand(args.at(1))),
    }
}

fn unknown_subcommand(name: &[u8]) -> CmdError {
    let name = &name[..name.len().min(128)];
    let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
    [b"ERR unknown subcommand or wrong number of arguments for '", name, b"'. Try DEBUG HELP."]
        .concat()
        .into()
}

/// Leading digits as a number, as C's `atoi` reads them.
fn c_int(text: &[u8]) -> i64 {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text[..end].iter().fold(0i64, |n, d| n.saturating_mul(10).saturating_add(i64::from(d - b'0')))
}

/// Keeps this worker busy, and whoever waits for it, as a slow command would.
fn sleep(ctx: &mut Ctx<'_>, text: &[u8]) -> CmdResult {
    let seconds: f64 = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).unwrap_or(0.0);
    if seconds > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(seconds.min(MAX_SLEEP_SECONDS)));
    }
    ctx.reply.ok();
    Ok(())
}

/// Creates `count` keys `prefix:n` with the values `value:n`, cut or padded with zero bytes to `size`. Keys
/// that are there stay.
fn populate(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let count = positive(args.at(2))?;
    let size = args.get(4).map(positive).transpose()?.unwrap_or(0) as usize;
    if size as u64 > stillframe_store::MAX_STRING_BYTES {
        return Err(errors::TOO_LARGE.into());
    }
    let db = ctx.db();
    let (mut name, mut value) = (args.get(3).unwrap_or(b"key").to_vec(), b"value:".to_vec());
    name.truncate(name.iter().position(|&b| b == 0).unwrap_or(name.len()));
    name.push(b':');
    let (name_len, value_len) = (name.len(), value.len());
    let before = ctx.worker.change_count();
    for number in 0..count {
        name.truncate(name_len);
        value.truncate(value_len);
        push_decimal(&mut name, number);
        push_decimal(&mut value, number);
        name.truncate(MAX_POPULATED_KEY_BYTES);
        if size > 0 {
            value.resize(size, 0);
        }
        let key = ctx.worker.key(&name);
        if ctx.worker.entry(db, &key)?.is_none() {
            ctx.worker.set(db, &key, NewValue::Bytes { bytes: &value, raw: false }, Deadline::Clear)?;
        }
    }
    ctx.count_as(before, 0);
    ctx.reply.ok();
    Ok(())
}

/// Writes a dump, empties all databases and loads the dump, while all others stand still.
fn reload(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let saves = match args.len() {
        2 => true,
        3 if args.is(2, "NOSAVE") => false,
        _ => return Err("ERR DEBUG RELOAD only supports the NOSAVE option.".into()),
    };
    let settings = &ctx.config.settings;
    let path = ctx.server.store.dir().join(&settings.dbfilename);
    if saves {
        let written = write_dump(&ctx.server.store, &path, settings);
        written.map_err(|error| format!("ERR Error saving the dump: {error}"))?;
    }
    let before = ctx.server.store.change_count();
    for db in (0..ctx.server.database_count).map(DbId) {
        ctx.worker.flush_db(db)?;
    }
    // Whoever wants to stop the server waits for the end of this command.
    let never = AtomicBool::new(false);
    load_dump(ctx.worker, &path, settings, &ctx.server.loading, &ctx.server.eviction, &never)
        .map_err(|error| format!("ERR Error trying to load the RDB dump: {error}"))?;
    // The data is as it was: none of this is a change.
    ctx.count_more(before.wrapping_sub(ctx.server.store.change_count()));
    ctx.reply.ok();
    Ok(())
}

/// Verifies the whole page file while the client, and whoever this worker serves, waits.
fn scrub(ctx: &mut Ctx<'_>) -> CmdResult {
    let found = pass(&ctx.server.store, &ctx.server.is_stopping);
    let text =
        format!("pages:{} to_heal:{} lost:{}", found.page_count, found.to_heal_count, found.lost_count);
    ctx.reply.simple(&text);
    Ok(())
}

fn object(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 2);
    let Some(entry) = ctx.worker.entry(ctx.client.db, &key)? else { return Err(errors::NO_SUCH_KEY.into()) };
    let ref_count = ref_count(ctx, args, &entry)?;
    let serialized = ctx.worker.get(ctx.client.db, &key, |value| match value.as_int() {
        Some(int) => dump_string(StringRef::Int(int), None),
        None => dump_string(StringRef::Bytes(&value.to_vec()), None),
    });
    let serialized = match serialized {
        Err(OpError::WrongType) => None,
        serialized => serialized?,
    };
    let serialized_bytes = serialized.map_or(0, |payload| payload.len() - DUMP_FRAME_BYTES);
    let encoding = encoding_name(entry.encoding);
    let idle_seconds = entry.idle_ms / 1000;
    let text = format!(
        "Value at:{:#x} refcount:{ref_count} encoding:{encoding} serializedlength:{serialized_bytes} lru:0 \
         lru_seconds_idle:{idle_seconds}",
        key.hash
    );
    ctx.reply.simple(&text);
    Ok(())
}

fn help(ctx: &mut Ctx<'_>) {
    ctx.reply.help(
        "DEBUG",
        &[
            "CHANGE-REPL-ID",
            "    Change the replication IDs of the instance. There are none.",
            "ERROR <string>",
            "    Return a Redis protocol error with <string> as message. Useful for clients",
            "    unit tests to simulate Redis errors.",
            "OBJECT <key>",
            "    Show low level info about `key` and associated value.",
            "POPULATE <count> [<prefix>] [<size>]",
            "    Create <count> string keys named key:<num>. If <prefix> is specified then",
            "    it is used instead of the 'key' prefix.",
            "RELOAD [NOSAVE]",
            "    Save an RDB file and load it back. With NOSAVE, load the one that there is.",
            "SCRUB",
            "    Verify the page file now; the next checkpoint writes anew what is damaged there and",
            "    whole in memory.",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    Setting it to 0 disables expiring keys in background when they are not",
            "    accessed (otherwise the Redis behavior). Setting it to 1 reenables back the",
            "    default.",
            "SLEEP <seconds>",
            "    Stop the server for <seconds>. Decimals allowed.",
            "STRINGMATCH-LEN <pattern> <string>",
            "    Return 1 if <string> matches <pattern>, else 0.",
        ],
    );
}

//! `DEBUG`: what tests and benchmarks need.

mod load_log;
mod protocol;
#[cfg(debug_assertions)]
mod reply_gate;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stillframe_store::rdb::{dump_string, StringRef};
use stillframe_store::{digest, Cause, DbId, Deadline, NewValue, OpError, SaveError};

use super::object::{encoding_name, ref_count};
use crate::command::operand::{integer, positive};
use crate::command::{flag, CmdError, CmdResult, Group, Touch};
use crate::config::{parse_memory, Settings, Unnamed};
use crate::dispatch::ctx::{Command, Ctx};
use crate::log;
use crate::persistence::{load_dump, write_dump, Load, Saver, Target, Twins};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::push_decimal;
use crate::scrub::pass;
use crate::text::glob;
use crate::text::number::c_int;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("debug", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::DEBUG, Touch::Of(touch), debug)
        .doc(Group::Server, "1.0.0", "A container for debugging commands", "Depends on subcommand."),
];

/// Bytes of a payload of `DUMP` besides the serialized value: type, version and checksum.
const DUMP_FRAME_BYTES: usize = 11;
/// Longest `DEBUG SLEEP`: an hour.
const MAX_SLEEP_SECONDS: f64 = 3600.0;
/// Longest key that `DEBUG POPULATE` makes, as in Redis.
const MAX_POPULATED_KEY_BYTES: usize = 127;

/// Elements of a list from so many bytes on may be asked to lie alone; of what is asked for it must be less.
const MAX_PACKED_THRESHOLD_BYTES: u64 = 1 << 32;

/// How a subcommand touches the data.
fn touch(args: &Args<'_>) -> Touch {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"populate" | b"reload" | b"loadaof" | b"digest" | b"digest-value" => Touch::Alone,
        b"object" => Touch::Walk,
        #[cfg(debug_assertions)]
        b"reply-gate" => reply_gate::touch(args),
        _ => Touch::Nothing,
    }
}

pub fn debug(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let sub = args.at(1).to_ascii_lowercase();
    if ctx.server.loading.is_on() && matches!(touch(args), Touch::Alone) {
        return Err(errors::LOADING.into());
    }
    match (sub.as_slice(), args.len()) {
        (b"populate", 3..=5) => populate(ctx, args),
        (b"object", 3) => object(ctx, args),
        (b"digest", 2) => digest_of_all(ctx),
        (b"digest-value", 2..) => digests_of_values(ctx, args),
        (b"protocol", 3) => protocol::reply_of_kind(ctx, args.at(2)),
        (b"stringmatch-len", 4) => {
            let is_match = glob::matches(args.at(2), args.at(3), false);
            ctx.reply.int(i64::from(is_match));
            Ok(())
        }
        (b"error", 3) => Err(args.at(2).to_vec().into()),
        (b"scrub", 2) => scrub(ctx),
        #[cfg(debug_assertions)]
        (b"reply-gate", 3..=4) => reply_gate::rehearse(ctx, args),
        (b"reload", 2..) => reload(ctx, args),
        (b"loadaof", 2) => load_log::load_and_compare(ctx),
        (b"help", 2) => {
            help(ctx);
            Ok(())
        }
        (sub, _) => {
            act(ctx, sub, args)?;
            ctx.reply.ok();
            Ok(())
        }
    }
}

/// The subcommands that answer with OK.
fn act(ctx: &mut Ctx<'_>, sub: &[u8], args: &Args<'_>) -> CmdResult {
    let is_on = || c_int(args.at(2)) != 0;
    match (sub, args.len()) {
        (b"sleep", 3) => sleep(args.at(2)),
        (b"set-active-expire", 3) => ctx.server.active_expire.store(is_on(), Ordering::Relaxed),
        (b"pause-cron", 3) => ctx.server.is_cron_paused.store(is_on(), Ordering::Relaxed),
        (b"set-skip-checksum-validation", 3) => ctx.server.skips_checksums.store(is_on(), Ordering::Relaxed),
        (b"log", 3) => log::warning(format!("DEBUG LOG: {}", String::from_utf8_lossy(args.at(2)))),
        (b"config-rewrite-force-all", 2) => {
            let written = ctx.server.config().rewrite_file(Unnamed::All);
            written.map_err(|reason| format!("ERR CONFIG-REWRITE-FORCE-ALL failed: {reason}"))?;
        }
        // There is no append-only file, no replication, no list of nodes and no reply buffer of that kind.
        (b"change-repl-id", 2) | (b"aof-flush-sleep", 3) | (b"replicate", 3..) => {}
        // Nor are there scripts.
        (b"set-disable-deny-scripts", 3) => {}
        (b"quicklist-packed-threshold", 3) => {
            if parse_memory(args.at(2)).is_none_or(|bytes| bytes >= MAX_PACKED_THRESHOLD_BYTES - 1) {
                return Err("ERR argument must be a memory value bigger than 1 and smaller than 4gb".into());
            }
        }
        (b"replybuffer", 4) if args.is(2, "resizing") => {}
        (b"replybuffer", 4) if args.is(2, "peak-reset-time") => {
            if !args.is(3, "never") && !args.is(3, "reset") {
                integer(args.at(3))?;
            }
        }
        _ => return Err(unknown_subcommand(args.at(1))),
    }
    Ok(())
}

fn digest_of_all(ctx: &mut Ctx<'_>) -> CmdResult {
    let view = ctx.server.store.view().map_err(unreadable)?;
    let digest = digest::of_all(&view, ctx.worker.now()).map_err(unreadable)?;
    ctx.reply.simple(&digest);
    Ok(())
}

fn digests_of_values(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let view = ctx.server.store.view().map_err(unreadable)?;
    let (store, now) = (&ctx.server.store, ctx.worker.now());
    let keys = args.tail(2);
    let digests = digest::of_values(store, &view, ctx.client.db, keys.from(0), now).map_err(unreadable)?;
    ctx.reply.array(digests.len());
    digests.iter().for_each(|digest| ctx.reply.simple(digest));
    Ok(())
}

fn unreadable(error: SaveError) -> CmdError {
    format!("ERR {error}").into()
}

fn unknown_subcommand(name: &[u8]) -> CmdError {
    let name = &name[..name.len().min(128)];
    let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
    [b"ERR unknown subcommand or wrong number of arguments for '", name, b"'. Try DEBUG HELP."]
        .concat()
        .into()
}

/// Keeps this worker busy, and whoever waits for it, as a slow command would.
fn sleep(text: &[u8]) {
    let seconds: f64 = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).unwrap_or(0.0);
    if seconds > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(seconds.min(MAX_SLEEP_SECONDS)));
    }
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

/// Writes a dump, empties all databases and loads the dump, or what of this is asked for, while all others stand still.
fn reload(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (mut saves, mut flushes, mut twins) = (true, true, Twins::Refused);
    for index in 2..args.len() {
        match () {
            () if args.is(index, "MERGE") => twins = Twins::Replace,
            () if args.is(index, "NOFLUSH") => flushes = false,
            () if args.is(index, "NOSAVE") => saves = false,
            () => return Err("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into()),
        }
    }
    let mut settings = ctx.config.settings.clone();
    settings.rdb_checksum &= !ctx.server.skips_checksums.load(Ordering::Relaxed);
    let settings = &settings;
    let path = ctx.server.store.dir().join(&settings.dbfilename);
    if is_dump_written(&ctx.server.saver) {
        // It would take the place of the file between two looks at that.
        return Err("ERR Background save already in progress".into());
    }
    if saves {
        let written = write_dump(&ctx.server.store, &path, settings);
        written.map_err(|error| format!("ERR Error saving the dump: {error}"))?;
    }
    let before = ctx.server.store.change_count();
    // What comes back as it was is no change. A log gets it all the same, as one unit: what has expired does not come back, and in a
    // transaction there are changes beside it.
    let is_same = saves && flushes && ctx.server.store.log().options().is_none();
    let cause = if is_same { Cause::Load } else { Cause::Call };
    let is_step = !ctx.client.within.is_transaction();
    if is_step {
        ctx.worker.steps().begin();
    }
    ctx.worker.steps().set_cause(cause);
    let reloaded = reload_from(ctx, settings, &path, (flushes, twins), cause);
    ctx.worker.steps().set_cause(Cause::Call);
    if is_step {
        ctx.worker.steps().end();
    }
    reloaded?;
    // The data is as it was: none of this is a change.
    ctx.count_more(before.wrapping_sub(ctx.server.store.change_count()));
    ctx.reply.ok();
    Ok(())
}

fn is_dump_written(saver: &Saver) -> bool {
    let is_running = saver.status().running.is_some_and(|(target, _)| target != Target::Pages);
    is_running || saver.is_scheduled(&Target::Rdb)
}

fn reload_from(
    ctx: &mut Ctx<'_>,
    settings: &Settings,
    path: &Path,
    (flushes, twins): (bool, Twins),
    cause: Cause,
) -> CmdResult {
    if flushes {
        for db in (0..ctx.server.database_count).map(DbId) {
            ctx.worker.database(db).flush()?;
        }
        // Other than FLUSHALL, as in Redis.
        ctx.worker.libraries().clear()?;
    }
    // Whoever wants to stop the server waits for the end of this command.
    let never = AtomicBool::new(false);
    let load = Load {
        settings,
        progress: &ctx.server.loading,
        eviction: &ctx.server.eviction,
        is_stopping: &never,
        twins,
        cause,
        key_delay_us: &|| settings.key_load_delay_us,
    };
    load_dump(ctx.worker, path, &load)
        .map_err(|error| format!("ERR Error trying to load the RDB dump: {error}"))?;
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
            "AOF-FLUSH-SLEEP <microsec>",
            "    Server will sleep before flushing the AOF. There is none.",
            "CHANGE-REPL-ID",
            "    Change the replication IDs of the instance. There are none.",
            "CONFIG-REWRITE-FORCE-ALL",
            "    Like CONFIG REWRITE but writes all configuration options, including",
            "    keywords not listed in original configuration file or default values.",
            "DIGEST",
            "    Output a hex signature representing the current DB content.",
            "DIGEST-VALUE <key> [<key> ...]",
            "    Output a hex signature of the values of all the specified keys.",
            "ERROR <string>",
            "    Return a Redis protocol error with <string> as message. Useful for clients",
            "    unit tests to simulate Redis errors.",
            "LOADAOF",
            "    Load the last checkpoint and the log beside the data, as a start would, and",
            "    compare: the data stays as it is, and the first key that differs is an error.",
            "LOG <message>",
            "    Write <message> to the server log.",
            "OBJECT <key>",
            "    Show low level info about `key` and associated value.",
            "PAUSE-CRON <0|1>",
            "    Stop periodic cron job processing.",
            "POPULATE <count> [<prefix>] [<size>]",
            "    Create <count> string keys named key:<num>. If <prefix> is specified then",
            "    it is used instead of the 'key' prefix.",
            "PROTOCOL <type>",
            "    Reply with a test value of the specified type. <type> can be: string,",
            "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,",
            "    true, false.",
            "QUICKLIST-PACKED-THRESHOLD <size>",
            "    Taken and without effect: lists are not kept as quicklists.",
            "RELOAD [option ...]",
            "    Save the RDB on disk and reload it back to memory. Valid <option> values:",
            "    * MERGE: conflicting keys will be loaded from RDB.",
            "    * NOFLUSH: the existing database will not be removed before load, but",
            "      conflicting keys will generate an error.",
            "    * NOSAVE: the database will be loaded from an existing RDB file.",
            "REPLICATE <string>",
            "    Replicates the provided string to replicas. There are none.",
            "REPLYBUFFER (PEAK-RESET-TIME <NEVER|RESET|time>|RESIZING <0|1>)",
            "    Taken and without effect: reply buffers are other ones.",
            "SCRUB",
            "    Verify the page file now; the next checkpoint writes anew what is damaged there and",
            "    whole in memory.",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    Setting it to 0 disables expiring keys in background when they are not",
            "    accessed (otherwise the Redis behavior). Setting it to 1 reenables back the",
            "    default.",
            "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
            "    Enables or disables checksum checks for RDB files and RESTORE's payload.",
            "SLEEP <seconds>",
            "    Stop the server for <seconds>. Decimals allowed.",
            "STRINGMATCH-LEN <pattern> <string>",
            "    Return 1 if <string> matches <pattern>, else 0.",
        ],
    );
}

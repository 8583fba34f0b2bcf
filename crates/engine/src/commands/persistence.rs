//! Saving by command, and the end of the server.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stillframe_store::log::SyncPolicy;

use crate::command::{acl, flag, operand, CmdError, CmdResult, Group, Touch};
use crate::config::OnSignal;
use crate::dispatch::ctx::{Command, Ctx};
use crate::log;
use crate::logging;
use crate::persistence::{default_target, temporary_path, Busy, Target, When};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::data_log::LogWaiter;
use crate::text::number;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("bgrewriteaof", 1, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING, Touch::Nothing, bgrewriteaof)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Asynchronously rewrite the append-only file", "O(1)"),
    Command::new("waitaof", 4, flag::NOSCRIPT | flag::BLOCKING, Touch::Nothing, waitaof)
        .acl(acl::CONNECTION)
        .doc(Group::Generic, "7.2.0", "Wait for acknowledgment of previous write commands in the append-only file", "O(1)"),
    Command::new("bgsave", -1, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING, Touch::Nothing, bgsave)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Asynchronously save the dataset to disk", "O(1)"),
    Command::new("backup", 3, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING | flag::NO_MULTI, Touch::Nothing, backup)
        .acl(0)
        .doc(Group::Server, "7.0.0", "Writes an RDB file of all databases as of now to a path (BACKUP TO path)", "O(1) for the clients; the file is written in the background"),
    Command::new("lastsave", 1, flag::LOADING | flag::STALE | flag::FAST, Touch::Nothing, lastsave)
        .acl(acl::ADMIN | acl::DANGEROUS)
        .doc(Group::Server, "1.0.0", "Get the UNIX time stamp of the last successful save to disk", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("save", 1, flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING | flag::NO_MULTI, Touch::Nothing, save)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Synchronously save the dataset to disk", "O(N) where N is the total number of keys in all databases"),
    Command::new("shutdown", -1, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::NO_MULTI | flag::ALLOW_BUSY, Touch::Nothing, shutdown)
        .acl(0)
        .doc(Group::Server, "1.0.0", "Synchronously save the dataset to disk and then shut down the server", "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)"),
];

const BUSY: &str = "ERR Background save already in progress";

/// Waits for the save, but does not stop the other clients.
pub fn save(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    start_and_wait(ctx, default_target(&ctx.config.settings))
}

fn start_and_wait(ctx: &mut Ctx<'_>, target: Target) -> CmdResult {
    start(ctx, target, When::End)
}

fn start(ctx: &mut Ctx<'_>, target: Target, when: When) -> CmdResult {
    let server = ctx.server;
    let started = server.saver.start(target, || ctx.wait_for_save(when));
    started.map_err(|Busy| BUSY.into())
}

/// `BGSAVE [SCHEDULE] [RDB|PAGES]`: answered as soon as the cut is taken. In a transaction it is scheduled, as in Redis:
/// the cut comes after the transaction and, unless another save is in the way, before the answer to it.
pub fn bgsave(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut target = default_target(&ctx.config.settings);
    let is_in_exec = ctx.client.within.is_transaction();
    let mut may_wait = is_in_exec;
    for index in 1..args.len() {
        match () {
            () if args.is(index, "schedule") => may_wait = true,
            () if args.is(index, "rdb") => target = Target::Rdb,
            () if args.is(index, "pages") => target = Target::Pages,
            () => return Err(errors::SYNTAX.into()),
        }
    }
    let when = if is_in_exec { When::CutOfScheduled } else { When::Cut };
    let started = start(ctx, target.clone(), when);
    if started.is_err() && may_wait {
        ctx.server.saver.schedule(target);
        ctx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    started
}

pub fn lastsave(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.int(ctx.server.saver.status().last_save_unix_seconds);
    Ok(())
}

/// A checkpoint, which frees the log before it: nothing has to be rewritten.
pub fn bgrewriteaof(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let saver = &ctx.server.saver;
    let text = match saver.status().running {
        Some((Target::Pages, _)) => {
            return Err("ERR Background append only file rewriting already in progress".into());
        }
        Some(_) => "Background append only file rewriting scheduled",
        None => "Background append only file rewriting started",
    };
    saver.schedule(Target::Pages);
    ctx.reply.simple(text);
    Ok(())
}

/// `WAITAOF numlocal numreplicas timeout`: waits until what the client has changed is durable here. There are no replicas.
pub fn waitaof(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let local_count = operand::integer_in(args.at(1), 0..=1)?;
    let replica_count = operand::positive(args.at(2))?;
    let timeout_ms = match number::parse_i64(args.at(3)) {
        Some(ms @ 0..) => ms as u64,
        Some(_) => return Err("ERR timeout is negative".into()),
        None => return Err("ERR timeout is not an integer or out of range".into()),
    };
    let log = &ctx.config.settings.log;
    if !log.is_on {
        return if local_count > 0 { Err(logging::NO_LOG.into()) } else { answer_waitaof(ctx, false) };
    }
    let ends = logging::ends(ctx.server);
    let is_durable = ends.is_some_and(|ends| ends.durable >= ends.end) && log.sync != SyncPolicy::Never;
    let is_enough = replica_count == 0 && (local_count == 0 || is_durable);
    if is_enough || ctx.client.within.is_transaction() {
        return answer_waitaof(ctx, is_durable);
    }
    let waiter = LogWaiter {
        client: ctx.peer.clone(),
        reply: ctx.reply_later(),
        is_local: local_count > 0,
        to_offset: ends.map(|ends| ends.end),
        until: (timeout_ms > 0)
            .then(|| Instant::now().checked_add(Duration::from_millis(timeout_ms)))
            .flatten(),
    };
    ctx.server.data_log.wait(waiter);
    // What has become durable before the waiter was there.
    logging::answer_waiters(ctx.server);
    Ok(())
}

fn answer_waitaof(ctx: &mut Ctx<'_>, is_durable: bool) -> CmdResult {
    ctx.reply.array(2);
    ctx.reply.int(i64::from(is_durable));
    ctx.reply.int(0);
    Ok(())
}

/// `BACKUP TO path`: an RDB file of the present moment.
pub fn backup(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if !args.is(1, "to") {
        return Err(errors::SYNTAX.into());
    }
    let path = backup_path(ctx, args.at(2))?;
    start_and_wait(ctx, Target::Backup(path))
}

/// Where a backup may go: into the data directory, elsewhere only if the configuration trusts the client with
/// paths; and over nothing but an older dump.
fn backup_path(ctx: &Ctx<'_>, given: &[u8]) -> Result<PathBuf, CmdError> {
    let Ok(given) = std::str::from_utf8(given) else { return Err("ERR the path is not valid UTF-8".into()) };
    let dir = ctx.server.store.dir();
    let path = dir.join(given);
    let shown = path.display();
    let parent = path.parent().unwrap_or(dir);
    let parent =
        parent.canonicalize().map_err(|error| CmdError::from(format!("ERR {}: {error}", parent.display())));
    let is_inside =
        matches!((&parent, dir.canonicalize()), (Ok(parent), Ok(dir)) if parent.starts_with(&dir));
    if !is_inside && !ctx.config.settings.protected_configs.allows(ctx.peer.is_local) {
        return Err("ERR BACKUP TO a path outside of the data directory is a protected action. Set \
                    'enable-protected-configs' to \"yes\" or \"local\" in the configuration file and restart the \
                    server, or give a file name"
            .into());
    }
    parent?;
    if path.is_dir() || path.file_name().is_none() {
        return Err(format!("ERR {shown} is a directory; name a file").into());
    }
    if path.file_name() == temporary_path(dir).file_name() {
        return Err(format!("ERR {shown} is the name of a dump that is being written; choose another").into());
    }
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(path),
        // Opening a pipe would wait for its other end.
        Ok(file) if file.is_file() && is_dump(&path) => Ok(path),
        _ => Err(format!("ERR {shown} exists and is not an RDB file; it will not be replaced").into()),
    }
}

fn is_dump(path: &Path) -> bool {
    let mut magic = [0; 5];
    let file = std::fs::File::open(path);
    file.is_ok_and(|mut file| file.read_exact(&mut magic).is_ok() && &magic == b"REDIS")
}

/// `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`
pub fn shutdown(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (how, force) = read_shutdown(args)?;
    log::warning("User requested shutdown...");
    let waiter = ctx.wait_for_save(When::End);
    ctx.server.shut_down(how, force, Some(waiter));
    Ok(())
}

/// How the server is to end, and whether even if the save fails.
///
/// # Errors
/// Redis's.
pub fn read_shutdown(args: &Args<'_>) -> Result<(OnSignal, bool), CmdError> {
    let (mut no_save, mut save, mut force, mut abort) = (false, false, false, false);
    for index in 1..args.len() {
        match () {
            () if args.is(index, "nosave") => no_save = true,
            () if args.is(index, "save") => save = true,
            // There are no replicas to wait for.
            () if args.is(index, "now") => {}
            () if args.is(index, "force") => force = true,
            () if args.is(index, "abort") => abort = true,
            () => return Err(errors::SYNTAX.into()),
        }
    }
    if (abort && args.len() > 2) || (no_save && save) {
        return Err(errors::SYNTAX.into());
    }
    if abort {
        return Err("ERR No shutdown in progress.".into());
    }
    let how = match (no_save, save) {
        (true, _) => OnSignal::NoSave,
        (_, true) => OnSignal::Save,
        _ => OnSignal::Default,
    };
    Ok((how, force))
}

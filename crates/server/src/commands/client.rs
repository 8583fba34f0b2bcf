//! `CLIENT`: what connections are there, and what they are told.

mod kill;

use std::sync::atomic::Ordering::Relaxed;

use stillframe_store::UnixMillis;

use crate::clients::{client_flag, ClientInfo};
use crate::command::{Args, CmdError, CmdResult};
use crate::commands::connection::set_name;
use crate::conn::UNCOUNTED_OUTPUT_BYTES;
use crate::ctx::Ctx;
use crate::errors;
use crate::event_loop::publish_session;
use crate::number;
use crate::pause::PauseKind;
use crate::session::ReplyMode;
use crate::table::TABLE;

pub use kill::kill;

const NOT_TRACKING: &str =
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
                            or OPTOUT mode enabled";

pub fn id(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.int(ctx.client.id as i64);
    Ok(())
}

pub fn getname(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let names = ctx.peer.names.lock();
    if names.name.is_empty() {
        ctx.reply.null();
    } else {
        ctx.reply.bulk(&names.name);
    }
    Ok(())
}

pub fn setname(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    set_name(ctx, args.at(2))?;
    ctx.reply.ok();
    Ok(())
}

pub fn setinfo(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let (option, value) = (args.at(2), args.at(3));
    let is_name = args.is(2, "lib-name");
    if !is_name && !args.is(2, "lib-ver") {
        return Err([b"ERR Unrecognized option '", errors::printed(option), b"'"].concat().into());
    }
    if value.iter().any(|b| !(b'!'..=b'~').contains(b)) {
        let option = errors::printed(option);
        return Err([b"ERR ", option, b" cannot contain spaces, newlines or special characters."]
            .concat()
            .into());
    }
    let mut names = ctx.peer.names.lock();
    *(if is_name { &mut names.lib_name } else { &mut names.lib_version }) = value.to_vec();
    drop(names);
    ctx.reply.ok();
    Ok(())
}

/// The flags as letters, `N` if there are none.
fn flag_letters(info: &ClientInfo) -> String {
    let flags = info.published.flags.load(Relaxed);
    let mut letters: String = [
        (client_flag::MONITOR, 'O'),
        (client_flag::BLOCKED, 'b'),
        (client_flag::MULTI, 'x'),
        (client_flag::WATCH_RAISED, 'd'),
        (client_flag::CLOSING, 'c'),
        (client_flag::NO_EVICT, 'e'),
        (client_flag::NO_TOUCH, 'T'),
    ]
    .iter()
    .filter(|(flag, _)| flags & flag != 0)
    .map(|(_, letter)| *letter)
    .collect();
    if info.is_unix_socket {
        letters.push('U');
    }
    if letters.is_empty() {
        letters.push('N');
    }
    letters
}

/// A line of `CLIENT LIST`, without its end.
pub fn describe(info: &ClientInfo, now: UnixMillis) -> Vec<u8> {
    let published = &info.published;
    let names = info.names.lock().clone();
    let age = info.connected_at.elapsed().as_secs();
    let idle = (now - published.last_active_unix_ms.load(Relaxed)).max(0) / 1000;
    let command = match published.last_command.load(Relaxed).checked_sub(1) {
        Some(row) => TABLE.rows()[row as usize].name,
        None => "NULL",
    };
    let (input, input_free) = (published.input_bytes.load(Relaxed), published.input_free_bytes.load(Relaxed));
    let (output, output_capacity) =
        (published.output_bytes.load(Relaxed), published.output_capacity_bytes.load(Relaxed));
    // As Redis has it: the first bytes in a buffer of their own, what is more in a list that the limits count.
    let first = output.min(UNCOUNTED_OUTPUT_BYTES);
    let (list_len, list_bytes) =
        if output > first { (1, output_capacity.saturating_sub(UNCOUNTED_OUTPUT_BYTES)) } else { (0, 0) };
    let multi_bytes = published.multi_bytes.load(Relaxed);
    let argv_bytes = published.argv_bytes.load(Relaxed);
    let total = published.total_bytes.load(Relaxed);
    let mut line =
        format!("id={} addr={} laddr={} fd={} name=", info.id, info.addr, info.laddr, info.fd).into_bytes();
    line.extend_from_slice(&names.name);
    line.extend_from_slice(
        format!(
            " age={age} idle={idle} flags={} db={} sub=0 psub=0 ssub=0 multi={} qbuf={input} qbuf-free={input_free} \
             argv-mem={argv_bytes} multi-mem={multi_bytes} rbs={} rbp={first} obl={first} oll={list_len} omem={list_bytes} tot-mem={total} events=r \
             cmd={command} user=default redir=-1 resp={}",
            flag_letters(info),
            published.db.load(Relaxed),
            published.multi_count.load(Relaxed),
            output_capacity.min(UNCOUNTED_OUTPUT_BYTES),
            if published.resp3.load(Relaxed) { 3 } else { 2 },
        )
        .as_bytes(),
    );
    line.extend_from_slice(b" lib-name=");
    line.extend_from_slice(&names.lib_name);
    line.extend_from_slice(b" lib-ver=");
    line.extend_from_slice(&names.lib_version);
    line
}

/// Makes this client's own line say what it does now.
fn publish_self(ctx: &Ctx<'_>, args: &Args<'_>) {
    publish_session(ctx.client, ctx.peer);
    ctx.peer.published.argv_bytes.store(args.from(0).map(<[u8]>::len).sum(), Relaxed);
    ctx.peer.published.last_active_unix_ms.store(ctx.worker.now(), Relaxed);
}

pub fn info(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    publish_self(ctx, args);
    let mut line = describe(ctx.peer, ctx.worker.now());
    line.push(b'\n');
    ctx.reply.verbatim(&line);
    Ok(())
}

/// The types of clients that Redis knows; here all are normal.
fn is_normal_type(name: &[u8]) -> Result<bool, CmdError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"slave" | b"replica" | b"master" | b"pubsub" => Ok(false),
        _ => Err([b"ERR Unknown client type '", errors::printed(name), b"'"].concat().into()),
    }
}

pub fn list(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut ids = None;
    let mut is_none = false;
    if args.len() == 4 && args.is(2, "type") {
        is_none = !is_normal_type(args.at(3))?;
    } else if args.len() > 3 && args.is(2, "id") {
        let read = |id| match number::parse_i64(id) {
            Some(id @ 0..) => Ok(id as u64),
            _ => Err(CmdError::from("ERR Invalid client ID")),
        };
        ids = Some(args.from(3).map(read).collect::<Result<Vec<_>, _>>()?);
    } else if args.len() != 2 {
        return Err(errors::SYNTAX.into());
    }
    publish_self(ctx, args);
    let clients = match ids {
        _ if is_none => Vec::new(),
        Some(ids) => ids.into_iter().filter_map(|id| ctx.server.clients.get(id)).collect(),
        None => ctx.server.clients.all(),
    };
    let mut text = Vec::new();
    for client in clients {
        text.extend(describe(&client, ctx.worker.now()));
        text.push(b'\n');
    }
    ctx.reply.verbatim(&text);
    Ok(())
}

/// `ON` or `OFF` in an argument.
fn on_off(args: &Args<'_>, index: usize) -> Result<bool, CmdError> {
    match (args.is(index, "on"), args.is(index, "off")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(errors::SYNTAX.into()),
    }
}

pub fn no_evict(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.client.no_evict = on_off(args, 2)?;
    ctx.reply.ok();
    Ok(())
}

pub fn no_touch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.client.no_touch = on_off(args, 2)?;
    ctx.reply.ok();
    Ok(())
}

pub fn reply(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.is(2, "on") {
        ctx.client.reply_mode = ReplyMode::On;
        ctx.reply.ok();
    } else if args.is(2, "off") {
        ctx.client.reply_mode = ReplyMode::Off;
    } else if args.is(2, "skip") {
        if ctx.client.reply_mode == ReplyMode::On {
            ctx.client.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(errors::SYNTAX.into());
    }
    Ok(())
}

pub fn pause(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let kind = match args.len() {
        3 => PauseKind::All,
        4 if args.is(3, "write") => PauseKind::Writes,
        4 if args.is(3, "all") => PauseKind::All,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => {
            return Err(
                "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.".into()
            )
        }
    };
    let now = ctx.worker.now();
    let until = match number::parse_i64(args.at(2)) {
        Some(ms @ 0..) => now.checked_add(ms),
        Some(_) => return Err("ERR timeout is negative".into()),
        None => None,
    };
    let Some(until) = until else { return Err("ERR timeout is not an integer or out of range".into()) };
    ctx.server.pause.begin(kind, until, now);
    ctx.reply.ok();
    Ok(())
}

pub fn unpause(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.server.pause.end();
    ctx.server.wake_paused();
    ctx.reply.ok();
    Ok(())
}

pub fn unblock(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if args.len() == 4 && !args.is(3, "timeout") && !args.is(3, "error") {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
    }
    number::integer(args.at(2))?;
    // No command here waits for other clients, so there is nobody to unblock.
    ctx.reply.int(0);
    Ok(())
}

pub fn tracking(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    if on_off(args, 2)? {
        return Err("ERR client side caching is not available in this server".into());
    }
    if args.len() > 3 {
        return Err(errors::SYNTAX.into());
    }
    ctx.reply.ok();
    Ok(())
}

pub fn trackinginfo(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    let reply = &mut ctx.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.int(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
    Ok(())
}

pub fn getredir(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.int(-1);
    Ok(())
}

pub fn caching(_ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    Err(NOT_TRACKING.into())
}

pub fn help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> CmdResult {
    ctx.reply.help("CLIENT", HELP);
    Ok(())
}

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
];

//! `CLIENT`: what connections are there, and what they are told.

mod kill;

use std::sync::atomic::Ordering::Relaxed;

use crate::command::operand;
use crate::command::{acl, flag, CmdError, CmdResult, Group, Touch};
use crate::commands::connection::set_name;
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::waiting;
use crate::logging;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::client_line::{describe, publish_session};
use crate::state::pause::PauseKind;
use crate::text::number;

use kill::{kill, ClientType};

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::container("client", -2, 0)
        .acl(0)
        .doc(Group::Connection, "2.4.0", "A container for client connection commands", "Depends on subcommand."),
    Command::new("client|caching", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, caching)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Instruct the server about tracking or not keys in the next request", "O(1)"),
    Command::new("client|getname", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, getname)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.6.9", "Get the current connection name", "O(1)"),
    Command::new("client|getredir", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, getredir)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Get tracking notifications redirection client ID if any", "O(1)"),
    Command::new("client|help", 2, flag::LOADING | flag::STALE, Touch::Nothing, help)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "5.0.0", "Show helpful text about the different subcommands", "O(1)"),
    Command::new("client|id", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, id)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "5.0.0", "Returns the client ID for the current connection", "O(1)"),
    Command::new("client|info", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, info)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Returns information about the current client connection.", "O(1)")
        .tips(&["nondeterministic_output"]),
    Command::new("client|kill", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, kill)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.4.0", "Kill the connection of a client", "O(N) where N is the number of client connections"),
    Command::new("client|list", -2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, list)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.4.0", "Get the list of client connections", "O(N) where N is the number of client connections")
        .tips(&["nondeterministic_output"]),
    Command::new("client|no-touch", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, no_touch)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "7.2.0", "Controls whether commands sent by the client affect the LRU/LFU of accessed keys", "O(1)"),
    Command::new("client|setinfo", 4, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, setinfo)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "7.2.0", "Sets information specific to the client or connection", "O(1)"),
    Command::new("client|no-evict", 3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, no_evict)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "7.0.0", "Set client eviction mode for the current connection", "O(1)"),
    Command::new("client|pause", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, pause)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.9.50", "Stop processing commands from clients for some time", "O(1)"),
    Command::new("client|reply", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, reply)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "3.2.0", "Instruct the server whether to reply to commands", "O(1)"),
    Command::new("client|setname", 3, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, setname)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "2.6.9", "Set the current connection name", "O(1)"),
    Command::new("client|tracking", -3, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, tracking)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Enable or disable server assisted client side caching support", "O(1). Some options may introduce additional complexity."),
    Command::new("client|trackinginfo", 2, flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, trackinginfo)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Return information about server assisted client side caching for the current connection", "O(1)"),
    Command::new("client|unblock", -3, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, unblock)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "5.0.0", "Unblock a client blocked in a blocking command from a different connection", "O(log N) where N is the number of client connections"),
    Command::new("client|unpause", 2, flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE, Touch::Nothing, unpause)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Resume processing of clients that were paused", "O(N) Where N is the number of paused clients"),
];

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
    set_name(ctx.peer, args.at(2))?;
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

/// Makes this client's own line say what it does now.
fn publish_self(ctx: &Ctx<'_>, args: &Args<'_>) {
    publish_session(ctx.client, ctx.peer);
    ctx.peer.published.argv_bytes.store(args.from(0).map(<[u8]>::len).sum(), Relaxed);
    ctx.peer.published.last_active_unix_ms.store(ctx.worker.now(), Relaxed);
}

pub fn info(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    publish_self(ctx, args);
    let mut line = describe(ctx.peer, ctx.worker.now(), ctx.registry);
    line.push(b'\n');
    ctx.reply.verbatim(&line);
    Ok(())
}

pub fn list(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut ids = None;
    let mut of_type = None;
    if args.len() == 4 && args.is(2, "type") {
        of_type = Some(ClientType::by_name(args.at(3))?);
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
    let mut clients = match ids {
        Some(ids) => ids.into_iter().filter_map(|id| ctx.server.clients.get(id)).collect(),
        None => ctx.server.clients.all(),
    };
    clients.retain(|client| of_type.is_none_or(|of_type| of_type.fits(client)));
    let mut text = Vec::new();
    for client in clients {
        text.extend(describe(&client, ctx.worker.now(), ctx.registry));
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
        ctx.client.reply_mode.on();
        ctx.reply.ok();
    } else if args.is(2, "off") {
        ctx.client.reply_mode.off();
    } else if args.is(2, "skip") {
        ctx.client.reply_mode.skip();
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
    let id = operand::integer(args.at(2))?;
    let waiter = u64::try_from(id).ok().and_then(|id| ctx.server.waiters.of_client(id));
    let ended = waiter.filter(|waiter| ctx.server.waiters.end(waiter));
    let is_error = args.len() == 4 && args.is(3, "error");
    let text = is_error.then_some(waiting::UNBLOCKED);
    let is_ended =
        ended.is_some() || u64::try_from(id).is_ok_and(|id| logging::end_wait(ctx.server, id, text));
    ctx.reply.int(i64::from(is_ended));
    if let Some(waiter) = ended {
        waiting::end_wait(ctx, &waiter, is_error);
    }
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

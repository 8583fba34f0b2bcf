//! The connection itself: greeting, password, database.

use stillframe_store::DbId;
use subtle::ConstantTimeEq;

use crate::command::operand;
use crate::command::{acl, flag, CmdError, CmdResult, Group, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::talk::Talk;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::clients::ClientInfo;
use crate::state::session::Ending;
use crate::text::number;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("auth", -2, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY, Touch::Nothing, auth)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Authenticate to the server", "O(N) where N is the number of passwords defined for the user")
        .secret(|_, index| index > 0),
    Command::new("echo", 2, flag::LOADING | flag::STALE | flag::FAST, Touch::Nothing, echo)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Echo the given string", "O(1)"),
    Command::new("hello", -1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY, Touch::Nothing, hello)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.0.0", "Handshake with Redis", "O(1)")
        .secret(is_secret_of_hello),
    Command::new("ping", -1, flag::FAST | flag::LISTENING | flag::PROBES, Touch::Nothing, ping)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Ping the server", "O(1)")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Command::new("quit", -1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY | flag::INSIDE_MULTI | flag::LISTENING, Touch::Nothing, quit)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Close the connection", "O(1)"),
    Command::new("reset", 1, flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY | flag::INSIDE_MULTI | flag::LISTENING, Touch::Nothing, reset)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "6.2.0", "Reset the connection", "O(1)"),
    Command::new("select", 2, flag::LOADING | flag::STALE | flag::FAST | flag::SELECTS, Touch::Nothing, select)
        .acl(acl::CONNECTION)
        .doc(Group::Connection, "1.0.0", "Change the selected database for the current connection", "O(1)"),
];

/// The release whose replies are given.
pub const REDIS_VERSION: &str = "7.0.15";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

pub fn ping(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let is_listening = !ctx.client.subscriptions.is_empty() && !ctx.client.resp3;
    match args.len() {
        // Told from messages by its form.
        1 | 2 if is_listening => {
            ctx.reply.array(2);
            ctx.reply.bulk(b"pong");
            ctx.reply.bulk(args.get(1).unwrap_or_default());
        }
        1 => ctx.reply.simple("PONG"),
        2 => ctx.reply.bulk(args.at(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

pub fn echo(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    ctx.reply.bulk(args.at(1));
    Ok(())
}

pub fn select(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let number = operand::int(args.at(1))?;
    match u32::try_from(number) {
        Ok(number) if number < ctx.server.database_count => ctx.client.db = DbId(number),
        _ => return Err(errors::DB_OUT_OF_RANGE.into()),
    }
    ctx.reply.ok();
    Ok(())
}

pub fn quit(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    part(&mut ctx.talk())
}

pub fn part(ctx: &mut Talk<'_, '_>) -> CmdResult {
    ctx.reply.ok();
    ctx.client.ending = Ending::AfterReply;
    Ok(())
}

pub fn reset(ctx: &mut Ctx<'_>, _: &Args<'_>) -> CmdResult {
    begin_anew(&mut ctx.talk())
}

pub fn begin_anew(ctx: &mut Talk<'_, '_>) -> CmdResult {
    ctx.end_transaction();
    ctx.stop_listening();
    ctx.hear();
    let client = &mut ctx.client;
    client.db = DbId(0);
    client.resp3 = false;
    client.reply_mode.reset();
    client.no_evict = false;
    client.no_touch = false;
    client.is_authenticated = ctx.config.settings.requirepass.is_empty();
    ctx.reply.resp3 = false;
    ctx.peer.names.lock().name.clear();
    ctx.reply.simple("RESET");
    Ok(())
}

/// Compares in a time that does not tell where the difference is.
fn is_password(settings_password: &[u8], given: &[u8]) -> bool {
    settings_password.ct_eq(given).into()
}

fn authenticate(ctx: &mut Talk<'_, '_>, user: &[u8], password: &[u8]) -> CmdResult {
    let wanted = &ctx.config.settings.requirepass;
    if user != b"default" || !(wanted.is_empty() || is_password(wanted, password)) {
        return Err(WRONG_PASSWORD.into());
    }
    ctx.client.is_authenticated = true;
    Ok(())
}

pub fn auth(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    log_in(&mut ctx.talk(), args)
}

pub fn log_in(ctx: &mut Talk<'_, '_>, args: &Args<'_>) -> CmdResult {
    match args.len() {
        2 if ctx.config.settings.requirepass.is_empty() => {
            return Err("ERR AUTH <password> called without any password configured for the default user. \
                        Are you sure your configuration is correct?"
                .into())
        }
        2 => authenticate(ctx, b"default", args.at(1))?,
        3 => authenticate(ctx, args.at(1), args.at(2))?,
        _ => return Err(errors::SYNTAX.into()),
    }
    ctx.reply.ok();
    Ok(())
}

/// Checks and sets the name of a connection; an empty one takes it away.
///
/// # Errors
/// Redis's text for names that would break `CLIENT LIST`.
pub fn set_name(peer: &ClientInfo, name: &[u8]) -> CmdResult {
    if name.iter().any(|b| !(b'!'..=b'~').contains(b)) {
        return Err(BAD_NAME.into());
    }
    peer.names.lock().name = name.to_vec();
    Ok(())
}

/// What `HELLO` asks for.
#[derive(Default)]
struct Hello<'a> {
    resp3: Option<bool>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn read_hello<'a>(args: &Args<'a>) -> Result<Hello<'a>, CmdError> {
    let mut hello = Hello::default();
    if args.len() == 1 {
        return Ok(hello);
    }
    let Some(version) = number::parse_i64(args.at(1)) else {
        return Err("ERR Protocol version is not an integer or out of range".into());
    };
    if !(2..=3).contains(&version) {
        return Err("NOPROTO unsupported protocol version".into());
    }
    hello.resp3 = Some(version == 3);
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "auth") && more >= 2 {
            hello.auth = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if args.is(at, "setname") && more >= 1 {
            hello.name = Some(args.at(at + 1));
            at += 2;
        } else {
            let option = errors::printed(args.at(at));
            return Err([b"ERR Syntax error in HELLO option '", option, b"'"].concat().into());
        }
    }
    Ok(hello)
}

/// Whether an argument of `HELLO` is a user or a password. A malformed call shows rather less than in Redis.
fn is_secret_of_hello(args: &Args<'_>, index: usize) -> bool {
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "auth") {
            if (at + 1..=at + 2).contains(&index) {
                return true;
            }
            at += 3;
        } else {
            at += if args.is(at, "setname") { 2 } else { 1 };
        }
    }
    false
}

pub fn hello(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    greet(&mut ctx.talk(), args)
}

pub fn greet(ctx: &mut Talk<'_, '_>, args: &Args<'_>) -> CmdResult {
    let hello = read_hello(args)?;
    if let Some((user, password)) = hello.auth {
        authenticate(ctx, user, password)?;
    }
    if !ctx.client.is_authenticated && !ctx.config.settings.requirepass.is_empty() {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                    <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                    RESP protocol version at the same time"
                .into(),
        );
    }
    if let Some(name) = hello.name {
        set_name(ctx.peer, name)?;
    }
    // In the protocol in which it was told.
    ctx.hear();
    if let Some(resp3) = hello.resp3 {
        ctx.client.resp3 = resp3;
        ctx.reply.resp3 = resp3;
    }
    let reply = &mut *ctx.reply;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if reply.resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(ctx.client.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    ctx.hear_behind();
    Ok(())
}

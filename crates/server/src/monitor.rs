//! `MONITOR`: every command that is executed, to those who watch.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::command::{flag, Args, Command};
use crate::config::ParamId;
use crate::ctx::Ctx;
use crate::mailbox::Message;
use crate::words::quote;

/// What is shown in the place of a secret.
const REDACTED: &[u8] = b"(redacted)";

/// An argument as monitors and the slow log show it.
pub fn shown<'a>(command: &Command, args: &Args<'a>, index: usize) -> &'a [u8] {
    if is_secret(command, args, index) {
        REDACTED
    } else {
        args.at(index)
    }
}

/// Whether an argument is a secret. Malformed calls show rather less than in Redis.
fn is_secret(command: &Command, args: &Args<'_>, index: usize) -> bool {
    match command.name {
        "auth" => index > 0,
        "hello" => is_secret_of_hello(args, index),
        "config|set" => {
            index >= 3
                && index % 2 == 1
                && ParamId::find(args.at(index - 1)).is_some_and(|id| id.param().is_secret())
        }
        _ => false,
    }
}

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

/// Sends a command to all monitors. Administrative commands are not shown.
pub fn feed(ctx: &Ctx<'_>, command: &Command, args: &Args<'_>) {
    if command.is(flag::SKIP_MONITOR | flag::ADMIN) {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let addr = if ctx.peer.is_unix_socket {
        format!("unix:{}", ctx.peer.laddr.trim_end_matches(":0"))
    } else {
        ctx.peer.addr.clone()
    };
    let mut line =
        format!("+{}.{:06} [{} {addr}] ", now.as_secs(), now.subsec_micros(), ctx.db().0).into_bytes();
    for index in 0..args.len() {
        if index > 0 {
            line.push(b' ');
        }
        quote(shown(command, args, index), &mut line);
    }
    line.extend_from_slice(b"\r\n");
    let line: Arc<[u8]> = line.into();
    for monitor in ctx.server.monitors.lock().iter() {
        ctx.server.send(monitor, |token| Message::Push(token, line.clone()));
    }
}

/// Makes the client a monitor.
pub fn start(ctx: &mut Ctx<'_>) {
    if !ctx.client.is_monitor {
        ctx.client.is_monitor = true;
        ctx.server.monitors.lock().push(ctx.peer.clone());
        ctx.server.monitor_count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The client is a monitor no more (`RESET`, closed).
pub fn stop(server: &crate::server::Server, client: &mut crate::session::Session) {
    if std::mem::take(&mut client.is_monitor) {
        server.monitors.lock().retain(|m| m.id != client.id);
        server.monitor_count.fetch_sub(1, Ordering::Relaxed);
    }
}

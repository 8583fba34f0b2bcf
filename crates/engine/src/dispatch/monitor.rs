//! `MONITOR`: every command that is executed, to those who watch.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stillframe_units::quote;

use crate::command::flag;
use crate::dispatch::ctx::Command;
use crate::dispatch::ctx::Ctx;
use crate::dispatch::redact;
use crate::protocol::args::Args;
use crate::state::door::DoorKind;
use crate::state::exceptions::Matter;
use crate::state::listener::Heard;
use crate::state::session::Within;

/// Sends a command to all monitors. Administrative commands are not shown.
pub fn feed(ctx: &Ctx<'_>, command: &Command, args: &Args<'_>) {
    if !command.is(flag::SKIP_MONITOR | flag::ADMIN) {
        show(ctx, command, args);
    }
}

/// The same whatever its row says: a script is shown before its commands.
pub fn show(ctx: &Ctx<'_>, command: &Command, args: &Args<'_>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let addr = match ctx.peer.door {
        _ if ctx.client.within == Within::Script => "lua".to_owned(),
        DoorKind::Unix => format!("unix:{}", ctx.peer.laddr.trim_end_matches(":0")),
        DoorKind::Tcp | DoorKind::Program => ctx.peer.addr.clone(),
    };
    let mut line =
        format!("+{}.{:06} [{} {addr}] ", now.as_secs(), now.subsec_micros(), ctx.db().0).into_bytes();
    for index in 0..args.len() {
        if index > 0 {
            line.push(b' ');
        }
        quote(redact::shown(command, args, index), &mut line);
    }
    line.extend_from_slice(b"\r\n");
    let line: Arc<[u8]> = line.into();
    let monitors = ctx.server.monitors.lock();
    ctx.server.pubsub.tell(monitors.iter(), &Heard::Line(ctx.peer.id, line));
}

/// Makes the client a monitor.
pub fn start(ctx: &mut Ctx<'_>) {
    if !ctx.client.is_monitor {
        ctx.client.is_monitor = true;
        let mut monitors = ctx.server.monitors.lock();
        monitors.push(ctx.client.listen(ctx.peer));
        ctx.server.exceptions.set(Matter::MONITORED, true);
    }
}

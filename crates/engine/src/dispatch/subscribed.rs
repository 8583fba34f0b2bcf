//! Clients that listen to channels: what they may send, and what they hear.

use stillframe_store::BehindLocks;

use crate::command::{flag, CmdError, CmdResult};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::monitor;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::server::Server;
use crate::state::inbox::Taken;
use crate::state::listener::Heard;
use crate::state::session::{Ending, Session};

/// In RESP2 a client that listens cannot tell a reply from a message: it may do little else.
///
/// # Errors
/// Redis's text.
pub fn admit(ctx: &Ctx<'_>, command: &Command) -> CmdResult {
    if ctx.client.subscriptions.is_empty() || ctx.client.resp3 || command.is(flag::LISTENING) {
        return Ok(());
    }
    Err(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    )
    .into())
}

/// The client listens to nothing any more (`RESET`, about to end). What it has been told waits in its inbox.
pub fn stop(server: &Server, client: &mut Session) {
    monitor::stop(server, client);
    if !client.subscriptions.is_empty() {
        server.pubsub.unsubscribe_all(client.id, &mut client.subscriptions);
    }
}

/// Writes what the client has been told before the reply that begins at byte `at` of the output: whatever that reply may show
/// has been told by now (U2). What its own command has told to monitors goes behind the reply.
#[cold]
pub fn hear(ctx: &mut Ctx<'_>, at: usize) {
    let Some(listener) = ctx.client.listener.as_ref().filter(|listener| listener.has_heard()) else { return };
    let (resp3, own_id) = (ctx.reply.resp3, ctx.client.id);
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let taken = listener.take(&mut ctx.local.heard, |heard| {
        let is_behind = !behind.is_empty() || matches!(heard, Heard::Line(id, _) if *id == own_id);
        let to = if is_behind { &mut behind } else { &mut before };
        to.extend_from_slice(heard.bytes(resp3));
    });
    let at = at.max(ctx.client.hears_from).min(ctx.reply.out.len());
    ctx.reply.out.insert(at, &before);
    ctx.client.late.move_from(at, before.len());
    ctx.reply.out.extend(&behind);
    ctx.client.hears_from = if behind.is_empty() { at + before.len() } else { ctx.reply.out.len() };
    if taken == Taken::Over {
        ctx.reply.out.give_up();
    }
}

/// The reply so far changes what the client hears, or how: what it has not been told by now goes behind it.
pub fn hear_behind(ctx: &mut Ctx<'_>) {
    if ctx.client.listener.is_some() {
        ctx.client.hears_from = ctx.reply.out.len();
    }
}

/// Until the result is dropped, a change that the command meets has been told to the client, if it is told of changes (U2).
pub fn see_in_order(ctx: &Ctx<'_>) -> Option<BehindLocks> {
    let is_told = ctx.client.listener.is_some() && ctx.server.notifier.is_on();
    is_told.then(|| ctx.worker.read_behind_locks())
}

/// The command has been answered by what is in the output from byte `at` on.
#[cold]
pub fn end_reply(ctx: &mut Ctx<'_>, at: usize) {
    if ctx.client.ending != Ending::Open {
        stop(ctx.server, ctx.client);
    }
    hear(ctx, at);
    let from = std::mem::take(&mut ctx.client.hears_from).max(at);
    if ctx.client.late.first_place().is_some_and(|place| place > from) {
        ctx.client.late.begin();
    }
    if let Some(listener) = &ctx.client.listener {
        listener.bound(ctx.client.output_limit(&ctx.config.settings).hard_bytes);
    }
    ctx.client.drop_silent_listener();
}

/// A subcommand with more arguments than it takes.
pub fn wrong_arguments(args: &Args<'_>) -> CmdError {
    let (container, name) = (args.at(0).to_ascii_uppercase(), errors::printed(args.at(1)));
    let head = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, name, b"'. Try ", &container, b" HELP."].concat().into()
}

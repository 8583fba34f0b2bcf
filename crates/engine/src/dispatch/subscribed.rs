//! Clients that listen to channels: what they may send, and what they hear.

use stillframe_store::BehindLocks;

use crate::command::{flag, CmdError, CmdResult};
use crate::dispatch::ctx::{Command, Ctx};
use crate::dispatch::talk;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::server::Server;
use crate::state::session::Session;

/// In RESP2 a client that listens cannot tell a reply from a message: it may do little else.
///
/// # Errors
/// Redis's text.
pub fn admit(client: &Session, command: &Command) -> CmdResult {
    if client.subscriptions.is_empty() || client.resp3 || command.is(flag::LISTENING) {
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
    talk::stop_listening(server, client);
}

/// Writes what the client has been told before the reply that begins at byte `at` of the output: whatever that reply may show
/// has been told by now (U2). What its own command has told to monitors goes behind the reply.
#[cold]
pub fn hear(ctx: &mut Ctx<'_>, at: usize) {
    ctx.talk().hear_at(at);
}

/// The reply so far changes what the client hears, or how: what it has not been told by now goes behind it.
pub fn hear_behind(ctx: &mut Ctx<'_>) {
    ctx.talk().hear_behind();
}

/// Until the result is dropped, a change that the command meets has been told to the client, if it is told of changes (U2).
pub fn see_in_order(ctx: &Ctx<'_>) -> Option<BehindLocks> {
    let is_told = ctx.client.listener.is_some() && ctx.server.notifier.is_on();
    is_told.then(|| ctx.worker.read_behind_locks())
}

/// A subcommand with more arguments than it takes.
pub fn wrong_arguments(args: &Args<'_>) -> CmdError {
    let (container, name) = (args.at(0).to_ascii_uppercase(), errors::printed(args.at(1)));
    let head = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, name, b"'. Try ", &container, b" HELP."].concat().into()
}

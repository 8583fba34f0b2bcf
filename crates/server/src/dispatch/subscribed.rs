//! Clients that listen to channels: what they may send, and what they hear.

use crate::command::{CmdError, CmdResult};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::server::Server;
use crate::state::session::Session;

/// In RESP2 a client that listens cannot tell a reply from a message: it may do little else.
///
/// # Errors
/// Redis's text.
pub fn admit(ctx: &Ctx<'_>, command: &Command) -> CmdResult {
    let is_allowed = || {
        let name = command.name;
        matches!(name, "ping" | "quit" | "reset") || name.ends_with("subscribe")
    };
    if ctx.client.subscriptions.is_empty() || ctx.client.resp3 || is_allowed() {
        return Ok(());
    }
    Err(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    )
    .into())
}

/// The client listens to nothing any more (`RESET`, closed).
pub fn stop(server: &Server, client: &mut Session) {
    if !client.subscriptions.is_empty() {
        server.pubsub.unsubscribe_all(client.id, &mut client.subscriptions);
    }
}

/// A subcommand with more arguments than it takes.
pub fn wrong_arguments(args: &Args<'_>) -> CmdError {
    let (container, name) = (args.at(0).to_ascii_uppercase(), errors::printed(args.at(1)));
    let head = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, name, b"'. Try ", &container, b" HELP."].concat().into()
}

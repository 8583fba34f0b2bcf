//! From arguments to a reply: lookup, checks, locks, the command function.

use stillframe_store::{DbId, Fault, Key, OpError};

use crate::command::{flag, Args, CmdError, CmdResult, Command};
use crate::ctx::Ctx;
use crate::errors;
use crate::table::{Found, TABLE};

/// What became of a command.
pub enum Outcome {
    /// The reply is written (or the client asked for none).
    Done,
    /// Nothing has happened; run it again when the pages are in memory.
    Fault(Fault),
}

/// Finds the row of a call and checks its number of arguments.
///
/// # Errors
/// Redis's texts for unknown commands, unknown subcommands and wrong arity.
pub fn lookup(args: &Args<'_>) -> Result<Found, CmdError> {
    let Some(mut found) = TABLE.lookup(args.at(0)) else { return Err(unknown_command(args)) };
    if found.command.is_container && args.len() > 1 {
        let Some(sub) = TABLE.subcommand(found, args.at(1)) else { return Err(unknown_subcommand(args)) };
        found = sub;
    }
    if !found.command.arity_fits(args.len()) {
        return Err(format!("ERR wrong number of arguments for '{}' command", found.command.name).into());
    }
    Ok(found)
}

/// At most `max` bytes, and up to the first NUL, as C prints a string.
fn c_string(bytes: &[u8], max: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(max)];
    bytes.iter().position(|&b| b == 0).map_or(bytes, |end| &bytes[..end])
}

fn unknown_command(args: &Args<'_>) -> CmdError {
    let mut shown = Vec::new();
    for arg in args.from(1) {
        if shown.len() >= 128 {
            break;
        }
        let arg = c_string(arg, 128 - shown.len());
        shown.push(b'\'');
        shown.extend_from_slice(arg);
        shown.extend_from_slice(b"' ");
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(c_string(args.at(0), 128));
    text.extend_from_slice(b"', with args beginning with: ");
    text.extend_from_slice(&shown);
    text.into()
}

fn unknown_subcommand(args: &Args<'_>) -> CmdError {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(c_string(args.at(1), 128));
    text.extend_from_slice(b"'. Try ");
    text.extend(args.at(0).to_ascii_uppercase());
    text.extend_from_slice(b" HELP.");
    text.into()
}

/// Runs a command whose row is known: checks, locks, resolves, calls.
pub fn run(ctx: &mut Ctx<'_>, found: Found, args: &Args<'_>) -> Outcome {
    let mark = ctx.reply.out.len();
    let result = call(ctx, found.command, args);
    finish(ctx, mark, result)
}

fn call(ctx: &mut Ctx<'_>, command: &'static Command, args: &Args<'_>) -> CmdResult {
    let is_shared = ctx.server.worker_count > 1;
    if (is_shared || ctx.server.store.is_warming_up()) && !command.key_specs.is_empty() {
        let keys = keys_of(ctx, command, args);
        let _locks = is_shared.then(|| ctx.worker.lock(&keys, command.is(flag::WRITE)));
        ctx.worker.resolve(&keys)?;
        return (command.run)(ctx, args);
    }
    (command.run)(ctx, args)
}

/// All keys of a call with their databases.
fn keys_of<'k>(ctx: &Ctx<'_>, command: &Command, args: &Args<'k>) -> Vec<(DbId, Key<'k>)> {
    let mut keys = Vec::with_capacity(1);
    command.for_each_key(args, &mut |index, _| keys.push((ctx.db(), ctx.key(args, index))));
    if let Some(other_keys) = command.other_keys {
        other_keys(ctx.db(), args, &mut |db, index| keys.push((db, ctx.key(args, index))));
    }
    keys
}

fn finish(ctx: &mut Ctx<'_>, mark: usize, result: CmdResult) -> Outcome {
    let error = match result {
        Ok(()) => return Outcome::Done,
        Err(error) => error,
    };
    ctx.reply.out.truncate(mark);
    match error {
        CmdError::Store(OpError::Fault(fault)) => return Outcome::Fault(fault),
        CmdError::Store(OpError::OutOfMemory { .. }) => ctx.reply.error(errors::OUT_OF_MEMORY.as_bytes()),
        CmdError::Store(OpError::TooLarge) => ctx.reply.error(errors::TOO_LARGE.as_bytes()),
        CmdError::Store(OpError::Damaged(text)) => ctx.reply.error(format!("ERR {text}").as_bytes()),
        CmdError::Reply(text) => ctx.reply.error(&text),
    }
    Outcome::Done
}

/// Looks a command up and runs it.
pub fn dispatch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Outcome {
    let mark = ctx.reply.out.len();
    match lookup(args) {
        Ok(found) => run(ctx, found, args),
        Err(error) => finish(ctx, mark, Err(error)),
    }
}

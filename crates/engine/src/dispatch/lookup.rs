//! From a name to a row of the command table, or the error that says why there is none.

use crate::command::CmdError;
use crate::dispatch::ctx::{Found, Registry};
use crate::protocol::args::Args;
use crate::protocol::errors;

/// Finds the row of a call and checks its number of arguments.
///
/// # Errors
/// Redis's texts for unknown commands, unknown subcommands and wrong arity.
pub fn lookup(registry: &Registry, args: &Args<'_>) -> Result<Found, CmdError> {
    let found = row_of(registry, args)?;
    if !found.command.arity_fits(args.len()) {
        return Err(errors::wrong_arity(found.command.name).into());
    }
    Ok(found)
}

/// The row of a call; of a container, that of the subcommand if one is named.
pub(super) fn row_of(registry: &Registry, args: &Args<'_>) -> Result<Found, CmdError> {
    let Some(mut found) = registry.lookup(args.at(0)) else { return Err(unknown_command(args)) };
    if found.command.is_container && args.len() > 1 {
        let Some(sub) = registry.subcommand(found, args.at(1)) else { return Err(unknown_subcommand(args)) };
        found = sub;
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

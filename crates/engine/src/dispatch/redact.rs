//! The arguments of a call as others may see them (`MONITOR`, the slow log): without its secrets.

use crate::dispatch::ctx::Command;
use crate::protocol::args::Args;

/// As in Redis: so many arguments are kept, and so many bytes of each.
const MAX_ARGS: usize = 32;
const MAX_ARG_BYTES: usize = 128;

/// What is shown in the place of a secret.
const REDACTED: &[u8] = b"(redacted)";

/// An argument as monitors and the slow log show it.
pub fn shown<'a>(command: &Command, args: &Args<'a>, index: usize) -> &'a [u8] {
    if command.secret.is_some_and(|is_secret| is_secret(args, index)) {
        REDACTED
    } else {
        args.at(index)
    }
}

/// The arguments of a call for the slow log.
pub fn shortened(command: &Command, args: &Args<'_>) -> Vec<Vec<u8>> {
    let kept = args.len().min(MAX_ARGS);
    let cut = |index: usize| {
        if args.len() > MAX_ARGS && index == MAX_ARGS - 1 {
            return format!("... ({} more arguments)", args.len() - MAX_ARGS + 1).into_bytes();
        }
        let arg = shown(command, args, index);
        let len = if args.incoming(index).is_some() { args.len_of(index) } else { arg.len() };
        if len <= MAX_ARG_BYTES {
            return arg.to_vec();
        }
        let mut cut = arg[..arg.len().min(MAX_ARG_BYTES)].to_vec();
        cut.extend_from_slice(format!("... ({} more bytes)", len - cut.len()).as_bytes());
        cut
    };
    (0..kept).map(cut).collect()
}

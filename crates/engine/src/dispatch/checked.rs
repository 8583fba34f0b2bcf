//! Calling a command function. Debug builds hold what it has done against what its row says ([`Touch`]): with a wrong row, others,
//! or a cut, could see it half done.

use stillframe_store::Operations;

use crate::command::{flag, CmdResult, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;

/// Calls the command function.
///
/// # Errors
/// Those of the command.
#[inline]
pub fn run(ctx: &mut Ctx<'_>, command: &Command, args: &Args<'_>) -> CmdResult {
    if !cfg!(debug_assertions) {
        return (command.run)(ctx, args);
    }
    let before = ctx.worker.counting().begin();
    let result = (command.run)(ctx, args);
    let done = ctx.worker.counting().end(before);
    let checked = check(command, args, done);
    debug_assert!(checked.is_ok(), "the row of '{}' is wrong: {checked:?} {done:?}", command.name);
    result
}

/// # Errors
/// How a call that has done this goes beyond what its row says.
fn check(command: &Command, args: &Args<'_>, done: Operations) -> Result<(), &'static str> {
    let touch = command.touch_of(args);
    let is_write = command.is(flag::CHANGES);
    if matches!(touch, Touch::Queued) || (matches!(touch, Touch::Alone) && !command.is(flag::READONLY)) {
        return Ok(());
    }
    if !is_write && done.changing_count > 0 {
        return Err("it has no flag of a command that changes something, and has changed something");
    }
    match touch {
        Touch::Nothing | Touch::Counters | Touch::Flush | Touch::Swap if done.count > 0 => {
            Err("it touches no key, and has run an operation on keys")
        }
        Touch::OneOperation => check_operations(is_write, done, 1),
        Touch::EachKey => {
            let mut key_count = 0;
            command.for_each_key(args, &mut |_, _| key_count += 1);
            check_operations(is_write, done, key_count)
        }
        _ => Ok(()),
    }
}

/// One operation for each of so many keys; those of a single key end with its change.
fn check_operations(is_write: bool, done: Operations, key_count: u64) -> Result<(), &'static str> {
    match is_write {
        false if done.count > key_count => Err("it reads in more operations than that"),
        true if done.changing_count > key_count => Err("it changes things in more operations than that"),
        true if key_count == 1 && done.after_change_count > 0 => {
            Err("an operation comes after its change: if that misses a page, the command begins anew")
        }
        _ => Ok(()),
    }
}

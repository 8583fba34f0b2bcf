//! What a reply tells of, and so waits for, while replies are held (`appendfsync always`; G1).
//!
//! | command | its need |
//! |---|---|
//! | changes something | the end of its unit |
//! | reads keys, or would have changed some | the newest unit of these keys |
//! | comes to keys that it does not name | the end of the log |
//! | `EXEC` | the end of its unit; without one, what its commands and its watched keys need |
//! | any other, `INFO` included: its counts are figures and no data | nothing |

use stillframe_store::{DbId, Key};

use crate::command::{flag, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::state::exceptions::Matter;

/// A command is about to be called.
#[cold]
pub fn begin(ctx: &mut Ctx<'_>, command: &Command, matter: Matter) {
    // One that only looks changes nothing, and tells nobody unless there are notifications.
    if command.is(flag::CHANGES | flag::EXEC) || matter.has(Matter::NOTIFYING) {
        ctx.server.reply_gate.begin_command(ctx.worker.steps().worker());
    }
}

/// The command has been called, and its locks have gone; `is_answered`: it does not begin anew.
#[cold]
pub fn end(ctx: &mut Ctx<'_>, command: &Command, args: &Args<'_>, is_answered: bool) {
    let (worker, gate) = (ctx.worker.steps().worker(), &ctx.server.reply_gate);
    let own_end_offset = gate.own_end_offset(worker);
    ctx.client.need.raise(own_end_offset);
    // Its keys were locked until its unit had been appended: whatever else they have is before that.
    let is_covered = own_end_offset > 0 && command.is(flag::CHANGES);
    if is_answered && !is_covered {
        see(ctx, ctx.client.db, command, args);
    }
    let _ = ctx.client.need.settled_offset();
    ctx.server.reply_gate.end_command(worker, ctx.client.need.known_offset());
}

/// The reply shows what a command has found.
pub fn see(ctx: &mut Ctx<'_>, db: DbId, command: &Command, args: &Args<'_>) {
    match command.touch_of(args) {
        // Within `EXEC` each command is seen by itself.
        Touch::Nothing | Touch::Queued | Touch::Of(_) => {}
        Touch::OneOperation | Touch::EachKey | Touch::Steps | Touch::Parts => {
            see_keys(ctx, db, command, args);
        }
        // The others stood still while it looked: nothing was under way that is not in the log.
        Touch::Walk | Touch::Script | Touch::Counters | Touch::Flush | Touch::Swap | Touch::Alone => {
            ctx.client.need.raise(ctx.server.reply_gate.tail_offset());
        }
    }
}

fn see_keys(ctx: &mut Ctx<'_>, db: DbId, command: &Command, args: &Args<'_>) {
    let mut need_offset = 0;
    let end_offset_of = |db, key: &Key<'_>| ctx.server.reply_gate.seen_end_offset(ctx.worker, db, key);
    command.for_each_key(args, &mut |index, _| {
        need_offset = need_offset.max(end_offset_of(db, &ctx.key(args, index)));
    });
    if let Some(other_keys) = command.other_keys {
        other_keys(db, args, &mut |db, index| {
            need_offset = need_offset.max(end_offset_of(db, &ctx.key(args, index)));
        });
    }
    ctx.client.need.raise(need_offset);
}

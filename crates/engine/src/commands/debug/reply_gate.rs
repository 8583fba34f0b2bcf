//! `DEBUG REPLY-GATE`, in debug builds: held replies over a log that is durable as far as a test says.
//!
//! | words | what they do |
//! |---|---|
//! | `HOLD` | all is durable that has been done; from now on nothing becomes durable |
//! | `END` | replies with the offset at which the log ends |
//! | `WORD key` | replies with the number of the word that the key has: keys of one word wait for each other |
//! | `RELEASE`, `RELEASE offset` | everything, or everything before this offset, is durable |
//! | `FAIL` | nothing will be durable any more, until `HOLD` |
//! | `OFF` | nothing is held |
//! | `MISTAKE name` | a part of the rule is left out |

use crate::command::operand::integer;
use crate::command::{CmdResult, Touch};
use crate::dispatch::ctx::Ctx;
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::state::reply_gate::Mistake;

/// The log begins and ends while nothing else is under way.
pub fn touch(args: &Args<'_>) -> Touch {
    match args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
        Some(b"hold" | b"off") => Touch::Alone,
        _ => Touch::Nothing,
    }
}

pub fn rehearse(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let gate = &ctx.server.reply_gate;
    match (args.at(2).to_ascii_lowercase().as_slice(), args.len()) {
        (b"hold", 3) => gate.rehearse(),
        (b"off", 3) => gate.end_rehearsal(),
        (b"fail", 3) => gate.failed(),
        (b"release", 3) => gate.durable(gate.rehearsed_offset()),
        (b"release", 4) => gate.durable(integer(args.at(3))?.unsigned_abs().min(gate.rehearsed_offset())),
        (b"mistake", 4) => {
            gate.make(Mistake::of_name(&args.at(3).to_ascii_lowercase()).ok_or(errors::SYNTAX)?)
        }
        (b"word", 4) => {
            let hash = ctx.key(args, 3).hash;
            ctx.reply.int(ctx.server.reply_gate.word_of(ctx.client.db, hash) as i64);
            return Ok(());
        }
        (b"end", 3) => {
            ctx.reply.int(gate.rehearsed_offset() as i64);
            return Ok(());
        }
        _ => return Err(errors::SYNTAX.into()),
    }
    ctx.reply.ok();
    Ok(())
}

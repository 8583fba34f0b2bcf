//! Random elements, drawn again and again from all: the reply may be longer than any collection.

use crate::command::{CmdResult, Touch};
use crate::dispatch::ctx::Ctx;
use crate::protocol::args::Args;
use crate::state::drawing::{Drawing, Drawn};
use crate::text::number::parse_i64;

/// Within a transaction, whose replies come together, no element is drawn beyond so many bytes of them.
const TOGETHER_MAX_BYTES: usize = 64 << 20;
const TOO_LONG: &str = "ERR so many random elements are more than a transaction may answer; ask for fewer";

/// How a command that draws elements touches its key, if its count is at argument 2: below 0 they are drawn again and again, after a
/// look whether there are some.
pub fn drawn(args: &Args<'_>) -> Touch {
    match args.get(2).and_then(parse_i64) {
        Some(..0) => Touch::Steps,
        _ => Touch::OneOperation,
    }
}

/// Replies with so many elements of a key that has some. What is more than a part of the reply is written later, as the client
/// takes it.
pub fn reply_drawn(ctx: &mut Ctx<'_>, key: &[u8], drawn: Drawn, element_count: u64) -> CmdResult {
    let db = ctx.db();
    drawn.begin(&mut ctx.reply, element_count);
    let mut drawing = Box::new(Drawing::new(db, key, drawn, element_count));
    while !drawing.is_done() && !ctx.reply.out.is_over() {
        drawing.write_part(ctx.worker, &mut ctx.reply)?;
        if !ctx.client.within.is_transaction() {
            break;
        }
        if !drawing.is_done() && ctx.reply.out.len() > TOGETHER_MAX_BYTES {
            return Err(TOO_LONG.into());
        }
    }
    if !drawing.is_done() {
        let left = drawing.left_values(ctx.reply.resp3);
        ctx.reply.out.note_values(left);
        // Nobody wants to have the rest of a reply that is not sent.
        if !ctx.client.reply_mode.is_silent() {
            ctx.client.drawing = Some(drawing);
        }
    }
    Ok(())
}

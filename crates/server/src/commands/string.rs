//! Strings.

use crate::command::{Args, CmdResult};
use crate::ctx::Ctx;

pub fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let key = ctx.key(args, 1);
    let Ctx { worker, reply, client, stats, .. } = ctx;
    let found = worker.get(client.db, &key, |value| reply.bulk_value(&value))?.is_some();
    stats.looked_up(found);
    if !found {
        reply.null();
    }
    Ok(())
}

//! Replies that are not what their headers announce, because a collection is damaged in a way that no checksum shows.

use crate::dispatch::ctx::{Command, Ctx};
use crate::log;
use crate::protocol::reply::Mark;
use crate::state::clients::ClientInfo;
use crate::state::session::Ending;

/// Looks at what a command has written since `mark`. The client would take elements that are missing from the replies of later
/// commands: such a reply is taken back, and the connection ends.
#[inline]
pub fn check(ctx: &mut Ctx<'_>, command: &Command, mark: &Mark) {
    if !ctx.reply.out.is_whole_since(mark) {
        close(ctx, command, mark);
    }
}

#[cold]
fn close(ctx: &mut Ctx<'_>, command: &Command, mark: &Mark) {
    // Subscriptions are answered one by one, and some commands end the connection instead.
    let is_nothing = ctx.reply.out.len() == mark.len;
    if ctx.client.has_pushed || ctx.reply.out.is_over() || is_nothing {
        return;
    }
    log(command, ctx.peer);
    ctx.reply.out.back_to(*mark);
    ctx.client.ending = Ending::AfterReply;
}

pub fn log(command: &Command, client: &ClientInfo) {
    log::warning(format!(
        "A reply to '{}' does not have as many elements as it announces: the data is damaged. Closing client id={} addr={}",
        command.name, client.id, client.addr
    ));
}

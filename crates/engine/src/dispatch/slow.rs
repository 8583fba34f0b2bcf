//! What is noted of calls that have taken long: the slow log and the latency events.

use std::sync::Arc;
use std::time::Duration;

use crate::command::flag;
use crate::dispatch::ctx::Command;
use crate::dispatch::redact;
use crate::protocol::args::Args;
use crate::server::Server;
use crate::state::clients::ClientInfo;

/// Enters a call that has ended into the slow log and the latency events, if it has taken long enough. The bounds are those that
/// hold now: the call may have set them.
pub fn note(server: &Arc<Server>, peer: &ClientInfo, command: &Command, args: &Args<'_>, time: Duration) {
    let config = server.config();
    let settings = &config.settings;
    if settings.slowlog_threshold.is_some_and(|t| time >= t) && !command.is(flag::SKIP_SLOWLOG) {
        let name = peer.names.lock().name.clone();
        let args = redact::shortened(command, args);
        server.slowlog.lock().push(args, time, (&peer.addr, &name), settings.slowlog_max_len);
    }
    let event = if command.is(flag::FAST) { "fast-command" } else { "command" };
    server.latency.record(event, time, settings.latency_threshold);
}

//! Which arguments go from the socket to their pages.

use std::sync::atomic::Ordering::Relaxed;

use stillframe_store::Worker;

use crate::dispatch::ctx::Registry;
use crate::net::conn::Conn;
use crate::protocol::args::Args;
use crate::server::Server;

/// Lets the value that a connection has begun to send go to its place as it comes, if it is large, its command will store
/// it as it is, and nobody else wants to see it before.
pub fn begin_if_large(server: &Server, registry: &Registry, worker: &mut Worker, conn: &mut Conn) {
    let Some((before, len_bytes)) = conn.input.large_argument() else { return };
    let args = Args::new(&conn.input.buf, &before);
    if before.is_empty() || server.monitor_count.load(Relaxed) > 0 {
        return;
    }
    let takes_it = |command: &crate::dispatch::ctx::Command| {
        command.receives.is_some_and(|is_value| is_value(before.len()))
    };
    if !registry.lookup(args.at(0)).is_some_and(|found| takes_it(found.command)) {
        return;
    }
    // Without room it comes the other way, and the command says why there is none.
    if let Ok(incoming) = worker.begin_incoming(len_bytes) {
        conn.input.begin_receiving(incoming);
    }
}

//! Which arguments go from the socket to their pages.

use stillframe_engine::dispatch::ctx::Registry;
use stillframe_engine::protocol::args::Args;
use stillframe_engine::server::Server;
use stillframe_engine::state::exceptions::Matter;
use stillframe_store::Worker;

use crate::net::conn::Conn;

/// Lets the value that a connection has begun to send go to its place as it comes, if it is large, its command will store
/// it as it is, and nobody else wants to see it before.
pub fn begin_if_large(server: &Server, registry: &Registry, worker: &mut Worker, conn: &mut Conn) {
    let Some((before, len_bytes)) = conn.input.large_argument() else { return };
    let args = Args::new(&conn.input.buf, &before);
    if before.is_empty() || server.exceptions.now().has(Matter::MONITORED) {
        return;
    }
    let Some(found) = registry.lookup(args.at(0)) else { return };
    let is_one = |which: Option<fn(usize) -> bool>| which.is_some_and(|is_one| is_one(before.len()));
    let begun = match (is_one(found.command.receives), is_one(found.command.receives_names)) {
        (true, _) => worker.begin_incoming(len_bytes),
        (_, true) => worker.begin_incoming_name(len_bytes),
        (false, false) => return,
    };
    // Without room it comes the other way, and the command says why there is none.
    if let Ok(incoming) = begun {
        conn.input.begin_receiving(incoming);
    }
}

//! What the parts have in common: servers, and how a stream is filled.

use super::requests::{Add, Deliver};
use crate::bar::Bar;
use crate::commands::Scratch;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::{LoadReport, Requests};
use crate::peer::{Peer, PeerKind, Server, StartOptions};
use crate::pin::CpuPlan;

/// What all parts have in common.
pub struct Setting {
    pub peers: Vec<Peer>,
    pub cpus: Option<CpuPlan>,
    pub scratch: Scratch,
    pub entry_count: u64,
    pub waiter_count: usize,
    pub rounds: usize,
    pub seconds: f64,
}

pub const CONNS: usize = 50;
pub const PIPELINE: usize = 16;
/// Longer than any fill takes.
const FILL_SECONDS: f64 = 3600.0;

impl Setting {
    /// Starts each peer in a directory of its own.
    pub fn start_all(&self, part: &str) -> Result<Vec<Server>> {
        let start = |peer: &Peer| {
            peer.start(&StartOptions {
                dir: self.scratch.path().join(format!("{part}-{}", peer.name)),
                unix_socket: false,
                keeps_log: false,
                cpus: self.cpus.clone(),
            })
        };
        self.peers.iter().map(start).collect()
    }

    /// Nothing but a stream whose entries have the IDs from `1-1` to `N-1`, all of them read by a group if that is asked for.
    pub fn fill(&self, server: &Server, is_pending: bool) -> Result<()> {
        server.client()?.call(&["FLUSHALL"])?;
        send(server, (1, PIPELINE), &mut Add::numbered(self.entry_count), FILL_SECONDS)?;
        if is_pending {
            server.client()?.call(&["XGROUP", "CREATE", "stream", "group", "0"])?;
            send(server, (1, PIPELINE), &mut Deliver::of(0..self.entry_count), FILL_SECONDS)?;
        }
        Ok(())
    }

    /// A bar of each Stillframe against Redis; none without that.
    pub fn bars(&self, what: &str, limit: f64, of_peers: &[f64]) -> Vec<Bar> {
        let Some(redis) = self.peers.iter().position(|peer| peer.kind == PeerKind::Redis) else {
            return Vec::new();
        };
        let own = self.peers.iter().zip(of_peers).filter(|(peer, _)| peer.kind == PeerKind::Stillframe);
        own.map(|(peer, measured)| {
            let what = format!("{what}: {} to {}", peer.name, self.peers[redis].name);
            Bar::at_most(what, limit, " x", Some(measured / of_peers[redis]))
        })
        .collect()
    }
}

/// As fast as it goes for so long, or as many as there are.
pub fn send(
    server: &Server,
    (conn_count, pipeline): (usize, usize),
    requests: &mut impl Requests,
    seconds: f64,
) -> Result<LoadReport> {
    let closed = ClosedLoop { target: server.target.clone(), conn_count, pipeline };
    let report = closed.run_for(requests, seconds, None)?;
    match report.tally.first_error {
        Some(error) => Err(BenchError::Failed(format!("{} answered with an error: {error}", server.name))),
        None => Ok(report),
    }
}

//! What the parts have in common: servers with and without a log, on this disk and on the slow one, and what is sent to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{now_ns, seconds_to_ns};
use crate::commands::Scratch;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::open_loop::OpenLoop;
use crate::load::{beside, KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};
use crate::peer::{Peer, PeerKind, Server, StartOptions};
use crate::pin::CpuPlan;
use crate::slow_disk::SlowDisk;

/// What all parts have in common.
pub struct Setting {
    pub peers: Vec<Peer>,
    pub cpus: Option<CpuPlan>,
    pub scratch: Scratch,
    pub keys: u64,
    pub commands: u64,
    pub rounds: usize,
    pub seconds: f64,
}

const VALUE_BYTES: usize = 100;
const SEED: u64 = 1;
/// Of what is sent as fast as it goes.
pub const CONNS: usize = 50;
pub const PIPELINE: usize = 16;
/// Longer than any fill takes.
const FILL_SECONDS: f64 = 3600.0;
/// Of the slow disk.
const SYNC: Duration = Duration::from_millis(1);

impl Setting {
    /// Starts a server in a directory of its own, with a log that is synced as `appendfsync` says, or without one. Neither server
    /// compacts its log by itself.
    pub fn start(&self, peer: &Peer, dir: &Path, appendfsync: Option<&str>) -> Result<Server> {
        let mut peer = peer.clone();
        let words = match peer.kind {
            // FUSE does not make a write durable that is asked to be: only a sync takes its time there.
            PeerKind::Stillframe if dir.starts_with(self.dir("slow")) => {
                "--auto-aof-rewrite-percentage 0 --log-replay-limit 100gb --log-sync fdatasync"
            }
            PeerKind::Stillframe => "--auto-aof-rewrite-percentage 0 --log-replay-limit 100gb",
            PeerKind::Redis | PeerKind::Valkey => "--auto-aof-rewrite-percentage 0",
        };
        peer.args.extend(words.split(' ').map(str::to_owned));
        peer.args
            .extend(appendfsync.into_iter().flat_map(|how| ["--appendfsync".to_owned(), how.to_owned()]));
        peer.start(&StartOptions {
            dir: dir.to_owned(),
            unix_socket: false,
            keeps_log: appendfsync.is_some(),
            cpus: self.cpus.clone(),
        })
    }

    /// On the disk of the machine.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn slow_disk(&self) -> Result<SlowDisk> {
        SlowDisk::mount(&self.dir("below"), &self.dir("slow"), SYNC)
    }

    pub fn sets(&self, round: usize) -> Result<Workload> {
        let spec = WorkloadSpec::sets(self.keys, VALUE_BYTES, KeyChoice::Uniform, SEED);
        Ok(Workload::new(spec)?.reseeded(round as u64))
    }

    /// Of keys that no SET of [`Setting::sets`] changes.
    fn beside_sets(&self, keys: KeyChoice, get_percent: u8) -> Result<Workload> {
        let spec = WorkloadSpec::sets(self.keys, VALUE_BYTES, keys, SEED);
        Workload::new(WorkloadSpec { first_key: self.keys, get_percent, ..spec })
    }

    /// Stores what [`Setting::sets_beside_gets`] gets.
    pub fn fill(&self, server: &Server) -> Result<()> {
        send_all(server, &mut self.beside_sets(KeyChoice::Once, 0)?, self.keys)
    }

    /// Both at a rate that the server does not set, for so long: what became of the SETs, and of the GETs.
    pub fn sets_beside_gets(
        &self,
        server: &Server,
        per_second: f64,
        round: usize,
        seconds: f64,
    ) -> Result<(LoadReport, LoadReport)> {
        let (mut sets, mut gets) = (self.sets(round)?, self.beside_sets(KeyChoice::Uniform, 100)?);
        let (written, read) = beside(
            |stop| {
                let until = Stop { flag: Some(stop), ..Stop::default() };
                open(server, per_second).run(&mut sets, Recording::new(now_ns()), until)
            },
            |_| {
                let until = Stop::after_seconds(seconds);
                open(server, per_second).run(&mut gets, Recording::new(now_ns()), until)
            },
        )?;
        Ok((answered(server, written)?, answered(server, read)?))
    }

    /// Redis's place among the peers.
    pub fn redis(&self) -> Option<usize> {
        self.peers.iter().position(|peer| peer.kind == PeerKind::Redis)
    }
}

/// As fast as it goes for so long.
pub fn closed(
    server: &Server,
    (conn_count, pipeline): (usize, usize),
    requests: &mut Workload,
    seconds: f64,
) -> Result<LoadReport> {
    let closed = ClosedLoop { target: server.target.clone(), conn_count, pipeline };
    answered(server, closed.run_for(requests, seconds, None)?)
}

/// So many requests, as fast as they go.
pub fn send_all(server: &Server, requests: &mut Workload, count: u64) -> Result<()> {
    let closed = ClosedLoop { target: server.target.clone(), conn_count: CONNS, pipeline: PIPELINE };
    answered(server, closed.run_for(requests, FILL_SECONDS, Some(count))?).map(drop)
}

/// Eight connections, at a rate that the server does not set.
fn open(server: &Server, per_second: f64) -> OpenLoop {
    OpenLoop {
        target: server.target.clone(),
        conn_count: 8,
        requests_per_second: per_second,
        burst: 1,
        spin_ns: 0,
        drain_ns: seconds_to_ns(10.0),
    }
}

fn answered(server: &Server, report: LoadReport) -> Result<LoadReport> {
    match report.tally.first_error {
        Some(error) => Err(BenchError::Failed(format!("{} answered with an error: {error}", server.name))),
        None => Ok(report),
    }
}

pub fn percentile_ns(report: &LoadReport, percent: f64) -> f64 {
    report.recording.histogram.value_at_percentile(percent) as f64
}

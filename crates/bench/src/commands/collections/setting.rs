//! What all parts have in common: the servers, where they run, what fills them and what loads them.

use std::sync::atomic::AtomicBool;

use super::args::Args;
use crate::clock::{now_ns, seconds_to_ns, NS_PER_S};
use crate::commands::{fill, Scratch};
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::collections::{Data, Fill};
use crate::load::open_loop::OpenLoop;
use crate::load::{beside, LoadReport, Recording, Requests, Stop};
use crate::machine;
use crate::output::human_bytes;
use crate::peer::{Peer, PeerKind, Server, StartOptions};
use crate::pin::{self, CpuPlan};
use crate::resp::{Address, Reply};

pub struct Setting {
    pub args: Args,
    pub peers: Vec<Peer>,
    pub cpus: Option<CpuPlan>,
    pub scratch: Scratch,
}

/// Connections of an open loop, as in `pause`.
const PACED_CONN_COUNT: usize = 16;
const DRAIN_NS: u64 = 60 * NS_PER_S;
/// Of an element in the heaviest of the servers: a member of a sorted set, rounded up.
const ELEMENT_BYTES: u64 = 140;

impl Setting {
    /// The server that others are compared with: Redis, if it takes part.
    pub fn base(&self) -> &str {
        let redis = self.peers.iter().find(|peer| peer.kind == PeerKind::Redis);
        redis.or(self.peers.first()).map_or("", |peer| &peer.name)
    }

    /// The server that the bars are about.
    pub fn judged(&self) -> Option<&str> {
        self.stillframes().next().map(|peer| peer.name.as_str())
    }

    pub fn stillframes(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.kind == PeerKind::Stillframe)
    }

    pub fn start(&self, peer: &Peer, name: &str) -> Result<Server> {
        peer.start(&StartOptions {
            dir: self.scratch.path().join(format!("{}-{name}", peer.name)),
            unix_socket: false,
            keeps_log: false,
            cpus: self.cpus.clone(),
        })
    }

    pub fn stop(&self, server: Server, name: &str) -> Result<()> {
        let dir = self.scratch.path().join(format!("{}-{name}", server.name));
        server.stop_without_save()?;
        // A dump or a page file is of no more use, and the disk may be small.
        let _ = std::fs::remove_dir_all(dir);
        Ok(())
    }

    /// A server with these collections. Says so if they are not what they should be.
    pub fn filled(&self, peer: &Peer, name: &str, data: Data) -> Result<Server> {
        check_memory(data)?;
        let server = self.start(peer, name)?;
        self.fill(&server, data)?;
        Ok(server)
    }

    pub fn fill(&self, server: &Server, data: Data) -> Result<()> {
        let begin_ns = now_ns();
        // One connection: items of a list come in order.
        let closed = ClosedLoop { target: server.target.clone(), conn_count: 1, pipeline: 16 };
        fill::send_all(&closed, &mut Fill::new(data, self.args.seed), Stop::default())?;
        let mut client = server.client()?;
        let count = |reply: Reply, expected: u64, what: &str| match reply {
            Reply::Int(count) if count == expected as i64 => Ok(()),
            reply => Err(BenchError::Failed(format!("{}: {what} is {reply:?}, not {expected}", server.name))),
        };
        count(client.call(&["DBSIZE"])?, data.key_count, "DBSIZE")?;
        let command = data.kind.count_command();
        count(client.call(&[command, &crate::load::workload::key_name(0)])?, data.element_count, command)?;
        eprintln!(
            "  {}: {} {} filled in {:.1} s",
            server.name,
            data.kind.name(),
            data.line(),
            (now_ns() - begin_ns) as f64 / NS_PER_S as f64
        );
        Ok(())
    }

    /// Puts requests on a fixed schedule on a server beside `work`; keeps every latency.
    pub fn paced<W>(
        &self,
        server: &Server,
        requests: impl Requests + Send,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<W>,
    ) -> Result<(LoadReport, W)> {
        self.paced_at(&server.target, &server.name, requests, work)
    }

    /// The same on whatever serves there.
    pub fn paced_at<W>(
        &self,
        target: &Address,
        name: &str,
        mut requests: impl Requests + Send,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<W>,
    ) -> Result<(LoadReport, W)> {
        let load = |stop: &AtomicBool| {
            if let Some(plan) = &self.cpus {
                pin::pin_current_thread(&plan.generator)?;
            }
            let expected_samples = self.args.rate * (self.args.before + 30.0);
            let recording = Recording::with_samples(now_ns(), expected_samples as usize);
            pin::raise_current_thread(50);
            let stop = Stop { flag: Some(stop), ..Stop::default() };
            self.open_loop(target).run(&mut requests, recording, stop)
        };
        let (report, worked) = beside(load, work)?;
        match &report.tally.first_error {
            Some(error) => Err(BenchError::Failed(format!(
                "{name} answered {} of {} requests with an error, the first: {error}",
                report.tally.errors, report.sent
            ))),
            None if report.unanswered > 0 => {
                Err(BenchError::Failed(format!("{name} left {} requests unanswered", report.unanswered)))
            }
            None => Ok((report, worked)),
        }
    }

    fn open_loop(&self, target: &Address) -> OpenLoop {
        // As in `pause`: on a core that is shared, waking for each request would take half of it.
        let is_shared = self.cpus.as_ref().is_none_or(CpuPlan::generator_shares_core);
        let burst = if is_shared { (self.args.rate / 1000.0) as u64 } else { 1 };
        OpenLoop {
            target: target.clone(),
            conn_count: PACED_CONN_COUNT,
            requests_per_second: self.args.rate,
            burst: burst.max(1),
            spin_ns: 0,
            drain_ns: DRAIN_NS,
        }
    }

    pub fn before_ns(&self) -> u64 {
        seconds_to_ns(self.args.before)
    }
}

fn check_memory(data: Data) -> Result<()> {
    let needed = data.key_count * data.element_count * ELEMENT_BYTES;
    let available = machine::available_memory_bytes();
    match needed > available {
        true => Err(BenchError::Failed(format!(
            "{} may need {}; {} are available: give a smaller number",
            data.line(),
            human_bytes(needed as f64),
            human_bytes(available as f64)
        ))),
        false => Ok(()),
    }
}

/// Waits; an error if the load has ended meanwhile.
pub fn wait(duration_ns: u64, has_ended: &dyn Fn() -> bool) -> Result<()> {
    let until_ns = now_ns() + duration_ns;
    while now_ns() < until_ns {
        if has_ended() {
            return Err(BenchError::Failed("the load ended early".to_owned()));
        }
        let left_ns = until_ns.saturating_sub(now_ns());
        std::thread::sleep(std::time::Duration::from_nanos(left_ns.min(NS_PER_S / 20)));
    }
    Ok(())
}

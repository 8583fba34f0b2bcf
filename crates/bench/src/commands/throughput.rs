//! `throughput`: commands a second and server CPU time a command, peers in alternating rounds on the same data.

use serde_json::{json, Value};

use crate::clock::now_ns;
use crate::commands::{fill, place, DataArgs};
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::{null_server, KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};
use crate::machine;
use crate::output::{human_ns, markdown_table, OutArgs, Output};
use crate::peer::{Peer, PeerArgs, Server, StartOptions};
use crate::pin::{CpuArgs, CpuPlan};
use crate::resp::Address;
use crate::stats::{median, min_max};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    peers: PeerArgs,
    /// Numbers of keys
    #[arg(short = 'n', long, value_name = "LIST", value_delimiter = ',', default_value = "1000000,10000000")]
    keys: Vec<u64>,
    /// Value sizes in bytes
    #[arg(short = 'd', long, value_name = "LIST", value_delimiter = ',', default_value = "3,100,1024")]
    value_sizes: Vec<usize>,
    /// Requests in flight on a connection
    #[arg(short = 'P', long, value_name = "LIST", value_delimiter = ',', default_value = "1,16")]
    pipelines: Vec<usize>,
    /// Connections
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50)]
    clients: usize,
    /// Alternating rounds of each combination
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    /// Seconds that are measured
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before, not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    warm_up: f64,
    /// Connect through unix sockets instead of TCP
    #[arg(long)]
    unix: bool,
    #[command(flatten)]
    data: DataArgs,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A run of a few seconds: 2,000 keys, one value size, one round
    #[arg(long)]
    small: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    out: OutArgs,
}

/// What is sent in one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    key_count: u64,
    value_bytes: usize,
    pipeline: usize,
    get: bool,
}

#[derive(Clone, Debug)]
struct Measurement {
    case: Case,
    peer: String,
    round: usize,
    per_second: f64,
    /// User and system time of the server over the number of commands.
    cpu_ns: f64,
    p50_ns: u64,
    p99_ns: u64,
}

/// The name under which the generator's own limit is listed.
const CEILING: &str = "generator alone";

struct Run {
    args: Args,
    peers: Vec<Peer>,
    cpus: Option<CpuPlan>,
    results: Vec<Measurement>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.small {
        (args.keys, args.value_sizes, args.rounds) = (vec![2000], vec![100], 1);
        (args.seconds, args.warm_up) = (0.2, 0.05);
    }
    let peers = args.peers.resolve()?;
    let mut out = Output::new(&args.out, "throughput", "Throughput", &peers)?;
    let cpus = place(&args.cpus, &mut out)?;
    out.note(
        "load",
        format!(
            "closed loop, {} connections over {}, one generator thread, keys of 16 B uniform and fresh, random values",
            args.clients,
            if args.unix { "a unix socket" } else { "TCP loopback" }
        ),
    );
    let scratch = args.data.scratch();
    let mut run = Run { args, peers, cpus, results: Vec::new() };
    for key_count in run.args.keys.clone() {
        for value_bytes in run.args.value_sizes.clone() {
            run.data_set(key_count, value_bytes, scratch.path())?;
        }
    }
    out.write_json(&run.results.iter().map(Measurement::json).collect::<Vec<_>>())?;
    out.write_markdown(&run.table())
}

impl Run {
    /// All measurements on one number of keys and one value size.
    fn data_set(&mut self, key_count: u64, value_bytes: usize, dir: &std::path::Path) -> Result<()> {
        let cases = self.cases(key_count, value_bytes);
        for case in &cases {
            self.ceiling(*case)?;
        }
        let options = |peer: &Peer| StartOptions {
            dir: dir.join(format!("{}-{key_count}-{value_bytes}", peer.name)),
            unix_socket: self.args.unix,
            keeps_log: false,
            cpus: self.cpus.clone(),
        };
        let peers: Vec<(Peer, StartOptions)> = self.peers.iter().map(|p| (p.clone(), options(p))).collect();
        if self.fits_together(key_count, value_bytes) {
            let mut servers = Vec::new();
            for (peer, options) in &peers {
                servers.push(self.filled(peer, options, key_count, value_bytes)?);
            }
            for case in &cases {
                for round in 0..self.args.rounds {
                    for server in &servers {
                        self.measure(server, *case, round)?;
                    }
                }
            }
            return servers.into_iter().try_for_each(Server::stop_without_save);
        }
        eprintln!("the servers do not fit into memory together: each round starts and fills them in turn");
        for round in 0..self.args.rounds {
            for (peer, options) in &peers {
                let server = self.filled(peer, options, key_count, value_bytes)?;
                for case in &cases {
                    self.measure(&server, *case, round)?;
                }
                server.stop_without_save()?;
            }
        }
        Ok(())
    }

    fn cases(&self, key_count: u64, value_bytes: usize) -> Vec<Case> {
        let both = |pipeline: &usize| {
            [true, false].map(|get| Case { key_count, value_bytes, pipeline: (*pipeline).max(1), get })
        };
        self.args.pipelines.iter().flat_map(both).collect()
    }

    fn fits_together(&self, key_count: u64, value_bytes: usize) -> bool {
        // Overhead of a key in the heaviest of the peers, rounded up.
        let one = key_count * (value_bytes as u64 * 5 / 4 + 200);
        one * self.peers.len() as u64 <= machine::available_memory_bytes() / 10 * 8
    }

    fn filled(
        &self,
        peer: &Peer,
        options: &StartOptions,
        key_count: u64,
        value_bytes: usize,
    ) -> Result<Server> {
        let server = peer.start(options)?;
        let spec = WorkloadSpec::sets(key_count, value_bytes, KeyChoice::Once, self.args.seed);
        let report = fill::fill(&server.target, spec)?;
        eprintln!(
            "{}: {key_count} keys of {value_bytes} B filled with {:.0} SET/s",
            peer.name,
            report.replies_per_second()
        );
        Ok(server)
    }

    fn measure(&mut self, server: &Server, case: Case, round: usize) -> Result<()> {
        server.pin();
        self.load(&server.target, case, self.args.warm_up, round)?;
        let cpu_before_ns = server.cpu_time_ns();
        let report = self.load(&server.target, case, self.args.seconds, round)?;
        let cpu_ns = server.cpu_time_ns() - cpu_before_ns;
        if let Some(error) = &report.tally.first_error {
            return Err(BenchError::Failed(format!("{} answered with an error: {error}", server.name)));
        }
        if report.tally.nils > 0 {
            return Err(BenchError::Failed(format!(
                "{} has lost {} of the keys",
                server.name, report.tally.nils
            )));
        }
        self.add(&server.name, case, round, &report, cpu_ns as f64 / report.replies.max(1) as f64);
        Ok(())
    }

    /// The same load on a server that does nothing: what the generator and the kernel's sockets allow.
    fn ceiling(&mut self, case: Case) -> Result<()> {
        let load = |target: &Address| self.load(target, case, self.args.seconds / 2.0, 0);
        let report = null_server::beside(self.cpus.as_ref().map(|plan| &plan.server[..]), load)?;
        self.add(CEILING, case, 0, &report, 0.0);
        Ok(())
    }

    fn load(&self, target: &Address, case: Case, seconds: f64, round: usize) -> Result<LoadReport> {
        let spec = WorkloadSpec {
            get_percent: if case.get { 100 } else { 0 },
            ..WorkloadSpec::sets(case.key_count, case.value_bytes, KeyChoice::Uniform, self.args.seed)
        };
        let mut workload = Workload::new(spec)?.reseeded(now_ns() ^ round as u64);
        let closed = ClosedLoop {
            target: target.clone(),
            conn_count: self.args.clients.max(1),
            pipeline: case.pipeline,
        };
        closed.run(&mut workload, Recording::new(now_ns()), Stop::after_seconds(seconds))
    }

    fn add(&mut self, peer: &str, case: Case, round: usize, report: &LoadReport, cpu_ns: f64) {
        let h = &report.recording.histogram;
        let m = Measurement {
            case,
            peer: peer.to_owned(),
            round,
            per_second: report.replies_per_second(),
            cpu_ns,
            p50_ns: h.value_at_percentile(50.0),
            p99_ns: h.value_at_percentile(99.0),
        };
        eprintln!(
            "  {} round {}: {peer} {:.0}/s, {:.0} ns of CPU",
            case.line(),
            round + 1,
            m.per_second,
            m.cpu_ns
        );
        self.results.push(m);
    }

    /// Values of one measure over the rounds of a peer.
    fn values(&self, case: Case, peer: &str, of: impl Fn(&Measurement) -> f64) -> Vec<f64> {
        self.results.iter().filter(|m| m.case == case && m.peer == peer).map(of).collect()
    }

    fn table(&self) -> String {
        let mut header: Vec<String> = ["keys", "value", "-P", "command"].map(str::to_owned).to_vec();
        header.extend(self.peers.iter().map(|p| format!("{}/s", p.name)));
        let base = &self.peers[0].name;
        header.extend(self.peers.iter().skip(1).map(|p| format!("{} / {base}", p.name)));
        header.extend(self.peers.iter().map(|p| format!("{} CPU", p.name)));
        header.push(format!("{CEILING}/s"));
        let mut cases: Vec<Case> = self.results.iter().map(|m| m.case).collect();
        // The measurements of a case are not all neighbours; keep the order of first appearance.
        let mut seen = Vec::new();
        cases.retain(|c| {
            !seen.contains(c) && {
                seen.push(*c);
                true
            }
        });
        let rows: Vec<_> = cases.iter().map(|case| self.row(*case, base)).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        format!(
            "Medians of {} rounds, range in parentheses. CPU: user and system time of the server a command. \
             The last column is the same load on a server that answers +OK to everything: a server near it is \
             measured by the generator.\n\n{}",
            self.args.rounds,
            markdown_table(&header, &rows)
        )
    }

    fn row(&self, case: Case, base: &str) -> Vec<String> {
        let rate = |peer: &str| median(&self.values(case, peer, |m| m.per_second));
        let mut row = vec![
            case.key_count.to_string(),
            format!("{} B", case.value_bytes),
            case.pipeline.to_string(),
            case.command().to_owned(),
        ];
        for peer in &self.peers {
            let (low, high) = min_max(&self.values(case, &peer.name, |m| m.per_second));
            row.push(format!("{:.0}k ({:.0} to {:.0})", rate(&peer.name) / 1e3, low / 1e3, high / 1e3));
        }
        for peer in self.peers.iter().skip(1) {
            row.push(format!("{:.2} x", rate(&peer.name) / rate(base)));
        }
        for peer in &self.peers {
            row.push(human_ns(median(&self.values(case, &peer.name, |m| m.cpu_ns))));
        }
        row.push(format!("{:.0}k", rate(CEILING) / 1e3));
        row
    }
}

impl Case {
    fn command(&self) -> &'static str {
        if self.get {
            "GET"
        } else {
            "SET"
        }
    }

    fn line(&self) -> String {
        format!("{} {} B, {} keys, -P {}", self.command(), self.value_bytes, self.key_count, self.pipeline)
    }
}

impl Measurement {
    fn json(&self) -> Value {
        json!({
            "peer": self.peer,
            "round": self.round + 1,
            "keys": self.case.key_count,
            "value_bytes": self.case.value_bytes,
            "pipeline": self.case.pipeline,
            "command": self.case.command(),
            "per_second": self.per_second,
            "cpu_ns_per_command": self.cpu_ns,
            "p50_us": self.p50_ns as f64 / 1e3,
            "p99_us": self.p99_ns as f64 / 1e3,
        })
    }
}

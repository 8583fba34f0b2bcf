//! `fork-guest`, inside the virtual machine: a real redis-server, saved under open-loop load with each fork strategy
//! in turn on the same data. Each save is a line of JSON on standard output.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{json, Map};
use stillframe_fork::abi::{Control, Statistics, StrategyCode};
use stillframe_fork::root::Root;

use super::records::{Latencies, Measure, Save, SaveCommand, SaveStatistics, Strategy};
use crate::clock::{now_ns, seconds_to_ns, NS_PER_MS, NS_PER_S};
use crate::commands::fill;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::open_loop::OpenLoop;
use crate::load::phase::Phase;
use crate::load::recording::Sample;
use crate::load::{self, KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};
use crate::peer::{Peer, PeerKind, Server, StartOptions};
use crate::pin::{self, CpuPlan};
use crate::resp::{info_number, Client, Info};
use crate::stops;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Size of the values of all keys together
    #[arg(long, value_name = "MB")]
    mb: u64,
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    value_size: usize,
    /// Strategies in turn: default, odf, or a number of copy threads
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    strategies: Vec<String>,
    #[arg(long, value_name = "COUNT")]
    rounds: usize,
    /// Load in percent of what the server takes at most
    #[arg(long, value_name = "PERCENT")]
    load_percent: f64,
    /// BGREWRITEAOF with the append-only file on, instead of BGSAVE
    #[arg(long)]
    aof: bool,
}

/// The paper's clients (section 6.1).
const CLIENTS: usize = 50;
/// The paper reports throughput of every 50 ms.
const BIN_NS: u64 = 50 * NS_PER_MS;
/// Emulated seconds are long: what is measured before and after a save is short.
const BEFORE_NS: u64 = 3 * NS_PER_S / 2;
const AFTER_NS: u64 = NS_PER_S / 2;
const POLL: Duration = Duration::from_millis(20);
const SAVE_TIMEOUT_NS: u64 = 600 * NS_PER_S;

struct Guest<'a> {
    args: &'a Args,
    root: Root,
    server: Server,
    cpus: Option<CpuPlan>,
    spec: WorkloadSpec,
    requests_per_second: f64,
}

pub fn run(args: &Args) -> Result<()> {
    stops::watch_nothing();
    let cpus = pin::CpuArgs::default().plan();
    let peer = Peer {
        name: "redis".to_owned(),
        kind: PeerKind::Redis,
        binary: PathBuf::from("/bin/redis-server"),
        // What a save computes beside copying takes many times longer when it is emulated.
        args: ["--rdbcompression", "no", "--rdbchecksum", "no"].map(str::to_owned).to_vec(),
    };
    let dir = PathBuf::from("/data/redis");
    let server = peer.start(&StartOptions {
        dir: dir.clone(),
        unix_socket: true,
        keeps_log: false,
        cpus: cpus.clone(),
    })?;
    let key_count = (args.mb << 20) / args.value_size.max(1) as u64;
    let spec = WorkloadSpec::sets(key_count, args.value_size, KeyChoice::Once, 1);
    fill::fill(&server.target, spec.clone())?;
    let spec = WorkloadSpec { keys: KeyChoice::Uniform, ..spec };
    let requests_per_second = most(&server, &spec)? * args.load_percent / 100.0;
    let guest = Guest { args, root: Root::new("/"), server, cpus, spec, requests_per_second };
    let mut client = guest.server.client()?;
    if args.aof {
        client.call(&["CONFIG", "SET", "appendonly", "yes"])?;
        guest.wait_for_save(&mut client)?;
    }
    for round in 0..args.rounds {
        for strategy in &args.strategies {
            let strategy = Strategy::try_from(strategy.clone()).map_err(BenchError::Failed)?;
            let record = Measure::Redis(Box::new(guest.save(&mut client, strategy, round)?));
            let line = serde_json::to_string(&record).map_err(|e| BenchError::failed("write a record", e))?;
            // A console that is gone is noticed by the host.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
    drop(client);
    guest.server.stop_without_save()?;
    std::fs::remove_dir_all(&dir).map_err(|e| BenchError::failed("remove the data", e))
}

/// Requests a second that the server answers when there are always some waiting.
fn most(server: &Server, spec: &WorkloadSpec) -> Result<f64> {
    let mut workload = Workload::new(spec.clone())?;
    let closed = ClosedLoop { target: server.target.clone(), conn_count: CLIENTS, pipeline: 1 };
    let report =
        closed.run(&mut workload, Recording::new(now_ns() + NS_PER_S / 2), Stop::after_seconds(2.0))?;
    Ok(report.replies_per_second())
}

struct Times {
    begin_ns: u64,
    end_ns: u64,
}

impl Guest<'_> {
    fn save(&self, client: &mut Client, strategy: Strategy, round: usize) -> Result<Save> {
        self.set_strategy(strategy)?;
        let before = self.statistics()?;
        let generate = |stop: &AtomicBool| self.generate(round, stop);
        let (report, times) = load::beside(generate, |_| self.save_under_load(client))?;
        let after = self.statistics()?;
        let info = client.info("everything")?;
        let record = self.record(strategy, round, &times, &report, &info);
        Ok(Save { statistics: difference(&before, &after)?, ..record })
    }

    fn save_under_load(&self, client: &mut Client) -> Result<Times> {
        std::thread::sleep(Duration::from_nanos(BEFORE_NS));
        let begin_ns = now_ns();
        client.call(&[&self.command().to_string()])?;
        self.wait_for_save(client)?;
        let end_ns = now_ns();
        std::thread::sleep(Duration::from_nanos(AFTER_NS));
        Ok(Times { begin_ns, end_ns })
    }

    fn wait_for_save(&self, client: &mut Client) -> Result<()> {
        let until_ns = now_ns() + SAVE_TIMEOUT_NS;
        loop {
            let info = client.info("persistence")?;
            let is = |field: &str, value: &str| info.get(field).is_some_and(|v| v == value);
            let idle = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"];
            if idle.iter().all(|field| is(field, "0")) {
                return match is("rdb_last_bgsave_status", "ok") && is("aof_last_bgrewrite_status", "ok") {
                    true => Ok(()),
                    false => Err(BenchError::Failed("redis-server says that its save failed".to_owned())),
                };
            }
            if now_ns() > until_ns {
                return Err(BenchError::Failed("a save took more than ten minutes".to_owned()));
            }
            std::thread::sleep(POLL);
        }
    }

    fn generate(&self, round: usize, stop: &AtomicBool) -> Result<LoadReport> {
        if let Some(plan) = &self.cpus {
            pin::pin_current_thread(&plan.generator)?;
        }
        pin::raise_current_thread(50);
        let mut workload = Workload::new(self.spec.clone())?.reseeded(round as u64);
        let open = OpenLoop {
            target: self.server.target.clone(),
            conn_count: CLIENTS,
            requests_per_second: self.requests_per_second,
            burst: 1,
            spin_ns: 0,
            drain_ns: 60 * NS_PER_S,
        };
        let expected = (self.requests_per_second * 60.0) as usize;
        let stop = Stop { flag: Some(stop), ..Stop::default() };
        open.run(&mut workload, Recording::with_samples(now_ns(), expected), stop)
    }

    fn set_strategy(&self, strategy: Strategy) -> Result<()> {
        let (strategy, copy_threads) = match strategy {
            Strategy::Default => (StrategyCode::Default, 0),
            Strategy::Odf => (StrategyCode::Odf, 0),
            Strategy::Async { copy_threads } => (StrategyCode::Async, copy_threads),
        };
        let pid = i32::try_from(self.server.pid()).map_err(|e| BenchError::failed("a process number", e))?;
        let control = Control { pid, strategy, copy_threads };
        self.root.set_strategy(control).map_err(|e| BenchError::failed("set the fork strategy", e))
    }

    fn statistics(&self) -> Result<Statistics> {
        self.root.statistics().map_err(|e| BenchError::failed("read the module's statistics", e))
    }

    fn record(
        &self,
        strategy: Strategy,
        round: usize,
        times: &Times,
        report: &LoadReport,
        info: &Info,
    ) -> Save {
        let samples = report.recording.samples();
        let (begin_ns, end_ns) = (times.begin_ns, times.end_ns);
        Save {
            command: self.command(),
            mb: self.args.mb,
            strategy,
            round,
            requests_per_second: self.requests_per_second,
            save_ns: end_ns - begin_ns,
            fork_ns: info_number(info, "latest_fork_usec").unwrap_or(0.0) * 1e3,
            before: latencies(samples, begin_ns - BEFORE_NS + seconds_to_ns(0.5), begin_ns),
            first_second: latencies(samples, begin_ns, begin_ns + NS_PER_S),
            during: latencies(samples, begin_ns, end_ns),
            bins_from_ns: BEFORE_NS / 2,
            replies_of_50_ms: bins(samples, begin_ns - BEFORE_NS / 2, end_ns),
            statistics: SaveStatistics::default(),
        }
    }

    fn command(&self) -> SaveCommand {
        match self.args.aof {
            true => SaveCommand::BgRewriteAof,
            false => SaveCommand::BgSave,
        }
    }
}

/// What the counters have grown by.
fn difference(before: &Statistics, after: &Statistics) -> Result<SaveStatistics> {
    let pairs = before.fields().into_iter().zip(after.fields());
    let named = pairs.map(|((name, old), (_, new))| {
        let values: Vec<u64> = new.iter().zip(&old).map(|(n, o)| n.saturating_sub(*o)).collect();
        (name.to_owned(), if values.len() == 1 { json!(values[0]) } else { json!(values) })
    });
    serde_json::from_value(named.collect::<Map<_, _>>().into())
        .map_err(|e| BenchError::failed("the module's statistics", e))
}

fn latencies(samples: &[Sample], from_ns: u64, to_ns: u64) -> Latencies {
    let Phase { count, p50_ns, p99_ns, p999_ns, max_ns, .. } = Phase::of(samples, from_ns, to_ns);
    Latencies { count: count as u64, p50_ns, p99_ns, p999_ns, max_ns }
}

/// Replies that came in each 50 ms.
fn bins(samples: &[Sample], from_ns: u64, to_ns: u64) -> Vec<u64> {
    let mut bins = vec![0; ((to_ns - from_ns) / BIN_NS) as usize];
    for sample in samples {
        let Some(since_ns) = (sample.intended_ns + sample.latency_ns).checked_sub(from_ns) else { continue };
        if let Some(bin) = bins.get_mut((since_ns / BIN_NS) as usize) {
            *bin += 1;
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_when_they_came() {
        let sample = |intended_ns, latency_ns| Sample { intended_ns, latency_ns };
        let samples = [sample(0, 5), sample(10, BIN_NS), sample(20, 2 * BIN_NS), sample(3 * BIN_NS, 100)];
        assert_eq!(bins(&samples, 10, 10 + 3 * BIN_NS), [0, 1, 1]);
    }
}

//! Figures 13 to 17: a load as YCSB has it on the server with each algorithm, and on redis-server.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillframe_pagepool::SnapshotKind;

use super::args::Args;
use crate::clock::{now_ns, NS_PER_S};
use crate::commands::fill;
use crate::commands::pause::memory;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::open_loop::OpenLoop;
use crate::load::phase::Phase;
use crate::load::recording::BUCKET_NS;
use crate::load::{beside, KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};
use crate::peer::{Peer, SaveTimes, Server, StartOptions};
use crate::pin::{self, CpuPlan};

/// A record of YCSB: ten fields of 100 bytes.
const VALUE_BYTES: usize = 1000;
/// YCSB's.
const ZIPF_EXPONENT: f64 = 0.99;
const CONN_COUNT: usize = 50;
/// Requests that are due at once: the generator shares a core.
const BURST: u64 = 10;
/// Of the load before a save.
const BEFORE: Duration = Duration::from_millis(500);
const QUICK_BEFORE: Duration = Duration::from_millis(50);
/// Chooses the algorithm. All of them have pages in frames, where each of them is served.
const FLAGS: [&str; 3] = ["--pool-backend", "array", "--snapshot-algorithm"];

/// One server with so many records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerRun {
    pub system: String,
    pub record_count: u64,
    pub update_percent: u8,
    /// Closed loop, from BGSAVE to its end.
    pub per_second: f64,
    /// Open loop, of requests due from BGSAVE to its end.
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub p9999_ns: u64,
    pub max_ns: u64,
    pub sent_late_max_ns: u64,
    pub save_ns: u64,
    pub memory_before_bytes: u64,
    pub memory_peak_bytes: u64,
}

/// A server to compare.
#[derive(Clone)]
pub struct System {
    pub name: String,
    peer: Peer,
}

impl Args {
    /// Redis first, as far as it is installed, then this server with each algorithm that it has.
    pub fn systems(&self) -> (Vec<System>, Vec<BenchError>) {
        let (mut systems, mut missing) = (Vec::new(), Vec::new());
        let is_wanted = |name: &str| {
            let chosen = self.algorithms.as_ref();
            chosen.is_none_or(|chosen| name == "redis" || chosen.iter().any(|subject| subject.name() == name))
        };
        match self.peers.peer("redis") {
            Ok(peer) => systems.push(System { name: peer.name.clone(), peer: with_flags(peer, &[]) }),
            Err(error) => missing.push(error),
        }
        let with_algorithm = |peer: &Peer, name: &str| {
            let flags = FLAGS.into_iter().chain([name]).collect::<Vec<_>>();
            System { name: name.to_owned(), peer: with_flags(peer.clone(), &flags) }
        };
        let names = SnapshotKind::ALL.into_iter().map(SnapshotKind::name).filter(|name| is_wanted(name));
        match self.peers.peer("stillframe") {
            Ok(peer) => systems.extend(names.map(|name| with_algorithm(&peer, name))),
            Err(error) => missing.push(error),
        }
        (systems, missing)
    }

    /// Records and shares of updates: all of the one with the first of the other, and the other way round.
    pub fn server_points(&self) -> Vec<(u64, u8)> {
        let records: Vec<u64> = self.records.iter().map(|thousands| thousands * 1000).collect();
        let middle = records[records.len() / 2];
        let first = self.updates[0];
        let mut points: Vec<(u64, u8)> = records.iter().map(|count| (*count, first)).collect();
        points.extend(self.updates.iter().skip(1).map(|percent| (middle, *percent)));
        points
    }

    pub fn server_estimate_s(&self, record_count: u64) -> f64 {
        2.0 + record_count as f64 / 100_000.0
    }
}

fn with_flags(peer: Peer, flags: &[&str]) -> Peer {
    let own = ["--save", ""];
    let args = own.iter().chain(flags).map(|word| (*word).to_owned());
    Peer { args: peer.args.iter().cloned().chain(args).collect(), ..peer }
}

struct Run<'a> {
    args: &'a Args,
    server: Server,
    cpus: Option<&'a CpuPlan>,
    record_count: u64,
    update_percent: u8,
}

/// # Errors
/// The server does not start, refuses a request or the save fails.
pub fn measure(
    args: &Args,
    system: &System,
    (record_count, update_percent): (u64, u8),
    dir: &Path,
    cpus: Option<&CpuPlan>,
) -> Result<ServerRun> {
    let options =
        StartOptions { dir: dir.join("server"), unix_socket: false, keeps_log: false, cpus: cpus.cloned() };
    let server = system.peer.start(&options)?;
    fill::fill(&server.target, WorkloadSpec::sets(record_count, VALUE_BYTES, KeyChoice::Once, args.seed))?;
    let run = Run { args, server, cpus, record_count, update_percent };
    let outcome = run.measure(&system.name);
    let stopped = run.server.stop_without_save();
    let _ = std::fs::remove_dir_all(&options.dir);
    let outcome = outcome?;
    stopped.map(|()| outcome)
}

impl Run<'_> {
    /// The first save writes everything; the second is there for the throughput beside it.
    fn measure(&self, name: &str) -> Result<ServerRun> {
        let stop = AtomicBool::new(false);
        let (timed, samples) = std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                if let Some(plan) = self.cpus {
                    // An unpinned sampler still samples.
                    let _ = pin::pin_current_thread(&plan.saver);
                }
                memory::watch(self.server.pid(), &stop)
            });
            let timed = beside(|stop| self.timed(stop), |ended| self.save(ended));
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            (timed, sampler.join().unwrap_or_default())
        });
        let (report, times) = timed?;
        let during = Phase::of(report.recording.samples(), times.begin_ns, times.end_ns);
        let mut before =
            samples.iter().filter(|sample| sample.at_ns < times.begin_ns).map(|sample| sample.bytes);
        let peak =
            samples.iter().filter(|sample| sample.at_ns < times.end_ns).map(|sample| sample.bytes).max();
        Ok(ServerRun {
            system: name.to_owned(),
            record_count: self.record_count,
            update_percent: self.update_percent,
            per_second: self.throughput()?,
            p50_ns: during.p50_ns,
            p99_ns: during.p99_ns,
            p999_ns: during.p999_ns,
            p9999_ns: during.p9999_ns,
            max_ns: during.max_ns,
            sent_late_max_ns: report.lateness.as_ref().map_or(0, |late| late.histogram.max()),
            save_ns: times.save_ns(),
            memory_before_bytes: before.next_back().unwrap_or(0),
            memory_peak_bytes: peak.unwrap_or(0),
        })
    }

    fn save(&self, has_ended: &dyn Fn() -> bool) -> Result<SaveTimes> {
        let pause = if self.args.quick { QUICK_BEFORE } else { BEFORE };
        std::thread::sleep(pause);
        let times = self.server.save(&mut self.server.client()?, || {})?;
        match has_ended() {
            true => Err(BenchError::Failed("the load ended early".to_owned())),
            false => Ok(times),
        }
    }

    fn workload(&self, draw: u64) -> Result<Workload> {
        let spec = WorkloadSpec {
            get_percent: 100 - self.update_percent,
            zipf_exponent: ZIPF_EXPONENT,
            ..WorkloadSpec::sets(self.record_count, VALUE_BYTES, KeyChoice::Zipf, self.args.seed)
        };
        Ok(Workload::new(spec)?.reseeded(draw))
    }

    fn on_generator(&self) -> Result<()> {
        self.cpus.map_or(Ok(()), |plan| pin::pin_current_thread(&plan.generator))
    }

    fn timed(&self, stop: &AtomicBool) -> Result<LoadReport> {
        self.on_generator()?;
        // Else what is due while the saver has its core is sent late.
        pin::raise_current_thread(50);
        let load = OpenLoop {
            target: self.server.target.clone(),
            conn_count: CONN_COUNT,
            requests_per_second: self.args.rate,
            burst: BURST,
            spin_ns: 0,
            drain_ns: 60 * NS_PER_S,
        };
        let expected = (self.args.rate * 30.0) as usize;
        let recording = Recording::with_samples(now_ns(), expected);
        checked(load.run(&mut self.workload(1)?, recording, Stop { flag: Some(stop), ..Stop::default() })?)
    }

    /// Replies a second from the beginning of a save to its end.
    fn throughput(&self) -> Result<f64> {
        let load = ClosedLoop { target: self.server.target.clone(), conn_count: CONN_COUNT, pipeline: 1 };
        let begin_ns = now_ns();
        let generate = |stop: &AtomicBool| {
            self.on_generator()?;
            let stop = Stop { flag: Some(stop), ..Stop::default() };
            checked(load.run(&mut self.workload(2)?, Recording::new(begin_ns), stop)?)
        };
        let (report, times) = beside(generate, |ended| self.save(ended))?;
        let bucket = |at_ns: u64| ((at_ns - begin_ns) / BUCKET_NS) as usize;
        let (first, last) = (bucket(times.begin_ns), bucket(times.end_ns));
        let buckets = report.recording.buckets.iter().skip(first).take(last - first + 1);
        let count: u64 = buckets.map(|bucket| bucket.count).sum();
        Ok(count as f64 * NS_PER_S as f64 / ((last - first + 1) as u64 * BUCKET_NS) as f64)
    }
}

fn checked(report: LoadReport) -> Result<LoadReport> {
    match &report.tally.first_error {
        Some(error) => Err(BenchError::Failed(format!("a request was refused: {error}"))),
        None if report.unanswered > 0 => {
            Err(BenchError::Failed(format!("{} requests were not answered", report.unanswered)))
        }
        None => Ok(report),
    }
}

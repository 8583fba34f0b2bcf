//! One server, started, filled, saved under load and restarted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::config::Config;
use super::memory::{self, Extra, MemorySample, Window};
use super::restart::{self, Restart};
use crate::clock::{now_ns, NS_PER_MS, NS_PER_S};
use crate::commands::{directory_bytes, fill};
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::open_loop::OpenLoop;
use crate::load::phase::Phase;
use crate::load::{self, KeyChoice, LoadReport, Recording, Stop, Workload, WorkloadSpec};
use crate::machine;
use crate::peer::{Peer, SaveTimes, Server, StartOptions};
use crate::pin;
use crate::resp::Info;

pub struct Round {
    pub peer: String,
    pub number: usize,
    pub saves: Vec<Save>,
    pub restart: Option<Restart>,
    pub report: LoadReport,
    pub memory: Vec<MemorySample>,
    pub dump_bytes: u64,
    /// Time another guest ran on our cores, over all cores.
    pub stolen_ms: u64,
    /// How the threads were prioritised.
    pub notes: Vec<String>,
}

pub struct Save {
    pub times: SaveTimes,
    /// Start of the seconds before that are compared with.
    pub before_ns: u64,
    pub before: Phase,
    pub first_second: Phase,
    pub during: Phase,
    pub memory: Extra,
    pub info: Info,
}

pub fn run(config: &Config, peer: &Peer, number: usize) -> Result<Round> {
    let options = StartOptions {
        dir: config.data.path().join(format!("{}-{number}", peer.name)),
        unix_socket: config.unix,
        keeps_log: config.rewrites,
        cpus: config.cpus.clone(),
    };
    let server = peer.start(&options)?;
    let spec = WorkloadSpec::sets(config.key_count, config.value_bytes, KeyChoice::Once, config.seed);
    let filled = fill::fill(&server.target, spec)?;
    eprintln!("  filled with {:.0} SET/s", filled.replies_per_second());
    std::thread::sleep(Duration::from_nanos(config.settle_ns));
    let stolen_before = machine::stolen_ticks();
    let measured = under_load(config, &server, number)?;
    let stolen_ticks = machine::stolen_ticks() - stolen_before;
    check(peer, &measured.report)?;
    server.stop_without_save()?;
    let dump_bytes = directory_bytes(&options.dir);
    let restart = match config.restart {
        true => Some(restart::measure(config, peer, &options)?),
        false => None,
    };
    let _ = std::fs::remove_dir_all(&options.dir);
    let saves = measured.saves.iter().map(|(times, info)| judge(config, &measured, *times, info)).collect();
    Ok(Round {
        peer: peer.name.clone(),
        number,
        saves,
        restart,
        report: measured.report,
        memory: measured.memory,
        dump_bytes,
        stolen_ms: stolen_ticks * 1000 / rustix::param::clock_ticks_per_second(),
        notes: measured.notes,
    })
}

struct Measured {
    saves: Vec<(SaveTimes, Info)>,
    report: LoadReport,
    memory: Vec<MemorySample>,
    notes: Vec<String>,
}

fn under_load(config: &Config, server: &Server, number: usize) -> Result<Measured> {
    let generate = |stop: &AtomicBool| generate(config, server, number, stop);
    let ((report, note), (saves, memory)) = load::beside(generate, |load_has_ended| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| sample_memory(config, server, &stop));
            let saves = save_repeatedly(config, server, load_has_ended);
            stop.store(true, Ordering::SeqCst);
            let memory = sampler.join();
            Ok((saves?, memory.map_err(|_| BenchError::Failed("the memory sampler panicked".to_owned()))?))
        })
    })?;
    Ok(Measured { saves, report, memory, notes: vec![note] })
}

/// Runs on the generator's thread.
fn generate(
    config: &Config,
    server: &Server,
    number: usize,
    stop: &AtomicBool,
) -> Result<(LoadReport, String)> {
    if let Some(plan) = &config.cpus {
        pin::pin_current_thread(&plan.generator)?;
    }
    let spec = WorkloadSpec {
        value_size: config.overwrite_size,
        ..WorkloadSpec::sets(config.key_count, config.value_bytes, KeyChoice::Uniform, config.seed)
    };
    // The values' pool follows the seed, the choice of keys differs from round to round.
    let mut workload = Workload::new(spec)?.reseeded(number as u64);
    let stop = Stop { flag: Some(stop), ..Stop::default() };
    let expected = expected_samples(config);
    if config.rate > 0.0 {
        let recording = Recording::with_samples(now_ns(), expected);
        let priority = pin::raise_current_thread(50);
        let open = OpenLoop {
            target: server.target.clone(),
            conn_count: config.clients,
            requests_per_second: config.rate,
            burst: config.burst,
            spin_ns: config.spin_ns,
            drain_ns: 60 * NS_PER_S,
        };
        let report = open.run(&mut workload, recording, stop)?;
        let waits = if config.spin_ns > 0 { "spins before each send" } else { "sleeps between sends" };
        return Ok((report, format!("the generator runs at {priority} and {waits}")));
    }
    let closed =
        ClosedLoop { target: server.target.clone(), conn_count: config.clients, pipeline: config.pipeline };
    let report = closed.run(&mut workload, Recording::with_samples(now_ns(), expected), stop)?;
    Ok((
        report,
        "the generator runs at normal priority: it never sleeps and must not starve the saver".to_owned(),
    ))
}

fn expected_samples(config: &Config) -> usize {
    let rate = if config.rate > 0.0 { config.rate } else { 100_000.0 };
    let seconds = (config.before_ns + config.after_ns) as f64 / 1e9 + 30.0;
    (rate * seconds * config.saves as f64) as usize
}

fn sample_memory(config: &Config, server: &Server, stop: &AtomicBool) -> Vec<MemorySample> {
    if let Some(plan) = &config.cpus {
        // An unpinned sampler still samples.
        let _ = pin::pin_current_thread(&plan.saver);
    }
    // Below the generator, above the saver, who would otherwise decide when memory is read.
    pin::raise_current_thread(40);
    memory::watch(server.pid(), stop)
}

fn save_repeatedly(
    config: &Config,
    server: &Server,
    generator_ended: &dyn Fn() -> bool,
) -> Result<Vec<(SaveTimes, Info)>> {
    let mut client = server.client()?;
    // A second for the caches of both sides to see the load.
    pause_unless(NS_PER_S.min(config.before_ns), generator_ended)?;
    let mut saves = Vec::new();
    for _ in 0..config.saves {
        pause_unless(config.before_ns, generator_ended)?;
        let times = match config.rewrites {
            true => server.rewrite(&mut client)?,
            false => server.save(&mut client, || {})?,
        };
        let info = client.info("everything")?;
        pause_unless(config.after_ns, generator_ended)?;
        eprintln!("  save took {:.2} s", times.save_ns() as f64 / 1e9);
        saves.push((times, info));
    }
    Ok(saves)
}

fn pause_unless(duration_ns: u64, ended: &dyn Fn() -> bool) -> Result<()> {
    let until_ns = now_ns() + duration_ns;
    while now_ns() < until_ns {
        if ended() {
            return Err(BenchError::Failed("the load ended early".to_owned()));
        }
        std::thread::sleep(Duration::from_nanos((until_ns - now_ns().min(until_ns)).min(50 * NS_PER_MS)));
    }
    Ok(())
}

fn judge(config: &Config, measured: &Measured, times: SaveTimes, info: &Info) -> Save {
    let samples = measured.report.recording.samples();
    let before_ns = times.begin_ns - config.before_ns / NS_PER_S * NS_PER_S;
    let window = Window {
        before_ns,
        begin_ns: times.begin_ns,
        end_ns: times.end_ns,
        after_ns: times.end_ns + config.after_ns,
    };
    Save {
        times,
        before_ns,
        before: Phase::of(samples, before_ns, times.begin_ns),
        first_second: Phase::of(samples, times.begin_ns, times.begin_ns + NS_PER_S),
        during: Phase::of(samples, times.begin_ns, times.end_ns),
        memory: Extra::of(&measured.memory, window),
        info: info.clone(),
    }
}

fn check(peer: &Peer, report: &LoadReport) -> Result<()> {
    if let Some(error) = &report.tally.first_error {
        return Err(BenchError::Failed(format!(
            "{} answered {} of {} SETs with an error, the first: {error}",
            peer.name, report.tally.errors, report.sent
        )));
    }
    if report.unanswered > 0 {
        return Err(BenchError::Failed(format!("{} left {} SETs unanswered", peer.name, report.unanswered)));
    }
    Ok(())
}

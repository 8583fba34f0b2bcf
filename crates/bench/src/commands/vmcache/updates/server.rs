//! The server whose data is larger than its memory, and the loads that it gets.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stillframe_pagepool::PoolBackend;

use super::measured::{Keys, Latency, PageRates, Throughput, Timed, Updates};
use crate::clock::{now_ns, seconds_to_ns, NS_PER_S};
use crate::commands::fill;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::open_loop::OpenLoop;
use crate::load::workload::WorkloadSpec;
use crate::load::{beside, KeyChoice, LoadReport, Recording, Stop, Workload};
use crate::peer::{Peer, Server, StartOptions};
use crate::pin;
use crate::resp::{info_number, Client, Info};

/// A value lies in its leaf: an update is a page that is read and a page that is written.
const VALUE_BYTES: usize = 400;
/// The data is so many times the pages that are kept in memory.
const TIMES: u64 = 10;
/// As little as a server can do with.
const MEMORY_PAGES_MIN: u64 = 2048;
const PAGE_BYTES: u64 = 4096;
/// So small that it says little beside the pages.
const SNAPSHOT_MEMORY: &str = "16mb";
/// To begin with; what a server needs beside its pages is its own affair.
const MEMORY_BYTES_FIRST: u64 = 96 << 20;
/// Keys that stay in memory because they are updated all the time: each in a page of its own.
const HOT_KEYS: u64 = 200;
/// Updates of those, a second.
const HOT_PER_SECOND: f64 = 5_000.0;
/// Updates beside them that are due at once: the generators share a processor.
const BURST: u64 = 10;
const POLL: Duration = Duration::from_millis(20);
const START_TIMEOUT_NS: u64 = 600 * NS_PER_S;

/// A load that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Resident,
    ResidentBeside,
    OnDisk,
}

/// A server that keeps a tenth of its pages in memory.
pub struct Tenth {
    server: Server,
}

/// What a server had done at a time.
struct Count {
    at_ns: u64,
    cpu_ns: u64,
    loaded: f64,
    written_back: f64,
    evicted: f64,
}

fn peer_of(updates: &Updates, flags: &[&str]) -> Peer {
    let own = ["--save", "", "--workers", "1", "--snapshot-memory", SNAPSHOT_MEMORY];
    let args = own.iter().chain(flags).map(|word| (*word).to_owned());
    Peer { args: updates.peer.args.iter().cloned().chain(args).collect(), ..updates.peer.clone() }
}

fn options(updates: &Updates, dir: &Path) -> StartOptions {
    StartOptions { dir: PathBuf::from(dir), unix_socket: false, keeps_log: false, cpus: updates.cpus.clone() }
}

fn number(info: &Info, field: &str) -> Result<f64> {
    info_number(info, field).ok_or_else(|| {
        BenchError::Failed(format!("the server's INFO has no number {field}: is it another build?"))
    })
}

fn check(report: &LoadReport) -> Result<()> {
    match &report.tally.first_error {
        Some(error) => Err(BenchError::Failed(format!("an update was refused: {error}"))),
        None if report.unanswered > 0 => {
            Err(BenchError::Failed(format!("{} updates were not answered", report.unanswered)))
        }
        None => Ok(()),
    }
}

/// Fills a server that keeps everything in memory, and saves. Returns the pages of the data.
///
/// # Errors
/// The server does not start, or refuses; no space, or an I/O error.
pub fn fill(updates: &Updates, dir: &Path) -> Result<u64> {
    eprintln!("updates: filling a server with {} keys of {VALUE_BYTES} B", updates.key_count);
    let server = peer_of(updates, &[]).start(&options(updates, dir))?;
    fill::fill(
        &server.target,
        WorkloadSpec::sets(updates.key_count, VALUE_BYTES, KeyChoice::Once, updates.seed),
    )?;
    let mut client = server.client()?;
    server.save(&mut client, || {})?;
    let page_count = number(&client.info("everything")?, "data_pages")? as u64;
    server.stop_without_save()?;
    Ok(page_count)
}

impl Tenth {
    /// # Errors
    /// The server does not start.
    pub fn start(updates: &Updates, backend: PoolBackend, dir: &Path) -> Result<Tenth> {
        let mut maxmemory_bytes = MEMORY_BYTES_FIRST;
        let maxmemory = maxmemory_bytes.to_string();
        let bound = ["--maxmemory-policy", "tiered", "--maxmemory", &maxmemory];
        let flags = [&bound[..], &["--pool-backend", backend.name()]].concat();
        let server = peer_of(updates, &flags).start(&options(updates, dir))?;
        let mut client = server.client()?;
        let info = client.info("everything")?;
        let wanted = (number(&info, "data_pages")? as u64 / TIMES).max(MEMORY_PAGES_MIN);
        // What it takes beside its pages depends on the bound, too.
        for _ in 0..3 {
            let pages = number(&client.info("everything")?, "data_pages_in_memory_max")? as u64;
            maxmemory_bytes = (maxmemory_bytes + wanted * PAGE_BYTES).saturating_sub(pages * PAGE_BYTES);
            client.call(&["CONFIG", "SET", "maxmemory", &maxmemory_bytes.to_string()])?;
        }
        let server = Tenth { server };
        server.settle(&mut client, wanted)?;
        Ok(server)
    }

    /// Waits until there are no more pages in memory than there are to be.
    fn settle(&self, client: &mut Client, wanted: u64) -> Result<()> {
        let begin_ns = now_ns();
        loop {
            let info = client.info("everything")?;
            let in_memory = number(&info, "data_pages_in_memory")? as u64;
            if number(&info, "warmup_in_progress")? == 0.0 && in_memory <= wanted + wanted / 10 {
                return Ok(());
            }
            if now_ns() - begin_ns > START_TIMEOUT_NS {
                return Err(BenchError::Failed(format!("the server keeps {in_memory} pages, not {wanted}")));
            }
            std::thread::sleep(POLL);
        }
    }

    fn count(&self, client: &mut Client) -> Result<Count> {
        self.server.pin();
        let info = client.info("everything")?;
        Ok(Count {
            at_ns: now_ns(),
            cpu_ns: self.server.cpu_time_ns(),
            loaded: number(&info, "data_pages_loaded")?,
            written_back: number(&info, "data_pages_written_back")?,
            evicted: number(&info, "data_pages_evicted")?,
        })
    }

    fn workload(
        &self,
        updates: &Updates,
        first_key: u64,
        key_count: u64,
        keys: KeyChoice,
        draw: u64,
    ) -> Result<Workload> {
        let spec = WorkloadSpec::sets(key_count, VALUE_BYTES, keys, updates.seed);
        Ok(Workload::new(WorkloadSpec { first_key, ..spec })?.reseeded(draw))
    }

    /// # Errors
    /// The server refuses an update.
    pub fn throughput(&self, updates: &Updates, keys: Keys, draw: u64) -> Result<Throughput> {
        let load =
            ClosedLoop { target: self.server.target.clone(), conn_count: updates.conn_count, pipeline: 1 };
        let mut client = self.server.client()?;
        let mut workload = self.workload(updates, 0, updates.key_count, keys.choice(), draw)?;
        let warm_up = Stop::after_seconds(updates.warm_up_s);
        check(&load.run(&mut workload, Recording::new(now_ns()), warm_up)?)?;
        let before = self.count(&mut client)?;
        let stop = Stop::after_seconds(updates.measured_s);
        let report = load.run(&mut workload, Recording::new(now_ns()), stop)?;
        check(&report)?;
        let after = self.count(&mut client)?;
        let info = client.info("everything")?;
        let throughput = Throughput {
            keys,
            per_second: report.replies_per_second(),
            server: after.pages_since(&before),
            disk: None,
            cpu_ns: (after.cpu_ns - before.cpu_ns) as f64 / report.replies.max(1) as f64,
            share_in_memory: number(&info, "data_pages_in_memory")? / number(&info, "data_pages")?,
        };
        eprintln!("updates, {}: {:.0} SET/s", keys.name(), throughput.per_second);
        Ok(throughput)
    }

    /// What was timed, and what the server asked of its disk meanwhile. `rate`: updates a second of what is not in memory.
    ///
    /// # Errors
    /// The server refuses an update or a save.
    pub fn latency(
        &self,
        updates: &Updates,
        case: Case,
        rate: f64,
        draw: u64,
    ) -> Result<(Latency, PageRates)> {
        let all = updates.key_count;
        let hot = HOT_KEYS.min(all / 4).max(1);
        let any = || self.workload(updates, 0, all, KeyChoice::Uniform, draw);
        let hot_ones = || self.workload(updates, 0, hot, KeyChoice::Uniform, draw);
        let (timed, per_second, mut workload, others) = match case {
            Case::Resident => {
                let others = self.workload(updates, hot, hot, KeyChoice::Uniform, draw)?;
                (Timed::Resident, HOT_PER_SECOND, hot_ones()?, Some(others))
            }
            Case::ResidentBeside => {
                let others = self.workload(updates, hot, all - hot, KeyChoice::Uniform, draw)?;
                (Timed::ResidentBeside, HOT_PER_SECOND, hot_ones()?, Some(others))
            }
            Case::OnDisk => (Timed::OnDisk, rate, any()?, None),
        };
        let begin_ns = now_ns() + seconds_to_ns(updates.warm_up_s);
        let generate = |stop: &AtomicBool| -> Result<LoadReport> {
            self.on_generator(updates)?;
            // Else what is due while others have its processor is sent late. Where pages are read for each update, those
            // others are who reads them: above them it would hold up what it times, as the disk's ruler does not.
            if case != Case::OnDisk {
                pin::raise_current_thread(50);
            }
            let stop = Stop { flag: Some(stop), ..Stop::default() };
            self.open_loop(updates, per_second, 1).run(&mut workload, Recording::new(begin_ns), stop)
        };
        let (report, (before, after, save_count)) =
            self.beside_others(updates, others, rate, |others_ended| {
                beside(generate, |ended| self.watch(updates, case, begin_ns, &|| ended() || others_ended()))
            })?;
        check(&report)?;
        let mut latency = Latency::of(timed, per_second, &report.recording, report.lateness.as_ref());
        latency.checkpoint_count = save_count;
        latency.evicted_per_second = after.a_second(&before, after.evicted - before.evicted);
        eprintln!("updates, {}: p99.9 {} us", timed.name(), latency.p999_ns / 1000);
        Ok((latency, after.pages_since(&before)))
    }

    /// Counts, and saves if it is to be, until the time is over. Returns what had been done at its begin and end, and saves.
    fn watch(
        &self,
        updates: &Updates,
        case: Case,
        begin_ns: u64,
        has_ended: &dyn Fn() -> bool,
    ) -> Result<(Count, Count, u64)> {
        let mut client = self.server.client()?;
        wait_until(begin_ns, has_ended)?;
        let before = self.count(&mut client)?;
        // A count is a request: on a busy machine its answer can come so late that nothing is left of a short time.
        let end_ns = before.at_ns + seconds_to_ns(updates.measured_s);
        let mut save_count = 0;
        while case == Case::ResidentBeside && now_ns() < end_ns {
            check_goes_on(has_ended)?;
            self.server.save(&mut client, || {})?;
            save_count += 1;
        }
        wait_until(end_ns, has_ended)?;
        Ok((before, self.count(&mut client)?, save_count))
    }

    /// Runs `work` beside a load that is not timed, if there is to be one.
    fn beside_others<T>(
        &self,
        updates: &Updates,
        others: Option<Workload>,
        rate: f64,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T>,
    ) -> Result<T> {
        let Some(mut others) = others else { return work(&|| false) };
        let load = |stop: &AtomicBool| {
            self.on_generator(updates)?;
            let stop = Stop { flag: Some(stop), ..Stop::default() };
            check(&self.open_loop(updates, rate, BURST).run(&mut others, Recording::new(now_ns()), stop)?)
        };
        beside(load, work).map(|((), worked)| worked)
    }

    fn open_loop(&self, updates: &Updates, requests_per_second: f64, burst: u64) -> OpenLoop {
        OpenLoop {
            target: self.server.target.clone(),
            conn_count: updates.conn_count,
            requests_per_second,
            burst,
            // Whoever spins starves the saver where it has the same processor.
            spin_ns: 0,
            drain_ns: 60 * NS_PER_S,
        }
    }

    fn on_generator(&self, updates: &Updates) -> Result<()> {
        updates.cpus.as_ref().map_or(Ok(()), |plan| pin::pin_current_thread(&plan.generator))
    }

    /// # Errors
    /// The server does not end.
    pub fn stop(self) -> Result<()> {
        self.server.stop_without_save()
    }
}

fn check_goes_on(has_ended: &dyn Fn() -> bool) -> Result<()> {
    match has_ended() {
        true => Err(BenchError::Failed("the load ended early".to_owned())),
        false => Ok(()),
    }
}

fn wait_until(end_ns: u64, has_ended: &dyn Fn() -> bool) -> Result<()> {
    while now_ns() < end_ns {
        check_goes_on(has_ended)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

impl Count {
    fn a_second(&self, before: &Count, count: f64) -> f64 {
        count * NS_PER_S as f64 / (self.at_ns - before.at_ns).max(1) as f64
    }

    fn pages_since(&self, before: &Count) -> PageRates {
        PageRates {
            reads: self.a_second(before, self.loaded - before.loaded),
            writes: self.a_second(before, self.written_back - before.written_back),
        }
    }
}

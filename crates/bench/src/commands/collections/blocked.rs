//! `blocked`: what clients that wait cost, and how fast they are woken.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use serde_json::{json, Value};

use super::args::Part;
use super::report::Report;
use super::setting::{wait, Setting};
use super::wakes::{Waiters, Woken};
use crate::bar::Bar;
use crate::clock::seconds_to_ns;
use crate::commands::fill;
use crate::error::{BenchError, Context, Result};
use crate::load::recording::{histogram_us, PERCENTILES};
use crate::load::{KeyChoice, Workload, WorkloadSpec};
use crate::output::{human_ns, markdown_table};
use crate::peer::{Peer, Server};
use crate::pin;
use crate::procfs;
use crate::stats::{median, median_of};

const MOST_BYTES: f64 = 2048.0;
/// One tick of the kernel's count in ten seconds.
const MOST_ADDED_CPU_PERCENT: f64 = 0.1;
const MOST_WAKE_TIMES: f64 = 1.0;
/// Of this program and of the server beside those of clients.
const OTHER_FILES: usize = 200;
const LOAD_KEYS: u64 = 10_000;
const LOAD_VALUE_BYTES: usize = 100;

/// Of a server that nobody asks for anything.
#[derive(Clone, Copy)]
struct Rest {
    rss_bytes: u64,
    cpu_percent: f64,
}

/// As the clients come, and begin to wait.
#[derive(Clone, Copy)]
struct Rests {
    without: Rest,
    idle: Rest,
    waiting: Rest,
}

struct Round {
    peer: String,
    number: usize,
    /// In the first round.
    rests: Option<Rests>,
    woken: Woken,
    load_p99_ns: u64,
}

pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let waiting = setting.args.waiting.max(1);
    make_room(waiting + OTHER_FILES)?;
    let mut rounds: Vec<Round> = Vec::new();
    for number in 0..setting.args.rounds {
        for peer in &setting.peers {
            match in_thread(|| measure(setting, peer, waiting, number)) {
                Ok(round) => rounds.push(round),
                Err(error) => report.fail(Part::Blocked, &peer.name, "clients in BLPOP", &error),
            }
        }
    }
    for round in &rounds {
        report.record(Part::Blocked, round.json(waiting));
    }
    judge(setting, &rounds, waiting, report);
    report.section("Clients that wait", &table(setting, &rounds, waiting));
    Ok(())
}

/// Of its own: it gets another priority, and may not keep it.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_| BenchError::Failed("a measuring thread panicked".to_owned()))?
}

/// For as many open files.
fn make_room(files: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files as u64) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(files as u64), maximum: limit.maximum }).context(
        || {
            format!(
                "raise the limit of open files to {files} of at most {:?}: give a smaller --waiting",
                limit.maximum
            )
        },
    )
}

fn measure(setting: &Setting, peer: &Peer, waiting: usize, number: usize) -> Result<Round> {
    let mut peer = peer.clone();
    peer.args.extend(["--maxclients".to_owned(), (waiting + OTHER_FILES).to_string()]);
    let name = format!("blocked-{number}");
    let server = setting.start(&peer, &name)?;
    let spec = |keys| WorkloadSpec::sets(LOAD_KEYS, LOAD_VALUE_BYTES, keys, setting.args.seed);
    fill::fill(&server.target, spec(KeyChoice::Once))?;
    let mut client = server.client()?;
    let rest = || (number == 0).then(|| rest(setting, &server)).transpose();
    let without = rest()?;
    let mut waiters = Waiters::connect(&server, waiting)?;
    let idle = rest()?;
    waiters.block(&server, &mut client)?;
    let rests = without.zip(idle).zip(rest()?);
    let load = Workload::new(WorkloadSpec { get_percent: 50, ..spec(KeyChoice::Uniform) })?;
    let (report, woken) =
        setting.paced(&server, load.reseeded(number as u64), |_| wake(setting, &mut waiters))?;
    setting.stop(server, &name)?;
    Ok(Round {
        peer: peer.name.clone(),
        number,
        rests: rests.map(|((without, idle), waiting)| Rests { without, idle, waiting }),
        woken,
        load_p99_ns: report.recording.histogram.value_at_percentile(99.0),
    })
}

/// Buffers of clients that have been idle for seconds are given back meanwhile.
fn rest(setting: &Setting, server: &Server) -> Result<Rest> {
    // Threads that came with the clients are put in their place.
    server.pin();
    let before_ns = server.cpu_time_ns();
    let idle_ns = seconds_to_ns(setting.args.idle);
    wait(idle_ns, &|| false)?;
    let cpu_ns = server.cpu_time_ns() - before_ns;
    Ok(Rest {
        rss_bytes: procfs::rss_bytes(server.pid()),
        cpu_percent: 100.0 * cpu_ns as f64 / idle_ns.max(1) as f64,
    })
}

/// Above the saver, which may have the same core, as the load is.
fn wake(setting: &Setting, waiters: &mut Waiters) -> Result<Woken> {
    pin::raise_current_thread(50);
    waiters.wake(setting.args.wake_rate, setting.args.idle)
}

fn grown_bytes(before: Rest, after: Rest) -> f64 {
    after.rss_bytes as f64 - before.rss_bytes as f64
}

impl Round {
    /// With its connection.
    fn bytes_each(&self, waiting: usize) -> Option<f64> {
        self.rests.map(|rests| grown_bytes(rests.without, rests.waiting) / waiting as f64)
    }

    fn bytes_each_beyond_idle(&self, waiting: usize) -> Option<f64> {
        self.rests.map(|rests| grown_bytes(rests.idle, rests.waiting) / waiting as f64)
    }

    fn wake_ns(&self, percentile: f64) -> f64 {
        self.woken.recording.histogram.value_at_percentile(percentile) as f64
    }

    fn json(&self, waiting: usize) -> Value {
        let rest = |rest: Rest| json!({ "rss_bytes": rest.rss_bytes, "cpu_percent": rest.cpu_percent });
        json!({
            "peer": self.peer, "round": self.number + 1, "clients": waiting,
            "without": self.rests.map(|rests| rest(rests.without)), "idle": self.rests.map(|rests| rest(rests.idle)),
            "waiting": self.rests.map(|rests| rest(rests.waiting)), "bytes_each": self.bytes_each(waiting),
            "bytes_each_beyond_idle": self.bytes_each_beyond_idle(waiting), "wake_us": histogram_us(&self.woken.recording.histogram),
            "sent_late_max_us": self.woken.sent_late_max_ns as f64 / 1e3, "load_p99_us": self.load_p99_ns as f64 / 1e3,
        })
    }
}

fn wake_ns(rounds: &[Round], peer: &str, percentile: f64) -> Option<f64> {
    median_of(rounds.iter().filter(|round| round.peer == peer).map(|round| round.wake_ns(percentile)))
}

fn first<'a>(rounds: &'a [Round], peer: &str) -> Option<&'a Round> {
    rounds.iter().find(|round| round.peer == peer && round.rests.is_some())
}

fn judge(setting: &Setting, rounds: &[Round], waiting: usize, report: &mut Report) {
    let Some(judged) = setting.judged() else { return };
    let own = first(rounds, judged);
    let bytes = |of: fn(&Round, usize) -> Option<f64>| own.and_then(|round| of(round, waiting));
    report.bar(Bar::at_most("a client in BLPOP, all it has", MOST_BYTES, " B", bytes(Round::bytes_each)));
    let beyond = bytes(Round::bytes_each_beyond_idle);
    report.bar(Bar::at_most("a client in BLPOP, beyond an idle one", MOST_BYTES, " B", beyond));
    let rests = own.and_then(|round| round.rests);
    let added = rests.map(|rests| rests.waiting.cpu_percent - rests.idle.cpu_percent);
    let what = format!("CPU of {waiting} clients in BLPOP, beyond as many idle ones, of a core");
    report.bar(Bar::at_most(what, MOST_ADDED_CPU_PERCENT, " %", added));
    let p99 = |peer: &str| wake_ns(rounds, peer, 99.0);
    let times = p99(judged).zip(p99(setting.base())).map(|(own, base)| own / base.max(1.0));
    let what = format!("wake-up under load, p99, times that of {}", setting.base());
    report.bar(Bar::at_most(what, MOST_WAKE_TIMES, " x", times));
}

fn table(setting: &Setting, rounds: &[Round], waiting: usize) -> String {
    let mut header = vec!["medians"];
    header.extend(setting.peers.iter().map(|peer| peer.name.as_str()));
    let row = |name: &str, cell: &dyn Fn(&str) -> Option<String>| {
        let cells = setting.peers.iter().map(|peer| cell(&peer.name).unwrap_or_else(|| "n/a".to_owned()));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let bytes = |peer: &str, of: fn(&Round, usize) -> Option<f64>| {
        of(first(rounds, peer)?, waiting).map(|bytes| format!("{bytes:.0} B"))
    };
    let percent = |peer: &str, of: fn(Rests) -> Rest| {
        first(rounds, peer)?.rests.map(|rests| format!("{:.2} %", of(rests).cpu_percent))
    };
    let mut rows = vec![
        row("memory of each, with its connection", &|peer| bytes(peer, Round::bytes_each)),
        row("memory of each, beyond an idle one", &|peer| bytes(peer, Round::bytes_each_beyond_idle)),
        row("CPU, no clients", &|peer| percent(peer, |rests| rests.without)),
        row("CPU, all idle", &|peer| percent(peer, |rests| rests.idle)),
        row("CPU, all waiting", &|peer| percent(peer, |rests| rests.waiting)),
    ];
    for (name, percentile) in PERCENTILES.into_iter().chain([("worst", 100.0)]) {
        rows.push(row(&format!("wake-up {name}"), &|peer| wake_ns(rounds, peer, percentile).map(human_ns)));
    }
    rows.push(row("p99 of the load beside", &|peer| {
        let own = rounds.iter().filter(|round| round.peer == peer);
        let p99: Vec<f64> = own.map(|round| round.load_p99_ns as f64).collect();
        (!p99.is_empty()).then(|| human_ns(median(&p99)))
    }));
    let late = rounds.iter().map(|round| round.woken.sent_late_max_ns).max().unwrap_or(0);
    format!(
        "{waiting} clients in BLPOP, each for a key of its own. Memory is the resident set's growth when they come and begin \
         to wait; CPU is of a core, over {} s. Then {} pushes a second wake random ones, beside {} GET and SET a second: from \
         the time when each push was due until its client has the item. Pushes were at most {} late.\n\n{}",
        setting.args.idle,
        setting.args.wake_rate,
        setting.args.rate,
        human_ns(late as f64),
        markdown_table(&header, &rows)
    )
}

//! Commands a second of one operation, of several servers in alternating rounds.

use serde_json::{json, Value};

use super::setting::Setting;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::collections::{Data, Operation, Operations};
use crate::load::recording::histogram_us;
use crate::load::values::mix;
use crate::load::{null_server, LoadReport};
use crate::output::{human_ns, markdown_table};
use crate::peer::{Peer, Server};
use crate::resp::Address;
use crate::stats::{distinct, median_of, with_range};

/// What is sent, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub operation: Operation,
    pub data: Data,
    pub pipeline: usize,
    pub clients: usize,
}

/// How many a measurement may send, before and while it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub warm_up: u64,
    pub measured: u64,
}

struct Measurement {
    case: Case,
    peer: String,
    round: usize,
    per_second: f64,
    reply_count: u64,
    /// User and system time of the server.
    cpu_ns: u64,
    latency_us: Value,
}

/// The name under which the generator's own limit is listed.
pub const CEILING: &str = "generator alone";

const NEAR_CEILING: f64 = 0.85;

#[derive(Default)]
pub struct Rates {
    all: Vec<Measurement>,
}

impl Rates {
    /// One round of one server. Returns what was sent.
    ///
    /// # Errors
    /// The server does not have the command, or what it is about.
    pub fn measure(
        &mut self,
        setting: &Setting,
        server: &Server,
        case: Case,
        round: usize,
        at_most: Option<Sent>,
    ) -> Result<Sent> {
        server.pin();
        let load = |seconds: f64, draw: u64, at_most: Option<u64>| {
            let report = load(setting, &server.target, case, seconds, [round as u64, draw], at_most)?;
            check(server, case, &report)?;
            Ok::<_, BenchError>(report)
        };
        let warm_up = load(setting.args.warm_up, 0, at_most.map(|sent| sent.warm_up))?;
        let cpu_before_ns = server.cpu_time_ns();
        let report = load(setting.args.seconds, 1, at_most.map(|sent| sent.measured))?;
        let cpu_ns = server.cpu_time_ns() - cpu_before_ns;
        self.add(case, &server.name, round, &report, cpu_ns);
        Ok(Sent { warm_up: warm_up.sent, measured: report.sent })
    }

    /// The same load on a server that does nothing: what the generator and the kernel's sockets allow.
    pub fn ceiling(&mut self, setting: &Setting, case: Case) -> Result<()> {
        let cpus = setting.cpus.as_ref().map(|plan| &plan.server[..]);
        let seconds = setting.args.seconds / 2.0;
        let report = null_server::beside(cpus, |target| load(setting, target, case, seconds, [0, 0], None))?;
        self.add(case, CEILING, 0, &report, 0);
        Ok(())
    }

    fn add(&mut self, case: Case, peer: &str, round: usize, report: &LoadReport, cpu_ns: u64) {
        let per_second = report.replies_per_second();
        eprintln!("  {}, round {}: {peer} {per_second:.0}/s", case.line(), round + 1);
        let latency_us = histogram_us(&report.recording.histogram);
        self.all.push(Measurement {
            case,
            peer: peer.to_owned(),
            round,
            per_second,
            reply_count: report.replies,
            cpu_ns,
            latency_us,
        });
    }

    pub fn records(&self) -> impl Iterator<Item = Value> + '_ {
        self.all.iter().map(Measurement::json)
    }

    pub fn cases(&self) -> Vec<Case> {
        distinct(self.all.iter().map(|one| one.case))
    }

    fn of<'a>(&'a self, case: Case, peer: &'a str) -> impl Iterator<Item = &'a Measurement> {
        self.all.iter().filter(move |one| one.case == case && one.peer == peer)
    }

    fn per_second(&self, case: Case, peer: &str) -> Option<f64> {
        median_of(self.of(case, peer).map(|one| one.per_second))
    }

    /// Of a command, over all rounds: the kernel counts ticks of some milliseconds.
    fn cpu_ns(&self, case: Case, peer: &str) -> Option<f64> {
        let (cpu_ns, reply_count) = self
            .of(case, peer)
            .fold((0, 0), |(cpu_ns, count), one| (cpu_ns + one.cpu_ns, count + one.reply_count));
        (reply_count > 0).then(|| cpu_ns as f64 / reply_count as f64)
    }

    /// Commands a second of a server over those of another.
    pub fn ratio(&self, case: Case, peer: &str, base: &str) -> Option<f64> {
        self.per_second(case, peer).zip(self.per_second(case, base)).map(|(own, base)| own / base)
    }

    /// Whether the generator could hardly have driven more: then a ratio says less than the CPU time.
    pub fn is_near_ceiling(&self, case: Case, peer: &str) -> bool {
        let both = self.per_second(case, peer).zip(self.per_second(case, CEILING));
        both.is_some_and(|(own, ceiling)| own > NEAR_CEILING * ceiling)
    }

    /// How many times as much CPU time a command takes `base`.
    fn cpu_ratio(&self, case: Case, peer: &str, base: &str) -> Option<f64> {
        self.cpu_ns(case, base).zip(self.cpu_ns(case, peer)).map(|(base, own)| base / own.max(1.0))
    }

    pub fn table(&self, setting: &Setting) -> String {
        let base = setting.base();
        let others: Vec<&Peer> = setting.peers.iter().filter(|peer| peer.name != base).collect();
        let has_ceiling = self.all.iter().any(|one| one.peer == CEILING);
        let mut header = ["command", "keys", "elements", "-P"].map(str::to_owned).to_vec();
        header.extend(setting.peers.iter().map(|peer| format!("{}/s", peer.name)));
        header.extend(others.iter().map(|peer| format!("{} / {base}", peer.name)));
        header.extend(setting.peers.iter().map(|peer| format!("{} CPU", peer.name)));
        header.extend(others.iter().map(|peer| format!("CPU, {base} / {}", peer.name)));
        header.extend(has_ceiling.then(|| format!("{CEILING}/s")));
        let or_missing = |text: Option<String>| text.unwrap_or_else(|| "n/a".to_owned());
        let times = |ratio: Option<f64>| or_missing(ratio.map(|ratio| format!("{ratio:.2} x")));
        let mut rows = Vec::new();
        for case in self.cases() {
            let mut row = vec![
                case.operation.name.to_owned(),
                case.data.key_count.to_string(),
                case.data.element_count.to_string(),
                case.pipeline.to_string(),
            ];
            for peer in &setting.peers {
                let rates: Vec<f64> = self.of(case, &peer.name).map(|one| one.per_second).collect();
                row.push(with_range(&rates, short));
            }
            row.extend(others.iter().map(|peer| times(self.ratio(case, &peer.name, base))));
            for peer in &setting.peers {
                row.push(or_missing(self.cpu_ns(case, &peer.name).map(human_ns)));
            }
            row.extend(others.iter().map(|peer| times(self.cpu_ratio(case, &peer.name, base))));
            if has_ceiling {
                row.push(or_missing(self.per_second(case, CEILING).map(short)));
            }
            rows.push(row);
        }
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        format!(
            "Commands a second, medians of {} rounds with their range. CPU: user and system time of the server a command.\n\n{}",
            setting.args.rounds,
            markdown_table(&header, &rows)
        )
    }
}

fn short(per_second: f64) -> String {
    match per_second {
        rate if rate >= 10_000.0 => format!("{:.0}k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Closed loop; latencies are from the actual send.
fn load(
    setting: &Setting,
    target: &Address,
    case: Case,
    seconds: f64,
    [round, draw]: [u64; 2],
    at_most: Option<u64>,
) -> Result<LoadReport> {
    // The same for each server, and for what takes away what another command has added.
    let seed = mix(setting.args.seed ^ mix(round * 2 + draw) ^ mix(case.pipeline as u64).rotate_left(1));
    let mut operations = Operations::new(case.operation, case.data, seed);
    let closed = ClosedLoop { target: target.clone(), conn_count: case.clients, pipeline: case.pipeline };
    closed.run_for(&mut operations, seconds, at_most)
}

fn check(server: &Server, case: Case, report: &LoadReport) -> Result<()> {
    let (name, command) = (&server.name, case.operation.name);
    match &report.tally.first_error {
        Some(error) => Err(BenchError::Failed(format!("{name} answered {command} with an error: {error}"))),
        None if report.tally.nils > 0 => Err(BenchError::Failed(format!(
            "{name} found nothing {} times of {} for {command}",
            report.tally.nils, report.replies
        ))),
        None => Ok(()),
    }
}

impl Case {
    fn line(&self) -> String {
        format!("{}, {}, -P {}", self.operation.name, self.data.line(), self.pipeline)
    }
}

impl Measurement {
    fn json(&self) -> Value {
        json!({
            "peer": self.peer, "round": self.round + 1, "command": self.case.operation.name,
            "keys": self.case.data.key_count, "elements": self.case.data.element_count,
            "pipeline": self.case.pipeline, "clients": self.case.clients, "per_second": self.per_second,
            "replies": self.reply_count, "cpu_ns": self.cpu_ns, "latency_us": self.latency_us,
        })
    }
}

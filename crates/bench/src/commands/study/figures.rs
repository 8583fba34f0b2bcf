//! The figures, drawn from what has been measured.

use super::args::Args;
use super::drawn::{Drawn, Line};
use super::figure::{Axis, Figure, Metric, ServerMetric, CUT_NOISE_NS};
use super::quoted::Quoted;
use super::records::Records;
use super::server::ServerRun;
use super::style::STOPPED;
use super::transactions;
use crate::output::{human_bytes, human_ns, thousands};
use crate::stats::distinct;
use crate::study::{Case, Outcome, Subject, Writes};

/// Ticks of a trace that are drawn, at most: a stretch of time each, of which the longest tick is shown.
const TRACE_POINTS: usize = 200;

/// Of each stretch of time the longest latency.
fn longest_of_each(trace: &[(u64, u64)], step_ns: u64, count: usize) -> Vec<Vec<f64>> {
    let mut values = vec![Vec::new(); count];
    for (at_ns, latency_ns) in trace {
        let value: &mut Vec<f64> = &mut values[(at_ns / step_ns) as usize];
        let longest = value.first().copied().unwrap_or(0.0).max(*latency_ns as f64);
        *value = vec![longest];
    }
    values
}

/// How many ticks are left out of a figure, if any.
fn stopped<'o>(outcomes: impl Iterator<Item = &'o Outcome>) -> String {
    let counts = outcomes.map(|outcome| (outcome.stopped_tick_count, outcome.tick_count));
    let (left_out, kept) = counts.fold((0, 0), |sums, counts| (sums.0 + counts.0, sums.1 + counts.1));
    let all = left_out + kept;
    match left_out {
        0 => String::new(),
        _ => format!("the machine itself stood still in {left_out} of {all} ticks, which are left out"),
    }
}

/// What there is to say, of what there may be.
fn joined<const N: usize>(remarks: [String; N]) -> String {
    remarks.into_iter().filter(|remark| !remark.is_empty()).collect::<Vec<_>>().join("; ")
}

pub struct Figures<'a> {
    pub args: &'a Args,
    pub records: &'a Records,
    pub quoted: &'a [Quoted],
}

impl Figures<'_> {
    /// `None` for those that are no lines.
    pub fn draw(&self, figure: Figure) -> Option<Drawn> {
        let drawn = match figure {
            Figure::Trace => self.trace(),
            Figure::Synthetic(axis, metric, writes) => {
                self.along(figure, (axis, writes), &self.args.subjects(), &|o| metric.of(o))
            }
            Figure::Cuts => {
                let axis = (Axis::Size, Writes::Part);
                let drawn = self.along(figure, axis, &self.args.all_subjects(), &Outcome::cut_median_ns);
                Drawn { noise: CUT_NOISE_NS, remark: joined([drawn.remark, self.quotation()]), ..drawn }
            }
            Figure::HugePages(metric) => self.huge_pages(figure, metric),
            Figure::Values => self.values(),
            Figure::Transactions(writes) => self.transactions(figure, writes),
            Figure::Server(metric) => self.server(figure, metric),
            Figure::Misses => self.misses(),
            Figure::Bars => return None,
        };
        (!drawn.is_empty()).then_some(drawn)
    }

    fn set_up(&self) -> String {
        let base = self.args.base_case(Subject::NAIVE);
        format!(
            "{} of rows of {} B, {} updates a tick of 10 ms, uniform, where nothing else is said",
            human_bytes(base.data_bytes as f64),
            base.row_len,
            thousands(base.updates_per_tick.into())
        )
    }

    fn drawn(&self, figure: Figure, x_title: &str, labels: Vec<String>, lines: Vec<Line>) -> Drawn {
        Drawn {
            figure,
            subtitle: self.set_up(),
            x_title: x_title.to_owned(),
            labels,
            lines,
            log: true,
            show: human_ns,
            noise: 0.0,
            remark: String::new(),
        }
    }

    fn along(
        &self,
        figure: Figure,
        (axis, writes): (Axis, Writes),
        subjects: &[Subject],
        metric: &dyn Fn(&Outcome) -> f64,
    ) -> Drawn {
        let cases = |subject: &Subject| self.args.along(axis, *subject, writes);
        let of = |(_, case): &(String, Case)| self.records.rounds_of(case, false).map(metric).collect();
        let line = |subject: &Subject| Line {
            name: subject.name().to_owned(),
            values: cases(subject).iter().map(of).collect(),
            expected: figure.expected(*subject),
        };
        let labels = cases(&Subject::NAIVE).into_iter().map(|(label, _)| label).collect();
        let drawn = self.drawn(figure, axis.title(), labels, subjects.iter().map(line).collect());
        let all: Vec<Case> = subjects.iter().flat_map(cases).map(|(_, case)| case).collect();
        let is_late = |case: &&Case| self.records.rounds_of(case, false).any(Outcome::is_overloaded);
        let late = distinct(all.iter().filter(is_late).map(|case| case.subject.name()));
        let late = match late.is_empty() {
            true => String::new(),
            false => format!(
                "beyond what the client can do in a tick, so that ticks are late by the ticks before them, for {}",
                late.join(", ")
            ),
        };
        let stopped = stopped(all.iter().flat_map(|case| self.records.rounds_of(case, false)));
        Drawn { remark: joined([late, stopped]), ..drawn }
    }

    fn trace(&self) -> Drawn {
        let outcomes: Vec<(Subject, &Outcome)> = self
            .args
            .all_subjects()
            .into_iter()
            .filter_map(|subject| Some((subject, self.records.of_case(&self.args.base_case(subject))?)))
            .collect();
        let ends = outcomes.iter().flat_map(|(_, outcome)| [&outcome.trace, &outcome.stopped_trace]);
        let longest_ns = ends.filter_map(|trace| Some(trace.last()?.0)).max();
        let step_ns = (longest_ns.unwrap_or(0) / TRACE_POINTS as u64).max(crate::study::TICK_NS);
        let count = (longest_ns.unwrap_or(0) / step_ns) as usize + 1;
        let line = |(subject, outcome): &(Subject, &Outcome)| {
            let values = longest_of_each(&outcome.trace, step_ns, count);
            Line { name: subject.name().to_owned(), values, expected: None }
        };
        let label = |at: usize| match at % (count / 10).max(1) {
            0 => format!("{:.1} s", (at as u64 * step_ns) as f64 / 1e9),
            _ => String::new(),
        };
        let spikes: Vec<String> = outcomes
            .iter()
            .map(|(subject, outcome)| {
                let ratio = outcome.max_ns as f64 / outcome.p50_ns.max(1) as f64;
                format!("{subject} {ratio:.0}")
            })
            .collect();
        let labels = (0..count).map(label).collect();
        let mut lines: Vec<Line> = outcomes.iter().map(line).collect();
        let left_out: Vec<(u64, u64)> =
            outcomes.iter().flat_map(|(_, outcome)| outcome.stopped_trace.iter().copied()).collect();
        let values = longest_of_each(&left_out, step_ns, count);
        lines.push(Line { name: STOPPED.to_owned(), values, expected: None });
        let drawn = self.drawn(Figure::Trace, "time from the first cut", labels, lines);
        let stopped = stopped(outcomes.iter().map(|(_, outcome)| *outcome));
        let spikes = format!("longest tick in medians: {}", spikes.join(", "));
        Drawn { remark: joined([spikes, stopped]), ..drawn }
    }

    fn huge_pages(&self, figure: Figure, metric: Metric) -> Drawn {
        let mut lines = Vec::new();
        for subject in self.args.huge_subjects() {
            for is_huge in [false, true] {
                let of = |(_, case): (String, Case)| {
                    let case = Case { huge_pages: is_huge, ..case };
                    self.records.rounds_of(&case, false).map(|outcome| metric.of(outcome)).collect()
                };
                let along = self.args.along(Axis::Size, subject, Writes::Part);
                let values = along.into_iter().map(of).collect();
                let name = if is_huge { format!("{subject}, huge pages") } else { subject.name().to_owned() };
                lines.push(Line { name, values, expected: None });
            }
        }
        let along = self.args.along(Axis::Size, Subject::Fork, Writes::Part);
        let labels = along.into_iter().map(|(label, _)| label).collect();
        let last = |name: &str| lines.iter().find(|line| line.name == name)?.last();
        let remark = match (last("fork"), last("fork, huge pages")) {
            (Some(small), Some(huge)) => format!("fork with huge pages is at x {:.2} of fork", huge / small),
            _ => String::new(),
        };
        Drawn { remark, ..self.drawn(figure, Axis::Size.title(), labels, lines) }
    }

    fn values(&self) -> Drawn {
        let subjects = self.args.value_subjects();
        let line = |subject: &Subject| Line {
            name: subject.name().to_owned(),
            values: self
                .args
                .values(*subject)
                .iter()
                .map(|(_, need)| {
                    let rounds = self.records.rounds_of(&need.case, true);
                    rounds.map(|outcome| outcome.longest_update_ns as f64).collect()
                })
                .collect(),
            expected: None,
        };
        let labels = self.args.values(Subject::EntryCow).into_iter().map(|(label, _)| label).collect();
        let lines = subjects.iter().map(line).collect();
        let drawn = self.drawn(Figure::Values, "size of a value", labels, lines);
        Drawn {
            subtitle: "64 updates a tick, each timed; epoch copies the page of 4 KB that is written"
                .to_owned(),
            ..drawn
        }
    }

    fn transactions(&self, figure: Figure, writes: Writes) -> Drawn {
        let runs = || self.records.transactions().filter(|run| run.writes == writes);
        let of = |name: &str, threads: usize| {
            let own = runs().filter(|run| run.algorithm == name && run.thread_count == threads);
            own.map(|run| run.commits_per_s).collect()
        };
        let line = |name: &str| Line {
            name: name.to_owned(),
            values: self.args.threads.iter().map(|threads| of(name, *threads)).collect(),
            expected: None,
        };
        let lines = transactions::algorithms().into_iter().map(line).collect();
        let labels = self.args.threads.iter().map(usize::to_string).collect();
        let drawn = self.drawn(figure, "threads", labels, lines);
        let best = |run: &&super::transactions::TransactionRun| run.stall_ns;
        let stall = runs().max_by_key(best);
        let remark = stall.map_or(String::new(), |run| {
            format!(
                "the longest stall was {} ({}, {} threads)",
                human_ns(run.stall_ns as f64),
                run.algorithm,
                run.thread_count
            )
        });
        Drawn {
            subtitle:
                "two-phase locking; 8 reads and 2 updates a transaction, uniform; snapshots into memory"
                    .to_owned(),
            log: false,
            show: |value| thousands(value as u64),
            remark,
            ..drawn
        }
    }

    fn server(&self, figure: Figure, metric: ServerMetric) -> Drawn {
        let points = self.args.server_points();
        let is_over_updates = metric == ServerMetric::MaxOverUpdates;
        let middle = self.args.records[self.args.records.len() / 2] * 1000;
        let is_on = |point: &&(u64, u8)| match is_over_updates {
            true => point.0 == middle,
            false => point.1 == self.args.updates[0],
        };
        let points: Vec<(u64, u8)> = points.iter().filter(is_on).copied().collect();
        let value = |run: &ServerRun| match metric {
            ServerMetric::Throughput => run.per_second,
            ServerMetric::Max | ServerMetric::MaxOverUpdates => run.max_ns as f64,
            ServerMetric::Memory => run.memory_peak_bytes as f64,
            ServerMetric::Save => run.save_ns as f64,
        };
        let mut systems: Vec<&str> = Vec::new();
        for run in self.records.server() {
            if !systems.contains(&run.system.as_str()) {
                systems.push(&run.system);
            }
        }
        let of = |system: &str, point: &(u64, u8)| {
            let is_it =
                |run: &&ServerRun| run.system == system && (run.record_count, run.update_percent) == *point;
            self.records.server().find(is_it).map(value).into_iter().collect()
        };
        let line = |system: &&str| Line {
            name: (*system).to_owned(),
            values: points.iter().map(|point| of(system, point)).collect(),
            expected: None,
        };
        let label = |point: &(u64, u8)| match is_over_updates {
            true => format!("{} %", point.1),
            false => thousands(point.0),
        };
        let x_title = if is_over_updates { "share of updates" } else { "records of 1 KB" };
        let drawn = self.drawn(
            figure,
            x_title,
            points.iter().map(label).collect(),
            systems.iter().map(line).collect(),
        );
        Drawn {
            subtitle: "GET and SET, Zipf 0.99, 50 connections; a full save. redis is redis-server, all others are this server with pages in frames".to_owned(),
            log: matches!(metric, ServerMetric::Max | ServerMetric::MaxOverUpdates),
            show: match metric {
                ServerMetric::Throughput => |value| thousands(value as u64),
                ServerMetric::Memory => human_bytes,
                _ => human_ns,
            },
            ..drawn
        }
    }

    fn misses(&self) -> Drawn {
        let subjects = self.args.subjects();
        let line = |subject: &Subject| Line {
            name: subject.name().to_owned(),
            values: vec![self
                .records
                .misses_of(*subject)
                .map(|run| run.misses_per_update)
                .into_iter()
                .collect()],
            expected: None,
        };
        let counter = self.records.misses().next().map_or(String::new(), |run| run.counter.clone());
        let lines = subjects.iter().map(line).collect();
        let drawn = self.drawn(Figure::Misses, "misses an update", vec!["last level".to_owned()], lines);
        Drawn { subtitle: counter, log: false, show: |value| format!("{value:.2}"), ..drawn }
    }

    fn quotation(&self) -> String {
        let Some(largest) = self.quoted.iter().map(|quoted| quoted.mb).max() else { return String::new() };
        let of_largest = self.quoted.iter().filter(|quoted| quoted.mb == largest);
        let named: Vec<String> =
            of_largest.map(|quoted| format!("{} {}", quoted.strategy, human_ns(quoted.fork_ns))).collect();
        let run = &self.quoted[0].run;
        format!("quoted from {run}, instructions as nanoseconds, {largest} MB: {}", named.join(", "))
    }
}

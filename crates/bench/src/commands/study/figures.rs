//! The figures, drawn from what has been measured.

use super::args::Args;
use super::drawn::{Drawn, Line};
use super::figure::{Axis, Figure, Metric, ServerMetric, CUT_NOISE_NS};
use super::quoted::Quoted;
use super::records::Records;
use super::server::ServerRun;
use super::transactions;
use crate::output::{human_bytes, human_ns, thousands};
use crate::study::{Case, Outcome, Subject};

/// Ticks of a trace that are drawn, at most: a stretch of time each, of which the longest tick is shown.
const TRACE_POINTS: usize = 200;

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
            Figure::Synthetic(axis, metric) => {
                self.along(figure, axis, &self.args.subjects(), &|o| metric.of(o))
            }
            Figure::Cuts => {
                let drawn =
                    self.along(figure, Axis::Size, &self.args.all_subjects(), &Outcome::cut_median_ns);
                Drawn { noise: CUT_NOISE_NS, remark: self.quotation(), ..drawn }
            }
            Figure::HugePages(metric) => self.huge_pages(figure, metric),
            Figure::Values => self.values(),
            Figure::Transactions => self.transactions(),
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
        axis: Axis,
        subjects: &[Subject],
        metric: &dyn Fn(&Outcome) -> f64,
    ) -> Drawn {
        let of = |(_, case): &(String, Case)| self.records.of_case(case).map(metric);
        let line = |subject: &Subject| Line {
            name: subject.name().to_owned(),
            values: self.args.along(axis, *subject).iter().map(of).collect(),
            expected: figure.expected(*subject),
        };
        let labels = self.args.along(axis, Subject::NAIVE).into_iter().map(|(label, _)| label).collect();
        let drawn = self.drawn(figure, axis.title(), labels, subjects.iter().map(line).collect());
        let late = subjects.iter().filter(|subject| {
            let cases = self.args.along(axis, **subject);
            cases.iter().filter_map(|(_, case)| self.records.of_case(case)).any(Outcome::is_overloaded)
        });
        let late: Vec<_> = late.map(|subject| subject.name()).collect();
        let remark = match late.is_empty() {
            true => String::new(),
            false => format!(
                "beyond what the client can do in a tick, so that ticks are late by the ticks before them, for {}",
                late.join(", ")
            ),
        };
        Drawn { remark, ..drawn }
    }

    fn trace(&self) -> Drawn {
        let outcomes: Vec<(Subject, &Outcome)> = self
            .args
            .all_subjects()
            .into_iter()
            .filter_map(|subject| Some((subject, self.records.of_case(&self.args.base_case(subject))?)))
            .collect();
        let longest_ns = outcomes.iter().filter_map(|(_, outcome)| Some(outcome.trace.last()?.0)).max();
        let step_ns = (longest_ns.unwrap_or(0) / TRACE_POINTS as u64).max(crate::study::TICK_NS);
        let count = (longest_ns.unwrap_or(0) / step_ns) as usize + 1;
        let line = |(subject, outcome): &(Subject, &Outcome)| {
            let mut values: Vec<Option<f64>> = vec![None; count];
            for (at_ns, latency_ns) in &outcome.trace {
                let value = &mut values[(at_ns / step_ns) as usize];
                *value = Some(value.unwrap_or(0.0).max(*latency_ns as f64));
            }
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
        let lines = outcomes.iter().map(line).collect();
        let drawn = self.drawn(Figure::Trace, "time from the first cut", labels, lines);
        Drawn { remark: format!("longest tick in medians: {}", spikes.join(", ")), ..drawn }
    }

    fn huge_pages(&self, figure: Figure, metric: Metric) -> Drawn {
        let mut lines = Vec::new();
        for subject in self.args.huge_subjects() {
            for is_huge in [false, true] {
                let of = |(_, case): (String, Case)| {
                    self.records
                        .of_case(&Case { huge_pages: is_huge, ..case })
                        .map(|outcome| metric.of(outcome))
                };
                let values = self.args.along(Axis::Size, subject).into_iter().map(of).collect();
                let name = if is_huge { format!("{subject}, huge pages") } else { subject.name().to_owned() };
                lines.push(Line { name, values, expected: None });
            }
        }
        let labels = self.args.along(Axis::Size, Subject::Fork).into_iter().map(|(label, _)| label).collect();
        let last = |name: &str| {
            let line = lines.iter().find(|line| line.name == name)?;
            line.values.iter().rev().find_map(|value| *value)
        };
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
                .map(|(_, need)| Some(self.records.outcome(need)?.longest_update_ns as f64))
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

    fn transactions(&self) -> Drawn {
        let of = |name: &str, threads: usize| {
            let mut runs = self.records.transactions();
            runs.find(|run| run.algorithm == name && run.thread_count == threads).map(|run| run.commits_per_s)
        };
        let line = |name: &str| Line {
            name: name.to_owned(),
            values: self.args.threads.iter().map(|threads| of(name, *threads)).collect(),
            expected: None,
        };
        let lines = transactions::algorithms().into_iter().map(line).collect();
        let labels = self.args.threads.iter().map(usize::to_string).collect();
        let drawn = self.drawn(Figure::Transactions, "threads", labels, lines);
        let best = |run: &&super::transactions::TransactionRun| run.stall_ns;
        let stall = self.records.transactions().max_by_key(best);
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
            self.records.server().find(is_it).map(value)
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
            values: vec![self.records.misses_of(*subject).map(|run| run.misses_per_update)],
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

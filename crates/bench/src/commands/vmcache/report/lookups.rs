//! Random lookups, and the raw reader beside them.

use serde_json::{json, Value};

use super::shared::{costs, distinct, place, second_labels, seconds, series};
use crate::chart::{self, Chart, Series};
use crate::commands::vmcache::host::Outcome;
use crate::commands::vmcache::plan::{Measured, Phase, Rates};
use crate::commands::vmcache::raw::Reader;
use crate::kv::System;
use crate::output::{human_bytes, markdown_table, thousands};
use crate::stats::{median, with_range};

pub struct LookupRun {
    pub system: System,
    pub is_on_disk: bool,
    pub round: usize,
    pub key_count: u64,
    pub outcome: Outcome,
}

pub struct RawRun {
    pub reader: Reader,
    pub round: usize,
    pub per_second: f64,
}

#[derive(Default)]
pub struct LookupRuns {
    pub runs: Vec<LookupRun>,
    pub raw: Vec<RawRun>,
}

impl LookupRun {
    fn rates(&self) -> &[(Phase, Rates)] {
        match &self.outcome.answer.measured {
            Measured::Lookups(rates) => rates,
            Measured::Tpcc(_) => &[],
        }
    }
}

impl LookupRuns {
    fn placed(&self, is_on_disk: bool) -> impl Iterator<Item = &LookupRun> + Clone {
        self.runs.iter().filter(move |run| run.is_on_disk == is_on_disk)
    }

    fn of(&self, system: System, is_on_disk: bool) -> impl Iterator<Item = &LookupRun> + Clone {
        self.placed(is_on_disk).filter(move |run| run.system == system)
    }

    /// Of each round.
    fn values(&self, system: System, is_on_disk: bool, phase: Phase, of: impl Fn(&Rates) -> f64) -> Vec<f64> {
        let rates = self.of(system, is_on_disk).flat_map(LookupRun::rates);
        rates.filter(|(one, _)| *one == phase).map(|(_, rates)| of(rates)).collect()
    }

    fn phases(&self, is_on_disk: bool) -> Vec<Phase> {
        distinct(self.placed(is_on_disk).flat_map(LookupRun::rates).map(|(phase, _)| *phase))
    }

    fn systems(&self, is_on_disk: bool) -> Vec<System> {
        distinct(self.placed(is_on_disk).map(|run| run.system))
    }

    fn raw_rates(&self, reader: Reader) -> Vec<f64> {
        self.raw.iter().filter(|run| run.reader == reader).map(|run| run.per_second).collect()
    }

    /// The best that the disk gave with so many reads under way.
    fn raw_per_second(&self, depth: usize) -> Option<f64> {
        let readers = Reader::ALL.into_iter().filter(|reader| reader.depth() == depth);
        let rates = readers.map(|reader| self.raw_rates(reader)).filter(|rates| !rates.is_empty());
        rates.map(|rates| median(&rates)).reduce(f64::max)
    }

    /// The table, none if nothing was measured there.
    pub fn table(&self, is_on_disk: bool) -> Option<String> {
        self.placed(is_on_disk).next()?;
        let mut rows = Vec::new();
        for phase in self.phases(is_on_disk) {
            for system in self.systems(is_on_disk) {
                rows.push(self.row(system, is_on_disk, phase));
            }
        }
        let head = [
            "threads",
            "keys a call",
            "system",
            "lookups/s",
            "of the raw reader",
            "read a lookup",
            "on disk",
            "most memory",
            "load",
        ];
        let keys = self.placed(is_on_disk).map(|run| run.key_count).max().unwrap_or(0);
        Some(format!(
            "## Random lookups, {}\n\n{} keys of 8 B, values of 120 B, uniform. Medians over rounds, range in parentheses. *Of \
             the raw reader*: one thread against the raw reader with as many reads under way as keys in a call.\n\n{}\n",
            place(is_on_disk),
            thousands(keys),
            markdown_table(&head, &rows)
        ))
    }

    fn row(&self, system: System, is_on_disk: bool, phase: Phase) -> Vec<String> {
        let rates = self.values(system, is_on_disk, phase, |rates| rates.per_second);
        let read = |rates: &Rates| rates.disk.read_bytes as f64 / rates.count.max(1) as f64;
        let raw = self.raw_per_second(phase.batch).filter(|_| is_on_disk && phase.thread_count == 1);
        let share = raw.map_or(String::new(), |raw| format!("{:.2}", median(&rates) / raw));
        let mut row = vec![
            phase.thread_count.to_string(),
            phase.batch.to_string(),
            system.name().to_owned(),
            with_range(&rates, |rate| thousands(rate as u64)),
            share,
            human_bytes(median(&self.values(system, is_on_disk, phase, read))),
        ];
        row.extend(costs(self.of(system, is_on_disk).map(|run| &run.outcome)));
        row
    }

    /// Out of memory over time, as in the paper's Figure 7; in memory over threads, as in its Figure 6.
    pub fn chart(&self, is_on_disk: bool) -> String {
        let phases = self.phases(is_on_disk);
        let batch = phases.iter().map(|phase| phase.batch).max().unwrap_or(1);
        let of_batch: Vec<Phase> = phases.into_iter().filter(|phase| phase.batch == batch).collect();
        let points = |system: System| match (is_on_disk, of_batch.first()) {
            (true, Some(&phase)) => self.over_time(system, phase),
            _ => self.over_threads(system, &of_batch),
        };
        let lines: Vec<Series> =
            self.systems(is_on_disk).into_iter().map(|system| series(system, points(system))).collect();
        let over_threads =
            || of_batch.iter().map(|phase| (phase.thread_count as f64, phase.thread_count.to_string()));
        chart::draw(&Chart {
            title: format!("Random lookups, {}", place(is_on_disk)),
            subtitle: match is_on_disk {
                true => format!("lookups a second, {batch} keys a call, the last round"),
                false => format!("lookups a second, {batch} keys a call, medians over rounds"),
            },
            x_title: if is_on_disk { "seconds" } else { "threads" }.to_owned(),
            x_labels: if is_on_disk { second_labels(&lines) } else { over_threads().collect() },
            log: is_on_disk,
            show: |value| thousands(value as u64),
            series: lines,
            footer: String::new(),
        })
    }

    fn over_threads(&self, system: System, phases: &[Phase]) -> Vec<(f64, f64)> {
        let point = |phase: &Phase| {
            let rates = self.values(system, false, *phase, |rates| rates.per_second);
            (phase.thread_count as f64, median(&rates))
        };
        phases.iter().map(point).collect()
    }

    fn over_time(&self, system: System, phase: Phase) -> Vec<(f64, f64)> {
        let last = self.of(system, true).last().map_or(&[][..], LookupRun::rates);
        let rates = last.iter().find(|(one, _)| *one == phase);
        rates.map_or(Vec::new(), |(_, rates)| seconds(&rates.over_time))
    }

    pub fn raw_table(&self) -> Option<String> {
        self.raw.first()?;
        let row = |reader: Reader| {
            let rates = self.raw_rates(reader);
            let bandwidth = human_bytes(median(&rates) * 4096.0);
            vec![reader.name(), with_range(&rates, |rate| thousands(rate as u64)), format!("{bandwidth}/s")]
        };
        let rows: Vec<_> = Reader::ALL.into_iter().map(row).collect();
        Some(format!("## Raw reader\n\n{}\n", markdown_table(&["reader", "reads/s", "bytes"], &rows)))
    }

    pub fn records(&self) -> Vec<Value> {
        let mut records = Vec::new();
        for run in &self.runs {
            for (phase, rates) in run.rates() {
                records.push(json!({
                    "part": "lookups", "system": run.system, "is_on_disk": run.is_on_disk, "round": run.round + 1,
                    "keys": run.key_count, "threads": phase.thread_count, "batch": phase.batch,
                    "per_second": rates.per_second, "over_time": rates.over_time, "count": rates.count,
                    "disk": rates.disk, "load_s": run.outcome.answer.load_s,
                    "disk_bytes": run.outcome.answer.disk_bytes,
                    "memory_peak_bytes": run.outcome.memory_peak_bytes,
                }));
            }
        }
        records.extend(self.raw.iter().map(|run| {
            json!({
                "part": "raw", "reader": run.reader.name(), "depth": run.reader.depth(), "round": run.round + 1,
                "per_second": run.per_second,
            })
        }));
        records
    }
}

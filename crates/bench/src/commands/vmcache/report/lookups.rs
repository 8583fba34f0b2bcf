//! Random lookups, and the raw reader beside them.

use serde_json::{json, Value};

use super::shared::{costs, second_labels, seconds, series};
use crate::chart::{self, Chart, Series};
use crate::commands::vmcache::host::Outcome;
use crate::commands::vmcache::plan::{Measured, Phase, Place, Rates};
use crate::commands::vmcache::raw::Reader;
use crate::kv::System;
use crate::output::{human_bytes, markdown_table, thousands};
use crate::stats::{distinct, median, with_range};

pub struct LookupRun {
    pub system: System,
    pub place: Place,
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
            Measured::Eviction(_) | Measured::Tpcc(_) => &[],
        }
    }
}

impl LookupRuns {
    fn placed(&self, place: Place) -> impl Iterator<Item = &LookupRun> + Clone {
        self.runs.iter().filter(move |run| run.place == place)
    }

    fn of(&self, system: System, place: Place) -> impl Iterator<Item = &LookupRun> + Clone {
        self.placed(place).filter(move |run| run.system == system)
    }

    /// Of each round.
    fn values(&self, system: System, place: Place, phase: Phase, of: impl Fn(&Rates) -> f64) -> Vec<f64> {
        let rates = self.of(system, place).flat_map(LookupRun::rates);
        rates.filter(|(one, _)| *one == phase).map(|(_, rates)| of(rates)).collect()
    }

    fn phases(&self, place: Place) -> Vec<Phase> {
        distinct(self.placed(place).flat_map(LookupRun::rates).map(|(phase, _)| *phase))
    }

    fn systems(&self, place: Place) -> Vec<System> {
        distinct(self.placed(place).map(|run| run.system))
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
    pub fn table(&self, place: Place) -> Option<String> {
        self.placed(place).next()?;
        let mut rows = Vec::new();
        for phase in self.phases(place) {
            let has_phase = |system: &System| !self.values(*system, place, phase, |_| 0.0).is_empty();
            rows.extend(self.systems(place).into_iter().filter(has_phase).map(|s| self.row(s, place, phase)));
        }
        let head = [
            "threads",
            "keys a call",
            "system",
            "lookups/s",
            "of the raw reader",
            "of a store each",
            "read a lookup",
            "on disk",
            "most memory",
            "load",
        ];
        let keys = self.placed(place).map(|run| run.key_count).max().unwrap_or(0);
        Some(format!(
            "## Random lookups, {}\n\n{} keys of 8 B, values of 120 B, uniform. Medians over rounds, range in parentheses. *Of \
             the raw reader*: one thread against the raw reader with as many reads under way as keys in a call. *Of a store \
             each*: several threads in one store against as many in stores of their own, each with its share of the rows.\n\n{}\n",
            place.name(),
            thousands(keys),
            markdown_table(&head, &rows)
        ))
    }

    fn row(&self, system: System, place: Place, phase: Phase) -> Vec<String> {
        let rates = self.values(system, place, phase, |rates| rates.per_second);
        let read = |rates: &Rates| rates.disk.read_bytes as f64 / rates.count.max(1) as f64;
        let is_beside_raw = place == Place::OutOfMemory && phase.thread_count == 1;
        let raw = self.raw_per_second(phase.batch).filter(|_| is_beside_raw);
        let share = raw.map_or(String::new(), |raw| format!("{:.2}", median(&rates) / raw));
        let apart = Phase { is_apart: true, ..phase };
        let of_apart = self.values(system, place, apart, |rates| rates.per_second);
        let of_apart = match phase.is_apart || of_apart.is_empty() {
            true => String::new(),
            false => format!("{:.3}", median(&rates) / median(&of_apart)),
        };
        let mut row = vec![
            phase.thread_count.to_string(),
            phase.batch.to_string(),
            match phase.is_apart {
                true => format!("{}, a store each", system.name()),
                false => system.name().to_owned(),
            },
            with_range(&rates, |rate| thousands(rate as u64)),
            share,
            of_apart,
            human_bytes(median(&self.values(system, place, phase, read))),
        ];
        row.extend(costs(self.of(system, place).map(|run| &run.outcome)));
        row
    }

    /// Out of memory over time, as in the paper's Figure 7; in memory over threads, as in its Figure 6. A chart for each size
    /// of calls, which it comes with.
    pub fn charts(&self, place: Place) -> Vec<(usize, String)> {
        let phases: Vec<Phase> = self.phases(place).into_iter().filter(|phase| !phase.is_apart).collect();
        let batches = distinct(phases.iter().map(|phase| phase.batch));
        let of = |batch: usize| phases.iter().copied().filter(|phase| phase.batch == batch).collect();
        batches.into_iter().map(|batch| (batch, self.chart(place, batch, of(batch)))).collect()
    }

    fn chart(&self, place: Place, batch: usize, phases: Vec<Phase>) -> String {
        let is_over_time = place.is_over_time();
        let points = |system: System| match (is_over_time, phases.first()) {
            (true, Some(&phase)) => self.over_time(system, phase),
            _ => self.over_threads(system, &phases),
        };
        let lines: Vec<Series> =
            self.systems(place).into_iter().map(|system| series(system, points(system))).collect();
        let over_threads =
            || phases.iter().map(|phase| (phase.thread_count as f64, phase.thread_count.to_string()));
        chart::draw(&Chart {
            title: format!("Random lookups, {}", place.name()),
            subtitle: match is_over_time {
                true => format!("lookups a second, {batch} keys a call, warm-up included, the last round"),
                false => format!("lookups a second, {batch} keys a call, medians over rounds"),
            },
            x_title: if is_over_time { "seconds" } else { "threads" }.to_owned(),
            x_labels: if is_over_time { second_labels(&lines) } else { over_threads().collect() },
            log: is_over_time,
            show: |value| thousands(value as u64),
            series: lines,
            footer: String::new(),
        })
    }

    fn over_threads(&self, system: System, phases: &[Phase]) -> Vec<(f64, f64)> {
        let point = |phase: &Phase| {
            let rates = self.values(system, Place::InMemory, *phase, |rates| rates.per_second);
            (phase.thread_count as f64, median(&rates))
        };
        phases.iter().map(point).collect()
    }

    fn over_time(&self, system: System, phase: Phase) -> Vec<(f64, f64)> {
        let last = self.of(system, Place::OutOfMemory).last().map_or(&[][..], LookupRun::rates);
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
                    "part": "lookups", "system": run.system, "place": run.place, "round": run.round + 1,
                    "keys": run.key_count, "threads": phase.thread_count, "batch": phase.batch,
                    "is_apart": phase.is_apart,
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

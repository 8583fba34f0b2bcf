//! TPC-C.

use serde_json::{json, Value};

use super::shared::{costs, second_labels, seconds, series};
use crate::chart::{self, Chart, Series};
use crate::commands::vmcache::host::Outcome;
use crate::commands::vmcache::plan::{Measured, MixRun, Place};
use crate::kv::System;
use crate::output::{human_bytes, human_ns, markdown_table, thousands};
use crate::stats::{distinct, median, with_range};
use crate::tpcc::{KindReport, Scale};

pub struct TpccRun {
    pub system: System,
    pub place: Place,
    pub round: usize,
    pub scale: Scale,
    pub outcome: Outcome,
}

#[derive(Default)]
pub struct TpccRuns {
    pub runs: Vec<TpccRun>,
}

/// What one row of the table is about.
#[derive(Clone, Copy, PartialEq)]
struct Case {
    place: Place,
    warehouses: u32,
    thread_count: usize,
    system: System,
}

impl TpccRun {
    fn mixes(&self) -> &[MixRun] {
        match &self.outcome.answer.measured {
            Measured::Tpcc(mixes) => mixes,
            Measured::Lookups(_) | Measured::Eviction(_) => &[],
        }
    }

    fn case(&self, mix: &MixRun) -> Case {
        let TpccRun { place, system, scale, .. } = *self;
        Case { place, warehouses: scale.warehouses, thread_count: mix.thread_count, system }
    }
}

impl TpccRuns {
    fn placed(&self, place: Place) -> impl Iterator<Item = (&TpccRun, &MixRun)> + Clone {
        let runs = self.runs.iter().filter(move |run| run.place == place);
        runs.flat_map(|run| run.mixes().iter().map(move |mix| (run, mix)))
    }

    fn of(&self, case: Case) -> impl Iterator<Item = (&TpccRun, &MixRun)> + Clone {
        self.placed(case.place).filter(move |(run, mix)| run.case(mix) == case)
    }

    fn values(&self, case: Case, of: impl Fn(&MixRun) -> f64) -> Vec<f64> {
        self.of(case).map(|(_, mix)| of(mix)).collect()
    }

    /// Those of the same data together.
    fn cases(&self, place: Place) -> Vec<Case> {
        let mut cases = distinct(self.placed(place).map(|(run, mix)| run.case(mix)));
        cases.sort_by_key(|case| (case.warehouses, case.thread_count));
        cases
    }

    /// The tables, none if nothing was measured there.
    pub fn table(&self, place: Place) -> Option<String> {
        let cases = self.cases(place);
        cases.first()?;
        let scale = self.placed(place).map(|(run, _)| run.scale).next()?;
        let rows: Vec<_> = cases.iter().map(|case| self.row(*case)).collect();
        let head = [
            "warehouses",
            "threads",
            "system",
            "transactions/s",
            "New-Orders/s",
            "p50 New-Order",
            "p99 New-Order",
            "begun anew",
            "written a transaction",
            "read a transaction",
            "on disk",
            "most memory",
            "load",
        ];
        let note = match scale == Scale::standard(scale.warehouses) {
            true => "",
            false => {
                " **The tables are smaller than the standard's: nothing can be compared with these figures.**"
            }
        };
        Some(format!(
            "## TPC-C, {}\n\nAll five transactions in the standard mix, no think times, a home warehouse drawn for each. Medians \
             over rounds, range in parentheses. After each run the consistency conditions held.{note}\n\n{}\n{}\n",
            place.name(),
            markdown_table(&head, &rows),
            self.kinds_table(&cases)
        ))
    }

    fn row(&self, case: Case) -> Vec<String> {
        let new_orders = |mix: &MixRun| {
            let orders = mix.report.kinds.first().map_or(0, |kind| kind.count - kind.rollback_count);
            mix.report.per_second * orders as f64 / mix.report.count().max(1) as f64
        };
        let latency = |of: fn(&KindReport) -> u64| {
            let values =
                self.values(case, |mix| mix.report.kinds.first().map_or(0.0, |kind| of(kind) as f64));
            human_ns(median(&values))
        };
        let a_transaction = |of: fn(&MixRun) -> u64| {
            human_bytes(median(&self.values(case, |mix| of(mix) as f64 / mix.report.count().max(1) as f64)))
        };
        let retries = |mix: &MixRun| mix.report.retry_count as f64 / mix.report.count().max(1) as f64;
        let mut row = vec![
            case.warehouses.to_string(),
            case.thread_count.to_string(),
            case.system.name().to_owned(),
            with_range(&self.values(case, |mix| mix.report.per_second), |rate| thousands(rate as u64)),
            thousands(median(&self.values(case, new_orders)) as u64),
            latency(|kind| kind.p50_ns),
            latency(|kind| kind.p99_ns),
            format!("{:.2} %", 100.0 * median(&self.values(case, retries))),
            a_transaction(|mix| mix.disk.written_bytes),
            a_transaction(|mix| mix.disk.read_bytes),
        ];
        row.extend(costs(self.of(case).map(|(run, _)| &run.outcome)));
        row
    }

    /// Each transaction of each case, of the last round.
    fn kinds_table(&self, cases: &[Case]) -> String {
        let mut rows = Vec::new();
        for case in cases {
            let Some((_, mix)) = self.of(*case).last() else { continue };
            for kind in &mix.report.kinds {
                rows.push(vec![
                    case.warehouses.to_string(),
                    case.thread_count.to_string(),
                    case.system.name().to_owned(),
                    kind.kind.name().to_owned(),
                    thousands(kind.count),
                    thousands(kind.rollback_count),
                    human_ns(kind.p50_ns as f64),
                    human_ns(kind.p99_ns as f64),
                    human_ns(kind.max_ns as f64),
                ]);
            }
        }
        let head = [
            "warehouses",
            "threads",
            "system",
            "transaction",
            "count",
            "rolled back",
            "p50",
            "p99",
            "longest",
        ];
        format!("Each transaction, last round:\n\n{}", markdown_table(&head, &rows))
    }

    /// Over time, as in the paper's Figure 7: one thread, the largest data.
    pub fn chart(&self, place: Place) -> String {
        let cases = self.cases(place);
        let warehouses = cases.iter().map(|case| case.warehouses).max().unwrap_or(0);
        let least_threads = cases.iter().map(|case| case.thread_count).min().unwrap_or(0);
        let shown = cases.iter().filter(|c| c.warehouses == warehouses && c.thread_count == least_threads);
        let line = |case: &Case| {
            let last = self.of(*case).last();
            series(case.system, last.map_or(Vec::new(), |(_, mix)| seconds(&mix.over_time)))
        };
        let lines: Vec<Series> = shown.map(line).collect();
        chart::draw(&Chart {
            title: format!("TPC-C, {}", place.name()),
            subtitle: format!(
                "transactions a second, {warehouses} warehouses, {least_threads} threads, warm-up included, the \
                 last round"
            ),
            x_title: "seconds".to_owned(),
            x_labels: second_labels(&lines),
            log: false,
            show: |value| thousands(value as u64),
            series: lines,
            footer: String::new(),
        })
    }

    pub fn records(&self) -> Vec<Value> {
        let record = |run: &TpccRun, mix: &MixRun| {
            json!({
                "part": "tpcc", "system": run.system, "place": run.place, "round": run.round + 1,
                "scale": run.scale, "threads": mix.thread_count, "per_second": mix.report.per_second,
                "over_time": mix.over_time, "kinds": mix.report.kinds,
                "retry_count": mix.report.retry_count, "disk": mix.disk, "load_s": run.outcome.answer.load_s,
                "disk_bytes": run.outcome.answer.disk_bytes,
                "memory_peak_bytes": run.outcome.memory_peak_bytes,
            })
        };
        self.runs.iter().flat_map(|run| run.mixes().iter().map(move |mix| record(run, mix))).collect()
    }
}

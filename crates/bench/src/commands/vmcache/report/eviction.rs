//! A thread's lookups in memory while another one's walk has pages evicted.

use serde_json::{json, Value};

use crate::commands::vmcache::host::Outcome;
use crate::commands::vmcache::plan::{Beside, First, Measured};
use crate::kv::{Evictions, System};
use crate::output::{human_ns, markdown_table, thousands};
use crate::stats::{distinct, median, with_range};

pub struct EvictionRun {
    pub system: System,
    pub round: usize,
    pub key_count: u64,
    pub hot_count: u64,
    pub outcome: Outcome,
}

#[derive(Default)]
pub struct EvictionRuns {
    pub runs: Vec<EvictionRun>,
}

impl EvictionRun {
    fn measured(&self) -> &[Beside] {
        match &self.outcome.answer.measured {
            Measured::Eviction(measured) => measured,
            Measured::Lookups(_) | Measured::Tpcc(_) => &[],
        }
    }
}

impl EvictionRuns {
    fn values<'r>(
        &'r self,
        system: System,
        first: First,
        of: impl Fn(&Beside) -> Option<f64> + 'r,
    ) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| run.system == system);
        let measured = runs.flat_map(EvictionRun::measured).filter(|beside| beside.first == first);
        measured.filter_map(of).collect()
    }

    pub fn table(&self) -> Option<String> {
        let run = self.runs.first()?;
        let mut rows = Vec::new();
        for system in distinct(self.runs.iter().map(|run| run.system)) {
            rows.extend(First::ALL.into_iter().map(|first| self.row(system, first)));
        }
        let head = [
            "system",
            "the first thread",
            "its rows or pages/s",
            "the second's lookups/s",
            "of those beside an idle one",
            "pages evicted/s",
            "pages read/s",
            "to give a page back",
        ];
        Some(format!(
            "## Lookups beside evictions\n\n{} keys of 8 B, values of 120 B, out of memory. The second thread looks {} of them up, \
             which stay in memory, 32 keys a call, on a processor of its own; the first reads a row of each page, or the same number \
             of pages a second of another file into buffers, so that nothing is evicted. Medians over rounds, range in \
             parentheses.\n\n{}\n",
            thousands(run.key_count),
            thousands(run.hot_count),
            markdown_table(&head, &rows)
        ))
    }

    fn row(&self, system: System, first: First) -> Vec<String> {
        let second = self.values(system, first, |beside| Some(beside.second_per_second));
        let idle = self.values(system, First::Idle, |beside| Some(beside.second_per_second));
        let rate = |values: &[f64]| with_range(values, |rate| thousands(rate as u64));
        let a_second = |of: fn(&Evictions) -> u64| {
            let values = self.values(system, first, |beside| {
                Some(of(beside.evictions.as_ref()?) as f64 / beside.measured_s)
            });
            rate(&values)
        };
        let give_back = self.values(system, first, |beside| {
            let evictions = beside.evictions.filter(|evictions| evictions.page_count > 0)?;
            Some(evictions.give_back_ns as f64 / evictions.page_count as f64)
        });
        vec![
            system.name().to_owned(),
            first.name().to_owned(),
            rate(&self.values(system, first, |beside| Some(beside.first_per_second))),
            rate(&second),
            format!("{:.3}", median(&second) / median(&idle)),
            a_second(|evictions| evictions.page_count),
            a_second(|evictions| evictions.loaded_page_count),
            with_range(&give_back, human_ns),
        ]
    }

    pub fn records(&self) -> Vec<Value> {
        let record = |run: &EvictionRun, beside: &Beside| {
            json!({
                "part": "eviction", "system": run.system, "round": run.round + 1, "keys": run.key_count,
                "hot_keys": run.hot_count, "first": beside.first, "first_per_second": beside.first_per_second,
                "second_per_second": beside.second_per_second, "evictions": beside.evictions,
                "measured_s": beside.measured_s, "disk": beside.disk,
                "memory_peak_bytes": run.outcome.memory_peak_bytes,
            })
        };
        self.runs
            .iter()
            .flat_map(|run| run.measured().iter().map(move |beside| record(run, beside)))
            .collect()
    }
}

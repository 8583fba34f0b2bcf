//! Tables, plots and raw results.

mod discards;
mod eviction;
mod lookups;
mod pages;
mod reads;
mod shared;
mod tpcc;
mod updates;

use serde_json::{json, Value};

use self::discards::DiscardRuns;
pub use self::eviction::EvictionRun;
use self::eviction::EvictionRuns;
use self::lookups::LookupRuns;
pub use self::lookups::{LookupRun, RawRun};
pub use self::pages::PageRun;
use self::pages::PageRuns;
use self::reads::ReadRuns;
pub use self::tpcc::TpccRun;
use self::tpcc::TpccRuns;
use self::updates::UpdateRuns;
use crate::commands::vmcache::host::Outcome;
use crate::commands::vmcache::plan::Place;
use crate::error::{BenchError, Result};
use crate::kv::System;
use crate::output::Output;
use crate::provenance::without_paths;
use crate::stats::distinct;

struct Failure {
    system: System,
    what: String,
    why: String,
}

/// All that was measured.
#[derive(Default)]
pub struct Report {
    /// For the header.
    pub notes: Vec<(String, String)>,
    pub lookups: LookupRuns,
    pub tpcc: TpccRuns,
    pub eviction: EvictionRuns,
    pub updates: UpdateRuns,
    pub pages: PageRuns,
    pub discards: DiscardRuns,
    pub reads: ReadRuns,
    failures: Vec<Failure>,
}

impl Report {
    /// The others are measured all the same.
    pub fn fail(&mut self, system: System, what: &str, place: Place, error: &BenchError) {
        eprintln!("{}: {what}: {error}", system.name());
        let what = format!("{what}, {}", place.name());
        self.failures.push(Failure { system, what, why: without_paths(&error.to_string()) });
    }

    /// # Errors
    /// A file cannot be written, or no system could be measured.
    pub fn write(&self, out: &mut Output) -> Result<()> {
        self.notes.iter().for_each(|(name, text)| out.note(name, text.clone()));
        self.settings().into_iter().for_each(|(name, text)| out.note(&name, text));
        let mut body = String::new();
        for place in Place::ALL {
            let name = place.name().replace(' ', "-");
            if let Some(table) = self.lookups.table(place) {
                body.push_str(&table);
                for (batch, chart) in self.lookups.charts(place) {
                    out.write(&format!("lookups-{name}-{batch}.svg"), chart.as_bytes())?;
                }
            }
            if let Some(table) = self.tpcc.table(place) {
                body.push_str(&table);
                out.write(&format!("tpcc-{name}.svg"), self.tpcc.chart(place).as_bytes())?;
            }
        }
        body.push_str(&self.lookups.raw_table().unwrap_or_default());
        body.push_str(&self.eviction.table().unwrap_or_default());
        body.push_str(&self.updates.tables().unwrap_or_default());
        body.push_str(&self.pages.table().unwrap_or_default());
        if let Some(table) = self.discards.table() {
            body.push_str(&table);
            out.write("discards.svg", self.discards.chart().as_bytes())?;
        }
        if let Some(table) = self.reads.table() {
            body.push_str(&table);
            out.write("reads.svg", self.reads.chart().as_bytes())?;
        }
        body.push_str(&self.failure_list());
        let records = self.records();
        out.write_json(&records)?;
        out.write_markdown(&body)?;
        match self.failures.first() {
            Some(failure) if records.len() == self.failures.len() => {
                Err(BenchError::Failed(format!("nothing was measured: {}", failure.why)))
            }
            _ => Ok(()),
        }
    }

    /// How each system was opened: sizes of caches differ from part to part.
    fn settings(&self) -> Vec<(String, String)> {
        let line = |system: System, what: &str, place: Place, outcome: &Outcome| {
            let settings = &outcome.answer.settings;
            let text =
                format!("{}; {}; durability: {}", settings.version, settings.memory, settings.durability);
            (format!("{}, {what}, {}", system.name(), place.name()), text)
        };
        let lookups =
            self.lookups.runs.iter().map(|run| line(run.system, "lookups", run.place, &run.outcome));
        let tpcc = self.tpcc.runs.iter().map(|run| line(run.system, "TPC-C", run.place, &run.outcome));
        let eviction = self.eviction.runs.iter();
        let eviction = eviction.map(|run| line(run.system, "eviction", Place::OutOfMemory, &run.outcome));
        distinct(lookups.chain(eviction).chain(tpcc))
    }

    fn failure_list(&self) -> String {
        let line =
            |failure: &Failure| format!("- {}, {}: {}\n", failure.system.name(), failure.what, failure.why);
        let lines: String = distinct(self.failures.iter().map(line)).concat();
        match lines.is_empty() {
            true => lines,
            false => format!("## What failed\n\n{lines}\n"),
        }
    }

    fn records(&self) -> Vec<Value> {
        let failure = |failure: &Failure| json!({ "part": "failure", "system": failure.system, "what": failure.what, "why": failure.why });
        let mut records = self.lookups.records();
        records.extend(self.tpcc.records());
        records.extend(self.eviction.records());
        records.extend(self.updates.records());
        records.extend(self.pages.records());
        records.extend(self.discards.records());
        records.extend(self.reads.records());
        records.extend(self.failures.iter().map(failure));
        records
    }
}

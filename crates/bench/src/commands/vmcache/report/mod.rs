//! Tables, plots and raw results.

mod lookups;
mod pages;
mod shared;
mod tpcc;

use serde_json::{json, Value};

use self::lookups::LookupRuns;
pub use self::lookups::{LookupRun, RawRun};
pub use self::pages::PageRun;
use self::pages::PageRuns;
use self::shared::{distinct, place};
pub use self::tpcc::TpccRun;
use self::tpcc::TpccRuns;
use crate::commands::vmcache::host::Outcome;
use crate::error::{BenchError, Result};
use crate::kv::System;
use crate::output::Output;
use crate::provenance::without_paths;

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
    pub pages: PageRuns,
    failures: Vec<Failure>,
}

impl Report {
    /// The others are measured all the same.
    pub fn fail(&mut self, system: System, what: &str, is_on_disk: bool, error: &BenchError) {
        eprintln!("{}: {what}: {error}", system.name());
        let what = format!("{what}, {}", place(is_on_disk));
        self.failures.push(Failure { system, what, why: without_paths(&error.to_string()) });
    }

    /// # Errors
    /// A file cannot be written, or no system could be measured.
    pub fn write(&self, out: &mut Output) -> Result<()> {
        self.notes.iter().for_each(|(name, text)| out.note(name, text.clone()));
        self.settings().into_iter().for_each(|(name, text)| out.note(&name, text));
        let mut body = String::new();
        for is_on_disk in [false, true] {
            let place = place(is_on_disk).replace(' ', "-");
            if let Some(table) = self.lookups.table(is_on_disk) {
                body.push_str(&table);
                out.write(&format!("lookups-{place}.svg"), self.lookups.chart(is_on_disk).as_bytes())?;
            }
            if let Some(table) = self.tpcc.table(is_on_disk) {
                body.push_str(&table);
                out.write(&format!("tpcc-{place}.svg"), self.tpcc.chart(is_on_disk).as_bytes())?;
            }
        }
        body.push_str(&self.lookups.raw_table().unwrap_or_default());
        body.push_str(&self.pages.table().unwrap_or_default());
        body.push_str(&self.failure_list());
        out.write_json(&self.records())?;
        out.write_markdown(&body)?;
        match self.failures.first() {
            Some(failure) if self.lookups.runs.is_empty() && self.tpcc.runs.is_empty() => {
                Err(BenchError::Failed(format!("nothing was measured: {}", failure.why)))
            }
            _ => Ok(()),
        }
    }

    /// How each system was opened: sizes of caches differ from part to part.
    fn settings(&self) -> Vec<(String, String)> {
        let line = |system: System, what: &str, is_on_disk: bool, outcome: &Outcome| {
            let settings = &outcome.answer.settings;
            let text =
                format!("{}; {}; durability: {}", settings.version, settings.memory, settings.durability);
            (format!("{}, {what}, {}", system.name(), place(is_on_disk)), text)
        };
        let lookups =
            self.lookups.runs.iter().map(|run| line(run.system, "lookups", run.is_on_disk, &run.outcome));
        let tpcc = self.tpcc.runs.iter().map(|run| line(run.system, "TPC-C", run.is_on_disk, &run.outcome));
        distinct(lookups.chain(tpcc))
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
        records.extend(self.pages.records());
        records.extend(self.failures.iter().map(failure));
        records
    }
}

//! What has been measured, part by part, and what could not be.

use serde_json::{json, Value};

use super::args::Part;
use crate::bar::{self, Bar};
use crate::error::{BenchError, Result};
use crate::output::{markdown_table, Output};
use crate::provenance::without_paths;

struct Failure {
    part: Part,
    peer: String,
    what: String,
    why: String,
}

/// What has been said at the terminal.
#[derive(Clone, Copy, Default)]
struct Said {
    bars: usize,
    sections: usize,
}

#[derive(Default)]
pub struct Report {
    said: Said,
    bars: Vec<Bar>,
    sections: Vec<String>,
    records: Vec<Value>,
    failures: Vec<Failure>,
}

impl Report {
    /// The others are measured all the same.
    pub fn fail(&mut self, part: Part, peer: &str, what: &str, error: &BenchError) {
        let why = without_paths(&error.to_string());
        eprintln!("{peer}: {what}: {why}");
        self.failures.push(Failure { part, peer: peer.to_owned(), what: what.to_owned(), why });
    }

    pub fn section(&mut self, title: &str, text: &str) {
        self.sections.push(format!("\n## {title}\n\n{text}"));
    }

    pub fn bar(&mut self, bar: Bar) {
        self.bars.push(bar);
    }

    /// A line of the raw results.
    pub fn record(&mut self, part: Part, mut value: Value) {
        value["part"] = part.name().into();
        self.records.push(value);
    }

    /// Says at the terminal what has come since the last time, and keeps all raw results so far: a run takes long.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn say(&mut self, out: &Output) -> Result<()> {
        let sections = self.sections[self.said.sections..].concat();
        eprintln!("{sections}\n{}", bar::table(&self.bars[self.said.bars..]));
        self.said = Said { bars: self.bars.len(), sections: self.sections.len() };
        if self.records.is_empty() {
            return Ok(());
        }
        out.write_json(&self.records)
    }

    /// # Errors
    /// Nothing was measured, or the files cannot be written.
    pub fn write(mut self, out: &Output) -> Result<()> {
        let has_results = !self.records.is_empty();
        self.records.extend(self.failures.iter().map(|failure| {
            json!({
                "part": "failure", "of": failure.part.name(), "peer": failure.peer, "what": failure.what, "why": failure.why,
            })
        }));
        out.write_json(&self.records)?;
        out.write_markdown(&self.text())?;
        match self.failures.first() {
            Some(failure) if !has_results => {
                Err(BenchError::Failed(format!("nothing was measured: {}: {}", failure.peer, failure.why)))
            }
            _ => Ok(()),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("## Bars\n\n{}", bar::table(&self.bars));
        text.extend(self.sections.iter().map(String::as_str));
        if !self.failures.is_empty() {
            let row = |failure: &Failure| {
                vec![failure.part.name(), failure.peer.clone(), failure.what.clone(), failure.why.clone()]
            };
            let rows: Vec<_> = self.failures.iter().map(row).collect();
            text.push_str("\n## What could not be measured\n\n");
            text.push_str(&markdown_table(&["part", "server", "what", "why"], &rows));
        }
        text
    }
}

//! Accesses to pages in memory, as in the paper's Table 2.

use serde_json::{json, Value};

use crate::commands::vmcache::pages::Way;
use crate::output::{human_bytes, markdown_table};
use crate::stats::{distinct, with_range};

pub struct PageRun {
    pub bytes: u64,
    pub round: usize,
    /// Nanoseconds of an access.
    pub measured: Vec<(Way, f64)>,
}

#[derive(Default)]
pub struct PageRuns {
    pub runs: Vec<PageRun>,
}

impl PageRuns {
    pub fn table(&self) -> Option<String> {
        self.runs.first()?;
        let sizes = distinct(self.runs.iter().map(|run| run.bytes));
        let mut head = vec!["access".to_owned()];
        head.extend(sizes.iter().map(|bytes| format!("{}, ns", human_bytes(*bytes as f64))));
        let row = |way: Way| {
            let mut row = vec![way.name().to_owned()];
            row.extend(
                sizes.iter().map(|bytes| with_range(&self.values(*bytes, way), |ns| format!("{ns:.1}"))),
            );
            row
        };
        let rows: Vec<_> = Way::WITHOUT_MODULE.into_iter().map(row).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        Some(format!(
            "## Accesses to pages in memory\n\nA random word of a random page of 4 KB, one thread. Medians over rounds, range in \
             parentheses.\n\n{}\n",
            markdown_table(&head, &rows)
        ))
    }

    fn values(&self, bytes: u64, way: Way) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| run.bytes == bytes);
        runs.flat_map(|run| &run.measured).filter(|(one, _)| *one == way).map(|(_, ns)| *ns).collect()
    }

    pub fn records(&self) -> Vec<Value> {
        let record = |run: &PageRun, way: Way, ns: f64| json!({ "part": "pages", "access": way, "bytes": run.bytes, "round": run.round + 1, "ns": ns });
        self.runs
            .iter()
            .flat_map(|run| run.measured.iter().map(move |(way, ns)| record(run, *way, *ns)))
            .collect()
    }
}

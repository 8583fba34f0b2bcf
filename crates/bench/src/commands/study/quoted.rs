//! What is quoted and not measured here: times of `fork()` by instructions, from the results of `stillframe-bench fork`.
//!
//! Of systems that cannot run here and publish figures of another load on another machine (libdbos, AnKer) nothing is quoted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Serialize;
use serde_json::Value;

use crate::output::RESULTS;
use crate::stats::median;

/// The median time of `fork()` in the parent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quoted {
    pub strategy: String,
    pub mb: u64,
    pub fork_ns: f64,
    /// The run that it is of.
    pub run: String,
}

/// Of a date at the beginning of a directory's name.
const DATE_LEN: usize = 10;

fn name_of(strategy: &str) -> String {
    match strategy {
        "default" => "fork, in instructions".to_owned(),
        "odf" => "on-demand-fork".to_owned(),
        threads => format!("async-fork, {threads} copy threads"),
    }
}

fn forks(results: &Value) -> BTreeMap<(String, u64), Vec<f64>> {
    let mut forks: BTreeMap<(String, u64), Vec<f64>> = BTreeMap::new();
    for record in results["results"].as_array().into_iter().flatten() {
        let is_fork = record["kind"] == "fork" && record["run"] == "fork";
        let (strategy, mb, ns) = (&record["strategy"], record["mb"].as_u64(), record["fork_ns"].as_f64());
        if let (true, Some(strategy), Some(mb), Some(ns)) = (is_fork, strategy.as_str(), mb, ns) {
            forks.entry((strategy.to_owned(), mb)).or_default().push(ns);
        }
    }
    forks
}

/// The raw results in a run's directory, as they were written or packed to be kept.
fn raw_results(run: &Path) -> io::Result<String> {
    let mut text = String::new();
    match File::open(run.join(RESULTS)) {
        Ok(mut plain) => plain.read_to_string(&mut text)?,
        Err(_) => GzDecoder::new(File::open(run.join(format!("{RESULTS}.gz")))?).read_to_string(&mut text)?,
    };
    Ok(text)
}

/// Of the newest run in the directory that has any.
pub fn newest(results_dir: &Path) -> Vec<Quoted> {
    let entries = std::fs::read_dir(results_dir).into_iter().flatten().flatten();
    let mut runs: Vec<_> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, _)| name.contains("fork"))
        .collect();
    // They begin with the date. Of one day the shortest name: the others are of parts.
    let day = |name: &str| name.get(..DATE_LEN).unwrap_or(name).to_owned();
    runs.sort_by_key(|(name, _)| (day(name), std::cmp::Reverse(name.len())));
    for (run, path) in runs.into_iter().rev() {
        let text = raw_results(&path).unwrap_or_default();
        let found = forks(&serde_json::from_str(&text).unwrap_or(Value::Null));
        if !found.is_empty() {
            let quoted = |((strategy, mb), ns): ((String, u64), Vec<f64>)| Quoted {
                strategy: name_of(&strategy),
                mb,
                fork_ns: median(&ns),
                run: run.clone(),
            };
            return found.into_iter().map(quoted).collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_that_are_kept_are_quoted() {
        let quoted = newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results"));
        let of = |strategy: &str| quoted.iter().find(|q| q.strategy == strategy && q.mb == 1024).unwrap();
        assert!(of("on-demand-fork").fork_ns * 20.0 < of("fork, in instructions").fork_ns);
    }
}

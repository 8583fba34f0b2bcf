//! Figure 12: transactions under two-phase locking, snapshots by the virtual algorithms beside them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillframe_transactional::driver::{self, Keys, Load};
use stillframe_transactional::{Kind, MemoryImage, Shape};

use super::args::Args;
use super::figure::Figure;
use crate::error::{BenchError, Result};
use crate::load::recording::PERCENTILES;
use crate::study::Writes;

/// The paper's data: 100 MB.
const DATA_BYTES: usize = 100 << 20;
const QUICK_DATA_BYTES: usize = 1 << 20;
const ROW_BYTES: usize = 64;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionRun {
    pub algorithm: String,
    pub thread_count: usize,
    #[serde(default)]
    pub writes: Writes,
    #[serde(default)]
    pub round: u32,
    pub commits_per_s: f64,
    /// The percentiles of all latencies, in ns, then the longest.
    pub latency_ns: Vec<u64>,
    /// The longest time without a commit while some were due.
    pub stall_ns: u64,
    pub cut_count: usize,
    pub failed_image_count: u64,
    pub store_bytes: usize,
}

/// One that is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub algorithm: &'static str,
    pub thread_count: usize,
    pub writes: Writes,
    pub round: u32,
}

impl TransactionRun {
    pub fn is(&self, planned: &Planned) -> bool {
        self.algorithm == planned.algorithm
            && self.thread_count == planned.thread_count
            && self.writes == planned.writes
            && self.round == planned.round
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Planned { algorithm, thread_count, writes, round } = self;
        let written = if *writes == Writes::Row { "whole rows" } else { "words" };
        write!(f, "transactions: {algorithm}, {thread_count} threads, {written}, round {}", round + 1)
    }
}

/// Their names, in the order of the paper; the session-prefix cut last.
pub fn algorithms() -> Vec<&'static str> {
    let mut names = Kind::ALL.map(Kind::name).to_vec();
    names.sort_by_key(|name| *name == Kind::Cpr.name());
    names
}

impl Args {
    /// How long each is measured.
    pub fn transactions_s(&self) -> f64 {
        if self.quick {
            0.2
        } else {
            self.seconds.min(2.0)
        }
    }

    /// Rounds go through everything before the next.
    pub fn transaction_runs(&self, figures: &[Figure]) -> Vec<Planned> {
        let writes = figures.iter().filter_map(|figure| match figure {
            Figure::Transactions(writes) => Some(*writes),
            _ => None,
        });
        let writes: Vec<Writes> = writes.collect();
        let mut planned = Vec::new();
        for round in 0..self.rounds {
            for &thread_count in &self.threads {
                for &writes in &writes {
                    let of = |algorithm| Planned { algorithm, thread_count, writes, round };
                    planned.extend(algorithms().into_iter().map(of));
                }
            }
        }
        planned
    }
}

/// # Errors
/// There is no algorithm of that name, or it does not take the load.
pub fn measure(args: &Args, planned: &Planned) -> Result<TransactionRun> {
    let Planned { algorithm, thread_count, writes, round } = *planned;
    let kind: Kind = algorithm.parse().map_err(|error| BenchError::failed("--algorithms", error))?;
    let seconds = args.transactions_s();
    let row_count = if args.quick { QUICK_DATA_BYTES } else { DATA_BYTES } / ROW_BYTES;
    let load = Load {
        row_count: row_count as u32,
        row_bytes: ROW_BYTES,
        thread_count,
        duration: Duration::from_secs_f64(seconds),
        update_words: match writes {
            Writes::Part => 1,
            Writes::Row => ROW_BYTES / 8,
        },
        keys: Keys::Uniform,
        // Three or four snapshots in the time, as long as they do not take longer.
        cut_every: Some(Duration::from_secs_f64(seconds / 4.0)),
        seed: args.seed.wrapping_add(u64::from(round)),
        ..Load::default()
    };
    let shape = Shape::new(load.row_count, load.row_bytes)
        .map_err(|error| BenchError::failed("the rows of Figure 12", error))?;
    let mut image = MemoryImage::new(shape);
    let report =
        driver::run(kind, &load, &mut image).map_err(|error| BenchError::failed(algorithm, error))?;
    let latencies = &report.latency_ns;
    let at = |(_, percent): &(&str, f64)| latencies.value_at_percentile(*percent);
    Ok(TransactionRun {
        algorithm: algorithm.to_owned(),
        thread_count,
        writes,
        round,
        commits_per_s: report.commits_per_s(),
        latency_ns: PERCENTILES.iter().map(at).chain([latencies.max()]).collect(),
        stall_ns: report.stall_ns,
        cut_count: report.cuts.len(),
        failed_image_count: report.failed_image_count,
        store_bytes: report.store_bytes,
    })
}

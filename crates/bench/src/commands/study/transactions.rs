//! Figure 12: transactions under two-phase locking, snapshots by the virtual algorithms beside them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillframe_transactional::driver::{self, Keys, Load};
use stillframe_transactional::{Kind, MemoryImage, Shape};

use super::args::Args;
use crate::error::{BenchError, Result};
use crate::load::recording::PERCENTILES;

/// The paper's data: 100 MB.
const DATA_BYTES: usize = 100 << 20;
const QUICK_DATA_BYTES: usize = 1 << 20;
const ROW_BYTES: usize = 64;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransactionRun {
    pub algorithm: String,
    pub thread_count: usize,
    pub commits_per_s: f64,
    /// The percentiles of all latencies, in ns, then the longest.
    pub latency_ns: Vec<u64>,
    /// The longest time without a commit while some were due.
    pub stall_ns: u64,
    pub cut_count: usize,
    pub failed_image_count: u64,
    pub store_bytes: usize,
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
}

/// # Errors
/// There is no algorithm of that name, or it does not take the load.
pub fn measure(args: &Args, algorithm: &str, thread_count: usize) -> Result<TransactionRun> {
    let kind: Kind = algorithm.parse().map_err(|error| BenchError::failed("--algorithms", error))?;
    let seconds = args.transactions_s();
    let row_count = if args.quick { QUICK_DATA_BYTES } else { DATA_BYTES } / ROW_BYTES;
    let load = Load {
        row_count: row_count as u32,
        row_bytes: ROW_BYTES,
        thread_count,
        duration: Duration::from_secs_f64(seconds),
        keys: Keys::Uniform,
        // Three or four snapshots in the time, as long as they do not take longer.
        cut_every: Some(Duration::from_secs_f64(seconds / 4.0)),
        seed: args.seed,
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
        commits_per_s: report.commits_per_s(),
        latency_ns: PERCENTILES.iter().map(at).chain([latencies.max()]).collect(),
        stall_ns: report.stall_ns,
        cut_count: report.cuts.len(),
        failed_image_count: report.failed_image_count,
        store_bytes: report.store_bytes,
    })
}

//! `fill`: writes each of N numbered keys once, in random order, as fast as the server takes them.

use crate::clock::{now_ns, NS_PER_S};
use crate::commands::TargetArgs;
use crate::error::{BenchError, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::workload::SizeRange;
use crate::load::{KeyChoice, LoadReport, Recording, Requests, Stop, Workload, WorkloadSpec};
use crate::output::say;
use crate::resp::Address;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Number of keys (16 bytes each: key:000000000000 and so on)
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1_000_000)]
    keys: u64,
    /// Number of the first key
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    first_key: u64,
    /// Value size in bytes, or MIN-MAX
    #[arg(short = 'd', long, value_name = "BYTES", default_value = "100")]
    value_size: SizeRange,
    /// Values of one repeated byte instead of random ones
    #[arg(long)]
    compressible: bool,
    /// Connections
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 4)]
    clients: usize,
    /// Requests in flight on a connection
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 64)]
    pipeline: usize,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A run of a second: 10,000 keys
    #[arg(long)]
    small: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let key_count = if args.small { args.keys.min(10_000) } else { args.keys };
    let spec = WorkloadSpec {
        first_key: args.first_key,
        value_size: args.value_size,
        compressible: args.compressible,
        ..WorkloadSpec::sets(key_count, 0, KeyChoice::Once, args.seed)
    };
    let report = fill_with(&args.target.target(), spec, args.clients.max(1), args.pipeline.max(1))?;
    say(&format!(
        "{} keys of {} B in {:.2} s, {:.0} SET/s",
        report.replies,
        args.value_size,
        report.duration_ns as f64 / NS_PER_S as f64,
        report.replies_per_second()
    ));
    Ok(())
}

/// Fills a server that the harness started.
pub fn fill(target: &Address, spec: WorkloadSpec) -> Result<LoadReport> {
    fill_with(target, spec, 4, 64)
}

fn fill_with(target: &Address, spec: WorkloadSpec, conn_count: usize, pipeline: usize) -> Result<LoadReport> {
    let mut workload = Workload::new(spec)?;
    send_all(&ClosedLoop { target: target.clone(), conn_count, pipeline }, &mut workload, Stop::default())
}

/// Sends until there is nothing left to send, or until `stop`; an answer that is an error is one.
pub fn send_all(closed: &ClosedLoop, requests: &mut impl Requests, stop: Stop<'_>) -> Result<LoadReport> {
    let report = closed.run(requests, Recording::new(now_ns()), stop)?;
    match &report.tally.first_error {
        Some(error) => Err(BenchError::Failed(format!(
            "{} refused {} of {} writes: {error}",
            closed.target, report.tally.errors, report.sent
        ))),
        None => Ok(report),
    }
}

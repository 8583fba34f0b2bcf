//! `cut`: how long a cut waits for the workers, and they for it, as the data grows. In this process, on the
//! embedded library: two workers under GET and SET, no network.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use stillframe_store::Store;

use crate::commands::DataArgs;
use crate::embedded::{self, key_bytes, DB, KEY_BYTES};
use crate::error::{BenchError, Result};
use crate::output::{human_ns, markdown_table, OutArgs, Output};
use crate::stats::percentile;

const VALUE_BYTES: usize = 1000;
/// Pause between two cuts: long enough for before-images to be let go.
const BETWEEN_CUTS: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Sizes of the data, in gigabytes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.25,1,2,4,8")]
    gb: Vec<f64>,
    /// Cuts for each size
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    cuts: usize,
    /// Threads that read and write
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    workers: usize,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    out: OutArgs,
    /// A run of seconds: 16 MB, 10 cuts
    #[arg(long)]
    small: bool,
}

struct Row {
    gb: f64,
    key_count: u64,
    waits_ns: Vec<u64>,
    longest_command_ns: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let (sizes, cuts) = if args.small { (vec![1.0 / 64.0], 10) } else { (args.gb.clone(), args.cuts) };
    let mut out = Output::new(&args.out, "cut", "Wait at the cut", &[])?;
    out.note("load", format!("{} workers, half GET half SET of {VALUE_BYTES} B, uniform", args.workers));
    let scratch = args.data.scratch();
    let mut rows = Vec::new();
    for (number, &gb) in sizes.iter().enumerate() {
        let dir = scratch.path().join(format!("cut-{number}"));
        rows.push(measure(&dir, gb, cuts, args.workers)?);
        // The data is of no more use, and the disk may be small.
        let _ = std::fs::remove_dir_all(&dir);
    }
    report(&out, rows)
}

fn measure(dir: &std::path::Path, gb: f64, cuts: usize, worker_count: usize) -> Result<Row> {
    let key_count = (gb * (1u64 << 30) as f64 / (VALUE_BYTES + KEY_BYTES) as f64) as u64;
    let store = embedded::filled(dir, worker_count, key_count, &[b'v'; VALUE_BYTES])?;
    let stop = Arc::new(AtomicBool::new(false));
    let longest_ns = Arc::new(AtomicU64::new(0));
    let workers: Vec<JoinHandle<()>> = (0..worker_count)
        .map(|number| {
            let (store, stop, longest_ns) = (store.clone(), stop.clone(), longest_ns.clone());
            std::thread::spawn(move || load(&store, key_count, number as u64, &stop, &longest_ns))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let mut waits_ns = Vec::with_capacity(cuts);
    let mut failure = None;
    for _ in 0..cuts {
        match store.view() {
            Ok(view) => waits_ns.push(view.barrier_wait().as_nanos() as u64),
            Err(error) => failure = Some(error),
        }
        std::thread::sleep(BETWEEN_CUTS);
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().map_err(|_| BenchError::failed("measure", "a worker panicked"))?;
    }
    match failure {
        Some(error) => Err(BenchError::failed("take a view", error)),
        None => Ok(Row { gb, key_count, waits_ns, longest_command_ns: longest_ns.load(Ordering::Relaxed) }),
    }
}

fn load(store: &Store, key_count: u64, seed: u64, stop: &AtomicBool, longest_ns: &AtomicU64) {
    let mut worker = store.nonblocking_worker().expect("one a thread");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut value = [b'v'; VALUE_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let number = rng.u64(..key_count);
        let start = Instant::now();
        if rng.bool() {
            value[0] = rng.u8(..);
            // An error would show as a wait that never ends; there is no limit set that could cause one.
            let _ = embedded::set(&mut worker, &key_bytes(number), &value);
        } else {
            let bytes = key_bytes(number);
            let key = worker.key(&bytes);
            let _ = worker.get(DB, &key, |found| std::hint::black_box(found.len()));
        }
        longest_ns.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        worker.quiesce();
    }
}

fn report(out: &Output, mut rows: Vec<Row>) -> Result<()> {
    let header = ["data", "keys", "p50", "p99", "worst", "longest command"];
    let mut lines = Vec::new();
    let mut results = Vec::new();
    for row in &mut rows {
        let (p50, p99) = (percentile(&mut row.waits_ns, 50.0), percentile(&mut row.waits_ns, 99.0));
        let worst = percentile(&mut row.waits_ns, 100.0);
        lines.push(vec![
            format!("{} GB", row.gb),
            row.key_count.to_string(),
            human_ns(p50 as f64),
            human_ns(p99 as f64),
            human_ns(worst as f64),
            human_ns(row.longest_command_ns as f64),
        ]);
        results.push(json!({
            "gb": row.gb, "keys": row.key_count, "wait_ns": row.waits_ns,
            "longest_command_ns": row.longest_command_ns,
        }));
    }
    out.write_json(&results)?;
    out.write_markdown(&markdown_table(&header, &lines))
}

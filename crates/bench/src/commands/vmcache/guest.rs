//! The process that measures one system: reads a plan, prints an answer.

use std::fs;
use std::io::{stdin, Write};
use std::path::Path;

use super::lookups;
use super::plan::{Answer, DiskUse, Measured, MixRun, Plan, Reply, Tpcc, Work};
use crate::error::{BenchError, Context, Result};
use crate::kv::{KeyValue, OpenOptions};
use crate::tpcc::{self, Mix};

/// Says that the data in a directory is complete.
const LOADED: &str = "loaded";
/// Where the store is, below the directory of the plan.
const STORE: &str = "store";
/// Room for what stores need beside the rows, and for what has been changed but not been given back.
const DISK_TIMES: u64 = 8;
const DISK_BYTES_MIN: u64 = 1 << 30;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<()> {
    let plan: Plan = serde_json::from_reader(stdin())
        .map_err(|error| BenchError::failed("read the plan from standard input", error))?;
    let reply = match measure(&plan) {
        Ok(answer) => Reply::Measured(answer),
        Err(error) => Reply::Failed { why: error.to_string() },
    };
    let text =
        serde_json::to_string(&reply).map_err(|error| BenchError::failed("write the answer", error))?;
    writeln!(std::io::stdout(), "{text}").context(|| "write the answer".to_owned())
}

fn measure(plan: &Plan) -> Result<Answer> {
    let store_dir = plan.dir.join(STORE);
    fs::create_dir_all(&store_dir).context(|| format!("create {}", store_dir.display()))?;
    let name = plan.system.name();
    let (store, load_s, measured) = match &plan.work {
        Work::Lookups(work) => {
            let most_threads = work.phases.iter().map(|phase| phase.thread_count).max();
            let row_bytes = work.key_count * lookups::ROW_BYTES;
            let store = open(plan, &store_dir, &lookups::TREES, row_bytes, most_threads.unwrap_or(1))?;
            let load_s = loaded_once(&plan.dir, || lookups::load(&*store, work, name))?;
            let measured = lookups::run(&*store, work, name)?;
            (store, load_s, Measured::Lookups(measured))
        }
        Work::Tpcc(work) => {
            let most_threads = work.thread_counts.iter().copied().max().unwrap_or(1);
            let store = open(plan, &store_dir, &tpcc::TREES, work.scale.bytes(), most_threads)?;
            let load_s = tpcc::load(&*store, work.scale, work.seed, name)?;
            let measured = run_mixes(&*store, work, name)?;
            tpcc::check(&*store, work.scale, name)?;
            (store, load_s, Measured::Tpcc(measured))
        }
    };
    store.flush()?;
    Ok(Answer { settings: store.settings(), load_s, disk_bytes: tree_bytes(&store_dir), measured })
}

fn run_mixes(store: &dyn KeyValue, work: &Tpcc, name: &str) -> Result<Vec<MixRun>> {
    let mut runs = Vec::new();
    let can = |count: &usize| *count == 1 || store.has_many_writers();
    for (index, thread_count) in work.thread_counts.iter().copied().filter(can).enumerate() {
        // Each has rows of history with numbers of its own.
        let number = 2 * index as u32 + 1;
        let mix = |number: u32, seconds: f64| Mix {
            scale: work.scale,
            thread_count,
            seconds,
            seed: work.seed,
            number,
        };
        tpcc::run(store, mix(number, work.warm_up_s))?;
        let before = DiskUse::now();
        let report = tpcc::run(store, mix(number + 1, work.measured_s))?;
        eprintln!("{name}: {thread_count} threads: {:.0} transactions/s", report.per_second);
        runs.push(MixRun { thread_count, report, disk: DiskUse::now().since(before) });
    }
    Ok(runs)
}

fn open(
    plan: &Plan,
    dir: &Path,
    trees: &[&str],
    row_bytes: u64,
    thread_count: usize,
) -> Result<Box<dyn KeyValue>> {
    plan.system.open(&OpenOptions {
        dir,
        trees,
        memory_bytes: plan.memory_bytes,
        disk_bytes_max: DISK_BYTES_MIN + row_bytes * DISK_TIMES,
        thread_count,
    })
}

/// Loads data unless an earlier process has done so. Returns how many seconds that took.
fn loaded_once(dir: &Path, load: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let marker = dir.join(LOADED);
    if marker.exists() {
        return Ok(0.0);
    }
    let load_s = load()?;
    fs::write(&marker, "").context(|| format!("create {}", marker.display()))?;
    Ok(load_s)
}

/// What the files below a directory take on disk: some are longer than that.
fn tree_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => tree_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

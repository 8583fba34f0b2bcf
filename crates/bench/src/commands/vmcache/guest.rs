//! The process that measures one system: reads a plan, prints an answer.

use std::fs;
use std::path::Path;

use super::plan::{Answer, DiskUse, Lookups, Measured, MixRun, Plan, Reply, Tpcc, Work};
use super::{eviction, lookups};
use crate::error::{Context, Result};
use crate::guest;
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
    let plan: Plan = guest::plan()?;
    let reply = match measure(&plan) {
        Ok(answer) => Reply::Measured(answer),
        Err(error) => Reply::Failed { why: error.to_string() },
    };
    guest::answer(&reply)
}

fn measure(plan: &Plan) -> Result<Answer> {
    let store_dir = plan.dir.join(STORE);
    fs::create_dir_all(&store_dir).context(|| format!("create {}", store_dir.display()))?;
    let name = plan.system.name();
    let (store, load_s, measured) = match &plan.work {
        Work::Lookups(work) => {
            let most_threads = work.phases.iter().map(|phase| phase.thread_count).max().unwrap_or(1);
            if work.phases.iter().any(|phase| phase.is_apart) {
                return look_up_apart(plan, work, &store_dir, most_threads as u64);
            }
            let store = open_rows(plan, &store_dir, work.key_count, most_threads)?;
            let load_s = loaded_once(&plan.dir, || lookups::load(&*store, 0..work.key_count, name))?;
            let measured = lookups::run(&[&*store], work, name)?;
            (store, load_s, Measured::Lookups(measured))
        }
        Work::Eviction(work) => {
            let cpus = eviction::Cpus::apart();
            // The store's threads stay where they are started.
            cpus.first()?;
            let store = open_rows(plan, &store_dir, work.key_count, 2)?;
            let load_s = loaded_once(&plan.dir, || lookups::load(&*store, 0..work.key_count, name))?;
            let measured = eviction::run(&*store, work, &cpus, name)?;
            (store, load_s, Measured::Eviction(measured))
        }
        Work::Tpcc(work) => {
            let most_threads = work.thread_counts.iter().copied().max().unwrap_or(1);
            let store =
                open(plan, &store_dir, &tpcc::TREES, work.scale.bytes(), plan.memory_bytes, most_threads)?;
            let load_s = tpcc::load(&*store, work.scale, work.seed, name)?;
            let measured = run_mixes(&*store, work, name)?;
            tpcc::check(&*store, work.scale, name)?;
            (store, load_s, Measured::Tpcc(measured))
        }
    };
    store.flush()?;
    Ok(Answer { settings: store.settings(), load_s, disk_bytes: tree_bytes(&store_dir), measured })
}

/// A store for each thread, one after the other.
fn look_up_apart(plan: &Plan, work: &Lookups, dir: &Path, store_count: u64) -> Result<Answer> {
    let (share, name) = (work.key_count / store_count, plan.system.name());
    let mut stores = Vec::new();
    let mut load_s = 0.0;
    for number in 0..store_count {
        let own_dir = dir.join(number.to_string());
        fs::create_dir_all(&own_dir).context(|| format!("create {}", own_dir.display()))?;
        let trees = &lookups::TREES;
        let row_bytes = share * lookups::ROW_BYTES;
        let store = open(plan, &own_dir, trees, row_bytes, plan.memory_bytes / store_count, 1)?;
        let first = number * share;
        load_s += loaded_once(&own_dir, || lookups::load(&*store, first..first + share, name))?;
        stores.push(store);
    }
    let of_one: Vec<&dyn KeyValue> = stores.iter().map(|store| &**store).collect();
    let measured = Measured::Lookups(lookups::run(&of_one, work, name)?);
    let settings = of_one[0].settings();
    Ok(Answer { settings, load_s, disk_bytes: tree_bytes(dir), measured })
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
        let mut over_time = match work.warm_up_s > 0.0 {
            true => tpcc::run(store, mix(number, work.warm_up_s))?.over_time,
            false => Vec::new(),
        };
        let before = DiskUse::now();
        let report = tpcc::run(store, mix(number + 1, work.measured_s))?;
        eprintln!("{name}: {thread_count} threads: {:.0} transactions/s", report.per_second);
        over_time.extend(&report.over_time);
        runs.push(MixRun { thread_count, over_time, report, disk: DiskUse::now().since(before) });
    }
    Ok(runs)
}

/// With the rows of lookups.
fn open_rows(plan: &Plan, dir: &Path, key_count: u64, thread_count: usize) -> Result<Box<dyn KeyValue>> {
    let row_bytes = key_count * lookups::ROW_BYTES;
    open(plan, dir, &lookups::TREES, row_bytes, plan.memory_bytes, thread_count)
}

fn open(
    plan: &Plan,
    dir: &Path,
    trees: &[&str],
    row_bytes: u64,
    memory_bytes: u64,
    thread_count: usize,
) -> Result<Box<dyn KeyValue>> {
    plan.system.open(&OpenOptions {
        dir,
        trees,
        memory_bytes,
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

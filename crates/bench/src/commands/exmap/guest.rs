//! `exmap-guest`, inside the virtual machine: what needs this project's pool and store. Each round is a line of JSON on
//! standard output.

use std::io::Write;
use std::path::PathBuf;

use rustix::time::{clock_gettime, ClockId};
use stillframe_store::PoolBackend;

use super::records::{Access, Measure, StoreRun, Work};
use crate::clock::{now_ns, NS_PER_S};
use crate::commands::vmcache::lookups;
use crate::commands::vmcache::pages;
use crate::commands::vmcache::plan::{Lookups, Phase};
use crate::error::{BenchError, Context, Result};
use crate::kv::{self, Evictions, KeyValue, OpenOptions};
use crate::tpcc::{self, Mix, Scale};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
    #[arg(long, value_name = "COUNT", global = true, default_value_t = 1)]
    rounds: u32,
    /// Of the machine's clock, of each round
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = 0.1)]
    seconds: f64,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Accesses to pages in memory
    Pages {
        #[arg(long, value_name = "BYTES", value_delimiter = ',')]
        sizes: Vec<u64>,
    },
    /// A store that is larger than its memory
    Stores {
        #[arg(long, value_enum)]
        work: Work,
        #[arg(long, value_name = "NAME")]
        backend: PoolBackend,
        /// Removed afterwards
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        #[arg(long, value_name = "BYTES")]
        memory_bytes: u64,
        /// Of lookups
        #[arg(long, value_name = "COUNT")]
        keys: u64,
        /// Of TPC-C, against a standard warehouse
        #[arg(long, value_name = "PERCENT")]
        warehouse_percent: u32,
    },
}

/// Room for what has been changed and not been given back.
const DISK_BYTES: u64 = 1 << 30;
const BATCH: usize = 32;
const SEED: u64 = 1;

pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Pages { sizes } => measure_pages(args, sizes),
        What::Stores { work, backend, dir, memory_bytes, keys, warehouse_percent } => {
            let standard = Scale::standard(1);
            let part = |whole: u32| (whole * warehouse_percent / 100).max(1);
            let scale = Scale {
                items: part(standard.items),
                customers: part(standard.customers).max(Scale::small(1).customers),
                ..standard
            };
            std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
            let trees: &[&str] = if *work == Work::Tpcc { &tpcc::TREES } else { &lookups::TREES };
            let options = OpenOptions {
                dir,
                trees,
                memory_bytes: *memory_bytes,
                disk_bytes_max: DISK_BYTES,
                thread_count: 1,
            };
            let store = kv::open_own(&options, *backend)?;
            let stores = Stores { args, store: &*store, work: *work, backend: *backend, keys: *keys, scale };
            stores.run()?;
            drop(store);
            std::fs::remove_dir_all(dir).context(|| format!("remove {}", dir.display()))
        }
    }
}

fn say(measure: &Measure) -> Result<()> {
    let line = serde_json::to_string(measure).map_err(|e| BenchError::failed("write a record", e))?;
    // A console that is gone is noticed by the host.
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(())
}

fn measure_pages(args: &Args, sizes: &[u64]) -> Result<()> {
    for round in 0..args.rounds {
        for &bytes in sizes {
            for (way, ns) in pages::measure(bytes, args.seconds, &PoolBackend::ALL)? {
                say(&Measure::Access(Access { way: way.name().to_owned(), bytes, round, ns }))?;
            }
        }
    }
    Ok(())
}

/// What has been counted so far.
struct Counted {
    elapsed_ns: u64,
    cpu_ns: u64,
    evictions: Evictions,
    shootdowns: u64,
}

impl Counted {
    fn now(store: &dyn KeyValue) -> Counted {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Counted {
            elapsed_ns: now_ns(),
            cpu_ns: cpu.tv_sec as u64 * NS_PER_S + cpu.tv_nsec as u64,
            evictions: store.evictions().unwrap_or_default(),
            shootdowns: shootdowns(),
        }
    }
}

/// Of all maps since the module was loaded; none if it is not.
fn shootdowns() -> u64 {
    let text = std::fs::read_to_string("/proc/exmap").unwrap_or_default();
    sum_of(&text, &["shootdowns_free", "shootdowns_alloc"])
}

fn sum_of(text: &str, names: &[&str]) -> u64 {
    let fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.filter(|(name, _)| names.contains(name)).filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

struct Stores<'a> {
    args: &'a Args,
    store: &'a dyn KeyValue,
    work: Work,
    backend: PoolBackend,
    keys: u64,
    scale: Scale,
}

impl Stores<'_> {
    fn run(&self) -> Result<()> {
        let name = self.backend.name();
        match self.work {
            Work::Tpcc => tpcc::load(self.store, self.scale, SEED, name)?,
            Work::Lookups | Work::Batches => lookups::load(self.store, 0..self.keys, name)?,
        };
        // What the load left in memory gives way first.
        self.measured(0)?;
        for round in 0..self.args.rounds {
            let before = Counted::now(self.store);
            let count = self.measured(round + 1)?;
            say(&Measure::Store(self.record(round, count, &before)))?;
        }
        match self.work {
            Work::Tpcc => tpcc::check(self.store, self.scale, name).map(drop),
            Work::Lookups | Work::Batches => Ok(()),
        }
    }

    fn record(&self, round: u32, count: u64, before: &Counted) -> StoreRun {
        let now = Counted::now(self.store);
        let evictions = now.evictions.since(before.evictions);
        StoreRun {
            work: self.work,
            backend: self.backend.name().to_owned(),
            round,
            count,
            elapsed_ns: now.elapsed_ns - before.elapsed_ns,
            cpu_ns: now.cpu_ns - before.cpu_ns,
            evicted_pages: evictions.page_count,
            loaded_pages: evictions.loaded_page_count,
            give_back_ns: evictions.give_back_ns,
            shootdowns: now.shootdowns - before.shootdowns,
        }
    }

    /// How many lookups or transactions were done in the time of a round, each round with others.
    fn measured(&self, number: u32) -> Result<u64> {
        let (seconds, name) = (self.args.seconds, self.backend.name());
        if self.work == Work::Tpcc {
            let mix = Mix { scale: self.scale, thread_count: 1, seconds, seed: SEED, number: number + 1 };
            return Ok(tpcc::run(self.store, mix)?.count());
        }
        let batch = if self.work == Work::Batches { BATCH } else { 1 };
        let work = Lookups {
            key_count: self.keys,
            is_warmed: false,
            phases: vec![Phase { thread_count: 1, batch, is_apart: false }],
            warm_up_s: 0.0,
            measured_s: seconds,
            seed: SEED + u64::from(number),
        };
        let measured = lookups::run(&[self.store], &work, name)?;
        Ok(measured.iter().map(|(_, rates)| rates.count).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "version 1\nshootdowns_free 12\nshootdowns_full 100\nshootdowns_alloc 3\n";
        assert_eq!(sum_of(text, &["shootdowns_free", "shootdowns_alloc"]), 15);
        assert_eq!(sum_of("", &["shootdowns_free"]), 0);
    }
}

//! `vmcache`: this store against others that can be linked, without a network: random lookups and TPC-C, with data that fits
//! into memory and data that does not.

pub mod guest;
mod host;
mod limit;
mod lookups;
mod pages;
mod plan;
mod raw;
mod report;

use std::path::Path;

use self::host::Limit;
use self::plan::{Lookups, Phase, Plan, Tpcc, Work};
use self::raw::{RawFile, Reader};
use self::report::{LookupRun, PageRun, RawRun, Report, TpccRun};
use crate::commands::DataArgs;
use crate::error::Result;
use crate::kv::System;
use crate::output::{human_bytes, OutArgs, Output};
use crate::tpcc::Scale;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Random lookups, all data in memory
    Lookups,
    /// Random lookups, data several times as large as the memory, beside a raw reader
    LookupsDisk,
    /// Accesses to pages in memory: by address, by a hash table, by this pool
    Pages,
    /// TPC-C, all data in memory
    Tpcc,
    /// TPC-C, data several times as large as the memory
    TpccDisk,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Systems, in their order [default: all that this program was built with]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    systems: Vec<System>,
    /// Parts [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    parts: Vec<Part>,
    /// Alternating rounds
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// Seconds that are measured of each case
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,
    /// Seconds before, not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    warm_up: f64,
    /// Numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Keys looked up in one call
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,32")]
    batches: Vec<usize>,
    /// Keys of lookups in memory
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10_000_000)]
    keys: u64,
    /// Memory for data that fits, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 6144)]
    memory_mb: u64,
    /// Keys of lookups out of memory
    #[arg(long, value_name = "COUNT", default_value_t = 40_000_000)]
    disk_keys: u64,
    /// Memory of the pages that are accessed, in megabytes; and as little as a cache has
    #[arg(long, value_name = "MB", default_value_t = 4096)]
    pages_mb: u64,
    /// Numbers of warehouses in memory, of about 85 MB each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,10")]
    warehouses: Vec<u32>,
    /// Numbers of warehouses out of memory
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "60")]
    disk_warehouses: Vec<u32>,
    /// Memory for data that does not fit, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 512)]
    disk_memory_mb: u64,
    /// Limit memory by the systems' own settings only
    #[arg(long)]
    no_cgroup: bool,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    out: OutArgs,
    /// A run of seconds: 20,000 keys, a warehouse of a hundredth, 1 round
    #[arg(long)]
    small: bool,
}

impl Args {
    /// With what was not said.
    fn complete(&self) -> Args {
        let mut args = self.clone();
        if args.systems.is_empty() {
            args.systems = System::all().to_vec();
        }
        if args.parts.is_empty() {
            args.parts = <Part as clap::ValueEnum>::value_variants().to_vec();
        }
        args.threads.iter_mut().for_each(|count| *count = (*count).max(1));
        args.batches.iter_mut().for_each(|count| *count = (*count).max(1));
        (args.keys, args.disk_keys) = (args.keys.max(1), args.disk_keys.max(1));
        if args.small {
            (args.keys, args.disk_keys, args.rounds) = (20_000, 20_000, 1);
            (args.seconds, args.warm_up) = (0.2, 0.02);
            (args.warehouses, args.disk_warehouses, args.pages_mb) = (vec![1], vec![2], 4);
        }
        args
    }

    fn phases(&self) -> Vec<Phase> {
        let of = |&thread_count: &usize| self.batches.iter().map(move |&batch| Phase { thread_count, batch });
        self.threads.iter().flat_map(of).collect()
    }
}

/// Pages that stay in the cache of any processor.
const CACHED_BYTES: u64 = 32 << 10;

struct Run {
    args: Args,
    limit: Limit,
    report: Report,
}

pub fn run(args: &Args) -> Result<()> {
    let args = args.complete();
    let mut out = Output::new(&args.out, "vmcache", "Stores that can be linked", &[])?;
    let (limit, how) = match args.no_cgroup {
        true => (Limit::Settings, "by the systems' own settings, as was asked for".to_owned()),
        false => Limit::best(),
    };
    out.note("memory limit", how);
    let scratch = args.data.scratch();
    let mut run = Run { args, limit, report: Report::default() };
    for part in run.args.parts.clone() {
        match part {
            Part::Lookups => run.lookups(&scratch.path().join("lookups"), false)?,
            Part::LookupsDisk => run.lookups(&scratch.path().join("lookups-disk"), true)?,
            Part::Pages => run.pages()?,
            Part::Tpcc => run.tpcc(&scratch.path().join("tpcc"), false)?,
            Part::TpccDisk => run.tpcc(&scratch.path().join("tpcc-disk"), true)?,
        }
        // The data is of no more use, and the disk may be small.
        let _ = std::fs::remove_dir_all(scratch.path());
    }
    run.report.write(&mut out)
}

impl Run {
    fn lookups(&mut self, dir: &Path, is_on_disk: bool) -> Result<()> {
        let (key_count, memory_mb) = match is_on_disk {
            true => (self.args.disk_keys, self.args.disk_memory_mb),
            false => (self.args.keys, self.args.memory_mb),
        };
        let memory_bytes = memory_mb << 20;
        eprintln!(
            "lookups: {key_count} rows of {} B, memory of {}",
            lookups::ROW_BYTES,
            human_bytes(memory_bytes as f64)
        );
        let raw = is_on_disk.then(|| RawFile::create(dir, key_count * lookups::ROW_BYTES)).transpose()?;
        if let Some(raw) = &raw {
            self.report.notes.push(("raw reader".to_owned(), raw.description()));
        }
        for round in 0..self.args.rounds {
            for system in self.args.systems.clone() {
                let work = Work::Lookups(Lookups {
                    key_count,
                    is_warmed: !is_on_disk,
                    phases: self.args.phases(),
                    warm_up_s: self.args.warm_up,
                    measured_s: self.args.seconds,
                    seed: self.args.seed.wrapping_add(round as u64),
                });
                let plan = Plan { system, dir: dir.join(system.name()), memory_bytes, work };
                match host::measure(&plan, self.limit) {
                    Ok(outcome) => self.report.lookups.runs.push(LookupRun {
                        system,
                        is_on_disk,
                        round,
                        key_count,
                        outcome,
                    }),
                    Err(error) => self.report.fail(system, "lookups", is_on_disk, &error),
                }
            }
            for (reader, raw) in Reader::ALL.into_iter().filter_map(|reader| Some((reader, raw.as_ref()?))) {
                let per_second = raw.rate(reader, self.args.seconds)?;
                self.report.lookups.raw.push(RawRun { reader, round, per_second });
            }
        }
        Ok(())
    }

    fn pages(&mut self) -> Result<()> {
        for round in 0..self.args.rounds {
            for bytes in [CACHED_BYTES, self.args.pages_mb << 20] {
                // Each way gets its share of the time.
                let measured = pages::measure(bytes, self.args.seconds / pages::Way::ALL.len() as f64)?;
                self.report.pages.runs.push(PageRun { bytes, round, measured });
            }
        }
        Ok(())
    }

    fn tpcc(&mut self, dir: &Path, is_on_disk: bool) -> Result<()> {
        let (warehouses, memory_mb) = match is_on_disk {
            true => (self.args.disk_warehouses.clone(), self.args.disk_memory_mb),
            false => (self.args.warehouses.clone(), self.args.memory_mb),
        };
        for round in 0..self.args.rounds {
            for (&warehouses, &system) in
                warehouses.iter().flat_map(|w| self.args.systems.iter().map(move |s| (w, s)))
            {
                let scale = match self.args.small {
                    true => Scale::small(warehouses.max(1)),
                    false => Scale::standard(warehouses.max(1)),
                };
                let work = Work::Tpcc(Tpcc {
                    scale,
                    thread_counts: self.args.threads.clone(),
                    warm_up_s: self.args.warm_up,
                    measured_s: self.args.seconds,
                    seed: self.args.seed.wrapping_add(round as u64),
                });
                let plan = Plan { system, dir: dir.join(system.name()), memory_bytes: memory_mb << 20, work };
                match host::measure(&plan, self.limit) {
                    Ok(outcome) => {
                        self.report.tpcc.runs.push(TpccRun { system, is_on_disk, round, scale, outcome })
                    }
                    Err(error) => self.report.fail(system, "TPC-C", is_on_disk, &error),
                }
                // A run changes its data.
                let _ = std::fs::remove_dir_all(&plan.dir);
            }
        }
        Ok(())
    }
}

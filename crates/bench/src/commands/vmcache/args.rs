//! What is to be measured, and how long.

use std::path::PathBuf;

use super::plan::{Phase, Place};
use crate::commands::DataArgs;
use crate::kv::System;
use crate::output::OutArgs;
use crate::pin::CpuArgs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Random lookups, all data in memory
    Lookups,
    /// Random lookups, data several times as large as the memory, beside a raw reader
    LookupsDisk,
    /// A thread's lookups in memory while another walks through data that is not, so that pages are evicted
    Eviction,
    /// Updates by a server, data several times as large as its memory, beside the same reads and writes of the disk
    UpdatesDisk,
    /// Accesses to pages in memory: by address, by a hash table, by this pool
    Pages,
    /// How fast the system gives pages and takes them back, and what that costs another thread
    Discards,
    /// Random reads of pages, into buffers that stay and into this pool
    Reads,
    /// TPC-C, all data in memory
    Tpcc,
    /// TPC-C, data several times as large as the memory
    TpccDisk,
    /// TPC-C, data that outgrows the memory while it runs
    TpccGrowing,
}

impl Part {
    /// As it is written on the command line.
    pub fn name(self) -> String {
        use clap::ValueEnum;
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// A figure or table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Figure {
    /// Pages given and taken back one at a time
    #[value(name = "3")]
    Three,
    /// In memory, over threads
    #[value(name = "6")]
    Six,
    /// Out of memory, over time
    #[value(name = "7")]
    Seven,
    /// Pages given and taken back in batches
    #[value(name = "8")]
    Eight,
    /// Reads into pages
    #[value(name = "9")]
    Nine,
    /// Accesses to pages in memory
    #[value(name = "table2")]
    TableTwo,
}

impl Figure {
    /// The parts that show it.
    fn parts(self) -> &'static [Part] {
        match self {
            Figure::Three | Figure::Eight => &[Part::Discards],
            Figure::Six => &[Part::Lookups, Part::Tpcc],
            Figure::Seven => &[Part::LookupsDisk, Part::TpccDisk, Part::TpccGrowing],
            Figure::Nine => &[Part::Reads],
            Figure::TableTwo => &[Part::Pages],
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Systems, in their order [default: all that this program was built with]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub systems: Vec<System>,
    /// Parts [default: all, or those of --figures]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub parts: Vec<Part>,
    /// Figures of the paper whose parts are to be measured
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub figures: Vec<Figure>,
    /// Alternating rounds
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that are measured of each case
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 20.0)]
    pub seconds: f64,
    /// Seconds before, not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub warm_up: f64,
    /// Numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Keys looked up in one call
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,32")]
    pub batches: Vec<usize>,
    /// Keys of lookups in memory
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10_000_000)]
    pub keys: u64,
    /// Memory for data that fits, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 6144)]
    pub memory_mb: u64,
    /// Keys of lookups out of memory
    #[arg(long, value_name = "COUNT", default_value_t = 40_000_000)]
    pub disk_keys: u64,
    /// Rows of lookups that stay in memory beside those that do not
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub hot_keys: u64,
    /// Keys of updates by a server, with values of 400 B; a tenth of their pages stays in memory
    #[arg(long, value_name = "COUNT", default_value_t = 6_000_000)]
    pub update_keys: u64,
    /// Connections that update
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub clients: usize,
    /// The stillframe-server binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub stillframe: Option<PathBuf>,
    /// Memory of the pages that are accessed, in megabytes; and as little as a cache has
    #[arg(long, value_name = "MB", default_value_t = 4096)]
    pub pages_mb: u64,
    /// Numbers of warehouses in memory, of about 85 MB each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,10")]
    pub warehouses: Vec<u32>,
    /// Numbers of warehouses out of memory
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "60")]
    pub disk_warehouses: Vec<u32>,
    /// Memory for data that does not fit, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 512)]
    pub disk_memory_mb: u64,
    /// Warehouses that outgrow that memory
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub growing_warehouses: u32,
    /// Limit memory by the systems' own settings only
    #[arg(long)]
    pub no_cgroup: bool,
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub out: OutArgs,
    #[command(flatten)]
    pub cpus: CpuArgs,
    /// All parts within some ten minutes: a round of a few seconds a case, a quarter of the data and of the memory
    #[arg(long)]
    pub quick: bool,
    /// A run of seconds: 20,000 keys, a warehouse of a hundredth, 1 round
    #[arg(long)]
    pub small: bool,
}

impl Args {
    /// With what was not said.
    pub fn complete(&self) -> Args {
        let mut args = self.clone();
        if args.parts.is_empty() {
            let all = <Part as clap::ValueEnum>::value_variants();
            let is_shown = |part: &Part| {
                self.figures.is_empty() || self.figures.iter().any(|f| f.parts().contains(part))
            };
            args.parts = all.iter().copied().filter(is_shown).collect();
        }
        if args.systems.is_empty() {
            let is_wanted = |system: &System| !self.quick || system.is_of_quick_runs();
            args.systems = System::all().iter().copied().filter(is_wanted).collect();
        }
        args.threads.iter_mut().for_each(|count| *count = (*count).max(1));
        args.batches.iter_mut().for_each(|count| *count = (*count).max(1));
        if args.quick {
            (args.rounds, args.seconds, args.warm_up) = (1, 3.0, 1.0);
            (args.keys, args.disk_keys, args.update_keys) = (5_000_000, 10_000_000, 1_500_000);
            (args.disk_warehouses, args.growing_warehouses) = (vec![16], 1);
            (args.disk_memory_mb, args.hot_keys, args.pages_mb) = (128, 25_000, 1024);
        }
        if args.small {
            (args.keys, args.disk_keys, args.hot_keys, args.rounds) = (20_000, 20_000, 2_000, 1);
            (args.update_keys, args.clients) = (60_000, 8);
            (args.seconds, args.warm_up) = (0.2, 0.02);
            (args.warehouses, args.disk_warehouses, args.pages_mb) = (vec![1], vec![2], 4);
            args.growing_warehouses = 1;
        }
        (args.keys, args.disk_keys) = (args.keys.max(2), args.disk_keys.max(2));
        args.hot_keys = args.hot_keys.clamp(1, args.disk_keys);
        args.update_keys = args.update_keys.max(1000);
        args.clients = args.clients.max(1);
        args
    }

    pub fn phases(&self) -> Vec<Phase> {
        let of = |&thread_count: &usize| {
            self.batches.iter().map(move |&batch| Phase { thread_count, batch, is_apart: false })
        };
        self.threads.iter().flat_map(of).collect()
    }

    pub fn lookups_of(&self, place: Place) -> (u64, u64) {
        match place {
            Place::InMemory => (self.keys, self.memory_mb << 20),
            Place::OutOfMemory | Place::Growing => (self.disk_keys, self.disk_memory_mb << 20),
        }
    }

    pub fn warehouses_of(&self, place: Place) -> (Vec<u32>, u64) {
        match place {
            Place::InMemory => (self.warehouses.clone(), self.memory_mb << 20),
            Place::OutOfMemory => (self.disk_warehouses.clone(), self.disk_memory_mb << 20),
            Place::Growing => (vec![self.growing_warehouses], self.disk_memory_mb << 20),
        }
    }

    /// Seconds that a part measures, without what it loads.
    pub fn measured_s(&self, part: Part) -> f64 {
        let case_s = self.seconds + self.warm_up;
        let (systems, phases) = (self.systems.len() as f64, self.phases().len() as f64);
        let mixes = self.threads.len() as f64 * systems * case_s;
        let a_round = match part {
            Part::Lookups => phases * case_s * (systems + 1.0),
            Part::LookupsDisk => phases * case_s * systems + 3.0 * self.seconds,
            Part::Eviction => 3.0 * case_s * systems,
            Part::UpdatesDisk => 2.0 * (5.0 * case_s + 3.0 * self.seconds),
            Part::Pages => 2.0 * self.seconds,
            Part::Discards | Part::Reads => 2.0 * self.seconds * self.threads.len() as f64,
            Part::Tpcc => mixes * self.warehouses.len() as f64,
            Part::TpccDisk => mixes * self.disk_warehouses.len() as f64,
            Part::TpccGrowing => systems * self.growing_s(),
        };
        a_round * self.rounds as f64
    }

    /// Seconds in which data outgrows memory.
    pub fn growing_s(&self) -> f64 {
        3.0 * self.seconds
    }
}

//! What a measuring process is told, and what it answers. Each system is measured in a process of its own: so its memory can
//! be limited and seen.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::raw::RawFile;
use crate::kv::{Evictions, Settings, System};
use crate::tpcc::{MixReport, Scale};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub system: System,
    /// Of the store's own; made if it is not there.
    pub dir: PathBuf,
    pub memory_bytes: u64,
    pub work: Work,
}

/// How large the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// It fits into memory.
    InMemory,
    /// It is several times as large.
    OutOfMemory,
    /// It fits when the run begins, and outgrows memory.
    Growing,
}

impl Place {
    pub const ALL: [Place; 3] = [Place::InMemory, Place::OutOfMemory, Place::Growing];

    pub fn name(self) -> &'static str {
        match self {
            Place::InMemory => "in memory",
            Place::OutOfMemory => "out of memory",
            Place::Growing => "outgrowing memory",
        }
    }

    /// Whether rates over time are of interest, from the load on.
    pub fn is_over_time(self) -> bool {
        self != Place::InMemory
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    Lookups(Lookups),
    Eviction(Eviction),
    Tpcc(Tpcc),
}

/// One thread looks rows up that stay in memory, while another walks through all of them, which do not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Eviction {
    pub key_count: u64,
    /// Rows that stay in memory.
    pub hot_count: u64,
    /// What is read in place of the store, for comparison.
    pub raw: RawFile,
    pub warm_up_s: f64,
    pub measured_s: f64,
    pub seed: u64,
}

/// TPC-C on data of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tpcc {
    pub scale: Scale,
    /// One after the other, on the same data. Several threads only where transactions write beside each other.
    pub thread_counts: Vec<usize>,
    pub warm_up_s: f64,
    pub measured_s: f64,
    pub seed: u64,
}

/// Random lookups of keys that are all there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lookups {
    pub key_count: u64,
    /// Whether all rows are read once before, in their order.
    pub is_warmed: bool,
    /// One after the other, on the same data.
    pub phases: Vec<Phase>,
    pub warm_up_s: f64,
    pub measured_s: f64,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    pub thread_count: usize,
    /// Keys of one call; one alone is looked up by itself.
    pub batch: usize,
    /// Each thread on a store of its own, with its share of the rows and of the memory.
    pub is_apart: bool,
}

/// What the process says in the end.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Measured(Answer),
    Failed { why: String },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub settings: Settings,
    /// Zero if the data was there already.
    pub load_s: f64,
    pub disk_bytes: u64,
    pub measured: Measured,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Measured {
    Lookups(Vec<(Phase, Rates)>),
    Eviction(Vec<Beside>),
    /// After which the consistency conditions held.
    Tpcc(Vec<MixRun>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MixRun {
    pub thread_count: usize,
    /// Transactions of each full second from the begin of the warm-up on.
    pub over_time: Vec<u64>,
    pub report: MixReport,
    pub disk: DiskUse,
}

/// What the first thread does beside the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    Idle,
    /// Walks through a few other rows, which stay in memory.
    WalksFew,
    /// Walks through all other rows.
    WalksAll,
    /// Reads as many pages a second of a file into buffers: what the reads alone cost.
    ReadsRaw,
}

impl First {
    pub const ALL: [First; 4] = [First::Idle, First::WalksFew, First::WalksAll, First::ReadsRaw];

    pub fn name(self) -> &'static str {
        match self {
            First::Idle => "idle",
            First::WalksFew => "walks rows in memory",
            First::WalksAll => "walks all rows, evicting",
            First::ReadsRaw => "reads as many pages into buffers",
        }
    }
}

/// What two threads did a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    pub first: First,
    /// Rows, or pages.
    pub first_per_second: f64,
    /// Lookups.
    pub second_per_second: f64,
    /// What the store says of its evictions, if it does.
    pub evictions: Option<Evictions>,
    pub measured_s: f64,
    pub disk: DiskUse,
}

/// How often something was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    pub per_second: f64,
    /// Of each full second, the warm-up's among them where data is larger than memory.
    pub over_time: Vec<u64>,
    pub disk: DiskUse,
    pub count: u64,
}

/// Bytes that a process has read from disk and has had written to it, by the kernel's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl DiskUse {
    /// By this process, so far.
    pub fn now() -> DiskUse {
        let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let fields: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| {
                line.split_once(": ").and_then(|(name, value)| Some((name, value.parse().ok()?)))
            })
            .collect();
        let field = |name: &str| fields.get(name).copied().unwrap_or(0);
        DiskUse { read_bytes: field("read_bytes"), written_bytes: field("write_bytes") }
    }

    pub fn since(self, before: DiskUse) -> DiskUse {
        DiskUse {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

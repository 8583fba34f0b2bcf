//! What is measured of updates, and what comes of it.

use serde::Serialize;

use crate::load::{KeyChoice, Recording};
use crate::peer::Peer;
use crate::pin::CpuPlan;

/// What is done, and with what.
#[derive(Clone, Debug)]
pub struct Updates {
    pub peer: Peer,
    pub cpus: Option<CpuPlan>,
    pub key_count: u64,
    pub conn_count: usize,
    pub warm_up_s: f64,
    pub measured_s: f64,
    pub rounds: usize,
    pub seed: u64,
}

/// What was asked of a disk, each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PageRates {
    /// Of 4 KB, at random places.
    pub reads: f64,
    /// Of 4 KB, many in one call.
    pub writes: f64,
}

impl PageRates {
    pub fn total(self) -> f64 {
        self.reads + self.writes
    }
}

/// Which keys are updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    Uniform,
    Zipf,
}

impl Keys {
    pub const ALL: [Keys; 2] = [Keys::Uniform, Keys::Zipf];

    pub fn name(self) -> &'static str {
        match self {
            Keys::Uniform => "uniform",
            Keys::Zipf => "Zipf, 0.99",
        }
    }

    pub fn choice(self) -> KeyChoice {
        match self {
            Keys::Uniform => KeyChoice::Uniform,
            Keys::Zipf => KeyChoice::Zipf,
        }
    }
}

/// As many updates as the server takes, one under way on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Throughput {
    pub keys: Keys,
    pub per_second: f64,
    /// What the server read and wrote back.
    pub server: PageRates,
    /// What the disk does with as many writes a read; none if the server read nothing.
    pub disk: Option<PageRates>,
    /// CPU time of an update.
    pub cpu_ns: f64,
    /// Of all pages of the data.
    pub share_in_memory: f64,
}

/// Whose time is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Timed {
    /// Keys in memory; others, in memory too, are updated beside them.
    Resident,
    /// The same while the others are on disk, so that pages are evicted, and one checkpoint follows the other.
    ResidentBeside,
    /// Any keys, most of which are on disk.
    OnDisk,
    /// Reads of the disk at the rate of the former, with writes beside them.
    Disk,
}

impl Timed {
    pub const ALL: [Timed; 4] = [Timed::Resident, Timed::ResidentBeside, Timed::OnDisk, Timed::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Timed::Resident => "SET of keys in memory, nothing evicted or saved",
            Timed::ResidentBeside => "the same beside evictions and checkpoints",
            Timed::OnDisk => "SET of any key, most on disk",
            Timed::Disk => "the disk's reads, writes beside them",
        }
    }

    /// What it is held against.
    pub fn ruler(self) -> Option<Timed> {
        match self {
            Timed::ResidentBeside => Some(Timed::Resident),
            Timed::OnDisk => Some(Timed::Disk),
            Timed::Resident | Timed::Disk => None,
        }
    }
}

/// Times from when each was due, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    pub timed: Timed,
    /// As they were due.
    pub per_second: f64,
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// How late those were that the generator itself sent late.
    pub late_p999_ns: u64,
    pub checkpoint_count: u64,
    /// Pages of the server.
    pub evicted_per_second: f64,
}

impl Latency {
    pub fn of(timed: Timed, per_second: f64, taken: &Recording, late: Option<&Recording>) -> Latency {
        let taken = &taken.histogram;
        Latency {
            timed,
            per_second,
            count: taken.len(),
            p50_ns: taken.value_at_quantile(0.5),
            p99_ns: taken.value_at_quantile(0.99),
            p999_ns: taken.value_at_quantile(0.999),
            max_ns: taken.max(),
            late_p999_ns: late.map_or(0, |late| late.histogram.value_at_quantile(0.999)),
            checkpoint_count: 0,
            evicted_per_second: 0.0,
        }
    }
}

/// What one round measured.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// From 1 on.
    pub number: u64,
    /// How the server finds its pages.
    pub backend: &'static str,
    pub throughputs: Vec<Throughput>,
    pub latencies: Vec<Latency>,
}

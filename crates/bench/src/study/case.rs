//! What is measured, as a process is told, and what comes out.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::subject::Subject;
use crate::clock::NS_PER_MS;
use crate::stats::median;

/// A tick of the client (section 5.2.1).
pub const TICK_NS: u64 = 10 * NS_PER_MS;

/// Which rows are updated.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    Uniform,
    /// The exponent; hot rows are scattered over the data.
    Zipf(f64),
}

/// What an update writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// One word of its row, so what the row was is still needed.
    #[default]
    Part,
    /// All of its row, as in the paper's algorithms.
    Row,
}

/// One measurement. Two that are equal need not be measured twice.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    pub subject: Subject,
    pub data_bytes: u64,
    pub row_len: usize,
    pub updates_per_tick: u32,
    #[serde(default)]
    pub writes: Writes,
    pub draw: Draw,
    pub huge_pages: bool,
    pub round: u32,
}

impl Case {
    pub fn row_count(&self) -> u32 {
        u32::try_from(self.data_bytes / self.row_len as u64).unwrap_or(u32::MAX).max(1)
    }

    /// Memory that it needs at most, in bytes, images in the page cache not counted.
    pub fn memory_bytes(&self) -> u64 {
        // Epoch has 8 bytes a row and a budget, the others have bits; a page table is less than a hundredth.
        let flags = u64::from(self.row_count()) * 10;
        self.data_bytes * (1 + self.subject.copies_beside()) + flags + (256 << 20)
    }
}

/// A case and how it is run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub case: Case,
    pub work: Work,
    /// Spare frames and what is captured and not written, for those that have a bound.
    pub budget_bytes: u64,
    pub seed: u64,
    /// Images are written here.
    pub dir: PathBuf,
    /// Cores of the client and of what saves; empty where nothing is pinned.
    pub client_cpus: Vec<usize>,
    pub saver_cpus: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Work {
    Ticks(Ticks),
    /// No clock and one thread, for counting instructions and cache misses: so many ticks' updates, four cuts among them.
    Counted {
        ticks: u32,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ticks {
    /// Successive checkpoints.
    pub checkpoints: u32,
    /// No checkpoint but the first begins later.
    pub seconds: f64,
    /// Holds each image against the data as of its cut. Nothing is measured then.
    pub is_verified: bool,
    /// Keeps the latency of each tick.
    pub is_traced: bool,
    /// Times each update: the longest is told, at some 20 ns an update.
    pub is_each_timed: bool,
}

/// Of the ticks from the first cut to the end of the last image, but for those in which the machine itself stood still.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub tick_count: usize,
    /// Ticks that are left out: the machine stood still in them, or they waited for one in which it did.
    #[serde(default)]
    pub stopped_tick_count: usize,
    #[serde(default)]
    pub stop_count: usize,
    /// In all.
    #[serde(default)]
    pub stopped_ns: u64,
    /// From the time when the tick was due to the end of its updates.
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub p9999_ns: u64,
    pub max_ns: u64,
    /// The update stage alone, as the paper has it: from its beginning, late or not.
    pub stage_mean_ns: f64,
    pub stage_max_ns: u64,
    /// Time that each cut held the client.
    pub cut_ns: Vec<u64>,
    /// Of each checkpoint, from the cut until its image was durable.
    pub checkpoint_ns: Vec<u64>,
    /// Copies of rows that the client made. Those of the kernel are not counted.
    pub client_copies: u64,
    /// Rows that the client had to write to the image itself, because there was nowhere to keep them.
    pub helped_rows: u64,
    pub longest_update_ns: u64,
    pub image_bytes: u64,
    /// The most memory that this took, without what the program is itself.
    pub memory_bytes: u64,
    pub update_count: u64,
    pub verified_images: u32,
    /// (from the first cut, latency) of each tick, in ns.
    pub trace: Vec<(u64, u64)>,
    /// The same of those that are left out.
    #[serde(default)]
    pub stopped_trace: Vec<(u64, u64)>,
}

impl Outcome {
    /// The median time of a cut.
    pub fn cut_median_ns(&self) -> f64 {
        median(&self.cut_ns.iter().map(|ns| *ns as f64).collect::<Vec<_>>())
    }

    /// Whether updates took longer than there is time for.
    pub fn is_overloaded(&self) -> bool {
        self.stage_mean_ns > TICK_NS as f64
    }
}

/// What a measuring process says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Measured(Box<Outcome>),
    Failed { why: String },
}

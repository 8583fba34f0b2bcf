//! What a measurement is to do, as its rounds use it.

use crate::commands::Scratch;
use crate::load::workload::SizeRange;
use crate::pin::CpuPlan;

/// The arguments as the rounds use them.
pub struct Config {
    pub key_count: u64,
    pub value_bytes: usize,
    pub overwrite_size: SizeRange,
    pub rate: f64,
    pub burst: u64,
    pub clients: usize,
    pub pipeline: usize,
    pub rounds: usize,
    pub peer_rounds: usize,
    pub saves: usize,
    pub before_ns: u64,
    pub after_ns: u64,
    pub settle_ns: u64,
    pub spin_ns: u64,
    pub unix: bool,
    pub restart: bool,
    /// The servers keep a log, and BGREWRITEAOF is the save.
    pub rewrites: bool,
    pub data: Scratch,
    pub seed: u64,
    pub cpus: Option<CpuPlan>,
}

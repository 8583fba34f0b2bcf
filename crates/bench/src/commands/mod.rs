//! One file a subcommand.

pub mod advise;
pub mod checkpoint;
pub mod collections;
pub mod count;
pub mod cut;
pub mod durability;
pub mod exmap;
pub mod fill;
pub mod fork;
pub mod load;
pub mod memory;
pub mod null_server;
pub mod pause;
pub mod scripts;
pub mod streams;
pub mod study;
pub mod throughput;
pub mod vmcache;
pub mod waits;
pub mod workers;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::output::Output;
use crate::pin::{self, CpuArgs, CpuPlan};
use crate::resp::Address;
pub use crate::scratch::{DataArgs, Scratch};

/// A server that runs already.
#[derive(Clone, Debug, clap::Args)]
pub struct TargetArgs {
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    #[arg(short, long, value_name = "PORT", default_value_t = 6379)]
    pub port: u16,
    /// Connect through a unix socket instead
    #[arg(short = 's', long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl TargetArgs {
    pub fn target(&self) -> Address {
        match &self.socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Tcp { host: self.host.clone(), port: self.port },
        }
    }
}

/// Decides on the placement, notes it, and moves the harness itself off the server's cores.
pub fn place(args: &CpuArgs, out: &mut Output) -> Result<Option<CpuPlan>> {
    let plan = args.plan();
    if let Some(plan) = &plan {
        pin::check_plan(plan)?;
        pin::pin_current_thread(&plan.generator)?;
    }
    out.note("placement", plan.as_ref().map_or("nothing is pinned".to_owned(), CpuPlan::line));
    Ok(plan)
}

/// Size of the files right in a directory.
pub fn directory_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.flatten().filter_map(|e| e.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

//! A directory for what a measurement needs only while it runs.

use std::path::{Path, PathBuf};

/// Where the servers that a measurement starts keep their data.
#[derive(Clone, Debug, clap::Args)]
pub struct DataArgs {
    /// Directory for the servers' data, on the disk that is meant to be measured; a new directory in it is used
    /// and removed
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub data: PathBuf,
}

impl DataArgs {
    pub fn scratch(&self) -> Scratch {
        Scratch(self.data.join(format!("stillframe-bench-{}", std::process::id())))
    }
}

/// A directory that goes when the measurement ends, however it ends: it may hold many gigabytes.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been created; and a failure to remove it is not a failure to measure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

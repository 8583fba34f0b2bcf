//! The store against a model. A failure is replayed with `STILLFRAME_SEED=<seed>`.

mod contract;
mod expiry;
mod loading;
mod model;
mod resolve;
mod restart;
mod scan;
mod soak;
mod threads;

use std::path::{Path, PathBuf};

use stillframe_store::{Options, Store};

/// Seed of a random test, printed.
fn test_seed() -> u64 {
    let given = std::env::var("STILLFRAME_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("STILLFRAME_SEED={seed}");
    seed
}

/// A directory of its own, removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        let dir = std::env::temp_dir().join(format!("stillframe-store-{:016x}", fastrand::u64(..)));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        TempDir(dir)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Left-overs in the temporary directory fail no test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(dir: &TempDir, options: Options) -> Store {
    Store::open(dir.path(), options).expect("the store opens")
}

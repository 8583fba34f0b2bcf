//! A server from outside: directories and ports that nobody else has, its process, a client. What the tests of all
//! crates stand on, and the benchmark. It links none of the server: whatever takes redis-server's flags and speaks its
//! protocol can be started, told and watched.
//!
//! What a test asks of a server that is known to be there panics when it is not; the same under a name with `try`, or
//! with an [`std::io::Result`], is for tests in which it may be gone, and for programs.
#![forbid(unsafe_code)]

mod address;
mod backend;
mod client;
mod dir;
mod launch;
mod long_run;
mod process;
mod refusal;
mod reply;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use address::{Address, Port, Stream};
pub use backend::{log_flags, pool_backend, pool_backend_flags, pool_backend_name, simulates_exmap};
pub use client::Client;
pub use dir::TempDir;
pub use launch::{mortal, Launch};
pub use long_run::{long_run, Flags};
pub use process::{Process, Ready};
pub use refusal::{refuse, with_refused, SystemCall, IO_URING};
pub use reply::{encode, encoded, Reply};

/// Longer than any start or reply takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The seed of a random test: `STILLFRAME_SEED`, or a fresh one. Printed, so that a failure can be replayed.
#[must_use]
pub fn seed() -> u64 {
    seed_or(fastrand::u64(..))
}

/// The same, for a test that is the same each time unless it is told otherwise.
#[must_use]
pub fn seed_or(default: u64) -> u64 {
    let seed = std::env::var("STILLFRAME_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default);
    println!("STILLFRAME_SEED={seed}");
    seed
}

/// The seeds of a test that runs with several: from [`seed_or`] on, `STILLFRAME_SEEDS` of them, or `count`.
#[must_use]
pub fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let first = seed_or(first);
    let count = std::env::var("STILLFRAME_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(count);
    first..first.saturating_add(count)
}

/// Whether it becomes true in that time.
pub fn within(time: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if is_true() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `is_true`.
///
/// # Panics
/// If it never is.
pub fn eventually(what: &str, is_true: impl FnMut() -> bool) {
    assert!(within(PATIENCE, is_true), "never: {what}");
}

/// Where a program is: the path itself if it has directories, else the first of that name on the `PATH`.
#[must_use]
pub fn find_program(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

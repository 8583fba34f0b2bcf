//! This build's server at a socket.

use std::path::{Path, PathBuf};

use stillframe_testkit::pool_backend_flags;
pub use stillframe_testkit::{Client, Launch, Process, TempDir};

/// A server with its data in one directory, its socket and its logs in another.
pub fn server_in(dir: &Path, run_dir: &Path) -> Launch {
    // Another build, to see what a suite finds in it.
    let program = std::env::var_os("STILLFRAME_SERVER")
        .map_or_else(|| env!("CARGO_BIN_EXE_stillframe-server").into(), PathBuf::from);
    let mut launch = Launch::at_socket(program, dir);
    launch.run_dir = run_dir.into();
    launch.with(&pool_backend_flags())
}

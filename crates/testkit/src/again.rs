//! Suites that hold for several kinds of one thing: the whole of one runs again, told which.

use std::process::Command;
use std::str::FromStr;

/// How pools in tests find the bytes of their pages: as this variable says.
const POOL_BACKEND: &str = "STILLFRAME_POOL_BACKEND";

/// The backend that pools of this suite have: `STILLFRAME_POOL_BACKEND`, or the default.
#[must_use]
pub fn pool_backend<T: FromStr + Default>() -> T {
    pool_backend_name().map_or_else(T::default, |name| match name.parse() {
        Ok(backend) => backend,
        Err(_) => panic!("{POOL_BACKEND}={name}: there is no such backend"),
    })
}

/// The same by name, if the variable is set.
#[must_use]
pub fn pool_backend_name() -> Option<String> {
    std::env::var(POOL_BACKEND).ok()
}

/// Flags for a server of a suite that runs with either: the one of the variable, else the default of a store, whichever a server
/// would choose for what else it is told.
#[must_use]
pub fn pool_backend_flags() -> [String; 2] {
    ["--pool-backend".to_owned(), pool_backend_name().unwrap_or_else(|| "vmcache".to_owned())]
}

/// Runs the suite that calls this in one of its tests once more, with pages in frames: all of it, or the tests that have one
/// of these in their names. Nothing if it has been told already.
///
/// # Panics
/// If a test of it fails.
pub fn run_suite_on_array(filters: &[&str]) {
    if pool_backend_name().is_some() {
        return;
    }
    let suite = std::env::current_exe().expect("a test knows its own program");
    let status = Command::new(suite)
        .args(filters)
        .env(POOL_BACKEND, "array")
        .status()
        .expect("it can be started again");
    assert!(status.success(), "with {POOL_BACKEND}=array: {status}");
}

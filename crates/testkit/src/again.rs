//! Suites that hold for several kinds of one thing: the whole of one runs again, told which.

use std::process::Command;
use std::str::FromStr;

/// How pools in tests find the bytes of their pages: as this variable says.
const POOL_BACKEND: &str = "STILLFRAME_POOL_BACKEND";
/// Whether maps of the kernel module exmap are simulated.
const SIMULATED_EXMAP: &str = "STILLFRAME_SIMULATED_EXMAP";

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
    run_suite_on("array", None, filters);
}

/// The same with pages in a simulated map of the kernel module exmap. With the module itself: `STILLFRAME_POOL_BACKEND=exmap`.
///
/// # Panics
/// If a test of it fails.
pub fn run_suite_on_simulated_exmap(filters: &[&str]) {
    run_suite_on("exmap", Some(SIMULATED_EXMAP), filters);
}

/// Whether this suite has been told to do without the module.
#[must_use]
pub fn simulates_exmap() -> bool {
    std::env::var_os(SIMULATED_EXMAP).is_some()
}

fn run_suite_on(backend: &str, switch: Option<&str>, filters: &[&str]) {
    if pool_backend_name().is_some() {
        return;
    }
    let suite = std::env::current_exe().expect("a test knows its own program");
    let status = Command::new(suite)
        .args(filters)
        .env(POOL_BACKEND, backend)
        .envs(switch.map(|name| (name, "1")))
        .status()
        .expect("it can be started again");
    assert!(status.success(), "with {POOL_BACKEND}={backend}: {status}");
}

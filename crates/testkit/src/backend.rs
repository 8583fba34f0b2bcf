//! Suites that hold for each way from a page to its bytes: the environment says which, and `make test-all` runs them on all.

use std::str::FromStr;

/// How pools in tests find the bytes of their pages: as this variable says.
const POOL_BACKEND: &str = "STILLFRAME_POOL_BACKEND";
/// Whether servers keep a log, and when that is synced: a value of `appendfsync`.
const LOG_POLICY: &str = "STILLFRAME_APPENDFSYNC";
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

/// Flags for a server whose suite is to run with a log, as `STILLFRAME_APPENDFSYNC` says; none without the variable. What a test asks for
/// itself comes after them.
#[must_use]
pub fn log_flags() -> Vec<String> {
    let Ok(policy) = std::env::var(LOG_POLICY) else { return Vec::new() };
    ["--appendonly", "yes", "--appendfsync", &policy].map(str::to_owned).to_vec()
}

/// Whether this suite has been told to do without the module.
#[must_use]
pub fn simulates_exmap() -> bool {
    std::env::var_os(SIMULATED_EXMAP).is_some()
}

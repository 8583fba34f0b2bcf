//! What can go wrong, said so that the person at the terminal can act on it, and the exit code that scripts see.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::finding::Finding;

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(
        "the module async_fork is not loaded ({missing} is missing); load it with `stillframe-fork load`"
    )]
    NotLoaded { missing: String },
    #[error("{what}: not permitted; run this as root (CAP_SYS_ADMIN in the first user namespace)")]
    NotPermitted { what: String },
    #[error(
        "the loaded module speaks version {version} of the interface ({size} bytes of statistics), this program \
         version {} ({} bytes); build both from one source tree, then `stillframe-fork unload` and `load`",
        crate::version::VERSION,
        crate::version::STATISTICS_BYTES
    )]
    Version { version: u32, size: u32 },
    #[error(
        "the module returned {bytes} bytes of statistics instead of {}",
        crate::version::STATISTICS_BYTES
    )]
    ShortStatistics { bytes: usize },
    #[error("there is no process {pid}")]
    NoProcess { pid: i32 },
    #[error(
        "{unit} has no control group: it does not run, or the name is wrong (see `systemctl status {unit}`)"
    )]
    UnitNotRunning { unit: String },
    #[error("systemctl does not run ({0}); without systemd use --cgroup or --pid")]
    NoSystemctl(io::Error),
    #[error("{what} cannot be enabled for good: {why}")]
    NotPersistent { what: String, why: String },
    #[error("the files are written, but systemd has not read them: `systemctl daemon-reload` says: {0}")]
    NoReload(String),
    #[error("no memory cgroup hierarchy is mounted; use --pid, or mount cgroup2 at /sys/fs/cgroup")]
    NoHierarchy,
    #[error("{}: {why}", path.display())]
    NoCgroupFile { path: PathBuf, why: String },
    #[error(
        "{what}: the module was loaded without allow_odf=1, which On-Demand-Fork needs: memory below its shared \
         tables cannot be reclaimed, and Async-fork with one copy thread measured no worse. To have it all the same: \
         `stillframe-fork unload`, then `stillframe-fork load allow_odf=1`"
    )]
    OdfNotAllowed { what: String },
    #[error("{0}")]
    Usage(String),
    #[error("no {}.ko found; looked at {}; build it with `make -C kernel`, or say --path FILE", crate::version::MODULE, looked.join(", "))]
    NoModule { looked: Vec<String>, findings: Vec<Finding> },
    #[error("{module} was refused: {why}")]
    LoadRefused { module: String, why: String, findings: Vec<Finding>, log: Vec<String> },
    #[error("async_fork cannot be unloaded now: {0}")]
    UnloadRefused(String),
}

pub type Result<T> = std::result::Result<T, ForkError>;

/// What `stillframe-fork` exits with. Clap's own code for a wrong command line is 2.
pub mod exit_code {
    pub const FAILURE: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const NOT_LOADED: u8 = 3;
    pub const NOT_PERMITTED: u8 = 4;
    /// `doctor`: the process would use the default fork.
    pub const NOT_USED: u8 = 5;
}

impl ForkError {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit_code::USAGE,
            Self::NotLoaded { .. } => exit_code::NOT_LOADED,
            Self::NotPermitted { .. } => exit_code::NOT_PERMITTED,
            _ => exit_code::FAILURE,
        }
    }

    /// An I/O error with what was being done; refusals for lack of rights, or of the module, are told apart.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NotPermitted { what },
            Some(Errno::OPNOTSUPP) => Self::OdfNotAllowed { what },
            _ => Self::Io { what, source },
        }
    }
}

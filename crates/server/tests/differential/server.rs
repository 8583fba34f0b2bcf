//! Starting the servers under comparison.

use std::io;
use std::path::PathBuf;

use stillframe_testkit::{Client, Launch, Process, TempDir};

/// Which server to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Debian's `redis-server`, or the program that `STILLFRAME_ORACLE` names.
    Oracle,
    /// This build, or the program that `STILLFRAME_SUBJECT` names.
    Stillframe { worker_count: u32 },
    /// The same with less memory than large sequences have data.
    Small { worker_count: u32 },
    /// The same beside data of others that is read again and again: what a sequence has is in the page file most of the time.
    Crowded { worker_count: u32 },
}

impl Kind {
    fn worker_count(self) -> Option<u32> {
        match self {
            Kind::Oracle => None,
            Kind::Stillframe { worker_count }
            | Kind::Small { worker_count }
            | Kind::Crowded { worker_count } => Some(worker_count),
        }
    }

    /// Whether there is less memory than data.
    pub fn is_small(self) -> bool {
        matches!(self, Kind::Small { .. } | Kind::Crowded { .. })
    }
}

/// `maxmemory` of a small server: the least that pages get.
const SMALL_MEMORY: &str = "8mb";

/// With a single worker, as it runs by default.
pub const STILLFRAME: Kind = Kind::Stillframe { worker_count: 1 };

/// A server process with a directory of its own; both go when it is dropped.
pub struct Server {
    pub kind: Kind,
    process: Process,
    _dir: TempDir,
}

impl Server {
    pub fn start(kind: Kind) -> Server {
        let dir = TempDir::new("diff");
        let (variable, default) = match kind {
            Kind::Oracle => ("STILLFRAME_ORACLE", "redis-server"),
            Kind::Stillframe { .. } | Kind::Small { .. } | Kind::Crowded { .. } => {
                ("STILLFRAME_SUBJECT", env!("CARGO_BIN_EXE_stillframe-server"))
            }
        };
        let program: PathBuf = std::env::var_os(variable).unwrap_or(default.into()).into();
        let mut launch = Launch::at_socket(program, &dir).with(&["--enable-debug-command", "yes"]);
        if let Some(worker_count) = kind.worker_count() {
            launch = launch.with(&["--io-threads", &worker_count.to_string()]);
        }
        if kind.is_small() {
            launch = launch.with(&["--maxmemory", SMALL_MEMORY]);
        }
        let (process, _) = launch.start();
        Server { kind, process, _dir: dir }
    }

    pub fn connect(&self) -> io::Result<Client> {
        self.process.connect()
    }
}

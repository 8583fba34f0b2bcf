//! A server that is counted: how it is started, and which of its threads execute commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use stillframe_testkit::within;

use crate::count::cases::{Case, SEED};
use crate::error::{BenchError, Context, Result};
use crate::load::closed_loop::ClosedLoop;
use crate::load::rounds::Rounds;
use crate::peer::{Peer, PeerKind, Server, StartOptions};
use crate::procfs;

/// What is counted together.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub case: Case,
    pub pipeline: usize,
    pub worker_count: usize,
    /// Commands that are counted at least.
    pub command_count: u64,
    /// Of the data, one in so many.
    pub share_of: u64,
}

const CONNS: usize = 50;
/// Rounds before, in which buffers get their sizes.
const WARM_ROUNDS: u64 = 2;
/// Requests of a fill that are under way together. They go over one connection, so that their order is the same each time.
const FILL_PIPELINE: usize = 64;

impl Plan {
    pub fn line(&self) -> String {
        let workers = if self.worker_count == 1 { "worker" } else { "workers" };
        format!("{} -P {}, {} {workers}", self.case.name, self.pipeline, self.worker_count)
    }

    fn round(&self) -> u64 {
        (CONNS * self.pipeline) as u64
    }

    /// Starts the server, `under` a program if that has words, and fills it.
    pub fn start(&self, peer: &Peer, dir: &Path, under: Vec<String>) -> Result<Server> {
        let options = StartOptions { dir: dir.to_owned(), unix_socket: false, keeps_log: false, cpus: None };
        // Little is done by the clock.
        let mut launch = peer.launch(&options)?.with(&["--hz", "1"]);
        if peer.kind == PeerKind::Stillframe {
            let workers = self.worker_count.to_string();
            // valgrind knows no rings.
            launch = launch.with(&["--io-engine", "threads", "--workers", &workers]);
            launch.variables.push(("STILLFRAME_COUNTED".to_owned(), SEED.to_string()));
        }
        launch.under = under;
        let mut server = peer.spawn_as(&launch, None)?;
        server.wait_up()?;
        for mut fill in self.case.fills(SEED, self.share_of) {
            let closed = ClosedLoop { target: server.target.clone(), conn_count: 1, pipeline: FILL_PIPELINE };
            let report = closed.run_for(&mut fill, FILL_SECONDS, None)?;
            if let Some(error) = report.tally.first_error {
                return Err(BenchError::Failed(format!("{} answered with an error: {error}", server.name)));
            }
        }
        Ok(server)
    }

    /// Sends what is counted to a server. `counted` is handed what does so and returns how many commands that were.
    pub fn load<T>(
        &self,
        server: &Server,
        counted: impl FnOnce(&mut dyn FnMut() -> Result<u64>) -> Result<T>,
    ) -> Result<T> {
        let mut requests = self.case.requests(SEED, self.share_of);
        let mut rounds = Rounds::open(&server.target, server.pid(), CONNS, self.worker_count, self.pipeline)?;
        rounds.run(&mut requests, WARM_ROUNDS * self.round())?;
        settle(server)?;
        counted(&mut || rounds.run(&mut requests, self.command_count))
    }
}

/// Longer than any fill takes.
const FILL_SECONDS: f64 = 3600.0;
const QUIET: Duration = Duration::from_millis(400);
const SETTLE_ROUNDS_MAX: usize = 150;

/// Waits until what the server does in the background has come to rest: its clock stands still.
fn settle(server: &Server) -> Result<()> {
    let mut before_ns = server.cpu_time_ns();
    for _ in 0..SETTLE_ROUNDS_MAX {
        std::thread::sleep(QUIET);
        let now_ns = server.cpu_time_ns();
        // A tick is what a round of its clock may take.
        if now_ns.saturating_sub(before_ns) <= TICK_NS {
            return Ok(());
        }
        before_ns = now_ns;
    }
    Err(BenchError::Failed(format!("{} does not come to rest", server.name)))
}

const TICK_NS: u64 = 10_000_000;

/// The threads that execute commands: those that are called workers, else the first.
pub fn worker_threads(pid: u32) -> Vec<u32> {
    let threads = procfs::threads(pid);
    let mut workers: Vec<u32> =
        threads.iter().filter(|(_, name)| name.starts_with("worker")).map(|(tid, _)| *tid).collect();
    if workers.is_empty() {
        workers.push(pid);
    }
    workers.sort_unstable();
    workers
}

/// Runs a program that the counts need to its end.
pub fn run_tool(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|_| no_tool(&name))?;
    match output.status.success() {
        true => Ok(output),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(BenchError::Failed(format!("{name} failed: {said}")))
        }
    }
}

pub fn no_tool(name: &str) -> BenchError {
    BenchError::NoBinary {
        binary: name.to_owned(),
        hint: "scripts/setup.sh count installs valgrind, strace and binutils".to_owned(),
    }
}

/// Waits until it is true.
pub fn wait_until(what: &str, is_true: impl FnMut() -> bool) -> Result<()> {
    match within(Duration::from_secs(60), is_true) {
        true => Ok(()),
        false => Err(BenchError::Failed(format!("never: {what}"))),
    }
}

/// Makes a directory of its own for one start.
pub fn directory(scratch: &Path, name: &str) -> Result<PathBuf> {
    let dir = scratch.join(name);
    std::fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

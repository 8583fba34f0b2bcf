//! The servers that are compared: how each is found, started, pinned, told to save, watched and stopped.
//! Anything that takes redis-server's flags and speaks RESP2 can be a peer.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use stillframe_testkit::{find_program, Launch, Process, Ready};

use crate::clock::{now_ns, NS_PER_S};
use crate::error::{BenchError, Context, Result};
use crate::pin::{self, CpuPlan};
use crate::procfs;
use crate::resp::{Address, Client, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    Redis,
    Valkey,
    Stillframe,
}

#[derive(Clone, Debug)]
pub struct Peer {
    pub name: String,
    pub kind: PeerKind,
    pub binary: PathBuf,
    /// Flags in addition to those every start gets.
    pub args: Vec<String>,
}

/// Which servers take part.
#[derive(Clone, Debug, clap::Args)]
pub struct PeerArgs {
    /// Servers to measure, in this order in each round [default: redis and stillframe, as far as installed]
    #[arg(long, value_delimiter = ',', value_name = "redis,stillframe,valkey")]
    pub peers: Option<Vec<String>>,
    /// The stillframe-server binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub stillframe: Option<PathBuf>,
    /// The redis-server binary
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    pub redis: PathBuf,
    /// The valkey-server binary
    #[arg(long, value_name = "PATH", default_value = "valkey-server")]
    pub valkey: PathBuf,
    /// Another Stillframe with more flags, e.g. 'spin=--busy-poll 50', or of another build, whose path comes first:
    /// 'before=/path/to/stillframe-server'; may be given several times
    #[arg(long, value_name = "NAME=[PATH ]FLAGS")]
    pub variant: Vec<String>,
    /// A flag for every Stillframe, e.g. --stillframe-flag='--snapshot-memory 64mb'
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    pub stillframe_flag: Vec<String>,
    /// A flag for every Redis or Valkey
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    pub redis_flag: Vec<String>,
}

impl PeerArgs {
    /// The peers in order. Those named must be there; of the default ones, Stillframe and Redis, those that are.
    pub fn resolve(&self) -> Result<Vec<Peer>> {
        let mut peers = match &self.peers {
            Some(names) => names.iter().map(|n| self.peer(n)).collect::<Result<Vec<_>>>()?,
            None => self.installed(&["redis", "stillframe"]),
        };
        for variant in &self.variant {
            peers.push(self.variant(variant)?);
        }
        if peers.is_empty() {
            return Err(BenchError::NoBinary {
                binary: "redis-server or stillframe-server".to_owned(),
                hint: "install redis-server, or build stillframe-server, or pass --redis/--stillframe PATH"
                    .to_owned(),
            });
        }
        Ok(peers)
    }

    /// The same, and Valkey, too, if it is installed and others were not asked for.
    pub fn resolve_with_valkey(&self) -> Result<Vec<Peer>> {
        let mut peers = self.resolve()?;
        if self.peers.is_none() {
            peers.extend(self.peer("valkey"));
        }
        Ok(peers)
    }

    fn variant(&self, variant: &str) -> Result<Peer> {
        let (name, rest) = variant
            .split_once('=')
            .ok_or_else(|| BenchError::Failed(format!("--variant {variant:?}: give NAME=FLAGS")))?;
        let mut peer = self.peer("stillframe")?;
        peer.name = format!("stillframe-{name}");
        let mut words = rest.split_whitespace().peekable();
        if let Some(path) = words.next_if(|word| !word.starts_with('-')) {
            peer.binary = find_program(Path::new(path)).ok_or_else(|| BenchError::NoBinary {
                binary: path.to_owned(),
                hint: format!("--variant {name} names a program that is not there"),
            })?;
        }
        peer.args.extend(words.map(str::to_owned));
        Ok(peer)
    }

    fn installed(&self, names: &[&str]) -> Vec<Peer> {
        let mut found = Vec::new();
        for name in names {
            match self.peer(name) {
                Ok(peer) => found.push(peer),
                Err(e) => eprintln!("leaving out {name}: {e}"),
            }
        }
        found
    }

    pub fn peer(&self, name: &str) -> Result<Peer> {
        let words =
            |flags: &[String]| flags.iter().flat_map(|f| f.split_whitespace()).map(str::to_owned).collect();
        let (kind, binary, args): (_, _, Vec<String>) = match name {
            "redis" => (PeerKind::Redis, find_program(&self.redis), words(&self.redis_flag)),
            "valkey" => (PeerKind::Valkey, find_program(&self.valkey), words(&self.redis_flag)),
            "stillframe" => (
                PeerKind::Stillframe,
                stillframe_binary(self.stillframe.as_deref()),
                words(&self.stillframe_flag),
            ),
            _ => {
                return Err(BenchError::Failed(format!(
                    "unknown peer {name:?}: use redis, stillframe or valkey"
                )));
            }
        };
        Ok(Peer { name: name.to_owned(), kind, binary: or_no_binary(name, binary)?, args })
    }
}

fn or_no_binary(name: &str, binary: Option<PathBuf>) -> Result<PathBuf> {
    binary.ok_or_else(|| BenchError::NoBinary {
        binary: format!("{name}-server"),
        hint: format!("install or build it, or pass its path with --{name}"),
    })
}

/// The server at `path`, or the one beside this program.
fn stillframe_binary(path: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = path {
        return path.is_file().then(|| path.to_owned());
    }
    let own = std::env::current_exe().ok()?;
    let beside = own.parent()?.join("stillframe-server");
    beside.is_file().then_some(beside)
}

#[derive(Clone, Debug)]
pub struct StartOptions {
    /// The server's `dir`; created if missing.
    pub dir: PathBuf,
    pub unix_socket: bool,
    /// With a log of changes, synced once a second.
    pub keeps_log: bool,
    pub cpus: Option<CpuPlan>,
}

/// Loading 100 GB from a slow disk is within this.
const START_TIMEOUT: Duration = Duration::from_secs(900);

impl Peer {
    /// This project's server at `path`, or the one beside this program.
    ///
    /// # Errors
    /// There is none.
    pub fn stillframe(path: Option<&Path>) -> Result<Peer> {
        let name = "stillframe";
        let binary = or_no_binary(name, stillframe_binary(path))?;
        Ok(Peer { name: name.to_owned(), kind: PeerKind::Stillframe, binary, args: Vec::new() })
    }

    /// The binary's own words about its version.
    pub fn version(&self) -> String {
        let out = Command::new(&self.binary).arg("--version").stdin(Stdio::null()).output();
        let text = out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("unknown version").trim().to_owned()
    }

    /// Starts the server and returns at once; it may still be loading.
    pub fn spawn(&self, options: &StartOptions) -> Result<Server> {
        self.spawn_as(&self.launch(options)?, options.cpus.as_ref())
    }

    /// How it is started.
    pub fn launch(&self, options: &StartOptions) -> Result<Launch> {
        let dir = &options.dir;
        std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        let launch = match options.unix_socket {
            true => Launch::at_socket(&self.binary, dir),
            false => Launch::at_port(&self.binary, dir).context(|| "find a free port".to_owned())?,
        };
        let mut launch = launch
            .with(&["--appendonly", if options.keeps_log { "yes" } else { "no" }])
            .with(&self.cpu_lists(options.cpus.as_ref()));
        launch.args.extend(self.args.iter().cloned());
        launch.is_mortal = true;
        Ok(launch)
    }

    /// As `spawn`, started in another way.
    pub fn spawn_as(&self, launch: &Launch, cpus: Option<&CpuPlan>) -> Result<Server> {
        let start = || launch.try_spawn().context(|| format!("start {}", self.name));
        let process = match cpus {
            Some(plan) => pin::started_on(&plan.server, start)?,
            None => start()?,
        };
        let target = process.address().clone();
        Ok(Server { name: self.name.clone(), process, target, cpus: cpus.cloned() })
    }

    /// Starts the server and waits until it answers.
    pub fn start(&self, options: &StartOptions) -> Result<Server> {
        let mut server = self.spawn(options)?;
        server.wait_up()?;
        Ok(server)
    }

    /// Redis moves its own children and background threads, at once; for others `Server::pin` does so.
    fn cpu_lists(&self, cpus: Option<&CpuPlan>) -> Vec<String> {
        let (Some(plan), PeerKind::Redis | PeerKind::Valkey) = (cpus, self.kind) else { return Vec::new() };
        let (server, saver) = (pin::list(&plan.server), pin::list(&plan.saver));
        let lists =
            [("--server_cpulist", server), ("--bio_cpulist", saver.clone()), ("--bgsave_cpulist", saver)];
        lists.into_iter().flat_map(|(name, list)| [name.to_owned(), list]).collect()
    }
}

/// A running server; killed when dropped.
pub struct Server {
    pub name: String,
    process: Process,
    pub target: Address,
    cpus: Option<CpuPlan>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until PING is answered (Redis answers it only when it has loaded).
    pub fn wait_up(&mut self) -> Result<()> {
        let result = self.process.try_wait_until(Ready::Serving, START_TIMEOUT, || {});
        result.map_err(|error| self.no_start(&error.to_string()))?;
        self.pin();
        Ok(())
    }

    pub fn check_alive(&mut self) -> Result<()> {
        match self.process.exited() {
            Ok(Some(status)) => Err(self.no_start(&format!("it ended with {status}"))),
            _ => Ok(()),
        }
    }

    fn no_start(&self, why: &str) -> BenchError {
        let text = self.process.log();
        let tail: Vec<_> = text.lines().rev().take(3).collect();
        let said = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
        BenchError::NoStart {
            peer: self.name.clone(),
            why: format!("{why}; it said: {said}"),
            log: self.process.log_path().to_owned(),
        }
    }

    pub fn client(&self) -> Result<Client> {
        Client::connect(&self.target)
    }

    /// Puts threads and children on their cores; cheap enough to repeat.
    pub fn pin(&self) {
        if let Some(plan) = &self.cpus {
            plan.apply_to_server(self.pid());
        }
    }

    /// Memory of the server and its children, every page counted once.
    pub fn pss_bytes(&self) -> u64 {
        procfs::process_tree(self.pid()).into_iter().map(procfs::pss_bytes).sum()
    }

    pub fn cpu_time_ns(&self) -> u64 {
        procfs::cpu_time_ns(self.pid())
    }

    /// Stops without a save and waits for the end.
    pub fn stop_without_save(mut self) -> Result<()> {
        if let Ok(mut client) = self.client() {
            // The server closes the connection instead of answering.
            let _ = client.request(&["SHUTDOWN", "NOSAVE"]);
        }
        match self.process.try_wait(Duration::from_secs(60)) {
            Ok(Some(_)) => Ok(()),
            _ => {
                let name = &self.name;
                Err(BenchError::Failed(format!("{name} did not stop within a minute of SHUTDOWN NOSAVE")))
            }
        }
    }
}

/// A save as seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct SaveTimes {
    /// When BGSAVE was sent: the cut follows.
    pub begin_ns: u64,
    /// When BGSAVE was answered.
    pub accepted_ns: u64,
    /// When the server said that the save was done; at most one poll late.
    pub end_ns: u64,
}

impl SaveTimes {
    pub fn save_ns(&self) -> u64 {
        self.end_ns - self.begin_ns
    }
}

/// A command that saves, and the fields of `INFO` that tell of its end.
struct SaveBy {
    command: &'static str,
    /// All 0 once it is over.
    idle: &'static [&'static str],
    status: &'static str,
}

const BGSAVE: SaveBy =
    SaveBy { command: "BGSAVE", idle: &["rdb_bgsave_in_progress"], status: "rdb_last_bgsave_status" };
const BGREWRITEAOF: SaveBy = SaveBy {
    command: "BGREWRITEAOF",
    idle: &["aof_rewrite_in_progress", "aof_rewrite_scheduled"],
    status: "aof_last_bgrewrite_status",
};

const SAVE_POLL: Duration = Duration::from_millis(5);
const SAVE_TIMEOUT_NS: u64 = 3600 * NS_PER_S;

impl Server {
    /// BGSAVE, and wait until it is done. `each_poll` runs between polls.
    pub fn save(&self, client: &mut Client, each_poll: impl FnMut()) -> Result<SaveTimes> {
        self.save_by(&BGSAVE, client, each_poll)
    }

    /// BGREWRITEAOF likewise.
    pub fn rewrite(&self, client: &mut Client) -> Result<SaveTimes> {
        self.save_by(&BGREWRITEAOF, client, || {})
    }

    fn save_by(&self, how: &SaveBy, client: &mut Client, mut each_poll: impl FnMut()) -> Result<SaveTimes> {
        let (name, command) = (&self.name, how.command);
        let begin_ns = now_ns();
        let reply = client.call(&[command])?;
        let accepted_ns = now_ns();
        if !matches!(&reply, Reply::Simple(_)) {
            return Err(BenchError::Failed(format!("{name}: unexpected reply to {command}: {reply:?}")));
        }
        loop {
            self.pin();
            let info = client.info("everything")?;
            if how.idle.iter().all(|field| info.get(*field).map(String::as_str) == Some("0")) {
                return match info.get(how.status).map(String::as_str) {
                    Some("ok") => Ok(SaveTimes { begin_ns, accepted_ns, end_ns: now_ns() }),
                    status => Err(BenchError::Failed(format!(
                        "{name}: {command} ended with {} {status:?}; see {}",
                        how.status,
                        self.process.log_path().display()
                    ))),
                };
            }
            if now_ns() - begin_ns > SAVE_TIMEOUT_NS {
                return Err(BenchError::Failed(format!("{}: a save took more than an hour", self.name)));
            }
            each_poll();
            std::thread::sleep(SAVE_POLL);
        }
    }
}

//! This build's server on a TCP port of its own.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

pub use stillframe_testkit::{encoded, eventually, Client, Port, Reply, TempDir};
use stillframe_testkit::{pool_backend_flags, Launch, Process, Ready};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_stillframe-server");

/// A new empty directory.
pub fn temp_dir() -> TempDir {
    TempDir::new("net")
}

pub fn binary() -> Command {
    Command::new(PROGRAM)
}

/// The server's program, run under limits of the shell's (`-n 200`).
pub fn binary_limited(limits: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limits}; exec \"$0\" \"$@\""), PROGRAM]);
    command
}

pub struct TestServer {
    process: Process,
    pub dir: PathBuf,
    pub port: u16,
    own_dir: Option<TempDir>,
    /// For the log: the data's directory is the server's alone.
    _run_dir: TempDir,
}

impl TestServer {
    /// Starts a server that does not save by itself.
    pub fn start(args: &[&str]) -> TestServer {
        TestServer::start_by(Some(temp_dir()), None, None, args)
    }

    pub fn start_in(dir: &Path, args: &[&str]) -> TestServer {
        TestServer::start_by(None, Some(dir), None, args)
    }

    /// Starts it where something lies already; the directory goes with it.
    pub fn start_owning(dir: TempDir, args: &[&str]) -> TestServer {
        TestServer::start_by(Some(dir), None, None, args)
    }

    /// Starts it with limits of the shell's (`-n 200`).
    pub fn start_limited(limits: &str, args: &[&str]) -> TestServer {
        TestServer::start_by(Some(temp_dir()), None, Some(limits), args)
    }

    fn start_by(own: Option<TempDir>, dir: Option<&Path>, limits: Option<&str>, args: &[&str]) -> TestServer {
        let dir = dir.or(own.as_deref()).expect("one of the two").to_owned();
        let mut launch = Launch::at_port(PROGRAM, &dir).expect("a port");
        let run_dir = temp_dir();
        launch.run_dir = run_dir.path().to_owned();
        launch.limits = limits.map(str::to_owned);
        let launch = launch.with(&pool_backend_flags()).with(&["--enable-debug-command", "yes"]);
        let process = start_listening(&launch.with(args));
        TestServer { port: port_of(&process), process, dir, own_dir: own, _run_dir: run_dir }
    }

    /// Ends it by a signal and starts it again in its directory.
    pub fn restarted(mut self, signal: Signal, args: &[&str]) -> TestServer {
        self.signal(signal);
        self.wait();
        let own = self.own_dir.take();
        TestServer::start_by(own, Some(&self.dir), None, args)
    }

    pub fn connect(&self) -> Client {
        self.process.client()
    }
}

/// As soon as it answers, also if it is loading still.
pub fn start_listening(launch: &Launch) -> Process {
    let mut process = launch.spawn();
    process.wait_until(Ready::Listening);
    process
}

pub fn port_of(process: &Process) -> u16 {
    match process.address() {
        stillframe_testkit::Address::Tcp { port, .. } => *port,
        other => panic!("{other} is no port"),
    }
}

impl Deref for TestServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for TestServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Runs `script` with connections to a server of ours, and of Redis, and holds what it returns against each other.
pub fn beside_redis(args: &[&str], script: &dyn Fn(&mut dyn FnMut() -> Client) -> Vec<Reply>) {
    let dir = temp_dir();
    let (redis, _) = Launch::at_socket("redis-server", &dir).with(&["--enable-debug-command", "yes"]).start();
    let theirs = script(&mut || Client::new(redis.address().connect().unwrap()));
    for workers in ["1", "2"] {
        let server = TestServer::start(&[args, &["--workers", workers]].concat());
        let ours = script(&mut || server.connect());
        for (at, (our, their)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(
                our,
                their,
                "reply {at} after {:?}, {workers} workers",
                &ours[at.saturating_sub(3)..at]
            );
        }
        assert_eq!(ours.len(), theirs.len());
    }
}

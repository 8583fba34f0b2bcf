//! How a server is started: Stillframe, Redis and Valkey take the same flags.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::address::{Address, Port};
use crate::backend::{log_flags, pool_backend_name};
use crate::find_program;
use crate::process::{Process, Ready};

/// A server as it can be started, as often as one likes: it saves when it is told to only, and answers at one address.
#[derive(Clone, Debug)]
pub struct Launch {
    pub program: PathBuf,
    /// Where it keeps its data.
    pub dir: PathBuf,
    /// Where its socket and the logs of its starts go.
    pub run_dir: PathBuf,
    pub args: Vec<String>,
    /// User and group to run as, where it is not the caller's.
    pub user: Option<u32>,
    /// Limits of the shell's, as `-n 200`.
    pub limits: Option<String>,
    /// A program with its first words that runs the server, as valgrind does.
    pub under: Vec<String>,
    /// Variables of its environment beside the caller's.
    pub variables: Vec<(String, String)>,
    /// Whether it ends with the thread that starts it, however that ends (where `setpriv` is installed).
    pub is_mortal: bool,
    /// None: a socket in `run_dir`.
    port: Option<Port>,
}

impl Launch {
    /// Listens at a socket in its directory.
    #[must_use]
    pub fn at_socket(program: impl Into<PathBuf>, dir: &Path) -> Launch {
        Launch {
            program: program.into(),
            dir: dir.into(),
            run_dir: dir.into(),
            args: Vec::new(),
            user: None,
            limits: None,
            under: Vec::new(),
            variables: Vec::new(),
            is_mortal: false,
            port: None,
        }
    }

    /// Listens at a TCP port of the local host that is its own as long as this or its process is there.
    ///
    /// # Errors
    /// No port is left.
    pub fn at_port(program: impl Into<PathBuf>, dir: &Path) -> io::Result<Launch> {
        Ok(Launch { port: Some(Port::reserve()?), ..Launch::at_socket(program, dir) })
    }

    /// With more flags.
    #[must_use]
    pub fn with(mut self, args: &[impl AsRef<str>]) -> Launch {
        self.args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn address(&self) -> Address {
        match &self.port {
            Some(port) => Address::local(port.number()),
            None => Address::Unix(self.run_dir.join("s")),
        }
    }

    fn command(&self) -> Command {
        let mut words = self.under.iter().map(Path::new).chain([&*self.program]);
        let program = words.next().unwrap_or(&self.program);
        let mut command = match (&self.limits, self.is_mortal) {
            (Some(limits), _) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("ulimit {limits}; exec \"$0\" \"$@\"")]).arg(program);
                command
            }
            (None, true) => mortal(program),
            (None, false) => Command::new(program),
        };
        command.args(words).envs(self.variables.iter().map(|(name, value)| (name, value)));
        match self.address() {
            Address::Tcp { host, port } => command.args(["--port", &port.to_string(), "--bind", &host]),
            Address::Unix(path) => command.args(["--port", "0", "--unixsocket"]).arg(path),
        };
        command.args(["--save", "", "--dir"]).arg(&self.dir);
        if self.program.file_stem().is_some_and(|name| name == "stillframe-server") {
            command.args(pool_backend_name().iter().flat_map(|name| ["--pool-backend", name]));
            command.args(log_flags());
        }
        command.args(&self.args).stdin(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Starts the server and does not wait for it.
    ///
    /// # Errors
    /// There is no such program, or its log cannot be created.
    pub fn try_spawn(&self) -> io::Result<Process> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let log = self.run_dir.join(format!("log-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let log_file = File::create(&log).map_err(|error| naming(&log, &error))?;
        let mut command = self.command();
        command.stdout(log_file.try_clone()?).stderr(log_file);
        let child = loop {
            match command.spawn() {
                // A child that another thread has just forked still has the copy of the program open.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                result => break result.map_err(|error| naming(&self.program, &error))?,
            }
        };
        Ok(Process::new(child, self.address(), self.port.clone(), log))
    }
}

fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A program that does not outlive a caller that is killed, where setpriv is installed.
pub fn mortal(program: &Path) -> Command {
    match find_program(Path::new("setpriv")) {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Panics, with the log, if the server does not do what is expected.
#[allow(clippy::missing_panics_doc)]
impl Launch {
    #[must_use]
    pub fn spawn(&self) -> Process {
        self.try_spawn().unwrap_or_else(|error| panic!("{error}; scripts/setup.sh installs redis-server"))
    }

    /// Starts the server and waits until it serves. Returns how long that took.
    #[must_use]
    pub fn start(&self) -> (Process, Duration) {
        let begin = Instant::now();
        let mut process = self.spawn();
        process.wait_until(Ready::Serving);
        (process, begin.elapsed())
    }

    /// Starts the server, which must refuse; returns its log.
    pub fn refused(&self) -> String {
        let mut process = self.spawn();
        let status = process.wait();
        let log = process.log();
        assert!(!status.success(), "it ended with success:\n{log}");
        assert!(status.code().is_some(), "it was killed by a signal ({status}):\n{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }
}

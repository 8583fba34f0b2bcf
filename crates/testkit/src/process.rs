//! A server that was started.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::address::{Address, Port};
use crate::client::Client;
use crate::reply::Reply;
use crate::PATIENCE;

/// What a start is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It answers, if only that it is loading.
    Listening,
    /// It has its data.
    Serving,
}

/// The process of a server; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    address: Address,
    log: PathBuf,
    is_gone: bool,
    /// Nobody else gets it before the process has gone.
    _port: Option<Port>,
}

impl Process {
    pub(crate) fn new(child: Child, address: Address, port: Option<Port>, log: PathBuf) -> Process {
        Process { child, address, log, is_gone: false, _port: port }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[must_use]
    pub fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What it has said since its start.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Lines of the log that are warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(" # ")).map(str::to_owned).collect()
    }

    /// The exit status, if the process has ended.
    ///
    /// # Errors
    /// Those of the system.
    pub fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The exit status, or none if it has not ended after that time.
    ///
    /// # Errors
    /// Those of the system.
    pub fn try_wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            let status = self.exited()?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it is ready. `each_poll` runs between two looks.
    ///
    /// # Errors
    /// It has ended, is not ready in time, or answers what no server says that starts.
    pub fn try_wait_until(
        &mut self,
        ready: Ready,
        patience: Duration,
        mut each_poll: impl FnMut(),
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let is_ready = match ready {
                Ready::Listening => self.is_listening(),
                Ready::Serving => self.is_serving()?,
            };
            if is_ready {
                return Ok(());
            }
            if let Some(status) = self.exited()? {
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer PING"));
            }
            each_poll();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The connection is gone again when this returns: tests count them.
    fn is_listening(&self) -> bool {
        let Ok(mut client) = self.connect() else { return false };
        client.stream.write_all(b"QUIT\r\n").is_ok() && client.stream.read_to_end(&mut Vec::new()).is_ok()
    }

    fn is_serving(&self) -> io::Result<bool> {
        match self.connect().and_then(|mut client| client.try_run("PING")) {
            Ok(Reply::Simple(text)) if text == b"PONG" => Ok(true),
            Ok(Reply::Error(text)) if text.starts_with(b"LOADING") => Ok(false),
            Ok(other) => Err(io::Error::other(format!("PING is answered by {other:?}"))),
            Err(_) => Ok(false),
        }
    }

    /// # Errors
    /// It does not listen.
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(&self.address, PATIENCE)
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(name));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.unwrap_or_else(|| panic!("no {name} of process {} in {status:?}", self.pid())) << 10
    }
}

/// Of a server that is known to be there; panics, with the log, if it is not.
#[allow(clippy::missing_panics_doc)]
impl Process {
    pub fn wait_until(&mut self, ready: Ready) {
        let result = self.try_wait_until(ready, PATIENCE, || {});
        result.unwrap_or_else(|error| panic!("the server has not started: {error}\n{}", self.log()));
    }

    /// False if it refuses to start.
    pub fn try_wait_until_serving(&mut self) -> bool {
        let result = self.try_wait_until(Ready::Serving, PATIENCE, || {});
        match (result, self.exited().expect("wait for the server")) {
            (Ok(()), _) => true,
            (Err(_), Some(status)) => {
                assert_eq!(status.code(), Some(1), "{status}\n{}", self.log());
                false
            }
            (Err(error), None) => panic!("{error}\n{}", self.log()),
        }
    }

    #[must_use]
    pub fn client(&self) -> Client {
        self.connect().unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.try_wait(PATIENCE).expect("wait for the server");
        status.unwrap_or_else(|| panic!("the server does not end:\n{}", self.log()))
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.process(), signal)
            .expect("a process that has not been waited for");
    }

    /// `kill -9`; fails if the server had ended otherwise before.
    pub fn kill(mut self) {
        let status = self.exited().expect("wait for the server");
        if let Some(status) = status.filter(|status| status.signal() != Some(Signal::KILL.as_raw())) {
            panic!("the server has ended by itself: {status}\n{}", self.log());
        }
        self.end();
        let log = self.log();
        assert!(!log.contains("panicked"), "{log}");
    }

    fn end(&mut self) {
        if !self.is_gone {
            self.is_gone = true;
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Resident memory in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS")
    }

    /// The most that it has been.
    #[must_use]
    pub fn peak_resident_bytes(&self) -> u64 {
        self.status_bytes("VmHWM")
    }

    /// Its threads of this name.
    #[must_use]
    pub fn thread_count(&self, name: &str) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the process runs");
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|comm| comm.trim_end() == name).count()
    }

    /// The soft limit of open files.
    #[must_use]
    pub fn file_limit(&self) -> u64 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.pid())).expect("its limits");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit of files");
        line.split_whitespace().nth(3).and_then(|word| word.parse().ok()).expect("a number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

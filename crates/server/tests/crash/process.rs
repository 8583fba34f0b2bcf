//! A `stillframe-server` process in a directory of its own, and connections to it.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::resp::{encode, Reply};

/// Longer than any start or reply takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that goes when it is dropped, unless a test has failed: then it is evidence.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sf-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for a look: {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// How a server is started.
pub struct Setup {
    pub program: PathBuf,
    /// Where it keeps its data.
    pub dir: PathBuf,
    /// Where its socket and its log go.
    pub run_dir: PathBuf,
    pub args: Vec<String>,
    /// User and group to run as, where it is not the tester's.
    pub user: Option<u32>,
}

impl Setup {
    pub fn new(dir: &Path, run_dir: &Path) -> Setup {
        Setup {
            // Another build, to see what a suite finds in it.
            program: std::env::var_os("STILLFRAME_SERVER")
                .map_or_else(|| env!("CARGO_BIN_EXE_stillframe-server").into(), PathBuf::from),
            dir: dir.into(),
            run_dir: run_dir.into(),
            args: Vec::new(),
            user: None,
        }
    }

    pub fn with(mut self, args: &[&str]) -> Setup {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Starts the server and does not wait for it.
    pub fn spawn(&self) -> Server {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (socket, log) = (self.run_dir.join("s"), self.run_dir.join(format!("log-{number}")));
        let log_file = std::fs::File::create(&log).expect("a log file");
        let mut command = Command::new(&self.program);
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(&self.dir).args(&self.args);
        command.stdin(Stdio::null()).stdout(log_file.try_clone().expect("a log file")).stderr(log_file);
        if let Some(user) = self.user {
            use std::os::unix::process::CommandExt;
            command.uid(user).gid(user);
        }
        let child = loop {
            match command.spawn() {
                // A child that another thread has just forked still has the copy of the program open.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                result => break result.unwrap_or_else(|e| panic!("{}: {e}", self.program.display())),
            }
        };
        Server { child, socket, log, is_gone: false }
    }

    /// Starts the server and waits until it answers. Returns how long that took.
    pub fn start(&self) -> (Server, Duration) {
        let begin = Instant::now();
        let mut server = self.spawn();
        server.wait_until_ready();
        (server, begin.elapsed())
    }

    /// Starts the server, which must refuse; returns its log.
    pub fn refused(&self) -> String {
        let mut server = self.spawn();
        let status = server.wait();
        let log = server.log();
        assert!(!status.success(), "it ended with success:\n{log}");
        assert!(status.code().is_some(), "it was killed by a signal ({status}):\n{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }
}

pub struct Server {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    is_gone: bool,
}

impl Server {
    pub fn wait_until_ready(&mut self) {
        assert!(self.try_wait_until_ready(), "the server has not started:\n{}", self.log());
    }

    /// False if it refuses to start.
    pub fn try_wait_until_ready(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.connect().and_then(|mut conn| conn.text("PING"));
            match answer {
                Ok(Reply::Line { tag: b'+', text }) if text == b"PONG" => return true,
                Ok(Reply::Line { tag: b'-', text }) if text.starts_with(b"LOADING") => {}
                Ok(other) => panic!("PING is answered by {other:?}\n{}", self.log()),
                Err(_) => {}
            }
            if let Some(status) = self.exited() {
                assert_eq!(status.code(), Some(1), "{status}\n{}", self.log());
                return false;
            }
            assert!(Instant::now() < deadline, "the server does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn connect(&self) -> io::Result<Conn> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Conn { reader: BufReader::new(stream.try_clone()?), stream, out: Vec::new() })
    }

    /// A connection to a server that is known to be there.
    pub fn conn(&self) -> Conn {
        self.connect().unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// The exit status, if the process has ended by itself.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for the server")
    }

    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends the signal that nobody survives.
    pub fn send_kill(&self) {
        rustix::process::kill_process(self.process(), Signal::KILL)
            .expect("a process that has not been waited for");
    }

    /// `kill -9`; fails if the server had ended otherwise before.
    pub fn kill(mut self) {
        if let Some(status) = self.exited().filter(|status| status.signal() != Some(Signal::KILL.as_raw())) {
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

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Lines of the log that are warnings.
    pub fn warnings(&self) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(" # ")).map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection to a server.
pub struct Conn {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    out: Vec<u8>,
}

impl Conn {
    /// Adds a command to the next write.
    pub fn queue(&mut self, args: &[Vec<u8>]) {
        encode(args, &mut self.out);
    }

    pub fn queue_text(&mut self, line: &str) {
        let args: Vec<_> = line.split(' ').map(|arg| arg.as_bytes().to_vec()).collect();
        self.queue(&args);
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        self.stream.write_all(&out)
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.reader)
    }

    /// One command, its words separated by blanks.
    pub fn text(&mut self, line: &str) -> io::Result<Reply> {
        self.queue_text(line);
        self.flush()?;
        self.reply()
    }

    /// One command to a server that is known to be there.
    pub fn call(&mut self, args: &[&[u8]]) -> Reply {
        let args: Vec<_> = args.iter().map(|arg| arg.to_vec()).collect();
        self.queue(&args);
        self.flush().and_then(|()| self.reply()).expect("a reply")
    }

    /// The same, in text.
    pub fn ask(&mut self, line: &str) -> Reply {
        self.text(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// A field of `INFO`.
    pub fn info(&mut self, section: &str, field: &str) -> io::Result<String> {
        let reply = self.text(&format!("INFO {section}"))?;
        let text = String::from_utf8_lossy(reply.bytes().expect("INFO gives a string")).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned())
    }

    /// Waits for the save that was started and returns whether it succeeded.
    pub fn wait_for_save(&mut self) -> io::Result<bool> {
        while self.info("persistence", "rdb_bgsave_in_progress")? == "1" {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.info("persistence", "rdb_last_bgsave_status")? == "ok")
    }

    /// Starts a save and waits for its end. Returns whether it succeeded.
    pub fn save_in_background(&mut self, command: &str) -> bool {
        let reply = self.ask(command);
        let succeeded = self.wait_for_save().expect("INFO");
        // What fails before the cut is answered with the error; INFO says the same.
        assert!(!(reply.is_error() && succeeded), "{command}: {reply:?}");
        succeeded
    }
}

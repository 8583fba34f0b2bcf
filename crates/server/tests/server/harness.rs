//! A server process on a free port in a temporary directory, and a plain client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);

static DIR_COUNT: AtomicU32 = AtomicU32::new(0);

/// A new empty directory.
pub fn temp_dir() -> PathBuf {
    let number = DIR_COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("stillframe-net-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_stillframe-server"))
}

/// The server's program, run under limits of the shell's (`-n 200`).
pub fn binary_limited(limits: &str) -> Command {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("ulimit {limits}; exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_stillframe-server"),
    ]);
    command
}

pub struct TestServer {
    child: Child,
    pub dir: PathBuf,
    pub port: u16,
}

impl TestServer {
    /// Starts a server that does not save by itself.
    pub fn start(args: &[&str]) -> TestServer {
        TestServer::start_in(&temp_dir(), args)
    }

    pub fn start_in(dir: &Path, args: &[&str]) -> TestServer {
        TestServer::start_by(binary(), dir, args)
    }

    /// Starts it with limits of the shell's (`-n 200`).
    pub fn start_limited(limits: &str, args: &[&str]) -> TestServer {
        TestServer::start_by(binary_limited(limits), &temp_dir(), args)
    }

    fn start_by(mut command: Command, dir: &Path, args: &[&str]) -> TestServer {
        let port = free_port();
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let child = command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(dir)
            .args(["--save", "", "--enable-debug-command", "yes"])
            .args(args)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = TestServer { child, dir: dir.into(), port };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        let start = Instant::now();
        // The connection is gone again when this returns: tests count them.
        let answers = |port| {
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"QUIT\r\n").is_ok() && stream.read_to_end(&mut Vec::new()).is_ok()
        };
        while !answers(self.port) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status}: {}", self.log());
            }
            assert!(start.elapsed() < PATIENCE, "no connection: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap()
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS")
    }

    /// The most that it has been.
    pub fn peak_resident_bytes(&self) -> u64 {
        self.status_bytes("VmHWM")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// The soft limit of open files.
    pub fn file_limit(&self) -> u64 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.pid())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the server does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Other(String),
}

impl Reply {
    pub fn ok() -> Reply {
        Reply::Simple("OK".into())
    }

    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text) | Reply::Error(text) | Reply::Other(text) => text.clone(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Int(number) => number.to_string(),
            other => format!("{other:?}"),
        }
    }

    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }
}

pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

impl Client {
    pub fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a command written as words with spaces between.
    pub fn send(&mut self, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send_raw(&encode(&words));
    }

    pub fn run(&mut self, line: &str) -> Reply {
        self.send(line);
        self.read()
    }

    pub fn run_bytes(&mut self, words: &[&[u8]]) -> Reply {
        self.send_raw(&encode(words));
        self.read()
    }

    pub fn ok(&mut self, line: &str) {
        assert_eq!(self.run(line), Reply::ok(), "{line}");
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        assert!(line.ends_with(b"\r\n"), "the connection was closed: {line:?}");
        line.truncate(line.len() - 2);
        String::from_utf8_lossy(&line).into_owned()
    }

    pub fn read(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        match kind {
            "+" => Reply::Simple(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Int(count()),
            "_" => Reply::Null,
            "$" | "*" if count() < 0 => Reply::Null,
            "$" | "=" => {
                let mut bytes = vec![0; count() as usize + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" | ">" => Reply::Array((0..count()).map(|_| self.read()).collect()),
            "~" => Reply::Set((0..count()).map(|_| self.read()).collect()),
            "%" => Reply::Map((0..count()).map(|_| (self.read(), self.read())).collect()),
            _ => Reply::Other(line),
        }
    }

    /// Everything up to the end of the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset instead of an orderly end is an end, too.
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }

    /// Whether nothing comes for a moment.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
        let is_silent = self.reader.fill_buf().is_err();
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        is_silent
    }

    /// Waits until the data is there.
    pub fn wait_until_loaded(&mut self) {
        eventually("it is loaded", || self.info("loading") == "0");
    }

    /// A field of `INFO`.
    pub fn info(&mut self, name: &str) -> String {
        let text = self.run("INFO everything").text();
        let prefix = format!("{name}:");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or("").to_owned()
    }
}

/// Waits until `is_true`.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! A `redis-server` of its own for a test, and the little of a client that the tests need.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that goes when it is dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stillframe-rdb-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("create a temporary directory");
        TempDir(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A reply; errors are replies too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

pub struct Redis {
    child: Child,
    pub dir: TempDir,
    stream: BufReader<UnixStream>,
}

impl Redis {
    /// Starts a server in `dir`; it loads the `dump.rdb` there, if any.
    pub fn start(dir: TempDir, extra_args: &[&str]) -> Redis {
        let socket = dir.join("s");
        let mut child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--daemonize", "no", "--loglevel", "warning"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&dir.0)
            .args(extra_args)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(dir.join("log")).expect("create the log"))
            .spawn()
            .expect("start redis-server (Debian package redis-server)");
        match connect(&socket, &mut child) {
            Ok(stream) => Redis { child, dir, stream: BufReader::new(stream) },
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
                panic!("redis-server did not come up: {error}\n{log}");
            }
        }
    }

    pub fn command(&mut self, args: &[&[u8]]) -> Reply {
        self.send(args);
        self.receive()
    }

    /// A command in text, split at blanks; an error reply is a failure.
    pub fn run(&mut self, line: &str) -> Reply {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match self.command(&args) {
            Reply::Error(error) => panic!("{line}: {error}"),
            reply => reply,
        }
    }

    /// A line as one would type it to `redis-cli`, with its quoting.
    pub fn inline(&mut self, line: &str) -> Reply {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("send a command");
        self.receive()
    }

    /// Sends all commands, then takes all replies.
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(commands.len());
        for batch in commands.chunks(64) {
            for command in batch {
                let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                self.send(&args);
            }
            replies.extend(batch.iter().map(|_| self.receive()));
        }
        replies
    }

    pub fn dump_path(&self) -> PathBuf {
        self.dir.join("dump.rdb")
    }

    /// `SAVE`, and the bytes of the file.
    pub fn save(&mut self) -> Vec<u8> {
        self.run("SAVE");
        std::fs::read(self.dump_path()).expect("read dump.rdb")
    }

    fn send(&mut self, args: &[&[u8]]) {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request).expect("send a command");
    }

    fn receive(&mut self) -> Reply {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("receive a reply");
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" => Reply::Simple(rest.to_string()),
            "-" => Reply::Error(rest.to_string()),
            ":" => Reply::Int(rest.parse().expect("an integer reply")),
            "$" if rest == "-1" => Reply::Bulk(None),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().expect("a length") + 2];
                self.stream.read_exact(&mut bytes).expect("receive a bulk string");
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(Some(bytes))
            }
            "*" => {
                let count: i64 = rest.parse().expect("a count");
                Reply::Array((0..count).map(|_| self.receive()).collect())
            }
            _ => panic!("unexpected reply: {line:?}"),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the server listens and has loaded its dump.
fn connect(socket: &Path, child: &mut Child) -> io::Result<UnixStream> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("it ended with {status}")));
        }
        if let Ok(mut stream) = UnixStream::connect(socket) {
            stream.write_all(b"PING\r\n")?;
            let mut pong = String::new();
            BufReader::new(&stream).read_line(&mut pong)?;
            if pong.starts_with("+PONG") {
                return Ok(stream);
            }
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer for 20 s"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The seed of a random test: `STILLFRAME_SEED` or a new one, printed so that a failure can be replayed.
pub fn seed() -> u64 {
    let seed = std::env::var("STILLFRAME_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("STILLFRAME_SEED={seed}");
    seed
}

//! Starting the servers under comparison, and connections to them.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::resp::{encode, Reply};

/// Which server to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Debian's `redis-server`, or the program that `STILLFRAME_ORACLE` names.
    Oracle,
    /// This build, or the program that `STILLFRAME_SUBJECT` names.
    Stillframe { worker_count: u32 },
}

/// With a single worker, as it runs by default.
pub const STILLFRAME: Kind = Kind::Stillframe { worker_count: 1 };

/// A server process with a directory of its own; both go when it is dropped.
pub struct Server {
    pub kind: Kind,
    child: Child,
    dir: PathBuf,
}

static NEXT_DIR: AtomicU64 = AtomicU64::new(0);

impl Server {
    pub fn start(kind: Kind) -> Server {
        let number = NEXT_DIR.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("sf-diff-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        let program: PathBuf = match kind {
            Kind::Oracle => std::env::var_os("STILLFRAME_ORACLE").unwrap_or("redis-server".into()),
            Kind::Stillframe { .. } => std::env::var_os("STILLFRAME_SUBJECT")
                .unwrap_or(env!("CARGO_BIN_EXE_stillframe-server").into()),
        }
        .into();
        let mut command = Command::new(&program);
        command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes"]);
        command.arg("--unixsocket").arg(dir.join("s")).arg("--dir").arg(&dir);
        if let Kind::Stillframe { worker_count } = kind {
            command.args(["--io-threads", &worker_count.to_string()]);
        }
        let log = std::fs::File::create(dir.join("log")).expect("a log file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
        let child = command.spawn().unwrap_or_else(|e| {
            panic!("{}: {e}. Install redis-server 7.0 or name it in STILLFRAME_ORACLE", program.display())
        });
        let server = Server { kind, child, dir };
        let deadline = Instant::now() + Duration::from_secs(10);
        while server.connect().is_err() {
            assert!(Instant::now() < deadline, "{kind:?} does not accept connections:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    pub fn connect(&self) -> io::Result<Conn> {
        Conn::open(&self.dir.join("s"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A connection to a server.
pub struct Conn {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    out: Vec<u8>,
}

impl Conn {
    fn open(path: &Path) -> io::Result<Conn> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Conn { reader: BufReader::new(stream.try_clone()?), stream, out: Vec::new() })
    }

    /// Adds a command to the next write.
    pub fn queue(&mut self, args: &[Vec<u8>]) {
        encode(args, &mut self.out);
    }

    /// Writes what is queued. The peer may be blocked on sending replies that nobody reads yet, so keep
    /// pipelines under the socket buffers' size.
    pub fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        self.stream.write_all(&out)
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.reader)
    }

    pub fn call(&mut self, args: &[Vec<u8>]) -> io::Result<Reply> {
        self.queue(args);
        self.flush()?;
        self.reply()
    }

    pub fn text(&mut self, line: &str) -> io::Result<Reply> {
        let args: Vec<_> = line.split(' ').map(|a| a.as_bytes().to_vec()).collect();
        self.call(&args)
    }
}

//! What people and their programs do to a server that serves: saves, backups, settings, looks into it. And the watch over its memory.

use std::time::{Duration, Instant};

use stillframe_testkit::{Launch, Reply, TempDir};

use crate::bank::Bank;
use crate::conn::Conn;
use crate::{Soak, PROGRAM};

const PAUSE: Duration = Duration::from_millis(100);
/// How long memory may be over its bound, after that has been lowered or a large value has come.
const OVER_MAX: Duration = Duration::from_secs(20);
/// Pages beyond the bound that are within it (`INFO stillframe`; 16 MB).
const SLACK_PAGES: u64 = 4096;
/// What the process takes beside its data: itself, snapshots (64 MB), buffers of clients, what allocators keep.
const BESIDE_DATA_BYTES: u64 = 192 << 20;
/// Between two looks into a backup.
const BACKUP_CHECK_INTERVAL: Duration = Duration::from_secs(40);

/// What is sent as it is, one at a time.
const LINES: &[&str] = &[
    "BGSAVE",
    "BGSAVE",
    "BGSAVE RDB",
    "BGSAVE SCHEDULE",
    "SAVE",
    "CONFIG SET save 1\\ 1",
    "CONFIG SET hz 100",
    "CONFIG SET hz 10",
    "CONFIG SET hash-max-listpack-entries 16",
    "CONFIG SET hash-max-listpack-entries 512",
    "CONFIG SET latency-tracking no",
    "CONFIG SET latency-tracking yes",
    "CONFIG SET notify-keyspace-events Ex",
    "CONFIG SET notify-keyspace-events KEA",
    "CONFIG SET rdbcompression no",
    "CONFIG SET rdbcompression yes",
    "CONFIG SET maxmemory-samples 10",
    "CONFIG GET *",
    "CONFIG RESETSTAT",
    "DEBUG SLEEP 0.02",
    "CLIENT PAUSE 20 WRITE",
    "CLIENT LIST",
    "SLOWLOG GET 10",
    "SLOWLOG RESET",
    "LATENCY LATEST",
    "LATENCY HISTOGRAM",
    "LATENCY RESET",
    "MEMORY STATS",
    "MEMORY PURGE",
    "MEMORY USAGE accounts",
    "COMMAND COUNT",
    "DBSIZE",
    "RANDOMKEY",
    "SCAN 0 COUNT 500",
    "OBJECT ENCODING accounts",
    "SWAPDB 8 9",
    "INFO everything",
    "LASTSAVE",
];

/// What has been seen of the memory.
#[derive(Default)]
struct Watch {
    over_since: Option<Instant>,
    peak_pages: u64,
    peak_data_pages: u64,
    peak_bytes: u64,
}

/// Goes on until the end of the run; what it has seen.
pub fn run(run: &Soak, bank: &Bank) -> String {
    let (mut conn, mut rng) = (run.connect("admin"), run.rng(70));
    let (mut watch, mut backups) = (Watch::default(), Backups::new());
    let mut idle: Vec<Conn<'_>> = Vec::new();
    let mut save_count = 0;
    while run.goes_on() {
        match rng.u32(..8) {
            0 => backups.take(run, &mut conn, bank),
            1 => unblock(&mut conn, &mut rng),
            2 => {
                let bytes = run.memory_bytes * rng.u64(8..12) / 8;
                conn.expect(&format!("CONFIG SET maxmemory {bytes}"), Reply::ok());
            }
            3 if idle.len() < 50 => idle.push(run.connect("idle")),
            3 => idle.truncate(rng.usize(..25)),
            4 => scratch(&mut conn, &mut rng),
            _ => {
                let line = rng.choice(LINES).expect("one");
                let is_done = try_quoted(&mut conn, line).is_some();
                save_count += u32::from(is_done && line.contains("SAVE"));
            }
        }
        watch.look(run, &mut conn);
        std::thread::sleep(PAUSE);
    }
    conn.expect(&format!("CONFIG SET maxmemory {}", run.memory_bytes), Reply::ok());
    let Watch { peak_pages, peak_data_pages, peak_bytes, .. } = watch;
    assert!(save_count > 0 && backups.checked_count > 0, "it was too short: nothing has been saved");
    let checked = backups.checked_count;
    let mb = |bytes: u64| bytes >> 20;
    format!(
        "{} MB of data, {} MB of them in memory at most, {} MB resident, {save_count} saves, {} backups, of which \
         {checked} were loaded",
        mb(peak_data_pages * 4096),
        mb(peak_pages * 4096),
        mb(peak_bytes),
        backups.count,
    )
}

/// A line in which `\ ` is a blank within a word.
fn try_quoted(conn: &mut Conn<'_>, line: &str) -> Option<Reply> {
    match line.contains("\\ ") {
        true => {
            let words = line.replace("\\ ", "\0");
            let words = words.split(' ').map(|word| word.replace('\0', " ").into_bytes());
            Some(conn.run(words.collect()))
        }
        false => conn.try_line(line),
    }
}

/// Ends the wait of somebody, in either way.
fn unblock(conn: &mut Conn<'_>, rng: &mut fastrand::Rng) {
    let list = conn.run_line("CLIENT LIST").text();
    let blocked = list.lines().filter(|line| line.contains(" flags=b"));
    let ids: Vec<&str> = blocked.filter_map(|line| line.split([' ', '=']).nth(1)).collect();
    let Some(id) = rng.choice(&ids) else { return };
    let how = if rng.bool() { "TIMEOUT" } else { "ERROR" };
    conn.run_line(&format!("CLIENT UNBLOCK {id} {how}"));
}

/// A database that is filled and emptied.
fn scratch(conn: &mut Conn<'_>, rng: &mut fastrand::Rng) {
    conn.expect("SELECT 8", Reply::ok());
    match rng.u32(..3) {
        0 => conn.expect("FLUSHDB ASYNC", Reply::ok()),
        _ => {
            let prefix = rng.u32(..);
            conn.expect(&format!("DEBUG POPULATE 2000 p{prefix} 200"), Reply::ok());
        }
    }
    conn.expect("SELECT 0", Reply::ok());
}

impl Watch {
    fn look(&mut self, run: &Soak, conn: &mut Conn<'_>) {
        let info = conn.info("stillframe");
        let field = |name: &str| info.get(name).and_then(|value| value.parse::<u64>().ok());
        let pages = field("data_pages_in_memory").expect("pages in memory");
        let most = field("data_pages_in_memory_max").expect("a bound of pages");
        self.peak_pages = self.peak_pages.max(pages);
        self.peak_data_pages = self.peak_data_pages.max(field("data_pages").expect("pages of data"));
        let resident = run.process.resident_bytes();
        self.peak_bytes = self.peak_bytes.max(resident);
        let most_bytes = run.memory_bytes * 3 / 2 + BESIDE_DATA_BYTES;
        if pages <= most + SLACK_PAGES && resident <= most_bytes {
            self.over_since = None;
        } else {
            let since = *self.over_since.get_or_insert_with(Instant::now);
            let text = format!("{pages} pages of {most}, {resident} bytes of {most_bytes}");
            assert!(since.elapsed() < OVER_MAX, "memory is over its bound for long: {text}");
        }
    }
}

/// Backups, each in place of the one before.
struct Backups {
    dir: TempDir,
    count: u64,
    checked_count: u64,
    checked_at: Instant,
}

impl Backups {
    fn new() -> Backups {
        let dir = TempDir::new("soak-backup");
        Backups { dir, count: 0, checked_count: 0, checked_at: Instant::now() }
    }

    fn take(&mut self, run: &Soak, conn: &mut Conn<'_>, bank: &Bank) {
        let path = self.dir.path().join("dump.rdb");
        if conn.try_line(&format!("BACKUP TO {}", path.display())).is_none() {
            return;
        }
        self.count += 1;
        if self.checked_count > 0 && self.checked_at.elapsed() < BACKUP_CHECK_INTERVAL {
            return;
        }
        while run.goes_on() && conn.info("persistence")["rdb_bgsave_in_progress"] == "1" {
            std::thread::sleep(PAUSE);
        }
        if run.goes_on() {
            self.check(bank);
        }
    }

    /// A server that starts from it has all of a cut.
    fn check(&mut self, bank: &Bank) {
        let run_dir = TempDir::new("soak-backup-run");
        let mut launch = Launch::at_socket(PROGRAM, self.dir.path());
        launch.run_dir = run_dir.path().into();
        launch.is_mortal = true;
        let (process, _) = launch.start();
        let mut client = process.client();
        bank.check_backup(&mut client);
        client.send("SHUTDOWN NOSAVE");
        drop(process);
        drop(std::fs::remove_file(self.dir.path().join("stillframe.pages")));
        self.checked_count += 1;
        self.checked_at = Instant::now();
    }
}

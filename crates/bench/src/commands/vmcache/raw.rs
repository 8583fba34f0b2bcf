//! A raw reader: what the disk gives to whoever asks for 4 KB at a random place of a file, past the page cache. The ruler
//! for lookups out of memory.

use std::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use stillframe_pagepool::device::{Bufs, Device, FileDevice, IoOptions, PageBuf, Transfer};

use crate::error::{BenchError, Context, Result};
use crate::progress::Progress;
use crate::ticks::{in_threads, Ticks};

pub const READ_BYTES: u64 = 4096;
const CHUNK_BYTES: usize = 1 << 20;
const FILE: &str = "raw";

/// How reads are kept on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reader {
    /// So many threads in `pread`.
    Threads(usize),
    /// So many reads handed over in one call, and all waited for.
    Batches(usize),
}

impl Reader {
    pub const ALL: [Reader; 3] = [Reader::Threads(1), Reader::Threads(32), Reader::Batches(32)];

    pub fn name(self) -> String {
        match self {
            Reader::Threads(1) => "one pread at a time".to_owned(),
            Reader::Threads(count) => format!("{count} threads in pread"),
            Reader::Batches(count) => format!("one thread, batches of {count}"),
        }
    }

    /// Reads under way at once.
    pub fn depth(self) -> usize {
        match self {
            Reader::Threads(count) | Reader::Batches(count) => count,
        }
    }
}

/// A file full of bytes that no disk can leave out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RawFile {
    path: PathBuf,
    page_count: u64,
    is_direct: bool,
    /// What hands over a batch.
    engine: String,
}

impl RawFile {
    /// # Errors
    /// The file cannot be written: no space, or an I/O error.
    pub fn create(dir: &Path, bytes: u64) -> Result<RawFile> {
        std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        let path = dir.join(FILE);
        let page_count = bytes.div_ceil(CHUNK_BYTES as u64).max(1) * (CHUNK_BYTES as u64 / READ_BYTES);
        let mut progress = Progress::new("raw reader: writing its file".to_owned(), page_count * READ_BYTES);
        let mut file = File::create(&path).context(|| format!("create {}", path.display()))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..page_count * READ_BYTES / CHUNK_BYTES as u64 {
            rng.fill(&mut chunk);
            file.write_all(&chunk).context(|| format!("write {}", path.display()))?;
            progress.add(CHUNK_BYTES as u64);
        }
        file.sync_all().context(|| format!("sync {}", path.display()))?;
        let is_direct = open_direct(&path).is_ok();
        let engine = open_device(&path)?.io_report().map_or("unknown", |report| report.engine).to_owned();
        Ok(RawFile { path, page_count, is_direct, engine })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it is read, for the report.
    pub fn description(&self) -> String {
        let bytes = stillframe_units::human_bytes((self.page_count * READ_BYTES) as f64);
        let way = match self.is_direct {
            true => "with O_DIRECT",
            false => "THROUGH THE PAGE CACHE, which the file system here insists on: its rates are no ruler",
        };
        format!("4 KB at random places of {bytes}, {way}; batches by {}", self.engine)
    }

    /// Reads a second.
    ///
    /// # Errors
    /// An I/O error.
    pub fn rate(&self, reader: Reader, seconds: f64) -> Result<f64> {
        let rate = match reader {
            Reader::Threads(count) => self.rate_of(count, 1, seconds)?,
            Reader::Batches(count) => self.rate_of(1, count, seconds)?,
        };
        eprintln!("raw reader, {}: {rate:.0} reads/s", reader.name());
        Ok(rate)
    }

    /// Reads a second by threads, each with batches of so many; one alone is a `pread`.
    ///
    /// # Errors
    /// An I/O error.
    pub fn rate_of(&self, thread_count: usize, batch: usize, seconds: f64) -> Result<f64> {
        let ticks = Ticks::new(Duration::from_secs_f64(seconds));
        match batch {
            1 => in_threads(thread_count, |seed| self.one_by_one(seed, &ticks)),
            batch => {
                let device = open_device(&self.path)?;
                in_threads(thread_count, |seed| self.in_batches(&device, seed, batch, &ticks))
            }
        }
    }

    fn one_by_one(&self, seed: u64, ticks: &Ticks) -> Result<f64> {
        let file = if self.is_direct { open_direct(&self.path) } else { File::open(&self.path) };
        let file = file.context(|| format!("open {}", self.path.display()))?;
        let (mut rng, mut page) = (fastrand::Rng::with_seed(seed), Box::new(PageBuf::ZERO));
        ticks.fill(1, || {
            let offset = rng.u64(..self.page_count) * READ_BYTES;
            file.read_exact_at(&mut page.0, offset).context(|| format!("read {}", self.path.display()))?;
            Ok(1)
        })
    }

    /// Through the pool's device, which hands a call's reads over together.
    fn in_batches(&self, device: &FileDevice, seed: u64, count: usize, ticks: &Ticks) -> Result<f64> {
        let mut pages = vec![PageBuf::ZERO; count];
        let mut rng = fastrand::Rng::with_seed(seed);
        ticks.fill(1, || {
            read_batch(device, &mut pages, || rng.u64(..self.page_count))?;
            Ok(count as u64)
        })
    }

    /// Reads pages in the order of the file, `batch` at once, until it is told to stop, at most so many a second. Counts them.
    ///
    /// # Errors
    /// An I/O error.
    pub fn walk(&self, batch: usize, per_second: f64, stop: &AtomicBool, count: &AtomicU64) -> Result<()> {
        let device = open_device(&self.path)?;
        let mut pages = vec![PageBuf::ZERO; batch];
        let (begin, mut number) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            read_batch(&device, &mut pages, || {
                number = (number + 1) % self.page_count;
                number
            })?;
            let done = count.fetch_add(batch as u64, Ordering::Relaxed) + batch as u64;
            let due = Duration::from_secs_f64(done as f64 / per_second.max(1.0));
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        Ok(())
    }
}

/// One read a page, of the numbers that `next` draws, handed over together.
fn read_batch(device: &FileDevice, pages: &mut [PageBuf], mut next: impl FnMut() -> u64) -> Result<()> {
    let mut reads: Vec<Transfer<'_>> = pages
        .iter_mut()
        .map(|page| Transfer {
            offset: next() * READ_BYTES,
            bufs: Bufs::Read(vec![IoSliceMut::new(&mut page.0)]),
        })
        .collect();
    let has_failed = AtomicBool::new(false);
    device.transfer(&mut reads, &|_, _, result| {
        has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
    });
    match has_failed.into_inner() {
        false => Ok(()),
        true => Err(BenchError::Failed("a raw read of a batch failed".to_owned())),
    }
}

fn open_direct(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

fn open_device(path: &Path) -> Result<FileDevice> {
    FileDevice::open_to_read(path, IoOptions::default())
        .map_err(|error| BenchError::failed("open the raw reader's file", error))
}

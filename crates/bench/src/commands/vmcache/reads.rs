//! Random reads of 4 KB into a pool that is much smaller than its file, which evicts as much as it reads: the paper's Figure 9.
//! The raw reader's buffers, which stay, are the ruler beside it.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use stillframe_pagepool::device::IoOptions;
use stillframe_pagepool::pagefile::{PageFile, USER_HEADER_BYTES};
use stillframe_pagepool::snapshot::Progress as Saving;
use stillframe_pagepool::{PageId, Pool, PoolBackend, PoolOptions, PAGE_SIZE};

use crate::error::{BenchError, Context, Result};
use crate::progress::Progress;
use crate::ticks::{in_threads, Ticks};

/// Pages that a thread asks for at once; the paper keeps as many reads on their way.
pub const BATCH_PAGES: usize = 256;
/// A smaller pool than this has no room for the batches of several threads.
const MEMORY_PAGES_MIN: u64 = 4096;

const SETTLE_STEP_S: f64 = 0.2;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Where reads go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Buffers,
    Vmcache,
    Array,
}

impl Target {
    pub const ALL: [Target; 3] = [Target::Buffers, Target::Vmcache, Target::Array];

    pub fn name(self) -> &'static str {
        match self {
            Target::Buffers => "buffers",
            Target::Vmcache => "vmcache",
            Target::Array => "array",
        }
    }

    /// None if it is no pool.
    pub fn backend(self) -> Option<PoolBackend> {
        match self {
            Target::Buffers => None,
            Target::Vmcache => Some(PoolBackend::Vmcache),
            Target::Array => Some(PoolBackend::Array),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reads {
    pub target: Target,
    pub thread_count: usize,
    pub batch: usize,
    pub per_second: f64,
}

/// A pool over a file of pages, most of which are not in memory.
pub struct PagedPool {
    pool: Arc<Pool>,
    first: PageId,
    page_count: u32,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("a pool of pages", error)
}

impl PagedPool {
    /// Makes a file of four times as many bytes as the pool over it has memory for.
    ///
    /// # Errors
    /// The file cannot be written: no space, or an I/O error.
    pub fn create(dir: &Path, backend: PoolBackend, memory_bytes: u64) -> Result<PagedPool> {
        std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
        let memory_pages = (memory_bytes / PAGE_SIZE as u64).max(MEMORY_PAGES_MIN);
        let page_count = 4 * memory_pages as u32;
        let first = fill(&open(dir, backend, None)?, page_count)?;
        let pool = open(dir, backend, Some(memory_pages))?;
        pool.residency().wait_until_warm();
        let paged = PagedPool { pool, first, page_count };
        paged.settle(memory_pages)?;
        Ok(paged)
    }

    /// Reads until all that the warm-up brought in has been evicted once: what comes first divides huge pages, and is slower.
    fn settle(&self, memory_pages: u64) -> Result<()> {
        let mut progress = Progress::new("reads: filling the pool's memory".to_owned(), memory_pages);
        let evicted = || self.pool.metrics().evicted_page_count.load(Ordering::Relaxed);
        let (begin, mut before) = (Instant::now(), evicted());
        while evicted() < memory_pages {
            if begin.elapsed() > SETTLE_TIMEOUT {
                return Err(BenchError::Failed(format!(
                    "the pool has evicted no more than {} pages",
                    evicted()
                )));
            }
            self.rate_of(1, BATCH_PAGES, SETTLE_STEP_S)?;
            progress.add(evicted() - before);
            before = evicted();
        }
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        u64::from(self.page_count) * PAGE_SIZE as u64
    }

    /// Pages that threads bring in a second, each of them so many at once.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn rate_of(&self, thread_count: usize, batch: usize, seconds: f64) -> Result<f64> {
        let ticks = Ticks::new(Duration::from_secs_f64(seconds));
        let loaded = || self.pool.metrics().loaded_page_count.load(Ordering::Relaxed);
        let (before, begin) = (loaded(), Instant::now());
        in_threads(thread_count, |seed| self.read(seed, batch, &ticks))?;
        // Pages that were in memory are none that were read.
        Ok((loaded() - before) as f64 / begin.elapsed().as_secs_f64())
    }

    fn read(&self, seed: u64, batch: usize, ticks: &Ticks) -> Result<f64> {
        let member = self.pool.join();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pages = vec![self.first; batch];
        ticks.fill(1, || {
            pages.fill_with(|| PageId(self.first.0 + rng.u32(..self.page_count)));
            member.idle(|| self.pool.residency().load(&pages));
            for page in &pages {
                // It may have been evicted again.
                let Ok(guard) = self.pool.shared(*page) else { continue };
                if guard.page()[..4] != page.0.to_le_bytes() {
                    return Err(BenchError::Failed(format!("page {} is not as it was written", page.0)));
                }
            }
            member.quiesce();
            Ok(batch as u64)
        })
    }
}

fn open(dir: &Path, backend: PoolBackend, memory_pages: Option<u64>) -> Result<Arc<Pool>> {
    let device =
        PageFile::open_or_create_at(&dir.join(backend.name()), IoOptions::default()).map_err(failed)?;
    // Pages are to be handed out in a row: none is given memory, and put aside for that, by another thread.
    let options = PoolOptions { backend, memory_pages, populates_ahead: false, ..PoolOptions::default() };
    let (pool, _) = Pool::open(Arc::new(device), &options).map_err(failed)?;
    Ok(pool)
}

/// Allocates pages, each with its number in it, and saves them. Returns the first.
fn fill(pool: &Arc<Pool>, page_count: u32) -> Result<PageId> {
    let mut progress = Progress::new("reads: writing a pool".to_owned(), u64::from(page_count));
    let mut rng = fastrand::Rng::with_seed(1);
    let mut first = None;
    for index in 0..page_count {
        let mut guard = pool.allocate().map_err(failed)?;
        let id = guard.id();
        rng.fill(guard.page_mut());
        guard.page_mut()[..4].copy_from_slice(&id.0.to_le_bytes());
        // A pool hands numbers out in a row; a table of them would be read beside the pages.
        if id.0 != first.get_or_insert(id).0 + index {
            return Err(BenchError::Failed("a new pool did not hand its pages out in a row".to_owned()));
        }
        progress.add(1);
    }
    pool.checkpoint(|| Ok([0; USER_HEADER_BYTES]), &Saving::default()).map_err(failed)?;
    first.ok_or(BenchError::Failed("a pool without pages".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillframe_testkit::TempDir;

    #[test]
    fn pages_are_read_one_at_a_time_and_in_batches() {
        let dir = TempDir::new("paged-pool");
        PoolBackend::WITHOUT_MODULE.into_iter().for_each(|backend| read_by(backend, &dir));
    }

    fn read_by(backend: PoolBackend, dir: &Path) {
        let paged = PagedPool::create(dir, backend, 0).unwrap();
        assert_eq!(u64::from(paged.page_count), 4 * MEMORY_PAGES_MIN);
        for (thread_count, batch) in [(1, 1), (2, BATCH_PAGES)] {
            assert!(paged.rate_of(thread_count, batch, 0.1).unwrap() > 100.0);
        }
        let in_memory = paged.pool.room().resident_pages();
        assert!(in_memory <= MEMORY_PAGES_MIN + MEMORY_PAGES_MIN / 4, "{in_memory} pages are in memory");
        assert!(paged.pool.metrics().evicted_page_count.load(Ordering::Relaxed) >= MEMORY_PAGES_MIN);
        assert!(paged.pool.metrics().give_back_ns.load(Ordering::Relaxed) > 0);
    }
}

//! What a disk does with random reads of 4 KB, so many on their way at once, and batches of writes beside them.

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::set_current_timer_slack;
use stillframe_pagepool::device::{Bufs, Device, FileDevice, IoOptions, PageBuf, Transfer};

use super::measured::{Latency, PageRates, Timed};
use crate::clock::{now_ns, NS_PER_S};
use crate::commands::vmcache::raw::{RawFile, READ_BYTES};
use crate::error::{BenchError, Result};
use crate::load::Recording;

/// Writes of one call.
const WRITES: usize = 64;
/// Threads that write: while one waits for its batch, the next is on its way.
const WRITER_COUNT: u64 = 2;
/// Reads of one call of the ring; as many as it takes are on their way at any time.
const READS_A_CALL: usize = 1024;
/// Reads that a ring has on their way at once.
const RING_DEPTH: usize = 64;
/// Writes that may be owed before readers wait for them.
const OWED_MAX: f64 = 4.0 * WRITES as f64;
/// How long who waits for the others sleeps.
const NAP: Duration = Duration::from_micros(50);

/// Writes for each read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(f64);

impl Ratio {
    /// None if nothing was read.
    pub fn of(rates: PageRates) -> Option<Ratio> {
        (rates.reads > 0.0).then(|| Ratio(rates.writes / rates.reads))
    }
}

/// A file that is read and written at once.
pub struct MixFile {
    device: FileDevice,
    page_count: u64,
    description: String,
}

/// What the threads of one run have done.
struct Run<'f> {
    file: &'f MixFile,
    ratio: Ratio,
    read_count: AtomicU64,
    written_count: AtomicU64,
    stop: AtomicBool,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::failed("the disk's reads and writes", error)
}

impl MixFile {
    /// # Errors
    /// The file cannot be written: no space, or an I/O error.
    pub fn create(dir: &Path, page_count: u64) -> Result<MixFile> {
        let raw = RawFile::create(dir, page_count * READ_BYTES)?;
        let device = FileDevice::open(raw.path(), IoOptions::default()).map_err(failed)?;
        let page_count = device.len().map_err(failed)? / READ_BYTES;
        Ok(MixFile { device, page_count, description: raw.description() })
    }

    pub fn description(&self) -> String {
        format!("{}; writes in calls of {WRITES} by {WRITER_COUNT} threads", self.description)
    }

    /// The better of two ways to keep so many reads on their way: a thread for each, and a ring where it holds as many.
    ///
    /// # Errors
    /// An I/O error.
    pub fn best_rates(&self, ratio: Ratio, depth: usize, duration_ns: u64) -> Result<PageRates> {
        let share_ns = duration_ns / 2;
        let in_threads = self.rates(ratio, depth, share_ns, |run, seed| run.read_one_by_one(seed))?;
        // One that holds fewer would be a lower ruler, one that holds more a wrong one.
        let in_ring = match depth >= RING_DEPTH {
            true => self.rates(ratio, 1, share_ns, |run, seed| run.read_together(seed))?,
            false => PageRates::default(),
        };
        eprintln!(
            "the disk, {:.2} writes a read: {:.0} reads/s by {depth} threads, {:.0} by a ring",
            ratio.0, in_threads.reads, in_ring.reads
        );
        Ok(if in_ring.total() > in_threads.total() { in_ring } else { in_threads })
    }

    fn rates(
        &self,
        ratio: Ratio,
        thread_count: usize,
        duration_ns: u64,
        read: fn(&Run<'_>, u64) -> Result<()>,
    ) -> Result<PageRates> {
        let begin_ns = now_ns();
        let run = Run::new(self, ratio);
        let wait = |run: &Run<'_>| run.wait_until(begin_ns + duration_ns);
        run.of_threads(thread_count, |run, number| read(run, number as u64), wait)?;
        let seconds = (now_ns() - begin_ns) as f64 / NS_PER_S as f64;
        Ok(PageRates {
            reads: run.read_count.into_inner() as f64 / seconds,
            writes: run.written_count.into_inner() as f64 / seconds,
        })
    }

    /// Reads that are due at a rate, by so many threads in turn, with their writes beside them.
    ///
    /// # Errors
    /// An I/O error.
    pub fn latency(
        &self,
        ratio: Ratio,
        depth: usize,
        reads_per_second: f64,
        duration_ns: u64,
    ) -> Result<Latency> {
        let begin_ns = now_ns();
        let run = Run::new(self, ratio);
        let interval_ns = NS_PER_S as f64 / reads_per_second;
        let read = |run: &Run<'_>, number: usize| -> Result<(Recording, Recording)> {
            // Else the kernel wakes this thread up to 50 us late.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
            let (mut taken, mut late) = (Recording::new(begin_ns), Recording::new(begin_ns));
            let mut reader = Reader::new(number as u64);
            for index in 0.. {
                let due_ns = begin_ns + ((index * depth + number) as f64 * interval_ns) as u64;
                if due_ns >= begin_ns + duration_ns || run.stop.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
                late.record(due_ns, now_ns().saturating_sub(due_ns), 1);
                reader.read(run)?;
                taken.record(due_ns, now_ns() - due_ns, 1);
            }
            Ok((taken, late))
        };
        let parts = run.of_threads(depth, read, |run| run.wait_until(begin_ns + duration_ns))?;
        let (mut taken, mut late) = (Recording::new(begin_ns), Recording::new(begin_ns));
        for (of_taken, of_late) in &parts {
            taken.histogram.add(&of_taken.histogram).map_err(failed)?;
            late.histogram.add(&of_late.histogram).map_err(failed)?;
        }
        Ok(Latency::of(Timed::Disk, reads_per_second, &taken, Some(&late)))
    }
}

impl<'f> Run<'f> {
    fn new(file: &'f MixFile, ratio: Ratio) -> Run<'f> {
        Run {
            file,
            ratio,
            read_count: AtomicU64::new(0),
            written_count: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Runs readers and a writer until `wait` returns. All of them end at the first error.
    fn of_threads<T: Send>(
        &self,
        count: usize,
        read: impl Fn(&Run<'f>, usize) -> Result<T> + Sync,
        wait: impl FnOnce(&Run<'f>),
    ) -> Result<Vec<T>> {
        std::thread::scope(|scope| {
            let read = &read;
            let readers: Vec<_> =
                (0..count).map(|number| scope.spawn(move || self.or_stop(read(self, number)))).collect();
            let writers: Vec<_> = (0..WRITER_COUNT)
                .map(|number| scope.spawn(move || self.or_stop(self.write(number))))
                .collect();
            wait(self);
            self.stop.store(true, Ordering::Relaxed);
            let panicked = || BenchError::Failed("a thread of the disk's panicked".to_owned());
            let read: Result<Vec<T>> =
                readers.into_iter().map(|reader| reader.join().map_err(|_| panicked())?).collect();
            for writer in writers {
                writer.join().map_err(|_| panicked())??;
            }
            read
        })
    }

    /// Has all others end after an error: they would wait for each other.
    fn or_stop<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn wait_until(&self, end_ns: u64) {
        while now_ns() < end_ns && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes that are due by the reads so far and have not been begun.
    fn owed(&self) -> f64 {
        let read = self.read_count.load(Ordering::Relaxed) as f64;
        read * self.ratio.0 - self.written_count.load(Ordering::Relaxed) as f64
    }

    fn write(&self, number: u64) -> Result<()> {
        let pages = vec![PageBuf::ZERO; WRITES];
        let bufs: Vec<[IoSlice<'_>; 1]> = pages.iter().map(|page| [IoSlice::new(&page.0)]).collect();
        let mut rng = fastrand::Rng::with_seed(u64::MAX - number);
        while !self.stop.load(Ordering::Relaxed) {
            if self.owed() < WRITES as f64 {
                std::thread::sleep(NAP);
                continue;
            }
            // The other may have seen the same: then as many are written ahead.
            self.written_count.fetch_add(WRITES as u64, Ordering::Relaxed);
            let mut writes: Vec<Transfer<'_>> = bufs
                .iter()
                .map(|bufs| Transfer { offset: self.file.draw(&mut rng), bufs: Bufs::Write(bufs) })
                .collect();
            self.file.transfer(&mut writes)?;
        }
        Ok(())
    }

    /// Waits until the writes have caught up. False if the time is over.
    fn may_read(&self) -> bool {
        while self.owed() > OWED_MAX && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(NAP);
        }
        !self.stop.load(Ordering::Relaxed)
    }

    fn read_one_by_one(&self, seed: u64) -> Result<()> {
        let mut reader = Reader::new(seed);
        while self.may_read() {
            reader.read(self)?;
        }
        Ok(())
    }

    fn read_together(&self, seed: u64) -> Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pages = vec![PageBuf::ZERO; READS_A_CALL];
        while self.may_read() {
            let mut reads: Vec<Transfer<'_>> = pages
                .iter_mut()
                .map(|page| Transfer {
                    offset: self.file.draw(&mut rng),
                    bufs: Bufs::Read(vec![IoSliceMut::new(&mut page.0)]),
                })
                .collect();
            self.file.transfer(&mut reads)?;
            self.read_count.fetch_add(READS_A_CALL as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl MixFile {
    fn draw(&self, rng: &mut fastrand::Rng) -> u64 {
        rng.u64(..self.page_count) * READ_BYTES
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> Result<()> {
        let has_failed = AtomicBool::new(false);
        self.device.transfer(transfers, &|_, _, result| {
            has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
        });
        match has_failed.into_inner() {
            false => Ok(()),
            true => Err(failed("an operation failed")),
        }
    }
}

/// A thread with one read on its way.
struct Reader {
    rng: fastrand::Rng,
    page: Box<PageBuf>,
}

impl Reader {
    fn new(seed: u64) -> Reader {
        Reader { rng: fastrand::Rng::with_seed(seed), page: Box::new(PageBuf::ZERO) }
    }

    fn read(&mut self, run: &Run<'_>) -> Result<()> {
        let offset = run.file.draw(&mut self.rng);
        run.file.device.read_at(offset, &mut [IoSliceMut::new(&mut self.page.0)]).map_err(failed)?;
        run.read_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stillframe_testkit::TempDir;

    #[test]
    fn writes_keep_up_with_reads_in_their_ratio() {
        let dir = TempDir::new("mix");
        let file = MixFile::create(&dir, 4096).unwrap();
        for writes in [0.0, 0.5, 2.0] {
            let ratio = Ratio::of(PageRates { reads: 1.0, writes }).unwrap();
            let run = Run::new(&file, ratio);
            let wait = |run: &Run<'_>| {
                while run.read_count.load(Ordering::Relaxed) < 20_000 {
                    std::thread::sleep(NAP);
                }
            };
            run.of_threads(4, |run, seed| run.read_one_by_one(seed as u64), wait).unwrap();
            let (read, written) = (run.read_count.into_inner() as f64, run.written_count.into_inner() as f64);
            let owed = read * writes - written;
            let ahead = (WRITES as u64 * WRITER_COUNT) as f64;
            assert!(owed > -ahead && owed <= OWED_MAX + 4.0 * writes, "{read} read, {written} written");
        }
        assert_eq!(Ratio::of(PageRates { reads: 0.0, writes: 5.0 }), None);
    }

    #[test]
    fn both_ways_to_read_are_tried_and_reads_are_timed_from_when_they_were_due() {
        let dir = TempDir::new("mix-times");
        let file = MixFile::create(&dir, 4096).unwrap();
        let ratio = Ratio::of(PageRates { reads: 1.0, writes: 1.0 }).unwrap();
        let rates = file.best_rates(ratio, RING_DEPTH, NS_PER_S / 5).unwrap();
        assert!(rates.reads > 100.0 && rates.writes > 100.0, "{rates:?}");
        let latency = file.latency(ratio, 4, 500.0, NS_PER_S / 5).unwrap();
        // A slow disk, or a busy machine, does not get to all of the hundred that were due.
        assert_eq!(latency.timed, Timed::Disk);
        assert!((1..=100).contains(&latency.count), "{latency:?}");
        assert!(latency.p50_ns > 0 && latency.max_ns >= latency.late_p999_ns, "{latency:?}");
    }
}

//! Counts of several threads together, and over time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};

/// What threads did in each second of a time.
pub struct Ticks {
    begin: Instant,
    length: Duration,
    seconds: Vec<AtomicU64>,
}

impl Ticks {
    /// Begins now.
    pub fn new(length: Duration) -> Ticks {
        let count = length.as_secs_f64().ceil() as usize;
        let seconds = (0..count.max(1)).map(|_| AtomicU64::new(0)).collect();
        Ticks { begin: Instant::now(), length, seconds }
    }

    /// Does `work`, which says how much it did, until the time is over. Looks at the clock after every few: that costs as
    /// much as a tenth of a lookup. Returns how much was done a second.
    ///
    /// # Errors
    /// The first of `work`.
    pub fn fill<E>(
        &self,
        check_every: u32,
        mut work: impl FnMut() -> std::result::Result<u64, E>,
    ) -> std::result::Result<f64, E> {
        let since = Instant::now();
        let mut total = 0;
        loop {
            let mut count = 0;
            for _ in 0..check_every {
                count += work()?;
            }
            total += count;
            let elapsed = self.begin.elapsed();
            let second = (elapsed.as_secs() as usize).min(self.seconds.len() - 1);
            self.seconds[second].fetch_add(count, Ordering::Relaxed);
            if elapsed >= self.length {
                return Ok(total as f64 / since.elapsed().as_secs_f64());
            }
        }
    }

    pub fn total(&self) -> u64 {
        self.seconds.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Of each full second.
    pub fn over_time(&self) -> Vec<u64> {
        let full = self.length.as_secs() as usize;
        self.seconds.iter().take(full).map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// The sum of what threads say, each of which is given a number.
pub fn in_threads(count: usize, work: impl Fn(u64) -> Result<f64> + Sync) -> Result<f64> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count as u64).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(joined).sum()
    })
}

/// What a thread of a measurement says.
pub fn joined(thread: ScopedJoinHandle<'_, Result<f64>>) -> Result<f64> {
    thread.join().unwrap_or_else(|_| Err(BenchError::Failed("a measuring thread panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_done_is_counted_in_its_second() {
        let ticks = Ticks::new(Duration::from_millis(2100));
        let mut done = 0;
        let work = || -> std::result::Result<u64, ()> {
            done += 3;
            std::thread::sleep(Duration::from_millis(1));
            Ok(3)
        };
        let rate = ticks.fill(1, work).unwrap();
        let seconds = ticks.over_time();
        assert_eq!((seconds.len(), ticks.total()), (2, done));
        assert!(seconds.iter().all(|count| *count > 0) && seconds.iter().sum::<u64>() < done);
        assert!((rate * 2.1 - done as f64).abs() < 0.2 * done as f64, "{rate}, {done}");
        assert_eq!(ticks.fill(1, || Err(7)), Err(7));
    }
}

//! Memory of a server over time, a page that a fork child shares with its parent counted once.
//!
//! That is the resident set of the server, read from the kernel's counters at no cost, plus the pages that only
//! the child maps. For those the child's page tables are walked: about 10 ms a GiB, so it is done less often (at
//! most a tenth of the time goes into it), and it takes no lock that the server could wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::{now_ns, NS_PER_MS};
use crate::procfs;
use crate::stats::median;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    pub at_ns: u64,
    pub bytes: u64,
    pub process_count: usize,
}

const INTERVAL: Duration = Duration::from_millis(20);
const WALK_INTERVAL_NS: u64 = 200 * NS_PER_MS;
const WALK_DUTY: u64 = 10;

/// Samples until `stop`.
pub fn watch(root_pid: u32, stop: &AtomicBool) -> Vec<MemorySample> {
    let mut samples = Vec::new();
    let mut next_walk_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        let at_ns = now_ns();
        let pids = procfs::process_tree(root_pid);
        let walk = pids.len() > 1;
        if !walk || at_ns >= next_walk_ns {
            let private: u64 = pids[1..].iter().map(|p| procfs::private_bytes(*p)).sum();
            let bytes = procfs::rss_bytes(root_pid) + private;
            if walk {
                let walk_ns = now_ns() - at_ns;
                next_walk_ns = at_ns + WALK_INTERVAL_NS.max(walk_ns * WALK_DUTY);
            }
            // A child that ended meanwhile was counted in part.
            if procfs::process_tree(root_pid) == pids {
                samples.push(MemorySample { at_ns, bytes, process_count: pids.len() });
            }
        }
        std::thread::sleep(INTERVAL);
    }
    samples
}

/// Memory before, during and after a save.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    pub before_bytes: u64,
    pub peak_bytes: u64,
    pub after_bytes: u64,
    /// The most that memory was above a line from before to after: where the data itself grows during the save,
    /// this leaves the growth out.
    pub over_growth_bytes: u64,
}

/// When a save began and ended, and the seconds around it that are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub before_ns: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub after_ns: u64,
}

impl Extra {
    pub fn of(samples: &[MemorySample], window: Window) -> Self {
        let within =
            |from_ns: u64, to_ns: u64| samples.iter().filter(move |s| (from_ns..to_ns).contains(&s.at_ns));
        let middle = |from_ns: u64, to_ns: u64| {
            median(&within(from_ns, to_ns).map(|s| s.bytes as f64).collect::<Vec<_>>())
        };
        let before = middle(window.before_ns, window.begin_ns);
        let after = middle(window.end_ns, window.after_ns);
        let save_ns = (window.end_ns - window.begin_ns).max(1) as f64;
        let (mut peak, mut over_growth) = (before, 0.0);
        for sample in within(window.begin_ns, window.end_ns) {
            let growth = (after - before) * (sample.at_ns - window.begin_ns) as f64 / save_ns;
            peak = f64::max(peak, sample.bytes as f64);
            over_growth = f64::max(over_growth, sample.bytes as f64 - before - growth);
        }
        Self {
            before_bytes: before as u64,
            peak_bytes: peak as u64,
            after_bytes: after as u64,
            over_growth_bytes: over_growth as u64,
        }
    }

    pub fn extra_bytes(&self) -> u64 {
        self.peak_bytes - self.before_bytes
    }

    pub fn extra_percent(&self) -> f64 {
        100.0 * self.extra_bytes() as f64 / self.before_bytes.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { before_ns: 0, begin_ns: 10, end_ns: 20, after_ns: 30 };

    fn sample(at_ns: u64, bytes: u64) -> MemorySample {
        MemorySample { at_ns, bytes, process_count: 1 }
    }

    #[test]
    fn extra_is_the_peak_over_the_median_before() {
        let samples = [
            sample(0, 100),
            sample(5, 104),
            sample(9, 100),
            sample(10, 140),
            sample(14, 130),
            sample(20, 100),
            sample(31, 900),
        ];
        let extra = Extra::of(&samples, WINDOW);
        assert_eq!((extra.before_bytes, extra.after_bytes, extra.over_growth_bytes), (100, 100, 40));
        assert_eq!((extra.extra_bytes(), extra.extra_percent()), (40, 40.0));
    }

    #[test]
    fn growth_of_the_data_is_told_apart() {
        let samples = [sample(0, 100), sample(10, 105), sample(15, 160), sample(19, 200), sample(25, 200)];
        let extra = Extra::of(&samples, WINDOW);
        assert_eq!((extra.extra_bytes(), extra.over_growth_bytes), (100, 10));
    }
}

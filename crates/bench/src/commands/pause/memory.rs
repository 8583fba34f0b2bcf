//! Memory of a server over time, a page that a fork child shares with its parent counted once.
//!
//! That is the resident set of the server, read from the kernel's counters at no cost, plus the pages that only
//! the child maps. For those the child's page tables are walked: about 10 ms a GiB, so it is done less often (at
//! most a tenth of the time goes into it), and it takes no lock that the server could wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::{now_ns, NS_PER_MS};
use crate::procfs;

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

/// Memory before a save and at its peak.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    pub before_bytes: u64,
    pub peak_bytes: u64,
}

impl Extra {
    pub fn of(samples: &[MemorySample], before_ns: u64, begin_ns: u64, end_ns: u64) -> Self {
        let within = |from_ns: u64, to_ns: u64| -> Vec<f64> {
            let window = samples.iter().filter(move |s| (from_ns..to_ns).contains(&s.at_ns));
            window.map(|s| s.bytes as f64).collect()
        };
        let before = crate::stats::median(&within(before_ns, begin_ns));
        let peak = within(begin_ns, end_ns).into_iter().fold(before, f64::max);
        Self { before_bytes: before as u64, peak_bytes: peak as u64 }
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

    #[test]
    fn extra_is_the_peak_over_the_median_before() {
        let sample = |at_ns, bytes| MemorySample { at_ns, bytes, process_count: 1 };
        let samples = [
            sample(0, 100),
            sample(5, 104),
            sample(9, 100),
            sample(10, 140),
            sample(14, 130),
            sample(15, 900),
        ];
        let extra = Extra::of(&samples, 0, 10, 15);
        assert_eq!((extra.before_bytes, extra.extra_bytes(), extra.extra_percent()), (100, 40, 40.0));
    }
}

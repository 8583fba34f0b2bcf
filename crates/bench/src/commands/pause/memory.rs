//! Memory of a server over time.
//!
//! Two measures. The resident set is read from the kernel's counters often; it costs nothing, but counts what a
//! fork child shares with its parent twice. The proportional set, summed over the process tree, counts every page
//! once, but walks the page tables; so it is read seldom (at most a twentieth of the time goes into it), and not
//! in the second after a cut, where holding the address space's lock might delay the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{now_ns, NS_PER_MS, NS_PER_S};
use crate::procfs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    pub at_ns: u64,
    /// Sum over the process tree.
    pub rss_bytes: u64,
    pub process_count: usize,
    pub pss_bytes: Option<u64>,
}

const RSS_INTERVAL: Duration = Duration::from_millis(20);
const PSS_INTERVAL_NS: u64 = 200 * NS_PER_MS;
const PSS_DUTY: u64 = 20;

/// Shared with the thread that saves: no page table is walked between `quiet_from_ns` and a second later.
#[derive(Default)]
pub struct Quiet {
    from_ns: AtomicU64,
}

impl Quiet {
    pub fn begin(&self, from_ns: u64) {
        self.from_ns.store(from_ns, Ordering::SeqCst);
    }

    fn is_on(&self, time_ns: u64) -> bool {
        let from_ns = self.from_ns.load(Ordering::SeqCst);
        (from_ns..from_ns + NS_PER_S).contains(&time_ns)
    }
}

/// Samples until `stop`.
pub fn watch(root_pid: u32, quiet: &Quiet, stop: &AtomicBool) -> Vec<MemorySample> {
    let mut samples = Vec::new();
    let mut next_walk_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        let at_ns = now_ns();
        let pids = procfs::process_tree(root_pid);
        let rss_bytes = pids.iter().map(|p| procfs::rss_bytes(*p)).sum();
        let mut pss_bytes = None;
        if at_ns >= next_walk_ns && !quiet.is_on(at_ns) {
            pss_bytes = Some(pids.iter().map(|p| procfs::pss_bytes(*p)).sum());
            let walk_ns = now_ns() - at_ns;
            next_walk_ns = at_ns + PSS_INTERVAL_NS.max(walk_ns * PSS_DUTY);
        }
        samples.push(MemorySample { at_ns, rss_bytes, process_count: pids.len(), pss_bytes });
        std::thread::sleep(RSS_INTERVAL);
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
    /// Of one process the resident set is exact; of several the proportional set is compared.
    pub fn of(samples: &[MemorySample], before_ns: u64, begin_ns: u64, end_ns: u64) -> Self {
        let forked = samples.iter().any(|s| (begin_ns..end_ns).contains(&s.at_ns) && s.process_count > 1);
        let measure = |s: &MemorySample| if forked { s.pss_bytes } else { Some(s.rss_bytes) };
        let within = |from_ns: u64, to_ns: u64| -> Vec<f64> {
            let window = samples.iter().filter(move |s| (from_ns..to_ns).contains(&s.at_ns));
            window.filter_map(measure).map(|b| b as f64).collect()
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

    fn sample(at_ns: u64, rss_bytes: u64, process_count: usize, pss_bytes: Option<u64>) -> MemorySample {
        MemorySample { at_ns, rss_bytes, process_count, pss_bytes }
    }

    #[test]
    fn a_fork_is_judged_by_the_proportional_set() {
        let samples = [
            sample(0, 100, 1, Some(90)),
            sample(10, 200, 2, None),
            sample(11, 200, 2, Some(120)),
            sample(20, 100, 1, Some(90)),
        ];
        let extra = Extra::of(&samples, 0, 10, 15);
        assert_eq!((extra.before_bytes, extra.extra_bytes()), (90, 30));
    }

    #[test]
    fn a_single_process_is_judged_by_its_resident_set() {
        let samples = [sample(0, 100, 1, Some(90)), sample(10, 140, 1, None)];
        assert_eq!(Extra::of(&samples, 0, 10, 15).extra_bytes(), 40);
    }
}

//! What a load leaves behind.

use hdrhistogram::Histogram;

use crate::snapshot::CutReport;
use crate::stalls::SessionStats;

/// Commits are counted by periods of this length.
pub const BUCKET_NS: u64 = 10_000_000;
/// Latencies above ten minutes are recorded as ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;
/// Shorter times without a commit are not looked at.
const GAP_MIN_NS: u64 = 10_000;

/// A time, from and to, since the beginning.
type Span = (u64, u64);

/// A snapshot, and when it was begun since the beginning of the load.
#[derive(Clone, Debug)]
pub struct TakenCut {
    pub begin_ns: u64,
    pub report: CutReport,
}

/// Of all threads.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the intended beginning of a transaction to the end of its commit, restarts included.
    pub latency_ns: Histogram<u64>,
    /// Commits in each [`BUCKET_NS`].
    pub commits_over_time: Vec<u32>,
    /// The longest time in which one was due in each thread, and none was committed; shorter than 10 us count as 0.
    pub stall_ns: u64,
    /// When that began.
    pub stall_at_ns: u64,
    /// Restarts, and the longest that begin, capture and commit took during cuts.
    pub sessions: SessionStats,
    pub cuts: Vec<TakenCut>,
    pub failed_image_count: u64,
    /// Memory of rows, copies, flags and locks; it does not change.
    pub store_bytes: usize,
    /// From the beginning to the last commit.
    pub duration_ns: u64,
    /// Times in which no thread has committed so far.
    gaps: Option<Vec<Span>>,
}

impl Report {
    pub(super) fn new(store_bytes: usize) -> Report {
        Report {
            latency_ns: new_histogram(),
            commits_over_time: Vec::new(),
            stall_ns: 0,
            stall_at_ns: 0,
            sessions: SessionStats::default(),
            cuts: Vec::new(),
            failed_image_count: 0,
            store_bytes,
            duration_ns: 0,
            gaps: None,
        }
    }

    #[must_use]
    pub fn commits_per_s(&self) -> f64 {
        self.latency_ns.len() as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    pub(super) fn add(&mut self, thread: Recording) {
        let added = self.latency_ns.add(&thread.latency_ns);
        debug_assert!(added.is_ok(), "both have the same bounds");
        let buckets = self.commits_over_time.len().max(thread.buckets.len());
        self.commits_over_time.resize(buckets, 0);
        self.commits_over_time.iter_mut().zip(thread.buckets).for_each(|(sum, count)| *sum += count);
        self.sessions.add(&thread.stats);
        self.duration_ns = self.duration_ns.max(thread.last_ns);
        self.gaps = Some(match self.gaps.take() {
            Some(gaps) => common(&gaps, &thread.gaps),
            None => thread.gaps,
        });
    }

    /// All threads have been added.
    pub(super) fn end(&mut self) {
        let longest = self.gaps.take().unwrap_or_default().into_iter().max_by_key(|(from, to)| to - from);
        (self.stall_at_ns, self.stall_ns) = longest.map_or((0, 0), |(from, to)| (from, to - from));
    }
}

/// Of one thread.
pub struct Recording {
    latency_ns: Histogram<u64>,
    buckets: Vec<u32>,
    gaps: Vec<Span>,
    last_ns: u64,
    pub stats: SessionStats,
}

impl Recording {
    pub fn new() -> Recording {
        Recording {
            latency_ns: new_histogram(),
            buckets: Vec::new(),
            gaps: Vec::new(),
            last_ns: 0,
            stats: SessionStats::default(),
        }
    }

    /// One was intended then, the last had ended before, and it has been committed. In nanoseconds since the beginning.
    #[inline]
    pub fn record(&mut self, intended_ns: u64, before_ns: u64, done_ns: u64) {
        self.latency_ns.saturating_record(done_ns - intended_ns);
        let bucket = (done_ns / BUCKET_NS) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        let due_ns = intended_ns.max(before_ns);
        if done_ns - due_ns >= GAP_MIN_NS {
            self.gaps.push((due_ns, done_ns));
        }
        self.last_ns = done_ns;
    }
}

fn new_histogram() -> Histogram<u64> {
    // Three significant digits between one nanosecond and the cap: the arguments are valid by construction.
    Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|e| unreachable!("histogram bounds: {e}"))
}

/// The times that are in both; each is in order and does not overlap.
fn common(some: &[Span], others: &[Span]) -> Vec<Span> {
    let (mut at, mut other_at) = (0, 0);
    let mut both = Vec::new();
    while let (Some(one), Some(other)) = (some.get(at), others.get(other_at)) {
        let span = (one.0.max(other.0), one.1.min(other.1));
        if span.0 < span.1 {
            both.push(span);
        }
        if one.1 < other.1 {
            at += 1;
        } else {
            other_at += 1;
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_common_to_all_threads() {
        let mut report = Report::new(0);
        for gaps in [vec![(0, 100), (200, 500), (900, 950)], vec![(50, 250), (300, 420), (940, 999)]] {
            report.add(Recording { gaps, ..Recording::new() });
        }
        report.end();
        assert_eq!((report.stall_at_ns, report.stall_ns), (300, 120));
        assert_eq!(common(&[(0, 10), (20, 30)], &[(5, 25)]), [(5, 10), (20, 25)]);
    }

    #[test]
    fn latency_counts_from_the_intended_time() {
        let mut recording = Recording::new();
        recording.record(1_000_000, 1_500_000, 12_000_000);
        recording.record(11_000_000, 12_000_000, 12_000_900);
        assert_eq!((recording.buckets.clone(), recording.latency_ns.len()), (vec![0, 2], 2));
        assert!(recording.latency_ns.max() >= 11_000_000);
        assert_eq!(recording.gaps, [(1_500_000, 12_000_000)]);
    }
}

//! How long things took: histograms that any thread may add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets a power of two: values are known to within 1/8.
const SUB_BUCKETS: u64 = 8;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();
const BUCKET_COUNT: usize = (64 - SUB_BITS as usize + 1) * SUB_BUCKETS as usize;

/// A histogram of durations in nanoseconds; recording is one relaxed addition (and one maximum).
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// A histogram in a few numbers.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Summary {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < SUB_BUCKETS {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB_BITS;
    ((u64::from(shift) + 1) * SUB_BUCKETS + (ns >> shift) - SUB_BUCKETS) as usize
}

/// The largest value that falls into a bucket.
fn upper_bound_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    (((bucket % SUB_BUCKETS + SUB_BUCKETS + 1) as u128) << shift).saturating_sub(1).min(u128::from(u64::MAX))
        as u64
}

impl Histogram {
    pub fn record(&self, took: Duration) {
        let ns = took.as_nanos().min(u128::from(u64::MAX)) as u64;
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// Forgets everything recorded so far.
    pub fn reset(&self) {
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
        self.sum_ns.store(0, Ordering::Relaxed);
        self.max_ns.store(0, Ordering::Relaxed);
    }

    pub fn summary(&self) -> Summary {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        let quantile = |per_mille: u64| {
            let wanted = (count * per_mille).div_ceil(1000).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|bucket| {
                seen += bucket;
                seen >= wanted
            });
            found.map_or(0, |bucket| upper_bound_ns(bucket).min(max_ns))
        };
        let sum_ns = self.sum_ns.load(Ordering::Relaxed);
        Summary {
            count,
            sum_ns,
            p50_ns: quantile(500),
            p99_ns: quantile(990),
            p999_ns: quantile(999),
            max_ns,
        }
    }
}

/// The histograms of a pool; those of the barrier are with it.
#[derive(Default)]
pub struct PoolMetrics {
    /// A writer's capture of one page into a spare frame.
    pub capture: Histogram,
    /// A writer's own write or spill of a page, or of a batch of freed ones, because the budget was used up.
    pub help: Histogram,
    /// From the cut until every page of a checkpoint had been handed over.
    pub sweep: Histogram,
    /// Each `fdatasync` of a checkpoint.
    pub fsync: Histogram,
    /// From the request of a checkpoint to its durable superblock.
    pub checkpoint: Histogram,
    /// From a request for pages in the background, or for room, to its end: what a parked command waits for.
    pub fault: Histogram,
    /// Pages brought in from the page file.
    pub loaded_page_count: AtomicU64,
    /// Of these, those that were read in the midst of a step, while others waited for its end.
    pub in_place_page_count: AtomicU64,
    /// How often others waited for such reads.
    pub in_place_wait_count: AtomicU64,
    /// Pages whose memory was given back although they are in use.
    pub evicted_page_count: AtomicU64,
    /// Time in which that memory was given back, in nanoseconds.
    pub give_back_ns: AtomicU64,
    /// Of those, pages that had to be written first.
    pub written_back_page_count: AtomicU64,
    /// Pages that moved to other frames, so that memory could be given back.
    pub relocated_page_count: AtomicU64,
    /// Writes of such pages that failed.
    pub write_back_error_count: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_tight_and_ordered() {
        let mut values: Vec<u64> =
            (0..64).flat_map(|shift| [1u64 << shift, (1u64 << shift) + 1, (3u64 << shift) >> 1]).collect();
        values.sort_unstable();
        for pair in values.windows(2) {
            assert!(bucket_of(pair[0]) <= bucket_of(pair[1]));
        }
        for value in values {
            let bound = upper_bound_ns(bucket_of(value));
            assert!(bound >= value && bound - value <= value / SUB_BUCKETS, "{value} is put down as {bound}");
        }
    }

    #[test]
    fn a_summary_of_known_values() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.max_ns), (1000, 1_000_000));
        assert!((500_000..=570_000).contains(&summary.p50_ns), "{summary:?}");
        assert!((990_000..=1_000_000).contains(&summary.p99_ns), "{summary:?}");
        histogram.reset();
        assert_eq!(histogram.summary(), Summary::default());
    }
}

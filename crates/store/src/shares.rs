//! How a bound of memory is divided.

use stillframe_pagepool::PAGE_SIZE;

/// The most that the pool takes beside pages and snapshots: what is read, written and staged at a time, free pages that keep
/// their memory. And the part of a bound of all memory that is set aside for it.
const STAGING_BYTES_MAX: u64 = 24 << 20;
const STAGING_PART: u64 = 16;
/// The most of a bound of all memory that is for snapshots, whatever they are allowed, and the least that they get.
const SNAPSHOT_PART: u64 = 8;
const SNAPSHOT_BYTES_MIN: u64 = 1 << 20;
/// The least that is left for pages (8 MB).
const MEMORY_PAGES_MIN: u64 = 2048;

/// How a bound of memory is divided, in bytes. The process has, besides, what it takes without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryShares {
    /// The bound: [`crate::Options::memory_bytes`].
    pub all_bytes: u64,
    /// For pages of data: what the others leave.
    pub page_bytes: u64,
    /// For what snapshots hold: [`crate::Options::snapshot_memory_bytes`], but not more than an eighth.
    pub snapshot_bytes: u64,
    /// For what is on its way between memory and the page file, and for free pages: a sixteenth, but not more than 24 MB.
    pub staging_bytes: u64,
    /// What is known of pages beside their content; it grows with the data, whether that is in memory or not.
    pub side_bytes: u64,
}

impl MemoryShares {
    /// Divides a bound of `all_bytes`; `None` if that is 0, which is no bound.
    pub(crate) fn of(all_bytes: u64, snapshot_bytes: u64, side_bytes: u64) -> Option<MemoryShares> {
        let snapshot_bytes = snapshot_bytes.min((all_bytes / SNAPSHOT_PART).max(SNAPSHOT_BYTES_MIN));
        let staging_bytes = STAGING_BYTES_MAX.min(all_bytes / STAGING_PART);
        let left = all_bytes.saturating_sub(snapshot_bytes + staging_bytes + side_bytes);
        let page_bytes = (left / PAGE_SIZE as u64).max(MEMORY_PAGES_MIN) * PAGE_SIZE as u64;
        let shares = MemoryShares { all_bytes, page_bytes, snapshot_bytes, staging_bytes, side_bytes };
        (all_bytes != 0).then_some(shares)
    }

    /// Whether the bound has room for all of them: pages get no less than 8 MB, whatever it says.
    pub(crate) fn fit(&self) -> bool {
        self.page_bytes + self.snapshot_bytes + self.staging_bytes + self.side_bytes <= self.all_bytes
    }

    /// Pages of data that may be in memory.
    pub(crate) fn page_count(&self) -> u64 {
        self.page_bytes / PAGE_SIZE as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a page beside its content.
    const DESCRIPTOR_BYTES: u64 = 24;

    #[test]
    fn most_of_a_bound_is_for_data() {
        let megabytes = |bytes: u64| bytes << 20;
        for all in [32, 64, 100, 200, 500, 1000, 64_000].map(megabytes) {
            // Of ten times as much data as memory.
            let side = 10 * all / PAGE_SIZE as u64 * DESCRIPTOR_BYTES;
            let shares = MemoryShares::of(all, 64 << 20, side).expect("a bound");
            assert!(shares.page_bytes >= all / 10 * 7, "{shares:?}");
            let sum = shares.page_bytes + shares.snapshot_bytes + shares.staging_bytes + shares.side_bytes;
            assert!(shares.fit() && sum <= all && all - sum < PAGE_SIZE as u64, "{shares:?}");
        }
        assert_eq!(MemoryShares::of(0, 64 << 20, 0), None);
        assert_eq!(
            MemoryShares::of(megabytes(4), 64 << 20, 0).map(|s| s.page_count()),
            Some(MEMORY_PAGES_MIN)
        );
        assert_eq!(
            MemoryShares::of(megabytes(64), megabytes(2), 0).map(|s| s.snapshot_bytes),
            Some(megabytes(2))
        );
    }
}

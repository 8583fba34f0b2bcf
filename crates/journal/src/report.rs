//! What is known of a log.

use crate::names::{LogId, Offset, SegmentNumber};
use crate::options::SyncMethod;

/// How a log is doing.
#[derive(Clone, PartialEq, Debug)]
pub struct JournalReport {
    pub log: LogId,
    /// The end of the stream.
    pub end: Offset,
    /// Everything before it is durable.
    pub durable: Offset,
    /// Bytes that have been appended and not yet written.
    pub buffered_bytes: u64,
    /// The segment that is written to.
    pub segment: SegmentNumber,
    /// Segments of the log that are kept, the one that is written to included.
    pub segment_count: usize,
    /// Files that wait to be segments.
    pub spare_count: usize,
    /// Units appended since the log was opened.
    pub unit_count: u64,
    /// Syncs since the log was opened, and durable writes.
    pub sync_count: u64,
    /// Units for each sync, by the mean.
    pub units_per_sync: f64,
    /// How long the last sync took.
    pub last_sync_ns: u64,
    /// How long syncs take, by the mean.
    pub mean_sync_ns: u64,
    /// How writes are made durable now: never [`SyncMethod::Auto`].
    pub method: SyncMethod,
    /// Median of a durable write of one page by `RWF_DSYNC`, as measured; `None`: not measured.
    pub dsync_ns: Option<u64>,
    /// The same by a write and `fdatasync`.
    pub fdatasync_ns: Option<u64>,
    /// How often a sync of [`crate::SyncPolicy::EverySecond`] took so long that writers had to wait.
    pub delayed_sync_count: u64,
    /// Syncs under way.
    pub pending_sync_count: u64,
    /// Bytes that the log's files take.
    pub disk_bytes: u64,
    /// Whether space lacks for the next segment.
    pub no_space: bool,
}

/// What was found in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Where replay began.
    pub begin: Offset,
    /// Where the log ends: everything before it has been replayed.
    pub end: Offset,
    /// Bytes that were replayed.
    pub replayed_bytes: u64,
    /// Units that were replayed, as the replay's listener counted them.
    pub unit_count: u64,
    /// Blocks read.
    pub block_count: u64,
    /// Bytes behind the last unit's end that were cut off: of a unit that is not whole.
    pub torn_bytes: u64,
    /// Whether the log was ended by a clean stop.
    pub is_clean: bool,
}

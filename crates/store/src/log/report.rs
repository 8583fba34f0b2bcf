//! What is known of a store's log.

use std::fmt;

use stillframe_journal::{JournalOptions, JournalReport};

use crate::log_options::LogOptions;

/// The same for the journal.
pub(crate) fn journal_options(options: &LogOptions) -> JournalOptions {
    JournalOptions {
        segment_bytes: options.segment_bytes,
        memory_bytes: options.memory_bytes,
        sync: options.sync,
        size_limit_bytes: options.size_limit_bytes,
        method: options.method,
        select: crate::stream::put_select_of,
    }
}

/// What a store's log is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogStatus {
    /// Nothing is logged.
    Off,
    /// What is on disk has not been replayed: nothing is saved.
    Unread,
    /// Units are appended; they count once the checkpoint that the log begins with is durable.
    Beginning,
    On,
    /// Nothing more becomes durable but by a checkpoint, which begins a new log.
    Failed,
}

impl fmt::Display for LogStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogStatus::Off => "off",
            LogStatus::Unread => "unread",
            LogStatus::Beginning => "beginning",
            LogStatus::On => "on",
            LogStatus::Failed => "failed",
        })
    }
}

/// How a store's log is doing.
#[derive(Clone, PartialEq, Debug)]
pub struct LogReport {
    pub status: LogStatus,
    /// Why it has failed, if it has.
    pub failure: Option<String>,
    /// `None` while there is no journal.
    pub journal: Option<JournalReport>,
    /// Whether a durable checkpoint names the log, and none is under way that ends it: a start replays no other, however much of it is
    /// on disk.
    pub is_named: bool,
    /// Bytes of the stream since the cut of the newest checkpoint: what a start now would replay.
    pub replay_bytes: u64,
}

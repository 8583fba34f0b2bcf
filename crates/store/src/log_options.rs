//! How a store keeps its log.

use stillframe_journal::{JournalOptions, SyncMethod, SyncPolicy};

/// How a store keeps its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// When what is written is made durable.
    pub sync: SyncPolicy,
    /// Bytes that may wait to be written before writers should wait.
    pub memory_bytes: usize,
    /// Bytes of a file of the log: a multiple of 4,096.
    pub segment_bytes: u64,
    /// Bytes that the files may take together; `None`: what there is.
    pub size_limit_bytes: Option<u64>,
    pub method: SyncMethod,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            sync: SyncPolicy::EverySecond,
            memory_bytes: 64 << 20,
            segment_bytes: JournalOptions::SEGMENT_BYTES,
            size_limit_bytes: None,
            method: SyncMethod::Auto,
        }
    }
}

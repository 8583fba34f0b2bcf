//! How a log is kept.

pub use stillframe_pagepool::device::SyncMethod;

/// When what is written is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// Each batch of units at once; the next batch is what arrives meanwhile.
    Always,
    /// Once a second.
    #[default]
    EverySecond,
    /// Only when somebody asks for it.
    Never,
}

/// What decides how a log is written.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// Bytes of a segment: a multiple of 4,096, at least [`JournalOptions::LEAST_SEGMENT_BYTES`].
    pub segment_bytes: u64,
    /// Bytes that may wait to be written before [`crate::Journal::has_room`] says no.
    pub memory_bytes: usize,
    /// When what is written is made durable.
    pub sync: SyncPolicy,
    /// Bytes that all segments may take on disk; `None`: what there is.
    pub size_limit_bytes: Option<u64>,
    /// How to make a write durable.
    pub method: SyncMethod,
    /// Appends the command to the buffer that selects the database of that number.
    pub select: fn(u32, &mut Vec<u8>),
}

impl JournalOptions {
    /// The least size of a segment in bytes.
    pub const LEAST_SEGMENT_BYTES: u64 = 16 * 4096;
    /// The usual size of a segment in bytes.
    pub const SEGMENT_BYTES: u64 = 64 << 20;
}

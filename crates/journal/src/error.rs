//! What can go wrong with a log.

use std::sync::Arc;

use stillframe_pagepool::device::DeviceError;

use crate::names::{LogId, Offset, SegmentNumber};

/// Why a value by reference could not be read: the text says what happened and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

/// Why a log cannot go on, or cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JournalError {
    /// A write or a sync failed: nobody knows what of it is durable, so the log ends here.
    #[error(
        "the log cannot be written: {0}. Nothing is appended to this log any more: mend the disk and take a checkpoint, \
         which begins a new log, or start the server again"
    )]
    Device(#[from] DeviceError),
    /// A value could not be read for the log, which ends before the value's unit.
    #[error("the log ends at offset {at}, since a value that belongs there cannot be read: {source}")]
    Body {
        /// The first byte that could not be had.
        at: Offset,
        /// Why.
        source: BodyError,
    },
    /// What was acknowledged is not there.
    #[error(
        "the log is damaged: '{file}', byte {byte}: the stream from offset {at} on is missing or does not verify, and \
         {evidence}. Nothing has been changed. Restore the file from a copy, or start from the checkpoint alone and lose \
         what came after it"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Byte of the file from which on it does not verify.
        byte: u64,
        /// The first byte of the stream that cannot be read.
        at: Offset,
        /// What says that it was there.
        evidence: String,
    },
    /// The log that a checkpoint names has nothing on the shelf.
    #[error(
        "the log {log} that the checkpoint continues with is not in '{shelf}': its segment {segment} is missing. Put the \
         log's files back, or start from the checkpoint alone and lose what came after it"
    )]
    Missing {
        /// The directory.
        shelf: String,
        /// The log.
        log: LogId,
        /// The segment.
        segment: SegmentNumber,
    },
    /// The log cannot be read, and nobody knows what is there.
    #[error("the log cannot be read: {0}. Nothing has been changed: mend the disk, or restore the file from a copy")]
    Unreadable(DeviceError),
    /// A newer program has written the log.
    #[error("'{file}' is of version {version} of the log's format, and this program knows version 1: use the program that wrote it")]
    OtherVersion {
        /// The file.
        file: String,
        /// The version.
        version: u32,
    },
    /// The segments may not take more on disk.
    #[error("the log in '{shelf}' may take {limit_bytes} bytes, and there is no room for another segment: raise the limit")]
    SizeLimit {
        /// The directory.
        shelf: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// Space lacks, and the log has been closed.
    #[error("the log in '{shelf}' was closed before all of it was durable, since space lacks: what is not durable is lost")]
    NoSpace {
        /// The directory.
        shelf: String,
    },
    /// There is no number left for a segment.
    #[error("the log in '{shelf}' has used up its segment numbers: move its files away after a checkpoint")]
    NumbersUsedUp {
        /// The directory.
        shelf: String,
    },
    /// An option that cannot be.
    #[error("segments of {segment_bytes} bytes: give a multiple of 4096, at least {least_bytes}")]
    SegmentSize {
        /// What was asked for.
        segment_bytes: u64,
        /// The least there may be.
        least_bytes: u64,
    },
    /// The system gives no thread.
    #[error("the log's thread '{thread}' cannot be started: {reason}")]
    NoThread {
        /// Its name.
        thread: &'static str,
        /// Why.
        reason: String,
    },
    /// A thread of the log, or what it called, has panicked.
    #[error("the log's thread '{thread}' has ended by a fault of the program: a checkpoint makes durable what is in memory")]
    Panicked {
        /// Its name.
        thread: &'static str,
    },
    /// A change has been made that the log does not have.
    #[error("the log ends, since a change cannot be told in it: {0}")]
    Unit(String),
    /// There is nowhere to keep one.
    #[error("there is no directory for a log: open the store in one")]
    NoShelf,
    /// The log has been closed.
    #[error("the log has been closed")]
    Closed,
    /// An error that came before, and holds on.
    #[error("{0}")]
    Before(Arc<JournalError>),
}

/// Why a log could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError<E> {
    /// The log.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The one that replays has refused.
    #[error("the log's units from offset {at} on cannot be replayed: {source}")]
    Replay {
        /// The first byte that was handed over.
        at: Offset,
        /// Why.
        source: E,
    },
}

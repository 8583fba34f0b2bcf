//! The store's log: every step as a unit, in the journal, and where each checkpoint stands in it.
//!
//! ```text
//!   steps ──Encoder──▶ Units ──▶ Journal        a checkpoint: cut ──▶ pages ──▶ durable up to the cut ──▶ superblock
//! ```
//! - `home`: where the log is.
//! - `report`: what is known of it.
//! - `watch`: the listener that is told what becomes of it.
//! - `units`: from units to the journal.
//! - `state`: what a checkpoint does with it.

mod home;
mod report;
mod state;
mod units;
mod watch;

pub use crate::log_options::LogOptions;
pub(crate) use home::LogHome;
pub(crate) use report::journal_options;
pub use report::{LogReport, LogStatus};
pub(crate) use state::{position_of, Log, Plan};
pub use stillframe_journal::{
    Body, BodyError, JournalError, JournalReport, LogId, Offset, Place, SegmentNumber, SyncMethod, SyncPolicy,
};
pub use watch::LogWatcher;

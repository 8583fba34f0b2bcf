//! What a store's caller asks of its log.

use std::sync::Arc;

use stillframe_journal::JournalError;

use crate::log::{LogOptions, LogReport, LogWatcher};
use crate::store::Store;

/// The log of a store: see [`crate::Options::log`].
pub struct LogDoor<'s>(&'s Store);

impl Store {
    /// Its log.
    pub fn log(&self) -> LogDoor<'_> {
        LogDoor(self)
    }
}

impl LogDoor<'_> {
    /// Waits until everything is durable that was changed before. Without a log nothing is, and nothing is waited for.
    ///
    /// # Errors
    /// The log has failed: a checkpoint makes durable what is in memory, and begins a new log.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.0.shared.log.sync()
    }

    /// Bytes that wait in memory to be written to the log.
    pub fn buffered_bytes(&self) -> u64 {
        self.0.shared.log.journal().map_or(0, |journal| journal.buffered_bytes())
    }

    /// Ends the log for the end of the process: everything is durable, and nothing is logged any more. Threads that change the store have
    /// to have ended.
    ///
    /// # Errors
    /// The log has failed: what it has not made durable is lost unless a checkpoint is taken.
    pub fn close(&self) -> Result<(), JournalError> {
        self.0.shared.log.close()
    }

    /// Changes how the log is kept, or that there is one. When it is synced changes at once; that it begins or ends does with the next
    /// checkpoint, which the caller asks for.
    pub fn set(&self, options: Option<LogOptions>) {
        self.0.shared.log.want(options);
    }

    /// What is asked for.
    pub fn options(&self) -> Option<LogOptions> {
        self.0.shared.log.wanted()
    }

    /// Tells `watcher` what becomes of the log from now on. A store has one for its life: returns false, and changes nothing, if
    /// there is one.
    pub fn watch(&self, watcher: Arc<dyn LogWatcher>) -> bool {
        self.0.shared.log.watch().set(watcher)
    }

    /// How it is doing.
    pub fn report(&self) -> LogReport {
        self.0.shared.log.report()
    }
}

//! How far the log is durable, and those who wait for that.

use crate::error::JournalError;
use crate::names::Offset;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex};

/// The durable offset, which rises only.
///
/// ```text
///   GOES ON ── publish ──▶ GOES ON (further)        GOES ON ── fail ──▶ FAILED: nothing is published any more
/// ```
pub struct Progress {
    durable: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    failure: Option<Arc<JournalError>>,
}

impl Progress {
    pub fn new(at: Offset) -> Progress {
        Progress {
            durable: AtomicU64::new(at.0),
            state: Mutex::new(State { failure: None }),
            changed: Condvar::new(),
        }
    }

    pub fn durable(&self) -> Offset {
        Offset(self.durable.load(Ordering::Acquire))
    }

    /// Everything before `to` is durable. Returns whether that is news.
    pub fn publish(&self, to: Offset) -> bool {
        let state = self.state.lock();
        if state.failure.is_some() || self.durable() >= to {
            return false;
        }
        self.durable.store(to.0, Ordering::Release);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// The log has failed. Returns whether that is news.
    pub fn fail(&self, error: Arc<JournalError>) -> bool {
        let mut state = self.state.lock();
        let is_news = state.failure.is_none();
        state.failure.get_or_insert(error);
        drop(state);
        self.changed.notify_all();
        is_news
    }

    pub fn failure(&self) -> Option<Arc<JournalError>> {
        self.state.lock().failure.clone()
    }

    /// Waits until everything before `to` is durable.
    ///
    /// # Errors
    /// The log has failed, or fails meanwhile.
    pub fn wait_for(&self, to: Offset) -> Result<(), Arc<JournalError>> {
        let mut state = self.state.lock();
        loop {
            if self.durable() >= to {
                return Ok(());
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            self.changed.wait(&mut state);
        }
    }
}

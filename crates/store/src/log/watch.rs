//! The listener that is told what becomes of a store's log.

use std::sync::Arc;
use std::sync::OnceLock;

use stillframe_journal::{JournalError, Offset, Watcher};

use crate::step::WorkerId;

/// Told what becomes of a store's log, by threads of the log. A watcher must not keep the store open: these threads end with the store.
/// Offsets are bytes of its stream; they only rise, whatever logs there are one after the other.
pub trait LogWatcher: Send + Sync {
    /// A step of the worker is in the log, in a unit that ends there. The locks of the step's keys are held: this must neither wait nor
    /// use the store.
    fn appended(&self, worker: WorkerId, end_offset: u64);
    /// Everything before is durable.
    fn durable(&self, to_offset: u64);
    /// Whether there is room for more units; writers should wait for it.
    fn room(&self, is_there: bool);
    /// Whether space lacks on disk; what is appended is kept in memory meanwhile.
    fn no_space(&self, is_so: bool);
    /// Nothing more becomes durable, but by a checkpoint.
    fn failed(&self, reason: &str);
    /// A log has begun behind one that has failed, at that offset, with a checkpoint: everything before is durable.
    fn renewed(&self, at_offset: u64);
}

/// The watcher, once there is one.
#[derive(Default)]
pub(crate) struct Watch(OnceLock<Arc<dyn LogWatcher>>);

impl Watch {
    /// False, and nothing has changed, if there is a watcher already.
    pub fn set(&self, watcher: Arc<dyn LogWatcher>) -> bool {
        self.0.set(watcher).is_ok()
    }

    #[inline]
    pub fn get(&self) -> Option<&Arc<dyn LogWatcher>> {
        self.0.get()
    }
}

impl Watcher for Watch {
    fn durable(&self, to: Offset) {
        self.get().into_iter().for_each(|watcher| watcher.durable(to.0));
    }

    fn room(&self, is_there: bool) {
        self.get().into_iter().for_each(|watcher| watcher.room(is_there));
    }

    fn failed(&self, error: &JournalError) {
        self.get().into_iter().for_each(|watcher| watcher.failed(&error.to_string()));
    }

    fn no_space(&self, is_so: bool) {
        self.get().into_iter().for_each(|watcher| watcher.no_space(is_so));
    }
}

//! From units to the journal.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use stillframe_journal::{Journal, JournalError, Piece};

use super::watch::Watch;
use crate::error::OpError;
use crate::stream::{Consumer, Unit};

/// Takes units for the journal that there is at present.
pub(crate) struct Units {
    /// Exchanged only while no step is under way.
    journal: ArcSwapOption<Journal>,
    watch: Arc<Watch>,
}

impl Units {
    pub fn new(watch: Arc<Watch>) -> Units {
        Units { journal: ArcSwapOption::empty(), watch }
    }

    /// From now on units go there. While no step is under way.
    pub fn go_to(&self, journal: Option<Arc<Journal>>) {
        self.journal.store(journal);
    }
}

impl Consumer for Units {
    fn append(&self, unit: &Unit) {
        let journal = self.journal.load();
        let Some(journal) = journal.as_ref() else { return };
        let databases = unit.first_db().zip(unit.last_db()).map(|(first, last)| (first.0, last.0));
        let end = match unit.whole() {
            Some(bytes) => {
                journal.append(databases, &mut std::iter::once(Piece::Bytes(bytes)), bytes.len() as u64)
            }
            None => journal.append(databases, &mut unit.pieces(), unit.len_bytes()),
        };
        if let Some(watcher) = self.watch.get() {
            watcher.appended(unit.worker(), end.0);
        }
    }

    fn fail(&self, error: &OpError) {
        if let Some(journal) = self.journal.load().as_ref() {
            journal.fail(JournalError::Unit(error.to_string()));
        }
    }
}

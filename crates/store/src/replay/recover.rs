//! A start: what the log has since the checkpoint is replayed, and the log goes on.

use stillframe_journal::{Journal, JournalError, Place, RecoverError, Recovery};

use super::apply::{Applied, Applier, ApplyError};
use crate::error::OpenError;
use crate::log::{journal_options, LogHome};
use crate::store::Store;
use crate::stream::{command, Malformed};

/// What a start has replayed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    pub byte_count: u64,
    pub unit_count: u64,
    /// Bytes at the end of the log that were cut off: of a unit that had not been written to its end, so nobody was told of it.
    pub torn_byte_count: u64,
}

/// A store whose log has still to be read: what is in memory is the checkpoint, and nothing is saved.
#[must_use]
pub struct UnreadLog {
    store: Store,
    from: Option<Place>,
}

/// Why replay has stopped.
enum Stopped {
    ByCaller,
    Malformed(Malformed),
    Apply(ApplyError),
}

impl UnreadLog {
    /// `from`: where the checkpoint stands in its log, if it has one.
    pub(crate) fn of(store: Store, from: Option<Place>) -> UnreadLog {
        UnreadLog { store, from }
    }

    /// The store; to be used by nobody before [`UnreadLog::read`] has returned.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether there is something to be replayed.
    pub fn is_there(&self) -> bool {
        self.from.is_some()
    }

    /// Bytes at the end of the log of a unit that had not been written to its end. Reads all of it, and changes nothing.
    ///
    /// # Errors
    /// As of [`UnreadLog::read`].
    pub fn torn_byte_count(&self) -> Result<u64, OpenError> {
        let home = self.store.shared.log.home();
        self.from.map_or(Ok(0), |from| check_log(home, from).map(|found| found.torn_bytes))
    }

    /// Replays what the log has, and begins or ends the log as the store's options ask for. `go_on` is told now and then how much has been
    /// replayed; false ends it.
    ///
    /// # Errors
    /// [`OpenError`]: nothing that was acknowledged has been changed on disk.
    pub fn read(self, go_on: &mut dyn FnMut(Replayed) -> bool) -> Result<(Store, Replayed), OpenError> {
        let replayed = match self.from {
            Some(from) => self.replay(from, go_on)?,
            None => Replayed::default(),
        };
        let log = &self.store.shared.log;
        if log.wanted().is_some() && log.journal().is_none() {
            // A log begins with a checkpoint.
            self.store.checkpoint().map_err(|error| OpenError::Begin(Box::new(error)))?;
        }
        Ok((self.store, replayed))
    }

    fn replay(&self, from: Place, go_on: &mut dyn FnMut(Replayed) -> bool) -> Result<Replayed, OpenError> {
        let log = &self.store.shared.log;
        let mut replayed = Replayed::default();
        let mut applier = Applier::new(&self.store);
        let mut run = |_, units: &[u8]| {
            let count = for_all_units(units, |units| applier.apply_some(units).map_err(Stopped::Apply))?;
            replayed.byte_count += units.len() as u64;
            replayed.unit_count += count as u64;
            if go_on(replayed) {
                Ok(count)
            } else {
                Err(Stopped::ByCaller)
            }
        };
        let (journal, found) = match log.wanted() {
            Some(wanted) => {
                let shelf = log.home().shelf().map_err(OpenError::Log)?;
                let watch = log.watch().clone();
                let (journal, found) =
                    Journal::recover(shelf, from, None, journal_options(&wanted), watch, &mut run)
                        .map_err(open_error)?;
                (Some(journal), found)
            }
            // It ends with the next checkpoint, and stays as it is until then.
            None => (None, read_only(log.home(), from, &mut run)?),
        };
        drop(applier);
        log.recovered(journal, from, found.end);
        Ok(Replayed { torn_byte_count: found.torn_bytes, ..replayed })
    }
}

/// Reads a log to its end, and changes nothing.
///
/// # Errors
/// What is wrong with it, and units that are no commands.
pub(crate) fn check_log(home: &LogHome, from: Place) -> Result<Recovery, OpenError> {
    let mut db = None;
    let mut read = |_, units: &[u8]| {
        for_all_units(units, |units| {
            let script = command::first(units, db).map_err(Stopped::Malformed)?;
            db = script.db;
            Ok(Applied { byte_count: script.len, unit_count: 1 })
        })
    };
    read_only(home, from, &mut read)
}

fn read_only(
    home: &LogHome,
    from: Place,
    run: &mut stillframe_journal::Replay<'_, Stopped>,
) -> Result<Recovery, OpenError> {
    let missing = || JournalError::Missing { shelf: home.name(), log: from.log, segment: from.segment };
    let shelf = home.shelf_to_read().ok_or_else(|| OpenError::Log(missing()))?;
    Journal::check(&*shelf, from, None, run).map_err(open_error)
}

/// Returns how many units there were. `f` says how much of them, from the first on, it has taken.
fn for_all_units(
    mut units: &[u8],
    mut f: impl FnMut(&[u8]) -> Result<Applied, Stopped>,
) -> Result<usize, Stopped> {
    let mut total_count = 0;
    while !units.is_empty() {
        let Applied { byte_count, unit_count } = f(units)?;
        units = &units[byte_count..];
        total_count += unit_count;
    }
    Ok(total_count)
}

fn open_error(error: RecoverError<Stopped>) -> OpenError {
    match error {
        RecoverError::Journal(error) => OpenError::Log(error),
        RecoverError::Replay { source: Stopped::ByCaller, .. } => OpenError::Stopped,
        RecoverError::Replay { at, source: Stopped::Malformed(error) } => {
            OpenError::Replay { offset: at.0, source: error.into() }
        }
        RecoverError::Replay { at, source: Stopped::Apply(error) } => {
            OpenError::Replay { offset: at.0, source: error.into() }
        }
    }
}

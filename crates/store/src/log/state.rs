//! What a store's log is at, and what a checkpoint does with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use stillframe_journal::{Journal, JournalError, Offset, Place};
use stillframe_pagepool::pagefile::LogPosition;

use super::home::LogHome;
use super::report::{journal_options, LogReport, LogStatus};
use super::units::Units;
use super::watch::Watch;
use crate::listener::Listener;
use crate::log_options::LogOptions;
use crate::stream::Encoder;

/// The log of a store.
///
/// ```text
///             recovered, goes on          fails
///   UNREAD ─────────────────────▶ ON ──────────────▶ ON, failed
///     │ recovered, ends          ▲  │                   │ a checkpoint is durable that begins another log
///     ▼                 durable  │  │ a checkpoint      │
///    OFF ──────────▶ BEGINNING ──┘  │ without one       │
///     ▲   a cut                     │                   │
///     └─────────────────────────────┘◀──────────────────┘ (or without one)
/// ```
/// `UNREAD`: what is in memory is older than what is on disk, so no checkpoint is taken. `BEGINNING`: units are appended, and no superblock
/// names them: what they tell is not durable. `ON`: `cut` is the place of the newest durable checkpoint; the log is there from that of
/// the one before on.
pub(crate) struct Log {
    home: LogHome,
    encoder: Arc<Encoder<Units>>,
    watch: Arc<Watch>,
    state: Mutex<State>,
}

struct State {
    /// What is asked for; what there is follows with the next checkpoint.
    wanted: Option<LogOptions>,
    is_unread: bool,
    journal: Option<Arc<Journal>>,
    /// The newest durable checkpoint names a log that is not gone on with: it goes with the next one.
    is_left_over: bool,
    /// The checkpoint that is under way ends the log: from its cut on units go nowhere.
    is_ending: bool,
    /// In the present journal's log.
    cut: Option<Place>,
    /// Where the next log begins: behind all that any before has had.
    next: Offset,
}

/// What a checkpoint does with the log.
pub(crate) struct Plan {
    encoder: Arc<Encoder<Units>>,
    action: Action,
    /// At the cut: units go where the action says.
    has_turned: AtomicBool,
}

enum Action {
    /// There is no log, and is to be none.
    Nothing,
    GoOn(Arc<Journal>),
    /// The journal has a log of its own, which nothing names yet.
    Begin(Arc<Journal>),
    End,
}

impl Plan {
    /// At the cut: where it stands in the log.
    pub fn cut(&self) -> Option<Place> {
        self.has_turned.store(true, Ordering::Release);
        match &self.action {
            Action::Nothing => None,
            Action::GoOn(journal) => Some(journal.cut()),
            Action::Begin(journal) => {
                // What a failed log had still to say is in the checkpoint.
                turn(&self.encoder, Some(journal.clone()));
                Some(journal.cut())
            }
            Action::End => {
                turn(&self.encoder, None);
                None
            }
        }
    }

    /// Before a superblock names the cut (J11).
    ///
    /// # Errors
    /// The log has failed.
    pub fn make_durable(&self, place: Option<Place>) -> Result<(), JournalError> {
        match (&self.action, place) {
            (Action::GoOn(journal) | Action::Begin(journal), Some(place)) => {
                journal.make_durable(place.offset)
            }
            _ => Ok(()),
        }
    }
}

/// Units go there from now on. While no step is under way.
fn turn(encoder: &Encoder<Units>, journal: Option<Arc<Journal>>) {
    let is_there = journal.is_some();
    encoder.consumer().go_to(journal);
    match is_there {
        true => encoder.start(),
        false => encoder.stop(),
    }
}

impl Log {
    pub fn new(home: LogHome, wanted: Option<LogOptions>, is_unread: bool) -> Log {
        let watch = Arc::new(Watch::default());
        let state = State {
            wanted,
            is_unread,
            journal: None,
            is_left_over: false,
            is_ending: false,
            cut: None,
            next: Offset(0),
        };
        Log {
            home,
            encoder: Arc::new(Encoder::new(Units::new(watch.clone()))),
            watch,
            state: Mutex::new(state),
        }
    }

    pub fn listener(&self) -> Arc<dyn Listener> {
        self.encoder.clone()
    }

    pub fn home(&self) -> &LogHome {
        &self.home
    }

    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    pub fn wanted(&self) -> Option<LogOptions> {
        self.state.lock().wanted
    }

    /// Changes what is asked for. How an existing log is synced changes at once, all else with the next checkpoint.
    pub fn want(&self, wanted: Option<LogOptions>) {
        let mut state = self.state.lock();
        state.wanted = wanted;
        if let (Some(wanted), Some(journal)) = (wanted, &state.journal) {
            journal.set_sync(wanted.sync);
        }
    }

    pub fn is_unread(&self) -> bool {
        self.state.lock().is_unread
    }

    /// What was on disk has been replayed, from that cut on; the log goes on with a journal, or ends. While no step is under way.
    pub fn recovered(&self, journal: Option<Journal>, cut: Place, end: Offset) {
        let journal = journal.map(Arc::new);
        turn(&self.encoder, journal.clone());
        let mut state = self.state.lock();
        state.is_unread = false;
        state.cut = journal.is_some().then_some(cut);
        state.is_left_over = journal.is_none();
        (state.journal, state.next) = (journal, end);
    }

    /// Whether a checkpoint that is taken now begins a log.
    pub fn is_to_begin(&self) -> bool {
        let state = self.state.lock();
        state.wanted.is_some() && state.journal.is_none()
    }

    /// A checkpoint that has nothing to do with a log, while there is none.
    pub fn plan_without(&self) -> Plan {
        self.plan_of(Action::Nothing)
    }

    fn plan_of(&self, action: Action) -> Plan {
        Plan { encoder: self.encoder.clone(), action, has_turned: AtomicBool::new(false) }
    }

    /// What the checkpoint does that is about to be taken.
    ///
    /// # Errors
    /// A new log cannot be begun.
    pub fn plan(&self) -> Result<Plan, JournalError> {
        let (wanted, journal, next) = {
            let mut state = self.state.lock();
            state.is_ending = state.wanted.is_none() && state.journal.is_some();
            (state.wanted, state.journal.clone(), state.next)
        };
        let action = match (wanted, journal) {
            (None, None) => Action::Nothing,
            (None, Some(_)) => Action::End,
            (Some(_), Some(journal)) if journal.failure().is_none() => Action::GoOn(journal),
            (Some(wanted), before) => {
                let at = before.as_ref().map_or(next, |journal| journal.end());
                // It has failed, and must not touch the files any more.
                before.iter().for_each(|journal| journal.stop());
                let watch = self.watch.clone();
                Action::Begin(Arc::new(Journal::begin(
                    self.home.shelf()?,
                    at,
                    journal_options(&wanted),
                    watch,
                )?))
            }
        };
        Ok(self.plan_of(action))
    }

    /// The checkpoint is durable, or has failed. What has been done at its cut stays: a log that has begun becomes durable with the next
    /// one.
    pub fn settle(&self, plan: &Plan, place: Option<Place>, is_durable: bool) {
        let has_turned = plan.has_turned.load(Ordering::Acquire);
        match (&plan.action, place.filter(|_| is_durable)) {
            (Action::GoOn(journal), Some(place)) => {
                let before = self.state.lock().cut.replace(place);
                // The log reaches back to the checkpoint before.
                before.into_iter().for_each(|before| journal.release_below(before));
            }
            (Action::GoOn(journal), None) => journal.give_way(),
            (Action::Begin(journal), Some(place)) => {
                let before = self.replace(Some(journal.clone()), Some(place));
                journal.release_below(place);
                if before.is_some_and(|before| before.failure().is_some()) {
                    self.watch.get().into_iter().for_each(|watcher| watcher.renewed(place.offset.0));
                }
            }
            (Action::Begin(journal), None) if has_turned => drop(self.replace(Some(journal.clone()), None)),
            (Action::End, _) if has_turned => {
                drop(self.replace(None, None));
                self.state.lock().is_left_over = true;
                self.wipe_if(is_durable);
            }
            (Action::Nothing, _) => self.wipe_if(is_durable),
            _ => {}
        }
        self.state.lock().is_ending = false;
    }

    fn replace(&self, journal: Option<Arc<Journal>>, cut: Option<Place>) -> Option<Arc<Journal>> {
        let mut state = self.state.lock();
        state.cut = cut;
        let before = std::mem::replace(&mut state.journal, journal);
        state.next = before.as_ref().map_or(state.next, |journal| journal.end());
        before
    }

    /// Removes a log that no checkpoint names any more. What cannot be removed is no part of any log: it only takes space.
    fn wipe_if(&self, is_durable: bool) {
        if !is_durable || !std::mem::take(&mut self.state.lock().is_left_over) {
            return;
        }
        let Ok(shelf) = self.home.shelf() else { return };
        let numbers = shelf.list().unwrap_or_default();
        numbers.into_iter().for_each(|number| drop(shelf.remove(number)));
    }

    pub fn journal(&self) -> Option<Arc<Journal>> {
        self.state.lock().journal.clone()
    }

    /// Makes all durable that has been appended.
    ///
    /// # Errors
    /// The log has failed.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.journal().map_or(Ok(()), |journal| journal.make_durable(journal.end()))
    }

    /// Ends the log with the store: nothing is appended any more.
    ///
    /// # Errors
    /// The log has failed.
    pub fn close(&self) -> Result<(), JournalError> {
        turn(&self.encoder, None);
        let journal = self.state.lock().journal.take();
        journal.map_or(Ok(()), |journal| journal.close().map(drop))
    }

    pub fn report(&self) -> LogReport {
        let state = self.state.lock();
        let failure = state.journal.as_ref().and_then(|journal| journal.failure());
        let status = match (&state.journal, state.cut) {
            _ if state.is_unread => LogStatus::Unread,
            (None, _) => LogStatus::Off,
            (Some(_), _) if failure.is_some() => LogStatus::Failed,
            (Some(_), None) => LogStatus::Beginning,
            // Asked for again meanwhile: the next checkpoint begins another log.
            (Some(_), Some(_)) if state.is_ending && state.wanted.is_some() => LogStatus::Beginning,
            (Some(_), Some(_)) => LogStatus::On,
        };
        let journal = state.journal.as_ref().map(|journal| journal.report());
        let end = journal.as_ref().map_or(Offset(0), |report| report.end);
        LogReport {
            status,
            failure: failure.map(|error| error.to_string()),
            replay_bytes: state.cut.map_or(0, |cut| end.since(cut.offset)),
            is_named: state.cut.is_some() && !state.is_ending,
            journal,
        }
    }
}

/// How a cut is named in a superblock.
pub(crate) fn position_of(place: Option<Place>) -> LogPosition {
    place.map_or(LogPosition::NONE, |place| LogPosition {
        segment: place.segment.0.into(),
        offset: place.offset.0,
    })
}

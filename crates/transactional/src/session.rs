//! Sessions and their transactions: strict two-phase locking, in place, with undo.
//!
//! ```text
//!   begin ──▶ OPEN ── read, write ──▶ OPEN ── commit ──▶ order, algorithm, locks, place ──▶ ended
//!              │                        └── abort, or dropped ──▶ undo, algorithm, locks, place ──▶ ended
//!              └── a row is locked, or newer than the cut ──▶ FAILED ── commit, abort, or dropped ──▶ as an abort
//! ```
//! No transaction waits for a row: it begins anew (no-wait). So there is no deadlock, and no list of holders to keep. One
//! that was begun anew often becomes the elder, of which there is one at a time. It alone waits, and others leave what
//! it waits for to it. So each transaction ends (invariant V1).

use std::sync::Arc;

use crate::core::Core;
use crate::cut::{CommitSeq, Phase, Place, SessionSeq, Stage};
use crate::image::SessionId;
use crate::probe::{Mutation, Point};
use crate::row::{Change, Mode, RowId};
use crate::seam::{Algorithm, RestartCause};
use crate::stalls::{timed, SessionStats};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::wait::wait_for_others;
use crate::writes::Writes;

/// After so many restarts because of locks a transaction becomes the elder.
pub const ELDER_AFTER: u32 = 8;

/// Why an operation of a transaction was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TxnError {
    /// The transaction can only be begun anew; [`Session::run`] does that.
    #[error("the transaction has to begin anew: {0:?}")]
    Restart(RestartCause),
    #[error("there is no row {}: there are {row_count}", row.0)]
    NoSuchRow { row: RowId, row_count: u32 },
    #[error("a row has {row_words} words, not {word_count} from {first_word} on")]
    NoSuchWords { first_word: usize, word_count: usize, row_words: usize },
}

/// A transaction has been committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    pub session_seq: SessionSeq,
    /// None if it has written nothing, or the algorithm keeps no order of all commits.
    pub commit_seq: Option<CommitSeq>,
}

/// One thread's access to a store; it has one transaction at a time.
pub struct Session<'s, A: Algorithm> {
    core: &'s Core<A>,
    id: SessionId,
    place: Arc<Place>,
    writes: Writes<A::Mark>,
    stats: SessionStats,
    rng: fastrand::Rng,
}

impl<'s, A: Algorithm> Session<'s, A> {
    pub(crate) fn new(core: &'s Core<A>) -> Session<'s, A> {
        let (id, place) = core.sit_down();
        let rng = fastrand::Rng::with_seed(u64::from(id.0));
        Session { core, id, place, writes: Writes::new(), stats: SessionStats::default(), rng }
    }

    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    #[must_use]
    pub fn stats(&self) -> SessionStats {
        self.stats
    }

    /// A transaction that the caller begins anew if it must.
    pub fn begin(&mut self) -> Txn<'_, 's, A> {
        self.begin_as(false)
    }

    fn begin_as(&mut self, is_elder: bool) -> Txn<'_, 's, A> {
        let (core, place) = (self.core, &self.place);
        let in_cut = core.word.phase().stage() != Stage::REST;
        let began = timed(in_cut, &mut self.stats.stalls.begin_ns, || place.begin(&core.word));
        if !A::BY_COMMIT_ORDER {
            place.enter_epoch(began.epoch(A::EPOCH_BEGINS));
        }
        debug_assert!(self.writes.entries().is_empty());
        Txn { session: self, began, is_elder, failed: None, is_open: true }
    }

    /// Runs `body` in a transaction until it can be committed, or ends with an error of its own. A thread that runs it has no
    /// other transaction open: it might wait for itself.
    ///
    /// # Errors
    /// That of `body`; the transaction is undone then.
    pub fn run<T, E: From<TxnError>>(
        &mut self,
        mut body: impl FnMut(&mut Txn<'_, 's, A>) -> Result<T, E>,
    ) -> Result<(T, Committed), E> {
        let core = self.core;
        let mut elder = None;
        let mut lock_restarts = 0;
        loop {
            let mut txn = self.begin_as(elder.is_some());
            let result = body(&mut txn);
            let Some(cause) = txn.failed else {
                return match result {
                    Ok(value) => Ok((value, txn.commit()?)),
                    Err(error) => {
                        txn.abort();
                        Err(error)
                    }
                };
            };
            drop(txn);
            if cause == RestartCause::Locked {
                lock_restarts += 1;
                self.stats.lock_restarts_max = self.stats.lock_restarts_max.max(lock_restarts);
                self.back_off(lock_restarts);
            }
            // Who waits here has no lock and is not under way: neither others nor a cut wait for it.
            if lock_restarts >= ELDER_AFTER && elder.is_none() {
                elder = Some(core.elder.lock());
            }
        }
    }

    /// Longer each time, and not as long as the other waits.
    fn back_off(&mut self, restarts: u32) {
        let spins = self.rng.u32(0..16 << restarts.min(ELDER_AFTER));
        (0..spins).for_each(|_| std::hint::spin_loop());
        std::thread::yield_now();
    }
}

impl<A: Algorithm> Drop for Session<'_, A> {
    fn drop(&mut self) {
        self.core.stand_up(self.id);
    }
}

/// A transaction. Dropped, it is undone.
pub struct Txn<'t, 's, A: Algorithm> {
    session: &'t mut Session<'s, A>,
    began: Phase,
    is_elder: bool,
    failed: Option<RestartCause>,
    is_open: bool,
}

impl<A: Algorithm> Txn<'_, '_, A> {
    /// Copies words of a row from `first_word` on, as many as `to` has.
    ///
    /// # Errors
    /// The transaction must begin anew, or there are no such words.
    pub fn read(&mut self, row: RowId, first_word: usize, to: &mut [u64]) -> Result<(), TxnError> {
        self.read_locked(row, first_word, to, Mode::Shared)
    }

    /// The same of a row that is going to be written.
    ///
    /// # Errors
    /// As [`Txn::read`].
    pub fn read_for_update(&mut self, row: RowId, first_word: usize, to: &mut [u64]) -> Result<(), TxnError> {
        self.read_locked(row, first_word, to, Mode::Exclusive)
    }

    fn read_locked(
        &mut self,
        row: RowId,
        first_word: usize,
        to: &mut [u64],
        mode: Mode,
    ) -> Result<(), TxnError> {
        self.check(row, first_word, to.len())?;
        let is_known = self.session.writes.find(row).is_some();
        self.lock(row, mode)?;
        let core = self.session.core;
        if !is_known {
            core.algorithm.before_read(self.began, row).map_err(|cause| self.fail(cause))?;
        }
        let words = &core.algorithm.live(row)[first_word..];
        to.iter_mut().zip(words).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
        Ok(())
    }

    /// Overwrites words of a row from `first_word` on.
    ///
    /// # Errors
    /// The transaction must begin anew, or there are no such words.
    pub fn write(&mut self, row: RowId, first_word: usize, words: &[u64]) -> Result<(), TxnError> {
        self.check(row, first_word, words.len())?;
        let at = self.lock(row, Mode::Exclusive)?;
        let session = &mut *self.session;
        let core = session.core;
        let live = || &core.algorithm.live(row)[first_word..first_word + words.len()];
        // Where nobody has copied the row, this alone has what it was.
        let mut before: &[AtomicU64] = live();
        if session.writes.entry(at).mark.is_none() {
            let in_cut = self.began.stage() != Stage::REST;
            let is_whole = words.len() == core.shape.row_words();
            let change = if is_whole { Change::Whole } else { Change::Part };
            let capture = || core.algorithm.before_write(self.began, &core.word, row, change);
            let mark = timed(in_cut, &mut session.stats.stalls.capture_ns, capture);
            let mark = mark.map_err(|cause| self.fail(cause))?;
            self.session.writes.entry(at).mark = Some(mark);
        }
        let live = live();
        if core.probe.has(Mutation::KeptWhereWritten) {
            before = live;
        }
        self.session.writes.keep(row, first_word, before);
        live.iter().zip(words).for_each(|(live, word)| live.store(*word, Ordering::Relaxed));
        Ok(())
    }

    /// # Errors
    /// It had to begin anew, and has been undone.
    pub fn commit(mut self) -> Result<Committed, TxnError> {
        if let Some(cause) = self.failed {
            return Err(TxnError::Restart(cause));
        }
        let in_cut = self.began.stage() != Stage::REST;
        let mut commit_ns = self.session.stats.stalls.commit_ns;
        let committed = timed(in_cut, &mut commit_ns, || self.end_well());
        self.session.stats.stalls.commit_ns = commit_ns;
        Ok(committed)
    }

    fn end_well(&mut self) -> Committed {
        let core = self.session.core;
        let mut commit_seq = None;
        let is_early = core.probe.has(Mutation::LocksReleasedEarly);
        if is_early {
            self.release_locks();
            core.probe.reach(Point::Ordered);
        }
        if !self.session.writes.is_empty() {
            let mut ended = self.began;
            if A::BY_COMMIT_ORDER {
                let (seq, phase) = core.word.commit();
                (commit_seq, ended) = (Some(seq), phase);
            }
            core.algorithm.committed(self.began, ended, &self.session.writes);
        }
        let session_seq = self.session.place.count_commit();
        if !is_early {
            core.probe.reach(Point::Ordered);
            self.release_locks();
        }
        self.end();
        self.session.stats.commit_count += 1;
        Committed { session_seq, commit_seq }
    }

    /// Undoes it.
    pub fn abort(mut self) {
        self.session.stats.abort_count += u64::from(self.failed.is_none());
        self.undo();
    }

    /// Whether it can only be begun anew.
    #[must_use]
    pub fn failed(&self) -> Option<RestartCause> {
        self.failed
    }

    fn undo(&mut self) {
        let core = self.session.core;
        if !core.probe.has(Mutation::NoUndo) {
            self.session.writes.undo(|row| Some(core.algorithm.live(row)));
        }
        for (row, mark) in self.session.writes.written() {
            core.algorithm.undone(self.began, row, mark);
        }
        self.release_locks();
        self.end();
    }

    fn release_locks(&mut self) {
        for entry in self.session.writes.entries() {
            self.session.core.lock(entry.row).release(entry.mode);
        }
    }

    fn end(&mut self) {
        self.session.writes.clear();
        self.session.place.end();
        self.is_open = false;
    }

    fn check(&self, row: RowId, first_word: usize, word_count: usize) -> Result<(), TxnError> {
        let shape = self.session.core.shape;
        if let Some(cause) = self.failed {
            return Err(TxnError::Restart(cause));
        }
        if row.0 >= shape.row_count() {
            return Err(TxnError::NoSuchRow { row, row_count: shape.row_count() });
        }
        let row_words = shape.row_words();
        if first_word > row_words || word_count > row_words - first_word {
            return Err(TxnError::NoSuchWords { first_word, word_count, row_words });
        }
        Ok(())
    }

    fn fail(&mut self, cause: RestartCause) -> TxnError {
        self.failed = Some(cause);
        let stats = &mut self.session.stats;
        match cause {
            RestartCause::Locked => stats.lock_restart_count += 1,
            RestartCause::MetNewer => stats.newer_restart_count += 1,
        }
        TxnError::Restart(cause)
    }

    /// The place of the row among those that the transaction has locked.
    #[inline]
    fn lock(&mut self, row: RowId, mode: Mode) -> Result<usize, TxnError> {
        let found = self.session.writes.find(row);
        let held = found.map(|at| self.session.writes.entry(at).mode);
        if let (Some(at), true) = (found, held == Some(Mode::Exclusive) || held == Some(mode)) {
            return Ok(at);
        }
        if !self.take(row, mode, held.is_some()) {
            return Err(self.fail(RestartCause::Locked));
        }
        let at = found.unwrap_or_else(|| self.session.writes.push(row, mode));
        self.session.writes.entry(at).mode = mode;
        Ok(at)
    }

    fn take(&self, row: RowId, mode: Mode, is_shared: bool) -> bool {
        let lock = self.session.core.lock(row);
        if !self.is_elder {
            return lock.try_take(mode, is_shared, false);
        }
        let mut try_count = 0;
        while !lock.try_take(mode, is_shared, true) {
            lock.want();
            wait_for_others(try_count);
            try_count += 1;
        }
        true
    }
}

impl<A: Algorithm> Drop for Txn<'_, '_, A> {
    fn drop(&mut self) {
        if self.is_open {
            self.undo();
        }
    }
}

//! A cut, step by step, and its image.
//!
//! ```text
//!   REST ── the algorithm's steps ──▶ ... ── access ──▶ ... ──▶ REST
//!     given up anywhere: the next one takes the remaining steps without an image, and begins then
//! ```
//! One thread at a time takes a cut. Transactions begin and end meanwhile, and none waits for it.

use std::time::Instant;

use parking_lot::MutexGuard;

use crate::core::Core;
use crate::cut::{CommitSeq, Phase, Stage};
use crate::image::{CutInfo, Image, Prefix};
use crate::seam::{Algorithm, Step};
use crate::stalls::{nanoseconds, CutTimes};
use crate::wait::wait_for_others;

/// Where the cut under way is.
pub struct CutState {
    step: usize,
    phase: Phase,
    cut_number: u64,
    last_commit: CommitSeq,
    begin: Instant,
    times: CutTimes,
    second_copies: u32,
}

impl CutState {
    pub fn new() -> CutState {
        CutState {
            step: 0,
            phase: Phase::from_bits(0),
            cut_number: 0,
            last_commit: CommitSeq(0),
            begin: Instant::now(),
            times: CutTimes::default(),
            second_copies: 0,
        }
    }

    /// Number of the last cut, as algorithms are told it.
    pub fn last_cut(&self) -> u16 {
        self.phase.cut().wrapping_sub(1)
    }
}

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    Moved,
    /// For transactions that go by an older phase.
    Waiting,
    /// The image can be taken.
    AtAccess,
    Over,
}

/// A snapshot is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutReport {
    pub cut_number: u64,
    pub prefix: Prefix,
    pub times: CutTimes,
    /// Rows of the image that came from a second copy.
    pub second_copies: u32,
}

/// A snapshot under way. If it is dropped before it is over, the next one ends it without an image.
pub struct Cut<'s, A: Algorithm> {
    core: &'s Core<A>,
    state: MutexGuard<'s, CutState>,
    prefix: Option<Prefix>,
}

impl<'s, A: Algorithm> Cut<'s, A> {
    /// Takes no step yet, but the last ones of a cut that was given up.
    pub(crate) fn new(core: &'s Core<A>, state: MutexGuard<'s, CutState>) -> Cut<'s, A> {
        let mut cut = Cut { core, state, prefix: None };
        cut.end_given_up();
        cut.state.cut_number += 1;
        cut.state.begin = Instant::now();
        cut.state.times = CutTimes::default();
        cut.state.second_copies = 0;
        cut
    }

    fn end_given_up(&mut self) {
        while self.state.step != 0 {
            if self.advance() == Progress::AtAccess {
                self.core.algorithm.settle(self.state.phase.cut(), false);
                self.state.step += 1;
            }
        }
    }

    /// What comes next.
    #[must_use]
    pub fn next_step(&self) -> Step {
        A::STEPS[self.state.step]
    }

    /// Takes the next step, if that can be done now. Never waits.
    pub fn step(&mut self) -> Progress {
        match self.next_step() {
            Step::Enter(stage) => {
                self.enter(stage);
            }
            Step::Cut(stage) => {
                self.state.last_commit = self.enter(stage);
                self.state.times.to_cut_ns = nanoseconds(self.state.begin.elapsed());
            }
            Step::Drain if self.is_drained() => {
                // What is waited for after the image is no part of it.
                if self.prefix.is_none() {
                    let elapsed_ns = nanoseconds(self.state.begin.elapsed());
                    self.state.times.drain_ns = elapsed_ns - self.state.times.to_cut_ns;
                }
            }
            Step::Drain => return Progress::Waiting,
            Step::Access => return Progress::AtAccess,
            Step::Rest => {
                self.enter(Stage::REST);
                self.state.step = 0;
                return Progress::Over;
            }
        }
        self.state.step += 1;
        Progress::Moved
    }

    fn is_drained(&self) -> bool {
        let phase = self.state.phase;
        !self.core.algorithm.drains(phase.stage()) || self.core.are_all_past(phase)
    }

    fn enter(&mut self, stage: Stage) -> CommitSeq {
        let (last_commit, phase) = self.core.word.advance(stage);
        self.state.phase = phase;
        last_commit
    }

    /// Steps, with waits, until the image can be taken or the cut is over.
    fn advance(&mut self) -> Progress {
        let mut wait_count = 0;
        loop {
            match self.step() {
                Progress::Moved => wait_count = 0,
                Progress::Waiting => {
                    wait_for_others(wait_count);
                    wait_count += 1;
                }
                end => return end,
            }
        }
    }

    /// The access phase; waits for what has to come before it.
    ///
    /// # Errors
    /// The first of the image. It is void then, and the next one has all that it would have had.
    ///
    /// # Panics
    /// If it has been called before.
    pub fn access<I: Image>(&mut self, image: &mut I) -> Result<(), I::Error> {
        assert!(self.prefix.is_none(), "one image a cut");
        assert_eq!(self.advance(), Progress::AtAccess);
        let begin = Instant::now();
        let cut = self.state.phase.cut();
        let epoch = self.state.phase.epoch(A::EPOCH_BEGINS);
        let (prefix, ended) = match A::BY_COMMIT_ORDER {
            true => (Prefix::Commits(self.state.last_commit), Vec::new()),
            false => self.core.points(epoch),
        };
        self.prefix = Some(prefix.clone());
        self.core.algorithm.gather(cut);
        let info = CutInfo { cut_number: self.state.cut_number, prefix, is_full: A::IS_FULL };
        let result = self.emit(cut, &info, image);
        self.core.algorithm.settle(cut, result.is_ok());
        self.state.step += 1;
        if result.is_ok() {
            self.core.forget(&ended);
        }
        self.state.times.access_ns = nanoseconds(begin.elapsed());
        result
    }

    fn emit<I: Image>(&mut self, cut: u16, info: &CutInfo, image: &mut I) -> Result<(), I::Error> {
        image.begin(info)?;
        self.state.second_copies = self.core.algorithm.sweep(cut, |row, words| image.row(row, words))?;
        image.end()
    }

    /// What comes after the image, with waits.
    ///
    /// # Panics
    /// If there was no access.
    pub fn finish(mut self) -> CutReport {
        assert!(self.prefix.is_some(), "the access comes first");
        assert_eq!(self.advance(), Progress::Over);
        self.state.times.total_ns = nanoseconds(self.state.begin.elapsed());
        CutReport {
            cut_number: self.state.cut_number,
            prefix: self.prefix.take().expect("looked at"),
            times: self.state.times,
            second_copies: self.state.second_copies,
        }
    }
}

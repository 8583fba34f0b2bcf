//! Looking for free slots: long runs before short ones, and when to extend the file instead.

use super::bitmap::SlotSet;
use super::entry::{Slot, SlotRun};

/// How a checkpoint looks for slots: in this order, each until it yields nothing more.
///
/// A write costs about as much as 32 more pages in it would, so long runs come before anything else, and short ones,
/// lowest first, only when the file is as long as it may be.
pub(super) const CHECKPOINT_STAGES: &[Stage] = &[
    Stage::Runs(256),
    Stage::Runs(64),
    Stage::Grow,
    Stage::ReleaseIfMany,
    Stage::Runs(16),
    Stage::Runs(4),
    Stage::Runs(1),
    Stage::Release,
    Stage::GrowAnyway,
];

/// How write-backs look for slots. They free slots all the time, so they go round; the previous checkpoint is not theirs to
/// give up.
pub(super) const WRITE_BACK_STAGES: &[Stage] =
    &[Stage::Runs(64), Stage::Grow, Stage::Runs(16), Stage::Runs(4), Stage::Runs(1), Stage::AgainOrGrow];

/// See [`CHECKPOINT_STAGES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Free runs of at least so many slots.
    Runs(u32),
    /// Extend the file as far as what is needed in it justifies.
    Grow,
    /// Give up the previous checkpoint if that more than doubles the free slots.
    ReleaseIfMany,
    /// Give up the previous checkpoint.
    Release,
    /// Extend the file, as there is no other way.
    GrowAnyway,
    /// The same, unless enough has become free meanwhile: then begin anew.
    AgainOrGrow,
}

/// How far a search has come.
pub(super) struct Search {
    stages: &'static [Stage],
    /// Index into `stages`, and where the search goes on.
    stage: usize,
    cursor: u32,
    /// In a file that is too long the search looks below this slot first.
    pub ceiling: Option<u32>,
}

impl Search {
    pub fn new(stages: &'static [Stage]) -> Search {
        Search { stages, stage: 0, cursor: Slot::FIRST.0, ceiling: None }
    }

    /// Goes back to long runs and low addresses.
    pub fn restart(&mut self) {
        (self.stage, self.cursor) = (0, Slot::FIRST.0);
    }

    pub fn stage(&self) -> Stage {
        self.stages[self.stage]
    }

    /// To the next stage, from the first slot on; false after the last.
    pub fn advance(&mut self) -> bool {
        let is_last = self.stage + 1 == self.stages.len();
        if !is_last {
            self.stage += 1;
            if matches!(self.stage(), Stage::Runs(_)) {
                self.cursor = Slot::FIRST.0;
            }
        }
        !is_last
    }

    /// Goes on at a slot.
    pub fn go_on_at(&mut self, slot: u32) {
        self.cursor = slot;
    }

    /// The next free run as this stage wants it, in a file of `slot_count` slots: at most `need` slots of it.
    pub fn find_run(&mut self, used: &SlotSet, slot_count: u32, need: u32) -> Option<SlotRun> {
        let search_end = self.ceiling.unwrap_or(u32::MAX).min(slot_count);
        // A run that has been begun is used up, however short its rest.
        let mut begun = Some(self.cursor);
        loop {
            let Some(first) = used.first_absent(self.cursor, search_end) else {
                self.cursor = search_end;
                return None;
            };
            let end = used.first_present(first, search_end).unwrap_or(search_end);
            let least = match self.stage() {
                Stage::Runs(length) if begun.take() != Some(first) => length,
                _ => 1,
            };
            if end - first >= least {
                let run = SlotRun { first: Slot(first), slot_count: need.min(end - first) };
                self.cursor = first + run.slot_count;
                return Some(run);
            }
            self.cursor = end;
        }
    }
}

//! Which slots are free, and which of them to take next.

use super::bitmap::SlotSet;
use super::entry::{Slot, SlotRun};

/// How a checkpoint looks for slots: in this order, each until it yields nothing more.
///
/// A write costs about as much as 32 more pages in it would, so long runs come before anything else, and short ones,
/// lowest first, only when the file is as long as it may be.
const STAGES: [Stage; 9] = [
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

/// See [`STAGES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Free runs of at least so many slots.
    Runs(u32),
    /// Extend the file as far as its live slots justify.
    Grow,
    /// Give up the previous checkpoint if that more than doubles the free slots.
    ReleaseIfMany,
    /// Give up the previous checkpoint.
    Release,
    /// Extend the file, as there is no other way.
    GrowAnyway,
}

/// The file grows by this part of its length at a time, between these numbers of slots (256 KB, 16 MB). Growing takes
/// microseconds; what it adds in excess is space that nobody uses.
const GROWTH_PART: u32 = 256;
/// See [`GROWTH_PART`].
const GROWTH_SLOTS: std::ops::RangeInclusive<u32> = 64..=4096;

/// Length, in percent of the live slots, to which the file may grow rather than use short runs.
const GROWN: u64 = 160;
/// Beyond this length, in percent of the live slots, the file is too long: twice is what checkpoints that rewrite
/// everything need.
const OVERSIZE: u64 = 210;
/// In a file that is too long, slots below this part, in percent of the live slots, are taken first.
const OVERSIZE_CEILING: u64 = 125;
/// A checkpoint moves this part of the live slots of a file that is too long, and at least [`LEAST_MOVED`]: it shrinks
/// over several checkpoints rather than that one of them takes long.
const OVERSIZE_MOVED_PART: u32 = 16;
/// See [`OVERSIZE_MOVED_PART`].
const LEAST_MOVED: u32 = 256;

/// Slots (1 MB) that a file may always have beyond what its live slots justify.
const SLACK_SLOTS: u64 = 256;

/// The state of every slot.
///
/// ```text
///                take                    commit
///      free ------------> pending ---------------> live
///       ^  ^                 |                      |
///       |  | abort, replaced |                      | superseded by a commit
///       |  +-----------------+                      v
///       +--------------------------------------- previous
///              the next commit, or release_previous
///
///      free --spill--> spilled --release--> free
/// ```
///
/// *used* is everything but free. A checkpoint therefore never writes a slot that the durable checkpoint names, and
/// those of the one before it only once `release_previous` has been called (after that one has been made
/// unreachable).
///
/// The length of the file:
/// ```text
///      Settled -- begin_growth ----> Growing --- end_growth: the slots are there, or not ----> Settled
///      Settled -- begin_shrinking -> Shrinking - end_shrinking: they are gone, or back ------> Settled
/// ```
/// The device is asked for it in between, without the lock. A slot is known only while it is in the file: slots to come
/// from the end of the growth on, slots to go no longer from the begin of the shrinking. Whoever needs another length
/// waits until it is settled.
#[derive(Default)]
pub(super) struct Space {
    used: SlotSet,
    previous: SlotSet,
    pending: SlotSet,
    /// Slots the file has room for, the superblocks' included.
    slot_count: u32,
    length: Length,
    /// Slots that the durable checkpoint names.
    live_count: u64,
    /// Slots the running checkpoint took for pages that had none.
    new_count: u64,
    spilled_count: u32,
    /// There is no free slot below this one.
    free_from: u32,
    /// Index into [`STAGES`], and where the search goes on.
    stage: usize,
    cursor: u32,
    /// In a file that is too long the search looks below this slot first.
    ceiling: Option<u32>,
    /// The disk is full: no growth for convenience in this checkpoint.
    is_disk_full: bool,
}

/// See [`Space`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Length {
    #[default]
    Settled,
    Growing,
    Shrinking {
        /// Length of the file before.
        slot_count: u32,
    },
}

/// What to do when the search found no run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    /// Search again: shorter runs are considered now.
    Search,
    /// Extend the file to `slot_count` slots; fewer than `need` more are of no use.
    Grow {
        /// Wanted length of the file.
        slot_count: u32,
        /// Length without which the request cannot be met.
        least: u32,
    },
    /// Give up the previous checkpoint.
    ReleasePrevious,
    /// No file can be that long.
    Exhausted,
}

impl Space {
    /// Of a file of `slot_count` slots whose durable checkpoint takes `live` and the one before it also `previous`.
    pub fn recovered(slot_count: u32, live: SlotSet, mut previous: SlotSet) -> Space {
        previous.remove_all(&live);
        let live_count = u64::from(live.len());
        let mut used = live;
        used.insert_all(&previous);
        used.insert_run(SlotRun { first: Slot(0), slot_count: Slot::FIRST.0 });
        Space { used, previous, slot_count, live_count, ..Space::default() }
    }

    /// For the begin of a checkpoint: the search starts at long runs and low addresses.
    fn restart_search(&mut self) {
        (self.stage, self.cursor) = (0, Slot::FIRST.0);
    }

    /// Begins a checkpoint. Returns slots to which it should move pages from the end of a file that is too long.
    pub fn begin(&mut self) -> Vec<SlotRun> {
        (self.new_count, self.is_disk_full) = (0, false);
        self.restart_search();
        self.ceiling = self.is_oversize().then(|| self.limit(OVERSIZE_CEILING));
        let mut runs = Vec::new();
        if self.ceiling.is_some() {
            let mut missing = (self.live_count as u32 / OVERSIZE_MOVED_PART).max(LEAST_MOVED);
            for stage in (0..STAGES.len()).filter(|stage| matches!(STAGES[*stage], Stage::Runs(_))) {
                (self.stage, self.cursor) = (stage, Slot::FIRST.0);
                while let Some(run) = self.take(missing).filter(|run| run.slot_count > 0) {
                    missing -= run.slot_count;
                    runs.push(run);
                }
            }
            self.restart_search();
        }
        runs
    }

    /// A length of the file in percent of the slots that a checkpoint takes, and a little.
    fn limit(&self, percent: u64) -> u32 {
        let slot_count = (self.live_count + self.new_count) * percent / 100 + SLACK_SLOTS;
        u32::try_from(slot_count).unwrap_or(u32::MAX)
    }

    /// Whether the file is longer than even checkpoints that rewrite everything make it: much has been freed.
    fn is_oversize(&self) -> bool {
        self.slot_count > self.limit(OVERSIZE)
    }

    /// Which slots should be emptied by moving up to `count` pages; `superseded` are those of the durable checkpoint
    /// that the running one no longer names.
    pub fn choose_to_empty(&self, superseded: &SlotSet, count: u32) -> SlotSet {
        let mut live = self.used.clone();
        live.remove_all(&self.previous);
        live.remove_all(&self.pending);
        live.remove_all(superseded);
        live.last_from(self.limit(OVERSIZE_CEILING), count)
    }

    /// Announces that the running checkpoint needs slots for `page_count` pages that had none.
    pub fn expect_new(&mut self, page_count: u64) {
        self.new_count += page_count;
    }

    /// Takes up to `need` consecutive slots for the running checkpoint.
    pub fn take(&mut self, need: u32) -> Option<SlotRun> {
        let run = self.find_run(need)?;
        self.used.insert_run(run);
        self.pending.insert_run(run);
        self.cursor = run.first.0 + run.slot_count;
        Some(run)
    }

    fn find_run(&mut self, need: u32) -> Option<SlotRun> {
        let search_end = self.ceiling.unwrap_or(u32::MAX).min(self.slot_count);
        // A run that has been begun is used up, however short its rest.
        let mut begun = Some(self.cursor);
        loop {
            let Some(first) = self.used.first_absent(self.cursor, search_end) else {
                self.cursor = search_end;
                return None;
            };
            let end = self.used.first_present(first, search_end).unwrap_or(search_end);
            let least = match STAGES[self.stage] {
                Stage::Runs(length) if begun.take() != Some(first) => length,
                _ => 1,
            };
            if end - first >= least {
                return Some(SlotRun { first: Slot(first), slot_count: need.min(end - first) });
            }
            self.cursor = end;
        }
    }

    /// Takes one slot for a spilled page: the first free one that there is.
    pub fn take_spill(&mut self) -> Option<Slot> {
        let from = self.free_from.max(Slot::FIRST.0);
        let found = self.used.first_absent(from, self.slot_count);
        self.free_from = found.unwrap_or(self.slot_count);
        let slot = Slot(found?);
        self.used.insert(slot);
        self.spilled_count += 1;
        Some(slot)
    }

    pub fn release_spill(&mut self, slot: Slot) {
        assert!(self.used.remove(slot), "slot {} was not in use", slot.0);
        self.free_from = self.free_from.min(slot.0);
        self.spilled_count -= 1;
    }

    /// Decides how `need` slots are found after [`Space::take`] found none.
    pub fn plan(&mut self, need: u32) -> Room {
        let least = u64::from(self.tail_start()) + u64::from(need);
        let Ok(least) = u32::try_from(least) else { return Room::Exhausted };
        let slot_count = least.max(self.slot_count.saturating_add(self.growth_step()));
        loop {
            match STAGES[self.stage] {
                Stage::Grow if self.may_grow() && least <= self.limit(GROWN) => {
                    return Room::Grow { slot_count: slot_count.min(self.limit(GROWN)), least };
                }
                Stage::GrowAnyway if self.ceiling.take().is_some() => {
                    self.restart_search();
                    return Room::Search;
                }
                Stage::GrowAnyway => return Room::Grow { slot_count, least },
                _ => self.stage += 1,
            }
            let previous_count = self.previous.len();
            match STAGES[self.stage] {
                Stage::Runs(_) => {
                    self.cursor = Slot::FIRST.0;
                    return Room::Search;
                }
                Stage::ReleaseIfMany if previous_count > self.free_count() => return Room::ReleasePrevious,
                Stage::Release if previous_count > 0 && self.ceiling.is_none() => {
                    return Room::ReleasePrevious
                }
                _ => {}
            }
        }
    }

    /// Whether the file may grow for convenience.
    fn may_grow(&self) -> bool {
        !self.is_disk_full && self.ceiling.is_none()
    }

    fn growth_step(&self) -> u32 {
        (self.slot_count / GROWTH_PART).clamp(*GROWTH_SLOTS.start(), *GROWTH_SLOTS.end())
    }

    /// How long the file has to be for one more spilled page, when there is no free slot.
    pub fn plan_spill(&self) -> Room {
        match self.slot_count.checked_add(self.growth_step()) {
            Some(slot_count) => Room::Grow { slot_count, least: self.slot_count + 1 },
            None => Room::Exhausted,
        }
    }

    /// Whether nobody changes the length of the file just now.
    pub fn is_settled(&self) -> bool {
        self.length == Length::Settled
    }

    /// Settled → Growing.
    pub fn begin_growth(&mut self) {
        assert!(self.is_settled(), "one changes the length at a time");
        self.length = Length::Growing;
    }

    /// Growing → Settled; `grown` is the length if the file has it now.
    pub fn end_growth(&mut self, grown: Option<u32>) {
        assert_eq!(self.length, Length::Growing);
        self.length = Length::Settled;
        if let Some(slot_count) = grown {
            self.set_slot_count(slot_count);
        }
    }

    /// Settled → Shrinking, if a good part of the file is free at the end and not needed soon. Returns its length to be.
    pub fn begin_shrinking(&mut self) -> Option<u32> {
        let trimmed = self.trimmed().filter(|_| self.is_settled())?;
        self.length = Length::Shrinking { slot_count: self.slot_count };
        self.set_slot_count(trimmed);
        Some(trimmed)
    }

    /// Shrinking → Settled; unless the file `is_shorter` now it merely stays longer.
    pub fn end_shrinking(&mut self, is_shorter: bool) {
        let Length::Shrinking { slot_count } = std::mem::take(&mut self.length) else {
            unreachable!("the length was not being changed");
        };
        if !is_shorter {
            self.set_slot_count(slot_count);
        }
    }

    fn set_slot_count(&mut self, slot_count: u32) {
        self.free_from = self.free_from.min(self.slot_count).min(slot_count);
        self.slot_count = slot_count;
    }

    /// Lets the search go on in the free run at the end of the file, which has just been extended.
    pub fn search_tail(&mut self, old_tail_start: u32) {
        self.cursor = old_tail_start;
    }

    /// The disk is full: from now on free slots are used down to the last before growth is tried again.
    pub fn note_disk_full(&mut self) {
        self.is_disk_full = true;
    }

    /// Whether [`Space::note_disk_full`] has been called in this checkpoint.
    pub fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    /// First slot of the free run at the end of the file.
    pub fn tail_start(&self) -> u32 {
        self.used.last().map_or(Slot::FIRST.0, |last| last + 1).min(self.slot_count)
    }

    /// Frees what only the previous checkpoint named, and begins the search anew.
    pub fn release_previous(&mut self) {
        self.used.remove_all(&self.previous);
        self.previous.clear();
        self.free_from = Slot::FIRST.0;
        self.restart_search();
    }

    /// Gives back a slot that the running checkpoint took and does not need.
    pub fn release_pending(&mut self, slot: Slot) {
        assert!(self.pending.remove(slot) && self.used.remove(slot), "slot {} was not pending", slot.0);
        self.free_from = self.free_from.min(slot.0);
    }

    /// The running checkpoint has failed: gives its slots back.
    pub fn abort(&mut self) {
        self.used.remove_all(&self.pending);
        self.pending.clear();
        self.free_from = Slot::FIRST.0;
    }

    /// The running checkpoint may or may not be the durable one: keeps its slots for good.
    pub fn keep_in_doubt(&mut self) {
        self.pending.clear();
    }

    /// The running checkpoint is durable; `superseded` are the slots that only its predecessor names.
    pub fn commit(&mut self, superseded: SlotSet, live_count: u64) {
        self.used.remove_all(&self.previous);
        self.previous = superseded;
        self.free_from = Slot::FIRST.0;
        self.pending.clear();
        self.live_count = live_count;
        self.new_count = 0;
    }

    /// A shorter length for the file, if a good part of it is free at the end and not needed soon.
    fn trimmed(&self) -> Option<u32> {
        let tail_start = self.tail_start();
        let tail = u64::from(self.slot_count - tail_start);
        let is_long = self.slot_count > self.limit(GROWN);
        let is_worth_it = tail > u64::from(*GROWTH_SLOTS.start()) && tail > u64::from(self.slot_count) / 16;
        (is_long && is_worth_it).then_some(tail_start)
    }

    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    pub fn live_count(&self) -> u64 {
        self.live_count
    }

    pub fn previous_count(&self) -> u32 {
        self.previous.len()
    }

    pub fn pending_count(&self) -> u32 {
        self.pending.len()
    }

    pub fn spilled_count(&self) -> u32 {
        self.spilled_count
    }

    /// Slots of the file that nobody uses.
    pub fn free_count(&self) -> u32 {
        self.slot_count - self.used.len().min(self.slot_count)
    }
}

//! Which slots are free, and which of them to take next.

use super::bitmap::SlotSet;
use super::entry::{Slot, SlotRun};

/// Lengths in slots of the free runs that a checkpoint takes, in turn: all runs of at least the first length, lowest
/// first, then those of at least the second, and so on. Long runs make long writes, and those are fast.
const RUN_CLASSES: [u32; 5] = [256, 64, 16, 4, 1];

/// The file grows by 1/32 of its length at a time, between these numbers of slots.
const GROWTH_SLOTS: std::ops::RangeInclusive<u32> = 64..=16384;

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
#[derive(Default)]
pub(super) struct Space {
    used: SlotSet,
    previous: SlotSet,
    pending: SlotSet,
    /// Slots the file has room for, the superblocks' included.
    slot_count: u32,
    /// Slots that the durable checkpoint names.
    live_count: u64,
    /// Slots the running checkpoint took for pages that had none.
    new_count: u64,
    spilled_count: u32,
    /// Index into [`RUN_CLASSES`], and where the search goes on.
    class: usize,
    cursor: u32,
    /// The search looks at slots below this one only, as long as there is one.
    ceiling: Option<u32>,
    /// The disk is full: no growth for convenience in this checkpoint.
    is_disk_full: bool,
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
        let mut space = Space { used, previous, slot_count, live_count, ..Space::default() };
        space.restart_search();
        space
    }

    /// Goes back to long runs at low addresses; for the begin of a checkpoint.
    pub fn restart_search(&mut self) {
        self.class = 0;
        self.cursor = Slot::FIRST.0;
        self.ceiling = self.is_oversize().then_some(self.comfortable());
        self.is_disk_full = false;
        self.new_count = 0;
    }

    /// Slots that the durable and the running checkpoint would take together if both shared what they can.
    fn projected(&self) -> u64 {
        self.live_count + self.new_count
    }

    /// Length to which the file may grow rather than use up short runs.
    fn comfortable(&self) -> u32 {
        u32::try_from(self.projected() + self.projected() / 4 + SLACK_SLOTS).unwrap_or(u32::MAX)
    }

    /// Length to which the file may grow rather than give up the previous checkpoint.
    fn tolerable(&self) -> u32 {
        u32::try_from(self.projected() * 2 + SLACK_SLOTS).unwrap_or(u32::MAX)
    }

    /// Whether the file is longer than checkpoints make it: much has been freed.
    fn is_oversize(&self) -> bool {
        self.slot_count > self.tolerable().saturating_add(self.tolerable() / 16)
    }

    /// Where the live slots of an oversize file should all be below.
    pub fn ceiling(&self) -> Option<u32> {
        self.ceiling
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
            let least = if begun.take() == Some(first) { 1 } else { RUN_CLASSES[self.class] };
            if end - first >= least {
                return Some(SlotRun { first: Slot(first), slot_count: need.min(end - first) });
            }
            self.cursor = end;
        }
    }

    /// Takes up to `need` consecutive slots below the ceiling; none if there are none or there is no ceiling.
    pub fn take_below_ceiling(&mut self, need: u32) -> Option<SlotRun> {
        while self.ceiling.is_some() {
            let run = self.take(need);
            if run.is_some() {
                return run;
            }
            if self.class + 1 == RUN_CLASSES.len() {
                return None;
            }
            self.class += 1;
            self.cursor = Slot::FIRST.0;
        }
        None
    }

    /// Takes one slot for a spilled page: the first free one that there is.
    pub fn take_spill(&mut self) -> Option<Slot> {
        let slot = Slot(self.used.first_absent(Slot::FIRST.0, self.slot_count)?);
        self.used.insert(slot);
        self.spilled_count += 1;
        Some(slot)
    }

    pub fn release_spill(&mut self, slot: Slot) {
        assert!(self.used.remove(slot), "slot {} was not in use", slot.0);
        self.spilled_count -= 1;
    }

    /// Decides how `need` slots are found after [`Space::take`] found none.
    pub fn plan(&mut self, need: u32) -> Room {
        let least = u64::from(self.tail_start()) + u64::from(need);
        let Ok(least) = u32::try_from(least) else { return Room::Exhausted };
        let wanted = least.max(self.slot_count.saturating_add(self.growth_step()));
        let grow = |limit: u32| Room::Grow { slot_count: wanted.min(limit).max(least), least };
        let may_grow = !self.is_disk_full && self.ceiling.is_none();
        if self.class == 0 && may_grow && least <= self.comfortable() {
            return grow(self.comfortable());
        }
        if self.class + 1 < RUN_CLASSES.len() {
            self.class += 1;
            self.cursor = Slot::FIRST.0;
            return Room::Search;
        }
        if self.ceiling.take().is_some() {
            self.class = 0;
            self.cursor = Slot::FIRST.0;
            return Room::Search;
        }
        if may_grow && least <= self.tolerable() {
            return grow(self.tolerable());
        }
        match self.previous.len() {
            0 => grow(self.tolerable()),
            _ => Room::ReleasePrevious,
        }
    }

    fn growth_step(&self) -> u32 {
        (self.slot_count / 32).clamp(*GROWTH_SLOTS.start(), *GROWTH_SLOTS.end())
    }

    /// How long the file has to be for one more spilled page, when there is no free slot.
    pub fn plan_spill(&self) -> Room {
        match self.slot_count.checked_add(self.growth_step()) {
            Some(slot_count) => Room::Grow { slot_count, least: self.slot_count + 1 },
            None => Room::Exhausted,
        }
    }

    /// The file has `slot_count` slots now.
    pub fn set_slot_count(&mut self, slot_count: u32) {
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
        self.class = 0;
        self.cursor = Slot::FIRST.0;
    }

    /// Gives back a slot that the running checkpoint took and does not need.
    pub fn release_pending(&mut self, slot: Slot) {
        assert!(self.pending.remove(slot) && self.used.remove(slot), "slot {} was not pending", slot.0);
    }

    /// The running checkpoint has failed: gives its slots back.
    pub fn abort(&mut self) {
        self.used.remove_all(&self.pending);
        self.pending.clear();
    }

    /// The running checkpoint may or may not be the durable one: keeps its slots for good.
    pub fn keep_in_doubt(&mut self) {
        self.pending.clear();
    }

    /// The running checkpoint is durable; `superseded` are the slots that only its predecessor names.
    pub fn commit(&mut self, superseded: SlotSet, live_count: u64) {
        self.used.remove_all(&self.previous);
        self.previous = superseded;
        self.pending.clear();
        self.live_count = live_count;
        self.new_count = 0;
    }

    /// A shorter length for the file, if a good part of it is free at the end and not needed soon.
    pub fn trimmed(&self) -> Option<u32> {
        let tail_start = self.tail_start();
        let tail = u64::from(self.slot_count - tail_start);
        let is_long = u64::from(self.slot_count) > self.live_count + self.live_count / 2 + SLACK_SLOTS;
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

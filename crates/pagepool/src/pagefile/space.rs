//! The slots of the file: who names them, which to take next, and how many there are.

use super::bitmap::SlotSet;
use super::entry::{Slot, SlotRun};
use super::names::{Name, Names};
use super::search::{Search, Stage, CHECKPOINT_STAGES, WRITE_BACK_STAGES};

/// The file grows by this part of its length at a time, between these numbers of slots (256 KB, 16 MB). Growing takes
/// microseconds; what it adds in excess is space that nobody uses.
const GROWTH_PART: u32 = 256;
/// See [`GROWTH_PART`].
const GROWTH_SLOTS: std::ops::RangeInclusive<u32> = 64..=4096;

/// Length, in percent of the needed slots, to which the file may grow rather than use short runs.
const GROWN: u64 = 160;
/// Beyond this length, in percent of the needed slots, the file is too long: twice is what checkpoints that rewrite
/// everything need.
const OVERSIZE: u64 = 210;
/// In a file that is too long, slots below this part, in percent of the needed slots, are taken first.
const OVERSIZE_CEILING: u64 = 125;
/// A checkpoint moves this part of the live slots of a file that is too long, and at least [`LEAST_MOVED`]: it shrinks
/// over several checkpoints rather than that one of them takes long.
const OVERSIZE_MOVED_PART: u32 = 16;
/// See [`OVERSIZE_MOVED_PART`].
const LEAST_MOVED: u32 = 256;

/// Slots (1 MB) that a file may always have beyond what its needed slots justify.
const SLACK_SLOTS: u64 = 256;
/// Write-backs look through the file anew if at least this part of it has become free: each round looks at every word of
/// 64 slots, and finds as many slots as words then.
const WORTHWHILE_PART: u32 = 64;

/// The slots of the file, named ([`Names`]) and free.
///
/// The length of the file:
/// ```text
///      Settled -- begin_growth ----> Growing --- end_growth: the slots are there, or not ----> Settled
///      Settled -- begin_shrinking -> Shrinking - end_shrinking: they are gone, or back ------> Settled
/// ```
/// The device is asked for it in between, without the lock. A slot is known only while it is in the file: slots to come
/// from the end of the growth on, slots to go no longer from the begin of the shrinking. Whoever needs another length
/// waits until it is settled.
///
/// *Needed* are the slots that stay when the previous checkpoint goes: what the durable one names, locations, versions. By
/// them goes how long the file may be.
pub(super) struct Space {
    names: Names,
    /// Slots the file has room for, the superblocks' included.
    slot_count: u32,
    length: Length,
    /// Slots the running checkpoint took for pages that had none.
    new_count: u64,
    checkpoint: Search,
    write_back: Search,
    /// The disk is full: no growth for convenience until the next checkpoint.
    is_disk_full: bool,
}

/// Who takes slots in runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taker {
    Checkpoint,
    WriteBack,
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
    pub fn recovered(slot_count: u32, live: SlotSet, previous: SlotSet) -> Space {
        Space {
            names: Names::recovered(live, previous),
            slot_count,
            length: Length::Settled,
            new_count: 0,
            checkpoint: Search::new(CHECKPOINT_STAGES),
            write_back: Search::new(WRITE_BACK_STAGES),
            is_disk_full: false,
        }
    }

    fn search(&mut self, taker: Taker) -> &mut Search {
        match taker {
            Taker::Checkpoint => &mut self.checkpoint,
            Taker::WriteBack => &mut self.write_back,
        }
    }

    /// Begins a checkpoint. Returns slots to which it should move pages from the end of a file that is too long.
    pub fn begin(&mut self) -> Vec<SlotRun> {
        (self.new_count, self.is_disk_full) = (0, false);
        self.restart(Taker::Checkpoint);
        let mut runs = Vec::new();
        if self.checkpoint.ceiling.is_some() {
            let mut missing = (self.names.live_count() / OVERSIZE_MOVED_PART).max(LEAST_MOVED);
            while missing > 0 {
                let is_search = matches!(self.checkpoint.stage(), Stage::Runs(_));
                match is_search.then(|| self.take(Taker::Checkpoint, missing)).flatten() {
                    Some(run) => {
                        missing -= run.slot_count;
                        runs.push(run);
                    }
                    None if self.checkpoint.advance() => {}
                    None => break,
                }
            }
            self.checkpoint.restart();
        }
        runs
    }

    /// Begins a search anew, at low addresses only if the file is too long.
    fn restart(&mut self, taker: Taker) {
        let ceiling = self.is_oversize().then(|| self.limit(OVERSIZE_CEILING));
        let search = self.search(taker);
        search.restart();
        search.ceiling = ceiling;
    }

    /// A length of the file in percent of the slots that are needed when the checkpoint is durable, and a little.
    fn limit(&self, percent: u64) -> u32 {
        self.limit_with(0, percent)
    }

    /// The same, if `more` slots are needed.
    fn limit_with(&self, more: u32, percent: u64) -> u32 {
        let needed_count = u64::from(self.names.needed_count()) + u64::from(more) + self.new_count;
        u32::try_from(needed_count * percent / 100 + SLACK_SLOTS).unwrap_or(u32::MAX)
    }

    /// Whether the file is longer than even checkpoints that rewrite everything make it: much has been freed.
    fn is_oversize(&self) -> bool {
        self.slot_count > self.limit(OVERSIZE)
    }

    /// Which slots should be emptied by moving up to `count` pages; `superseded` are those of the durable checkpoint
    /// that the running one no longer names.
    pub fn choose_to_empty(&self, superseded: &SlotSet, count: u32) -> SlotSet {
        let mut movable = self.names.movable();
        movable.remove_all(superseded);
        movable.last_from(self.limit(OVERSIZE_CEILING), count)
    }

    /// Announces that the running checkpoint needs slots for `page_count` pages that had none.
    pub fn expect_new(&mut self, page_count: u64) {
        self.new_count += page_count;
    }

    /// Takes up to `need` consecutive slots.
    pub fn take(&mut self, taker: Taker, need: u32) -> Option<SlotRun> {
        let (search, name) = match taker {
            Taker::Checkpoint => (&mut self.checkpoint, Name::Pending),
            Taker::WriteBack => (&mut self.write_back, Name::Located),
        };
        let run = search.find_run(self.names.used(), self.slot_count, need)?;
        self.names.take(name, run);
        Some(run)
    }

    /// Takes one slot for a spilled page.
    pub fn take_spill(&mut self) -> Option<Slot> {
        self.names.take_kept(self.slot_count)
    }

    /// Names a slot that has a name once more, for a version that is in it.
    pub fn keep(&mut self, slot: Slot) {
        self.names.keep(slot);
    }

    /// See [`Names::adopt`].
    pub fn adopt(&mut self, slot: Slot) {
        self.names.adopt(slot);
    }

    /// See [`Names::release`].
    pub fn release(&mut self, name: Name, slot: Slot) {
        self.names.release(name, slot);
    }

    /// Decides how `need` slots are found after [`Space::take`] found none.
    pub fn plan(&mut self, taker: Taker, need: u32) -> Room {
        let least = u64::from(self.tail_start()) + u64::from(need);
        let Ok(least) = u32::try_from(least) else { return Room::Exhausted };
        let slot_count = least.max(self.slot_count.saturating_add(self.growth_step()));
        // A checkpoint has said what it expects.
        let more = if taker == Taker::WriteBack { need } else { 0 };
        loop {
            match self.search(taker).stage() {
                Stage::Grow if self.may_grow(taker) && least <= self.limit_with(more, GROWN) => {
                    return Room::Grow { slot_count: slot_count.min(self.limit_with(more, GROWN)), least };
                }
                Stage::GrowAnyway | Stage::AgainOrGrow if self.search(taker).ceiling.take().is_some() => {
                    self.search(taker).restart();
                    return Room::Search;
                }
                Stage::AgainOrGrow if self.is_search_worthwhile() => {
                    self.restart(taker);
                    return Room::Search;
                }
                Stage::GrowAnyway | Stage::AgainOrGrow => return Room::Grow { slot_count, least },
                _ => self.search(taker).advance(),
            };
            match self.search(taker).stage() {
                Stage::Runs(_) => return Room::Search,
                Stage::ReleaseIfMany if self.names.previous_only_count() > self.free_count() => {
                    return Room::ReleasePrevious;
                }
                Stage::Release
                    if self.checkpoint.ceiling.is_none() && self.names.previous_only_count() > 0 =>
                {
                    return Room::ReleasePrevious;
                }
                _ => {}
            }
        }
    }

    /// Whether write-backs should look through the file anew rather than extend it. If any slot is free they find one.
    fn is_search_worthwhile(&self) -> bool {
        let least = if self.is_disk_full { 0 } else { self.slot_count / WORTHWHILE_PART };
        self.free_count() > least
    }

    /// Whether the file may grow for convenience.
    fn may_grow(&mut self, taker: Taker) -> bool {
        !self.is_disk_full && self.search(taker).ceiling.is_none()
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
            // The tail may have become free meanwhile: then it was long enough.
            self.set_slot_count(slot_count.max(self.slot_count));
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
        self.names.note_length(self.slot_count.min(slot_count));
        self.slot_count = slot_count;
    }

    /// Lets a search go on in the free run at the end of the file, which has just been extended.
    pub fn search_tail(&mut self, taker: Taker, old_tail_start: u32) {
        self.search(taker).go_on_at(old_tail_start);
    }

    /// The disk is full: from now on free slots are used down to the last before growth is tried again.
    pub fn note_disk_full(&mut self) {
        self.is_disk_full = true;
    }

    /// Whether [`Space::note_disk_full`] has been called since the begin of the last checkpoint.
    pub fn is_disk_full(&self) -> bool {
        self.is_disk_full
    }

    /// First slot of the free run at the end of the file.
    pub fn tail_start(&self) -> u32 {
        self.names.used().last().map_or(Slot::FIRST.0, |last| last + 1).min(self.slot_count)
    }

    /// Ceases to name what the previous checkpoint names, and begins the searches anew.
    pub fn release_previous(&mut self) {
        self.names.release_previous();
        self.checkpoint.restart();
        self.restart(Taker::WriteBack);
    }

    /// The running checkpoint has failed: gives its slots back.
    pub fn abort(&mut self) {
        self.names.abort();
        self.restart(Taker::WriteBack);
    }

    /// The running checkpoint may or may not be the durable one: keeps its slots for good.
    pub fn keep_in_doubt(&mut self) {
        self.names.keep_in_doubt();
    }

    /// The running checkpoint is durable; `superseded` are the slots that only its predecessor names.
    pub fn commit(&mut self, superseded: SlotSet) {
        self.names.commit(superseded);
        self.new_count = 0;
        self.restart(Taker::WriteBack);
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

    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Slots of the file that nobody names.
    pub fn free_count(&self) -> u32 {
        self.slot_count - self.names.used().len().min(self.slot_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `need` slots for write-backs as the page file does, extending the file as is planned.
    fn take(space: &mut Space, need: u32) -> Vec<SlotRun> {
        let (mut runs, mut missing) = (Vec::new(), need);
        while missing > 0 {
            match space.take(Taker::WriteBack, missing) {
                Some(run) => {
                    missing -= run.slot_count;
                    runs.push(run);
                }
                None => match space.plan(Taker::WriteBack, missing) {
                    Room::Grow { slot_count, .. } => {
                        let (tail_start, before) = (space.tail_start(), space.slot_count());
                        space.begin_growth();
                        space.end_growth(Some(slot_count));
                        assert!(space.slot_count() >= before, "a growth to {slot_count}");
                        space.search_tail(Taker::WriteBack, tail_start);
                    }
                    room => assert_eq!(room, Room::Search, "a write-back gives nothing up"),
                },
            }
        }
        runs
    }

    fn let_go(space: &mut Space, runs: &[SlotRun]) {
        runs.iter().flat_map(|run| run.slots()).for_each(|slot| space.release(Name::Located, slot));
    }

    fn space(slot_count: u32) -> Space {
        Space::recovered(slot_count, SlotSet::default(), SlotSet::default())
    }

    /// The search has passed the end of the file, which has become free since: less is needed than there is.
    #[test]
    fn a_growth_to_less_than_there_is_takes_nothing_away() {
        let mut space = space(1000);
        let runs = take(&mut space, 997);
        let tail = SlotRun { first: Slot(100), slot_count: 900 };
        assert_eq!(runs, [SlotRun { first: Slot::FIRST, slot_count: 997 }]);
        let_go(&mut space, &[tail]);
        assert_eq!(take(&mut space, 1), [SlotRun { first: Slot(100), slot_count: 1 }]);
        assert_eq!(space.slot_count(), 1000);
    }

    /// Short runs are found again and again as they become free, and long ones are looked for first.
    #[test]
    fn write_backs_go_round() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut space = space(3);
        let mut slots: Vec<Slot> = take(&mut space, 2000).iter().flat_map(|run| run.slots()).collect();
        for _ in 0..2000 {
            let runs = take(&mut space, 1 + rng.u32(..40));
            slots.extend(runs.iter().flat_map(|run| run.slots()));
            while slots.len() > 2000 {
                let slot = slots.swap_remove(rng.usize(..slots.len()));
                space.release(Name::Located, slot);
            }
            assert!(
                u64::from(space.slot_count()) <= 2040 * GROWN / 100 + SLACK_SLOTS,
                "{}",
                space.slot_count()
            );
        }
        let long = SlotRun { first: Slot(500), slot_count: 200 };
        slots.retain(|slot| {
            let is_in = long.slots().any(|other| other == *slot);
            if is_in {
                space.release(Name::Located, *slot);
            }
            !is_in
        });
        space.release_previous();
        let first = take(&mut space, 64)[0];
        assert!(first.slot_count == 64, "{first:?}");
    }

    /// What is located or kept justifies the length of the file, and is not moved.
    #[test]
    fn needed_slots_are_those_that_stay() {
        let mut live = SlotSet::default();
        live.insert_run(SlotRun { first: Slot(3), slot_count: 1000 });
        let mut previous = SlotSet::default();
        previous.insert_run(SlotRun { first: Slot(1003), slot_count: 3000 });
        let mut space = Space::recovered(5400, live, previous);
        let percent = |space: &Space| (space.limit(100) - SLACK_SLOTS as u32, space.is_oversize());
        assert_eq!(percent(&space), (1000, true));
        let runs = take(&mut space, 1500);
        assert_eq!(percent(&space), (2500, false));
        (3..503).chain(1003..1503).for_each(|slot| space.keep(Slot(slot)));
        assert_eq!(percent(&space), (3000, false));
        space.release_previous();
        assert_eq!((percent(&space), space.names().previous_count()), ((3000, false), 0));
        let_go(&mut space, &runs);
        assert_eq!(percent(&space), (1500, true));
        let chosen = space.choose_to_empty(&SlotSet::default(), 2000);
        assert_eq!(chosen.len(), 0, "all of it lies low");
        let movable = |space: &Space| space.names().movable().len();
        assert_eq!(movable(&space), 500, "versions are in the others");
        (3..503).for_each(|slot| space.release(Name::Kept, Slot(slot)));
        assert_eq!(movable(&space), 1000);
    }
}

//! Who names which slots, and therefore which are free.

use std::collections::HashMap;

use super::bitmap::SlotSet;
use super::entry::{Slot, SlotRun};

/// Who names which slots. A slot is free if nobody does; only [`Names::is_free`] and [`Names::let_go_all`] decide that, by
/// the one list in [`Names::sets`].
///
/// Several may name the same slot, as they all mean the same content: the map of a checkpoint shares slots with locations,
/// and both with kept versions. So a slot is written once, when it is taken, and not again before it has been free.
///
/// ```text
///   taken by              named                     and later
///
///   a checkpoint ───────▶ pending ── commit ──────▶ live ── superseded by a commit ──▶ previous
///                          ▲  │ └─── in doubt ────▶ doubt, until the file is opened     │
///                 adopt ───┘  │ abort, replaced     again                               │ the next commit,
///                             ▼                                                         ▼ release_previous
///                            (let go)                                                  (let go)
///
///   a write-back ───────▶ located ── another location, forgotten, durable now ────────▶ (let go)
///
///   a spill ────────────▶ kept, as often as versions ── released ─────────────────────▶ (let go)
///                          ▲ are in it
///                          └── keep: a slot that is live or located
///
///   (let go): free, unless another name is left
/// ```
///
/// So a checkpoint never writes a slot that the durable one names, and those of the one before it only once
/// `release_previous` has been called (after that one has been made unreachable).
#[derive(Default)]
pub(super) struct Names {
    /// What is not free: whatever is named, and the superblocks' slots. Kept for the search.
    used: SlotSet,
    /// The durable checkpoint.
    live: SlotSet,
    /// The checkpoint before it, as far as the durable one does not name them.
    previous: SlotSet,
    /// The running checkpoint, as far as the durable one does not name them.
    pending: SlotSet,
    /// Locations that are not in the durable map, and what has been written back and has no page yet.
    located: SlotSet,
    /// Versions of pages, spilled or kept.
    kept: SlotSet,
    /// How many versions beyond the first are kept in a slot, if there are any.
    kept_again: HashMap<Slot, u32>,
    /// A checkpoint that may be the durable one on disk, and may not.
    doubt: SlotSet,
    /// There is no free slot below this one.
    free_from: u32,
}

/// As what a slot is taken, and let go one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name {
    Pending,
    Located,
    Kept,
}

impl Names {
    /// Of a file whose durable checkpoint names `live` and the one before it also `previous`.
    pub fn recovered(live: SlotSet, mut previous: SlotSet) -> Names {
        previous.remove_all(&live);
        let mut used = live.clone();
        used.insert_all(&previous);
        used.insert_run(SlotRun { first: Slot(0), slot_count: Slot::FIRST.0 });
        Names { used, live, previous, ..Names::default() }
    }

    /// All who name slots.
    fn sets(&self) -> [&SlotSet; 6] {
        [&self.live, &self.previous, &self.pending, &self.located, &self.kept, &self.doubt]
    }

    fn is_free(&self, slot: Slot) -> bool {
        !self.sets().iter().any(|set| set.contains(slot))
    }

    /// Somebody has ceased to name `slot`.
    fn let_go(&mut self, slot: Slot) {
        if self.is_free(slot) {
            self.used.remove(slot);
            self.free_from = self.free_from.min(slot.0);
        }
    }

    /// Somebody has ceased to name `slots`.
    fn let_go_all(&mut self, slots: &SlotSet) {
        let mut used = std::mem::take(&mut self.used);
        used.remove_unless(slots, &self.sets());
        self.used = used;
        self.free_from = Slot::FIRST.0;
    }

    /// Takes free slots.
    pub fn take(&mut self, name: Name, run: SlotRun) {
        for slot in run.slots() {
            assert!(self.used.insert(slot), "slot {} was taken although it was not free", slot.0);
            let is_new = match name {
                Name::Pending => self.pending.insert(slot),
                Name::Located => self.located.insert(slot),
                Name::Kept => self.kept.insert(slot),
            };
            debug_assert!(is_new);
        }
    }

    /// Takes one slot for a version: the first free one below `slot_count` that there is.
    pub fn take_kept(&mut self, slot_count: u32) -> Option<Slot> {
        let found = self.used.first_absent(self.free_from.max(Slot::FIRST.0), slot_count);
        self.free_from = found.unwrap_or(slot_count);
        let first = Slot(found?);
        self.take(Name::Kept, SlotRun { first, slot_count: 1 });
        Some(first)
    }

    /// One more version is in `slot`, which is named.
    pub fn keep(&mut self, slot: Slot) {
        assert!(self.used.contains(slot), "slot {} is kept although it is free", slot.0);
        if !self.kept.insert(slot) {
            *self.kept_again.entry(slot).or_default() += 1;
        }
    }

    /// The running checkpoint names `slot`, too, which is kept; for a page whose content the durable one has elsewhere.
    pub fn adopt(&mut self, slot: Slot) {
        assert!(self.kept.contains(slot), "slot {} is adopted although it is not kept", slot.0);
        assert!(!self.live.contains(slot), "slot {} is another page's in the durable checkpoint", slot.0);
        assert!(self.pending.insert(slot), "slot {} is another page's in this checkpoint", slot.0);
    }

    /// Who named `slot` as that does so no longer; for kept ones, once less.
    pub fn release(&mut self, name: Name, slot: Slot) {
        let was_named = match name {
            Name::Pending => self.pending.remove(slot),
            Name::Located => self.located.remove(slot),
            Name::Kept => {
                if let Some(more) = self.kept_again.get_mut(&slot) {
                    *more -= 1;
                    if *more == 0 {
                        self.kept_again.remove(&slot);
                    }
                    return;
                }
                self.kept.remove(slot)
            }
        };
        assert!(was_named, "slot {} was not {name:?}", slot.0);
        self.let_go(slot);
    }

    /// Nobody names the previous checkpoint any more.
    pub fn release_previous(&mut self) {
        let released = std::mem::take(&mut self.previous);
        self.let_go_all(&released);
    }

    /// The running checkpoint has failed.
    pub fn abort(&mut self) {
        let released = std::mem::take(&mut self.pending);
        self.let_go_all(&released);
    }

    /// The running checkpoint may or may not be the durable one: keeps its slots for good.
    pub fn keep_in_doubt(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.doubt.insert_all(&pending);
    }

    /// The running checkpoint is durable; `superseded` are the slots that only its predecessor names.
    pub fn commit(&mut self, superseded: SlotSet) {
        let released = std::mem::replace(&mut self.previous, superseded);
        let pending = std::mem::take(&mut self.pending);
        self.live.remove_all(&self.previous);
        self.live.insert_all(&pending);
        self.let_go_all(&released);
    }

    /// The file has, or is going to have, another length: up to this slot it is as it was.
    pub fn note_length(&mut self, slot_count: u32) {
        self.free_from = self.free_from.min(slot_count);
    }

    /// What is not free.
    pub fn used(&self) -> &SlotSet {
        &self.used
    }

    /// Slots of the durable checkpoint that moving its pages may free: nobody else wants them to stay.
    pub fn movable(&self) -> SlotSet {
        let mut movable = self.live.clone();
        [&self.located, &self.kept, &self.doubt].iter().for_each(|set| movable.remove_all(set));
        movable
    }

    /// Slots that are named by others than the checkpoint before the durable one and the running one.
    pub fn needed_count(&self) -> u32 {
        SlotSet::union_len(&[&self.live, &self.located, &self.kept, &self.doubt])
    }

    /// Slots that giving the previous checkpoint up would free.
    pub fn previous_only_count(&self) -> u32 {
        self.previous.len_without(&[&self.pending, &self.located, &self.kept, &self.doubt])
    }

    pub fn live_count(&self) -> u32 {
        self.live.len()
    }

    pub fn previous_count(&self) -> u32 {
        self.previous.len()
    }

    pub fn pending_count(&self) -> u32 {
        self.pending.len()
    }

    pub fn located_count(&self) -> u32 {
        self.located.len()
    }

    pub fn kept_count(&self) -> u32 {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT_COUNT: u32 = 200;

    /// Who names each slot: counted one by one.
    #[derive(Default)]
    struct Model {
        live: Vec<Slot>,
        previous: Vec<Slot>,
        pending: Vec<Slot>,
        located: Vec<Slot>,
        kept: Vec<Slot>,
    }

    impl Model {
        fn is_named(&self, slot: Slot) -> bool {
            [&self.live, &self.previous, &self.pending, &self.located, &self.kept]
                .iter()
                .any(|slots| slots.contains(&slot))
        }

        fn list(&mut self, name: Name) -> &mut Vec<Slot> {
            match name {
                Name::Pending => &mut self.pending,
                Name::Located => &mut self.located,
                Name::Kept => &mut self.kept,
            }
        }
    }

    fn take_random(names: &mut Names, model: &mut Model, rng: &mut fastrand::Rng) {
        let name = [Name::Pending, Name::Located, Name::Kept][rng.usize(..3)];
        let from = rng.u32(..SLOT_COUNT);
        if let Some(first) = names.used().first_absent(from, SLOT_COUNT).map(Slot) {
            assert!(!model.is_named(first), "slot {} is free and named", first.0);
            names.take(name, SlotRun { first, slot_count: 1 });
            model.list(name).push(first);
        }
        if let Some(slot) = names.take_kept(SLOT_COUNT).filter(|_| rng.bool()) {
            assert!(!model.is_named(slot), "slot {} is free and named", slot.0);
            assert!((Slot::FIRST.0..slot.0).all(|lower| model.is_named(Slot(lower))), "not the first");
            names.release(Name::Kept, slot);
        } else if let Some(taken) =
            (0..SLOT_COUNT).map(Slot).find(|slot| names.kept.contains(*slot) && !model.kept.contains(slot))
        {
            model.kept.push(taken);
        }
    }

    fn end_checkpoint(names: &mut Names, model: &mut Model, rng: &mut fastrand::Rng) {
        match rng.u8(..4) {
            0 => {
                names.abort();
                model.pending.clear();
            }
            1 => {
                names.release_previous();
                model.previous.clear();
            }
            _ => {
                let mut superseded = SlotSet::default();
                let (gone, stay): (Vec<_>, Vec<_>) = model.live.drain(..).partition(|_| rng.u8(..3) == 0);
                gone.iter().for_each(|slot| assert!(superseded.insert(*slot)));
                names.commit(superseded);
                (model.live, model.previous) = (stay, gone);
                model.live.append(&mut model.pending);
            }
        }
    }

    #[test]
    fn a_slot_is_free_if_and_only_if_nobody_names_it() {
        let mut rng = fastrand::Rng::with_seed(9);
        let (mut names, mut model) = (Names::default(), Model::default());
        names.used.insert_run(SlotRun { first: Slot(0), slot_count: Slot::FIRST.0 });
        for _ in 0..20_000 {
            match rng.u8(..10) {
                0..=3 => take_random(&mut names, &mut model, &mut rng),
                4 | 5 => {
                    let name = [Name::Pending, Name::Located, Name::Kept, Name::Kept][rng.usize(..4)];
                    let list = model.list(name);
                    if !list.is_empty() {
                        let slot = list.swap_remove(rng.usize(..list.len()));
                        names.release(name, slot);
                    }
                }
                6 | 7 => {
                    let slot = Slot(rng.u32(Slot::FIRST.0..SLOT_COUNT));
                    if model.is_named(slot) {
                        names.keep(slot);
                        model.kept.push(slot);
                    }
                }
                8 => {
                    let slot = Slot(rng.u32(..SLOT_COUNT));
                    let may = model.kept.contains(&slot) && !model.live.contains(&slot);
                    if may && !model.pending.contains(&slot) {
                        names.adopt(slot);
                        model.pending.push(slot);
                    }
                }
                _ => end_checkpoint(&mut names, &mut model, &mut rng),
            }
            let used = (0..SLOT_COUNT).filter(|slot| names.used().contains(Slot(*slot)));
            let named = (0..SLOT_COUNT).filter(|slot| *slot < Slot::FIRST.0 || model.is_named(Slot(*slot)));
            assert!(used.eq(named));
        }
        let previous_only = names.previous_only_count();
        let before = names.used().len();
        names.release_previous();
        assert_eq!(names.used().len(), before - previous_only);
    }
}

//! A growable set of slots, a bit each.

use super::entry::{Slot, SlotRun};

/// A set of slots. Slots beyond what it has room for are not in it.
#[derive(Clone, Default)]
pub(super) struct SlotSet {
    words: Vec<u64>,
    len: u32,
}

impl SlotSet {
    /// How many slots are in the set.
    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = place(slot.0);
        self.words.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }

    /// Puts `slot` in; false if it was in already.
    pub fn insert(&mut self, slot: Slot) -> bool {
        let (word, bit) = place(slot.0);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] >> bit & 1 == 0;
        self.words[word] |= 1 << bit;
        self.len += u32::from(fresh);
        fresh
    }

    pub fn insert_run(&mut self, run: SlotRun) {
        for slot in run.slots() {
            self.insert(slot);
        }
    }

    /// Takes `slot` out; false if it was not in.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let present = self.contains(slot);
        if present {
            let (word, bit) = place(slot.0);
            self.words[word] &= !(1 << bit);
            self.len -= 1;
        }
        present
    }

    /// Takes all slots of `other` out.
    pub fn remove_all(&mut self, other: &SlotSet) {
        for (bits, others) in self.words.iter_mut().zip(&other.words) {
            self.len -= (*bits & others).count_ones();
            *bits &= !others;
        }
    }

    /// Puts all slots of `other` in.
    pub fn insert_all(&mut self, other: &SlotSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (bits, others) in self.words.iter_mut().zip(&other.words) {
            self.len += (!*bits & others).count_ones();
            *bits |= others;
        }
    }

    /// Takes those slots of `slots` out that are in none of `others`.
    pub fn remove_unless(&mut self, slots: &SlotSet, others: &[&SlotSet]) {
        for (at, (bits, chosen)) in self.words.iter_mut().zip(&slots.words).enumerate() {
            // Most words of a large file are not concerned.
            if *chosen != 0 {
                let removed = chosen & !union_word(others, at);
                self.len -= (*bits & removed).count_ones();
                *bits &= !removed;
            }
        }
    }

    /// How many slots are in at least one of `sets`.
    pub fn union_len(sets: &[&SlotSet]) -> u32 {
        let word_count = sets.iter().map(|set| set.words.len()).max().unwrap_or(0);
        (0..word_count).map(|at| union_word(sets, at).count_ones()).sum()
    }

    /// How many of the slots are in none of `others`.
    pub fn len_without(&self, others: &[&SlotSet]) -> u32 {
        let words = self.words.iter().enumerate().filter(|(_, bits)| **bits != 0);
        words.map(|(at, bits)| (bits & !union_word(others, at)).count_ones()).sum()
    }

    /// The first slot from `from` on and below `end` that is not in the set.
    pub fn first_absent(&self, from: u32, end: u32) -> Option<u32> {
        self.first(from, end, u64::MAX)
    }

    /// The first slot from `from` on and below `end` that is in the set.
    pub fn first_present(&self, from: u32, end: u32) -> Option<u32> {
        self.first(from, end, 0)
    }

    /// The greatest slot of the set.
    pub fn last(&self) -> Option<u32> {
        let word = self.words.iter().rposition(|bits| *bits != 0)?;
        Some(word as u32 * 64 + 63 - self.words[word].leading_zeros())
    }

    /// The greatest `count` slots of this set, of those from `least` on.
    pub fn last_from(&self, least: u32, count: u32) -> SlotSet {
        let mut rest = self.clone();
        let mut chosen = SlotSet::default();
        while let Some(last) = rest.last().filter(|last| *last >= least && chosen.len < count) {
            rest.remove(Slot(last));
            rest.words.truncate((last / 64) as usize + 1);
            chosen.insert(Slot(last));
        }
        chosen
    }

    /// The first slot from `from` on and below `end` whose bit differs from those of `skip`.
    fn first(&self, from: u32, end: u32, skip: u64) -> Option<u32> {
        let (mut word, bit) = place(from);
        let mut mask = u64::MAX << bit;
        while (word as u64) * 64 < u64::from(end) {
            let bits = self.words.get(word).copied().unwrap_or(0) ^ skip;
            let hits = bits & mask;
            if hits != 0 {
                let slot = word as u32 * 64 + hits.trailing_zeros();
                return (slot < end).then_some(slot);
            }
            mask = u64::MAX;
            word += 1;
        }
        None
    }
}

fn union_word(sets: &[&SlotSet], at: usize) -> u64 {
    sets.iter().fold(0, |all, set| all | set.words.get(at).copied().unwrap_or(0))
}

fn place(slot: u32) -> (usize, u32) {
    ((slot / 64) as usize, slot % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn behaves_like_a_set_of_numbers() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut set, mut model) = (SlotSet::default(), BTreeSet::new());
        for _ in 0..4000 {
            let slot = rng.u32(..700);
            match rng.bool() {
                true => assert_eq!(set.insert(Slot(slot)), model.insert(slot)),
                false => assert_eq!(set.remove(Slot(slot)), model.remove(&slot)),
            }
            let (from, end) = (rng.u32(..800), rng.u32(..800));
            let absent = (from..end).find(|slot| !model.contains(slot));
            let present = (from..end).find(|slot| model.contains(slot));
            assert_eq!(set.first_absent(from, end), absent);
            assert_eq!(set.first_present(from, end), present);
            assert_eq!(set.len() as usize, model.len());
            assert_eq!(set.last(), model.last().copied());
        }
    }

    #[test]
    fn whole_set_operations_keep_the_count() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut sets = [SlotSet::default(), SlotSet::default()];
        for set in &mut sets {
            for _ in 0..300 {
                set.insert(Slot(rng.u32(..900)));
            }
        }
        let [left, right] = sets;
        let (mut both, mut rest) = (left.clone(), left.clone());
        both.insert_all(&right);
        rest.remove_all(&right);
        let count =
            |wanted: &dyn Fn(Slot) -> bool| (0..900).filter(|slot| wanted(Slot(*slot))).count() as u32;
        assert_eq!(both.len(), count(&|slot| left.contains(slot) || right.contains(slot)));
        assert_eq!(rest.len(), count(&|slot| left.contains(slot) && !right.contains(slot)));
        assert_eq!(SlotSet::union_len(&[&left, &right]), both.len());
        assert_eq!(SlotSet::union_len(&[&SlotSet::default(), &left]), left.len());
        assert_eq!(left.len_without(&[&right, &SlotSet::default()]), rest.len());
        let mut some = both.clone();
        some.remove_unless(&left, &[&SlotSet::default(), &right]);
        assert!((0..900).all(|slot| some.contains(Slot(slot)) == right.contains(Slot(slot))));
        assert_eq!(some.len(), right.len());
    }
}
